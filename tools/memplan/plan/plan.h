/* SPDX-License-Identifier: MIT
 *
 * What memplan plans: a config and settings become a model, and the model the runtime's own plan (eo_plan_create). GPT-2,
 * Llama and their like are the models of train (eo_transformer_create). Other families are described here with the same rows
 * and lifetimes; they have no kernels: planned, not run.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_PLAN_H
#define EO_TOOLS_MEMPLAN_PLAN_PLAN_H

#include "tools/interchange/config/model_config.h"
#include "tools/memplan/plan/devices.h"
#include "tools/memplan/plan/scratch.h"
#include "tools/memplan/plan/slice.h"
#include "tools/planning/settings.h"

/* What lies in a GPU's memory and in no plan. */
struct tool_outside {
    uint64_t context_bytes;   /* driver's context, kernels' images, handles of libraries */
    uint64_t nccl_bytes;      /* with more than one rank */
    uint64_t workspace_bytes; /* of matrix products */
    bool given;               /* one number of the user's, in context_bytes */
};

struct tool_memplan_settings {
    struct tool_plan_settings plan;
    uint32_t gpus_per_node;
    bool on_gpu;             /* [kernels of "cuda"] also where those of the CPU are planned for a GPU */
    uint64_t capacity_bytes; /* 0: not asked */
    uint64_t headroom_bytes; /* of it, to be kept free */
    struct tool_outside outside;
    struct tool_slice slice; /* of the whole model: all 0 */
    bool draft;              /* eo_plan_params.draft: a plan to be compared */
};

struct tool_memplan {
    struct tool_memplan_settings settings; /* filled in */
    bool runs;
    char why_not[200];
    char warning[300];           /* the planner's; "": none */
    eo_transformer *transformer; /* of what is run */
    eo_model *described;         /* of what is not */
    eo_plan *plan;
    eo_plan_summary summary;
    uint64_t outside_bytes;
    uint64_t device_bytes;       /* of the plan: the arena less what lies in the host's memory */
    uint64_t total_bytes;        /* device_bytes + outside_bytes */
    bool fits;                   /* or no capacity was asked about */
};

/* EO_OK; EO_ERR_INVALID, EO_ERR_NO_MEMORY, EO_ERR_UNSUPPORTED: nothing to release. */
EO_NODISCARD eo_status tool_memplan_create(struct tool_memplan *out, const struct tool_model_config *config,
                                           const struct tool_memplan_settings *settings, struct tool_problem *problem);
/* The same, of many in a row. */
EO_NODISCARD eo_status tool_memplan_create_next(struct tool_memplan *out, const struct tool_model_config *config,
                                                const struct tool_memplan_settings *settings, struct tool_scratch_memory *memory,
                                                struct tool_problem *problem);
void tool_memplan_fini(struct tool_memplan *memplan);

/* What a plan may take. */
static inline uint64_t tool_usable_bytes(const struct tool_memplan_settings *settings)
{
    return settings->capacity_bytes - settings->headroom_bytes;
}

static inline double tool_gib(uint64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

const eo_model *tool_memplan_model(const struct tool_memplan *memplan);

/* tools/memplan/plan/describe.c: a model of a family without kernels. */
EO_NODISCARD eo_status tool_memplan_describe(eo_model **out, const struct tool_model_config *config,
                                             const struct tool_plan_settings *settings, const struct tool_slice *slice,
                                             struct tool_scratch_memory *memory, const eo_log *log);

/* tools/memplan/plan/devices.c */
struct tool_outside tool_outside_default(const struct tool_memplan_settings *settings);
uint64_t tool_outside_bytes(const struct tool_outside *outside);
void tool_outside_text(const struct tool_memplan *memplan, char *text, size_t bytes); /* with sources */

#endif
