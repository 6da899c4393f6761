/* SPDX-License-Identifier: MIT
 *
 * Layers, parameters and positions of GPT-2, Llama, Qwen2 and Qwen3, under the names of their published weights. Weights are stored
 * [out][in]. A tied head is the embedding layer's second position; it holds the last norm too, so that nothing small
 * becomes a layer of its own.
 */
#include <stdio.h>

#include "layers/transformer/internal.h"

/* Per half: the norm's weight (and bias), each in-product's weight (and bias, and its heads' norm), the out-product's
 * weight (and bias). */
static const char *const gpt2_attention_names[] = {
    "h.%u.ln_1.weight",        "h.%u.ln_1.bias",
    "h.%u.attn.c_attn.weight", "h.%u.attn.c_attn.bias",
    "h.%u.attn.c_proj.weight", "h.%u.attn.c_proj.bias",
};
static const char *const gpt2_mlp_names[] = {
    "h.%u.ln_2.weight",       "h.%u.ln_2.bias",
    "h.%u.mlp.c_fc.weight",   "h.%u.mlp.c_fc.bias",
    "h.%u.mlp.c_proj.weight", "h.%u.mlp.c_proj.bias",
};
#define LLAMA_NORM "model.layers.%u.input_layernorm.weight"
#define LLAMA_PROJECTION(letter) "model.layers.%u.self_attn." letter "_proj.weight"
#define LLAMA_BIAS(letter) "model.layers.%u.self_attn." letter "_proj.bias"
#define LLAMA_HEAD_NORM(letter) "model.layers.%u.self_attn." letter "_norm.weight"
/* By qkv_bias, then qk_norm. */
static const char *const llama_attention_names[2][2][10] = {
    {{LLAMA_NORM, LLAMA_PROJECTION("q"), LLAMA_PROJECTION("k"), LLAMA_PROJECTION("v"), LLAMA_PROJECTION("o")},
     {LLAMA_NORM, LLAMA_PROJECTION("q"), LLAMA_HEAD_NORM("q"), LLAMA_PROJECTION("k"), LLAMA_HEAD_NORM("k"),
      LLAMA_PROJECTION("v"), LLAMA_PROJECTION("o")}},
    {{LLAMA_NORM, LLAMA_PROJECTION("q"), LLAMA_BIAS("q"), LLAMA_PROJECTION("k"), LLAMA_BIAS("k"), LLAMA_PROJECTION("v"),
      LLAMA_BIAS("v"), LLAMA_PROJECTION("o")},
     {LLAMA_NORM, LLAMA_PROJECTION("q"), LLAMA_BIAS("q"), LLAMA_HEAD_NORM("q"), LLAMA_PROJECTION("k"), LLAMA_BIAS("k"),
      LLAMA_HEAD_NORM("k"), LLAMA_PROJECTION("v"), LLAMA_BIAS("v"), LLAMA_PROJECTION("o")}},
};
static const char *const llama_mlp_names[] = {
    "model.layers.%u.post_attention_layernorm.weight",
    "model.layers.%u.mlp.gate_proj.weight",
    "model.layers.%u.mlp.up_proj.weight",
    "model.layers.%u.mlp.down_proj.weight",
};

/* Weights side by side with their outputs side by side: with nothing between them, and no padding either. */
static void join_products(const eo_transformer *t, struct half_shape *shape)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < shape->in_count; i++) {
        const bool joins = i > 0 && t->kernels->joined_products && !shape->in_bias && !shape->head_norms &&
                           (uint64_t)shape->in_width[i - 1] * t->params.config.width % 32 == 0; /* float8_frozen's blocks */
        first = joins ? first : i;
        shape->in_joined[first]++;
    }
}

static void describe_shapes(eo_transformer *t)
{
    const eo_transformer_config *c = &t->params.config;
    const uint32_t kv_width = kv_heads_width(t);
    struct half_shape *attention = &t->shape[true], *mlp = &t->shape[false];
    if (is_gpt2(t)) {
        *attention = (struct half_shape){.in_count = 1, .in_width = {3 * c->width}, .norm_bias = true, .in_bias = true,
                                         .out_bias = true, .parameter_count = 6,
                                         .parameter_names = gpt2_attention_names};
        *mlp = (struct half_shape){.in_count = 1, .in_width = {c->mlp_width}, .norm_bias = true, .in_bias = true,
                                   .out_bias = true, .parameter_count = 6, .parameter_names = gpt2_mlp_names};
    } else {
        *attention = (struct half_shape){.in_count = 3, .in_width = {heads_width(t), kv_width, kv_width},
                                         .in_bias = c->qkv_bias, .head_norms = c->qk_norm,
                                         .parameter_count = 5 + (c->qkv_bias ? 3 : 0) + (c->qk_norm ? 2 : 0),
                                         .parameter_names = llama_attention_names[c->qkv_bias][c->qk_norm]};
        *mlp = (struct half_shape){.in_count = 2, .in_width = {c->mlp_width, c->mlp_width},
                                   .parameter_count = 4, .parameter_names = llama_mlp_names};
    }
    attention->mid_width = heads_width(t);
    attention->inner_name = "qkv";
    attention->mid_name = "heads";
    mlp->mid_width = c->mlp_width;
    mlp->inner_name = "hidden";
    mlp->mid_name = "activation";
    for (uint32_t i = 0; i < HALF_INPUTS_MAX; i++) {
        attention->inner_width += attention->in_width[i];
        mlp->inner_width += mlp->in_width[i];
    }
    join_products(t, attention);
    join_products(t, mlp);
}

