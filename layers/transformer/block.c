/* SPDX-License-Identifier: MIT
 *
 * A block's passes, for both families and both halves (the picture is in layers/transformer/internal.h).
 *
 * A half's output is its out-product plus bias plus input. The product adds both where the table has fused_residuals.
 * Elsewhere a half leaves its product as it is, and the norm of the position's next one adds them: no extra pass through
 * memory; a position's last half adds them itself.
 */
#include <string.h>

#include "layers/transformer/internal.h"

static struct half_parameters half_parameters_of(const struct pass *pass, const struct half *half,
                                                 void *const *values)
{
    const struct half_shape *shape = half_shape_of(pass->transformer, half);
    struct half_parameters p = {0};
    if (!values) /* gradients of a frozen layer */
        return p;
    void *const *next = values + half->first_parameter;
    p.norm_weight = *next++;
    if (shape->norm_bias)
        p.norm_bias = *next++;
    for (uint32_t i = 0; i < shape->in_count; i++) {
        p.in[i] = *next++;
        if (shape->in_bias)
            p.in_bias[i] = *next++;
        if (shape->head_norms && i < HALF_HEAD_NORMS)
            p.head_norm[i] = *next++;
    }
    p.out = *next++;
    if (shape->out_bias)
        p.out_bias = *next++;
    for (uint32_t linear = 0; linear < HALF_LINEARS; linear++)
        if (shape->adapted[linear]) {
            p.adapter[linear].a = *next++;
            p.adapter[linear].b = *next++;
        }
    return p;
}

static void *half_tensor_of(const struct pass *pass, const struct half *half, enum half_tensor tensor)
{
    return pass_buffer(pass, half->tensor[tensor]);
}

static uint32_t half_index(const struct pass *pass, const struct half *half)
{
    return (uint32_t)(half - pass->transformer->halves);
}

/* With dropout each half adds its branch to the stream, which no product and no norm does. */
static bool adds_itself(const struct pass *pass)
{
    return pass->transformer->params.dropout > 0;
}

static eo_status drop(const struct pass *pass, const struct half *half, const struct eo_dropout *dropout)
{
    struct eo_dropout d = *dropout;
    d.types = pass->types;
    d.place = pass->random;
    d.rows = pass->rows;
    d.width = pass->transformer->params.config.width;
    d.seq = pass->seq;
    d.position = half_index(pass, half);
    d.probability = pass->transformer->params.dropout;
    return pass->kernels->dropout(pass->team, &d);
}

static struct eo_norm half_norm(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const eo_transformer *t = pass->transformer;
    float *stats = half_tensor_of(pass, half, HALF_STATS);
    const bool centered = is_gpt2(t);
    return (struct eo_norm){
        .types = pass->types,
        .centered = centered,
        .residual = pass_buffer(pass, t->stream[half_index(pass, half)]),
        .out = half_tensor_of(pass, half, HALF_NORM),
        .mean = centered ? stats : NULL,
        .rstd = centered ? stats + pass->rows : stats,
        .weight = w->norm_weight,
        .bias = w->norm_bias,
        .eps = t->params.config.norm_eps,
        .rows = pass->rows,
        .width = t->params.config.width,
        .fp32_weights = t->params.fp32_norms,
    };
}

/* A half that is not the first of its position may find the out-product of the one before in its input, and makes it the sum. */
static eo_status norm_forward(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const eo_transformer *t = pass->transformer;
    struct eo_norm norm = half_norm(pass, half, w);
    const uint32_t h = half_index(pass, half);
    if (!is_first_of_position(t, h) && !adds_itself(pass) && !pass->kernels->fused_residuals) {
        norm.branch = norm.residual;
        norm.branch_bias = half_parameters_of(pass, half - 1, pass->view->weights).out_bias;
        norm.residual = pass_buffer(pass, t->stream[h - 1]);
        norm.sum = pass_buffer(pass, t->stream[h]);
    }
    return pass->kernels->norm_forward(pass->team, &norm);
}

