/* SPDX-License-Identifier: MIT
 *
 * --budget: what train would choose within a rank's memory, by the same search and the same file of rates.
 */
#ifndef EO_TOOLS_MEMPLAN_SEARCH_BUDGET_H
#define EO_TOOLS_MEMPLAN_SEARCH_BUDGET_H

#include <stdio.h>

#include "tools/memplan/plan/plan.h"
#include "tools/planning/budget.h"
#include "tools/shared/json_output.h"

struct tool_memplan_budget {
    struct tool_budget_request request;
    const char *rates_path;
    struct tool_budget_choice choice;
};

/* Sets recompute, slots and offloading of the settings. EO_ERR_INVALID: less than the least possible, which is named, or no
 * rates; EO_ERR_UNSUPPORTED: a model that is not run. */
EO_NODISCARD eo_status tool_memplan_budget_choose(struct tool_memplan_budget *budget, const struct tool_model_config *config,
                                                  struct tool_memplan_settings *settings, struct tool_problem *problem);

void tool_memplan_budget_print(FILE *out, const struct tool_memplan_budget *budget);
/* A field of the plan's JSON. */
void tool_memplan_budget_json(struct eo_json *json, const struct tool_memplan_budget *budget);

#endif
