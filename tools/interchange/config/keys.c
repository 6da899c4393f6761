/* SPDX-License-Identifier: MIT */
#include "tools/interchange/config/keys.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"
#include "tools/interchange/config/fields.h"
#include "tools/shared/word_distance.h"

/* NULL: absent or null. */
static const json_t *value_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static void dump_value(const json_t *value, char text[64])
{
    char *dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    snprintf(text, 64, "%.40s", dump ? dump : "?");
    free(dump);
}

/* "a, b"; what does not fit any more is "...". Names come from files, and the text goes to a terminal. */
static void append(char *list, size_t bytes, const char *text)
{
    const size_t used = strlen(list);
    if (used + strlen(text) + 8 < bytes)
        snprintf(list + used, bytes - used, "%s%s", used ? ", " : "", text);
    else if (used < 4 || strcmp(list + used - 3, "...") != 0)
        snprintf(list + used, bytes - used, ", ...");
    eo_text_clean(list + used);
}

static void list_value(char *list, size_t bytes, const char *key, const json_t *value)
{
    char shown[64], text[160];
    if (json_is_string(value))
        snprintf(shown, sizeof(shown), "%.40s", json_string_value(value));
    else
        dump_value(value, shown);
    snprintf(text, sizeof(text), "%.80s %s", key, shown);
    if (!strstr(list, text)) /* it may stand in two places */
        append(list, bytes, text);
}

static bool is_in(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names;
}

/* ---- rotary positions ---- */

/* What says how positions are scaled: `name` is its key. */
struct rope_source {
    const struct tool_model_config *config;
    const json_t *object;
    const char *name;
    struct tool_problem *problem;
};

static eo_status refuse_rope(const struct rope_source *s, const char *key, const json_t *value, const char *needed)
{
    char shown[64] = "missing";
    if (value)
        dump_value(value, shown);
    return tool_problem_set(s->problem, EO_ERR_INVALID, "%s: %s.%s is %s; %s is needed", s->config->source, s->name, key,
                            shown, needed);
}

static eo_status take_factor(const struct rope_source *s, const char *key, double least, float *out)
{
    const json_t *value = value_of(s->object, key);
    const double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= least && number <= 1e30))
        return refuse_rope(s, key, value, least >= 1 ? "a number of at least 1" : "a number above 0");
    *out = (float)number;
    return EO_OK;
}

/* [the context]; Phi's files have it outside of the object. */
static eo_status take_original_context(const struct rope_source *s, const json_t *file, uint32_t *out)
{
    static const char key[] = "original_max_position_embeddings";
    const json_t *outside = value_of(file, key), *inside = value_of(s->object, key);
    const json_t *value = inside ? inside : outside;
    const double number = !value ? s->config->context : json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= 1 && number <= 1 << 24) || number != floor(number))
        return refuse_rope(s, key, value, "a whole number from 1 to 16777216");
    if (inside && outside && json_number_value(outside) != number)
        return refuse_rope(s, key, inside, "its value outside the object");
    *out = (uint32_t)number;
    return EO_OK;
}

static const char *kind_of(const json_t *rope)
{
    const json_t *kind = value_of(rope, "rope_type") ? value_of(rope, "rope_type") : value_of(rope, "type");
    return kind ? json_string_value(kind) : "default"; /* NULL: no text */
}

static void list_unused(struct tool_model_config *config, const struct rope_source *s, const char *const *used)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)s->object, key, value) {
        char text[160];
        snprintf(text, sizeof(text), "%s.%.80s", s->name, key);
        if (!json_is_null(value) && !is_in(used, key))
            append(config->unknown, sizeof(config->unknown), text);
    }
}

