/* SPDX-License-Identifier: MIT
 *
 * What stands between a half's two products: attention, or the MLP's activation.
 */
#include "layers/transformer.h"

static float *kernel_scratch(const struct pass *pass, const struct half *half)
{
    float *scratch = pass_buffer(pass, half->scratch);
    return pass->backward ? scratch + eo_half_scratch(pass->transformer, half, pass->rows).kernels : scratch;
}

static void turn(const struct pass *pass, float *q, float *k, bool backward)
{
    const eo_transformer *t = pass->transformer;
    const struct eo_attention_shape s = eo_half_attention_shape(t, pass->batch, pass->seq);
    if (!t->rope_table)
        return;
    eo_rope(pass->team, q, s.q_stride, t->rope_table, pass->rows, s.seq, s.head_count, s.head_size, backward);
    eo_rope(pass->team, k, s.kv_stride, t->rope_table, pass->rows, s.seq, s.kv_head_count, s.head_size, backward);
}

/* GPT-2: q, k and v are thirds of one product; Llama: three products side by side in the same row. */
static void attention_parts(const struct pass *pass, float *qkv, float **k, float **v)
{
    const eo_transformer_config *c = &pass->transformer->params.config;
    *k = qkv + c->width;
    *v = *k + c->width / c->head_count * c->kv_head_count;
}

static void attention_forward(const struct pass *pass, const struct half *half, const float *in_bias)
{
    const struct eo_attention_shape shape = eo_half_attention_shape(pass->transformer, pass->batch, pass->seq);
    float *q = pass_buffer(pass, half->tensor[HALF_INNER]), *k, *v;
    attention_parts(pass, q, &k, &v);
    if (in_bias)
        eo_bias_add(pass->team, q, in_bias, pass->rows, shape.q_stride);
    turn(pass, q, k, false);
    eo_attention_forward(pass->team, pass_buffer(pass, half->tensor[HALF_MID]),
                         pass_buffer(pass, half->tensor[HALF_LOG_SUM_EXP]), q, k, v, &shape,
                         kernel_scratch(pass, half));
}

static void attention_backward(const struct pass *pass, const struct half *half, const float *mid_gradient,
                               float *in_bias_gradient)
{
    const struct eo_attention_shape shape = eo_half_attention_shape(pass->transformer, pass->batch, pass->seq);
    float *q = pass_buffer(pass, half->tensor[HALF_INNER]), *k, *v;
    attention_parts(pass, q, &k, &v);
    eo_attention_backward(pass->team, q, k, v, mid_gradient, pass_buffer(pass, half->tensor[HALF_MID]),
                          pass_buffer(pass, half->tensor[HALF_LOG_SUM_EXP]), q, k, v, &shape,
                          kernel_scratch(pass, half));
    turn(pass, q, k, true);
    if (in_bias_gradient)
        eo_bias_gradient(pass->team, in_bias_gradient, q, pass->rows, shape.q_stride, false);
}

void eo_half_operation_forward(const struct pass *pass, const struct half *half, const float *in_bias)
{
    const eo_transformer *t = pass->transformer;
    if (half->attention) {
        attention_forward(pass, half, in_bias);
        return;
    }
    float *inner = pass_buffer(pass, half->tensor[HALF_INNER]), *mid = pass_buffer(pass, half->tensor[HALF_MID]);
    const uint64_t width = t->shape[false].mid_width, stride = t->shape[false].inner_width;
    if (is_gpt2(t))
        eo_gelu_forward(pass->team, mid, inner, in_bias, pass->rows, width);
    else
        eo_swiglu_forward(pass->team, mid, inner, inner + width, stride, pass->rows, width);
}

void eo_half_operation_backward(const struct pass *pass, const struct half *half, const float *mid_gradient,
                                const float *in_bias, float *in_bias_gradient)
{
    const eo_transformer *t = pass->transformer;
    if (half->attention) {
        attention_backward(pass, half, mid_gradient, in_bias_gradient);
        return;
    }
    float *inner = pass_buffer(pass, half->tensor[HALF_INNER]);
    const uint64_t width = t->shape[false].mid_width, stride = t->shape[false].inner_width;
    if (is_gpt2(t))
        eo_gelu_backward(pass->team, inner, mid_gradient, inner, in_bias, in_bias_gradient, pass->rows, width, false);
    else
        eo_swiglu_backward(pass->team, inner, inner + width, mid_gradient, inner, inner + width, stride, pass->rows,
                           width);
}
