/* SPDX-License-Identifier: MIT
 *
 * Fields of the families that are planned, not run: one table for all of them. What a file leaves out is what the transformers
 * library takes.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tools/interchange/config/fields.h"
#include "tools/interchange/config/keys.h"

enum {
    FAMILIES = TOOL_CONFIG_FAMILY_COUNT - TOOL_CONFIG_PLANNED,
    NONE = -1,    /* the family has no such field */
    BY_RULE = -2, /* another field decides */
};

#define AT(field) offsetof(struct tool_model_config, field)

/* null is 0 where 0 can be, else it is as good as left out. */
static const struct planned_field {
    const char *key;
    size_t at;
    uint32_t least, most;
    int32_t defaults[FAMILIES]; /* Gemma 2, Gemma 3, GPT-OSS, DeepSeek-V3, Qwen2-MoE, Qwen3-Next, OLMo 2 */
} planned_fields[] = {
    {"num_hidden_layers", AT(layer_count), 1, TOOL_CONFIG_LAYERS_MAX, {26, 26, 36, 61, 24, 48, 32}},
    {"hidden_size", AT(width), 1, TOOL_CONFIG_WIDTH_MAX, {2304, 2304, 2880, 7168, 2048, 2048, 4096}},
    {"vocab_size", AT(vocabulary), 1, TOOL_CONFIG_VOCABULARY_MAX, {256000, 262208, 201088, 129280, 151936, 151936, 50304}},
    {"max_position_embeddings", AT(context), 1, TOOL_CONFIG_CONTEXT_MAX, {8192, 131072, 131072, 4096, 32768, 32768, 2048}},
    {"num_attention_heads", AT(head_count), 1, 1 << 16, {8, 8, 64, 128, 16, 16, 32}},
    {"num_key_value_heads", AT(kv_head_count), 1, 1 << 16, {4, 4, 8, BY_RULE, 16, 2, BY_RULE}},
    {"head_dim", AT(head_size), 1, TOOL_CONFIG_HEAD_SIZE_MAX, {256, 256, 64, BY_RULE, BY_RULE, 256, BY_RULE}},
    {"intermediate_size", AT(mlp_width), 1, TOOL_CONFIG_MLP_MAX, {9216, 9216, 2880, 18432, 5632, 5632, 11008}},
    {"sliding_window", AT(window), 0, TOOL_CONFIG_CONTEXT_MAX, {4096, 4096, 128, NONE, 4096, NONE, NONE}},
    {"num_local_experts", AT(expert_count), 1, TOOL_CONFIG_EXPERTS_MAX, {NONE, NONE, 128, NONE, NONE, NONE, NONE}},
    {"n_routed_experts", AT(expert_count), 1, TOOL_CONFIG_EXPERTS_MAX, {NONE, NONE, NONE, 256, NONE, NONE, NONE}},
    {"num_experts", AT(expert_count), 1, TOOL_CONFIG_EXPERTS_MAX, {NONE, NONE, NONE, NONE, 60, 512, NONE}},
    {"num_experts_per_tok", AT(experts_per_token), 1, TOOL_CONFIG_EXPERTS_MAX, {NONE, NONE, 4, 8, 4, 10, NONE}},
    {"moe_intermediate_size", AT(expert_width), 1, TOOL_CONFIG_MLP_MAX, {NONE, NONE, NONE, 2048, 1408, 512, NONE}},
    {"shared_expert_intermediate_size", AT(shared_width), 1, TOOL_CONFIG_MLP_MAX, {NONE, NONE, NONE, NONE, 5632, 512, NONE}},
    {"q_lora_rank", AT(latent.q_rank), 0, TOOL_CONFIG_WIDTH_MAX, {NONE, NONE, NONE, 1536, NONE, NONE, NONE}},
    {"kv_lora_rank", AT(latent.kv_rank), 1, TOOL_CONFIG_WIDTH_MAX, {NONE, NONE, NONE, 512, NONE, NONE, NONE}},
    {"qk_nope_head_dim", AT(latent.nope), 1, TOOL_CONFIG_HEAD_SIZE_MAX, {NONE, NONE, NONE, 128, NONE, NONE, NONE}},
    {"qk_rope_head_dim", AT(latent.rope), 1, TOOL_CONFIG_HEAD_SIZE_MAX, {NONE, NONE, NONE, 64, NONE, NONE, NONE}},
    {"v_head_dim", AT(latent.value), 1, TOOL_CONFIG_HEAD_SIZE_MAX, {NONE, NONE, NONE, 128, NONE, NONE, NONE}},
    {"linear_num_key_heads", AT(linear.key_heads), 1, 1 << 12, {NONE, NONE, NONE, NONE, NONE, 16, NONE}},
    {"linear_num_value_heads", AT(linear.value_heads), 1, 1 << 12, {NONE, NONE, NONE, NONE, NONE, 32, NONE}},
    {"linear_key_head_dim", AT(linear.key_size), 1, 1 << 12, {NONE, NONE, NONE, NONE, NONE, 128, NONE}},
    {"linear_value_head_dim", AT(linear.value_size), 1, 1 << 12, {NONE, NONE, NONE, NONE, NONE, 128, NONE}},
    {"linear_conv_kernel_dim", AT(linear.kernel), 1, 1 << 10, {NONE, NONE, NONE, NONE, NONE, 4, NONE}},
};
enum { PLANNED_FIELDS = sizeof(planned_fields) / sizeof(planned_fields[0]) };

