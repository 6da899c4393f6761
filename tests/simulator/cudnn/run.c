/* SPDX-License-Identifier: MIT
 *
 * Graphs of cuDNN's operations, checked and computed. Virtual tensors are arrays of floats in the order of their indices,
 * rounded to their type; what lies in memory is found by strides, and each tensor's stretch of it is declared to the checker.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulator/cuda/sim.h"
#include "program.h"
#include "streams/bf16.h"

typedef const struct sim_cudnn_tensor tensor_t;

static int64_t elements(tensor_t *t) { return t->size[0] * t->size[1] * t->size[2] * t->size[3]; }

/* From the first to the last element. */
static int64_t extent(tensor_t *t)
{
    int64_t last = 0;
    for (int i = 0; i < SIM_CUDNN_RANK; i++)
        last += (t->size[i] - 1) * t->stride[i];
    return last + 1;
}

static uint64_t element_bytes(tensor_t *t) { return t->type == CUDNN_DATA_BFLOAT16 ? 2 : 4; }

/* --- checks --- */

static bool broadcasts(tensor_t *from, tensor_t *to)
{
    for (int i = 0; i < SIM_CUDNN_RANK; i++)
        if (from->size[i] != to->size[i] && from->size[i] != 1)
            return false;
    return true;
}

static bool same_size(tensor_t *a, tensor_t *b) { return memcmp(a->size, b->size, sizeof(a->size)) == 0; }

static const char *check_pointwise(const struct sim_cudnn_operation *o, tensor_t *x, tensor_t *b, tensor_t *t, tensor_t *y)
{
    const bool binary = o->mode == CUDNN_POINTWISE_MUL || o->mode == CUDNN_POINTWISE_SUB || o->mode == CUDNN_POINTWISE_ADD ||
                        o->mode == CUDNN_POINTWISE_DIV || o->mode == CUDNN_POINTWISE_CMP_GE ||
                        o->mode == CUDNN_POINTWISE_BINARY_SELECT;
    const bool unary = o->mode == CUDNN_POINTWISE_EXP || o->mode == CUDNN_POINTWISE_LOG ||
                       o->mode == CUDNN_POINTWISE_IDENTITY || o->mode == CUDNN_POINTWISE_GEN_INDEX;
    if (!binary && !unary)
        return "a pointwise mode that the simulator does not know";
    if (binary != (b != NULL) || (o->mode == CUDNN_POINTWISE_BINARY_SELECT) != (t != NULL))
        return "a pointwise operation with an input too few or too many";
    if (!same_size(x, y) || (b && !broadcasts(b, y)) || (t && !same_size(t, y)))
        return "a pointwise operation whose sizes do not fit";
    if ((o->mode == CUDNN_POINTWISE_GEN_INDEX) != (o->axis >= 0) || o->axis >= SIM_CUDNN_RANK)
        return "an axis that is not there, or that nothing needs";
    if (o->mode == CUDNN_POINTWISE_GEN_INDEX && y->type != CUDNN_DATA_INT32)
        return "indices that are no INT32";
    if ((o->mode == CUDNN_POINTWISE_CMP_GE && y->type != CUDNN_DATA_BOOLEAN) || (t && t->type != CUDNN_DATA_BOOLEAN))
        return "a mask that is not BOOLEAN";
    return NULL;
}

static const char *check_operation(const struct sim_cudnn_program *p, const struct sim_cudnn_operation *o)
{
    tensor_t *x = &p->tensors[o->x], *y = &p->tensors[o->y];
    tensor_t *b = o->b == SIM_CUDNN_NONE ? NULL : &p->tensors[o->b], *t = o->t == SIM_CUDNN_NONE ? NULL : &p->tensors[o->t];
    switch (o->kind) {
    case SIM_CUDNN_POINTWISE:
        return check_pointwise(o, x, b, t, y);
    case SIM_CUDNN_MATMUL:
        if (x->size[0] != y->size[0] || b->size[0] != y->size[0] || x->size[1] != y->size[1] ||
            y->size[1] % b->size[1] != 0 || x->size[2] != y->size[2] || b->size[3] != y->size[3] || x->size[3] != b->size[2])
            return "a product whose sizes do not fit";
        return b->size[2] > 1 && b->stride[2] != 1 && b->stride[3] != 1 ? "a product's input without a stride of 1" : NULL;
    case SIM_CUDNN_REDUCTION:
        for (int i = 0; i < SIM_CUDNN_RANK; i++)
            if (x->size[i] % y->size[i] != 0)
                return "a reduction whose sizes do not fit";
        return o->mode == CUDNN_REDUCE_TENSOR_MAX || o->mode == CUDNN_REDUCE_TENSOR_ADD ? NULL : "an unknown reduction";
    case SIM_CUDNN_RESHAPE:
        return elements(x) == elements(y) && extent(x) == extent(y) ? NULL : "a reshape to another size";
    default:
        return "an unknown operation";
    }
}

