/* SPDX-License-Identifier: MIT */
#include "layers/transformer/config.h"

#include <math.h>
#include <string.h>

#include "layers/checks.h"

_Static_assert(TRANSFORMER_TOKENS_MAX <= UINT64_MAX / 8 / TRANSFORMER_VOCABULARY_MAX, "logits can overflow");
_Static_assert(TRANSFORMER_TOKENS_MAX <= UINT64_MAX / 64 / TRANSFORMER_MLP_MAX, "activations can overflow");

struct preset {
    const char *name;
    eo_transformer_config config;
};

#define GPT2(layers, w, heads, words, longest)                                                                        \
    {.family = EO_FAMILY_GPT2, .layer_count = layers, .width = w, .head_count = heads, .kv_head_count = heads,        \
     .head_size = (w) / (heads), .mlp_width = 4 * (w), .vocabulary = words, .context = longest, .tied_head = true,    \
     .norm_eps = 1e-5F, .rope_theta = 500000.0F}
#define LLAMA(layers, w, heads, kv, mlp, words, longest, tied)                                                        \
    {.family = EO_FAMILY_LLAMA, .layer_count = layers, .width = w, .head_count = heads, .kv_head_count = kv,          \
     .head_size = (w) / (heads), .mlp_width = mlp, .vocabulary = words, .context = longest, .tied_head = tied,        \
     .norm_eps = 1e-5F, .rope_theta = 500000.0F}
#define QWEN(size, longest, ...)                                                                                      \
    {.family = EO_FAMILY_LLAMA, .layer_count = 4, .width = 128, .head_count = 4, .kv_head_count = 2,                  \
     .head_size = size, .mlp_width = 352, .vocabulary = 256, .context = longest, .tied_head = true,                   \
     .norm_eps = 1e-6F, .rope_theta = 1000000.0F, __VA_ARGS__}

static const struct preset presets[] = {
    {"tiny", GPT2(4, 128, 4, 256, 256)},
    {"small", GPT2(6, 384, 6, 256, 256)},
    {"base", GPT2(12, 768, 12, 256, 256)},
    {"gpt2", GPT2(12, 768, 12, 50257, 1024)},
    {"gpt2-medium", GPT2(24, 1024, 16, 50257, 1024)},
    {"gpt2-large", GPT2(36, 1280, 20, 50257, 1024)},
    {"gpt2-xl", GPT2(48, 1600, 25, 50257, 1024)},
    {"llama-tiny", LLAMA(4, 128, 4, 2, 352, 256, 256, false)},
    {"llama-small", LLAMA(6, 384, 6, 2, 1024, 256, 256, false)},
    {"llama-1b", LLAMA(16, 2048, 32, 8, 8192, 128256, 8192, true)},
    {"qwen2-tiny", QWEN(32, 256, .qkv_bias = true)},
    {"qwen3-tiny", QWEN(64, 256, .qk_norm = true)},
};

eo_status eo_transformer_preset(const char *name, eo_transformer_config *out)
{
    for (size_t i = 0; name && out && i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *out = presets[i].config;
            return EO_OK;
        }
    }
    return EO_ERR_INVALID;
}

const char *eo_transformer_preset_name(uint32_t index)
{
    return index < sizeof(presets) / sizeof(presets[0]) ? presets[index].name : NULL;
}

static uint32_t or_default_u32(uint32_t value, uint32_t fallback)
{
    return value ? value : fallback;
}

static eo_status check_range(const eo_log *log, const char *what, uint64_t value, uint64_t most)
{
    LAYERS_REQUIRE(log, value >= 1, "transformer: %s is 0; it must be at least 1", what);
    LAYERS_REQUIRE(log, value <= most, "transformer: %s is %llu; at most %llu are possible", what,
                   (unsigned long long)value, (unsigned long long)most);
    return EO_OK;
}

static bool is_dtype(eo_dtype dtype)
{
    return dtype == EO_DTYPE_FP32 || dtype == EO_DTYPE_BF16;
}

/* [width / head_count] */
static eo_status fill_head_size(const eo_log *log, eo_transformer_config *c)
{
    if (c->head_size != 0 || c->head_count == 0 || c->width == 0 || c->width > TRANSFORMER_WIDTH_MAX)
        return EO_OK; /* what is out of range is said with the others */
    LAYERS_REQUIRE(log, c->head_count <= c->width && c->width % c->head_count == 0,
                   "transformer: %u heads do not divide the width %u; make the width a multiple of them, or give head_size",
                   c->head_count, c->width);
    c->head_size = c->width / c->head_count;
    return EO_OK;
}

