/* SPDX-License-Identifier: MIT */
#include "layers/cuda/attention/cudnn_graph.h"

#include <stdio.h>

enum { CONFIGURATIONS = 8 };

static void fail(struct eo_cudnn_graph *graph, cudnnStatus_t status, const char *what)
{
    char reason[384] = "";
    if (graph->status != CUDNN_STATUS_SUCCESS)
        return;
    cudnnGetLastErrorString(reason, sizeof(reason));
    graph->status = status;
    snprintf(graph->failure, sizeof(graph->failure), "%s: %s %s", what, cudnnGetErrorString(status), reason);
}

static bool good(const struct eo_cudnn_graph *graph)
{
    return graph->status == CUDNN_STATUS_SUCCESS;
}

/* The graph owns it. */
static cudnnBackendDescriptor_t make(struct eo_cudnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    if (!good(graph))
        return NULL;
    if (graph->descriptor_count == EO_CUDNN_DESCRIPTORS_MAX) {
        fail(graph, CUDNN_STATUS_INTERNAL_ERROR, "too many descriptors");
        return NULL;
    }
    const cudnnStatus_t status = cudnnBackendCreateDescriptor(type, &descriptor);
    if (status != CUDNN_STATUS_SUCCESS) {
        fail(graph, status, "cudnnBackendCreateDescriptor");
        return NULL;
    }
    graph->descriptors[graph->descriptor_count++] = descriptor;
    return descriptor;
}

static void set(struct eo_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (!good(graph))
        return;
    const cudnnStatus_t status = cudnnBackendSetAttribute(descriptor, name, type, count, values);
    if (status != CUDNN_STATUS_SUCCESS) {
        char what[64];
        snprintf(what, sizeof(what), "cudnnBackendSetAttribute %d", (int)name);
        fail(graph, status, what);
    }
}

static void set_node(struct eo_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                     cudnnBackendAttributeName_t name, eo_cudnn_node node)
{
    set(graph, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &node);
}

