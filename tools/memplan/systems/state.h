/* SPDX-License-Identifier: MIT
 *
 * Weights, gradients and optimizer state of a rank of another system, in bytes of an element.
 */
#ifndef EO_TOOLS_MEMPLAN_SYSTEMS_STATE_H
#define EO_TOOLS_MEMPLAN_SYSTEMS_STATE_H

#include "tools/memplan/systems/systems.h"

/* Of a stage: what is trained, and what is frozen beside adapters. */
struct tool_trained {
    uint64_t dense, experts, tables; /* `tables` of `dense` */
    uint64_t frozen;                 /* 0: nothing; else all but adapters, which are `dense` */
    uint64_t frozen_matrices;        /* of it, without tables: what four bits are for */
};
struct tool_trained tool_trained_of(const struct tool_shape *shape, const struct tool_system_settings *settings,
                                    const struct tool_stage_elements *elements);

/* Of the optimizer alone, without master weights. Muon has one state of matrices, and AdamW's two of tables. */
uint64_t tool_state_bytes(const struct tool_system_run *run, uint64_t elements, uint64_t tables);

/* Of frozen elements, `each` bytes one; matrices in four bits with two scales (QLoRA, double quantization). */
uint64_t tool_frozen_bytes(const struct tool_system_run *run, const struct tool_trained *trained, uint64_t each);

/* Moves a part to the host's memory or disk. */
void tool_offload_part(struct tool_system_estimate *estimate, const struct tool_system_run *run, enum tool_system_part part);

/* Sums of parts. */
void tool_system_add_up(struct tool_system_estimate *estimate);

/* The systems, each of one stage. */
struct tool_system_estimate tool_estimate_megatron(const struct tool_shape *shape, const struct tool_system_settings *settings,
                                                   uint32_t stage);
struct tool_system_estimate tool_estimate_megatron_fsdp(const struct tool_shape *shape,
                                                        const struct tool_system_settings *settings);
struct tool_system_estimate tool_estimate_fsdp2(const struct tool_shape *shape, const struct tool_system_settings *settings,
                                                uint32_t stage);
struct tool_system_estimate tool_estimate_deepspeed(const struct tool_shape *shape,
                                                    const struct tool_system_settings *settings);

#endif