static bool read_tensor(struct sim_cudnn_program *p, uint32_t at)
{
    if (at == SIM_CUDNN_NONE || p->tensors[at].is_written)
        return true;
    struct sim_cudnn_tensor *t = &p->tensors[at];
    t->is_read = true;
    return !t->is_virtual;
}

bool sim_cudnn_program_check(struct sim_cudnn_program *p, char *why, size_t why_bytes)
{
    for (uint32_t i = 0; i < p->tensor_count; i++) {
        for (uint32_t k = 0; k < i; k++)
            if (p->tensors[i].id == p->tensors[k].id) {
                snprintf(why, why_bytes, "two tensors with id %lld", (long long)p->tensors[i].id);
                return false;
            }
        tensor_t *t = &p->tensors[i];
        if (!t->is_virtual && (t->by_value ? elements(t) != 1 || t->type != CUDNN_DATA_FLOAT
                                           : t->type != CUDNN_DATA_BFLOAT16 && t->type != CUDNN_DATA_FLOAT)) {
            snprintf(why, why_bytes, "tensor %lld: of a type or size that memory does not have", (long long)t->id);
            return false;
        }
    }
    for (uint32_t i = 0; i < p->operation_count; i++) {
        const struct sim_cudnn_operation *o = &p->operations[i];
        const char *wrong = check_operation(p, o);
        if (!wrong && !(read_tensor(p, o->x) && read_tensor(p, o->b) && read_tensor(p, o->t)))
            wrong = "a virtual tensor is read before it is written";
        if (!wrong && (p->tensors[o->y].is_written || p->tensors[o->y].is_read || p->tensors[o->y].by_value))
            wrong = "a tensor is written that was read, written, or given by value";
        if (wrong) {
            snprintf(why, why_bytes, "operation %u: %s", i, wrong);
            return false;
        }
        p->tensors[o->y].is_written = true;
        if (o->kind == SIM_CUDNN_MATMUL && p->tensors[o->b].size[1] < p->tensors[o->y].size[1])
            p->is_grouped = true;
    }
    for (uint32_t i = 0; i < p->tensor_count; i++)
        if (!p->tensors[i].is_virtual && p->tensors[i].is_read && elements(&p->tensors[i]) > p->query_elements)
            p->query_elements = elements(&p->tensors[i]);
    return true;
}

/* One letter an operation: * product, + sum, M maximum, r reshape; pointwise x . - / and so on. */
static char letter_of(const struct sim_cudnn_operation *o)
{
    if (o->kind != SIM_CUDNN_POINTWISE)
        return o->kind == SIM_CUDNN_MATMUL ? '*' : o->kind == SIM_CUDNN_RESHAPE ? 'r' : o->mode == CUDNN_REDUCE_TENSOR_MAX ? 'M' : '+';
    switch (o->mode) {
    case CUDNN_POINTWISE_MUL:
        return 'x';
    case CUDNN_POINTWISE_SUB:
        return '-';
    case CUDNN_POINTWISE_ADD:
        return 'a';
    case CUDNN_POINTWISE_DIV:
        return '/';
    case CUDNN_POINTWISE_EXP:
        return 'e';
    case CUDNN_POINTWISE_LOG:
        return 'l';
    case CUDNN_POINTWISE_IDENTITY:
        return '=';
    case CUDNN_POINTWISE_GEN_INDEX:
        return o->axis == 2 ? '2' : '3';
    case CUDNN_POINTWISE_CMP_GE:
        return 'g';
    default:
        return 's';
    }
}

