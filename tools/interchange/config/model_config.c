/* SPDX-License-Identifier: MIT */
#include "tools/interchange/config/model_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/interchange/config/fields.h"
#include "tools/interchange/config/keys.h"
#include "tools/shared/json_output.h"

static const struct family_name {
    const char *model_type, *architecture;
} families[TOOL_CONFIG_FAMILY_COUNT] = {
    [TOOL_CONFIG_GPT2] = {"gpt2", "GPT2LMHeadModel"},
    [TOOL_CONFIG_LLAMA] = {"llama", "LlamaForCausalLM"},
    [TOOL_CONFIG_MISTRAL] = {"mistral", "MistralForCausalLM"},
    [TOOL_CONFIG_QWEN2] = {"qwen2", "Qwen2ForCausalLM"},
    [TOOL_CONFIG_QWEN3] = {"qwen3", "Qwen3ForCausalLM"},
    [TOOL_CONFIG_MIXTRAL] = {"mixtral", "MixtralForCausalLM"},
    [TOOL_CONFIG_QWEN3_MOE] = {"qwen3_moe", "Qwen3MoeForCausalLM"},
    [TOOL_CONFIG_SMOLLM3] = {"smollm3", "SmolLM3ForCausalLM"},
    [TOOL_CONFIG_PHI3] = {"phi3", "Phi3ForCausalLM"},
    [TOOL_CONFIG_GEMMA2] = {"gemma2", "Gemma2ForCausalLM"},
    [TOOL_CONFIG_GEMMA3] = {"gemma3_text", "Gemma3ForCausalLM"},
    [TOOL_CONFIG_GPT_OSS] = {"gpt_oss", "GptOssForCausalLM"},
    [TOOL_CONFIG_DEEPSEEK_V3] = {"deepseek_v3", "DeepseekV3ForCausalLM"},
    [TOOL_CONFIG_QWEN2_MOE] = {"qwen2_moe", "Qwen2MoeForCausalLM"},
    [TOOL_CONFIG_QWEN3_NEXT] = {"qwen3_next", "Qwen3NextForCausalLM"},
    [TOOL_CONFIG_OLMO2] = {"olmo2", "Olmo2ForCausalLM"},
};

const char *tool_config_family_name(enum tool_config_family family)
{
    return (unsigned)family < TOOL_CONFIG_FAMILY_COUNT ? families[family].model_type : "unknown";
}

/* --- families ----------------------------------------------------------------------------------------------------- */

/* TOOL_CONFIG_FAMILY_COUNT: none. The type counts, if there is one. */
static int find_name(const char *type, const char *architecture)
{
    int f = 0;
    while (f < TOOL_CONFIG_FAMILY_COUNT &&
           (type ? strcmp(type, families[f].model_type) : !architecture || strcmp(architecture, families[f].architecture)))
        f++;
    return f;
}

