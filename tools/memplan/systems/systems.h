/* SPDX-License-Identifier: MIT
 *
 * What a rank of another system holds, by that system's own rules: estimates, none of them a plan. Figures that they are held
 * against: tools/memplan/published/megatron_runs.c, tools/memplan/published/published.c.
 */
#ifndef EO_TOOLS_MEMPLAN_SYSTEMS_SYSTEMS_H
#define EO_TOOLS_MEMPLAN_SYSTEMS_SYSTEMS_H

#include "tools/memplan/plan/layout.h"
#include "tools/planning/settings.h"

enum tool_system {
    TOOL_SYSTEM_EVENODD,
    TOOL_SYSTEM_MEGATRON,
    TOOL_SYSTEM_MEGATRON_FSDP,
    TOOL_SYSTEM_FSDP2,
    TOOL_SYSTEM_DEEPSPEED,
    TOOL_SYSTEM_COUNT,
};

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

/* Megatron's recompute by module. */
enum tool_recompute_module {
    TOOL_REMAKE_CORE, /* of attention: nothing where kernels keep no probabilities */
    TOOL_REMAKE_NORMS,
    TOOL_REMAKE_MLP,
    TOOL_REMAKE_EXPERTS,
    TOOL_REMAKE_EXPERT_ACTIVATION,
    TOOL_REMAKE_COUNT,
};

/* BF16: fp32 gradients. FP16: as Megatron, fp16 gradients and an fp32 copy for the update. FP8: inputs of products are kept as
 * such, and weights are cached twice, for both directions. */
enum tool_precision { TOOL_PRECISION_BF16, TOOL_PRECISION_FP16, TOOL_PRECISION_FP8, TOOL_PRECISION_COUNT };

enum tool_state_kind { TOOL_STATE_ADAMW, TOOL_STATE_ADAMW8BIT, TOOL_STATE_MUON, TOOL_STATE_SGD, TOOL_STATE_LION, TOOL_STATE_COUNT };

/* What lies in the host's memory, or on its disk. */
enum tool_offload { TOOL_OFFLOAD_NONE, TOOL_OFFLOAD_OPTIMIZER, TOOL_OFFLOAD_WEIGHTS /* and optimizer */, TOOL_OFFLOAD_COUNT };

/* How a run is done, beside its cut; 0: as the system does by default. */
struct tool_system_run {
    bool selective;               /* Megatron's: the core of attention; FSDP2's (torchtitan): every other product is kept */
    uint32_t recompute_unit;      /* recomputed blocks that keep one input together; 0: 1 */
    uint32_t recomputed_of_chunk; /* asked for: the first so many blocks of each chunk of a stage */
    uint32_t recomputed_modules;  /* bits of tool_recompute_module */
    enum tool_precision precision;
    bool float8_weights;          /* with FP8: weights are gathered, and stay, in float8 */
    enum tool_state_kind optimizer;
    bool bf16_state;
    enum tool_offload offload;
    bool to_disk;
    uint32_t lora_rank;           /* of adapters beside the blocks' products; all else is frozen. 0: all is trained */
    bool nf4;                     /* the blocks' frozen matrices in four bits (QLoRA) */
};

struct tool_system_settings {
    struct tool_layout layout;
    eo_strategy strategy;      /* of Megatron: zero1 is its distributed optimizer, ddp none; of DeepSpeed: its stages */
    uint32_t shard_group;      /* of hsdp */
    bool math_attention;       /* probabilities are kept */
    uint32_t recomputed_blocks;
    uint64_t workspace_bytes;  /* TOOL_WORKSPACES_HOPPER, _AMPERE */
    struct tool_system_run run;
};

/* Between two steps Megatron's runs allocate this beside the state: cuBLAS 32 MiB, TransformerEngine 32 (before Hopper 4), and
 * 32 that are measured and not explained. */
#define TOOL_WORKSPACES_HOPPER ((uint64_t)96 << 20)
#define TOOL_WORKSPACES_AMPERE ((uint64_t)68 << 20)

struct tool_system_estimate {
    uint32_t stage; /* the fullest one */
    uint64_t parts[TOOL_SYSTEM_PART_COUNT]; /* at its fullest moment */
    uint64_t state_bytes, activation_bytes, peak_bytes;
    uint64_t host_bytes, disk_bytes; /* of a rank, offloaded */
};

const char *tool_system_name(enum tool_system system);
bool tool_system_parse(const char *text, enum tool_system *out);
/* "uniform:4", "block:2", "selective", or modules, "layernorm,mlp". False: none of these. */
bool tool_system_parse_recompute(const char *text, struct tool_system_run *out);
const char *tool_precision_name(enum tool_precision precision);
const char *tool_state_kind_name(enum tool_state_kind kind);
bool tool_state_kind_parse(const char *text, enum tool_state_kind *out);
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
