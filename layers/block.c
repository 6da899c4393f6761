/* SPDX-License-Identifier: MIT
 *
 * A block's passes, for both families and both halves (the picture is in layers/transformer.h).
 *
 * Two halves of one position hand the residual stream over without an extra pass through memory: the first leaves its
 * out-product as it is, and the second's norm adds residual and bias. A position's last half adds them itself.
 */
#include <string.h>

#include "layers/residual.h"
#include "layers/transformer.h"

/* A half's weights or gradients, by what they are for. NULL: the family has none. */
struct half_parameters {
    float *norm_weight, *norm_bias, *in[HALF_INPUTS_MAX], *in_bias, *out, *out_bias;
};

static struct half_parameters half_parameters_of(const struct pass *pass, const struct half *half,
                                                 void *const *values)
{
    const struct half_shape *shape = half_shape_of(pass->transformer, half);
    struct half_parameters p = {0};
    void *const *next = values + half->first_parameter;
    p.norm_weight = *next++;
    if (shape->biases)
        p.norm_bias = *next++;
    for (uint32_t i = 0; i < shape->in_count; i++)
        p.in[i] = *next++;
    if (shape->biases) /* where there are biases there is one in-product */
        p.in_bias = *next++;
    p.out = *next++;
    if (shape->biases)
        p.out_bias = *next++;
    return p;
}

static float *half_tensor_of(const struct pass *pass, const struct half *half, enum half_tensor tensor)
{
    return pass_buffer(pass, half->tensor[tensor]);
}

static uint32_t half_index(const struct pass *pass, const struct half *half)
{
    return (uint32_t)(half - pass->transformer->halves);
}

static bool is_last_of_position(const struct pass *pass, const struct half *half)
{
    return pass->transformer->params.half_blocks || !half->attention;
}

/* The second half of a position finds the first's out-product in its input, and makes it the sum. */
static void norm_forward(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const eo_transformer *t = pass->transformer;
    const uint64_t width = t->params.config.width;
    const uint32_t h = half_index(pass, half);
    float *input = pass_buffer(pass, t->stream[h]);
    float *norm = half_tensor_of(pass, half, HALF_NORM), *stats = half_tensor_of(pass, half, HALF_STATS);
    struct eo_norm_input sum = {.residual = input};
    float *sum_out = NULL;
    if (!half->attention && !t->params.half_blocks) {
        sum.residual = pass_buffer(pass, t->stream[h - 1]);
        sum.branch = input;
        sum.branch_bias = half_parameters_of(pass, half - 1, pass->view->weights).out_bias;
        sum_out = input;
    }
    if (is_gpt2(t))
        eo_layernorm_forward(pass->team, sum_out, norm, stats, stats + pass->rows, sum, w->norm_weight, w->norm_bias,
                             t->params.config.norm_eps, pass->rows, width);
    else
        eo_rmsnorm_forward(pass->team, sum_out, norm, stats, sum, w->norm_weight, t->params.config.norm_eps,
                           pass->rows, width);
}

static void norm_again(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const eo_transformer *t = pass->transformer;
    const uint64_t width = t->params.config.width;
    const float *input = pass_buffer(pass, t->stream[half_index(pass, half)]);
    float *norm = half_tensor_of(pass, half, HALF_NORM);
    const float *stats = half_tensor_of(pass, half, HALF_STATS);
    if (is_gpt2(t))
        eo_layernorm_again(pass->team, norm, input, stats, stats + pass->rows, w->norm_weight, w->norm_bias,
                           pass->rows, width);
    else
        eo_rmsnorm_again(pass->team, norm, input, stats, w->norm_weight, pass->rows, width);
}

static eo_status half_forward(const struct pass *pass, const struct half *half)
{
    const eo_transformer *t = pass->transformer;
    const struct half_shape *shape = half_shape_of(t, half);
    const struct half_parameters w = half_parameters_of(pass, half, pass->view->weights);
    const uint64_t width = t->params.config.width;
    const uint32_t h = half_index(pass, half);
    float *norm = half_tensor_of(pass, half, HALF_NORM), *mid = half_tensor_of(pass, half, HALF_MID);

    norm_forward(pass, half, &w);
    float *inner = half_tensor_of(pass, half, HALF_INNER);
    for (uint32_t i = 0; i < shape->in_count; i++) {
        LAYERS_TRY(eo_multiply(pass->team, inner, shape->inner_width, eo_plain(norm, width),
                               eo_transposed(w.in[i], width), pass->rows, shape->in_width[i], width, false));
        inner += shape->in_width[i];
    }
    eo_half_operation_forward(pass, half, w.in_bias);
    const bool is_last = is_last_of_position(pass, half);
    if (is_last && pass->backward) /* a recompute: what follows has it no more */
        return EO_OK;
    float *output = pass_buffer(pass, t->stream[h + 1]);
    LAYERS_TRY(eo_multiply(pass->team, output, width, eo_plain(mid, shape->mid_width),
                           eo_transposed(w.out, shape->mid_width), pass->rows, width, shape->mid_width, false));
    if (is_last)
        eo_residual_add(pass->team, output, pass_buffer(pass, t->stream[h]), w.out_bias, pass->rows, width);
    return EO_OK;
}

/* The halves of a position are neighbours: [*first, returned end). */
static const struct half *position_halves(const struct pass *pass, uint32_t position, const struct half **end)
{
    const eo_transformer *t = pass->transformer;
    const uint32_t per_position = t->params.half_blocks ? 1 : 2;
    const struct half *first = &t->halves[(position - 1) * per_position];
    *end = first + per_position;
    return first;
}

