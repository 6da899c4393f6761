/* SPDX-License-Identifier: MIT
 *
 * What stands between a half's two products: attention, or the MLP's activation.
 */
#include "layers/transformer/cached_attention.h"

static eo_status rotate_one(const struct pass *pass, void *values, uint64_t stride, uint32_t head_count, bool backward)
{
    const eo_transformer *t = pass->transformer;
    const float *table = t->rope_buffer == NO_BUFFER ? t->rope_table : eo_buffer(pass->runtime, t->rope_buffer);
    return pass->kernels->rotate(pass->team, &(struct eo_rotation){
        .types = pass->types,
        .values = values,
        .stride = stride,
        .table = pass->decoder ? table + (uint64_t)pass->decoder->count * t->params.config.head_size : table,
        .rows = pass->rows,
        .seq = pass->seq,
        .head_count = head_count,
        .head_size = t->params.config.head_size,
        .backward = backward,
        .positions = pass->positions,
    });
}

/* Llama's rotary positions, in the blocks that have them. */
static eo_status rotate(const struct pass *pass, const struct half *half, const struct eo_attention_shape *s, void *q, void *k,
                        bool backward)
{
    const eo_transformer *t = pass->transformer;
    const uint32_t block = (uint32_t)(half - t->halves) / 2, interval = t->params.config.unrotated_interval;
    if (!t->rope_table || (interval && (block + 1) % interval == 0))
        return EO_OK;
    EO_TRY(rotate_one(pass, q, s->q_stride, s->head_count, backward));
    return rotate_one(pass, k, s->kv_stride, s->kv_head_count, backward);
}

/* Where k and v begin in a row of inner, or of its gradient. GPT-2: q, k and v are thirds of one product; Llama: three
 * products side by side in the same row. */
struct qkv {
    void *q, *k, *v;
};

static struct qkv qkv_of(const struct pass *pass, void *inner)
{
    const uint64_t q_width = heads_width(pass->transformer), kv_width = kv_heads_width(pass->transformer);
    return (struct qkv){inner, pass_at(pass, inner, q_width), pass_at(pass, inner, q_width + kv_width)};
}

static struct eo_attention_shape attention_shape_of(const struct pass *pass)
{
    struct eo_attention_shape shape = eo_half_attention_shape(pass->transformer, pass->batch, pass->seq);
    shape.packed = pass->positions != NULL;
    return shape;
}

static struct eo_attention attention_of(const struct pass *pass, const struct half *half)
{
    const struct qkv qkv = qkv_of(pass, pass_buffer(pass, half->tensor[HALF_INNER]));
    return (struct eo_attention){
        .types = pass->types,
        .shape = attention_shape_of(pass),
        .q = qkv.q,
        .k = qkv.k,
        .v = qkv.v,
        .out = pass_buffer(pass, half->tensor[HALF_MID]),
        .log_sum_exp = pass_buffer(pass, half->tensor[HALF_LOG_SUM_EXP]),
        .scratch = pass->backward ? eo_half_gradients(pass, half).kernels : pass_buffer(pass, half->scratch),
        .positions = pass->positions,
    };
}

/* Biases that did not ride on the products. */
static eo_status add_biases(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const struct half_shape *shape = half_shape_of(pass->transformer, half);
    for (uint32_t i = 0; i < shape->in_count && shape->in_bias && !pass->kernels->fused_epilogues; i++) {
        const struct half_output output = eo_half_output(pass, half, i);
        EO_TRY(pass->kernels->bias_add(pass->team, &(struct eo_bias){
            .types = pass->types, .output = output.values, .bias = w->in_bias[i], .stride = output.stride,
            .rows = pass->rows, .width = shape->in_width[i]}));
    }
    return EO_OK;
}

/* From what the products gave to what attention takes: norms of heads, then rotary positions. */
static eo_status norm_and_rotate(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const eo_transformer *t = pass->transformer;
    const struct half_shape *shape = half_shape_of(t, half);
    const struct eo_attention_shape attention = eo_half_attention_shape(t, pass->batch, pass->seq);
    const struct qkv qkv = qkv_of(pass, pass_buffer(pass, half->tensor[HALF_INNER]));
    if (shape->head_norms) {
        const struct half_output q = eo_half_output(pass, half, 0);
        EO_TRY(pass->kernels->head_norm_forward(pass->team, &(struct eo_head_norm){
            .types = pass->types,
            .out = qkv.q,
            .in = q.values,
            .weight = {w->head_norm[0], w->head_norm[1]},
            .in_stride = q.stride,
            .out_stride = shape->inner_width,
            .rows = pass->rows,
            .copied = q.stride - shape->in_width[0] - shape->in_width[1],
            .head_count = {t->params.config.head_count, t->params.config.kv_head_count},
            .head_size = t->params.config.head_size,
            .eps = t->params.config.norm_eps,
            .fp32_weights = t->params.fp32_norms,
        }));
    }
    return rotate(pass, half, &attention, qkv.q, qkv.k, false);
}