#define OF(family) (1u << (TOOL_CONFIG_##family - TOOL_CONFIG_PLANNED))
#define OF_ALL     ((1u << FAMILIES) - 1)

/* Other keys that are read, or decide neither bytes nor products. */
static const struct {
    const char *key;
    uint32_t families;
} other_keys[] = {
    {"rms_norm_eps", OF_ALL},
    {"rope_theta", OF_ALL},
    {"rope_scaling", OF_ALL},
    {"rope_parameters", OF_ALL},
    {"original_max_position_embeddings", OF_ALL},
    {"partial_rotary_factor", OF_ALL},
    {"hidden_act", OF_ALL},
    {"hidden_activation", OF(GEMMA2) | OF(GEMMA3)},
    {"attention_bias", OF_ALL & ~OF(QWEN2_MOE)},
    {"layer_types", OF(GEMMA2) | OF(GEMMA3) | OF(GPT_OSS) | OF(QWEN2_MOE) | OF(QWEN3_NEXT)},
    {"query_pre_attn_scalar", OF(GEMMA2) | OF(GEMMA3)},
    {"attn_logit_softcapping", OF(GEMMA2) | OF(GEMMA3)},
    {"final_logit_softcapping", OF(GEMMA2) | OF(GEMMA3)},
    {"cache_implementation", OF(GEMMA2) | OF(GEMMA3)},
    {"sliding_window_pattern", OF(GEMMA3)},
    {"_sliding_window_pattern", OF(GEMMA3)},
    {"rope_local_base_freq", OF(GEMMA3)},
    {"sliding_window_size", OF(GEMMA2)},
    {"swiglu_limit", OF(GPT_OSS)},
    {"swiglu_alpha", OF(GPT_OSS)},
    {"initial_context_length", OF(GPT_OSS)},
    {"experts_per_token", OF(GPT_OSS)},
    {"n_shared_experts", OF(DEEPSEEK_V3)},
    {"first_k_dense_replace", OF(DEEPSEEK_V3)},
    {"n_group", OF(DEEPSEEK_V3)},
    {"topk_group", OF(DEEPSEEK_V3)},
    {"topk_method", OF(DEEPSEEK_V3)},
    {"scoring_func", OF(DEEPSEEK_V3)},
    {"routed_scaling_factor", OF(DEEPSEEK_V3)},
    {"rope_interleave", OF(DEEPSEEK_V3)},
    {"qk_head_dim", OF(DEEPSEEK_V3)},
    {"ep_size", OF(DEEPSEEK_V3)},
    {"aux_loss_alpha", OF(DEEPSEEK_V3)},
    {"seq_aux", OF(DEEPSEEK_V3)},
    {"norm_topk_prob", OF(DEEPSEEK_V3) | OF(QWEN2_MOE) | OF(QWEN3_NEXT)},
    {"router_aux_loss_coef", OF(GPT_OSS) | OF(DEEPSEEK_V3) | OF(QWEN2_MOE) | OF(QWEN3_NEXT)},
    {"decoder_sparse_step", OF(QWEN2_MOE) | OF(QWEN3_NEXT)},
    {"mlp_only_layers", OF(QWEN2_MOE) | OF(QWEN3_NEXT)},
    {"use_sliding_window", OF(QWEN2_MOE) | OF(QWEN3_NEXT)},
    {"max_window_layers", OF(QWEN2_MOE)},
    {"qkv_bias", OF(QWEN2_MOE)},
    {"full_attention_interval", OF(QWEN3_NEXT)},
};
enum { OTHER_KEYS = sizeof(other_keys) / sizeof(other_keys[0]) };

