/* SPDX-License-Identifier: MIT
 *
 * Descriptors, and what is said of them: see tests/simulator/cudnn/cudnn.h. Their programs are run in tests/simulator/cudnn/run.c.
 */
#include "cudnn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "tests/simulator/cuda/internal.h"

enum { ATTRIBUTES_MAX = 16, OPERATIONS_MAX = 64 };

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void *values;
};

struct descriptor {
    uint32_t magic;
    cudnnBackendDescriptorType_t type;
    bool is_final;
    uint32_t attribute_count;
    struct attribute attributes[ATTRIBUTES_MAX];
    struct sim_cudnn_program *program; /* of a graph, and what is made of it */
    int64_t workspace_bytes;
};

struct handle {
    uint32_t magic;
    cudaStream_t stream;
};

#define MAGIC_DESCRIPTOR 0x63646e6eu
#define MAGIC_HANDLE     0x68646e6eu

static struct sim_cudnn_counts counts;
static char last_error[160];
static struct sim_cudnn_program *programs; /* kept to the end: what was issued may run after its plan is gone */
bool sim_cudnn_knows_no_plan;
size_t sim_cudnn_version;
struct sim_cudnn_mistake sim_cudnn_mistake;

struct sim_cudnn_counts sim_cudnn_counts(void) { return counts; }

void sim_cudnn_forget_refusals(void)
{
    counts.refused = 0;
    counts.first_refusal[0] = '\0';
}

/* Says why, and counts. */
static cudnnStatus_t refuse(cudnnStatus_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
static cudnnStatus_t refuse(cudnnStatus_t status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof(last_error), format, arguments);
    va_end(arguments);
    if (counts.refused++ == 0)
        memcpy(counts.first_refusal, last_error, sizeof(last_error));
    return status;
}

static bool is_to_fail(const char *function)
{
    const bool fails = sim_is_to_fail(function);
    if (fails)
        snprintf(last_error, sizeof(last_error), "a failure that a test asked for");
    return fails;
}

size_t cudnnGetVersion(void) { return sim_cudnn_version ? sim_cudnn_version : CUDNN_VERSION; }

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS of the simulator";
}

void cudnnGetLastErrorString(char *message, size_t bytes) { snprintf(message, bytes, "%s", last_error); }

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    if (is_to_fail("cudnnCreate"))
        return CUDNN_STATUS_NOT_INITIALIZED;
    struct handle *handle = sim_alloc(sizeof(*handle));
    handle->magic = MAGIC_HANDLE;
    counts.handles++;
    *out = (cudnnHandle_t)(void *)handle;
    return CUDNN_STATUS_SUCCESS;
}

static struct handle *handle_of(cudnnHandle_t given)
{
    struct handle *handle = (struct handle *)(void *)given;
    return handle && handle->magic == MAGIC_HANDLE ? handle : NULL;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t given)
{
    struct handle *handle = handle_of(given);
    if (!handle)
        return refuse(CUDNN_STATUS_BAD_PARAM, "cudnnDestroy: no handle");
    counts.handles--;
    handle->magic = 0;
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t given, cudaStream_t stream)
{
    struct handle *handle = handle_of(given);
    if (!handle)
        return refuse(CUDNN_STATUS_BAD_PARAM, "cudnnSetStream: no handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* --- descriptors --- */

static struct descriptor *descriptor_of(cudnnBackendDescriptor_t given)
{
    struct descriptor *d = (struct descriptor *)given;
    return d && d->magic == MAGIC_DESCRIPTOR ? d : NULL;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    *out = NULL;
    if (is_to_fail("cudnnBackendCreateDescriptor"))
        return CUDNN_STATUS_ALLOC_FAILED;
    struct descriptor *d = sim_alloc(sizeof(*d));
    d->magic = MAGIC_DESCRIPTOR;
    d->type = type;
    counts.descriptors++;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t given)
{
    struct descriptor *d = descriptor_of(given);
    if (!d)
        return refuse(CUDNN_STATUS_BAD_PARAM, "cudnnBackendDestroyDescriptor: no descriptor");
    for (uint32_t i = 0; i < d->attribute_count; i++)
        free(d->attributes[i].values);
    d->magic = 0;
    counts.descriptors--;
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

/* Which attributes are known, of which descriptor, and of what type. */
static const struct {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count_max;
    bool required;
} rules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 8, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, false},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, true},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, true},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, OPERATIONS_MAX, true},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, true},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, true},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, SIM_CUDNN_TENSORS_MAX, true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, SIM_CUDNN_TENSORS_MAX, true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, true},
};
enum { RULES = sizeof(rules) / sizeof(rules[0]) };

