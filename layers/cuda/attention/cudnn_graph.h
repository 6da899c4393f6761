/* SPDX-License-Identifier: MIT
 *
 * Graphs of operations by cuDNN's backend API, and plans made of them. A builder keeps the first failure and does nothing
 * after it, so a graph is written down as a list of operations and asked once at its end.
 */
#ifndef EO_LAYERS_CUDA_ATTENTION_CUDNN_GRAPH_H
#define EO_LAYERS_CUDA_ATTENTION_CUDNN_GRAPH_H

#include "layers/cuda/attention/cudnn_calls.h"

enum { EO_CUDNN_OPERATIONS_MAX = 32, EO_CUDNN_DESCRIPTORS_MAX = 256 };

struct eo_cudnn_graph {
    const eo_log *log;
    const char *name; /* static */
    cudnnStatus_t status;
    char failure[512]; /* what failed first, with cuDNN's own words */
    cudnnBackendDescriptor_t descriptors[EO_CUDNN_DESCRIPTORS_MAX]; /* all that were made, for release */
    uint32_t descriptor_count;
    cudnnBackendDescriptor_t operations[EO_CUDNN_OPERATIONS_MAX];
    uint32_t operation_count;
    int64_t next_virtual_id;
};

struct eo_cudnn_tensor {
    int64_t id; /* 0: a virtual tensor */
    cudnnDataType_t type;
    int64_t size[4], stride[4];
    bool by_value; /* a scalar from host memory */
};

typedef cudnnBackendDescriptor_t eo_cudnn_node; /* NULL after a failure */

void eo_cudnn_graph_begin(struct eo_cudnn_graph *graph, const eo_log *log, const char *name);
void eo_cudnn_graph_end(struct eo_cudnn_graph *graph); /* destroys the descriptors; plans live on */

eo_cudnn_node eo_cudnn_tensor(struct eo_cudnn_graph *graph, const struct eo_cudnn_tensor *tensor);

/* Operations; b and t NULL: not there. axis of CUDNN_POINTWISE_GEN_INDEX; else -1. */
void eo_cudnn_pointwise(struct eo_cudnn_graph *graph, cudnnPointwiseMode_t mode, int64_t axis, eo_cudnn_node x,
                        eo_cudnn_node b, eo_cudnn_node t, eo_cudnn_node y);
void eo_cudnn_matmul(struct eo_cudnn_graph *graph, eo_cudnn_node a, eo_cudnn_node b, eo_cudnn_node c);
void eo_cudnn_reduce(struct eo_cudnn_graph *graph, cudnnReduceTensorOp_t operation, eo_cudnn_node x, eo_cudnn_node y);
void eo_cudnn_reshape(struct eo_cudnn_graph *graph, eo_cudnn_node x, eo_cudnn_node y);

struct eo_cudnn_plan {
    cudnnBackendDescriptor_t plan; /* NULL: none */
    uint64_t workspace_bytes;
};

/*
 * The first of the heuristics' configurations that can be built with at most workspace_limit bytes. properties is a
 * CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: of a device, or read from a text where there is none. EO_ERR_UNSUPPORTED: there is
 * no such configuration (logged as a warning, with the reason).
 */
eo_status eo_cudnn_plan_build(struct eo_cudnn_graph *graph, cudnnBackendDescriptor_t properties,
                              uint64_t workspace_limit, struct eo_cudnn_plan *plan);
void eo_cudnn_plan_release(struct eo_cudnn_plan *plan);

#endif