static eo_status read_scaling(struct tool_model_config *config, const struct rope_source *s, const json_t *file)
{
    static const char *const plain_keys[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor", NULL};
    static const char *const linear_keys[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", NULL};
    static const char *const llama3_keys[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
        "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", NULL};
    eo_rope_scaling *out = &config->rope_scaling;
    const char *kind = kind_of(s->object), *key;
    json_t *value;
    if (!kind)
        return refuse_rope(s, "rope_type", json_object_get(s->object, "rope_type"), "a string");
    const char *old_kind = json_string_value(json_object_get(s->object, "type")); /* the key's older name */
    if (old_kind && strcmp(old_kind, kind) != 0)
        return tool_problem_set(s->problem, EO_ERR_INVALID,
                                "%s: %s has rope_type %.40s and type %.40s; both name the same thing", s->config->source,
                                s->name, kind, old_kind);
    json_object_foreach((json_t *)s->object, key, value)
        if (json_is_object(value)) { /* one for each type of layers */
            list_value(config->not_computed, sizeof(config->not_computed), s->name, s->object);
            return EO_OK;
        }
    const json_t *part = value_of(s->object, "partial_rotary_factor");
    if (part && !(json_is_number(part) && json_number_value(part) == 1))
        list_value(config->not_computed, sizeof(config->not_computed), "partial_rotary_factor", part);
    if (strcmp(kind, "default") == 0) {
        list_unused(config, s, plain_keys);
    } else if (strcmp(kind, "linear") == 0) {
        out->kind = EO_ROPE_LINEAR;
        EO_TRY(take_factor(s, "factor", 1, &out->factor));
        list_unused(config, s, linear_keys);
    } else if (strcmp(kind, "llama3") == 0) {
        out->kind = EO_ROPE_LLAMA3;
        EO_TRY(take_factor(s, "factor", 1, &out->factor));
        EO_TRY(take_factor(s, "low_freq_factor", 1e-30, &out->low_freq_factor));
        EO_TRY(take_factor(s, "high_freq_factor", 1e-30, &out->high_freq_factor));
        if (out->high_freq_factor <= out->low_freq_factor)
            return refuse_rope(s, "high_freq_factor", value_of(s->object, "high_freq_factor"), "more than low_freq_factor");
        EO_TRY(take_original_context(s, file, &out->original_context));
        list_unused(config, s, llama3_keys);
    } else {
        char text[128];
        snprintf(text, sizeof(text), "%s of type %.40s (of types linear and llama3 they do)", s->name, kind);
        append(config->not_computed, sizeof(config->not_computed), text);
    }
    return EO_OK;
}

/* Both forms in one file, or a value in two places: readers differ in which they take. */
static eo_status check_contradiction(const struct rope_source *s, const struct rope_source *other)
{
    const char *key, *kind = kind_of(s->object), *other_kind = kind_of(other->object);
    json_t *value;
    if (kind && other_kind && strcmp(kind, other_kind) != 0)
        return tool_problem_set(s->problem, EO_ERR_INVALID,
                                "%s: %s has type %.40s but %s has type %.40s; both name the same thing",
                                s->config->source, s->name, kind, other->name, other_kind);
    json_object_foreach((json_t *)s->object, key, value) {
        const json_t *again = value_of(other->object, key);
        if (again && json_is_number(value) && json_number_value(value) != json_number_value(again))
            return tool_problem_set(s->problem, EO_ERR_INVALID, "%s: %s.%.80s and %s.%.80s differ, but name the same thing",
                                    s->config->source, s->name, key, other->name, key);
    }
    return EO_OK;
}

static eo_status take_theta(const struct rope_source *s, double *theta)
{
    const json_t *value = value_of(s->object, "rope_theta");
    if (!value)
        return EO_OK;
    const double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!tool_config_is_above_zero(number))
        return refuse_rope(s, "rope_theta", value, "a number above 0 in fp32");
    if (*theta != 0 && *theta != number)
        return tool_problem_set(s->problem, EO_ERR_INVALID,
                                "%s: rope_theta is %g but %s.rope_theta is %g; both name the same thing",
                                s->config->source, *theta, s->name, number);
    *theta = number;
    return EO_OK;
}

eo_status tool_config_read_rope(struct tool_model_config *config, const json_t *object, double *theta,
                                struct tool_problem *problem)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"}; /* the first counts, as for its readers */
    struct rope_source sources[2];
    uint32_t count = 0;
    for (int i = 0; i < 2; i++) {
        const json_t *value = value_of(object, names[i]);
        char shown[64];
        if (!value || (json_is_object(value) && json_object_size(value) == 0))
            continue;
        dump_value(value, shown);
        if (!json_is_object(value))
            return tool_problem_set(problem, EO_ERR_INVALID, "%s: %s is %s; an object or null is needed", config->source,
                                    names[i], shown);
        sources[count++] = (struct rope_source){config, value, names[i], problem};
    }
    const json_t *plain = value_of(object, "rope_theta");
    const double number = json_is_number(plain) ? json_number_value(plain) : NAN;
    char shown[64];
    *theta = plain ? number : 0;
    if (plain)
        dump_value(plain, shown);
    if (plain && !tool_config_is_above_zero(number))
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: rope_theta is %s; a number above 0 in fp32 is needed",
                                config->source, shown);
    for (uint32_t i = 0; i < count; i++)
        EO_TRY(take_theta(&sources[i], theta));
    if (count == 2)
        EO_TRY(check_contradiction(&sources[0], &sources[1]));
    return count ? read_scaling(config, &sources[0], object) : EO_OK;
}