/* In a forward pass, and in those recomputes that need it. */
static bool makes_mid(const struct pass *pass, const struct half *half)
{
    return !pass->backward || recomputes_mid(pass->transformer, half);
}

/* inner[rows][...] = norm W^T, side by side, or what becomes it; where the table has epilogues, bias and GELU ride on it. Weights
 * that lie side by side are multiplied with at once. */
static eo_status in_products(const struct pass *pass, const struct half *half, const struct half_parameters *w)
{
    const struct half_shape *shape = half_shape_of(pass->transformer, half);
    const uint64_t width = pass->transformer->params.config.width;
    for (uint32_t i = 0; i < shape->in_count; i += shape->in_joined[i]) {
        const struct half_output output = eo_half_output(pass, half, i);
        struct eo_multiply product = {
            .types = pass->types,
            .c = output.values,
            .c_stride = output.stride,
            .a = operand_plain(half_tensor_of(pass, half, HALF_NORM), width),
            .b = operand_transposed(w->in[i], width),
            .m = pass->rows,
            .n = half_product_width(shape, i),
            .k = width,
            .float8 = pass->transformer->params.float8_products,
        };
        if (w->in_bias[i] && pass->kernels->fused_epilogues) {
            product.epilogue = EO_EPILOGUE_BIAS;
            product.bias = w->in_bias[i];
        }
        if (makes_mid(pass, half) && gelu_rides_on(pass->transformer, half, i)) {
            product.epilogue = EO_EPILOGUE_BIAS_GELU;
            product.aux = output.values;
            product.aux_stride = output.stride;
            product.c = half_tensor_of(pass, half, HALF_MID);
            product.c_stride = shape->mid_width;
        }
        EO_TRY(pass_multiply(pass, &product));
    }
    for (uint32_t i = 0; i < shape->in_count; i++) {
        const struct half_output output = eo_half_output(pass, half, i);
        EO_TRY(eo_adapter_forward(pass, half, w, &(struct linear_data){i, half_tensor_of(pass, half, HALF_NORM), output.values,
                                                                       output.stride}));
    }
    return EO_OK;
}

static eo_status out_product(const struct pass *pass, const struct half *half, const struct half_parameters *w,
                             void *output)
{
    const eo_transformer *t = pass->transformer;
    const uint64_t width = t->params.config.width, mid_width = half_shape_of(t, half)->mid_width;
    const bool fused = pass->kernels->fused_residuals && !adds_itself(pass);
    EO_TRY(pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types,
        .c = output,
        .c_stride = width,
        .a = operand_plain(half_tensor_of(pass, half, HALF_MID), mid_width),
        .b = operand_transposed(w->out, mid_width),
        .m = pass->rows,
        .n = width,
        .k = mid_width,
        .residual = fused ? pass_buffer(pass, t->stream[half_index(pass, half)]) : NULL,
        .epilogue = fused && w->out_bias ? EO_EPILOGUE_BIAS : EO_EPILOGUE_NONE,
        .bias = w->out_bias,
        .float8 = t->params.float8_products,
    }));
    return eo_adapter_forward(pass, half, w, &(struct linear_data){HALF_OUT, half_tensor_of(pass, half, HALF_MID), output, width});
}