static bool has(enum tool_config_family family, uint32_t index)
{
    const uint32_t f = family - TOOL_CONFIG_PLANNED;
    return index < PLANNED_FIELDS ? planned_fields[index].defaults[f] != NONE
                                  : other_keys[index - PLANNED_FIELDS].families & 1u << f;
}

const char *tool_config_planned_key(enum tool_config_family family, uint32_t *index)
{
    while (*index < PLANNED_FIELDS + OTHER_KEYS) {
        const uint32_t at = (*index)++;
        if (has(family, at))
            return at < PLANNED_FIELDS ? planned_fields[at].key : other_keys[at - PLANNED_FIELDS].key;
    }
    return NULL;
}

/* --- what the table cannot say ------------------------------------------------------------------------------------ */

/* Of GPT-OSS null is not the same as left out. */
static bool is_null_by_rule(const struct tool_config_reader *r, const struct planned_field *f)
{
    return r->config->family == TOOL_CONFIG_GPT_OSS && (f->at == AT(kv_head_count) || f->at == AT(head_size)) &&
           json_is_null(json_object_get(r->object, f->key));
}

static eo_status read_fields(struct tool_config_reader *r)
{
    for (uint32_t i = 0; i < PLANNED_FIELDS; i++) {
        const struct planned_field *f = &planned_fields[i];
        const int32_t fallback = f->defaults[r->config->family - TOOL_CONFIG_PLANNED];
        uint32_t *out = (uint32_t *)((char *)r->config + f->at);
        json_t *value = tool_config_field(r, f->key);
        if (fallback == NONE)
            continue;
        if (value)
            EO_TRY(tool_config_take_whole(r, f->key, value, f->least, f->most, out));
        else if (json_object_get(r->object, f->key) && f->least == 0)
            *out = 0;
        else if (fallback != BY_RULE && !is_null_by_rule(r, f))
            EO_TRY(tool_config_take_count_or(r, f->key, f->most, (uint32_t)fallback, "of the family", out));
    }
    return EO_OK;
}

static eo_status check_heads(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    if (c->latent.kv_rank) { /* each head has a k and v of its own */
        c->kv_head_count = c->head_count;
        c->head_size = c->latent.nope + c->latent.rope;
    }
    if (c->kv_head_count == 0)
        EO_TRY(tool_config_take_count_or(r, "num_key_value_heads", 1 << 16, c->head_count, "num_attention_heads",
                                         &c->kv_head_count));
    if (c->head_size == 0 && c->width % c->head_count)
        return tool_config_refuse(r, "hidden_size is %u; num_attention_heads, %u, does not divide it, and head_dim is missing",
                                  c->width, c->head_count);
    if (c->head_size == 0)
        EO_TRY(tool_config_take_count_or(r, "head_dim", TOOL_CONFIG_HEAD_SIZE_MAX, c->width / c->head_count,
                                         "hidden_size / num_attention_heads", &c->head_size));
    if (c->kv_head_count > c->head_count || c->head_count % c->kv_head_count)
        return tool_config_refuse(r, "num_key_value_heads is %u; it does not divide num_attention_heads, %u", c->kv_head_count,
                                  c->head_count);
    if (c->head_size % 2)
        return tool_config_refuse(r, "head_dim is %u; rotary positions need an even one", c->head_size);
    const uint64_t values = c->latent.kv_rank ? c->latent.value : c->head_size;
    if ((uint64_t)c->head_count * (c->head_size + values) > 2 * TOOL_CONFIG_WIDTH_MAX)
        return tool_config_refuse(r, "%u heads of %u are wider than the limit of %d", c->head_count, c->head_size,
                                  TOOL_CONFIG_WIDTH_MAX);
    if (c->linear.value_heads && c->linear.value_heads % c->linear.key_heads)
        return tool_config_refuse(r, "linear_num_key_heads is %u; it does not divide linear_num_value_heads, %u",
                                  c->linear.key_heads, c->linear.value_heads);
    return EO_OK;
}