/* ---- windows ---- */

/* Attention that reaches only so many tokens back, in any layer; 0: none does. */
static void judge_window(struct tool_model_config *c, const json_t *object)
{
    enum { OF_THE_FAMILIES = 4096, FULL_LAYERS_OF_QWEN = 28 };
    const bool is_qwen = c->family == TOOL_CONFIG_QWEN2 || c->family == TOOL_CONFIG_QWEN3 || c->family == TOOL_CONFIG_QWEN3_MOE;
    const bool is_mistral =
        c->family == TOOL_CONFIG_MISTRAL || c->family == TOOL_CONFIG_MIXTRAL || c->family == TOOL_CONFIG_PHI3;
    const json_t *window = json_object_get(object, "sliding_window"), *types = value_of(object, "layer_types"), *type;
    const json_t *full = value_of(object, "max_window_layers");
    const bool is_smollm = c->family == TOOL_CONFIG_SMOLLM3;
    const bool uses_window = json_is_true(json_object_get(object, "use_sliding_window"));
    /* Of a SmolLM3 this key only decides where no list of types does. */
    bool slides = is_mistral || (is_smollm && c->unrotated_interval && uses_window) ||
                  (is_qwen && (full ? json_number_value(full) : FULL_LAYERS_OF_QWEN) < c->layer_count);
    size_t i;
    if (json_array_size(types))
        slides = false;
    json_array_foreach(types, i, type) {
        const char *name = json_string_value(type) ? json_string_value(type) : "?";
        if (strcmp(name, "sliding_attention") == 0) {
            slides = true;
        } else if (strcmp(name, "full_attention") != 0) {
            list_value(c->not_computed, sizeof(c->not_computed), "layer_types", type);
            break;
        }
    }
    if (is_qwen && !uses_window)
        slides = false;
    /* Left out and null are two things here: null means none. The default of Mixtral, Phi-3 and SmolLM3 is none, too. */
    const bool none = window || c->family == TOOL_CONFIG_MIXTRAL || c->family == TOOL_CONFIG_PHI3 || is_smollm;
    const double tokens = json_is_number(window) ? json_number_value(window) : none ? 0 : OF_THE_FAMILIES;
    if (slides && tokens >= 1 && tokens < c->context)
        c->window = (uint32_t)tokens;
    if (slides && window && !json_is_null(window) && !(tokens >= 1))
        list_value(c->not_computed, sizeof(c->not_computed), "sliding_window", window);
}

/* ---- blocks without rotary positions ---- */

static void judge_unrotated(struct tool_model_config *c, const json_t *object)
{
    const json_t *list = json_object_get(object, "no_rope_layers");
    bool differs = false;
    for (uint32_t i = 0; c->family == TOOL_CONFIG_SMOLLM3 && json_is_array(list) && i < c->layer_count; i++)
        differs = differs || json_integer_value(json_array_get(list, i)) !=
                                 !(c->unrotated_interval && (i + 1) % c->unrotated_interval == 0);
    if (differs)
        append(c->not_computed, sizeof(c->not_computed), "no_rope_layers without an interval");
}

/* ---- the others ---- */

#define OF(family) (1u << TOOL_CONFIG_##family)
#define OF_ALL     ((1u << TOOL_CONFIG_FAMILY_COUNT) - 1)
#define OF_LAYERS  ((1u << TOOL_CONFIG_PLANNED) - 1) /* what the layers compute counts */