static eo_status attention_forward(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const struct eo_attention attention = attention_of(pass, half);
    EO_TRY(add_biases(pass, half, w));
    EO_TRY(norm_and_rotate(pass, half, w));
    if (pass->decoder)
        return eo_decode_attention(pass, (uint32_t)(half - pass->transformer->halves) / 2, &attention);
    return pass->kernels->attention_forward(pass->team, &attention);
}

static eo_status head_norms_backward(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const eo_transformer *t = pass->transformer;
    const struct half_gradients gradients = eo_half_gradients(pass, half);
    const struct half_output q = eo_half_output(pass, half, 0);
    return pass->kernels->head_norm_backward(pass->team, &(struct eo_head_norm_gradient){
        .types = pass->types,
        .gradient = gradients.inner,
        .in = q.values,
        .weight = {w->head_norm[0], w->head_norm[1]},
        .stride = half_shape_of(t, half)->inner_width,
        .in_stride = q.stride,
        .rows = pass->rows,
        .head_count = {t->params.config.head_count, t->params.config.kv_head_count},
        .head_size = t->params.config.head_size,
        .eps = t->params.config.norm_eps,
        .sums = gradients.head_norms,
        .fp32_weights = t->params.fp32_norms,
    });
}

static eo_status attention_backward(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const struct half_gradients gradients = eo_half_gradients(pass, half);
    const struct qkv d = qkv_of(pass, gradients.inner);
    struct eo_attention attention = attention_of(pass, half);
    attention.out_gradient = gradients.mid;
    attention.q_gradient = d.q;
    attention.k_gradient = d.k;
    attention.v_gradient = d.v;
    EO_TRY(pass->kernels->attention_backward(pass->team, &attention));
    EO_TRY(rotate(pass, half, &attention.shape, d.q, d.k, true));
    return half_shape_of(pass->transformer, half)->head_norms ? head_norms_backward(pass, half, w) : EO_OK;
}

static struct eo_swiglu swiglu_of(const struct pass *pass, const struct half *half)
{
    const struct half_shape *shape = half_shape_of(pass->transformer, half);
    void *gate = pass_buffer(pass, half->tensor[HALF_INNER]), *up = pass_at(pass, gate, shape->mid_width);
    return (struct eo_swiglu){
        .types = pass->types,
        .out = pass_buffer(pass, half->tensor[HALF_MID]),
        .gate = gate,
        .up = up,
        .gate_gradient = gate,
        .up_gradient = up,
        .stride = shape->inner_width,
        .rows = pass->rows,
        .width = shape->mid_width,
    };
}

/* GELU's bias, if it is not in inner. */
static const void *loose_in_bias(const struct pass *pass, const struct half_parameters *w)
{
    return pass->kernels->fused_epilogues ? NULL : w->in_bias[0];
}

eo_status eo_half_operation_again(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    if (!half->attention)
        return eo_half_operation_forward(pass, half, w);
    return half_shape_of(pass->transformer, half)->head_norms ? norm_and_rotate(pass, half, w) : EO_OK;
}

eo_status eo_half_operation_forward(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    if (half->attention)
        return attention_forward(pass, half, w);
    if (!is_gpt2(pass->transformer)) {
        const struct eo_swiglu swiglu = swiglu_of(pass, half);
        return pass->kernels->swiglu_forward(pass->team, &swiglu);
    }
    return pass->kernels->gelu_forward(pass->team, &(struct eo_gelu){
        .types = pass->types,
        .out = pass_buffer(pass, half->tensor[HALF_MID]),
        .in = pass_buffer(pass, half->tensor[HALF_INNER]),
        .bias = loose_in_bias(pass, w),
        .rows = pass->rows,
        .width = half_shape_of(pass->transformer, half)->mid_width,
    });
}

/* Where a backward pass gives mid again. */
static void *again_of(const struct pass *pass, const struct half *half, const struct half_gradients *gradients)
{
    return remakes_mid(pass->transformer, half) ? gradients->mid_values : NULL;
}

eo_status eo_half_operation_backward(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    if (half->attention)
        return attention_backward(pass, half, w);
    const struct half_gradients gradients = eo_half_gradients(pass, half);
    if (!is_gpt2(pass->transformer)) {
        struct eo_swiglu swiglu = swiglu_of(pass, half);
        swiglu.out_gradient = gradients.mid;
        swiglu.out = again_of(pass, half, &gradients);
        return pass->kernels->swiglu_backward(pass->team, &swiglu);
    }
    return pass->kernels->gelu_backward(pass->team, &(struct eo_gelu_gradient){
        .types = pass->types,
        .in_gradient = gradients.inner,
        .again = again_of(pass, half, &gradients),
        .out_gradient = gradients.mid ? gradients.mid : gradients.inner, /* in its place, where it might have ridden */
        .in = pass_buffer(pass, half->tensor[HALF_INNER]),
        .bias = loose_in_bias(pass, w),
        .bias_gradient = gradients.in_bias,
        .rows = pass->rows,
        .width = half_shape_of(pass->transformer, half)->mid_width,
    });
}
