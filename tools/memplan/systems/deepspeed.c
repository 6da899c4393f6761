/* SPDX-License-Identifier: MIT
 *
 * DeepSpeed's stages of ZeRO, with offloading.
 */
#include "tools/memplan/systems/activations.h"
#include "tools/memplan/systems/state.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* 2 + 2 + 12 bytes; buckets of 5e8 elements, 1e9 live elements of stage 3: its defaults. Modules as they come, so a block keeps
 * more than fused kernels do: 56 widths were measured for Llama-3-8B, of the formula's 34. With an offloaded optimizer the host
 * has fp32 gradients, master weights and states, and the device gradients of a bucket. */
struct tool_system_estimate tool_estimate_deepspeed(const struct tool_shape *shape,
                                                    const struct tool_system_settings *settings)
{
    const struct tool_shape *s = shape;
    const struct tool_layout *l = &settings->layout;
    const struct tool_system_run *run = &settings->run;
    const struct tool_stage_elements n = tool_stage_elements(s, l, 0);
    const struct tool_trained t = tool_trained_of(s, settings, &n);
    const eo_strategy stage = settings->strategy;
    const bool zero3 = stage == EO_STRATEGY_ZERO3;
    const uint64_t all = n.dense + n.experts, trained = t.dense + t.experts, w = l->ranks, tokens = tool_rank_tokens(l);
    const uint64_t full = tool_block_bytes(s, settings) * (s->gated ? 56 : 34) / 34;
    struct tool_system_estimate e = {0};
    e.parts[TOOL_SYSTEM_WEIGHTS] = (2 * trained + tool_frozen_bytes(run, &t, 2)) / (zero3 ? w : 1);
    e.parts[TOOL_SYSTEM_GRADIENTS] = 2 * trained / (zero3 || stage == EO_STRATEGY_ZERO2 ? w : 1);
    e.parts[TOOL_SYSTEM_OPTIMIZER] =
        (4 * trained + tool_state_bytes(run, trained, t.tables)) / (stage == EO_STRATEGY_DDP ? 1 : w);
    e.parts[TOOL_SYSTEM_BUFFERS] = 2 * least(trained, 500000000) + (zero3 ? 2 * least(all, 1000000000) : 0);
    if (run->offload) {
        e.parts[TOOL_SYSTEM_GRADIENTS] = 4 * trained / w;
        tool_offload_part(&e, run, TOOL_SYSTEM_GRADIENTS);
        tool_offload_part(&e, run, TOOL_SYSTEM_OPTIMIZER);
    }
    if (run->offload == TOOL_OFFLOAD_WEIGHTS)
        tool_offload_part(&e, run, TOOL_SYSTEM_WEIGHTS);
    e.parts[TOOL_SYSTEM_ACTIVATIONS] = tool_kept_bytes(s, settings, s->layers, full);
    const uint64_t head = tokens * 16 * s->vocabulary, again = settings->recomputed_blocks ? tokens * full : 0;
    e.parts[head > again ? TOOL_SYSTEM_HEAD : TOOL_SYSTEM_ACTIVATIONS] += tool_max_u64(head, again);
    tool_system_add_up(&e);
    return e;
}
