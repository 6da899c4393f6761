/* SPDX-License-Identifier: MIT
 *
 * The plain references of the kernels: loops as one would write the formula, sums in double, libm's functions, one
 * thread. Arguments as in kernels.h, less team and scratch. Used by tests, never by the models.
 */
#ifndef EO_LAYERS_REFERENCE_H
#define EO_LAYERS_REFERENCE_H

#include "layers/kernels.h"

void eo_multiply_ref(float *c, uint64_t c_stride, struct eo_matrix a, struct eo_matrix b, uint64_t m, uint64_t n,
                     uint64_t k, bool accumulate);
void eo_add_ref(float *out, const float *a, const float *b, uint64_t count);
void eo_bias_add_ref(float *values, const float *bias, uint64_t rows, uint64_t width);
void eo_bias_gradient_ref(float *bias_gradient, const float *gradient, uint64_t rows, uint64_t width,
                          bool accumulate);
void eo_gelu_forward_ref(float *out, const float *in, const float *bias, uint64_t rows, uint64_t width);
void eo_gelu_backward_ref(float *in_gradient, const float *out_gradient, const float *in, const float *bias,
                          float *bias_gradient, uint64_t rows, uint64_t width, bool accumulate);
void eo_swiglu_forward_ref(float *out, const float *gate, const float *up, uint64_t stride, uint64_t rows,
                           uint64_t width);
void eo_swiglu_backward_ref(float *gate_gradient, float *up_gradient, const float *out_gradient, const float *gate,
                            const float *up, uint64_t stride, uint64_t rows, uint64_t width);
void eo_rope_ref(float *values, uint64_t stride, float theta, const eo_rope_scaling *scaling, uint64_t rows, uint32_t seq,
                 uint32_t head_count, uint32_t head_size, bool backward);

/* The norms take what is normed already added up. bias NULL and mean NULL: RMSNorm. */
void eo_norm_sum_ref(float *sum, struct eo_norm_input input, uint64_t rows, uint64_t width);
void eo_norm_forward_ref(float *out, float *mean, float *rstd, const float *in, const float *weight,
                         const float *bias, float eps, uint64_t rows, uint64_t width);
void eo_norm_backward_ref(float *in_gradient, const float *skip_gradient, const float *out_gradient, const float *in,
                          const float *mean, const float *rstd, const float *weight, float *weight_gradient,
                          float *bias_gradient, uint64_t rows, uint64_t width, bool accumulate);

void eo_attention_forward_ref(float *out, float *log_sum_exp, const float *q, const float *k, const float *v,
                              const struct eo_attention_shape *shape);
/* Recomputes the weights from q and k: takes neither `out` nor log_sum_exp. */
void eo_attention_backward_ref(float *q_gradient, float *k_gradient, float *v_gradient, const float *out_gradient,
                               const float *q, const float *k, const float *v,
                               const struct eo_attention_shape *shape);

void eo_embedding_forward_ref(float *out, const int32_t *tokens, const float *token_table,
                              const float *position_table, uint64_t rows, uint32_t seq, uint64_t width);
void eo_embedding_backward_ref(float *token_gradient, float *position_gradient, const float *out_gradient,
                               const int32_t *tokens, uint64_t rows, uint32_t seq, uint64_t width,
                               uint64_t vocabulary, uint64_t positions, bool accumulate);
/* gradient NULL: the loss alone; gradient may be logits. */
double eo_cross_entropy_ref(float *losses, const float *logits, float *gradient, uint64_t stride,
                            const int32_t *targets, uint64_t rows, uint64_t vocabulary, float scale);

#endif
