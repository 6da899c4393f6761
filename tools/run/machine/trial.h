/* SPDX-License-Identifier: MIT
 *
 * Tries out what predictions of step times are made of: a model of two blocks in the job's own shape runs a few steps.
 */
#ifndef EO_TOOLS_RUN_MACHINE_TRIAL_H
#define EO_TOOLS_RUN_MACHINE_TRIAL_H

#include "tools/planning/rates.h"
#include "tools/planning/settings.h"

/* On a CPU a micro-batch of the trial has at most so many tokens, or one sequence. On a GPU it is the job's: fewer take longer
 * for each. */
enum { TOOL_TRIAL_TOKENS = 1024 };

struct tool_trial {
    const struct tool_plan_settings *settings; /* the job's, in which nothing is open, */
    const eo_transformer_config *config;       /* and its model */
    uint32_t ranks;        /* threads of this process, at once, each with the settings' threads */
    uint32_t device_index; /* of the first */
    uint64_t most_bytes;   /* that a rank's plan may take */
    uint64_t disk_cache_bytes;  /* that come on top where it offloads, */
    const char *offload_folder; /* to there [the current folder], */
    bool may_offload;           /* which serves; only where less memory does not do */
    bool place_threads;
    const char *product_cache; /* NULL, or a file for a GPU's choice of products */
};

/*
 * Fills in rates->tried, and where ranks exchange anything the link's speed. Where a trial cannot be made all of it stays as it
 * was; EO_ERR_NO_MEMORY: a rank's plan would take more than most_bytes, too.
 */
EO_NODISCARD eo_status tool_trial_run(const struct tool_trial *trial, const eo_log *log, struct tool_rates *rates);

#endif