static eo_status find_family(struct tool_config_reader *r)
{
    json_t *type = tool_config_field(r, "model_type"), *list = tool_config_field(r, "architectures");
    json_t *first = json_is_array(list) ? json_array_get(list, 0) : NULL;
    const char *architecture = json_string_value(first), *by = type ? json_string_value(type) : architecture;
    const int found = by ? find_name(json_string_value(type), architecture) : TOOL_CONFIG_FAMILY_COUNT;
    if (found < TOOL_CONFIG_FAMILY_COUNT) {
        r->config->family = (enum tool_config_family)found;
        /* A part of a larger model may have its own class of the same text model: VLlama3ForCausalLM. */
        if (type && architecture && !r->is_nested && strcmp(architecture, families[found].architecture) != 0)
            return tool_config_refuse(r,
                                      "model_type is %s, but architectures[0] is %.60s; for %s it is %s; if it computes the "
                                      "same, leave architectures out (memplan: --set architectures=null)",
                                      families[found].model_type, architecture, families[found].model_type,
                                      families[found].architecture);
        return EO_OK;
    }
    char known[320] = "";
    for (int f = 0; f < TOOL_CONFIG_FAMILY_COUNT; f++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", f ? ", " : "", families[f].model_type);
    if (!by)
        return tool_config_refuse(
            r, "%s; known families are %s",
            type || first ? "model_type is not a string" : "model_type and architectures are both missing", known);
    return tool_config_refuse(r, "%s%s is '%.60s', an unknown family; known families are %s",
                              r->is_nested ? "text_config." : "", type ? "model_type" : "architectures[0]", by, known);
}

static void find_stored_bytes(struct tool_config_reader *r)
{
    json_t *value = tool_config_field(r, "torch_dtype") ? tool_config_field(r, "torch_dtype") : tool_config_field(r, "dtype");
    const char *name = json_string_value(value);
    if (name && (strcmp(name, "bfloat16") == 0 || strcmp(name, "float16") == 0))
        r->config->stored_bytes = 2;
    else if (name && strcmp(name, "float32") == 0)
        r->config->stored_bytes = 4;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

enum { KEY_BYTES = 128 };

/* False: no KEY=VALUE. */
static bool key_of_set(const char *set, char key[KEY_BYTES])
{
    const char *equals = strchr(set, '=');
    if (!equals || equals == set || equals - set >= KEY_BYTES)
        return false;
    snprintf(key, KEY_BYTES, "%.*s", (int)(equals - set), set);
    return true;
}

/* The value as JSON, or as a text where it is none. */
static eo_status apply_set(struct tool_config_reader *r, const char *set, const char *key)
{
    const char *equals = strchr(set, '=');
    json_error_t error;
    json_t *value = json_loads(equals + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (!value)
        value = json_string(equals + 1);
    if (!value || json_object_set_new(r->object, key, value) != 0)
        return tool_problem_set(r->problem, EO_ERR_INVALID, "--set '%.100s': not UTF-8 text", set);
    return EO_OK;
}

/* ---- fields that follow another by default ---- */

static const struct follower {
    const char *field, *leaders[2], *rule;
    bool of_gpt2;
} followers[] = {
    {"n_inner", {"n_embd"}, "4 x n_embd", true},
    {"num_key_value_heads", {"num_attention_heads"}, "num_attention_heads", false},
    {"head_dim", {"hidden_size", "num_attention_heads"}, "hidden_size / num_attention_heads", false},
};
enum { FOLLOWERS = sizeof(followers) / sizeof(followers[0]) };
_Static_assert((int)FOLLOWERS <= (int)TOOL_CONFIG_FIXED_MAX, "each may be listed");

static double number_of(const struct tool_config_reader *r, const char *key)
{
    return json_number_value(tool_config_field(r, key));
}

/* Whether the field is what the rule makes of its leaders. */
static bool is_by_rule(const struct tool_config_reader *r, uint32_t index)
{
    const double value = number_of(r, followers[index].field), leader = number_of(r, followers[index].leaders[0]);
    return index == 0   ? value == 4 * leader
           : index == 1 ? value == leader
                        : value * number_of(r, "num_attention_heads") == leader;
}

static bool is_set(const struct tool_config_reader *r, const char *field, const char *const *sets, uint32_t set_count)
{
    char key[KEY_BYTES];
    for (uint32_t i = 0; field && i < set_count; i++)
        if (key_of_set(sets[i], key) && strcmp(tool_config_own_name(r->config->family, key), field) == 0)
            return true;
    return false;
}

/* After the sets. `by_rule`: before them. A shape of the layers follows its rules; what a file says stands, and is listed. */
static void let_fields_follow(struct tool_config_reader *r, const bool by_rule[FOLLOWERS], const char *const *sets,
                              uint32_t set_count)
{
    struct tool_model_config *c = r->config;
    /* 128 by default, or the like */
    const bool has_own_head_size = c->family == TOOL_CONFIG_QWEN3 || c->family >= TOOL_CONFIG_PLANNED;
    for (uint32_t i = 0; i < FOLLOWERS; i++) {
        const struct follower *f = &followers[i];
        if (f->of_gpt2 != (c->family == TOOL_CONFIG_GPT2) || (has_own_head_size && strcmp(f->field, "head_dim") == 0) ||
            !tool_config_field(r, f->field) || is_set(r, f->field, sets, set_count) ||
            !(is_set(r, f->leaders[0], sets, set_count) || is_set(r, f->leaders[1], sets, set_count)))
            continue;
        char shown[96];
        tool_config_show_value(tool_config_field(r, f->field), shown, sizeof(shown));
        if (r->is_preset && by_rule[i])
            json_object_set_new(r->object, f->field, json_null());
        else
            snprintf(c->fixed[c->fixed_count++], sizeof(c->fixed[0]), "%s = %.16s (by default %s)", f->field, shown, f->rule);
    }
}

/* A set of what names the family comes first: the others are under the family's names. */
static eo_status apply_sets(struct tool_config_reader *r, const char *const *sets, uint32_t set_count)
{
    bool by_rule[FOLLOWERS];
    char key[KEY_BYTES];
    for (uint32_t i = 0; i < set_count; i++) {
        if (!key_of_set(sets[i], key))
            return tool_problem_set(r->problem, EO_ERR_INVALID, "--set '%.100s': give KEY=VALUE, such as num_hidden_layers=40",
                                    sets[i]);
        if (strcmp(key, "model_type") == 0 || strcmp(key, "architectures") == 0)
            EO_TRY(apply_set(r, sets[i], key));
    }
    EO_TRY(find_family(r));
    EO_TRY(tool_config_rename_aliases(r));
    for (uint32_t i = 0; i < FOLLOWERS; i++)
        by_rule[i] = is_by_rule(r, i);
    for (uint32_t i = 0; i < set_count && key_of_set(sets[i], key); i++) {
        const char *own_name = tool_config_own_name(r->config->family, key);
        if (!json_object_get(r->object, own_name) && !tool_config_knows_key(r->config->family, own_name))
            return tool_problem_set(r->problem, EO_ERR_INVALID, "--set %.100s: family %s has no key %.60s; did you mean %s?",
                                    sets[i], tool_config_family_name(r->config->family), key,
                                    tool_config_nearest_key(r->config->family, key));
        EO_TRY(apply_set(r, sets[i], own_name));
    }
    let_fields_follow(r, by_rule, sets, set_count);
    return EO_OK;
}

/* What a model of several parts says once for all of them. */
static void inherit(json_t *nested, const json_t *outer)
{
    static const char *const keys[] = {"tie_word_embeddings", "torch_dtype", "dtype"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_object_get(outer, keys[i]) && !json_object_get(nested, keys[i]))
            json_object_set(nested, keys[i], json_object_get(outer, keys[i]));
}

static eo_status read_object(struct tool_config_reader *r, const char *const *sets, uint32_t set_count)
{
    if (!json_is_object(r->object))
        return tool_config_refuse(r, "is JSON, but not an object");
    json_t *nested = json_object_get(r->object, "text_config"), *outer = NULL;
    const char *type = json_string_value(json_object_get(r->object, "model_type"));
    /* Beside it there may be sizes of other parts, or of the text again. */
    if (json_is_object(nested) && find_name(type ? type : "", NULL) == TOOL_CONFIG_FAMILY_COUNT) {
        outer = r->object;
        r->object = nested;
        r->is_nested = true;
        inherit(nested, outer);
    }
    EO_TRY(apply_sets(r, sets, set_count));
    find_stored_bytes(r);
    const enum tool_config_family family = r->config->family;
    EO_TRY(family >= TOOL_CONFIG_PLANNED ? tool_config_read_planned(r)
           : family == TOOL_CONFIG_GPT2  ? tool_config_read_gpt2(r)
                                         : tool_config_read_others(r));
    if (tool_config_field(r, "initializer_range"))
        EO_TRY(tool_config_take_real_or(r, "initializer_range", 0, &r->config->initializer_range));
    tool_config_judge_keys(r->config, r->object);
    if (outer)
        tool_config_judge_outer(r->config, outer);
    return EO_OK;
}

static eo_status parse_into(struct tool_model_config *config, const char *text, size_t bytes, const char *const *sets,
                            uint32_t set_count, struct tool_problem *problem)
{
    json_error_t error;
    struct tool_config_reader r = {.config = config, .problem = problem};
    const uint64_t values = tool_json_values(text, bytes);
    if (values > TOOL_CONFIG_VALUES_MAX)
        return tool_config_refuse(&r, "has about %" PRIu64 " values; at most %d are read", values, TOOL_CONFIG_VALUES_MAX);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        root = tool_config_parse_python(&r, text, bytes, &error);
    if (!root)
        return tool_config_refuse(&r, "line %d: %s", error.line, error.text);
    r.object = root;
    const eo_status status = read_object(&r, sets, set_count);
    json_decref(root);
    return status;
}

eo_status tool_model_config_parse(struct tool_model_config *config, const char *source, const char *text, size_t bytes,
                                  const char *const *sets, uint32_t set_count, struct tool_problem *problem)
{
    *config = (struct tool_model_config){0};
    snprintf(config->source, sizeof(config->source), "%s", source);
    return parse_into(config, text, bytes, sets, set_count, problem);
}

/* A preset of the layers, as its config.json would be. */
static json_t *preset_object(const eo_transformer_config *c)
{
    if (c->family == EO_FAMILY_GPT2)
        return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:b}", "model_type", "gpt2", "n_layer",
            (int)c->layer_count, "n_embd", (int)c->width, "n_head", (int)c->head_count, "n_inner", (int)c->mlp_width,
            "vocab_size", (int)c->vocabulary, "n_positions", (int)c->context, "layer_norm_epsilon",
            (double)c->norm_eps, "tie_word_embeddings", (int)c->tied_head);
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, s:b, s:b, s:i}", "model_type",
        c->qk_norm ? "qwen3" : c->qkv_bias ? "qwen2" : "llama",
        "num_hidden_layers", (int)c->layer_count, "hidden_size", (int)c->width, "num_attention_heads",
        (int)c->head_count, "num_key_value_heads", (int)c->kv_head_count, "intermediate_size", (int)c->mlp_width,
        "vocab_size", (int)c->vocabulary, "max_position_embeddings", (int)c->context, "rms_norm_eps",
        (double)c->norm_eps, "rope_theta", (double)c->rope_theta, "tie_word_embeddings", (int)c->tied_head,
        "attention_bias", 0, "mlp_bias", 0, "head_dim", (int)c->head_size);
}

