/* SPDX-License-Identifier: MIT */
#ifndef EO_TOOLS_MEMPLAN_PLAN_LAYERS_H
#define EO_TOOLS_MEMPLAN_PLAN_LAYERS_H

#include "tools/memplan/plan/plan.h"

/* A layer of the plan as its collectives and rows show it. */
struct tool_layer_line {
    const char *name;
    uint32_t ranks; /* that share it */
    uint64_t elements, word_padding /* behind the vocabulary */, padded_elements, shard_bytes, gather_bytes;
};
/* By layer; NULL: no memory. To be freed. */
struct tool_layer_line *tool_layer_lines(const struct tool_memplan *memplan, uint32_t *count);

#endif
