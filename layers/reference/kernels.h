/* SPDX-License-Identifier: MIT
 *
 * The kernels of kernel_ops.h in plain C, both element types: the standard for every other backend. One thread, no team, no
 * allocation, no state. Arguments as in kernel_ops.h; pointers are memory of the host.
 *
 * Every sum is in fp32, in the order of its index, but for losses (double): rows, columns or heads may be split over
 * threads without a change of bits.
 */
#ifndef EO_LAYERS_REFERENCE_KERNELS_H
#define EO_LAYERS_REFERENCE_KERNELS_H

#include "layers/kernel_ops.h"

void eo_ref_multiply(const struct eo_multiply *product);
void eo_ref_residual_add(const struct eo_residual *residual);
void eo_ref_gelu_forward(const struct eo_gelu *gelu);
void eo_ref_swiglu_forward(const struct eo_swiglu *swiglu);
void eo_ref_swiglu_backward(const struct eo_swiglu *swiglu);
void eo_ref_norm_forward(const struct eo_norm *norm);
void eo_ref_head_norm_forward(const struct eo_head_norm *norm);
void eo_ref_head_norm_weights(const struct eo_head_norm_weights *weights);
void eo_ref_rotate(const struct eo_rotation *rotation, uint64_t first_row);
void eo_ref_embedding_forward(const struct eo_embedding *embedding, uint64_t first_row);

/* values[count] *= gelu'(aux), again = gelu(aux), unless it is NULL: EO_EPILOGUE_GELU_GRADIENT as a pass of its own. */
void eo_ref_gelu_gradient(void *values, const void *aux, void *again, eo_dtype dtype, uint64_t count);

/* Of columns [first, first + count). */
void eo_ref_column_sums(const struct eo_column_sums *sums, uint64_t first, uint64_t count);
void eo_ref_norm_weight_gradient(const struct eo_norm_gradient *norm, uint64_t first, uint64_t count);
void eo_ref_embedding_backward(const struct eo_embedding_gradient *embedding, uint64_t first, uint64_t count);

/* After the weights' gradients, which read out_gradient: in_gradient may be the same. */
void eo_ref_norm_input_gradient(const struct eo_norm_gradient *norm);

/* Of parts of the rows [first, first + count) of eo_head_norm_parts. */
void eo_ref_head_norm_backward(const struct eo_head_norm_gradient *norm, uint64_t first, uint64_t count);

/* Of (sequence, key/value head) pairs [first, first + count) of batch x kv_head_count; `scratch` is of one thread:
 * eo_ref_attention_scratch_bytes(shape). attention->scratch is not read. The gradients may not be q, k and v. */
uint64_t eo_ref_attention_scratch_bytes(const struct eo_attention_shape *shape);
void eo_ref_attention_forward(const struct eo_attention *attention, uint64_t first, uint64_t count, void *scratch);
void eo_ref_attention_backward(const struct eo_attention *attention, uint64_t first, uint64_t count, void *scratch);

/* Whether the row's target is ignored; if so, its loss and gradient are written. */
static inline bool eo_host_loss_ignores(const struct eo_loss *l, uint64_t row)
{
    const bool ignores = l->targets[row] < 0;
    if (ignores)
        l->losses[row] = 0;
    if (ignores && l->backward)
        memset(eo_element_at_mutable(l->types.compute, l->logits, row * l->stride), 0,
               l->vocabulary * eo_dtype_bytes(l->types.compute));
    return ignores;
}

/* One row's loss, without adding to loss_sum. */
void eo_ref_loss_row(const struct eo_loss *loss, uint64_t row);
bool eo_ref_all_finite(eo_dtype dtype, const void *values, uint64_t count);

/* Common to the tables with memory of the host (ops.c). */
eo_status eo_host_loss_zero(eo_team *team, double *loss);
eo_status eo_host_dropout(eo_team *team, const struct eo_dropout *dropout); /* dropout.c */
eo_status eo_host_scale(eo_team *team, eo_dtype dtype, void *values, uint64_t count, float factor);
eo_status eo_host_loss_add(eo_team *team, double *to, const double *loss, double factor);
eo_status eo_host_all_finite(eo_team *team, eo_dtype dtype, const void *values, uint64_t count, bool *out);

#endif
