/* SPDX-License-Identifier: MIT
 *
 * PyTorch's FSDP2, as torchtitan runs it.
 */
#include "tools/memplan/systems/activations.h"
#include "tools/memplan/systems/state.h"

/* fp32 weights and two states in shards, bf16 gathers, fp32 reduction; with --state-dtype bf16 all in bf16, as torchtune does.
 * Three moments: at the logits (no gradients yet, unless there are more micro-batches), at the first block of backward, and at
 * its end. A pipeline keeps gathered weights and whole gradients of its stage from the first micro-batch to the last. */
struct tool_system_estimate tool_estimate_fsdp2(const struct tool_shape *shape, const struct tool_system_settings *settings,
                                                uint32_t stage)
{
    const struct tool_shape *s = shape;
    const struct tool_layout *l = &settings->layout;
    const struct tool_system_run *run = &settings->run;
    const struct tool_stage_elements n = tool_stage_elements(s, l, stage);
    const struct tool_trained t = tool_trained_of(s, settings, &n);
    struct tool_system_settings plain = *settings;
    plain.run.precision = TOOL_PRECISION_BF16; /* torchao keeps inputs in bf16: torchtitan's float8 runs reserved as much */
    const uint64_t shards = l->ranks / (l->tensor * l->pipeline), trained = t.dense + t.experts, tokens = tool_rank_tokens(l);
    const uint64_t full = tool_block_bytes(s, &plain), block = run->selective ? tool_selective_bytes(s, l) : full;
    const uint64_t kept = tool_kept_bytes(s, &plain, tool_blocks_in_flight(s, l, stage), block);
    const uint64_t each = run->bf16_state ? 2 : 4, gathered = run->float8_weights ? 1 : 2;
    const uint64_t whole = l->pipeline > 1 ? gathered * (n.dense + n.experts) + 4 * trained : 0;
    const uint64_t reduced = t.frozen ? 0 : 2 + 2 * each; /* gradients of a block, and two blocks on their way */
    const bool last = stage + 1 == l->pipeline;
    struct tool_system_estimate best = {0};
    for (int moment = 0; moment < 3; moment++) {
        struct tool_system_estimate e = {.stage = stage};
        if (moment == 0 && !last)
            continue;
        const uint64_t gradients = each * trained / shards;
        e.parts[TOOL_SYSTEM_WEIGHTS] = each * trained / shards + tool_frozen_bytes(run, &t, each) / shards;
        e.parts[TOOL_SYSTEM_GRADIENTS] = moment == 2 || l->micro_batches > 1 ? gradients : 0;
        e.parts[TOOL_SYSTEM_OPTIMIZER] = tool_state_bytes(run, trained, t.tables) / shards;
        e.parts[TOOL_SYSTEM_BUFFERS] = whole         ? whole
                                       : moment == 0 ? gathered * (n.head + n.largest_block)
                                                     : (2 * gathered + reduced) * n.largest_block;
        e.parts[TOOL_SYSTEM_ACTIVATIONS] = moment == 2 ? tokens * full : kept + (moment == 1 ? tokens * full : 0);
        e.parts[TOOL_SYSTEM_HEAD] = moment == 0 ? tokens * 16 * s->vocabulary / l->tensor : 0;
        const uint64_t state = e.parts[TOOL_SYSTEM_WEIGHTS] + gradients + e.parts[TOOL_SYSTEM_OPTIMIZER];
        for (int p = TOOL_SYSTEM_WEIGHTS; run->offload && p <= TOOL_SYSTEM_OPTIMIZER; p++)
            tool_offload_part(&e, run, (enum tool_system_part)p);
        tool_system_add_up(&e);
        e.state_bytes = run->offload ? 0 : state;
        if (e.peak_bytes > best.peak_bytes)
            best = e;
    }
    return best;
}
