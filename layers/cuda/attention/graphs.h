/* SPDX-License-Identifier: MIT
 *
 * Causal attention as graphs of cuDNN's operations, in bf16. cuDNN recognises them by the order and the types of their
 * operations, and runs its flash attention kernels.
 */
#ifndef EO_LAYERS_CUDA_ATTENTION_GRAPHS_H
#define EO_LAYERS_CUDA_ATTENTION_GRAPHS_H

#include "layers/cuda/attention/cudnn_graph.h"
#include "layers/kernel_ops.h"

/* The graphs' real tensors: a variant pack's ids. */
enum eo_attention_tensor {
    EO_ATTENTION_Q = 1,
    EO_ATTENTION_K,
    EO_ATTENTION_V,
    EO_ATTENTION_OUT,
    EO_ATTENTION_LOG_SUM_EXP,
    EO_ATTENTION_SCALE,   /* by value: 1 / sqrt(head_size) */
    EO_ATTENTION_MINUS_INFINITY, /* by value */
    EO_ATTENTION_OUT_GRADIENT,
    EO_ATTENTION_Q_GRADIENT,
    EO_ATTENTION_K_GRADIENT,
    EO_ATTENTION_V_GRADIENT,
    EO_ATTENTION_ONE,     /* by value */
    EO_ATTENTION_DOT_SUM, /* scratch: fp32 [batch][head_count][seq] */
    EO_ATTENTION_Q_SUM,   /* scratch: fp32 [batch][head_count][seq][head_size]; cuDNN zeroes it */
};

/* 14 operations. */
void eo_attention_graph_forward(struct eo_cudnn_graph *graph, const struct eo_attention_shape *shape);

/*
 * 22 operations, 24 where heads of keys are shared. The query's gradient is summed in fp32 by blocks as they come, so its
 * last bits differ from run to run.
 */
void eo_attention_graph_backward(struct eo_cudnn_graph *graph, const struct eo_attention_shape *shape);

#endif