static size_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch ((int)type) {
    case CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return sizeof(int32_t); /* enumerations, and INT32 */
    }
}

static const struct attribute *find(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    for (uint32_t i = 0; d && i < d->attribute_count; i++)
        if (d->attributes[i].name == name)
            return &d->attributes[i];
    return NULL;
}

static int64_t integer(const struct descriptor *d, cudnnBackendAttributeName_t name, int64_t otherwise)
{
    const struct attribute *a = find(d, name);
    int64_t value = 0;
    if (!a)
        return otherwise;
    memcpy(&value, a->values, bytes_of(a->type));
    return value;
}

static struct descriptor *part(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct attribute *a = find(d, name);
    return a ? descriptor_of(*(cudnnBackendDescriptor_t *)a->values) : NULL;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t given, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    struct descriptor *d = descriptor_of(given);
    if (!d || d->is_final || !values || count < 1)
        return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: %s", (int)name,
                      d && d->is_final ? "the descriptor is final" : "no descriptor, or no value");
    uint32_t r = 0;
    while (r < RULES && !(rules[r].of == d->type && rules[r].name == name))
        r++;
    if (r == RULES || rules[r].type != type || count > rules[r].count_max)
        return refuse(r == RULES ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_BAD_PARAM,
                      "descriptor %d has no attribute %d of type %d and count %lld", (int)d->type, (int)name, (int)type,
                      (long long)count);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
        const struct descriptor *other = descriptor_of(((const cudnnBackendDescriptor_t *)values)[i]);
        if (!other || !other->is_final)
            return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute %d: descriptor %lld of it is not final", (int)name,
                          (long long)i);
    }
    const struct attribute *old = find(d, name);
    struct attribute *a = old ? &d->attributes[old - d->attributes] : &d->attributes[d->attribute_count++];
    if (d->attribute_count > ATTRIBUTES_MAX)
        abort();
    free(a->values);
    *a = (struct attribute){name, type, count, sim_alloc((size_t)count * bytes_of(type))};
    memcpy(a->values, values, (size_t)count * bytes_of(type));
    return CUDNN_STATUS_SUCCESS;
}

/* --- what Finalize looks at --- */

