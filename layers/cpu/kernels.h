/* SPDX-License-Identifier: MIT
 *
 * The functions of the tables "cpu": the kernels of kernel_ops.h, each split over a team (NULL: the calling thread
 * alone), in fp32 and bf16, but for multiply: in fp32. The contract is kernel_ops.h's; beyond it:
 *
 * - Operands need no alignment (64 bytes is fastest), and nothing is read or written beyond their end.
 * - multiply: oneDNN takes its packing buffer from the heap, once a product. A failure leaves C undefined.
 * - Sums have an order that the shape alone fixes. They differ in rounding between the levels (avx512, avx2, plain).
 *   Only multiply may differ in rounding with the number of threads, for oneDNN chooses its blocks by the shape of a
 *   part; it is repeatable for the same team size.
 */
#ifndef EO_LAYERS_CPU_KERNELS_H
#define EO_LAYERS_CPU_KERNELS_H

#include "layers/kernel_ops.h"

eo_status eo_cpu_multiply(eo_team *team, const struct eo_multiply *product);
eo_status eo_cpu_residual_add(eo_team *team, const struct eo_residual *residual);
eo_status eo_cpu_bias_add(eo_team *team, const struct eo_bias *bias);
eo_status eo_cpu_column_sums(eo_team *team, const struct eo_column_sums *sums);
eo_status eo_cpu_gelu_forward(eo_team *team, const struct eo_gelu *gelu);
eo_status eo_cpu_gelu_backward(eo_team *team, const struct eo_gelu_gradient *gelu);
eo_status eo_cpu_swiglu_forward(eo_team *team, const struct eo_swiglu *swiglu);
eo_status eo_cpu_swiglu_backward(eo_team *team, const struct eo_swiglu *swiglu);
uint64_t eo_cpu_norm_scratch_bytes(uint64_t rows, uint64_t width);
eo_status eo_cpu_norm_forward(eo_team *team, const struct eo_norm *norm);
eo_status eo_cpu_norm_backward(eo_team *team, const struct eo_norm_gradient *norm);
eo_status eo_cpu_head_norm_forward(eo_team *team, const struct eo_head_norm *norm);
eo_status eo_cpu_head_norm_backward(eo_team *team, const struct eo_head_norm_gradient *norm);
eo_status eo_cpu_dropout(eo_team *team, const struct eo_dropout *dropout); /* the bits of eo_host_dropout */
eo_status eo_cpu_rotate(eo_team *team, const struct eo_rotation *rotation);

/* A block of queries against all keys before them for each thread: O(seq), not seq x seq. Of either type, in fp32 within. */
uint64_t eo_cpu_attention_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape,
                                        uint32_t thread_count);
eo_status eo_cpu_attention_forward(eo_team *team, const struct eo_attention *attention);
eo_status eo_cpu_attention_backward(eo_team *team, const struct eo_attention *attention);

/* In bf16: O(seq) too. With tiles of pairs P and dS are rounded to bf16 before they are multiplied. */
uint64_t eo_cpu_attention_bf16_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape,
                                             uint32_t thread_count);
eo_status eo_cpu_attention_bf16_forward(eo_team *team, const struct eo_attention *attention);
eo_status eo_cpu_attention_bf16_backward(eo_team *team, const struct eo_attention *attention);

/* By these tiles of bf16; pairs need the level "avx512". */
struct eo_tiles;
eo_status eo_cpu_attention_bf16_by(eo_team *team, const struct eo_attention *attention, const struct eo_tiles *tiles,
                                   bool backward);

/* Chains of the rows of each token; fp32 needs none. */
uint64_t eo_cpu_embedding_bf16_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocabulary);
eo_status eo_cpu_embedding_forward(eo_team *team, const struct eo_embedding *embedding);
eo_status eo_cpu_embedding_backward(eo_team *team, const struct eo_embedding_gradient *embedding);
eo_status eo_cpu_cross_entropy(eo_team *team, const struct eo_loss *loss);
uint64_t eo_cpu_loss_bf16_scratch_bytes(uint64_t vocabulary, uint32_t thread_count);

/* oneDNN's products in fp32 go no higher than this instruction set of eo_kernels_name. Before the first of them; later nothing
 * changes. */
void eo_product_bound(const char *level);

/* eo_product_measure of a team of the CPU. */
EO_NODISCARD eo_status eo_cpu_product_measure(eo_team *team, const eo_product *product, double *flops_per_s);

#endif
