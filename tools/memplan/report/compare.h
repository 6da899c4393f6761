/* SPDX-License-Identifier: MIT
 *
 * Two plans, or a plan and what a run wrote, held against each other.
 */
#ifndef EO_TOOLS_MEMPLAN_REPORT_COMPARE_H
#define EO_TOOLS_MEMPLAN_REPORT_COMPARE_H

#include <stdio.h>

#include "tools/memplan/plan/plan.h"

/* Two files of --json: prints what is not equal. */
EO_NODISCARD eo_status tool_memplan_diff(FILE *out, const char *path_a, const char *path_b, uint32_t *difference_count,
                                         struct tool_problem *problem);

/*
 * A log of train (--log), of which the summary's arena, plan and lower bound are compared and every row of its first
 * line, {"plan": ...}; or what train --plan printed, of which every row is. Prints what is not equal.
 */
EO_NODISCARD eo_status tool_memplan_verify(FILE *out, const char *path, const struct tool_memplan *memplan,
                                           uint32_t *difference_count, struct tool_problem *problem);

/* What such a file says of the run's settings, as options; "" where it says nothing. False: it cannot be read. */
bool tool_memplan_logged_settings(const char *path, char words[TOOL_PLAN_WORDS_MAX]);

#endif
