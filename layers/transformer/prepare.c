/* SPDX-License-Identifier: MIT
 *
 * What goes between the host and a device outside of kernels; and the start: tables to the device, plans of products.
 */
#include <string.h>

#include "layers/transformer/internal.h"

/* Where the kernels' memory is the host's, queue and host are one thread: nothing is on its way. */
eo_status eo_pass_upload(const struct pass *pass, void *to, const void *from, uint64_t bytes)
{
    if (!pass->kernels->host_memory)
        return eo_runtime_upload(pass->runtime, to, from, bytes);
    memcpy(to, from, bytes);
    return EO_OK;
}

eo_status eo_pass_download(const struct pass *pass, void *to, const void *from, uint64_t bytes)
{
    if (!pass->kernels->host_memory)
        return eo_runtime_download(pass->runtime, to, from, bytes);
    memcpy(to, from, bytes);
    return EO_OK;
}

/* ---- plans ---- */

/* The three products of a linear layer y[rows][out] = x[rows][in] W^T, as block.c and lm_head.c call them. */
struct linear {
    uint64_t rows, out, in;
    uint64_t out_stride, in_stride; /* of y and x */
    uint64_t forward_stride;        /* of y as the forward pass writes it; 0: out_stride */
    enum eo_epilogue forward, input_gradient, weight_gradient;
    bool accumulates_input, accumulates_weight; /* calls with accumulate come too */
    bool residual;                              /* the forward product adds one */
    bool float8;                                /* the forward product */
    bool accumulates_forward;                   /* it always adds to y */
    bool frozen;                                /* no gradient of W */
};

static const _Alignas(16) char some_residual[16]; /* in the place of one */

static eo_status prepare_product(const eo_transformer *t, eo_team *team, struct eo_multiply product, bool accumulates)
{
    EO_TRY(t->kernels->prepare_multiply(team, &product));
    product.accumulate = true;
    return accumulates ? t->kernels->prepare_multiply(team, &product) : EO_OK;
}

static eo_status prepare_linear(const eo_transformer *t, eo_team *team, const struct linear *l)
{
    const uint64_t aux_stride = l->out_stride;
    EO_TRY(prepare_product(t, team, (struct eo_multiply){
        .accumulate = l->accumulates_forward,
        .types = t->types, .c_stride = l->forward_stride ? l->forward_stride : l->out_stride,
        .a = operand_plain(NULL, l->in_stride),
        .b = operand_transposed(NULL, l->in), .m = l->rows, .n = l->out, .k = l->in, .epilogue = l->forward,
        .residual = l->residual ? some_residual : NULL, .float8 = l->float8,
        .aux_stride = l->forward == EO_EPILOGUE_BIAS_GELU ? aux_stride : 0}, false));
    EO_TRY(prepare_product(t, team, (struct eo_multiply){
        .types = t->types, .c_stride = l->in_stride, .a = operand_plain(NULL, l->out_stride),
        .b = operand_plain(NULL, l->in), .m = l->rows, .n = l->in, .k = l->out, .epilogue = l->input_gradient,
        .aux_stride = l->input_gradient == EO_EPILOGUE_GELU_GRADIENT ? l->in_stride : 0}, l->accumulates_input));
    return l->frozen ? EO_OK : prepare_product(t, team, (struct eo_multiply){
        .types = t->types, .weight_gradient = true, .c_stride = l->in, .a = operand_transposed(NULL, l->out_stride),
        .b = operand_plain(NULL, l->in_stride), .m = l->out, .n = l->in, .k = l->rows,
        .epilogue = l->weight_gradient}, l->accumulates_weight);
}

/* x A^T, then what it gives times B^T. */
static eo_status prepare_adapters(const eo_transformer *t, eo_team *team, const struct half *half)
{
    const struct half_shape *shape = half_shape_of(t, half);
    const uint64_t rows = (uint64_t)t->params.batch * t->params.seq, rank = t->params.lora.rank;
    for (uint32_t linear = 0; linear < HALF_LINEARS; linear++) {
        const uint64_t in = half_linear_in(t, shape, linear), out = half_linear_out(t, shape, linear);
        if (!shape->adapted[linear])
            continue;
        EO_TRY(prepare_linear(t, team, &(struct linear){
            .rows = rows, .out = rank, .in = in, .out_stride = rank, .in_stride = in, .accumulates_input = true}));
        EO_TRY(prepare_linear(t, team, &(struct linear){
            .rows = rows, .out = out, .in = rank, .in_stride = rank, .accumulates_forward = true,
            .out_stride = linear == HALF_OUT ? out : shape->inner_width,
            .forward_stride = linear == HALF_OUT ? out : eo_half_output_stride(t, half, linear)}));
    }
    return EO_OK;
}

