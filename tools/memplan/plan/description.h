/* SPDX-License-Identifier: MIT
 *
 * A model of a family or a part without kernels, while it is described.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_DESCRIPTION_H
#define EO_TOOLS_MEMPLAN_PLAN_DESCRIPTION_H

#include "tools/memplan/plan/block_rows.h"
#include "tools/memplan/plan/plan.h"

struct tool_description {
    eo_model *model;
    const struct tool_model_config *config;
    const struct tool_plan_settings *settings;
    const eo_log *log;
    uint64_t rows, element_bytes; /* tokens of a micro-batch; of an activation */
    struct tool_scratch scratch;
    const struct tool_slice *slice;
    uint64_t stream_rows;            /* of `rows`, those of the residual stream that lie on this rank */
    uint32_t position, in_flight;    /* micro-batches of the chunk at hand */
    bool recompute;                  /* of the block at hand */
    struct {
        const char *name;
        uint64_t bytes;
    } passing[4 * TOOL_BLOCK_ROWS_MAX]; /* rows of the position at hand that live in its forward pass alone */
    uint32_t passing_count;
    bool is_first, is_last;          /* stage */
    uint32_t expert_parts;           /* above 1: experts are layers of their own, shared by fewer ranks */
};

static inline uint64_t tool_description_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t tool_description_align(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* tools/memplan/plan/scratch.c: d->scratch, of what was found before; else asked of the layers with a model of one block. */
EO_NODISCARD eo_status tool_description_find_scratch(struct tool_description *d, struct tool_scratch_memory *memory);

/* Beside what is kept, in the backward pass of a block's halves, and of its experts. */
uint64_t tool_description_attention_scratch(const struct tool_description *d, uint32_t block);
uint64_t tool_description_mlp_scratch(const struct tool_description *d, uint32_t block);
uint64_t tool_description_expert_scratch(const struct tool_description *d);

#endif