bool tool_model_config_is_name(const char *model)
{
    eo_transformer_config preset;
    return eo_transformer_preset(model, &preset) >= 0 || tool_model_preset_text(model);
}

eo_status tool_model_config_named(struct tool_model_config *config, const char *name, const char *const *sets,
                                  uint32_t set_count, struct tool_problem *problem)
{
    *config = (struct tool_model_config){0};
    snprintf(config->source, sizeof(config->source), "%s", name);
    eo_transformer_config preset;
    if (eo_transformer_preset(name, &preset) >= 0) {
        struct tool_config_reader r = {
            .object = preset_object(&preset), .is_preset = true, .config = config, .problem = problem};
        if (!r.object)
            return tool_problem_set(problem, EO_ERR_NO_MEMORY, "--model %s: no memory", name);
        json_t *root = r.object;
        const eo_status status = read_object(&r, sets, set_count);
        json_decref(root);
        return status;
    }
    const char *text = tool_model_preset_text(name);
    if (text)
        return parse_into(config, text, strlen(text), sets, set_count, problem);
    char known[1536] = "";
    for (uint32_t i = 0; eo_transformer_preset_name(i); i++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s, ", eo_transformer_preset_name(i));
    for (uint32_t i = 0; tool_model_preset_name(i); i++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "", tool_model_preset_name(i));
    return tool_problem_set(problem, EO_ERR_INVALID,
                            "--model '%.200s' is neither a file, a folder nor a known name; names are %s",
                            name, known);
}