static eo_status prepare_half(const eo_transformer *t, eo_team *team, const struct half *half)
{
    const struct half_shape *shape = half_shape_of(t, half);
    const uint64_t rows = (uint64_t)t->params.batch * t->params.seq, width = t->params.config.width;
    const bool fuses_gradients = t->kernels->fused_bias_gradients;
    const bool gelu_forward = gelu_rides_on(t, half, 0), gelu_backward = gelu_rides_on(t, half, HALF_OUT);
    EO_TRY(prepare_adapters(t, team, half));
    for (uint32_t i = 0; i < shape->in_count; i += shape->in_joined[i]) {
        const enum eo_epilogue bias = shape->in_bias && t->kernels->fused_epilogues ? EO_EPILOGUE_BIAS : EO_EPILOGUE_NONE;
        EO_TRY(prepare_linear(t, team, &(struct linear){
            .rows = rows, .out = half_product_width(shape, i), .in = width, .out_stride = shape->inner_width, .in_stride = width,
            .forward_stride = eo_half_output_stride(t, half, i),
            .forward = gelu_forward ? EO_EPILOGUE_BIAS_GELU : bias, .accumulates_input = i > 0,
            .float8 = t->params.float8_products, .frozen = has_adapters(t),
            .weight_gradient = shape->in_bias && fuses_gradients ? EO_EPILOGUE_BIAS_GRADIENT : EO_EPILOGUE_NONE}));
    }
    const bool fuses_residual = t->kernels->fused_residuals && !(t->params.dropout > 0);
    return prepare_linear(t, team, &(struct linear){
        .rows = rows, .out = width, .in = shape->mid_width, .out_stride = width, .in_stride = shape->mid_width,
        .forward = shape->out_bias && fuses_residual ? EO_EPILOGUE_BIAS : EO_EPILOGUE_NONE, .residual = fuses_residual,
        .float8 = t->params.float8_products, .frozen = has_adapters(t),
        .input_gradient = gelu_backward ? EO_EPILOGUE_GELU_GRADIENT : EO_EPILOGUE_NONE,
        .weight_gradient = shape->out_bias && fuses_gradients ? EO_EPILOGUE_BIAS_GRADIENT : EO_EPILOGUE_NONE});
}

static eo_status prepare_head(const eo_transformer *t, eo_team *team)
{
    const uint64_t rows = (uint64_t)t->params.batch * t->params.seq, chunk = t->head.chunk_rows, last = rows % chunk;
    struct linear head = {.rows = chunk, .out = t->head.words, .in = t->params.config.width,
                          .out_stride = t->head.logit_stride, .in_stride = t->params.config.width,
                          .accumulates_weight = rows > chunk, .frozen = has_adapters(t)};
    EO_TRY(prepare_linear(t, team, &head));
    head.rows = last;
    return last ? prepare_linear(t, team, &head) : EO_OK;
}

static eo_status prepare_plans(const eo_transformer *t, eo_team *team)
{
    for (uint32_t h = 0; h < 2; h++) /* the others have the same shapes */
        EO_TRY(prepare_half(t, team, &t->halves[h]));
    EO_TRY(prepare_head(t, team));
    struct eo_attention_shape shape = eo_half_attention_shape(t, t->params.batch, t->params.seq);
    shape.packed = t->params.packed;
    return t->kernels->prepare_attention(team, &(struct eo_attention){.types = t->types, .shape = shape});
}

eo_status eo_transformer_prepare(const eo_transformer *transformer, eo_runtime *runtime, eo_team *team)
{
    if (!transformer || !runtime)
        return EO_ERR_INVALID;
    const eo_transformer *t = transformer;
    const struct pass pass = {.transformer = t, .runtime = runtime, .team = team, .kernels = t->kernels};
    LAYERS_REQUIRE(&t->log, eo_team_backend_of(team)->device == t->params.device,
                   "transformer: described for device \"%s\", but the team computes on \"%s\"", t->params.device,
                   eo_team_backend_of(team)->device);
    if (t->rope_buffer != NO_BUFFER) {
        EO_TRY(eo_pass_upload(&pass, eo_buffer(runtime, t->rope_buffer), t->rope_table,
                              eo_rope_table_floats(t->params.seq, t->params.config.head_size) * sizeof(float)));
    }
    return t->kernels->prepare_multiply ? prepare_plans(t, team) : EO_OK;
}
