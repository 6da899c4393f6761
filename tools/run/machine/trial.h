/* SPDX-License-Identifier: MIT
 *
 * Tries out what predictions of step times are made of: a model of two blocks in the job's own shape runs a few steps.
 */
#ifndef EO_TOOLS_RUN_MACHINE_TRIAL_H
#define EO_TOOLS_RUN_MACHINE_TRIAL_H

#include "tools/planning/rates.h"
#include "tools/planning/settings.h"

/* A micro-batch of the trial has at most so many tokens, or one sequence. */
enum { TOOL_TRIAL_TOKENS = 1024 };

/*
 * By `ranks` threads of this process at once, each a rank with the settings' threads, on the CPU, near their memory with place_threads. `config` and `settings`, in
 * which nothing is open, are the job's. Fills in rates->tried, and where ranks exchange anything the link's speed. Where a
 * trial cannot be made all of it stays as it was; EO_ERR_NO_MEMORY: a rank's plan would take more than most_bytes, too.
 */
EO_NODISCARD eo_status tool_trial_run(const struct tool_plan_settings *settings, const eo_transformer_config *config,
                                      uint32_t ranks, uint64_t most_bytes, bool place_threads, const eo_log *log, struct tool_rates *rates);

#endif
