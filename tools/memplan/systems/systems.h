/* SPDX-License-Identifier: MIT
 *
 * What a rank of another system holds, by that system's own rules: estimates, none of them a plan. Figures that they are held
 * against: tools/memplan/systems/megatron_runs.c, tools/memplan/systems/published.c.
 */
#ifndef EO_TOOLS_MEMPLAN_SYSTEMS_SYSTEMS_H
#define EO_TOOLS_MEMPLAN_SYSTEMS_SYSTEMS_H

#include "tools/memplan/systems/layout.h"
#include "tools/shared/plan_settings.h"

enum tool_system { TOOL_SYSTEM_EVENODD, TOOL_SYSTEM_MEGATRON, TOOL_SYSTEM_FSDP2, TOOL_SYSTEM_DEEPSPEED, TOOL_SYSTEM_COUNT };

enum tool_system_part {
    TOOL_SYSTEM_WEIGHTS,
    TOOL_SYSTEM_GRADIENTS,
    TOOL_SYSTEM_OPTIMIZER,
    TOOL_SYSTEM_BUFFERS,     /* gathered weights, gradients on their way */
    TOOL_SYSTEM_ACTIVATIONS,
    TOOL_SYSTEM_HEAD,        /* logits, and what stands beside them */
    TOOL_SYSTEM_WORKSPACES,  /* of matrix products */
    TOOL_SYSTEM_PART_COUNT,
};

/* `selective`: Megatron's recomputes the core of attention, FSDP2's (torchtitan, by operation) keeps every other product. */
struct tool_system_settings {
    struct tool_layout layout;
    eo_strategy strategy;      /* of Megatron: zero1 is its distributed optimizer, ddp none; of DeepSpeed: its stages */
    uint32_t shard_group;      /* of hsdp */
    bool math_attention;       /* probabilities are kept */
    bool selective;
    uint32_t recomputed_blocks;
    uint64_t workspace_bytes;  /* TOOL_WORKSPACES_HOPPER, _AMPERE */
};

/* Between two steps Megatron's runs allocate this beside the state: cuBLAS 32 MiB, TransformerEngine 32 (before Hopper 4), and
 * 32 that are measured and not explained. */
#define TOOL_WORKSPACES_HOPPER ((uint64_t)96 << 20)
#define TOOL_WORKSPACES_AMPERE ((uint64_t)68 << 20)

struct tool_system_estimate {
    uint32_t stage; /* the fullest one */
    uint64_t parts[TOOL_SYSTEM_PART_COUNT]; /* at its fullest moment */
    uint64_t state_bytes, activation_bytes, peak_bytes;
};

const char *tool_system_name(enum tool_system system);
bool tool_system_parse(const char *text, enum tool_system *out);
const char *tool_system_part_name(enum tool_system_part part);
const char *tool_system_meaning(enum tool_system system); /* of its peak: allocated, ... */
const char *tool_system_error(enum tool_system system);   /* on published figures */

/* EO_ERR_INVALID: the system has no such layout, strategy or recompute. */
EO_NODISCARD eo_status tool_system_check(enum tool_system system, const struct tool_system_settings *settings,
                                         const struct tool_shape *shape, struct tool_problem *problem);

/* Of one stage, and of the fullest; settings are checked. */
struct tool_system_estimate tool_system_stage(enum tool_system system, const struct tool_shape *shape,
                                              const struct tool_system_settings *settings, uint32_t stage);
struct tool_system_estimate tool_system_estimate(enum tool_system system, const struct tool_shape *shape,
                                                 const struct tool_system_settings *settings);

#endif
