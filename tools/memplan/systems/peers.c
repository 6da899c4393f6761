/* SPDX-License-Identifier: MIT */
#include "tools/memplan/systems/peers.h"

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct tool_fsdp2_estimate tool_fsdp2_estimate(const struct tool_model_config *config, uint32_t world)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < config->layer_count; i++)
        n = max_u64(n, tool_model_config_layer_parameters(config, i));
    const uint64_t parameters = tool_model_config_parameters(config);
    return (struct tool_fsdp2_estimate){.group_elements = n,
                                        .state_bytes = 16 * parameters / world,
                                        .forward_live_bytes = 6 * n + 2 * n / world,
                                        .forward_reserved_bytes = 6 * n,
                                        .backward_live_bytes = {10 * n, 14 * n},
                                        .backward_reserved_bytes = {12 * n, 16 * n}};
}

/* Largest leaf module: a table, or one linear layer. */
static uint64_t largest_leaf(const struct tool_model_config *c)
{
    const uint64_t h = c->width;
    const uint64_t experts = 3 * (uint64_t)c->expert_count * c->expert_width * h; /* one module has the matrices of all */
    const uint64_t largest = max_u64(max_u64((uint64_t)c->vocabulary * h, h * c->mlp_width), experts);
    if (c->family == TOOL_CONFIG_GPT2)
        return max_u64(largest, max_u64(3 * h * h, (uint64_t)c->context * h));
    return max_u64(largest, h * c->head_count * c->head_size);
}

struct tool_deepspeed_estimate tool_deepspeed_estimate(const struct tool_model_config *config, uint32_t world)
{
    const uint64_t p = tool_model_config_parameters(config), largest = largest_leaf(config);
    return (struct tool_deepspeed_estimate){.largest_elements = largest,
                                            .zero2_code_bytes = 2 * p + 18 * p / world,
                                            .zero2_documented_bytes = 4 * p + 16 * p / world,
                                            .zero3_bytes = 4 * largest + 18 * p / world};
}

struct tool_megatron_estimate tool_megatron_estimate(const struct tool_model_config *config, uint32_t world, uint64_t batch,
                                                     uint64_t seq, uint32_t recomputed_layers)
{
    const struct tool_model_config *c = config;
    const uint64_t p = tool_model_config_parameters(c), sb = batch * seq, h = c->width;
    const uint64_t f = c->expert_count ? (uint64_t)c->expert_width * c->experts_per_token + c->shared_width : c->mlp_width;
    return (struct tool_megatron_estimate){.state_bytes = 18 * p,
                                           .state_distributed_bytes = 6 * p + 12 * p / world,
                                           .activation_bytes = sb * (18 * h + 4 * f) * (c->layer_count - recomputed_layers) +
                                                               2 * sb * h * recomputed_layers + 8 * sb + sb * h +
                                                               4 * sb * (h + c->vocabulary)};
}

uint64_t tool_llmc_activation_bytes(uint64_t layers, uint64_t width, uint64_t heads, uint64_t padded_vocabulary, uint64_t batch,
                                    uint64_t seq, int recompute)
{
    const uint64_t c = width, gelu = 8 * c;
    /* norms' outputs 4, attention's output 2, residuals 4, q k v 6, before GELU 8, after it 8; statistics in fp32 */
    const uint64_t block = 24 * c + 4 * heads + 16 + (recompute < 1 ? gelu : 0);
    const uint64_t shared = max_u64(max_u64(3 * c, heads * seq), padded_vocabulary) * 2;
    const uint64_t once = 2 * c + 2 * c + 12 + (recompute < 1 ? 0 : gelu) + 10 * c + shared;
    return batch * seq * (layers * block + once);
}

uint64_t tool_llmc_parameters(uint64_t layers, uint64_t width, uint64_t padded_vocabulary, uint64_t positions)
{
    return (padded_vocabulary + positions) * width + layers * (12 * width * width + 13 * width) + 2 * width;
}

/* Bytes of activations a token and block (of a dense Llama) keeps in bf16. */
static uint64_t activation_bytes_per_token(const struct tool_model_config *config, bool cheap)
{
    const uint64_t h = config->width, a = config->head_count, q = a * config->head_size;
    const uint64_t kv = (uint64_t)config->kv_head_count * config->head_size, f = config->mlp_width;
    return (cheap ? 4 * h + 4 * f : 8 * h + 6 * f) + 4 * q + 4 * kv + 4 * a + 8;
}

/* Blocks that keep only their input, so that the rest fits; one whole block is the workspace of all of them. */
static uint32_t least_recompute(const struct tool_model_config *c, uint64_t tokens, uint64_t peak, uint64_t kept,
                                uint64_t limit)
{
    const uint64_t full = activation_bytes_per_token(c, false), input = 2 * (uint64_t)c->width;
    if (peak <= limit)
        return 0;
    for (uint32_t n = 1; n < c->layer_count; n++)
        if (peak + tokens * full <= limit + n * tokens * (kept - input))
            return n;
    return c->layer_count;
}

struct tool_yafsdp_estimate tool_yafsdp_estimate(const struct tool_model_config *config, uint32_t world, uint64_t tokens,
                                                 uint64_t limit_bytes)
{
    const struct tool_model_config *c = config;
    const uint64_t h = c->width, layers = c->layer_count, v = c->vocabulary;
    const uint64_t full = activation_bytes_per_token(c, false), cheap = activation_bytes_per_token(c, true);
    struct tool_yafsdp_estimate e = {.unit_elements = max_u64(tool_model_config_layer_parameters(c, 0) - 2 * h, v * h),
                                     .norm_elements = (2 * layers + 1) * h,
                                     .shard_bytes = 18 * tool_model_config_parameters(c) / world,
                                     .activations_full_bytes = layers * tokens * full,
                                     .activations_cheap_bytes = layers * tokens * cheap,
                                     .head_bytes = tokens * (4 * h + 2 * v),
                                     .scratch_bytes = tokens * 6 * (h + c->mlp_width)};
    e.buffer_bytes = 12 * e.unit_elements + 4 * e.norm_elements;
    const uint64_t rest = e.shard_bytes + e.buffer_bytes + e.head_bytes + e.scratch_bytes;
    e.peak_full_bytes = rest + e.activations_full_bytes;
    e.peak_cheap_bytes = rest + e.activations_cheap_bytes;
    e.least_recompute_full = least_recompute(c, tokens, e.peak_full_bytes, full, limit_bytes);
    e.least_recompute_cheap = least_recompute(c, tokens, e.peak_cheap_bytes, cheap, limit_bytes);
    return e;
}
