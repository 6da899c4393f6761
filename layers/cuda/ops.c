/* SPDX-License-Identifier: MIT
 *
 * The table of the GPU's kernels: each function launches on the team's stream and says which launch failed.
 */
#include "layers/cuda/internal.h"
#include "layers/cuda/kernels.h"

/* eo_status NAME(team, arguments) from cudaError_t eo_cuda_NAME(arguments, stream). */
#define LAUNCH(name, arguments)                                                 \
    static eo_status launch_##name(eo_team *team, const struct arguments *args) \
    {                                                                           \
        const struct eo_cuda_team *t = eo_cuda_team_of(team);                   \
        return CUDA_CHECK(t, eo_cuda_##name(args, t->stream), "kernel " #name); \
    }

LAUNCH(residual_add, eo_residual)
LAUNCH(dropout, eo_dropout)
LAUNCH(column_sums, eo_column_sums)
LAUNCH(gelu_forward, eo_gelu)
LAUNCH(swiglu_forward, eo_swiglu)
LAUNCH(swiglu_backward, eo_swiglu)
LAUNCH(norm_forward, eo_norm)
LAUNCH(norm_backward, eo_norm_gradient)
LAUNCH(head_norm_forward, eo_head_norm)
LAUNCH(head_norm_backward, eo_head_norm_gradient)
LAUNCH(head_norm_weights, eo_head_norm_weights)
LAUNCH(rotate, eo_rotation)
LAUNCH(embedding_forward, eo_embedding)
LAUNCH(embedding_backward, eo_embedding_gradient)
LAUNCH(cross_entropy, eo_loss)

static eo_status scale(eo_team *team, eo_dtype dtype, void *values, uint64_t count, float factor)
{
    const struct eo_cuda_team *t = eo_cuda_team_of(team);
    return CUDA_CHECK(t, eo_cuda_scale(dtype, values, count, factor, t->stream), "kernel scale");
}

/* In place: what a product's epilogue does where a library fuses none. */
static eo_status gelu_backward(eo_team *team, const struct eo_gelu_gradient *g)
{
    const struct eo_cuda_team *t = eo_cuda_team_of(team);
    const struct eo_multiply product = {.types = g->types, .c = g->in_gradient, .c_stride = g->width, .m = g->rows, .n = g->width,
                                        .epilogue = EO_EPILOGUE_GELU_GRADIENT, .aux = (void *)(uintptr_t)g->in, .aux_stride = g->width};
    return CUDA_CHECK(t, eo_cuda_epilogue(&product, t->stream), "kernel epilogue");
}

static eo_status prepare_multiply(eo_team *team, const struct eo_multiply *product)
{
    return eo_cuda_product_prepare(eo_cuda_team_of(team), product, NULL);
}

static eo_status multiply(eo_team *team, const struct eo_multiply *product)
{
    return eo_cuda_product_run(eo_cuda_team_of(team), product, NULL);
}

static eo_status loss_zero(eo_team *team, double *loss)
{
    const struct eo_cuda_team *t = eo_cuda_team_of(team);
    return CUDA_CHECK(t, cudaMemsetAsync(loss, 0, sizeof(*loss), t->stream), "zeroing the loss");
}

static eo_status loss_add(eo_team *team, double *to, const double *loss, double factor)
{
    const struct eo_cuda_team *t = eo_cuda_team_of(team);
    return CUDA_CHECK(t, eo_cuda_loss_add(to, loss, factor, t->stream), "kernel loss_add");
}

/* The flag lies in the workspace, which no product uses meanwhile. */
static eo_status all_finite(eo_team *team, eo_dtype dtype, const void *values, uint64_t count, bool *out)
{
    const struct eo_cuda_team *t = eo_cuda_team_of(team);
    uint32_t *flag = t->workspace, found = 0;
    CUDA_TRY(t, cudaMemsetAsync(flag, 0, sizeof(*flag), t->stream), "zeroing a flag");
    CUDA_TRY(t, eo_cuda_check_finite(flag, values, count, dtype, t->stream), "kernel check_finite");
    CUDA_TRY(t, cudaStreamSynchronize(t->stream), "waiting for check_finite");
    CUDA_TRY(t, cudaMemcpy(&found, flag, sizeof(found), cudaMemcpyDeviceToHost), "reading a flag");
    *out = found == 0;
    return EO_OK;
}

const struct eo_kernel_ops eo_kernels_cuda_ops = {
    EO_CUDA_PLANNED_OPS,
    .prepare_multiply = prepare_multiply,
    .prepare_attention = eo_cuda_attention_prepare,
    .multiply = multiply,
    .residual_add = launch_residual_add,
    .scale = scale,
    .dropout = launch_dropout,
    .column_sums = launch_column_sums,
    .gelu_forward = launch_gelu_forward,
    .gelu_backward = gelu_backward,
    .swiglu_forward = launch_swiglu_forward,
    .swiglu_backward = launch_swiglu_backward,
    .norm_forward = launch_norm_forward,
    .norm_backward = launch_norm_backward,
    .head_norm_forward = launch_head_norm_forward,
    .head_norm_backward = launch_head_norm_backward,
    .head_norm_weights = launch_head_norm_weights,
    .rotate = launch_rotate,
    .attention_forward = eo_cuda_attention_forward,
    .attention_backward = eo_cuda_attention_backward,
    .embedding_forward = launch_embedding_forward,
    .embedding_backward = launch_embedding_backward,
    .cross_entropy = launch_cross_entropy,
    .loss_zero = loss_zero,
    .loss_add = loss_add,
    .all_finite = all_finite,
};
