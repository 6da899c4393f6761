/* SPDX-License-Identifier: MIT
 *
 * The table "cpu": the fp32 kernels of kernels.h under the names of kernel_ops.h. Nothing is computed here.
 */
#include <string.h>

#include "layers/kernel_ops.h"
#include "layers/kernel_table.h"
#include "layers/reference_kernels.h"
#include "layers/residual.h"

static bool supports(struct eo_types types)
{
    return types.compute == EO_DTYPE_FP32 && types.gradient == EO_DTYPE_FP32 && !eo_kernels_reference_selected();
}

static uint64_t norm_scratch_bytes(uint64_t rows, uint64_t width)
{
    (void)rows;
    return eo_norm_scratch_bytes(width);
}

static uint64_t column_scratch_bytes(uint64_t rows, uint64_t width)
{
    (void)rows;
    (void)width;
    return 0;
}

static uint64_t attention_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape,
                                        uint32_t thread_count)
{
    (void)types;
    return eo_attention_scratch_bytes(shape, thread_count);
}

static uint64_t embedding_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocabulary)
{
    (void)rows;
    (void)width;
    (void)vocabulary;
    return 0;
}

static struct eo_matrix matrix_of(const struct eo_operand *operand)
{
    return (struct eo_matrix){operand->values, operand->stride, operand->transposed};
}

static eo_status multiply(eo_team *team, const struct eo_multiply *p)
{
    return eo_multiply(team, p->c, p->c_stride, matrix_of(&p->a), matrix_of(&p->b), p->m, p->n, p->k, p->accumulate);
}

static eo_status residual_add(eo_team *team, const struct eo_residual *r)
{
    eo_residual_add(team, r->output, r->residual, r->bias, r->rows, r->width);
    return EO_OK;
}

static eo_status bias_add(eo_team *team, const struct eo_bias *b)
{
    eo_bias_add(team, b->output, b->stride, b->bias, b->rows, b->width);
    return EO_OK;
}

static eo_status column_sums(eo_team *team, const struct eo_column_sums *s)
{
    eo_bias_gradient(team, s->bias_gradient, s->gradient, s->stride ? s->stride : s->width, s->rows, s->width, false);
    return EO_OK;
}

static eo_status gelu_forward(eo_team *team, const struct eo_gelu *g)
{
    eo_gelu_forward(team, g->out, g->in, g->bias, g->rows, g->width);
    return EO_OK;
}

static eo_status gelu_backward(eo_team *team, const struct eo_gelu_gradient *g)
{
    eo_gelu_backward(team, g->in_gradient, g->out_gradient, g->in, g->bias, g->bias_gradient, g->rows, g->width, false);
    return EO_OK;
}

static eo_status swiglu_forward(eo_team *team, const struct eo_swiglu *s)
{
    eo_swiglu_forward(team, s->out, s->gate, s->up, s->stride, s->rows, s->width);
    return EO_OK;
}

static eo_status swiglu_backward(eo_team *team, const struct eo_swiglu *s)
{
    eo_swiglu_backward(team, s->gate_gradient, s->up_gradient, s->out_gradient, s->gate, s->up, s->stride, s->rows,
                       s->width);
    return EO_OK;
}

static eo_status norm_forward(eo_team *team, const struct eo_norm *n)
{
    const struct eo_norm_input input = {.residual = n->residual, .branch = n->branch, .branch_bias = n->branch_bias};
    if (n->centered)
        eo_layernorm_forward(team, n->sum, n->out, n->mean, n->rstd, input, n->weight, n->bias, n->eps, n->rows,
                             n->width);
    else
        eo_rmsnorm_forward(team, n->sum, n->out, n->rstd, input, n->weight, n->eps, n->rows, n->width);
    return EO_OK;
}

static eo_status norm_again(eo_team *team, const struct eo_norm *n)
{
    if (n->centered)
        eo_layernorm_again(team, n->out, n->residual, n->mean, n->rstd, n->weight, n->bias, n->rows, n->width);
    else
        eo_rmsnorm_again(team, n->out, n->residual, n->rstd, n->weight, n->rows, n->width);
    return EO_OK;
}

static eo_status norm_backward(eo_team *team, const struct eo_norm_gradient *n)
{
    if (n->centered)
        eo_layernorm_backward(team, n->in_gradient, n->skip_gradient, n->out_gradient, n->in, n->mean, n->rstd,
                              n->weight, n->weight_gradient, n->bias_gradient, n->rows, n->width, n->accumulate,
                              n->scratch);
    else
        eo_rmsnorm_backward(team, n->in_gradient, n->skip_gradient, n->out_gradient, n->in, n->rstd, n->weight,
                            n->weight_gradient, n->rows, n->width, n->accumulate, n->scratch);
    return EO_OK;
}