eo_status eo_block_forward(const struct pass *pass, uint32_t position)
{
    const struct half *end, *half = position_halves(pass, position, &end);
    for (; half < end; half++)
        LAYERS_TRY(half_forward(pass, half));
    return EO_OK;
}

eo_status eo_block_recompute(const struct pass *pass, uint32_t position)
{
    const struct half *end, *half = position_halves(pass, position, &end);
    for (; half < end; half++) {
        if (half->recompute) {
            LAYERS_TRY(half_forward(pass, half));
        } else if (pass->transformer->params.recompute == EO_RECOMPUTE_CHEAP) {
            const struct half_parameters w = half_parameters_of(pass, half, pass->view->weights);
            norm_again(pass, half, &w);
            if (!half->attention)
                eo_half_operation_forward(pass, half, w.in_bias);
        }
    }
    return EO_OK;
}

/* From the gradient of the half's output to that of its norm, by way of mid and inner; inner's replaces inner. */
static eo_status half_backward_first(const struct pass *pass, const struct half *half)
{
    const eo_transformer *t = pass->transformer;
    const struct half_shape *shape = half_shape_of(t, half);
    const struct half_parameters w = half_parameters_of(pass, half, pass->view->weights);
    const struct half_scratch at = eo_half_scratch(t, half, pass->rows);
    const uint64_t width = t->params.config.width;
    float *scratch = pass_buffer(pass, half->scratch);
    float *gradient = eo_buffer(pass->runtime, t->stream_gradient);
    float *mid_gradient = scratch, *norm_gradient = scratch; /* one after the other in the same place */

    LAYERS_TRY(eo_multiply(pass->team, mid_gradient, shape->mid_width, eo_plain(gradient, width),
                           eo_plain(w.out, shape->mid_width), pass->rows, shape->mid_width, width, false));
    eo_half_operation_backward(pass, half, mid_gradient, w.in_bias,
                               w.in_bias ? scratch + at.bias : NULL);
    const float *inner_gradient = half_tensor_of(pass, half, HALF_INNER);
    for (uint32_t i = 0; i < shape->in_count; i++) {
        LAYERS_TRY(eo_multiply(pass->team, norm_gradient, width, eo_plain(inner_gradient, shape->inner_width),
                               eo_plain(w.in[i], width), pass->rows, width, shape->in_width[i], i > 0));
        inner_gradient += shape->in_width[i];
    }
    return EO_OK;
}

/* All that is written to the gradient buffer; then the stream's gradient becomes that of the half's input. */
static eo_status half_backward(const struct pass *pass, const struct half *half)
{
    const eo_transformer *t = pass->transformer;
    const struct half_shape *shape = half_shape_of(t, half);
    const struct half_parameters w = half_parameters_of(pass, half, pass->view->weights);
    const struct half_parameters d = half_parameters_of(pass, half, pass->view->gradients);
    const struct half_scratch at = eo_half_scratch(t, half, pass->rows);
    const uint64_t width = t->params.config.width, rows = pass->rows;
    float *scratch = pass_buffer(pass, half->scratch);
    float *gradient = eo_buffer(pass->runtime, t->stream_gradient);
    const float *norm = half_tensor_of(pass, half, HALF_NORM), *mid = half_tensor_of(pass, half, HALF_MID);
    const float *stats = half_tensor_of(pass, half, HALF_STATS);
    const float *input = pass_buffer(pass, t->stream[half_index(pass, half)]);
    const float *inner_gradient = half_tensor_of(pass, half, HALF_INNER), *norm_gradient = scratch;

    LAYERS_TRY(eo_multiply(pass->team, d.out, shape->mid_width, eo_transposed(gradient, width),
                           eo_plain(mid, shape->mid_width), width, shape->mid_width, rows, false));
    if (d.out_bias)
        eo_bias_gradient(pass->team, d.out_bias, gradient, rows, width, false);
    for (uint32_t i = 0; i < shape->in_count; i++) {
        LAYERS_TRY(eo_multiply(pass->team, d.in[i], width, eo_transposed(inner_gradient, shape->inner_width),
                               eo_plain(norm, width), shape->in_width[i], width, rows, false));
        inner_gradient += shape->in_width[i];
    }
    if (d.in_bias)
        memcpy(d.in_bias, scratch + at.bias, shape->inner_width * sizeof(float));
    if (is_gpt2(t))
        eo_layernorm_backward(pass->team, gradient, gradient, norm_gradient, input, stats, stats + rows,
                              w.norm_weight, d.norm_weight, d.norm_bias, rows, width, false, scratch + at.kernels);
    else
        eo_rmsnorm_backward(pass->team, gradient, gradient, norm_gradient, input, stats, w.norm_weight,
                            d.norm_weight, rows, width, false, scratch + at.kernels);
    return EO_OK;
}

eo_status eo_block_backward_first(const struct pass *pass, uint32_t position)
{
    const struct half *end;
    position_halves(pass, position, &end);
    return half_backward_first(pass, end - 1);
}

eo_status eo_block_backward(const struct pass *pass, uint32_t position)
{
    const struct half *end, *first = position_halves(pass, position, &end);
    LAYERS_TRY(half_backward(pass, end - 1));
    if (end - first == 1)
        return EO_OK;
    LAYERS_TRY(half_backward_first(pass, first));
    return half_backward(pass, first);
}
