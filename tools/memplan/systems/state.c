/* SPDX-License-Identifier: MIT */
#include "tools/memplan/systems/state.h"

/* States of an element, and bytes of 256 of one: blocks of 256 elements share a scale in 8 bits. */
static const struct {
    uint64_t states, table_states, bytes_of_256;
} kinds[TOOL_STATE_COUNT] = {
    [TOOL_STATE_ADAMW] = {2, 2, 1024},
    [TOOL_STATE_ADAMW8BIT] = {2, 2, 256 + 4},
    [TOOL_STATE_MUON] = {1, 2, 1024},
    [TOOL_STATE_SGD] = {1, 1, 1024},
    [TOOL_STATE_LION] = {1, 1, 1024},
};

static uint64_t part_of(uint64_t elements, uint64_t numerator, uint64_t denominator)
{
    return elements / denominator * numerator + elements % denominator * numerator / denominator;
}

uint64_t tool_state_bytes(const struct tool_system_run *run, uint64_t elements, uint64_t tables)
{
    const uint64_t full = kinds[run->optimizer].bytes_of_256, each = run->bf16_state && full == 1024 ? full / 2 : full;
    const uint64_t states = (elements - tables) * kinds[run->optimizer].states + tables * kinds[run->optimizer].table_states;
    return part_of(states, each, 256);
}

struct tool_trained tool_trained_of(const struct tool_shape *shape, const struct tool_system_settings *settings,
                                    const struct tool_stage_elements *elements)
{
    const struct tool_layout *l = &settings->layout;
    if (settings->run.lora_rank == 0)
        return (struct tool_trained){.dense = elements->dense, .experts = elements->experts, .tables = elements->tables};
    return (struct tool_trained){.dense = shape->layers / l->pipeline *
                                          tool_adapter_elements(shape, l, settings->run.lora_rank),
                                 .frozen = elements->dense + elements->experts,
                                 .frozen_matrices = elements->dense + elements->experts - elements->tables};
}

uint64_t tool_frozen_bytes(const struct tool_system_run *run, const struct tool_trained *trained, uint64_t each)
{
    if (!run->nf4)
        return each * trained->frozen;
    /* of 16384 elements: half a byte each, a byte for 64, four for 256 of those */
    return 2 * (trained->frozen - trained->frozen_matrices) + part_of(trained->frozen_matrices, 8192 + 256 + 4, 16384);
}

void tool_offload_part(struct tool_system_estimate *estimate, const struct tool_system_run *run, enum tool_system_part part)
{
    *(run->to_disk ? &estimate->disk_bytes : &estimate->host_bytes) += estimate->parts[part];
    estimate->parts[part] = 0;
}

void tool_system_add_up(struct tool_system_estimate *estimate)
{
    struct tool_system_estimate *e = estimate;
    e->state_bytes = e->parts[TOOL_SYSTEM_WEIGHTS] + e->parts[TOOL_SYSTEM_GRADIENTS] + e->parts[TOOL_SYSTEM_OPTIMIZER];
    e->activation_bytes = e->parts[TOOL_SYSTEM_ACTIVATIONS] + e->parts[TOOL_SYSTEM_HEAD];
    e->peak_bytes = 0;
    for (int p = 0; p < TOOL_SYSTEM_PART_COUNT; p++)
        e->peak_bytes += e->parts[p];
}
