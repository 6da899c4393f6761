/* SPDX-License-Identifier: MIT
 *
 * Fields of the families that the layers are made for, and of those that are like them.
 */
#include <inttypes.h>

#include "tools/interchange/config/fields.h"
#include "tools/interchange/config/keys.h"

/* The transformers library's. It saves the text part of a larger model without the values that are these; a file of its own has
 * them all, and lacks one by a slip, or because it has other names for them. */
static const struct family_sizes {
    uint32_t layers, width, heads, vocabulary, mlp_width;
} family_sizes[TOOL_CONFIG_PLANNED] = {
    [TOOL_CONFIG_GPT2] = {12, 768, 12, 50257, 0},           [TOOL_CONFIG_LLAMA] = {32, 4096, 32, 32000, 11008},
    [TOOL_CONFIG_MISTRAL] = {32, 4096, 32, 32000, 14336},   [TOOL_CONFIG_QWEN2] = {32, 4096, 32, 151936, 22016},
    [TOOL_CONFIG_QWEN3] = {32, 4096, 32, 151936, 22016},    [TOOL_CONFIG_MIXTRAL] = {32, 4096, 32, 32000, 14336},
    [TOOL_CONFIG_QWEN3_MOE] = {24, 2048, 32, 151936, 6144}, [TOOL_CONFIG_PHI3] = {32, 3072, 32, 32064, 8192},
    [TOOL_CONFIG_SMOLLM3] = {36, 2048, 16, 128256, 11008},
};

static eo_status take_size(struct tool_config_reader *r, const char *key, uint64_t most, uint32_t fallback, uint32_t *out)
{
    if (!tool_config_field(r, key) && !r->is_nested)
        return tool_config_refuse(r, "%s is missing; evenodd takes no default for it (transformers takes %u)", key, fallback);
    return tool_config_take_count_or(r, key, most, fallback, "of the family", out);
}

eo_status tool_config_read_gpt2(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    const struct family_sizes *sizes = &family_sizes[TOOL_CONFIG_GPT2];
    EO_TRY(take_size(r, "n_layer", TOOL_CONFIG_LAYERS_MAX, sizes->layers, &c->layer_count));
    EO_TRY(take_size(r, "n_embd", TOOL_CONFIG_WIDTH_MAX, sizes->width, &c->width));
    EO_TRY(take_size(r, "n_head", c->width, sizes->heads, &c->head_count));
    EO_TRY(take_size(r, "vocab_size", TOOL_CONFIG_VOCABULARY_MAX, sizes->vocabulary, &c->vocabulary));
    const bool has_older_name = tool_config_field(r, "n_ctx"), has_name = tool_config_field(r, "n_positions");
    EO_TRY(tool_config_take_count_or(r, has_older_name ? "n_ctx" : "n_positions", TOOL_CONFIG_CONTEXT_MAX, 1024,
                                     "of the family", &c->context));
    const uint32_t other = c->context;
    if (has_name)
        EO_TRY(tool_config_take_count_or(r, "n_positions", TOOL_CONFIG_CONTEXT_MAX, 1024, "of the family", &c->context));
    if (has_older_name && other != c->context)
        return tool_config_refuse(r, "n_positions is %u but n_ctx is %u; both name the context", c->context, other);
    if (c->width > TOOL_CONFIG_MLP_MAX / 4)
        return tool_config_refuse(r, "n_embd is %u, too wide", c->width);
    EO_TRY(tool_config_take_count_or(r, "n_inner", TOOL_CONFIG_MLP_MAX, 4 * c->width, "4 x n_embd", &c->mlp_width));
    EO_TRY(tool_config_take_real_or(r, "layer_norm_epsilon", 1e-5, &c->norm_eps));
    EO_TRY(tool_config_take_flag_or(r, "tie_word_embeddings", true, &c->tied_head));
    c->rope_theta = 10000;
    c->kv_head_count = c->head_count;
    if (c->width % c->head_count)
        return tool_config_refuse(r, "n_embd is %u; n_head, %u, does not divide it", c->width, c->head_count);
    c->head_size = c->width / c->head_count;
    return EO_OK;
}