static eo_status add_vector(eo_transformer *t, uint32_t layer, const char *name, uint32_t width)
{
    const eo_parameter_params params = {
        .layer = layer, .name = name, .dim_count = 1, .dims = {width}, .no_weight_decay = true, .frozen = has_adapters(t)};
    return eo_model_add_parameter(t->model, &params, NULL);
}

/* A norm's weight or bias. */
static eo_status add_norm_vector(eo_transformer *t, uint32_t layer, const char *name, uint32_t width)
{
    const eo_parameter_params params = {.layer = layer, .name = name, .dim_count = 1, .dims = {width}, .no_weight_decay = true,
                                        .frozen = has_adapters(t), .fp32 = t->params.fp32_norms};
    return eo_model_add_parameter(t->model, &params, NULL);
}

static eo_status add_matrix(eo_transformer *t, uint32_t layer, const char *name, uint32_t out, uint32_t in, bool joined)
{
    const eo_parameter_params params = {.layer = layer, .name = name, .dim_count = 2, .dims = {out, in},
                                        .float8_gather = true, .matrix = true, .joined = joined, .frozen = has_adapters(t)};
    return eo_model_add_parameter(t->model, &params, NULL);
}

/* Looked up, not multiplied with: not for float8. */
static eo_status add_places(eo_transformer *t, uint32_t layer, const char *name)
{
    const eo_transformer_config *c = &t->params.config;
    const eo_parameter_params params = {
        .layer = layer, .name = name, .dim_count = 2, .dims = {c->context, c->width}, .frozen = has_adapters(t)};
    return eo_model_add_parameter(t->model, &params, NULL);
}

/* Of the head's products: padded to their rows. An embedding of its own takes no part in a product. */
static eo_status add_words(eo_transformer *t, uint32_t layer, const char *name, bool is_head)
{
    const eo_transformer_config *c = &t->params.config;
    const uint64_t padding = is_head ? (t->head.words - c->vocabulary) * c->width : 0;
    return eo_model_add_parameter(t->model, &(eo_parameter_params){
        .layer = layer, .name = name, .dim_count = 2, .dims = {c->vocabulary, c->width}, .padding = padding,
        .frozen = has_adapters(t)}, NULL);
}

static eo_status add_half(eo_transformer *t, uint32_t layer, const struct half *half, uint32_t block)
{
    const struct half_shape *shape = half_shape_of(t, half);
    const uint32_t width = t->params.config.width;
    const char *const *format = shape->parameter_names;
    char name[EO_NAME_MAX];
#define NEXT_NAME (snprintf(name, sizeof(name), *format++, block), name)
    EO_TRY(add_norm_vector(t, layer, NEXT_NAME, width));
    if (shape->norm_bias)
        EO_TRY(add_norm_vector(t, layer, NEXT_NAME, width));
    for (uint32_t i = 0; i < shape->in_count; i++) {
        EO_TRY(add_matrix(t, layer, NEXT_NAME, shape->in_width[i], width, !shape->in_joined[i]));
        if (shape->in_bias)
            EO_TRY(add_vector(t, layer, NEXT_NAME, shape->in_width[i]));
        if (shape->head_norms && i < HALF_HEAD_NORMS)
            EO_TRY(add_norm_vector(t, layer, NEXT_NAME, t->params.config.head_size));
    }
    EO_TRY(add_matrix(t, layer, NEXT_NAME, width, shape->mid_width, false));
    if (shape->out_bias)
        EO_TRY(add_vector(t, layer, NEXT_NAME, width));
#undef NEXT_NAME
    return eo_adapters_add(t, layer, half, block);
}

static eo_status add_final_norm(eo_transformer *t, uint32_t layer)
{
    const bool gpt2 = is_gpt2(t);
    EO_TRY(add_norm_vector(t, layer, gpt2 ? "ln_f.weight" : "model.norm.weight", t->params.config.width));
    return gpt2 ? add_norm_vector(t, layer, "ln_f.bias", t->params.config.width) : EO_OK;
}