/* A field that the kind does not use must be 0: who set it wanted something else. */
static eo_status check_rope_scaling(const eo_log *log, const eo_rope_scaling *s)
{
    LAYERS_REQUIRE(log, s->kind == EO_ROPE_PLAIN || s->kind == EO_ROPE_LINEAR || s->kind == EO_ROPE_LLAMA3,
                   "transformer: rope_scaling.kind %d is unknown", (int)s->kind);
    LAYERS_REQUIRE(log, s->kind != EO_ROPE_PLAIN || s->factor == 0,
                   "transformer: rope_scaling.factor %g belongs to a kind; set rope_scaling.kind", (double)s->factor);
    LAYERS_REQUIRE(log, s->kind == EO_ROPE_PLAIN || (isfinite(s->factor) && s->factor >= 1),
                   "transformer: rope_scaling.factor %g must be at least 1", (double)s->factor);
    if (s->kind != EO_ROPE_LLAMA3) {
        LAYERS_REQUIRE(log, s->low_freq_factor == 0 && s->high_freq_factor == 0 && s->original_context == 0,
                       "transformer: rope_scaling.low_freq_factor %g, high_freq_factor %g and original_context %u belong to "
                       "kind llama3", (double)s->low_freq_factor, (double)s->high_freq_factor, s->original_context);
        return EO_OK;
    }
    LAYERS_REQUIRE(log, s->low_freq_factor > 0 && s->high_freq_factor > s->low_freq_factor && isfinite(s->high_freq_factor),
                   "transformer: rope_scaling.low_freq_factor %g must be above 0 and below high_freq_factor, %g",
                   (double)s->low_freq_factor, (double)s->high_freq_factor);
    return check_range(log, "rope_scaling.original_context", s->original_context, TRANSFORMER_CONTEXT_MAX);
}

static eo_status check_config(const eo_log *log, const eo_transformer_config *c)
{
    LAYERS_REQUIRE(log, c->family == EO_FAMILY_GPT2 || c->family == EO_FAMILY_LLAMA,
                   "transformer: family %d is neither GPT-2 nor Llama", (int)c->family);
    EO_TRY(check_range(log, "layer_count", c->layer_count, TRANSFORMER_LAYERS_MAX));
    EO_TRY(check_range(log, "width", c->width, TRANSFORMER_WIDTH_MAX));
    EO_TRY(check_range(log, "head_count", c->head_count, TRANSFORMER_WIDTH_MAX));
    EO_TRY(check_range(log, "mlp_width", c->mlp_width, TRANSFORMER_MLP_MAX));
    EO_TRY(check_range(log, "vocabulary", c->vocabulary, TRANSFORMER_VOCABULARY_MAX));
    EO_TRY(check_range(log, "context", c->context, TRANSFORMER_CONTEXT_MAX));
    LAYERS_REQUIRE(log, c->kv_head_count <= c->head_count && c->head_count % c->kv_head_count == 0,
                   "transformer: %u key/value heads do not divide the %u heads", c->kv_head_count, c->head_count);
    LAYERS_REQUIRE(log, isfinite(c->norm_eps) && c->norm_eps > 0, "transformer: norm_eps %g must be above 0",
                   (double)c->norm_eps);
    LAYERS_REQUIRE(log, isfinite(c->initial_deviation) && c->initial_deviation > 0,
                   "transformer: initial_deviation %g must be above 0", (double)c->initial_deviation);
    if (c->family == EO_FAMILY_GPT2) {
        LAYERS_REQUIRE(log, (uint64_t)c->head_size * c->head_count == c->width && !c->qkv_bias && !c->qk_norm,
                       "transformer: GPT-2 needs heads with the total width of the model (%u of %u and a width of %u), and "
                       "neither qkv_bias nor qk_norm; use Llama for others", c->head_count, c->head_size, c->width);
        LAYERS_REQUIRE(log, c->rope_scaling.kind == EO_ROPE_PLAIN,
                       "transformer: GPT-2 has no rotary positions to scale; use Llama");
        LAYERS_REQUIRE(log, c->unrotated_interval == 0,
                       "transformer: unrotated_interval %u with GPT-2, none of whose blocks have rotary positions; use Llama",
                       c->unrotated_interval);
        LAYERS_REQUIRE(log, c->kv_head_count == c->head_count,
                       "transformer: GPT-2 has as many key/value heads as heads, not %u of %u; use Llama for "
                       "grouped queries", c->kv_head_count, c->head_count);
    } else {
        LAYERS_REQUIRE(log, c->head_size % 2 == 0,
                       "transformer: rotary positions need an even head size, not %u (width %u, %u heads)",
                       c->head_size, c->width, c->head_count);
        EO_TRY(check_range(log, "head_count x head_size", (uint64_t)c->head_count * c->head_size,
                           TRANSFORMER_WIDTH_MAX));
        LAYERS_REQUIRE(log, isfinite(c->rope_theta) && c->rope_theta > 0,
                       "transformer: rope_theta %g must be above 0", (double)c->rope_theta);
    }
    return check_rope_scaling(log, &c->rope_scaling);
}

