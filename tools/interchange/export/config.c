/* SPDX-License-Identifier: MIT
 *
 * The config.json of a model, as the family's published ones are. Fields whose default in a reader's library would be
 * another thing than what the layers compute are written out.
 */
#include <stdio.h>
#include <string.h>

#include "tools/interchange/export/export.h"
#include "tools/shared/open_file.h"

static enum tool_config_family family_of(const struct tool_export_model *model)
{
    const eo_transformer_config *c = &model->config;
    if (c->family == EO_FAMILY_GPT2)
        return TOOL_CONFIG_GPT2;
    if (c->qk_norm)
        return TOOL_CONFIG_QWEN3;
    if (c->qkv_bias)
        return TOOL_CONFIG_QWEN2;
    if (c->unrotated_interval)
        return TOOL_CONFIG_SMOLLM3;
    const char *type = json_string_value(json_object_get(model->published, "model_type"));
    const enum tool_config_family origin = model->origin ? model->origin->family : TOOL_CONFIG_LLAMA;
    if (type ? strcmp(type, tool_config_family_name(TOOL_CONFIG_MISTRAL)) == 0 : origin == TOOL_CONFIG_MISTRAL)
        return TOOL_CONFIG_MISTRAL;
    /* Phi-3 knows neither heads of another size nor these scalings. */
    const bool can_be_phi3 = (c->head_size == 0 || c->head_count * c->head_size == c->width) &&
                             c->rope_scaling.kind == EO_ROPE_PLAIN;
    const bool is_phi3 = type ? strcmp(type, tool_config_family_name(TOOL_CONFIG_PHI3)) == 0 : origin == TOOL_CONFIG_PHI3;
    return is_phi3 && can_be_phi3 ? TOOL_CONFIG_PHI3 : TOOL_CONFIG_LLAMA;
}

/* A float as the shortest decimal number that is it: 1e-05 and not 9.99999974737875e-06. */
static double shortest_real(float value)
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
    return shortest;
}

/* Dropout's default is 0.1 in readers' libraries: who trains on would have another training. */
static void write_gpt2_fields(struct eo_json *json, const eo_transformer_config *c)
{
    eo_json_write(json,
                  "'n_layer': %u, 'n_embd': %u, 'n_head': %u, 'n_inner': %u, 'vocab_size': %u, 'n_positions': %u,"
                  "'n_ctx': %u, 'activation_function': 'gelu_new', 'layer_norm_epsilon': %g,"
                  "'resid_pdrop': 0.0, 'embd_pdrop': 0.0, 'attn_pdrop': 0.0",
                  c->layer_count, c->width, c->head_count, c->mlp_width, c->vocabulary, c->context, c->context,
                  shortest_real(c->norm_eps));
}

/* As published since 2024; newer readers take it too, and move it into rope_parameters. */
void tool_export_rope(struct eo_json *json, const eo_rope_scaling *scaling, const char *linear_key)
{
    if (scaling->kind == EO_ROPE_LINEAR)
        eo_json_write(json, "'rope_scaling': {%s: 'linear', 'factor': %g}", linear_key, shortest_real(scaling->factor));
    else if (scaling->kind != EO_ROPE_PLAIN)
        eo_json_write(json,
                      "'rope_scaling': {'rope_type': 'llama3', 'factor': %g, 'low_freq_factor': %g,"
                      "'high_freq_factor': %g, 'original_max_position_embeddings': %u}",
                      shortest_real(scaling->factor), shortest_real(scaling->low_freq_factor),
                      shortest_real(scaling->high_freq_factor), scaling->original_context);
}

/* The config.json of what the model was made from; NULL where there is none. The caller's. */
static json_t *open_origin(const struct tool_export_model *model)
{
    json_t *origin = NULL;
    struct tool_problem problem;
    const bool has_file = model->origin && model->origin->from_file;
    return has_file && tool_open_json(&origin, TOOL_CONFIG_BYTES_MAX, "", model->origin->source, &problem) >= 0 ? origin : NULL;
}

/* What says how far attention reaches. Weights that were made with a window are trained on the tokens that it holds; they are
 * the same model as before, so these fields are those of their origin. */
static const char *const reach_fields[] = {"max_position_embeddings", "original_max_position_embeddings",
                                           "sliding_window",          "use_sliding_window",
                                           "max_window_layers",       "layer_types"};

/* The caller's; NULL: without a window, which a Llama never has. */
static json_t *reach_of_origin(const struct tool_export_model *model)
{
    if (family_of(model) == TOOL_CONFIG_LLAMA)
        return NULL;
    if (model->published)
        return json_incref(json_object_get(model->published, "reach"));
    return model->origin && model->origin->window && model->origin->window == model->config.context ? open_origin(model) : NULL;
}

static void write_reach_of(struct eo_json *json, const json_t *origin)
{
    for (size_t i = 0; i < sizeof(reach_fields) / sizeof(reach_fields[0]); i++) {
        const json_t *value = json_object_get(origin, reach_fields[i]);
        if (!value) /* then readers have the family's default, as of the origin */
            continue;
        eo_json_write(json, "%s:", reach_fields[i]);
        tool_json_value(json, value);
    }
}

