/* SPDX-License-Identifier: MIT
 *
 * --budget: the speeds of this machine, measured or from a file, the same on all ranks; and the settings chosen by them.
 */
#ifndef EO_TOOLS_RUN_BUDGET_H
#define EO_TOOLS_RUN_BUDGET_H

#include "tools/run/checkpoint/kept_choice.h"
#include "tools/run/ranks/world.h"
#include "tools/planning/budget.h"

/*
 * Sets recompute, slots and offloading of options->plan by --budget; or, where `checkpoint` resumes, by what was chosen for the
 * run before, but for options that were given; and kept_window. `world` is NULL where all ranks are threads of this process;
 * else collective. `tells`: print what was chosen, and what more memory would buy. EO_ERR_INVALID: a budget below the least
 * possible, which is named; a file of rates that is none.
 */
EO_NODISCARD eo_status tool_job_budget(struct tool_options *options, const struct tool_checkpoint_options *checkpoint,
                                       struct tool_job_world *world, bool tells, struct tool_budget_option *chosen,
                                       struct tool_problem *problem);

#endif