/* What the layers compute, as the value that says it. null always does. */
enum neutral { NEUTRAL_NOTHING /* false, 0, empty */, NEUTRAL_TRUE, NEUTRAL_ONE, NEUTRAL_HEAD_SIZE, NEUTRAL_HEAD_SCALE };

static const struct judged_key {
    const char *key;
    enum neutral neutral;
    uint32_t families;
} judged_keys[] = {
    {"scale_attn_weights", NEUTRAL_TRUE, OF(GPT2)},
    {"scale_attn_by_inverse_layer_idx", NEUTRAL_NOTHING, OF_LAYERS},
    {"add_cross_attention", NEUTRAL_NOTHING, OF_ALL},
    {"pruned_heads", NEUTRAL_NOTHING, OF_ALL},
    {"per_layer_config", NEUTRAL_NOTHING, OF_ALL},
    {"quantization_config", NEUTRAL_NOTHING, OF_ALL},
    {"partial_rotary_factor", NEUTRAL_ONE, OF_LAYERS},
    {"rotary_pct", NEUTRAL_ONE, OF_LAYERS},
    {"rotary_dim", NEUTRAL_HEAD_SIZE, OF_LAYERS},
    {"rope_interleave", NEUTRAL_NOTHING, OF_LAYERS},
    {"rope_interleaved", NEUTRAL_NOTHING, OF_LAYERS},
    {"rope_local_base_freq", NEUTRAL_NOTHING, OF_LAYERS},
    {"local_rope_theta", NEUTRAL_NOTHING, OF_LAYERS},
    {"global_rope_theta", NEUTRAL_NOTHING, OF_LAYERS},
    {"no_rope_layers", NEUTRAL_NOTHING, OF_LAYERS & ~OF(SMOLLM3)},
    {"no_rope_layer_interval", NEUTRAL_NOTHING, OF_LAYERS & ~OF(SMOLLM3)},
    {"alibi", NEUTRAL_NOTHING, OF_LAYERS},
    {"attention_multiplier", NEUTRAL_HEAD_SCALE, OF_LAYERS},
    {"query_pre_attn_scalar", NEUTRAL_HEAD_SIZE, OF_LAYERS},
    {"attn_logit_softcapping", NEUTRAL_NOTHING, OF_LAYERS},
    {"final_logit_softcapping", NEUTRAL_NOTHING, OF_LAYERS},
    {"attn_temperature_tuning", NEUTRAL_NOTHING, OF_LAYERS},
    {"attention_chunk_size", NEUTRAL_NOTHING, OF_LAYERS},
    {"sliding_window_pattern", NEUTRAL_NOTHING, OF_LAYERS},
    {"clip_qkv", NEUTRAL_NOTHING, OF_LAYERS},
    {"embedding_multiplier", NEUTRAL_ONE, OF_LAYERS},
    {"residual_multiplier", NEUTRAL_ONE, OF_LAYERS},
    {"logits_scaling", NEUTRAL_ONE, OF_LAYERS},
    {"logit_scale", NEUTRAL_ONE, OF_LAYERS},
    {"scale_emb", NEUTRAL_ONE, OF_LAYERS},
    {"scale_embedding", NEUTRAL_NOTHING, OF_LAYERS},
    {"parallel_residual", NEUTRAL_NOTHING, OF_LAYERS},
    {"use_parallel_residual", NEUTRAL_NOTHING, OF_LAYERS},
    {"parallel_attn", NEUTRAL_NOTHING, OF_LAYERS},
    {"use_qk_norm", NEUTRAL_NOTHING, OF_LAYERS & ~(OF(QWEN3) | OF(QWEN3_MOE))},
    {"use_qk_norm", NEUTRAL_TRUE, OF(QWEN3) | OF(QWEN3_MOE)},
    {"qk_layernorm", NEUTRAL_NOTHING, OF_LAYERS & ~(OF(QWEN3) | OF(QWEN3_MOE))},
    {"attention_bias", NEUTRAL_NOTHING, OF(GPT2) | OF(MISTRAL) | OF(MIXTRAL) | OF(PHI3)},
    {"mlp_bias", NEUTRAL_NOTHING, OF_LAYERS & ~(OF(LLAMA) | OF(SMOLLM3))},
    {"qkv_bias", NEUTRAL_NOTHING, OF_LAYERS & ~(OF(GPT2) | OF(QWEN2))},
    {"qkv_bias", NEUTRAL_TRUE, OF(GPT2) | OF(QWEN2)},
    {"lm_head_bias", NEUTRAL_NOTHING, OF_LAYERS},
    {"full_attn_mod", NEUTRAL_ONE, OF(PHI3)},
    {"interpolate_factor", NEUTRAL_ONE, OF(PHI3)},
    {"is_llama_config", NEUTRAL_TRUE, OF(LLAMA)},
    {"shared_expert_intermediate_size", NEUTRAL_NOTHING, OF(QWEN3_MOE)},
    {"num_local_experts", NEUTRAL_NOTHING, OF_ALL & ~(OF(MIXTRAL) | OF(GPT_OSS) | OF(DEEPSEEK_V3))},
    {"num_experts", NEUTRAL_NOTHING, OF_ALL & ~(OF(QWEN3_MOE) | OF(QWEN2_MOE) | OF(QWEN3_NEXT))},
    {"n_routed_experts", NEUTRAL_NOTHING, OF_ALL & ~OF(DEEPSEEK_V3)},
    {"moe_layer_freq", NEUTRAL_ONE, OF(DEEPSEEK_V3)},
    {"num_nextn_predict_layers", NEUTRAL_NOTHING, OF(DEEPSEEK_V3)}, /* modules behind the last block */
    {"use_bidirectional_attention", NEUTRAL_NOTHING, OF(GEMMA2) | OF(GEMMA3)},
};