static eo_status read_experts(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    uint32_t first = 0, shared = 0;
    if (c->family == TOOL_CONFIG_GPT_OSS) {
        c->expert_width = c->mlp_width;
    } else if (c->family == TOOL_CONFIG_DEEPSEEK_V3) {
        json_t *dense = tool_config_field(r, "first_k_dense_replace"), *more = tool_config_field(r, "n_shared_experts");
        if (dense)
            EO_TRY(tool_config_take_whole(r, "first_k_dense_replace", dense, 0, TOOL_CONFIG_LAYERS_MAX, &first));
        else
            EO_TRY(tool_config_take_count_or(r, "first_k_dense_replace", TOOL_CONFIG_LAYERS_MAX, 3, "of DeepSeek-V3", &first));
        if (more)
            EO_TRY(tool_config_take_whole(r, "n_shared_experts", more, 0, TOOL_CONFIG_EXPERTS_MAX, &shared));
        else
            EO_TRY(tool_config_take_count_or(r, "n_shared_experts", TOOL_CONFIG_EXPERTS_MAX, 1, "of DeepSeek-V3", &shared));
        if ((uint64_t)shared * c->expert_width > TOOL_CONFIG_MLP_MAX)
            return tool_config_refuse(r, "n_shared_experts is %u; of %u each they are too wide", shared, c->expert_width);
        c->shared_width = shared * c->expert_width;
        for (uint32_t i = 0; i < first && i < c->layer_count; i++)
            c->dense[i] = true;
    } else if (c->expert_count) {
        EO_TRY(tool_config_read_dense_layers(r));
    }
    bool any = c->expert_count == 0;
    for (uint32_t i = 0; i < c->layer_count; i++)
        any = any || c->dense[i];
    if (!any)
        c->mlp_width = c->expert_width;
    return tool_config_check_experts(r);
}

/* One word a block. Beyond the list nothing is known: its length is the model's. */
static eo_status read_listed_mixers(struct tool_config_reader *r, const json_t *list)
{
    struct tool_model_config *c = r->config;
    static const char *const words[] = {"full_attention", "sliding_attention", "linear_attention"};
    if (!json_is_array(list) || json_array_size(list) != c->layer_count)
        return tool_config_refuse(r, "layer_types is no list of %u words, one a block; null takes the family's order",
                                  c->layer_count);
    c->mixers_listed = true;
    for (uint32_t i = 0; i < c->layer_count; i++) {
        const char *word = json_string_value(json_array_get(list, i));
        uint32_t mixer = 0;
        while (mixer < 3 && !(word && strcmp(word, words[mixer]) == 0))
            mixer++;
        const bool fits = mixer == TOOL_MIXER_FULL || (mixer == TOOL_MIXER_WINDOW && c->linear.kernel == 0) ||
                          (mixer == TOOL_MIXER_LINEAR && c->linear.kernel);
        if (!fits)
            return tool_config_refuse(r, "layer_types[%u] is '%.40s'; this family has %s and %s", i, word ? word : "no text",
                                      words[0], words[c->linear.kernel ? 2 : 1]);
        c->mixers[i] = (uint8_t)mixer;
    }
    return EO_OK;
}

