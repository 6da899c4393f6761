/* SPDX-License-Identifier: MIT */
#include "tools/interchange/model_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/interchange/model_config_keys.h"

/* Fields of one file on their way into a config. */
struct reader {
    json_t *object;
    bool is_preset; /* a shape of the layers: nobody has written its fields down */
    struct tool_model_config *config;
    struct tool_problem *problem;
};

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
};

const char *tool_config_family_name(enum tool_config_family family)
{
    return (unsigned)family < TOOL_CONFIG_FAMILY_COUNT ? families[family].model_type : "unknown";
}

/* --- single fields ------------------------------------------------------------------------------------------------ */

static eo_status refuse(struct reader *r, const char *format, ...) EO_PRINTF(2, 3);

static eo_status refuse(struct reader *r, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return tool_problem_set(r->problem, EO_ERR_INVALID, "%s: %s", r->config->source, text);
}

static void note_default(struct reader *r, const char *format, ...) EO_PRINTF(2, 3);

static void note_default(struct reader *r, const char *format, ...)
{
    struct tool_model_config *c = r->config;
    if (c->default_count == TOOL_CONFIG_DEFAULTS_MAX)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->defaults[c->default_count++], sizeof(c->defaults[0]), format, arguments);
    va_end(arguments);
}

/* NULL: absent or null. */
static json_t *field(const struct reader *r, const char *key)
{
    json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

static void show_value(const json_t *value, char *text, size_t bytes)
{
    char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    snprintf(text, bytes, "%.80s", dump ? dump : "?");
    free(dump);
}

/* A whole number; files hold 4096.0 at times. */
static eo_status take_whole(struct reader *r, const char *key, json_t *value, uint64_t least, uint64_t most,
                            uint32_t *out)
{
    char shown[96];
    show_value(value, shown, sizeof(shown));
    const double real = json_is_number(value) ? json_number_value(value) : NAN;
    if (!isfinite(real) || real != floor(real))
        return refuse(r, "%s is %s; a whole number is needed", key, shown);
    if (real < (double)least || real > (double)most)
        return refuse(r, "%s is %s; %" PRIu64 " to %" PRIu64 " are possible", key, shown, least, most);
    *out = (uint32_t)real;
    return EO_OK;
}

static eo_status take_count(struct reader *r, const char *key, uint64_t most, uint32_t *out)
{
    json_t *value = field(r, key);
    if (!value)
        return refuse(r, "%s is missing, and family %s has no default for it", key, tool_config_family_name(r->config->family));
    return take_whole(r, key, value, 1, most, out);
}

static eo_status take_count_or(struct reader *r, const char *key, uint64_t most, uint32_t fallback, const char *why,
                               uint32_t *out)
{
    json_t *value = field(r, key);
    if (value)
        return take_whole(r, key, value, 1, most, out);
    *out = fallback;
    note_default(r, "%s = %u (%s)", key, fallback, why);
    return EO_OK;
}

static eo_status take_real_or(struct reader *r, const char *key, double fallback, double *out)
{
    json_t *value = field(r, key);
    if (!value) {
        *out = fallback;
        note_default(r, "%s = %g", key, fallback);
        return EO_OK;
    }
    if (!json_is_number(value) || !isfinite(json_number_value(value)) || json_number_value(value) <= 0 ||
        json_number_value(value) > 1e30) {
        char shown[96];
        show_value(value, shown, sizeof(shown));
        return refuse(r, "%s is %s; a number above 0 is needed", key, shown);
    }
    *out = json_number_value(value);
    return EO_OK;
}

static eo_status take_flag_or(struct reader *r, const char *key, bool fallback, bool *out)
{
    json_t *value = field(r, key);
    *out = fallback;
    if (!value) {
        note_default(r, "%s = %s", key, fallback ? "true" : "false");
        return EO_OK;
    }
    if (!json_is_boolean(value)) {
        char shown[96];
        show_value(value, shown, sizeof(shown));
        return refuse(r, "%s is %s; true or false is needed", key, shown);
    }
    *out = json_is_true(value);
    return EO_OK;
}

/* --- families ----------------------------------------------------------------------------------------------------- */

enum { WIDTH_MAX = 1 << 20, MLP_MAX = 1 << 24, VOCABULARY_MAX = 1 << 30, CONTEXT_MAX = 1 << 24, HEAD_SIZE_MAX = 1 << 16 };

static eo_status read_gpt2(struct reader *r)
{
    struct tool_model_config *c = r->config;
    EO_TRY(take_count(r, "n_layer", TOOL_CONFIG_LAYERS_MAX, &c->layer_count));
    EO_TRY(take_count(r, "n_embd", WIDTH_MAX, &c->width));
    EO_TRY(take_count(r, "n_head", c->width, &c->head_count));
    EO_TRY(take_count(r, "vocab_size", VOCABULARY_MAX, &c->vocabulary));
    if (field(r, "n_positions")) {
        EO_TRY(take_count(r, "n_positions", CONTEXT_MAX, &c->context));
        uint32_t other = c->context;
        if (field(r, "n_ctx"))
            EO_TRY(take_count(r, "n_ctx", CONTEXT_MAX, &other));
        if (other != c->context)
            return refuse(r, "n_positions is %u but n_ctx is %u; both name the context", c->context, other);
    } else {
        EO_TRY(take_count_or(r, "n_ctx", CONTEXT_MAX, 1024, "of GPT-2", &c->context));
    }
    if (c->width > MLP_MAX / 4)
        return refuse(r, "n_embd is %u, too wide", c->width);
    EO_TRY(take_count_or(r, "n_inner", MLP_MAX, 4 * c->width, "4 x n_embd", &c->mlp_width));
    EO_TRY(take_real_or(r, "layer_norm_epsilon", 1e-5, &c->norm_eps));
    EO_TRY(take_flag_or(r, "tie_word_embeddings", true, &c->tied_head));
    c->rope_theta = 10000;
    c->kv_head_count = c->head_count;
    if (c->width % c->head_count)
        return refuse(r, "n_embd is %u; n_head, %u, does not divide it", c->width, c->head_count);
    c->head_size = c->width / c->head_count;
    return EO_OK;
}

static eo_status read_attention(struct reader *r)
{
    struct tool_model_config *c = r->config;
    const bool is_qwen3 = c->family == TOOL_CONFIG_QWEN3 || c->family == TOOL_CONFIG_QWEN3_MOE;
    const bool is_mistral = c->family == TOOL_CONFIG_MISTRAL || c->family == TOOL_CONFIG_MIXTRAL;
    EO_TRY(take_count(r, "num_attention_heads", 1 << 16, &c->head_count));
    /* Left out and null are two things here: null means as many as heads. */
    static const uint32_t kv_heads[TOOL_CONFIG_FAMILY_COUNT] = {[TOOL_CONFIG_MISTRAL] = 8,
                                                                [TOOL_CONFIG_MIXTRAL] = 8,
                                                                [TOOL_CONFIG_QWEN2] = 32,
                                                                [TOOL_CONFIG_QWEN3] = 32,
                                                                [TOOL_CONFIG_QWEN3_MOE] = 4};
    const bool is_null = json_is_null(json_object_get(r->object, "num_key_value_heads"));
    if (kv_heads[c->family] && !is_null)
        EO_TRY(take_count_or(r, "num_key_value_heads", 1 << 16, kv_heads[c->family], "of the family",
                             &c->kv_head_count));
    else
        EO_TRY(take_count_or(r, "num_key_value_heads", 1 << 16, c->head_count, "num_attention_heads",
                             &c->kv_head_count));
    if (c->kv_head_count > c->head_count || c->head_count % c->kv_head_count)
        return refuse(r, "num_key_value_heads is %u; it does not divide num_attention_heads, %u", c->kv_head_count,
                      c->head_count);
    if (!field(r, "head_dim") && c->family != TOOL_CONFIG_QWEN3 && c->width % c->head_count)
        return refuse(r, "hidden_size is %u; num_attention_heads, %u, does not divide it, and head_dim is missing",
                      c->width, c->head_count);
    if (c->family == TOOL_CONFIG_QWEN3)
        EO_TRY(take_count_or(r, "head_dim", HEAD_SIZE_MAX, 128, "of Qwen3", &c->head_size));
    else
        EO_TRY(take_count_or(r, "head_dim", HEAD_SIZE_MAX, c->width / c->head_count,
                             "hidden_size / num_attention_heads", &c->head_size));
    if (c->head_size % 2)
        return refuse(r, "head_dim is %u; rotary positions need an even one", c->head_size);
    if ((uint64_t)c->head_count * c->head_size > WIDTH_MAX)
        return refuse(r, "%u heads of %u are wider than the limit of %d", c->head_count, c->head_size,
                      WIDTH_MAX);
    c->qk_norm = is_qwen3;
    if (c->family == TOOL_CONFIG_QWEN2) {
        c->qkv_bias = true; /* always, and no field says so */
    } else if (!is_mistral) {
        EO_TRY(take_flag_or(r, "attention_bias", false, &c->qkv_bias));
        c->out_bias = c->qkv_bias;
    }
    return EO_OK;
}

static eo_status read_dense_layers(struct reader *r)
{
    struct tool_model_config *c = r->config;
    uint32_t step = 1;
    EO_TRY(take_count_or(r, "decoder_sparse_step", TOOL_CONFIG_LAYERS_MAX, 1, "every layer has experts", &step));
    for (uint32_t i = 0; i < c->layer_count; i++)
        c->dense[i] = (i + 1) % step != 0;
    json_t *list = field(r, "mlp_only_layers");
    if (list && !json_is_array(list))
        return refuse(r, "mlp_only_layers is not a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        uint32_t layer = 0;
        EO_TRY(take_whole(r, "mlp_only_layers", json_array_get(list, i), 0, c->layer_count - 1, &layer));
        c->dense[layer] = true;
    }
    return EO_OK;
}

static eo_status read_mlp(struct reader *r)
{
    struct tool_model_config *c = r->config;
    if (c->family == TOOL_CONFIG_LLAMA)
        EO_TRY(take_flag_or(r, "mlp_bias", false, &c->mlp_bias));
    if (c->family == TOOL_CONFIG_MIXTRAL) {
        EO_TRY(take_count(r, "intermediate_size", MLP_MAX, &c->expert_width)); /* of one expert */
        c->mlp_width = c->expert_width;
        EO_TRY(take_count_or(r, "num_local_experts", TOOL_CONFIG_EXPERTS_MAX, 8, "of Mixtral", &c->expert_count));
        EO_TRY(take_count_or(r, "num_experts_per_tok", TOOL_CONFIG_EXPERTS_MAX, 2, "of Mixtral", &c->experts_per_token));
    } else if (c->family == TOOL_CONFIG_QWEN3_MOE) {
        EO_TRY(take_count(r, "moe_intermediate_size", MLP_MAX, &c->expert_width));
        EO_TRY(take_count(r, "num_experts", TOOL_CONFIG_EXPERTS_MAX, &c->expert_count));
        EO_TRY(take_count(r, "num_experts_per_tok", TOOL_CONFIG_EXPERTS_MAX, &c->experts_per_token));
        EO_TRY(read_dense_layers(r));
        c->mlp_width = c->expert_width;
        for (uint32_t i = 0; i < c->layer_count; i++)
            if (c->dense[i]) {
                EO_TRY(take_count(r, "intermediate_size", MLP_MAX, &c->mlp_width));
                break;
            }
    } else {
        EO_TRY(take_count(r, "intermediate_size", MLP_MAX, &c->mlp_width));
    }
    uint32_t sparse_count = 0;
    for (uint32_t i = 0; i < c->layer_count; i++)
        sparse_count += !c->dense[i];
    if ((uint64_t)c->expert_count * sparse_count > TOOL_CONFIG_EXPERTS_ALL_MAX)
        return refuse(r, "%u layers of %u experts are %" PRIu64 " experts; at most %d are possible", sparse_count,
                      c->expert_count, (uint64_t)c->expert_count * sparse_count, TOOL_CONFIG_EXPERTS_ALL_MAX);
    if (c->expert_count && c->experts_per_token > c->expert_count)
        return refuse(r, "num_experts_per_tok is %u, but there are only %u experts", c->experts_per_token, c->expert_count);
    return EO_OK;
}

static eo_status read_rope(struct reader *r)
{
    struct tool_model_config *c = r->config;
    EO_TRY(tool_config_read_rope(c, r->object, &c->rope_theta, r->problem));
    if (c->rope_theta == 0) {
        c->rope_theta = c->family == TOOL_CONFIG_MIXTRAL ? 1e6 : 10000;
        note_default(r, "rope_theta = %g", c->rope_theta);
    }
    return EO_OK;
}

static eo_status read_others(struct reader *r)
{
    struct tool_model_config *c = r->config;
    EO_TRY(take_count(r, "num_hidden_layers", TOOL_CONFIG_LAYERS_MAX, &c->layer_count));
    EO_TRY(take_count(r, "hidden_size", WIDTH_MAX, &c->width));
    EO_TRY(take_count(r, "vocab_size", VOCABULARY_MAX, &c->vocabulary));
    static const uint32_t contexts[TOOL_CONFIG_FAMILY_COUNT] = {
        [TOOL_CONFIG_LLAMA] = 2048,  [TOOL_CONFIG_MISTRAL] = 131072, [TOOL_CONFIG_QWEN2] = 32768,
        [TOOL_CONFIG_QWEN3] = 32768, [TOOL_CONFIG_MIXTRAL] = 131072, [TOOL_CONFIG_QWEN3_MOE] = 32768,
    };
    EO_TRY(take_count_or(r, "max_position_embeddings", CONTEXT_MAX, contexts[c->family], "of the family",
                         &c->context));
    EO_TRY(read_attention(r));
    EO_TRY(read_mlp(r));
    static const double epsilons[TOOL_CONFIG_FAMILY_COUNT] = {
        [TOOL_CONFIG_LLAMA] = 1e-6, [TOOL_CONFIG_MISTRAL] = 1e-6, [TOOL_CONFIG_QWEN2] = 1e-6,
        [TOOL_CONFIG_QWEN3] = 1e-6, [TOOL_CONFIG_MIXTRAL] = 1e-5, [TOOL_CONFIG_QWEN3_MOE] = 1e-6,
    };
    EO_TRY(take_real_or(r, "rms_norm_eps", epsilons[c->family], &c->norm_eps));
    EO_TRY(read_rope(r));
    return take_flag_or(r, "tie_word_embeddings", false, &c->tied_head);
}

static eo_status find_family(struct reader *r)
{
    json_t *type = field(r, "model_type"), *list = field(r, "architectures");
    json_t *architecture = json_is_array(list) ? json_array_get(list, 0) : NULL;
    const char *by = type ? json_string_value(type) : json_string_value(architecture);
    for (int f = 0; by && f < TOOL_CONFIG_FAMILY_COUNT; f++)
        if (strcmp(by, type ? families[f].model_type : families[f].architecture) == 0) {
            r->config->family = (enum tool_config_family)f;
            if (type && json_is_string(architecture) &&
                strcmp(json_string_value(architecture), families[f].architecture) != 0)
                return refuse(r, "model_type is %s, but architectures[0] is %.60s; for %s it is %s",
                              families[f].model_type, json_string_value(architecture), families[f].model_type,
                              families[f].architecture);
            return EO_OK;
        }
    char known[256] = "";
    for (int f = 0; f < TOOL_CONFIG_FAMILY_COUNT; f++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", f ? ", " : "", families[f].model_type);
    if (!by)
        return refuse(r, "%s; known families are %s",
                      type || architecture ? "model_type is not a string"
                                             : "model_type and architectures are both missing", known);
    return refuse(r, "model_type is '%.60s', an unknown family; known families are %s", by, known);
}

static void find_stored_bytes(struct reader *r)
{
    json_t *value = field(r, "torch_dtype") ? field(r, "torch_dtype") : field(r, "dtype");
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
static eo_status apply_set(struct reader *r, const char *set)
{
    const char *equals = strchr(set, '=');
    char key[KEY_BYTES];
    if (!key_of_set(set, key))
        return tool_problem_set(r->problem, EO_ERR_INVALID, "--set '%.100s': give KEY=VALUE, such as num_hidden_layers=40",
                                set);
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

static double number_of(const struct reader *r, const char *key)
{
    return json_number_value(field(r, key));
}

/* Whether the field is what the rule makes of its leaders. */
static bool is_by_rule(const struct reader *r, uint32_t index)
{
    const double value = number_of(r, followers[index].field), leader = number_of(r, followers[index].leaders[0]);
    return index == 0   ? value == 4 * leader
           : index == 1 ? value == leader
                        : value * number_of(r, "num_attention_heads") == leader;
}

static bool is_set(const char *field, const char *const *sets, uint32_t set_count)
{
    char key[KEY_BYTES];
    for (uint32_t i = 0; field && i < set_count; i++)
        if (key_of_set(sets[i], key) && strcmp(key, field) == 0)
            return true;
    return false;
}

/* After the sets. `by_rule`: before them. A shape of the layers follows its rules; what a file says stands, and is listed. */
static void let_fields_follow(struct reader *r, const bool by_rule[FOLLOWERS], const char *const *sets, uint32_t set_count)
{
    struct tool_model_config *c = r->config;
    const bool has_own_head_size = c->family == TOOL_CONFIG_QWEN3; /* 128 by default */
    for (uint32_t i = 0; i < FOLLOWERS; i++) {
        const struct follower *f = &followers[i];
        if (f->of_gpt2 != (c->family == TOOL_CONFIG_GPT2) || (has_own_head_size && strcmp(f->field, "head_dim") == 0) ||
            !field(r, f->field) || is_set(f->field, sets, set_count) ||
            !(is_set(f->leaders[0], sets, set_count) || is_set(f->leaders[1], sets, set_count)))
            continue;
        char shown[96];
        show_value(field(r, f->field), shown, sizeof(shown));
        if (r->is_preset && by_rule[i])
            json_object_set_new(r->object, f->field, json_null());
        else
            snprintf(c->fixed[c->fixed_count++], sizeof(c->fixed[0]), "%s = %.16s (by default %s)", f->field, shown, f->rule);
    }
}

static eo_status apply_sets(struct reader *r, const char *const *sets, uint32_t set_count)
{
    bool by_rule[FOLLOWERS], was_there[TOOL_CONFIG_SETS_MAX] = {false};
    char key[KEY_BYTES];
    for (uint32_t i = 0; i < FOLLOWERS; i++)
        by_rule[i] = is_by_rule(r, i);
    for (uint32_t i = 0; i < set_count && i < TOOL_CONFIG_SETS_MAX; i++) {
        was_there[i] = key_of_set(sets[i], key) && json_object_get(r->object, key);
        EO_TRY(apply_set(r, sets[i]));
    }
    EO_TRY(find_family(r));
    for (uint32_t i = 0; i < set_count && i < TOOL_CONFIG_SETS_MAX; i++)
        if (!was_there[i] && key_of_set(sets[i], key) && !tool_config_knows_key(r->config->family, key))
            return tool_problem_set(r->problem, EO_ERR_INVALID, "--set %.100s: family %s has no key %.60s; did you mean %s?",
                                    sets[i], tool_config_family_name(r->config->family), key,
                                    tool_config_nearest_key(r->config->family, key));
    let_fields_follow(r, by_rule, sets, set_count);
    return EO_OK;
}

static eo_status read_object(struct reader *r, const char *const *sets, uint32_t set_count)
{
    if (!json_is_object(r->object))
        return refuse(r, "is JSON, but not an object");
    json_t *nested = json_object_get(r->object, "text_config");
    if (json_is_object(nested) && !json_object_get(r->object, "hidden_size"))
        r->object = nested;
    EO_TRY(apply_sets(r, sets, set_count));
    find_stored_bytes(r);
    EO_TRY(r->config->family == TOOL_CONFIG_GPT2 ? read_gpt2(r) : read_others(r));
    tool_config_judge_keys(r->config, r->object);
    return EO_OK;
}

static eo_status parse_into(struct tool_model_config *config, const char *text, size_t bytes, const char *const *sets,
                            uint32_t set_count, struct tool_problem *problem)
{
    json_error_t error;
    struct reader r = {.config = config, .problem = problem};
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return refuse(&r, "line %d: %s", error.line, error.text);
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
        struct reader r = {.object = preset_object(&preset), .is_preset = true, .config = config, .problem = problem};
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