static eo_status half_forward(const struct pass *pass, const struct half *half)
{
    const eo_transformer *t = pass->transformer;
    const struct half_parameters w = half_parameters_of(pass, half, pass->view->weights);
    const uint32_t h = half_index(pass, half);

    EO_TRY(norm_forward(pass, half, &w));
    EO_TRY(in_products(pass, half, &w));
    if (makes_mid(pass, half) && !gelu_rides_on(t, half, 0))
        EO_TRY(eo_half_operation_forward(pass, half, &w));
    const bool is_last = is_last_of_position(t, h);
    if (is_last && pass->backward) /* a recompute: what follows has it no more */
        return eo_adapter_low(pass, half, &w, &(struct linear_data){.linear = HALF_OUT, .input = half_tensor_of(pass, half, HALF_MID)});
    void *output = pass_buffer(pass, t->stream[h + 1]);
    EO_TRY(out_product(pass, half, &w, output));
    if (pass->random)
        return drop(pass, half, &(struct eo_dropout){
            .out = output, .in = output, .residual = pass_buffer(pass, t->stream[h]), .bias = w.out_bias});
    if (!adds_itself(pass) && (!is_last || pass->kernels->fused_residuals))
        return EO_OK;
    return pass->kernels->residual_add(pass->team, &(struct eo_residual){
        .types = pass->types,
        .output = output,
        .residual = pass_buffer(pass, t->stream[h]),
        .bias = w.out_bias,
        .rows = pass->rows,
        .width = t->params.config.width,
    });
}

/* The halves of a position are neighbours: [*first, returned end). */
static const struct half *position_halves(const struct pass *pass, uint32_t position, const struct half **end)
{
    const eo_transformer *t = pass->transformer;
    const uint32_t per_position = position_half_count(t), first = (position - 1) * per_position;
    const uint32_t left = t->half_count - first;
    *end = &t->halves[first + (left < per_position ? left : per_position)];
    return &t->halves[first];
}

eo_status eo_block_forward(const struct pass *pass, uint32_t position)
{
    const struct half *end, *half = position_halves(pass, position, &end);
    for (; half < end; half++)
        EO_TRY(half_forward(pass, half));
    return EO_OK;
}

/* With adapters, a half before the first of them has no backward pass. */
static bool gets_gradient(const struct pass *pass, const struct half *half)
{
    return half_index(pass, half) >= pass->transformer->first_trained;
}

eo_status eo_block_recompute(const struct pass *pass, uint32_t position)
{
    const struct half *end, *half = position_halves(pass, position, &end);
    for (; half < end; half++) {
        if (half->recompute) { /* one without a backward pass, too, where the next half reads its output */
            if (gets_gradient(pass, half) || half + 1 < end)
                EO_TRY(half_forward(pass, half));
        } else if (!gets_gradient(pass, half)) {
            continue;
        } else if (pass->transformer->params.recompute == EO_RECOMPUTE_CHEAP) {
            const struct half_parameters w = half_parameters_of(pass, half, pass->view->weights);
            if (half->attention ||
                (!remakes_mid(pass->transformer, half) && eo_half_tensor_is_needed(pass->transformer, half, HALF_MID)))
                EO_TRY(eo_half_operation_again(pass, half, &w));
        }
    }
    return EO_OK;
}

/* From the gradient of the half's output to that of mid; or, where GELU rides on the product, straight to inner's. */
static eo_status out_product_backward(const struct pass *pass, const struct half *half, const struct half_parameters *w,
                                      const struct half_gradients *to)
{
    const struct half_shape *shape = half_shape_of(pass->transformer, half);
    const uint64_t width = pass->transformer->params.config.width;
    struct eo_multiply product = {
        .types = pass->types,
        .c = to->mid,
        .c_stride = shape->mid_width,
        .a = operand_plain(to->branch, width),
        .b = operand_plain(w->out, shape->mid_width),
        .m = pass->rows,
        .n = shape->mid_width,
        .k = width,
    };
    if (half_fuses_gelu(pass->transformer, half))
        product.c = to->inner;
    if (gelu_rides_on(pass->transformer, half, HALF_OUT)) {
        product.epilogue = EO_EPILOGUE_GELU_GRADIENT;
        product.aux = half_tensor_of(pass, half, HALF_INNER);
        product.aux_stride = shape->inner_width;
        product.remakes = to->mid_values == product.aux;
    }
    EO_TRY(pass_multiply(pass, &product));
    return eo_adapter_backward(pass, half, w, &(struct linear_data){HALF_OUT, NULL, to->branch, width}, product.c);
}