/* Of the model that is made of it: known before anything is built. */
static eo_status check_layers(const eo_log *log, const eo_transformer_params *p)
{
    const uint32_t others = p->config.tied_head ? 1 : 2, parts = p->half_blocks ? 2 : 1;
    LAYERS_REQUIRE(log, !p->half_blocks || p->unit_blocks == 1,
                   "transformer: unit_blocks %u with half_blocks: a layer has several blocks, or half of one; choose", p->unit_blocks);
    LAYERS_REQUIRE(log, p->unit_blocks <= p->config.layer_count, "transformer: unit_blocks %u are more than the model's %u blocks",
                   p->unit_blocks, p->config.layer_count);
    LAYERS_REQUIRE(log, p->config.layer_count <= (TRANSFORMER_LAYERS_MAX - others) / parts,
                   "transformer: %u blocks%s and %s are more than the limit of %u layers; at most %u blocks are possible",
                   p->config.layer_count, p->half_blocks ? " in halves" : "",
                   others == 1 ? "the embedding" : "embedding and head", TRANSFORMER_LAYERS_MAX,
                   (TRANSFORMER_LAYERS_MAX - others) / parts);
    return EO_OK;
}

/* A layer is recomputed whole: its blocks that are asked for, and the others. */
static uint32_t whole_layers(const eo_transformer_params *p)
{
    const uint32_t most = p->config.layer_count, asked = p->recompute_blocks < most ? p->recompute_blocks : most;
    const uint32_t blocks = (asked + p->unit_blocks - 1) / p->unit_blocks * p->unit_blocks;
    return blocks < most ? blocks : most;
}

eo_status eo_transformer_check(const eo_transformer_params *params, eo_transformer_params *out)
{
    eo_transformer_params p = *params;
    eo_transformer_config *c = &p.config;
    const eo_log *log = params->log;

    c->kv_head_count = or_default_u32(c->kv_head_count, c->head_count);
    if (c->mlp_width == 0 && c->width <= TRANSFORMER_WIDTH_MAX)
        c->mlp_width = 4 * c->width;
    c->norm_eps = c->norm_eps == 0 ? 1e-5F : c->norm_eps;
    c->rope_theta = c->rope_theta == 0 ? 500000.0F : c->rope_theta;
    c->initial_deviation = c->initial_deviation == 0 ? 0.02F : c->initial_deviation;
    p.batch = or_default_u32(p.batch, 1);
    p.seq = or_default_u32(p.seq, c->context);
    p.head_chunks = or_default_u32(p.head_chunks, 1);
    p.thread_count = or_default_u32(p.thread_count, 1);
    p.token_slots = or_default_u32(p.token_slots, 1);
    p.unit_blocks = or_default_u32(p.unit_blocks, 1);
    EO_TRY(fill_head_size(log, c));
    EO_TRY(check_config(log, c));
    EO_TRY(check_layers(log, &p));
    EO_TRY(check_range(log, "thread_count", p.thread_count, TRANSFORMER_THREADS_MAX));
    EO_TRY(check_range(log, "token_slots", p.token_slots, TRANSFORMER_SLOTS_MAX));
    LAYERS_REQUIRE(log, p.dropout >= 0 && p.dropout < 1, "transformer: dropout is %g; it must be at least 0 and below 1",
                   (double)p.dropout);
    LAYERS_REQUIRE(log, is_dtype(p.dtype) && is_dtype(p.reduce_dtype),
                   "transformer: dtype %d or reduce_dtype %d is neither fp32 nor bf16", (int)p.dtype,
                   (int)p.reduce_dtype);

    LAYERS_REQUIRE(log, p.seq <= c->context, "transformer: sequences of %u tokens are longer than the context %u; "
                   "shorten seq or choose a model with a longer context", p.seq, c->context);
    const uint64_t token_count = (uint64_t)p.batch * p.seq;
    EO_TRY(check_range(log, "batch x seq", token_count, TRANSFORMER_TOKENS_MAX));
    LAYERS_REQUIRE(log, p.head_chunks <= token_count,
                   "transformer: %u head chunks, but a micro-batch has only %llu tokens", p.head_chunks,
                   (unsigned long long)token_count);
    LAYERS_REQUIRE(log, p.recompute == EO_RECOMPUTE_NONE || p.recompute == EO_RECOMPUTE_CHEAP ||
                   p.recompute == EO_RECOMPUTE_BLOCKS, "transformer: recompute %d is unknown", (int)p.recompute);
    if (p.recompute == EO_RECOMPUTE_BLOCKS) {
        LAYERS_REQUIRE(log, p.recompute_blocks >= 1,
                       "transformer: recompute of blocks needs recompute_blocks, at least 1 (of %u)", c->layer_count);
        p.recompute_blocks = whole_layers(&p);
    } else {
        p.recompute_blocks = 0;
    }
    *out = p;
    return EO_OK;
}