static eo_status read_attention(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    const bool is_qwen3 = c->family == TOOL_CONFIG_QWEN3 || c->family == TOOL_CONFIG_QWEN3_MOE;
    const bool is_mistral = c->family == TOOL_CONFIG_MISTRAL || c->family == TOOL_CONFIG_MIXTRAL;
    EO_TRY(take_size(r, "num_attention_heads", 1 << 16, family_sizes[c->family].heads, &c->head_count));
    /* Left out and null are two things here: null means as many as heads. */
    static const uint32_t kv_heads[TOOL_CONFIG_FAMILY_COUNT] = {
        [TOOL_CONFIG_MISTRAL] = 8, [TOOL_CONFIG_MIXTRAL] = 8,   [TOOL_CONFIG_QWEN2] = 32,
        [TOOL_CONFIG_QWEN3] = 32,  [TOOL_CONFIG_QWEN3_MOE] = 4, [TOOL_CONFIG_SMOLLM3] = 4};
    const bool is_null = json_is_null(json_object_get(r->object, "num_key_value_heads"));
    if (kv_heads[c->family] && !is_null)
        EO_TRY(tool_config_take_count_or(r, "num_key_value_heads", 1 << 16, kv_heads[c->family], "of the family",
                                         &c->kv_head_count));
    else
        EO_TRY(tool_config_take_count_or(r, "num_key_value_heads", 1 << 16, c->head_count, "num_attention_heads",
                                         &c->kv_head_count));
    if (c->kv_head_count > c->head_count || c->head_count % c->kv_head_count)
        return tool_config_refuse(r, "num_key_value_heads is %u; it does not divide num_attention_heads, %u", c->kv_head_count,
                                  c->head_count);
    if (!tool_config_field(r, "head_dim") && c->family != TOOL_CONFIG_QWEN3 && c->width % c->head_count)
        return tool_config_refuse(r, "hidden_size is %u; num_attention_heads, %u, does not divide it, and head_dim is missing",
                                  c->width, c->head_count);
    if (c->family == TOOL_CONFIG_QWEN3)
        EO_TRY(tool_config_take_count_or(r, "head_dim", TOOL_CONFIG_HEAD_SIZE_MAX, 128, "of Qwen3", &c->head_size));
    else
        EO_TRY(tool_config_take_count_or(r, "head_dim", TOOL_CONFIG_HEAD_SIZE_MAX, c->width / c->head_count,
                                         "hidden_size / num_attention_heads", &c->head_size));
    if (c->head_size % 2)
        return tool_config_refuse(r, "head_dim is %u; rotary positions need an even one", c->head_size);
    if ((uint64_t)c->head_count * c->head_size > TOOL_CONFIG_WIDTH_MAX)
        return tool_config_refuse(r, "%u heads of %u are wider than the limit of %d", c->head_count, c->head_size,
                                  TOOL_CONFIG_WIDTH_MAX);
    c->qk_norm = is_qwen3;
    if (c->family == TOOL_CONFIG_QWEN2) {
        c->qkv_bias = true; /* always, and no field says so */
    } else if (!is_mistral && c->family != TOOL_CONFIG_PHI3) {
        EO_TRY(tool_config_take_flag_or(r, "attention_bias", false, &c->qkv_bias));
        c->out_bias = c->qkv_bias;
    }
    return EO_OK;
}

eo_status tool_config_read_dense_layers(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    uint32_t step = 1;
    EO_TRY(tool_config_take_count_or(r, "decoder_sparse_step", TOOL_CONFIG_LAYERS_MAX, 1, "every layer has experts", &step));
    for (uint32_t i = 0; i < c->layer_count; i++)
        c->dense[i] = (i + 1) % step != 0;
    json_t *list = tool_config_field(r, "mlp_only_layers");
    if (list && !json_is_array(list))
        return tool_config_refuse(r, "mlp_only_layers is not a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        uint32_t layer = 0;
        EO_TRY(tool_config_take_whole(r, "mlp_only_layers", json_array_get(list, i), 0, c->layer_count - 1, &layer));
        c->dense[layer] = true;
    }
    return EO_OK;
}

static eo_status read_mlp(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    const uint32_t mlp_width = family_sizes[c->family].mlp_width;
    if (c->family == TOOL_CONFIG_LLAMA || c->family == TOOL_CONFIG_SMOLLM3)
        EO_TRY(tool_config_take_flag_or(r, "mlp_bias", false, &c->mlp_bias));
    if (c->family == TOOL_CONFIG_MIXTRAL) {
        EO_TRY(take_size(r, "intermediate_size", TOOL_CONFIG_MLP_MAX, mlp_width, &c->expert_width)); /* of one expert */
        c->mlp_width = c->expert_width;
        EO_TRY(tool_config_take_count_or(r, "num_local_experts", TOOL_CONFIG_EXPERTS_MAX, 8, "of Mixtral", &c->expert_count));
        EO_TRY(tool_config_take_count_or(r, "num_experts_per_tok", TOOL_CONFIG_EXPERTS_MAX, 2, "of Mixtral",
                                         &c->experts_per_token));
    } else if (c->family == TOOL_CONFIG_QWEN3_MOE) {
        EO_TRY(take_size(r, "moe_intermediate_size", TOOL_CONFIG_MLP_MAX, 768, &c->expert_width));
        EO_TRY(take_size(r, "num_experts", TOOL_CONFIG_EXPERTS_MAX, 128, &c->expert_count));
        EO_TRY(take_size(r, "num_experts_per_tok", TOOL_CONFIG_EXPERTS_MAX, 8, &c->experts_per_token));
        EO_TRY(tool_config_read_dense_layers(r));
        c->mlp_width = c->expert_width;
        for (uint32_t i = 0; i < c->layer_count; i++)
            if (c->dense[i]) {
                EO_TRY(take_size(r, "intermediate_size", TOOL_CONFIG_MLP_MAX, mlp_width, &c->mlp_width));
                break;
            }
    } else {
        EO_TRY(take_size(r, "intermediate_size", TOOL_CONFIG_MLP_MAX, mlp_width, &c->mlp_width));
    }
    return tool_config_check_experts(r);
}

