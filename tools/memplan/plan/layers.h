/* SPDX-License-Identifier: MIT */
#ifndef EO_TOOLS_MEMPLAN_PLAN_LAYERS_H
#define EO_TOOLS_MEMPLAN_PLAN_LAYERS_H

#include "tools/memplan/plan/plan.h"

/* A layer of the plan as its collectives and rows show it. Frozen parameters beside trained ones have a line of their own,
 * behind those of the model's layers. */
struct tool_layer_line {
    char name[EO_NAME_MAX + 16];
    bool is_part, is_frozen, is_mxfp8;
    uint32_t ranks; /* that share it */
    uint64_t elements, more_elements /* behind the vocabulary; fp32 among bf16 takes twice its own */, padded_elements;
    uint64_t shard_bytes, gather_bytes;
};
/* By layer; NULL: no memory. To be freed. */
struct tool_layer_line *tool_layer_lines(const struct tool_memplan *memplan, uint32_t *count);

#endif
