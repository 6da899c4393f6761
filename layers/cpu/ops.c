/* SPDX-License-Identifier: MIT
 *
 * The tables "cpu", of fp32 and of bf16.
 */
#include "layers/cpu/planned.h"
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

static eo_status head_norm_weights(eo_team *team, const struct eo_head_norm_weights *w)
{
    (void)team; /* a few thousand sums */
    eo_ref_head_norm_weights(w);
    return EO_OK;
}

/* Products take bf16 by packed operands, fp32 by oneDNN. */
static eo_status multiply_bf16(eo_team *team, const struct eo_multiply *product)
{
    eo_product_run(team, eo_tiles_of(EO_DTYPE_BF16), product);
    return EO_OK;
}

/* The kernels that serve both element types. */
#define KERNELS_OF_BOTH                              \
    .residual_add = eo_cpu_residual_add,             \
    .scale = eo_host_scale,                          \
    .dropout = eo_cpu_dropout,                       \
    .column_sums = eo_cpu_column_sums,               \
    .gelu_forward = eo_cpu_gelu_forward,             \
    .gelu_backward = eo_cpu_gelu_backward,           \
    .swiglu_forward = eo_cpu_swiglu_forward,         \
    .swiglu_backward = eo_cpu_swiglu_backward,       \
    .norm_forward = eo_cpu_norm_forward,             \
    .norm_backward = eo_cpu_norm_backward,           \
    .head_norm_forward = eo_cpu_head_norm_forward,   \
    .head_norm_backward = eo_cpu_head_norm_backward, \
    .head_norm_weights = head_norm_weights,          \
    .rotate = eo_cpu_rotate,                         \
    .embedding_forward = eo_cpu_embedding_forward,   \
    .embedding_backward = eo_cpu_embedding_backward, \
    .cross_entropy = eo_cpu_cross_entropy,           \
    .loss_zero = eo_host_loss_zero,                  \
    .loss_add = eo_host_loss_add,                    \
    .all_finite = eo_host_all_finite

const struct eo_kernel_ops eo_kernels_cpu_ops = {
    EO_CPU_PLANNED_FP32_OPS,
    KERNELS_OF_BOTH,
    .supports = supports_fp32,
    .multiply = eo_cpu_multiply,
    .bias_add = eo_cpu_bias_add,
    .attention_forward = eo_cpu_attention_forward,
    .attention_backward = eo_cpu_attention_backward,
};

const struct eo_kernel_ops eo_kernels_cpu_bf16_ops = {
    EO_CPU_PLANNED_BF16_OPS,
    KERNELS_OF_BOTH,
    .supports = supports_bf16,
    .multiply = multiply_bf16,
    .attention_forward = eo_cpu_attention_bf16_forward,
    .attention_backward = eo_cpu_attention_bf16_backward,
};