bool sim_cudnn_program_is_attention(const struct sim_cudnn_program *p)
{
    static const char *const forms[] = {"*x23gsM-e+la/*", "x+x*x-23gser**-xxr*r*=", "x+x*x-23gser*+*-xxr*+r*="};
    char letters[SIM_CUDNN_OPERATIONS_MAX + 1] = "";
    for (uint32_t i = 0; i < p->operation_count; i++)
        letters[i] = letter_of(&p->operations[i]);
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++)
        if (strcmp(letters, forms[f]) == 0)
            return true;
    return false;
}

/* --- the run --- */

struct state {
    const struct sim_cudnn_call *call;
    float *virtual[SIM_CUDNN_TENSORS_MAX];
    void *memory[SIM_CUDNN_TENSORS_MAX]; /* where the host finds it */
};

static float rounded(tensor_t *t, float value)
{
    return t->type == CUDNN_DATA_BFLOAT16 ? eo_bf16_to_float(eo_bf16_of_sum(value)) : value;
}

static float at_offset(const struct state *s, uint32_t at, int64_t offset)
{
    tensor_t *t = &s->call->program->tensors[at];
    return t->type == CUDNN_DATA_BFLOAT16 ? eo_bf16_to_float(((const uint16_t *)s->memory[at])[offset])
                                          : ((const float *)s->memory[at])[offset];
}

static int64_t offset_of(tensor_t *t, const int64_t index[SIM_CUDNN_RANK])
{
    int64_t offset = 0;
    for (int i = 0; i < SIM_CUDNN_RANK; i++)
        offset += (t->size[i] == 1 ? 0 : index[i]) * t->stride[i];
    return offset;
}

static int64_t number_of(tensor_t *t, const int64_t index[SIM_CUDNN_RANK])
{
    int64_t number = 0;
    for (int i = 0; i < SIM_CUDNN_RANK; i++)
        number = number * t->size[i] + (t->size[i] == 1 ? 0 : index[i]);
    return number;
}

/* Sizes of 1 are broadcast. */
static float get(const struct state *s, uint32_t at, const int64_t index[SIM_CUDNN_RANK])
{
    tensor_t *t = &s->call->program->tensors[at];
    if (t->by_value)
        return s->call->values[at];
    return t->is_virtual ? s->virtual[at][number_of(t, index)] : at_offset(s, at, offset_of(t, index));
}

static void put(const struct state *s, uint32_t at, const int64_t index[SIM_CUDNN_RANK], float value)
{
    tensor_t *t = &s->call->program->tensors[at];
    if (t->is_virtual)
        s->virtual[at][number_of(t, index)] = rounded(t, value);
    else if (t->type == CUDNN_DATA_BFLOAT16)
        ((uint16_t *)s->memory[at])[offset_of(t, index)] = eo_bf16_of_sum(value);
    else
        ((float *)s->memory[at])[offset_of(t, index)] = value;
}

static bool next_index(tensor_t *t, int64_t index[SIM_CUDNN_RANK])
{
    for (int i = SIM_CUDNN_RANK; i-- > 0; index[i] = 0)
        if (++index[i] < t->size[i])
            return true;
    return false;
}

static float pointwise(const struct state *s, const struct sim_cudnn_operation *o, const int64_t index[SIM_CUDNN_RANK])
{
    const float x = o->mode == CUDNN_POINTWISE_GEN_INDEX ? 0 : get(s, o->x, index);
    const float b = o->b == SIM_CUDNN_NONE ? 0 : get(s, o->b, index);
    switch (o->mode) {
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_GEN_INDEX:
        return (float)index[o->axis];
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return get(s, o->t, index) != 0 ? x : b;
    default:
        return x;
    }
}

static float product(const struct state *s, const struct sim_cudnn_operation *o, const int64_t index[SIM_CUDNN_RANK])
{
    tensor_t *a = &s->call->program->tensors[o->x], *b = &s->call->program->tensors[o->b];
    const int64_t head = index[1] * b->size[1] / a->size[1];
    float sum = 0;
    for (int64_t k = 0; k < a->size[3]; k++)
        sum += get(s, o->x, (const int64_t[]){index[0], index[1], index[2], k}) *
               get(s, o->b, (const int64_t[]){index[0], head, k, index[3]});
    return sum;
}