/* Keys that are read, or change nothing in a training of the whole model: notes, ids, what is returned, sampling. */
static const char *const keys_of_all[] = {
    "_name_or_path", "name_or_path", "architectures", "model_type", "torch_dtype", "dtype", "transformers_version",
    "vocab_size", "tie_word_embeddings", "initializer_range", "use_cache", "gradient_checkpointing", "pretraining_tp",
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "unk_token_id", "mask_token_id",
    "decoder_start_token_id", "tokenizer_class", "prefix", "id2label", "label2id", "num_labels", "problem_type",
    "finetuning_task", "task_specific_params", "classifier_dropout", "return_dict", "output_hidden_states",
    "output_attentions", "output_scores", "output_router_logits", "return_dict_in_generate", "chunk_size_feed_forward",
    "is_decoder", "is_encoder_decoder", "tie_encoder_decoder", "cross_attention_hidden_size", "torchscript", "use_bfloat16",
    "tf_legacy_loss", "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "_commit_hash",
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "forced_bos_token_id", "forced_eos_token_id",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", NULL};
static const char *const keys_of_gpt2[] = {
    "n_layer", "n_embd", "n_head", "n_positions", "n_ctx", "n_inner", "layer_norm_epsilon", "activation_function",
    "reorder_and_upcast_attn", "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
    "summary_first_dropout", NULL};
static const char *const keys_of_others[] = {"num_hidden_layers",
                                             "hidden_size",
                                             "intermediate_size",
                                             "num_attention_heads",
                                             "num_key_value_heads",
                                             "head_dim",
                                             "max_position_embeddings",
                                             "original_max_position_embeddings",
                                             "rms_norm_eps",
                                             "rope_theta",
                                             "rope_scaling",
                                             "rope_parameters",
                                             "hidden_act",
                                             "attention_bias",
                                             "mlp_bias",
                                             "sliding_window",
                                             "use_sliding_window",
                                             "max_window_layers",
                                             "layer_types",
                                             "num_local_experts",
                                             "num_experts",
                                             "num_experts_per_tok",
                                             "moe_intermediate_size",
                                             "decoder_sparse_step",
                                             "mlp_only_layers",
                                             "norm_topk_prob",
                                             "router_aux_loss_coef",
                                             "router_jitter_noise",
                                             "no_rope_layers",
                                             "no_rope_layer_interval",
                                             NULL};
static const char *const dropouts[] = {"attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", NULL};

/* ---- which keys there are ---- */

/* One field under the names of GPT-2 and of the others. */
static const char *const same_fields[][2] = {{"n_layer", "num_hidden_layers"},           {"n_embd", "hidden_size"},
                                             {"n_head", "num_attention_heads"},          {"n_inner", "intermediate_size"},
                                             {"n_positions", "max_position_embeddings"}, {"n_ctx", "max_position_embeddings"},
                                             {"layer_norm_epsilon", "rms_norm_eps"},     {"activation_function", "hidden_act"}};

static const struct judged_key *find_judged(enum tool_config_family family, const char *key)
{
    for (size_t i = 0; i < sizeof(judged_keys) / sizeof(judged_keys[0]); i++)
        if ((judged_keys[i].families & 1u << family) && strcmp(judged_keys[i].key, key) == 0)
            return &judged_keys[i];
    return NULL;
}

static const char *const *keys_of_family(enum tool_config_family family)
{
    static const char *const none[] = {NULL};
    return family >= TOOL_CONFIG_PLANNED ? none : family == TOOL_CONFIG_GPT2 ? keys_of_gpt2 : keys_of_others;
}

static bool is_planned_key(enum tool_config_family family, const char *key)
{
    const char *known = NULL;
    for (uint32_t index = 0; family >= TOOL_CONFIG_PLANNED && (known = tool_config_planned_key(family, &index)) != NULL;)
        if (strcmp(known, key) == 0)
            return true;
    return false;
}

bool tool_config_knows_key(enum tool_config_family family, const char *key)
{
    return is_planned_key(family, key) || is_in(keys_of_family(family), key) || is_in(keys_of_all, key) ||
           is_in(dropouts, key) || find_judged(family, key);
}

static void look_at_keys(const char *const *keys, const char *wrong, size_t *least, const char **nearest)
{
    for (; *keys; keys++) {
        const size_t far = tool_word_distance(wrong, strlen(wrong), *keys);
        if (far < *least) {
            *least = far;
            *nearest = *keys;
        }
    }
}

const char *tool_config_nearest_key(enum tool_config_family family, const char *wrong)
{
    const char *nearest = "", *const * lists[] = {keys_of_family(family), dropouts, keys_of_all};
    const int other = family == TOOL_CONFIG_GPT2;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < sizeof(same_fields) / sizeof(same_fields[0]); i++)
        if (strcmp(same_fields[i][other], wrong) == 0)
            return same_fields[i][!other];
    for (uint32_t index = 0; family >= TOOL_CONFIG_PLANNED;) {
        const char *const one[] = {tool_config_planned_key(family, &index), NULL};
        if (!one[0])
            break;
        look_at_keys(one, wrong, &least, &nearest);
    }
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        look_at_keys(lists[i], wrong, &least, &nearest);
    return nearest;
}

