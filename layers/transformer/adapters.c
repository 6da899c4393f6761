/* SPDX-License-Identifier: MIT
 *
 * Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021) beside the linear layers of a
 * block: which layers have one, its parameters, and its products.
 *
 *     low = scale x A^T        output += low B^T            [rows][rank], [rows][out]
 *     d_low = scale d_output B      d_input += d_low A      B' = d_output^T low, A' = d_low^T x
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/transformer/internal.h"

/* ---- which layers ---- */

static bool has_linear(const struct half_shape *shape, uint32_t linear)
{
    return linear == HALF_OUT || linear < shape->in_count;
}

/* Its weight's name, with %u for the block: the order of the names is that of describe.c. */
static const char *linear_format(const struct half_shape *shape, uint32_t linear)
{
    uint32_t at = 1 + shape->norm_bias;
    for (uint32_t i = 0; i < shape->in_count && i < linear; i++)
        at += 1 + shape->in_bias + (shape->head_norms && i < HALF_HEAD_NORMS);
    return shape->parameter_names[at];
}

/* "h.%u.attn.c_attn" without ".weight": its length. */
static size_t module_length(const char *format)
{
    return strlen(format) - strlen(".weight");
}

static bool is_named(const char *format, const char *target, size_t length)
{
    const size_t whole = module_length(format);
    return length > 0 && whole > length && format[whole - length - 1] == '.' &&
           strncmp(format + whole - length, target, length) == 0;
}

static const struct half_shape *attention_then_mlp(const eo_transformer *t, uint32_t i)
{
    return &t->shape[i == 0];
}

/* The last part of each linear layer's name, once. */
static void list_layers(const eo_transformer *t, char *text, size_t bytes)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < 2; i++) {
        const struct half_shape *shape = attention_then_mlp(t, i);
        for (uint32_t linear = 0; linear < HALF_LINEARS; linear++) {
            if (!has_linear(shape, linear))
                continue;
            const char *format = linear_format(shape, linear);
            char name[EO_NAME_MAX];
            snprintf(name, sizeof(name), "%.*s", (int)module_length(format), format);
            const char *last = strrchr(name, '.') + 1;
            if (!strstr(text, last)) /* GPT-2 has c_proj twice */
                snprintf(text + strlen(text), bytes - strlen(text), "%s%s", text[0] ? ", " : "", last);
        }
    }
}

static eo_status take_target(eo_transformer *t, const char *target, size_t length)
{
    const bool all = length == strlen("all-linear") && strncmp(target, "all-linear", length) == 0;
    bool found = false;
    for (uint32_t kind = 0; kind < 2; kind++)
        for (uint32_t linear = 0; linear < HALF_LINEARS; linear++) {
            struct half_shape *shape = &t->shape[kind];
            if (!has_linear(shape, linear) || !(all || is_named(linear_format(shape, linear), target, length)))
                continue;
            const uint32_t in = half_linear_in(t, shape, linear), out = half_linear_out(t, shape, linear);
            const uint32_t most = in < out ? in : out;
            LAYERS_REQUIRE(&t->log, t->params.lora.rank <= most, "transformer: lora.rank %u is more than %.*s has inputs or "
                           "outputs; at most %u is possible", t->params.lora.rank, (int)length, target, most);
            found = shape->adapted[linear] = true;
        }
    if (found)
        return EO_OK;
    char known[160];
    list_layers(t, known, sizeof(known));
    eo_layers_log(&t->log, EO_LOG_ERROR, "transformer: the blocks have no linear layer '%.*s' for an adapter; they have %s, or "
                  "all-linear for all", (int)(length < 60 ? length : 60), target, known);
    return EO_ERR_INVALID;
}

eo_status eo_adapters_describe(eo_transformer *t)
{
    eo_lora *lora = &t->params.lora;
    if (!has_adapters(t)) {
        lora->targets = NULL;
        return EO_OK;
    }
    if (lora->alpha == 0)
        lora->alpha = 2 * (float)lora->rank;
    LAYERS_REQUIRE(&t->log, isfinite(lora->alpha) && lora->alpha > 0, "transformer: lora.alpha is %g; it must be above 0",
                   (double)lora->alpha);
    t->adapter_targets = strdup(lora->targets && lora->targets[0] ? lora->targets : "all-linear");
    if (!t->adapter_targets)
        return EO_ERR_NO_MEMORY;
    lora->targets = t->adapter_targets;
    for (const char *target = t->adapter_targets; target; target = strchr(target, '+') ? strchr(target, '+') + 1 : NULL)
        EO_TRY(take_target(t, target, strcspn(target, "+")));
    for (uint32_t kind = 0; kind < 2; kind++)
        for (uint32_t linear = 0; linear < HALF_LINEARS; linear++)
            t->shape[kind].adapter_count += t->shape[kind].adapted[linear];
    t->first_trained = t->shape[true].adapter_count ? 0 : 1;
    return EO_OK;
}

bool eo_position_trains(const eo_transformer *t, uint32_t position)
{
    if (!has_adapters(t))
        return true;
    if (position == 0 || position == t->head.position)
        return false;
    return !t->params.half_blocks || half_shape_of(t, &t->halves[position - 1])->adapter_count > 0;
}

/* ---- parameters ---- */

static eo_status add_matrix(eo_transformer *t, uint32_t layer, const char *format, uint32_t block, char which, uint32_t rows,
                            uint32_t columns)
{
    char name[EO_NAME_MAX], whole[EO_NAME_MAX + 16];
    snprintf(name, sizeof(name), format, block);
    snprintf(whole, sizeof(whole), "%.*s.lora_%c.weight", (int)module_length(name), name, which);
    return eo_model_add_parameter(t->model, &(eo_parameter_params){
        .layer = layer, .name = whole, .dim_count = 2, .dims = {rows, columns}}, NULL);
}