/* Of a stretch of each dimension, as long as it is shorter in y. */
static float reduction(const struct state *s, const struct sim_cudnn_operation *o, const int64_t index[SIM_CUDNN_RANK])
{
    tensor_t *x = &s->call->program->tensors[o->x], *y = &s->call->program->tensors[o->y];
    struct sim_cudnn_tensor stretch = *x;
    int64_t within[SIM_CUDNN_RANK] = {0}, at[SIM_CUDNN_RANK];
    float result = o->mode == CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0;
    for (int i = 0; i < SIM_CUDNN_RANK; i++)
        stretch.size[i] = x->size[i] / y->size[i];
    do {
        for (int i = 0; i < SIM_CUDNN_RANK; i++)
            at[i] = index[i] * stretch.size[i] + within[i];
        const float value = get(s, o->x, at);
        result = o->mode == CUDNN_REDUCE_TENSOR_ADD ? result + value : value > result ? value : result;
    } while (next_index(&stretch, within));
    return result;
}

/* The same memory by other strides. */
static void reshape(const struct state *s, const struct sim_cudnn_operation *o)
{
    tensor_t *x = &s->call->program->tensors[o->x], *y = &s->call->program->tensors[o->y];
    float *memory = calloc((size_t)extent(x), sizeof(*memory));
    int64_t index[SIM_CUDNN_RANK] = {0};
    if (!memory)
        abort();
    do
        memory[offset_of(x, index)] = get(s, o->x, index);
    while (next_index(x, index));
    memset(index, 0, sizeof(index));
    do
        put(s, o->y, index, memory[offset_of(y, index)]);
    while (next_index(y, index));
    free(memory);
}

static void run_operation(const struct state *s, const struct sim_cudnn_operation *o)
{
    int64_t index[SIM_CUDNN_RANK] = {0};
    if (o->kind == SIM_CUDNN_RESHAPE) {
        reshape(s, o);
        return;
    }
    do
        put(s, o->y, index,
            o->kind == SIM_CUDNN_POINTWISE ? pointwise(s, o, index)
            : o->kind == SIM_CUDNN_MATMUL  ? product(s, o, index)
                                           : reduction(s, o, index));
    while (next_index(&s->call->program->tensors[o->y], index));
}

static void body(const void *arguments)
{
    const struct sim_cudnn_call *call = arguments;
    const struct sim_cudnn_program *p = call->program;
    struct state state = {.call = call};
    for (uint32_t t = 0; t < p->tensor_count; t++) {
        tensor_t *tensor = &p->tensors[t];
        const uint64_t bytes = (uint64_t)extent(tensor) * element_bytes(tensor);
        if (tensor->is_virtual)
            state.virtual[t] = calloc((size_t)elements(tensor), sizeof(float));
        else if (tensor->is_written)
            state.memory[t] = sim_at_write(call->pointers[t], bytes);
        else if (!tensor->by_value)
            state.memory[t] = (void *)(uintptr_t)sim_at_read(call->pointers[t], bytes);
        if (tensor->is_virtual && !state.virtual[t])
            abort();
    }
    if (call->workspace_bytes > 0) /* garbage: nobody may count on what lies there */
        memset(sim_at_write(call->workspace, (uint64_t)call->workspace_bytes), 0xff, (size_t)call->workspace_bytes);
    for (uint32_t i = 0; i < p->operation_count; i++)
        run_operation(&state, &p->operations[i]);
    for (uint32_t t = 0; t < p->tensor_count; t++)
        free(state.virtual[t]);
}

cudaError_t sim_cudnn_program_issue(const struct sim_cudnn_call *call, cudaStream_t stream)
{
    const struct sim_cudnn_program *p = call->program;
    struct sim_range ranges[SIM_CUDNN_TENSORS_MAX + 1];
    uint32_t count = 0;
    for (uint32_t t = 0; t < p->tensor_count; t++) {
        tensor_t *tensor = &p->tensors[t];
        const uint64_t bytes = (uint64_t)extent(tensor) * element_bytes(tensor);
        if (!tensor->is_virtual && !tensor->by_value)
            ranges[count++] = tensor->is_written ? SIM_WRITES(call->pointers[t], bytes) : SIM_READS(call->pointers[t], bytes);
    }
    ranges[count++] = SIM_WRITES(call->workspace, (uint64_t)call->workspace_bytes);
    return sim_kernel("cudnnBackendExecute", stream, body, call, sizeof(*call), ranges, count);
}
