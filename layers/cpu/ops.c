/* SPDX-License-Identifier: MIT
 *
 * The tables "cpu", of fp32 and of bf16.
 */
#include "layers/cpu/kernels.h"
#include "layers/kernel_table.h"
#include "layers/reference/kernels.h"

static bool supports_fp32(struct eo_types types)
{
    return types.compute == EO_DTYPE_FP32 && types.gradient == EO_DTYPE_FP32 && !eo_kernels_reference_selected();
}

static bool supports_bf16(struct eo_types types)
{
    return types.compute == EO_DTYPE_BF16 && !eo_kernels_reference_selected();
}

static uint64_t column_scratch_bytes(uint64_t rows, uint64_t width)
{
    (void)rows;
    (void)width;
    return 0;
}

static eo_status head_norm_weights(eo_team *team, const struct eo_head_norm_weights *w)
{
    (void)team; /* a few thousand sums */
    eo_ref_head_norm_weights(w);
    return EO_OK;
}

/* ---- products and attention in bf16: still the reference's ---- */

/* GELU is taken by the kernel of gelu_forward, so that a recompute gives the same bits. */
static eo_status multiply_bf16(eo_team *team, const struct eo_multiply *p)
{
    if (p->epilogue != EO_EPILOGUE_BIAS_GELU)
        return eo_kernels_reference_ops.multiply(team, p);
    struct eo_multiply product = *p;
    product.c = p->aux;
    product.c_stride = p->aux_stride;
    product.epilogue = EO_EPILOGUE_BIAS;
    const eo_status status = eo_kernels_reference_ops.multiply(team, &product);
    for (uint64_t row = 0; row < p->m && status >= 0; row++)
        (void)eo_cpu_gelu_forward(NULL, &(struct eo_gelu){
            .types = p->types, .out = eo_element_at_mutable(EO_DTYPE_BF16, p->c, row * p->c_stride),
            .in = eo_element_at(EO_DTYPE_BF16, p->aux, row * p->aux_stride), .rows = 1, .width = p->n});
    return status;
}

static uint64_t attention_bf16_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape,
                                             uint32_t thread_count)
{
    return eo_kernels_reference_ops.attention_scratch_bytes(types, shape, thread_count);
}

static eo_status attention_bf16_forward(eo_team *team, const struct eo_attention *attention)
{
    return eo_kernels_reference_ops.attention_forward(team, attention);
}

static eo_status attention_bf16_backward(eo_team *team, const struct eo_attention *attention)
{
    return eo_kernels_reference_ops.attention_backward(team, attention);
}

/* The kernels that serve both element types. */
#define KERNELS_OF_BOTH                                 \
    .name = "cpu",                                      \
    .host_memory = true,                                \
    .norm_scratch_bytes = eo_cpu_norm_scratch_bytes,    \
    .column_scratch_bytes = column_scratch_bytes,       \
    .embedding_scratch_bytes = eo_cpu_embedding_scratch_bytes, \
    .residual_add = eo_cpu_residual_add,                \
    .column_sums = eo_cpu_column_sums,                  \
    .gelu_forward = eo_cpu_gelu_forward,                \
    .swiglu_forward = eo_cpu_swiglu_forward,            \
    .swiglu_backward = eo_cpu_swiglu_backward,          \
    .norm_forward = eo_cpu_norm_forward,                \
    .norm_again = eo_cpu_norm_again,                    \
    .norm_backward = eo_cpu_norm_backward,              \
    .head_norm_forward = eo_cpu_head_norm_forward,      \
    .head_norm_backward = eo_cpu_head_norm_backward,    \
    .head_norm_weights = head_norm_weights,             \
    .rotate = eo_cpu_rotate,                            \
    .embedding_forward = eo_cpu_embedding_forward,      \
    .embedding_backward = eo_cpu_embedding_backward,    \
    .cross_entropy = eo_cpu_cross_entropy,              \
    .loss_zero = eo_host_loss_zero,                     \
    .loss_add = eo_host_loss_add,                       \
    .all_finite = eo_host_all_finite

const struct eo_kernel_ops eo_kernels_cpu_ops = {
    KERNELS_OF_BOTH,
    .gradients_in_place = true,
    .supports = supports_fp32,
    .attention_scratch_bytes = eo_cpu_attention_scratch_bytes,
    .multiply = eo_cpu_multiply,
    .bias_add = eo_cpu_bias_add,
    .gelu_backward = eo_cpu_gelu_backward,
    .attention_forward = eo_cpu_attention_forward,
    .attention_backward = eo_cpu_attention_backward,
};

const struct eo_kernel_ops eo_kernels_cpu_bf16_ops = {
    KERNELS_OF_BOTH,
    .fused_epilogues = true,
    .supports = supports_bf16,
    .attention_scratch_bytes = attention_bf16_scratch_bytes,
    .multiply = multiply_bf16,
    .attention_forward = attention_bf16_forward,
    .attention_backward = attention_bf16_backward,
};
