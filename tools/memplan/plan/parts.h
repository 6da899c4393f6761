/* SPDX-License-Identifier: MIT
 *
 * The memory of a GPU at the peak, in parts that add up to it.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_PARTS_H
#define EO_TOOLS_MEMPLAN_PLAN_PARTS_H

#include "tools/memplan/plan/plan.h"

enum { TOOL_ANSWER_COLUMNS = 100 }; /* of the lines of an answer */

/* What a GPU holds at the peak: categories that people tell apart. They add up to the total. */
enum tool_part {
    TOOL_PART_ACTIVATIONS,
    TOOL_PART_OPTIMIZER,
    TOOL_PART_WEIGHTS,
    TOOL_PART_GRADIENTS,
    TOOL_PART_BUFFERS,
    TOOL_PART_SCRATCH,
    TOOL_PART_HEAD,
    TOOL_PART_OTHER,
    TOOL_PART_GAPS,    /* of the arena, between rows */
    TOOL_PART_OUTSIDE, /* the arena */
    TOOL_PART_COUNT,
};
void tool_parts_of(const struct tool_memplan *memplan, uint64_t bytes[TOOL_PART_COUNT]);
const char *tool_part_name(enum tool_part part);
const char *tool_part_explanation(enum tool_part part);

#endif
