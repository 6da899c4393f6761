/* SPDX-License-Identifier: MIT
 *
 * How many neighbouring blocks one collective brings or reduces, by a model of cost: the least predicted step time. One by
 * one, unless that is slower. A pure function of model, settings and rates.
 */
#ifndef EO_TOOLS_PLANNING_BUCKETING_H
#define EO_TOOLS_PLANNING_BUCKETING_H

#include "tools/planning/budget.h"

struct tool_bucketing_choice {
    struct tool_budget_option chosen, alone; /* alone: one by one */
};

/* Sets the runs of `settings`, of which the rest is complete. `most_bytes`: of the arena; 0: as many as it takes. */
EO_NODISCARD eo_status tool_bucketing_choose(struct tool_plan_settings *settings, const eo_transformer_config *config,
                                             const struct tool_rates *rates, uint64_t most_bytes,
                                             struct tool_bucketing_choice *out, struct tool_problem *problem);
/* "bucketing: 4 blocks in a gather, 2 in a reduction: 0.080 s a step predicted, 0.120 s one by one; 12.0 MiB more". */
void tool_bucketing_print(FILE *out, const struct tool_bucketing_choice *choice);

#endif