eo_status tool_config_check_experts(struct tool_config_reader *r)
{
    const struct tool_model_config *c = r->config;
    uint32_t sparse_count = 0;
    for (uint32_t i = 0; i < c->layer_count; i++)
        sparse_count += !c->dense[i];
    if ((uint64_t)c->expert_count * sparse_count > TOOL_CONFIG_EXPERTS_ALL_MAX)
        return tool_config_refuse(r, "%u layers of %u experts are %" PRIu64 " experts; at most %d are possible", sparse_count,
                                  c->expert_count, (uint64_t)c->expert_count * sparse_count, TOOL_CONFIG_EXPERTS_ALL_MAX);
    if (c->expert_count && c->experts_per_token > c->expert_count)
        return tool_config_refuse(r, "num_experts_per_tok is %u, but there are only %u experts", c->experts_per_token,
                                  c->expert_count);
    return EO_OK;
}

/* Which blocks of a SmolLM3 have no rotary positions: its list counts, with a 0 for each. Those that stand in no such order are
 * another model (keys.c). */
static eo_status read_unrotated(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    const json_t *list = tool_config_field(r, "no_rope_layers");
    uint32_t interval = 0;
    if (!list)
        EO_TRY(tool_config_take_count_or(r, "no_rope_layer_interval", UINT32_MAX, 4, "of the family", &interval));
    else if (!json_is_array(list) || json_array_size(list) < c->layer_count)
        return tool_config_refuse(r, "no_rope_layers is no list of %u numbers, one for each layer", c->layer_count);
    for (uint32_t i = 0; list && i < c->layer_count; i++) {
        const json_t *one = json_array_get(list, i);
        if (!json_is_integer(one) || json_integer_value(one) < 0 || json_integer_value(one) > 1)
            return tool_config_refuse(r, "no_rope_layers[%u] is neither 0 nor 1", i);
        interval = interval || json_integer_value(one) ? interval : i + 1;
    }
    c->unrotated_interval = interval <= c->layer_count ? interval : 0;
    return EO_OK;
}

static eo_status read_rope(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    EO_TRY(tool_config_read_rope(c, r->object, &c->rope_theta, r->problem));
    if (c->rope_theta == 0) {
        c->rope_theta = c->family == TOOL_CONFIG_MIXTRAL ? 1e6 : c->family == TOOL_CONFIG_SMOLLM3 ? 2e6 : 10000;
        tool_config_note_default(r, "rope_theta = %g", c->rope_theta);
    }
    return c->family == TOOL_CONFIG_SMOLLM3 ? read_unrotated(r) : EO_OK;
}

eo_status tool_config_read_others(struct tool_config_reader *r)
{
    struct tool_model_config *c = r->config;
    const struct family_sizes *sizes = &family_sizes[c->family];
    EO_TRY(take_size(r, "num_hidden_layers", TOOL_CONFIG_LAYERS_MAX, sizes->layers, &c->layer_count));
    EO_TRY(take_size(r, "hidden_size", TOOL_CONFIG_WIDTH_MAX, sizes->width, &c->width));
    EO_TRY(take_size(r, "vocab_size", TOOL_CONFIG_VOCABULARY_MAX, sizes->vocabulary, &c->vocabulary));
    static const uint32_t contexts[TOOL_CONFIG_FAMILY_COUNT] = {
        [TOOL_CONFIG_LLAMA] = 2048,  [TOOL_CONFIG_MISTRAL] = 131072, [TOOL_CONFIG_QWEN2] = 32768,
        [TOOL_CONFIG_QWEN3] = 32768, [TOOL_CONFIG_MIXTRAL] = 131072, [TOOL_CONFIG_QWEN3_MOE] = 32768,
        [TOOL_CONFIG_PHI3] = 4096,   [TOOL_CONFIG_SMOLLM3] = 32768,
    };
    EO_TRY(tool_config_take_count_or(r, "max_position_embeddings", TOOL_CONFIG_CONTEXT_MAX, contexts[c->family],
                                     "of the family", &c->context));
    EO_TRY(read_attention(r));
    EO_TRY(read_mlp(r));
    static const double epsilons[TOOL_CONFIG_FAMILY_COUNT] = {
        [TOOL_CONFIG_LLAMA] = 1e-6,   [TOOL_CONFIG_MISTRAL] = 1e-6,   [TOOL_CONFIG_QWEN2] = 1e-6, [TOOL_CONFIG_QWEN3] = 1e-6,
        [TOOL_CONFIG_MIXTRAL] = 1e-5, [TOOL_CONFIG_QWEN3_MOE] = 1e-6, [TOOL_CONFIG_PHI3] = 1e-5,  [TOOL_CONFIG_SMOLLM3] = 1e-6,
    };
    EO_TRY(tool_config_take_real_or(r, "rms_norm_eps", epsilons[c->family], &c->norm_eps));
    EO_TRY(read_rope(r));
    return tool_config_take_flag_or(r, "tie_word_embeddings", c->family == TOOL_CONFIG_SMOLLM3, &c->tied_head);
}
