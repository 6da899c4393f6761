/* SPDX-License-Identifier: MIT
 *
 * The same training with each strategy, planned: what a rank holds, and what it receives in a step.
 */
#ifndef EO_TOOLS_MEMPLAN_SEARCH_STRATEGIES_H
#define EO_TOOLS_MEMPLAN_SEARCH_STRATEGIES_H

#include <stdio.h>

#include "tools/memplan/plan/parts.h"

enum { TOOL_STRATEGY_COLUMNS = 5 };

struct tool_strategy_column {
    eo_strategy strategy;
    uint32_t group;         /* of hsdp */
    char name[32];
    char refused[256];      /* why it cannot be planned; else "" */
    eo_plan_summary summary;
    uint64_t parts[TOOL_PART_COUNT], total_bytes; /* the parts add up */
    bool fits;
    uint64_t received_bytes; /* by a rank in a step */
    uint64_t between_bytes;  /* ... of these, from other nodes */
    uint64_t paper_bytes;    /* state by the formulas of the ZeRO paper (2 + 2 + 12 bytes a parameter) */
};

/* What a rank receives in a step, as the lists say, with rings. */
struct tool_traffic {
    uint64_t received_bytes;
    uint64_t between_bytes; /* ... of these, its share of what its node receives from others */
    uint32_t collectives;
};
struct tool_traffic tool_traffic_of(const struct tool_memplan *memplan);

/* ddp, zero1, zero2, zero3 and hsdp in groups of --strategy's size, else of a node (and left out where that is all). */
uint32_t tool_strategy_columns(struct tool_strategy_column *columns, const struct tool_model_config *config,
                               const struct tool_memplan_settings *settings);
/* Least received over the links between nodes first, then least received at all, then least memory. */
void tool_strategy_sort(struct tool_strategy_column *columns, uint32_t count);
void tool_strategy_print(FILE *out, const struct tool_strategy_column *columns, uint32_t count, uint64_t capacity_bytes);

#endif