static eo_status describe_embedding(eo_transformer *t, uint32_t *layer)
{
    const eo_transformer_config *c = &t->params.config;
    const bool gpt2 = is_gpt2(t);
    EO_TRY(eo_model_add_layer(t->model, &(eo_layer_params){.name = "embedding"}, layer));
    EO_TRY(add_words(t, *layer, gpt2 ? "wte.weight" : "model.embed_tokens.weight", c->tied_head));
    if (gpt2)
        EO_TRY(add_places(t, *layer, "wpe.weight"));
    if (c->tied_head)
        EO_TRY(add_final_norm(t, *layer));
    const uint32_t tables[] = {0, 1};
    return eo_model_add_position(t->model,
                                 &(eo_position_params){.layer = *layer,
                                                       .backward_without_weights = true,
                                                       .adds_gradients = c->tied_head,
                                                       .parameters = has_adapters(t) ? NULL : tables,
                                                       .parameter_count = has_adapters(t) ? 0
                                                                          : gpt2          ? 2
                                                                                          : 1},
                                 NULL);
}

/* Of the layer that begins with half h: "block.3", "block.3.mlp", "block.4-7". */
static void name_layer(const eo_transformer *t, uint32_t h, char name[EO_NAME_MAX])
{
    const uint32_t block = h / 2, last = block + t->params.unit_blocks - 1, most = t->params.config.layer_count - 1;
    if (t->params.half_blocks)
        snprintf(name, EO_NAME_MAX, "block.%u.%s", block, h % 2 ? "mlp" : "attention");
    else if (last == block || most == block)
        snprintf(name, EO_NAME_MAX, "block.%u", block);
    else
        snprintf(name, EO_NAME_MAX, "block.%u-%u", block, last < most ? last : most);
}

static eo_status describe_halves(eo_transformer *t)
{
    uint32_t layer = 0, position = 0, parameter = 0;
    bool recompute = false;
    for (uint32_t h = 0; h < t->half_count; h++) {
        struct half *half = &t->halves[h];
        half->attention = h % 2 == 0;
        if (is_first_of_position(t, h)) {
            char name[EO_NAME_MAX];
            name_layer(t, h, name);
            EO_TRY(eo_model_add_layer(t->model, &(eo_layer_params){.name = name}, &layer));
            EO_TRY(eo_model_add_position(t->model, &(eo_position_params){.layer = layer}, &position));
            recompute = h / 2 < t->params.recompute_blocks;
            parameter = 0;
        }
        half->recompute = recompute;
        half->position = position;
        half->first_parameter = parameter;
        parameter += half_shape_of(t, half)->parameter_count + 2 * half_shape_of(t, half)->adapter_count;
        EO_TRY(add_half(t, layer, half, h / 2));
    }
    return EO_OK;
}

static eo_status describe_head(eo_transformer *t, uint32_t embedding)
{
    const eo_transformer_config *c = &t->params.config;
    const bool gpt2 = is_gpt2(t);
    struct head *head = &t->head;
    eo_position_params use = {.layer = embedding, .name = "head", .forward_in_backward = true};
    uint32_t tied[3]; /* the embedding is the first layer: these are the model's indices too */
    if (c->tied_head) {
        head->weight = 0;
        head->norm_weight = gpt2 ? 2 : 1;
        tied[use.parameter_count++] = head->weight;
        tied[use.parameter_count++] = head->norm_weight;
        if (gpt2)
            tied[use.parameter_count++] = head->norm_weight + 1;
        use.parameters = has_adapters(t) ? NULL : tied;
        use.parameter_count = has_adapters(t) ? 0 : use.parameter_count;
    } else {
        EO_TRY(eo_model_add_layer(t->model, &(eo_layer_params){.name = "head"}, &use.layer));
        EO_TRY(add_final_norm(t, use.layer));
        EO_TRY(add_words(t, use.layer, "lm_head.weight", true));
        head->norm_weight = 0;
        head->weight = gpt2 ? 2 : 1;
    }
    head->norm_bias = head->norm_weight + 1; /* GPT-2 */
    return eo_model_add_position(t->model, &use, &head->position);
}

eo_status eo_transformer_describe(eo_transformer *t)
{
    const uint64_t multiple = t->kernels->word_multiple;
    describe_shapes(t);
    EO_TRY(eo_adapters_describe(t));
    t->head.words = (t->params.config.vocabulary + multiple - 1) / multiple * multiple;
    uint32_t embedding = 0;
    EO_TRY(describe_embedding(t, &embedding));
    EO_TRY(describe_halves(t));
    return describe_head(t, embedding);
}
