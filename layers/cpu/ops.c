/* SPDX-License-Identifier: MIT
 *
 * The table "cpu".
 */
#include "layers/cpu/kernels.h"
#include "layers/kernel_table.h"
#include "layers/reference/kernels.h"

static bool supports(struct eo_types types)
{
    return types.compute == EO_DTYPE_FP32 && types.gradient == EO_DTYPE_FP32 && !eo_kernels_reference_selected();
}

static uint64_t column_scratch_bytes(uint64_t rows, uint64_t width)
{
    (void)rows;
    (void)width;
    return 0;
}

static uint64_t embedding_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocabulary)
{
    (void)rows;
    (void)width;
    (void)vocabulary;
    return 0;
}

static eo_status head_norm_weights(eo_team *team, const struct eo_head_norm_weights *w)
{
    (void)team; /* a few thousand sums */
    eo_ref_head_norm_weights(w);
    return EO_OK;
}

const struct eo_kernel_ops eo_kernels_cpu_ops = {
    .name = "cpu",
    .gradients_in_place = true,
    .host_memory = true,
    .supports = supports,
    .norm_scratch_bytes = eo_cpu_norm_scratch_bytes,
    .column_scratch_bytes = column_scratch_bytes,
    .attention_scratch_bytes = eo_cpu_attention_scratch_bytes,
    .embedding_scratch_bytes = embedding_scratch_bytes,
    .multiply = eo_cpu_multiply,
    .residual_add = eo_cpu_residual_add,
    .bias_add = eo_cpu_bias_add,
    .column_sums = eo_cpu_column_sums,
    .gelu_forward = eo_cpu_gelu_forward,
    .gelu_backward = eo_cpu_gelu_backward,
    .swiglu_forward = eo_cpu_swiglu_forward,
    .swiglu_backward = eo_cpu_swiglu_backward,
    .norm_forward = eo_cpu_norm_forward,
    .norm_again = eo_cpu_norm_again,
    .norm_backward = eo_cpu_norm_backward,
    .head_norm_forward = eo_cpu_head_norm_forward,
    .head_norm_backward = eo_cpu_head_norm_backward,
    .head_norm_weights = head_norm_weights,
    .rotate = eo_cpu_rotate,
    .attention_forward = eo_cpu_attention_forward,
    .attention_backward = eo_cpu_attention_backward,
    .embedding_forward = eo_cpu_embedding_forward,
    .embedding_backward = eo_cpu_embedding_backward,
    .cross_entropy = eo_cpu_cross_entropy,
    .loss_zero = eo_host_loss_zero,
    .loss_add = eo_host_loss_add,
    .all_finite = eo_host_all_finite,
};
