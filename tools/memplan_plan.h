/* SPDX-License-Identifier: MIT
 *
 * What memplan plans: a config and settings become a model, and the model the runtime's own plan (eo_plan_create). For
 * GPT-2, Llama and their like the model is the one that is trained (eo_transformer_create); for other families it is described here
 * with the same rows and lifetimes, and has no kernels: planned, not run.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_H
#define EO_TOOLS_MEMPLAN_PLAN_H

#include "tools/model_config.h"

enum { EO_MEMPLAN_WORLD_MAX = 65536 };

/* What lies in a GPU's memory and in no plan. */
struct eo_outside {
    uint64_t context_bytes;   /* driver's context, kernels' images, handles of libraries */
    uint64_t nccl_bytes;      /* with more than one rank */
    uint64_t workspace_bytes; /* of matrix products */
    bool given;               /* one number of the user's, in context_bytes */
};

struct eo_memplan_settings {
    uint32_t world, gpus_per_node;
    eo_strategy strategy;
    uint32_t hsdp_group;
    uint32_t batch, seq, micro_batches;
    eo_dtype dtype, reduce_dtype;
    uint32_t gather_slots, gradient_slots;
    eo_recompute recompute;
    uint32_t recompute_blocks;
    bool half_blocks;
    uint32_t head_chunks;    /* 0: as train chooses */
    const char *kernels;     /* "cpu" or "cuda": whose scratch */
    bool on_gpu;             /* [kernels are "cuda"] also where this build has no kernels for the GPU that is asked about */
    uint32_t threads;        /* CPU: of a rank */
    bool graph;              /* a step is a graph: tokens of all its micro-batches lie on the device */
    uint64_t capacity_bytes; /* 0: not asked */
    struct eo_outside outside;
};

struct eo_memplan {
    struct eo_memplan_settings settings; /* filled in */
    bool runs;
    char why_not[200];
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
EO_NODISCARD eo_status eo_memplan_create(struct eo_memplan *out, const struct eo_model_config *config,
                                         const struct eo_memplan_settings *settings, struct eo_problem *problem);
void eo_memplan_fini(struct eo_memplan *memplan);

const eo_model *eo_memplan_model(const struct eo_memplan *memplan);

/* "cuda" where this build can plan its kernels, else "cpu". */
const char *eo_memplan_default_kernels(void);

/* memplan_describe.c: a model of a family without kernels. */
EO_NODISCARD eo_status eo_memplan_describe(eo_model **out, const struct eo_model_config *config,
                                           const struct eo_memplan_settings *settings, const eo_log *log);

/* memplan_devices.c */
struct eo_device_memory {
    const char *name;
    uint64_t bytes;      /* that a program can have, as far as was published */
    const char *source;
};
const struct eo_device_memory *eo_device_memory_find(const char *name); /* NULL: not in the table */
const struct eo_device_memory *eo_device_memory_at(uint32_t index);     /* NULL past the last */
struct eo_outside eo_outside_default(const struct eo_memplan_settings *settings);
uint64_t eo_outside_bytes(const struct eo_outside *outside);
void eo_outside_text(const struct eo_memplan *memplan, char *text, size_t bytes); /* with sources */

#endif
