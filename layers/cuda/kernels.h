/* SPDX-License-Identifier: MIT
 *
 * The launch functions of the transformers' kernels on CUDA: each enqueues on `stream` and returns the launch's
 * error. Plain C; defined in the .cu files beside it, and a second time in C where a simulated device stands in.
 *
 * layers/kernel_ops.h has the contract of each. Beside that:
 * - The argument structures are read during the call only. `scratch` is 16-byte aligned at least.
 * - Two launches with the same arguments and contents give the same bits: no sum depends on the order in which blocks
 *   run, nor on how many multiprocessors there are.
 * - Fast where pointers are 16-byte aligned and widths and strides are multiples of 16 bytes; correct everywhere.
 */
#ifndef EO_LAYERS_CUDA_KERNELS_H
#define EO_LAYERS_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "layers/cuda/scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise.cu ---- */

cudaError_t eo_cuda_residual_add(const struct eo_residual *residual, cudaStream_t stream);
cudaError_t eo_cuda_scale(eo_dtype dtype, void *values, uint64_t count, float factor, cudaStream_t stream);
cudaError_t eo_cuda_dropout(const struct eo_dropout *dropout, cudaStream_t stream);
cudaError_t eo_cuda_column_sums(const struct eo_column_sums *sums, cudaStream_t stream);
cudaError_t eo_cuda_gelu_forward(const struct eo_gelu *gelu, cudaStream_t stream);
cudaError_t eo_cuda_swiglu_forward(const struct eo_swiglu *swiglu, cudaStream_t stream);
cudaError_t eo_cuda_swiglu_backward(const struct eo_swiglu *swiglu, cudaStream_t stream);
cudaError_t eo_cuda_rotate(const struct eo_rotation *rotation, cudaStream_t stream);

/* A product's epilogue after the product, where the library fuses none for its shape: C's rounded sums are the x. */
cudaError_t eo_cuda_epilogue(const struct eo_multiply *product, cudaStream_t stream);

/* *flag = 1 where a value is not finite; otherwise it is left as it is. */
cudaError_t eo_cuda_check_finite(uint32_t *flag, const void *values, uint64_t count, eo_dtype dtype,
                                 cudaStream_t stream);

/* ---- norms.cu ---- */

cudaError_t eo_cuda_norm_forward(const struct eo_norm *norm, cudaStream_t stream);
cudaError_t eo_cuda_norm_backward(const struct eo_norm_gradient *norm, cudaStream_t stream);

/* ---- head_norms.cu ---- */

cudaError_t eo_cuda_head_norm_forward(const struct eo_head_norm *norm, cudaStream_t stream);
cudaError_t eo_cuda_head_norm_backward(const struct eo_head_norm_gradient *norm, cudaStream_t stream);
cudaError_t eo_cuda_head_norm_weights(const struct eo_head_norm_weights *weights, cudaStream_t stream);

/* ---- embeddings.cu: at most 2^31 - 1 rows ---- */

cudaError_t eo_cuda_embedding_forward(const struct eo_embedding *embedding, cudaStream_t stream);
cudaError_t eo_cuda_embedding_backward(const struct eo_embedding_gradient *embedding, cudaStream_t stream);

/* ---- losses.cu ---- */

/* The sum of losses is taken in double, in another fixed order than row after row. */
cudaError_t eo_cuda_cross_entropy(const struct eo_loss *loss, cudaStream_t stream);
cudaError_t eo_cuda_loss_add(double *to, const double *loss, double factor, cudaStream_t stream);

/* ---- softmax.cu: attention by products ---- */

/*
 * A block of `queries` queries, the first at position `first`, against keys 0 ... keys-1 of one sequence, at least
 * first + queries, for `heads` heads. scores[heads][queries][keys] in fp32 are q k^T, not scaled; weights has the same
 * layout in dtype: rows of softmax(scale x scores) over the keys not after the query, and with positions (of the block's queries
 * in their documents, or NULL) not before its document, zero for the others. weights may be
 * scores where dtype is fp32. log_sum_exp[head x log_sum_exp_stride + query]: of the block's queries.
 */
struct eo_cuda_softmax {
    const float *scores;
    void *weights;
    float *log_sum_exp;
    uint64_t log_sum_exp_stride;
    uint32_t heads, queries, first, keys;
    float scale;
    eo_dtype dtype;
    const int32_t *positions; /* [queries] */
};
cudaError_t eo_cuda_softmax_forward(const struct eo_cuda_softmax *softmax, cudaStream_t stream);

/*
 * weights again, from scores and log_sum_exp; and scores_gradient = scale x weights x (weights_gradient - d), zero where
 * the weight is. weights_gradient is fp32: out_gradient v^T. d is the dot product of the query's rows of out and
 * out_gradient: those of head h and query i begin at h x out_head_stride + i x out_stride elements. Layouts as those of
 * scores; scores_gradient (dtype) may be weights_gradient, and weights may be scores, where dtype is fp32.
 */
struct eo_cuda_softmax_gradient {
    struct eo_cuda_softmax softmax;
    const float *weights_gradient;
    void *scores_gradient;
    const void *out, *out_gradient;
    uint64_t out_stride, out_head_stride;
    uint32_t head_size;
};
cudaError_t eo_cuda_softmax_backward(const struct eo_cuda_softmax_gradient *softmax, cudaStream_t stream);

/* to[row x stride + column] = from[row x width + column], rounded to dtype. */
cudaError_t eo_cuda_narrow_rows(void *to, uint64_t stride, const float *from, uint64_t rows, uint64_t width,
                                eo_dtype dtype, cudaStream_t stream);

/* ---- float8_rows.cu: a float8 product's operands, into its scratch (eo_float8_scratch_of) ---- */

cudaError_t eo_cuda_float8_rows(const struct eo_multiply *product, cudaStream_t stream);

/* Brings all kernels of a file to the device: when a team is made. */
cudaError_t eo_cuda_load_elementwise(void);
cudaError_t eo_cuda_load_embeddings(void);
cudaError_t eo_cuda_load_float8_rows(void);
cudaError_t eo_cuda_load_head_norms(void);
cudaError_t eo_cuda_load_losses(void);
cudaError_t eo_cuda_load_norms(void);
cudaError_t eo_cuda_load_softmax(void);

#ifdef __cplusplus
}
#endif

#endif