static eo_status head_norm_forward(eo_team *team, const struct eo_head_norm *n)
{
    const float *in = n->in;
    float *out = n->out;
    for (int k = 0; k < 2; k++) {
        const uint64_t width = (uint64_t)n->head_count[k] * n->head_size;
        eo_head_norm_forward(team, &(struct eo_head_rows){
            .in = in, .weight = n->weight[k], .out = out, .in_stride = n->in_stride, .out_stride = n->out_stride,
            .rows = n->rows, .head_count = n->head_count[k], .head_size = n->head_size, .eps = n->eps});
        in += width;
        out += width;
    }
    for (uint64_t row = 0; n->copied && row < n->rows; row++)
        memcpy(out + row * n->out_stride, in + row * n->in_stride, n->copied * sizeof(float));
    return EO_OK;
}

static eo_status head_norm_backward(eo_team *team, const struct eo_head_norm_gradient *n)
{
    const float *in = n->in;
    float *gradient = n->gradient;
    for (int k = 0; k < 2; k++) {
        const uint64_t width = (uint64_t)n->head_count[k] * n->head_size;
        eo_head_norm_backward(team, &(struct eo_head_rows){
            .in = in, .weight = n->weight[k], .out = gradient, .in_stride = n->in_stride, .out_stride = n->stride,
            .sums = n->sums + (uint64_t)k * eo_head_norm_parts(n->rows) * n->head_size, .rows = n->rows,
            .part_rows = eo_head_norm_part_rows(n->rows), .head_count = n->head_count[k], .head_size = n->head_size,
            .eps = n->eps});
        in += width;
        gradient += width;
    }
    return EO_OK;
}

static eo_status head_norm_weights(eo_team *team, const struct eo_head_norm_weights *w)
{
    (void)team; /* a few thousand sums */
    eo_ref_head_norm_weights(w);
    return EO_OK;
}

static eo_status rotate(eo_team *team, const struct eo_rotation *r)
{
    eo_rope(team, r->values, r->stride, r->table, r->rows, r->seq, r->head_count, r->head_size, r->backward);
    return EO_OK;
}

static eo_status attention_forward(eo_team *team, const struct eo_attention *a)
{
    eo_attention_forward(team, a->out, a->log_sum_exp, a->q, a->k, a->v, &a->shape, a->scratch);
    return EO_OK;
}

static eo_status attention_backward(eo_team *team, const struct eo_attention *a)
{
    eo_attention_backward(team, a->q_gradient, a->k_gradient, a->v_gradient, a->out_gradient, a->out, a->log_sum_exp,
                          a->q, a->k, a->v, &a->shape, a->scratch);
    return EO_OK;
}

static eo_status embedding_forward(eo_team *team, const struct eo_embedding *e)
{
    eo_embedding_forward(team, e->out, e->tokens, e->token_table, e->position_table, e->rows, e->seq, e->width);
    return EO_OK;
}

static eo_status embedding_backward(eo_team *team, const struct eo_embedding_gradient *e)
{
    eo_embedding_backward(team, e->token_gradient, e->position_gradient, e->out_gradient, e->tokens, e->rows, e->seq,
                          e->width, e->vocabulary, e->positions, false);
    return EO_OK;
}

static eo_status cross_entropy(eo_team *team, const struct eo_loss *l)
{
    *l->loss_sum += l->backward ? eo_cross_entropy_backward(team, l->losses, l->logits, l->stride, l->targets, l->rows,
                                                            l->vocabulary, l->scale)
                                : eo_cross_entropy(team, l->losses, l->logits, l->stride, l->targets, l->rows,
                                                   l->vocabulary);
    return EO_OK;
}

const struct eo_kernel_ops eo_kernels_cpu_ops = {
    .name = "cpu",
    .gradients_in_place = true,
    .host_memory = true,
    .supports = supports,
    .norm_scratch_bytes = norm_scratch_bytes,
    .column_scratch_bytes = column_scratch_bytes,
    .attention_scratch_bytes = attention_scratch_bytes,
    .embedding_scratch_bytes = embedding_scratch_bytes,
    .multiply = multiply,
    .residual_add = residual_add,
    .bias_add = bias_add,
    .column_sums = column_sums,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .norm_forward = norm_forward,
    .norm_again = norm_again,
    .norm_backward = norm_backward,
    .head_norm_forward = head_norm_forward,
    .head_norm_backward = head_norm_backward,
    .head_norm_weights = head_norm_weights,
    .rotate = rotate,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .cross_entropy = cross_entropy,
    .loss_zero = eo_host_loss_zero,
    .loss_add = eo_host_loss_add,
    .all_finite = eo_host_all_finite,
};