static bool is_neutral(const struct tool_model_config *c, const json_t *value, enum neutral neutral)
{
    const double number = json_is_number(value) ? json_number_value(value) : NAN;
    switch (neutral) {
    case NEUTRAL_NOTHING:
        return json_is_false(value) || number == 0 || (json_is_array(value) && json_array_size(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0);
    case NEUTRAL_TRUE:
        return json_is_true(value);
    case NEUTRAL_ONE:
        return number == 1;
    case NEUTRAL_HEAD_SIZE:
        return number == c->head_size;
    case NEUTRAL_HEAD_SCALE:
        return fabs(number * sqrt(c->head_size) - 1) < 1e-6;
    }
    return false;
}

static void judge_activation(struct tool_model_config *c, const json_t *object)
{
    /* One function by several names: GELU by its tanh formula, and x times its logistic function. */
    static const char *const tanh_gelu[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate",
                                            NULL};
    static const char *const silu[] = {"silu", "swish", NULL};
    const bool is_gpt2 = c->family == TOOL_CONFIG_GPT2;
    const char *key = is_gpt2 ? "activation_function" : "hidden_act";
    const json_t *value = value_of(object, key);
    if (value && !(json_is_string(value) && is_in(is_gpt2 ? tanh_gelu : silu, json_string_value(value))))
        list_value(c->not_computed, sizeof(c->not_computed), key, value);
}

static void judge_dropout(struct tool_model_config *config, const char *key, const json_t *value)
{
    const bool is_residual = strncmp(key, "resid", 5) == 0 || strncmp(key, "hidden", 6) == 0;
    if (is_residual)
        list_value(config->residual_dropouts, sizeof(config->residual_dropouts), key, value);
    else
        list_value(config->dropouts, sizeof(config->dropouts), key, value);
    config->drops_embedding = config->drops_embedding || strncmp(key, "embd", 4) == 0;
    config->drops_residual = config->drops_residual || is_residual;
    config->drops_attention = config->drops_attention || strncmp(key, "att", 3) == 0;
}

void tool_config_judge_keys(struct tool_model_config *config, const json_t *object)
{
    const char *key;
    json_t *value;
    if (config->family != TOOL_CONFIG_GPT2 && config->family < TOOL_CONFIG_PLANNED)
        judge_window(config, object);
    judge_unrotated(config, object);
    if (config->family < TOOL_CONFIG_PLANNED)
        judge_activation(config, object);
    json_object_foreach((json_t *)object, key, value) {
        const struct judged_key *judged = find_judged(config->family, key);
        if (json_is_null(value))
            continue;
        if (strcmp(key, "quantization_config") == 0)
            snprintf(config->files_differ, sizeof(config->files_differ), "they hold quantized weights");
        if (judged && !is_neutral(config, value, judged->neutral))
            list_value(config->not_computed, sizeof(config->not_computed), key, value);
        else if (is_in(dropouts, key) && !is_neutral(config, value, NEUTRAL_NOTHING))
            judge_dropout(config, key, value);
        else if (!tool_config_knows_key(config->family, key))
            append(config->unknown, sizeof(config->unknown), key);
    }
}

/* Of a model of several parts that of its language alone is planned. */
void tool_config_judge_outer(struct tool_model_config *config, const json_t *outer)
{
    static const char *const parts[] = {"vision_config", "audio_config", NULL};
    static const char *const ids[] = {
        "text_config", "boi_token_index", "eoi_token_index", "image_token_index", "image_token_id", "mm_tokens_per_image",
        NULL};
    const json_t *text = json_object_get(outer, "text_config");
    const char *key;
    json_t *value;
    snprintf(config->files_differ, sizeof(config->files_differ), "they hold other parts of the model, too");
    json_object_foreach((json_t *)outer, key, value)
    {
        if (json_is_null(value))
            continue;
        if (is_in(parts, key))
            append(config->not_computed, sizeof(config->not_computed), key);
        else if (!is_in(ids, key) && !is_in(keys_of_all, key) && !json_equal(value, json_object_get(text, key)))
            append(config->unknown, sizeof(config->unknown), key);
    }
}

void tool_model_config_dropouts(const struct tool_model_config *c, double dropout, char text[TOOL_CONFIG_DROPOUT_BYTES_MAX])
{
    const char *residual = dropout > 0 ? "" : c->residual_dropouts;
    snprintf(text, TOOL_CONFIG_DROPOUT_BYTES_MAX, "%s%s%s", c->dropouts, c->dropouts[0] && residual[0] ? ", " : "", residual);
}

void tool_model_config_tell(const struct tool_model_config *c, const char *name, bool has_weights, double dropout)
{
    const char *program = program_invocation_short_name;
    char not_computed[sizeof(c->not_computed) + 64], window[64], dropouts_left[TOOL_CONFIG_DROPOUT_BYTES_MAX];
    snprintf(not_computed, sizeof(not_computed), "%s", c->not_computed);
    snprintf(window, sizeof(window), "sliding_window %u", c->window);
    if (c->window && !has_weights)
        append(not_computed, sizeof(not_computed), window);
    if (not_computed[0])
        fprintf(stderr, "%s: warning: %s: the layers ignore %s\n", program, name,
                not_computed);
    if (c->window && has_weights)
        fprintf(stderr, "%s: %s: the context is %u here, not %u: %s, but the layers attend to all earlier tokens; up to this "
                "length both are the same\n", program, name, c->window, c->context, window);
    if (c->unknown[0])
        fprintf(stderr, "%s: warning: %s: unknown keys, ignored: %s; if they change the model, it computes something else "
                "here\n", program, name, c->unknown);
    tool_model_config_dropouts(c, dropout, dropouts_left);
    if (dropouts_left[0])
        fprintf(stderr, "%s: %s: dropout of the config is not taken: %s; train --dropout P drops on the residual stream\n",
                program, name, dropouts_left);
}