static void set_type(struct eo_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    set(graph, descriptor, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void finalize(struct eo_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor, const char *what)
{
    if (!good(graph))
        return;
    const cudnnStatus_t status = cudnnBackendFinalize(descriptor);
    if (status != CUDNN_STATUS_SUCCESS)
        fail(graph, status, what);
}

void eo_cudnn_graph_begin(struct eo_cudnn_graph *graph, const eo_log *log, const char *name)
{
    *graph = (struct eo_cudnn_graph){.log = log, .name = name, .next_virtual_id = 1000};
}

void eo_cudnn_graph_end(struct eo_cudnn_graph *graph)
{
    for (uint32_t i = 0; i < graph->descriptor_count; i++)
        (void)cudnnBackendDestroyDescriptor(graph->descriptors[i]);
    graph->descriptor_count = 0;
}

eo_cudnn_node eo_cudnn_tensor(struct eo_cudnn_graph *graph, const struct eo_cudnn_tensor *tensor)
{
    const bool is_virtual = tensor->id == 0;
    const int64_t id = is_virtual ? graph->next_virtual_id++ : tensor->id, alignment = 16;
    cudnnBackendDescriptor_t d = make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(graph, d, CUDNN_ATTR_TENSOR_DATA_TYPE, tensor->type);
    set(graph, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor->size);
    set(graph, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor->stride);
    set(graph, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(graph, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(graph, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(graph, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &tensor->by_value);
    finalize(graph, d, "a tensor");
    return d;
}

static void add_operation(struct eo_cudnn_graph *graph, cudnnBackendDescriptor_t operation, const char *what)
{
    finalize(graph, operation, what);
    if (!good(graph))
        return;
    if (graph->operation_count == EO_CUDNN_OPERATIONS_MAX)
        fail(graph, CUDNN_STATUS_INTERNAL_ERROR, "too many operations");
    else
        graph->operations[graph->operation_count++] = operation;
}

void eo_cudnn_pointwise(struct eo_cudnn_graph *graph, cudnnPointwiseMode_t mode, int64_t axis, eo_cudnn_node x,
                        eo_cudnn_node b, eo_cudnn_node t, eo_cudnn_node y)
{
    const bool compares = mode == CUDNN_POINTWISE_CMP_GE;
    cudnnBackendDescriptor_t p = make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(graph, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(graph, p, CUDNN_ATTR_POINTWISE_MATH_PREC, compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
    if (axis >= 0)
        set(graph, p, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(graph, p, "a pointwise mode");
    cudnnBackendDescriptor_t o = make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_node(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_node(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_node(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t)
        set_node(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_node(graph, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(graph, o, "a pointwise operation");
}

void eo_cudnn_matmul(struct eo_cudnn_graph *graph, eo_cudnn_node a, eo_cudnn_node b, eo_cudnn_node c)
{
    cudnnBackendDescriptor_t m = make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(graph, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(graph, m, "a product's type");
    cudnnBackendDescriptor_t o = make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_node(graph, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_node(graph, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_node(graph, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_node(graph, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    add_operation(graph, o, "a product");
}

void eo_cudnn_reduce(struct eo_cudnn_graph *graph, cudnnReduceTensorOp_t operation, eo_cudnn_node x, eo_cudnn_node y)
{
    cudnnBackendDescriptor_t r = make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(graph, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operation);
    set_type(graph, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(graph, r, "a reduction's kind");
    cudnnBackendDescriptor_t o = make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_node(graph, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_node(graph, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_node(graph, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    add_operation(graph, o, "a reduction");
}

void eo_cudnn_reshape(struct eo_cudnn_graph *graph, eo_cudnn_node x, eo_cudnn_node y)
{
    cudnnBackendDescriptor_t o = make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_node(graph, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_node(graph, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(graph, o, "a reshape");
}

/* ---- plans ---- */

static cudnnBackendDescriptor_t make_heuristics(struct eo_cudnn_graph *graph, cudnnBackendDescriptor_t properties)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t g = make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->operation_count,
        graph->operations);
    finalize(graph, g, "the graph");
    cudnnBackendDescriptor_t h = make(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_node(graph, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g);
    set(graph, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_node(graph, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties);
    finalize(graph, h, "the heuristics");
    return h;
}

static int64_t configurations_of(struct eo_cudnn_graph *graph, cudnnBackendDescriptor_t heuristics,
                                 cudnnBackendDescriptor_t *configurations)
{
    int64_t count = 0;
    for (int i = 0; i < CONFIGURATIONS; i++)
        configurations[i] = make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!good(graph))
        return 0;
    const cudnnStatus_t status = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGURATIONS, &count,
                                                          configurations);
    if (status != CUDNN_STATUS_SUCCESS)
        fail(graph, status, "the heuristics' results");
    else if (count == 0) /* cuDNN calls that success, without a driver for one */
        fail(graph, CUDNN_STATUS_NOT_SUPPORTED, "the heuristics found no configuration");
    return good(graph) ? count : 0;
}

/* False: this configuration cannot be had; the next one may. */
static bool build_one(cudnnBackendDescriptor_t configuration, cudnnBackendDescriptor_t properties,
                      uint64_t workspace_limit, struct eo_cudnn_plan *out)
{
    int64_t bytes = -1, count = 0;
    cudnnBackendDescriptor_t plan = NULL;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS)
        return false;
    const bool built =
        cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &configuration) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &properties) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes) ==
            CUDNN_STATUS_SUCCESS;
    if (!built || bytes < 0 || (uint64_t)bytes > workspace_limit) {
        (void)cudnnBackendDestroyDescriptor(plan);
        return false;
    }
    *out = (struct eo_cudnn_plan){plan, (uint64_t)bytes};
    return true;
}

eo_status eo_cudnn_plan_build(struct eo_cudnn_graph *graph, cudnnBackendDescriptor_t properties,
                              uint64_t workspace_limit, struct eo_cudnn_plan *plan)
{
    cudnnBackendDescriptor_t configurations[CONFIGURATIONS];
    *plan = (struct eo_cudnn_plan){0};
    cudnnBackendDescriptor_t heuristics = make_heuristics(graph, properties);
    const int64_t count = configurations_of(graph, heuristics, configurations);
    for (int64_t i = 0; i < count; i++)
        if (build_one(configurations[i], properties, workspace_limit, plan))
            return EO_OK;
    if (good(graph))
        fail(graph, CUDNN_STATUS_NOT_SUPPORTED, "no configuration fits into the planned scratch memory");
    eo_layers_log(graph->log, EO_LOG_WARN, "cudnn: no plan for %s: %s", graph->name, graph->failure);
    return EO_ERR_UNSUPPORTED;
}

void eo_cudnn_plan_release(struct eo_cudnn_plan *plan)
{
    if (plan->plan)
        (void)cudnnBackendDestroyDescriptor(plan->plan);
    *plan = (struct eo_cudnn_plan){0};
}