static void write_reach(struct eo_json *json, const eo_transformer_config *c, enum tool_config_family family)
{
    eo_json_write(json, "'max_position_embeddings': %u", c->context);
    if (family == TOOL_CONFIG_PHI3) /* its positions were never stretched */
        eo_json_write(json, "'original_max_position_embeddings': %u", c->context);
    if (family == TOOL_CONFIG_QWEN2) /* some readers (candle) take a number alone, though it is off */
        eo_json_write(json, "'sliding_window': %u", c->context);
    else if (family != TOOL_CONFIG_LLAMA) /* Mistral's default is a window */
        eo_json_write(json, "'sliding_window': null");
    if (family == TOOL_CONFIG_SMOLLM3)
        eo_json_write(json, "'use_sliding_window': false");
    if (family == TOOL_CONFIG_QWEN2 || family == TOOL_CONFIG_QWEN3) /* of some readers max_window_layers has no default */
        eo_json_write(json, "'use_sliding_window': false, 'max_window_layers': %u", c->layer_count);
}

static void write_llama_fields(struct eo_json *json, const struct tool_export_model *model, enum tool_config_family family)
{
    const eo_transformer_config *c = &model->config;
    json_t *reach = reach_of_origin(model);
    eo_json_write(json,
                  "'num_hidden_layers': %u, 'hidden_size': %u, 'num_attention_heads': %u, 'num_key_value_heads': %u,"
                  "'intermediate_size': %u, 'vocab_size': %u,"
                  "'hidden_act': 'silu', 'rms_norm_eps': %g, 'rope_theta': %g",
                  c->layer_count, c->width, c->head_count, c->kv_head_count, c->mlp_width, c->vocabulary,
                  shortest_real(c->norm_eps), shortest_real(c->rope_theta));
    if (family != TOOL_CONFIG_PHI3)
        eo_json_write(json, "'head_dim': %u", c->head_size ? c->head_size : c->width / c->head_count);
    reach ? write_reach_of(json, reach) : write_reach(json, c, family);
    json_decref(reach);
    tool_export_rope(json, &c->rope_scaling, "type"); /* older readers refuse or pass over the newer key */
    if (family == TOOL_CONFIG_LLAMA || family == TOOL_CONFIG_SMOLLM3)
        eo_json_write(json, "'attention_bias': false, 'mlp_bias': false");
    else if (family == TOOL_CONFIG_QWEN3)
        eo_json_write(json, "'attention_bias': false");
    if (family == TOOL_CONFIG_SMOLLM3) { /* some readers take the list alone, some the interval */
        eo_json_write(json, "'no_rope_layer_interval': %u, 'no_rope_layers': [", c->unrotated_interval);
        for (uint32_t i = 0; i < c->layer_count; i++)
            eo_json_write(json, "%u", (i + 1) % c->unrotated_interval != 0);
        eo_json_write(json, "]");
    }
}

/* Of what the model was made from, or of the tokenizer. */
static void write_token_ids(struct eo_json *json, const struct tool_export_model *model)
{
    json_t *origin = model->published ? json_incref((json_t *)model->published) : open_origin(model);
    const enum tool_config_family family = family_of(model); /* of Phi-3 and SmolLM3 the default is a word */
    tool_export_ids(json, model, origin, family == TOOL_CONFIG_PHI3 || family == TOOL_CONFIG_SMOLLM3);
    json_decref(origin);
}

void tool_export_published(struct eo_json *json, const struct tool_export_model *model)
{
    json_t *reach = reach_of_origin(model);
    eo_json_write(json, "{'model_type': %s", tool_config_family_name(family_of(model)));
    write_token_ids(json, model);
    if (reach) {
        eo_json_write(json, "'reach': {");
        write_reach_of(json, reach);
        eo_json_write(json, "}");
    }
    json_decref(reach);
    eo_json_write(json, "}");
}

eo_status tool_export_config_check(const struct tool_export_model *model, const char *path, struct tool_problem *problem)
{
    const eo_transformer_config *c = &model->config;
    if (c->qk_norm && c->qkv_bias)
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED,
                                "--export %s: no published family has both norms of q and k and biases of q, k and v alone",
                                path);
    if (c->unrotated_interval && (c->qk_norm || c->qkv_bias))
        return tool_problem_set(
            problem, EO_ERR_UNSUPPORTED,
            "--export %s: no published family has both blocks without rotary positions and norms or biases of "
            "q and k",
            path);
    return EO_OK;
}

void tool_export_config(struct eo_json *json, const void *user)
{
    static const char *const architectures[] = {
        [TOOL_CONFIG_GPT2] = "GPT2LMHeadModel",       [TOOL_CONFIG_LLAMA] = "LlamaForCausalLM",
        [TOOL_CONFIG_MISTRAL] = "MistralForCausalLM", [TOOL_CONFIG_QWEN2] = "Qwen2ForCausalLM",
        [TOOL_CONFIG_QWEN3] = "Qwen3ForCausalLM",     [TOOL_CONFIG_PHI3] = "Phi3ForCausalLM",
        [TOOL_CONFIG_SMOLLM3] = "SmolLM3ForCausalLM",
    };
    const struct tool_export_config *what = user;
    const eo_transformer_config *c = &what->model->config;
    const enum tool_config_family family = family_of(what->model);
    eo_json_write(json, "{'architectures': [%s], 'model_type': %s", architectures[family], tool_config_family_name(family));
    if (family == TOOL_CONFIG_GPT2)
        write_gpt2_fields(json, c);
    else
        write_llama_fields(json, what->model, family);
    if (c->initial_deviation != 0)
        eo_json_write(json, "'initializer_range': %g", shortest_real(c->initial_deviation));
    eo_json_write(json, "'tie_word_embeddings': %i, 'torch_dtype': %s", c->tied_head,
                  what->dtype == EO_DTYPE_BF16 ? "bfloat16" : "float32");
    write_token_ids(json, what->model);
    eo_json_write(json, "}");
}
