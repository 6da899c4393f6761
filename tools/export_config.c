/* SPDX-License-Identifier: MIT
 *
 * The config.json of a model, as the family's published ones are. Fields whose default in a reader's library would be
 * another thing than what the layers compute are written out.
 */
#include <stdio.h>
#include <string.h>

#include "tools/export.h"
#include "tools/open_file.h"

static enum eo_config_family family_of(const struct eo_export_model *model)
{
    const eo_transformer_config *c = &model->config;
    if (c->family == EO_FAMILY_GPT2)
        return EO_CONFIG_GPT2;
    if (c->qk_norm)
        return EO_CONFIG_QWEN3;
    if (c->qkv_bias)
        return EO_CONFIG_QWEN2;
    const char *type = json_string_value(json_object_get(model->published, "model_type"));
    const bool is_mistral = type ? strcmp(type, eo_config_family_name(EO_CONFIG_MISTRAL)) == 0
                                 : model->origin && model->origin->family == EO_CONFIG_MISTRAL;
    return is_mistral ? EO_CONFIG_MISTRAL : EO_CONFIG_LLAMA;
}

/* A float as the shortest decimal number that is it: 1e-05 and not 9.99999974737875e-06. */
static json_t *real_of(float value)
{
    char text[32];
    double shortest = (double)value;
    for (int digits = 1; digits <= 9; digits++) {
        float back;
        snprintf(text, sizeof(text), "%.*g", digits, (double)value);
        if (sscanf(text, "%f", &back) == 1 && back == value) {
            sscanf(text, "%lf", &shortest);
            break;
        }
    }
    return json_real(shortest);
}

static json_t *gpt2_fields(const eo_transformer_config *c)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:o}", "n_layer", (int)c->layer_count, "n_embd",
        (int)c->width, "n_head", (int)c->head_count, "n_inner", (int)c->mlp_width, "vocab_size", (int)c->vocabulary,
        "n_positions", (int)c->context, "n_ctx", (int)c->context, "activation_function", "gelu_new",
        "layer_norm_epsilon", real_of(c->norm_eps));
}

/* As published since 2024; newer readers take it too, and move it into rope_parameters. */
json_t *eo_export_rope(const eo_rope_scaling *scaling)
{
    if (scaling->kind == EO_ROPE_LINEAR)
        return json_pack("{s:s, s:o}", "rope_type", "linear", "factor", real_of(scaling->factor));
    return json_pack("{s:s, s:o, s:o, s:o, s:i}", "rope_type", "llama3", "factor", real_of(scaling->factor),
        "low_freq_factor", real_of(scaling->low_freq_factor), "high_freq_factor", real_of(scaling->high_freq_factor),
        "original_max_position_embeddings", (int)scaling->original_context);
}

static json_t *llama_fields(const eo_transformer_config *c, enum eo_config_family family)
{
    const uint32_t head_size = c->head_size ? c->head_size : c->width / c->head_count;
    json_t *fields = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:o}", "num_hidden_layers",
        (int)c->layer_count, "hidden_size", (int)c->width, "num_attention_heads", (int)c->head_count,
        "num_key_value_heads", (int)c->kv_head_count, "head_dim", (int)head_size, "intermediate_size",
        (int)c->mlp_width, "vocab_size", (int)c->vocabulary, "max_position_embeddings", (int)c->context, "hidden_act",
        "silu", "rms_norm_eps", real_of(c->norm_eps), "rope_theta", real_of(c->rope_theta));
    if (!fields)
        return NULL;
    if (c->rope_scaling.kind != EO_ROPE_PLAIN &&
        json_object_set_new(fields, "rope_scaling", eo_export_rope(&c->rope_scaling)) != 0) {
        json_decref(fields);
        return NULL;
    }
    if (family == EO_CONFIG_LLAMA) {
        json_object_set_new(fields, "attention_bias", json_false());
        json_object_set_new(fields, "mlp_bias", json_false());
    } else if (family == EO_CONFIG_QWEN3) {
        json_object_set_new(fields, "attention_bias", json_false());
    }
    if (family != EO_CONFIG_LLAMA) /* Mistral's default is a window */
        json_object_set_new(fields, "sliding_window", json_null());
    if (family == EO_CONFIG_QWEN2 || family == EO_CONFIG_QWEN3)
        json_object_set_new(fields, "use_sliding_window", json_false());
    return fields;
}

/* Ids of tokens that the weights know nothing of: those of the file that the model was made from, or none. */
static void add_token_ids(const struct eo_export_model *model, json_t *fields)
{
    static const char *const names[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    enum { GPT2_WORDS = 50257 };
    json_t *origin = model->published ? json_copy((json_t *)model->published) : NULL;
    struct eo_problem problem;
    if (!origin && model->origin && model->origin->from_file &&
        eo_open_json(&origin, EO_CONFIG_BYTES_MAX, "", model->origin->source, &problem) < 0)
        origin = NULL;
    const bool is_published = model->config.family == EO_FAMILY_GPT2 && model->config.vocabulary == GPT2_WORDS;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_t *value = json_object_get(origin, names[i]);
        if (value)
            json_object_set(fields, names[i], value);
        else if (is_published && i < 2) /* <|endoftext|> */
            json_object_set_new(fields, names[i], json_integer(GPT2_WORDS - 1));
        else if (i < 2)
            json_object_set_new(fields, names[i], json_null());
    }
    json_decref(origin);
}

json_t *eo_export_published(const struct eo_export_model *model)
{
    json_t *published = json_pack("{s:s}", "model_type", eo_config_family_name(family_of(model)));
    if (published)
        add_token_ids(model, published);
    return published;
}

json_t *eo_export_config(const struct eo_export_model *model, eo_dtype dtype, char *why, size_t why_bytes)
{
    static const char *const architectures[] = {
        [EO_CONFIG_GPT2] = "GPT2LMHeadModel", [EO_CONFIG_LLAMA] = "LlamaForCausalLM",
        [EO_CONFIG_MISTRAL] = "MistralForCausalLM", [EO_CONFIG_QWEN2] = "Qwen2ForCausalLM",
        [EO_CONFIG_QWEN3] = "Qwen3ForCausalLM",
    };
    const eo_transformer_config *c = &model->config;
    const enum eo_config_family family = family_of(model);
    if (c->qk_norm && c->qkv_bias) {
        snprintf(why, why_bytes, "no published family has both norms of q and k and biases of q, k and v alone");
        return NULL;
    }
    json_t *config = json_pack("{s:[s], s:s}", "architectures", architectures[family], "model_type",
                               eo_config_family_name(family));
    json_t *fields = family == EO_CONFIG_GPT2 ? gpt2_fields(c) : llama_fields(c, family);
    snprintf(why, why_bytes, "no memory");
    if (!config || !fields || json_object_update(config, fields) != 0) {
        json_decref(config);
        json_decref(fields);
        return NULL;
    }
    json_decref(fields);
    json_object_set_new(config, "tie_word_embeddings", json_boolean(c->tied_head));
    json_object_set_new(config, "torch_dtype", json_string(dtype == EO_DTYPE_BF16 ? "bfloat16" : "float32"));
    add_token_ids(model, config);
    return config;
}
