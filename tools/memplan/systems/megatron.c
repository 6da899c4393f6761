/* SPDX-License-Identifier: MIT
 *
 * Megatron-LM: with its distributed optimizer or without, and its FSDP.
 */
#include "tools/memplan/systems/activations.h"
#include "tools/memplan/systems/state.h"

/* In float8 TransformerEngine caches the blocks' matrices for both directions, beside bf16 weights or in their place. */
static uint64_t weight_bytes(const struct tool_system_run *run, uint64_t blocks, uint64_t tables)
{
    const uint64_t each = run->precision != TOOL_PRECISION_FP8 ? 2 : run->float8_weights ? 2 : 4;
    return each * blocks + 2 * tables;
}

/* Master weights and states; of fp16 also an fp32 copy of the gradients. */
static uint64_t optimizer_bytes(const struct tool_system_run *run, uint64_t elements, uint64_t tables)
{
    return (run->precision == TOOL_PRECISION_FP16 ? 8 : 4) * elements + tool_state_bytes(run, elements, tables);
}

static uint64_t gradient_bytes(const struct tool_system_run *run)
{
    return run->precision == TOOL_PRECISION_FP16 ? 2 : 4;
}

static uint64_t head_bytes(const struct tool_shape *s, const struct tool_layout *l)
{
    return tool_rank_tokens(l) *
           (4 * s->width / tool_sequence_split(l) + 6 * tool_padded_vocabulary(s, l) / l->tensor);
}

/* Either the logits are there (bf16, and fp32 that becomes their gradient), or a block is in backward: its gradients, and what
 * it recomputes. */
struct tool_system_estimate tool_estimate_megatron(const struct tool_shape *shape, const struct tool_system_settings *settings,
                                                   uint32_t stage)
{
    const struct tool_shape *s = shape;
    const struct tool_layout *l = &settings->layout;
    const struct tool_system_run *run = &settings->run;
    const struct tool_stage_elements n = tool_stage_elements(s, l, stage);
    const struct tool_trained t = tool_trained_of(s, settings, &n);
    const uint64_t same = l->ranks / (l->tensor * l->pipeline), shards = settings->strategy == EO_STRATEGY_ZERO1 ? same : 1;
    const uint64_t expert_shards = settings->strategy == EO_STRATEGY_ZERO1 ? tool_max_u64(tool_layout_expert_same(l), 1) : 1;
    const uint64_t tokens = tool_rank_tokens(l), split = tool_sequence_split(l), block = tool_block_bytes(s, settings);
    const uint64_t in_flight = tool_blocks_in_flight(s, l, stage),
                   chunk = s->layers / ((uint64_t)l->pipeline * l->virtual_stages);
    struct tool_system_estimate e = {.stage = stage};
    e.parts[TOOL_SYSTEM_WEIGHTS] = weight_bytes(run, n.dense + n.experts - n.tables, n.tables) + (t.frozen ? 2 * t.dense : 0);
    e.parts[TOOL_SYSTEM_GRADIENTS] = gradient_bytes(run) * (t.dense + t.experts);
    e.parts[TOOL_SYSTEM_OPTIMIZER] =
        optimizer_bytes(run, t.dense, t.tables) / shards + optimizer_bytes(run, t.experts, 0) / expert_shards;
    e.parts[TOOL_SYSTEM_WORKSPACES] = settings->workspace_bytes;
    e.parts[TOOL_SYSTEM_ACTIVATIONS] = tool_kept_bytes(s, settings, in_flight, block);
    if (stage == 0 && s->drops_residual)
        e.parts[TOOL_SYSTEM_ACTIVATIONS] += in_flight / chunk * tokens * s->width / split;
    const uint64_t head = stage + 1 == l->pipeline ? head_bytes(s, l) : 0;
    const uint64_t backward = tokens * (4 * s->width / split + tool_again_bytes(s, settings));
    e.parts[head > backward ? TOOL_SYSTEM_HEAD : TOOL_SYSTEM_ACTIVATIONS] += tool_max_u64(head, backward);
    if (run->offload)
        tool_offload_part(&e, run, TOOL_SYSTEM_OPTIMIZER);
    tool_system_add_up(&e);
    return e;
}

/* bf16 weights beside fp32 master weights, gradients and states, in shards as the strategy says. What is no block (tables) is
 * gathered from the first use to the last; of blocks two are in gather buffers, and in buffers of reductions. */
struct tool_system_estimate tool_estimate_megatron_fsdp(const struct tool_shape *shape,
                                                        const struct tool_system_settings *settings)
{
    const struct tool_shape *s = shape;
    const struct tool_layout *l = &settings->layout;
    const struct tool_stage_elements n = tool_stage_elements(s, l, 0);
    const uint64_t same = l->ranks / l->tensor, expert_same = tool_max_u64(tool_layout_expert_same(l), 1);
    const uint64_t block = tool_block_bytes(s, settings);
    const bool zero3 = settings->strategy == EO_STRATEGY_ZERO3, parts = zero3 || settings->strategy == EO_STRATEGY_ZERO2;
    const bool any = settings->strategy != EO_STRATEGY_DDP;
    const uint64_t tokens = tool_rank_tokens(l), split = tool_sequence_split(l);
    const uint64_t shards = any ? n.dense / same + n.experts / expert_same : n.dense + n.experts, all = n.dense + n.experts;
    struct tool_system_estimate best = {0};
    for (int moment = 0; moment < 3; moment++) { /* at the logits, in backward, at its end */
        struct tool_system_estimate e = {0};
        e.parts[TOOL_SYSTEM_WEIGHTS] = 2 * (zero3 ? shards : all);
        e.parts[TOOL_SYSTEM_GRADIENTS] = 4 * (parts ? shards : all);
        e.parts[TOOL_SYSTEM_OPTIMIZER] = 4 * shards + tool_state_bytes(&settings->run, shards, any ? n.tables / same : n.tables);
        e.parts[TOOL_SYSTEM_WORKSPACES] = settings->workspace_bytes;
        e.parts[TOOL_SYSTEM_BUFFERS] = (zero3 ? 2 * n.tables + 4 * n.largest_block : 0) +
                                       (parts && moment > 0 ? 8 * n.largest_block : 0) +
                                       (parts && moment == 2 ? 4 * n.tables : 0);
        e.parts[TOOL_SYSTEM_ACTIVATIONS] =
            (moment == 2 ? 0 : tool_kept_bytes(s, settings, s->layers, block)) +
            (moment == 0 ? 0 : tokens * (4 * s->width / split + tool_again_bytes(s, settings)));
        e.parts[TOOL_SYSTEM_HEAD] = moment == 0 ? head_bytes(s, l) : 0;
        tool_system_add_up(&e);
        if (e.peak_bytes > best.peak_bytes)
            best = e;
    }
    return best;
}