/* ... and on to that of its norm. */
static eo_status half_backward_first(const struct pass *pass, const struct half *half)
{
    const eo_transformer *t = pass->transformer;
    const struct half_shape *shape = half_shape_of(t, half);
    const struct half_parameters w = half_parameters_of(pass, half, pass->view->weights);
    const struct half_gradients to = eo_half_gradients(pass, half);
    const uint64_t width = t->params.config.width;

    if (!gets_gradient(pass, half))
        return EO_OK;
    if (pass->random)
        EO_TRY(drop(pass, half, &(struct eo_dropout){.out = to.branch, .in = eo_buffer(pass->runtime, t->stream_gradient)}));
    EO_TRY(out_product_backward(pass, half, &w, &to));
    if (!gelu_rides_on(t, half, HALF_OUT))
        EO_TRY(eo_half_operation_backward(pass, half, &w));
    const void *inner_gradient = to.inner;
    for (uint32_t i = 0; i < shape->in_count && passes_gradient_on(t, half); i += shape->in_joined[i]) {
        const uint32_t out = half_product_width(shape, i);
        EO_TRY(pass_multiply(pass, &(struct eo_multiply){
            .types = pass->types,
            .c = to.norm,
            .c_stride = width,
            .a = operand_plain(inner_gradient, shape->inner_width),
            .b = operand_plain(w.in[i], width),
            .m = pass->rows,
            .n = width,
            .k = out,
            .accumulate = i > 0,
        }));
        inner_gradient = eo_element_at(pass->types.compute, inner_gradient, out);
    }
    void *output = to.inner;
    for (uint32_t i = 0; i < shape->in_count; output = pass_at(pass, output, shape->in_width[i]), i++)
        EO_TRY(eo_adapter_backward(pass, half, &w, &(struct linear_data){i, NULL, output, shape->inner_width},
                                   passes_gradient_on(t, half) ? to.norm : NULL));
    return EO_OK;
}

/* What a linear layer with `out` outputs gets: rows of d_output begin d_stride apart. */
struct linear_gradient {
    void *weight, *bias; /* bias NULL: none, or known already */
    const void *d_output;
    uint64_t d_stride, out;
    void *scratch; /* column_scratch_bytes */
};

/* d_weight[out][in] = d_output^T input; d_bias = the sums of d_output's columns */
static eo_status linear_gradient(const struct pass *pass, const struct linear_gradient *g, const void *input, uint64_t in)
{
    const bool fused = g->bias && pass->kernels->fused_bias_gradients;
    if (!g->weight) /* frozen, with its bias */
        return EO_OK;
    EO_TRY(pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types,
        .weight_gradient = true,
        .c = g->weight,
        .c_stride = in,
        .a = operand_transposed(g->d_output, g->d_stride),
        .b = operand_plain(input, in),
        .m = g->out,
        .n = in,
        .k = pass->rows,
        .epilogue = fused ? EO_EPILOGUE_BIAS_GRADIENT : EO_EPILOGUE_NONE,
        .bias_gradient = g->bias,
        .scratch = g->scratch,
    }));
    if (!g->bias || fused)
        return EO_OK;
    return pass->kernels->column_sums(pass->team, &(struct eo_column_sums){
        .types = pass->types, .bias_gradient = g->bias, .gradient = g->d_output, .stride = g->d_stride, .rows = pass->rows,
        .width = g->out, .scratch = g->scratch});
}