/* Every how many blocks one has full attention, by default. */
static eo_status read_mixers(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    json_t *list = tool_config_field(r, "layer_types");
    uint32_t every = 2, most = TOOL_CONFIG_LAYERS_MAX;
    if (c->family == TOOL_CONFIG_GEMMA3)
        EO_TRY(tool_config_take_count_or(r, "sliding_window_pattern", TOOL_CONFIG_LAYERS_MAX, 6, "of Gemma 3", &every));
    if (c->family == TOOL_CONFIG_QWEN3_NEXT)
        EO_TRY(tool_config_take_count_or(r, "full_attention_interval", TOOL_CONFIG_LAYERS_MAX, 4, "of Qwen3-Next", &every));
    if (c->family == TOOL_CONFIG_QWEN2_MOE && json_is_true(json_object_get(r->object, "use_sliding_window")))
        EO_TRY(tool_config_take_count_or(r, "max_window_layers", TOOL_CONFIG_LAYERS_MAX, 28, "of Qwen2-MoE", &most));
    else if (c->family == TOOL_CONFIG_QWEN2_MOE)
        c->window = 0;
    const uint8_t other = c->linear.kernel ? TOOL_MIXER_LINEAR : c->window ? TOOL_MIXER_WINDOW : TOOL_MIXER_FULL;
    for (uint32_t i = 0; i < TOOL_CONFIG_LAYERS_MAX; i++)
        c->mixers[i] = (i + 1) % every && i < most ? other : TOOL_MIXER_FULL;
    return list ? read_listed_mixers(r, list) : EO_OK;
}

eo_status tool_config_read_planned(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    const enum tool_config_family f = c->family;
    const bool is_gemma = f == TOOL_CONFIG_GEMMA2 || f == TOOL_CONFIG_GEMMA3;
    EO_TRY(read_fields(r));
    EO_TRY(check_heads(r));
    EO_TRY(read_experts(r));
    EO_TRY(read_mixers(r));
    EO_TRY(tool_config_take_real_or(r, "rms_norm_eps", f == TOOL_CONFIG_GPT_OSS || f == TOOL_CONFIG_OLMO2 ? 1e-5 : 1e-6,
                                    &c->norm_eps));
    c->rope_theta = 10000; /* it decides no byte here, and nothing runs it */
    if (f == TOOL_CONFIG_QWEN2_MOE)
        EO_TRY(tool_config_take_flag_or(r, "qkv_bias", true, &c->qkv_bias));
    else
        EO_TRY(tool_config_take_flag_or(r, "attention_bias", f == TOOL_CONFIG_GPT_OSS, &c->qkv_bias));
    c->out_bias = c->qkv_bias && f != TOOL_CONFIG_QWEN2_MOE;
    c->qk_norm = f == TOOL_CONFIG_GEMMA3 || f == TOOL_CONFIG_QWEN3_NEXT || f == TOOL_CONFIG_OLMO2;
    c->wide_qk_norm = f == TOOL_CONFIG_OLMO2;
    c->norms = is_gemma ? TOOL_NORMS_BOTH : f == TOOL_CONFIG_OLMO2 ? TOOL_NORMS_AFTER : TOOL_NORMS_BEFORE;
    c->gates_heads = f == TOOL_CONFIG_QWEN3_NEXT;
    c->sinks = c->expert_bias = f == TOOL_CONFIG_GPT_OSS;
    c->gates_shared = f == TOOL_CONFIG_QWEN2_MOE || f == TOOL_CONFIG_QWEN3_NEXT;
    if (c->window >= c->context)
        c->window = 0;
    for (uint32_t i = 0; c->window == 0 && i < TOOL_CONFIG_LAYERS_MAX; i++)
        if (c->mixers[i] == TOOL_MIXER_WINDOW)
            c->mixers[i] = TOOL_MIXER_FULL;
    return tool_config_take_flag_or(r, "tie_word_embeddings", is_gemma, &c->tied_head);
}
