/* SPDX-License-Identifier: MIT */
#include "tools/memplan/systems/activations.h"

uint64_t tool_rank_tokens(const struct tool_layout *layout)
{
    return (uint64_t)layout->batch * layout->seq / layout->context;
}

uint64_t tool_sequence_split(const struct tool_layout *layout)
{
    return layout->sequence_parallel ? layout->tensor : 1;
}

static bool remakes(const struct tool_system_settings *y, enum tool_recompute_module module)
{
    return y->run.recomputed_modules & 1u << module;
}

/* Of blocks that differ. What norms and activation functions make goes into products. */
static uint64_t average_bytes(const struct tool_block_average *a, const struct tool_system_settings *y)
{
    const double input = y->run.precision == TOOL_PRECISION_FP8 ? 0.5 : 1;
    const bool mlp_again = remakes(y, TOOL_REMAKE_EXPERTS) || remakes(y, TOOL_REMAKE_MLP);
    const bool product_again = mlp_again || remakes(y, TOOL_REMAKE_EXPERT_ACTIVATION);
    const double whole = a->whole_bytes + (remakes(y, TOOL_REMAKE_NORMS) ? 0 : input * a->norm_bytes);
    const double cut = a->attention_bytes + (mlp_again ? 0 : a->mlp_bytes) + (product_again ? 0 : input * a->product_bytes);
    return (uint64_t)(whole / (double)tool_sequence_split(&y->layout) + cut / y->layout.tensor);
}

/* Korthikanti et al. (arXiv 2205.05198) for any width of k, v and MLP: inputs of norms and of products, and masks of dropout,
 * are divided by sequence parallelism alone. In float8 inputs of products are kept as such. */
uint64_t tool_block_bytes(const struct tool_shape *shape, const struct tool_system_settings *settings)
{
    const struct tool_shape *s = shape;
    const struct tool_system_settings *y = settings;
    const uint64_t h = s->width, q = s->heads * s->head_size, kv = s->kv_heads * s->head_size, ups = s->gated ? 2 : 1;
    const uint64_t inner = s->experts ? s->experts_per_token * s->expert_width : s->mlp_width;
    const uint64_t input = y->run.precision == TOOL_PRECISION_FP8 ? 1 : 2; /* bytes of a product's input */
    struct tool_block_average a;
    if (tool_shape_average(s, y->layout.seq, &a))
        return average_bytes(&a, y);
    const uint64_t norms = remakes(y, TOOL_REMAKE_NORMS) ? 0 : 2 * input * h;
    const uint64_t whole = 4 * h + norms + (s->drops_residual ? 2 * h : 0);
    const uint64_t core =
        y->math_attention && !y->run.selective && !remakes(y, TOOL_REMAKE_CORE) ? (s->drops_attention ? 5 : 2) * s->heads * y->layout.seq : 0;
    const bool mlp_again = remakes(y, s->experts ? TOOL_REMAKE_EXPERTS : TOOL_REMAKE_MLP);
    const bool product_again = mlp_again || (s->experts && remakes(y, TOOL_REMAKE_EXPERT_ACTIVATION));
    const uint64_t mlp = (mlp_again ? 0 : 2 * ups * inner) + (product_again ? 0 : input * inner);
    /* permuted in and out; router */
    const uint64_t routed = s->experts && !mlp_again ? 4 * h * s->experts_per_token + 12 * s->experts : 0;
    return whole / tool_sequence_split(&y->layout) +
           ((2 + input) * q + 4 * kv + 4 * s->heads + core + mlp + routed) / y->layout.tensor;
}

/* Every other product, attention's output and the block's input. */
uint64_t tool_selective_bytes(const struct tool_shape *shape, const struct tool_layout *layout)
{
    const struct tool_shape *s = shape;
    struct tool_block_average a;
    if (tool_shape_average(s, layout->seq, &a)) /* about half, as of a Llama */
        return (uint64_t)(a.kept_bytes / 2) / layout->tensor;
    const uint64_t q = s->heads * s->head_size, kv = s->kv_heads * s->head_size, ups = s->gated ? 2 : 1;
    const uint64_t inner = s->experts ? s->experts_per_token * s->expert_width : s->mlp_width;
    return (q + 2 * kv + 2 * s->width + ups * inner + 2 * q + 4 * s->heads + 2 * s->width) / layout->tensor;
}

uint64_t tool_kept_bytes(const struct tool_shape *shape, const struct tool_system_settings *settings, uint64_t blocks,
                         uint64_t block_bytes)
{
    const uint64_t recomputed = blocks * settings->recomputed_blocks / shape->layers, unit = tool_max_u64(settings->run.recompute_unit, 1);
    const uint64_t inputs = (recomputed + unit - 1) / unit;
    return tool_rank_tokens(&settings->layout) *
           ((blocks - recomputed) * block_bytes + inputs * 2 * shape->width / tool_sequence_split(&settings->layout));
}

uint64_t tool_again_bytes(const struct tool_shape *shape, const struct tool_system_settings *settings)
{
    struct tool_system_settings all = *settings;
    all.run.recomputed_modules = 0;
    const uint64_t part = tool_block_bytes(shape, settings), block = tool_block_bytes(shape, &all);
    return settings->recomputed_blocks ? part * tool_max_u64(settings->run.recompute_unit, 1) : block - part;
}