eo_status eo_adapters_add(eo_transformer *t, uint32_t layer, const struct half *half, uint32_t block)
{
    const struct half_shape *shape = half_shape_of(t, half);
    const uint32_t rank = t->params.lora.rank;
    for (uint32_t linear = 0; linear < HALF_LINEARS; linear++) {
        if (!shape->adapted[linear])
            continue;
        const char *format = linear_format(shape, linear);
        EO_TRY(add_matrix(t, layer, format, block, 'A', rank, half_linear_in(t, shape, linear)));
        EO_TRY(add_matrix(t, layer, format, block, 'B', half_linear_out(t, shape, linear), rank));
    }
    return EO_OK;
}

bool eo_transformer_is_adapter(const eo_transformer *transformer, uint32_t parameter)
{
    eo_parameter_info info;
    return transformer && has_adapters(transformer) && eo_model_parameter(transformer->model, parameter, &info) >= 0 &&
           strstr(info.name, ".lora_");
}

/* ---- products ---- */

/* The adapter's place in HALF_LOW, or in its gradients. */
static void *low_at(const struct pass *pass, const struct half *half, void *low, uint32_t linear)
{
    const struct half_shape *shape = half_shape_of(pass->transformer, half);
    uint64_t before = 0;
    for (uint32_t i = 0; i < linear; i++)
        before += shape->adapted[i];
    return (char *)low + before * eo_adapter_low_bytes(pass->transformer, pass->rows);
}

static void *low_of(const struct pass *pass, const struct half *half, uint32_t linear)
{
    return low_at(pass, half, pass_buffer(pass, half->tensor[HALF_LOW]), linear);
}

static eo_status scale(const struct pass *pass, void *low)
{
    const eo_lora *lora = &pass->transformer->params.lora;
    const float factor = lora->alpha / (float)lora->rank;
    return factor == 1 ? EO_OK : pass->kernels->scale(pass->team, pass->types.compute, low, pass->rows * lora->rank, factor);
}

eo_status eo_adapter_low(const struct pass *pass, const struct half *half, const struct half_parameters *w,
                         const struct linear_data *data)
{
    const eo_transformer *t = pass->transformer;
    const uint64_t rank = t->params.lora.rank, in = half_linear_in(t, half_shape_of(t, half), data->linear);
    if (!w->adapter[data->linear].a)
        return EO_OK;
    void *low = low_of(pass, half, data->linear);
    EO_TRY(pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types, .c = low, .c_stride = rank, .a = operand_plain(data->input, in),
        .b = operand_transposed(w->adapter[data->linear].a, in), .m = pass->rows, .n = rank, .k = in}));
    return scale(pass, low);
}

eo_status eo_adapter_forward(const struct pass *pass, const struct half *half, const struct half_parameters *w,
                             const struct linear_data *data)
{
    const eo_transformer *t = pass->transformer;
    const uint64_t rank = t->params.lora.rank;
    if (!w->adapter[data->linear].a)
        return EO_OK;
    EO_TRY(eo_adapter_low(pass, half, w, data));
    return pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types, .c = data->output, .c_stride = data->stride,
        .a = operand_plain(low_of(pass, half, data->linear), rank),
        .b = operand_transposed(w->adapter[data->linear].b, rank), .m = pass->rows,
        .n = half_linear_out(t, half_shape_of(t, half), data->linear), .k = rank, .accumulate = true});
}

eo_status eo_adapter_backward(const struct pass *pass, const struct half *half, const struct half_parameters *w,
                              const struct linear_data *data, void *input_gradient)
{
    const eo_transformer *t = pass->transformer;
    const struct half_shape *shape = half_shape_of(t, half);
    const uint64_t rank = t->params.lora.rank, in = half_linear_in(t, shape, data->linear);
    if (!w->adapter[data->linear].a)
        return EO_OK;
    void *low = low_at(pass, half, eo_half_gradients(pass, half).low, data->linear);
    EO_TRY(pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types, .c = low, .c_stride = rank, .a = operand_plain(data->output, data->stride),
        .b = operand_plain(w->adapter[data->linear].b, rank), .m = pass->rows, .n = rank,
        .k = half_linear_out(t, shape, data->linear)}));
    EO_TRY(scale(pass, low));
    if (!input_gradient)
        return EO_OK;
    return pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types, .c = input_gradient, .c_stride = in, .a = operand_plain(low, rank),
        .b = operand_plain(w->adapter[data->linear].a, in), .m = pass->rows, .n = in, .k = rank, .accumulate = true});
}

eo_status eo_adapter_gradients(const struct pass *pass, const struct half *half, const struct half_parameters *d,
                               const struct linear_data *data)
{
    const eo_transformer *t = pass->transformer;
    const struct half_shape *shape = half_shape_of(t, half);
    const uint64_t rank = t->params.lora.rank, in = half_linear_in(t, shape, data->linear);
    if (!d->adapter[data->linear].a)
        return EO_OK;
    EO_TRY(pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types, .weight_gradient = true, .c = d->adapter[data->linear].b, .c_stride = rank,
        .a = operand_transposed(data->output, data->stride), .b = operand_plain(low_of(pass, half, data->linear), rank),
        .m = half_linear_out(t, shape, data->linear), .n = rank, .k = pass->rows}));
    return pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types, .weight_gradient = true, .c = d->adapter[data->linear].a, .c_stride = in,
        .a = operand_transposed(low_at(pass, half, eo_half_gradients(pass, half).low, data->linear), rank),
        .b = operand_plain(data->input, in), .m = rank, .n = in, .k = pass->rows});
}