static cudnnStatus_t finalize_tensor(const struct descriptor *d)
{
    const struct attribute *size = find(d, CUDNN_ATTR_TENSOR_DIMENSIONS), *stride = find(d, CUDNN_ATTR_TENSOR_STRIDES);
    const int64_t alignment = integer(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    if (size->count != SIM_CUDNN_RANK || stride->count != SIM_CUDNN_RANK)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor of %lld sizes and %lld strides", (long long)size->count,
                      (long long)stride->count);
    for (int i = 0; i < SIM_CUDNN_RANK; i++)
        if (((int64_t *)size->values)[i] < 1 || ((int64_t *)stride->values)[i] < 1)
            return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor with a size or stride below 1");
    if (alignment < 1 || (alignment & (alignment - 1)) != 0)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor aligned to %lld bytes", (long long)alignment);
    if (integer(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) && integer(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0))
        return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor that is virtual and by value");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_pack(const struct descriptor *d)
{
    const struct attribute *ids = find(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct attribute *pointers = find(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    const int64_t *id = ids->values;
    if (ids->count != pointers->count)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a pack of %lld ids and %lld pointers", (long long)ids->count,
                      (long long)pointers->count);
    for (int64_t i = 0; i < ids->count; i++)
        for (int64_t k = 0; k < i; k++)
            if (id[i] == id[k])
                return refuse(CUDNN_STATUS_BAD_PARAM, "a pack with id %lld twice", (long long)id[i]);
    return CUDNN_STATUS_SUCCESS;
}

/* The tensor's place in the program: one that another operation gave has the same descriptor. */
static uint32_t tensor_of(struct sim_cudnn_program *program, const struct descriptor *d)
{
    for (uint32_t i = 0; i < program->tensor_count; i++)
        if (program->tensors[i].from == d)
            return i;
    if (program->tensor_count == SIM_CUDNN_TENSORS_MAX)
        abort();
    struct sim_cudnn_tensor *t = &program->tensors[program->tensor_count];
    memcpy(t->size, find(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->values, sizeof(t->size));
    memcpy(t->stride, find(d, CUDNN_ATTR_TENSOR_STRIDES)->values, sizeof(t->stride));
    t->from = d;
    t->id = integer(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    t->type = (cudnnDataType_t)integer(d, CUDNN_ATTR_TENSOR_DATA_TYPE, 0);
    for (int i = 0; i < SIM_CUDNN_RANK && t->id == sim_cudnn_mistake.id; i++)
        if (i >= 2 && t->stride[i] > 1) /* rows: the third size, or the fourth where they are turned */
            t->stride[i] += sim_cudnn_mistake.elements;
    t->alignment = integer(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
    t->is_virtual = integer(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0);
    t->by_value = integer(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0);
    return program->tensor_count++;
}

static bool add_operation(struct sim_cudnn_program *program, const struct descriptor *d)
{
    struct sim_cudnn_operation *o = &program->operations[program->operation_count++];
    const struct descriptor *kind;
    *o = (struct sim_cudnn_operation){.x = SIM_CUDNN_NONE, .b = SIM_CUDNN_NONE, .t = SIM_CUDNN_NONE};
    switch ((int)d->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        kind = part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        o->kind = SIM_CUDNN_POINTWISE;
        o->mode = (int)integer(kind, CUDNN_ATTR_POINTWISE_MODE, -1);
        o->axis = integer(kind, CUDNN_ATTR_POINTWISE_AXIS, -1);
        o->x = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
        if (part(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC))
            o->b = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
        if (part(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC))
            o->t = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
        o->y = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
        return true;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        o->kind = SIM_CUDNN_MATMUL;
        o->x = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
        o->b = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
        o->y = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
        return true;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        o->kind = SIM_CUDNN_REDUCTION;
        o->mode = (int)integer(part(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR, -1);
        o->x = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
        o->y = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
        return true;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        o->kind = SIM_CUDNN_RESHAPE;
        o->x = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
        o->y = tensor_of(program, part(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
        return true;
    default:
        return false;
    }
}

static cudnnStatus_t finalize_graph(struct descriptor *d)
{
    const struct attribute *given = find(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    struct sim_cudnn_program *program = sim_alloc(sizeof(*program));
    char why[128] = "what is no operation is among a graph's";
    program->next = programs;
    programs = program;
    for (int64_t i = 0; i < given->count; i++)
        if (!add_operation(program, descriptor_of(((cudnnBackendDescriptor_t *)given->values)[i])))
            return refuse(CUDNN_STATUS_BAD_PARAM, "%s", why);
    if (!sim_cudnn_program_check(program, why, sizeof(why)))
        return refuse(CUDNN_STATUS_BAD_PARAM, "%s", why);
    for (uint32_t i = 0; i < program->tensor_count; i++)
        program->tensors[i].from = NULL; /* descriptors may go */
    d->program = program;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t given)
{
    struct descriptor *d = descriptor_of(given);
    if (!d || d->is_final)
        return refuse(CUDNN_STATUS_BAD_PARAM, "cudnnBackendFinalize: %s", d ? "a second time" : "no descriptor");
    if (is_to_fail("cudnnBackendFinalize"))
        return CUDNN_STATUS_INTERNAL_ERROR;
    for (uint32_t r = 0; r < RULES; r++)
        if (rules[r].of == d->type && rules[r].required && !find(d, rules[r].name))
            return refuse(CUDNN_STATUS_BAD_PARAM, "descriptor %d lacks attribute %d", (int)d->type, (int)rules[r].name);
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (d->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        status = finalize_tensor(d);
    else if (d->type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        status = finalize_pack(d);
    else if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        status = finalize_graph(d);
    else if (d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
        d->program = part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->program;
    else if (d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
        status = refuse(CUDNN_STATUS_BAD_PARAM, "a configuration comes from the heuristics");
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        const struct descriptor *configuration = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        d->program = configuration->program;
        d->workspace_bytes = configuration->workspace_bytes;
        counts.plans++;
    }
    d->is_final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* As on Hopper: the first configuration needs little, the second more, and a sum of the query's gradient of its own. */
static int64_t workspace_of(const struct sim_cudnn_program *program, int64_t which)
{
    const int64_t shared = program->is_grouped ? program->query_elements * 4 : 0;
    return which == 0 ? 256 + shared : program->query_elements * 4 + shared;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const given, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *values)
{
    const struct descriptor *d = descriptor_of(given);
    if (!d || !d->is_final)
        return refuse(CUDNN_STATUS_BAD_PARAM, "cudnnBackendGetAttribute %d: the descriptor is not final", (int)name);
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
        type == CUDNN_TYPE_INT64 && wanted == 1) {
        *(int64_t *)values = d->workspace_bytes;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (d->type != CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR || name != CUDNN_ATTR_ENGINEHEUR_RESULTS ||
        type != CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "cudnnBackendGetAttribute %d", (int)name);
    /* No configuration is no error: so it is there. */
    *count = sim_cudnn_knows_no_plan || !sim_cudnn_program_is_attention(d->program) ? 0 : wanted < 2 ? wanted : 2;
    for (int64_t i = 0; i < *count; i++) {
        struct descriptor *configuration = descriptor_of(((cudnnBackendDescriptor_t *)values)[i]);
        if (!configuration || configuration->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return refuse(CUDNN_STATUS_BAD_PARAM, "the heuristics' results need descriptors of configurations");
        configuration->program = d->program;
        configuration->workspace_bytes = workspace_of(d->program, i);
        configuration->is_final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* --- execution --- */

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t given, cudnnBackendDescriptor_t plan_given, cudnnBackendDescriptor_t pack_given)
{
    const struct handle *handle = handle_of(given);
    const struct descriptor *plan = descriptor_of(plan_given), *pack = descriptor_of(pack_given);
    if (is_to_fail("cudnnBackendExecute"))
        return CUDNN_STATUS_EXECUTION_FAILED;
    if (!handle || !plan || !plan->is_final || plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !pack ||
        !pack->is_final || pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return refuse(CUDNN_STATUS_BAD_PARAM, "cudnnBackendExecute: no handle, or a plan or pack that is not final");
    const struct sim_cudnn_program *program = plan->program;
    const struct attribute *ids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void *const *pointers = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->values;
    struct sim_cudnn_call call = {.program = program, .workspace_bytes = plan->workspace_bytes,
                                  .workspace = *(void *const *)find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->values};
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const struct sim_cudnn_tensor *tensor = &program->tensors[t];
        for (int64_t i = 0; i < ids->count; i++)
            if (((int64_t *)ids->values)[i] == tensor->id &&
                !(sim_cudnn_mistake.forgotten && sim_cudnn_mistake.id == tensor->id))
                call.pointers[t] = pointers[i];
        if (tensor->is_virtual)
            continue;
        if (!call.pointers[t] || (!tensor->by_value && (uintptr_t)call.pointers[t] % (uint64_t)tensor->alignment != 0))
            return refuse(CUDNN_STATUS_BAD_PARAM, "the pack's pointer for id %lld is %s", (long long)tensor->id,
                          call.pointers[t] ? "not aligned" : "missing");
        if (tensor->by_value) /* host memory, read now */
            memcpy(&call.values[t], call.pointers[t], sizeof(float));
    }
    if (call.workspace_bytes > 0 && !call.workspace)
        return refuse(CUDNN_STATUS_BAD_PARAM, "the pack has no workspace");
    if ((uintptr_t)call.workspace % 256 != 0)
        return refuse(CUDNN_STATUS_BAD_PARAM, "the workspace is not aligned to 256 bytes");
    counts.runs++;
    return sim_cudnn_program_issue(&call, handle->stream) == cudaSuccess ? CUDNN_STATUS_SUCCESS
                                                                         : CUDNN_STATUS_EXECUTION_FAILED_CUDART;
}