/* The stream's gradient becomes that of the half's input; the norm itself may come again. */
static eo_status norm_backward(const struct pass *pass, const struct half *half, const struct half_parameters *w,
                               const struct half_parameters *d, const struct half_gradients *from)
{
    const eo_transformer *t = pass->transformer;
    if (!passes_gradient_on(t, half))
        return EO_OK;
    const struct eo_norm forward = half_norm(pass, half, w);
    void *gradient = eo_buffer(pass->runtime, t->stream_gradient);
    return pass->kernels->norm_backward(pass->team, &(struct eo_norm_gradient){
        .types = pass->types,
        .centered = forward.centered,
        .in_gradient = gradient,
        .again = remakes_norm(t, half) ? from->norm_values : NULL,
        .skip_gradient = gradient,
        .out_gradient = from->norm,
        .in = forward.residual,
        .weight = w->norm_weight,
        .bias = w->norm_bias,
        .mean = forward.mean,
        .rstd = forward.rstd,
        .weight_gradient = d->norm_weight,
        .bias_gradient = d->norm_bias,
        .rows = pass->rows,
        .width = forward.width,
        .scratch = from->kernels,
        .fp32_weights = forward.fp32_weights,
    });
}

static eo_status out_gradients(const struct pass *pass, const struct half *half, const struct half_parameters *d,
                               const struct half_gradients *from)
{
    const struct half_shape *shape = half_shape_of(pass->transformer, half);
    const uint64_t width = pass->transformer->params.config.width;
    EO_TRY(eo_adapter_gradients(pass, half, d, &(struct linear_data){HALF_OUT, from->mid_values, from->branch, width}));
    return linear_gradient(pass, &(struct linear_gradient){d->out, d->out_bias, from->branch, width, width, from->kernels},
                           from->mid_values, shape->mid_width);
}

static eo_status in_gradients(const struct pass *pass, const struct half *half, const struct half_parameters *d,
                              const struct half_gradients *from)
{
    const struct half_shape *shape = half_shape_of(pass->transformer, half);
    const uint64_t width = pass->transformer->params.config.width;
    void *output = from->inner;
    for (uint32_t i = 0; i < shape->in_count; output = pass_at(pass, output, shape->in_width[i]), i++)
        EO_TRY(eo_adapter_gradients(pass, half, d, &(struct linear_data){i, from->norm_values, output, shape->inner_width}));
    const void *inner_gradient = from->inner;
    for (uint32_t i = 0; i < shape->in_count; i += shape->in_joined[i]) {
        const uint32_t out = half_product_width(shape, i);
        const struct linear_gradient in = {
            d->in[i], from->in_bias ? NULL : d->in_bias[i], inner_gradient, shape->inner_width, out, from->kernels};
        EO_TRY(linear_gradient(pass, &in, from->norm_values, width));
        if (d->in_bias[i] && from->in_bias) /* of kernels on host memory only, where there is one in-product */
            memcpy(d->in_bias[i], from->in_bias, shape->inner_width * eo_dtype_bytes(pass->types.gradient));
        inner_gradient = eo_element_at(pass->types.compute, inner_gradient, out);
    }
    if (!shape->head_norms || !d->head_norm[0])
        return EO_OK;
    return pass->kernels->head_norm_weights(pass->team, &(struct eo_head_norm_weights){
        .types = pass->types, .weight_gradient = {d->head_norm[0], d->head_norm[1]}, .sums = from->head_norms,
        .rows = pass->rows, .head_size = pass->transformer->params.config.head_size});
}

/* All that is written to the gradient buffer. The out-product's needs the stream's gradient before the norm takes it; the
 * in-products' may need what the norm gives again. */
static eo_status half_backward(const struct pass *pass, const struct half *half)
{
    const struct half_parameters w = half_parameters_of(pass, half, pass->view->weights);
    const struct half_parameters d = half_parameters_of(pass, half, pass->view->gradients);
    const struct half_gradients from = eo_half_gradients(pass, half);

    if (!gets_gradient(pass, half))
        return EO_OK;
    EO_TRY(out_gradients(pass, half, &d, &from));
    EO_TRY(norm_backward(pass, half, &w, &d, &from));
    return in_gradients(pass, half, &d, &from);
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
    EO_TRY(half_backward(pass, end - 1));
    for (const struct half *half = end - 1; half > first;) {
        half--;
        EO_TRY(half_backward_first(pass, half));
        EO_TRY(half_backward(pass, half));
    }
    return EO_OK;
}
