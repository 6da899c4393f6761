/* SPDX-License-Identifier: MIT
 *
 * Where the steps of a run are written: a log, a table, TensorBoard. Rank 0's.
 */
#ifndef EO_TOOLS_RUN_REPORTS_LOGS_H
#define EO_TOOLS_RUN_REPORTS_LOGS_H

#include "tools/logs/step_log.h"
#include "tools/logs/tensorboard.h"
#include "tools/run/checkpoint/checkpoint.h"
#include "tools/run/job.h"

struct tool_run_log_paths {
    const char *log, *csv, *tensorboard; /* NULL: none */
};

struct tool_run_logs {
    struct tool_step_log log, csv;
    uint32_t norm_count; /* layers whose norms are shown */
    struct tool_tensorboard tensorboard;
};

/* Each path may be written, and is nothing that the run reads. */
EO_NODISCARD eo_status tool_run_logs_check(const struct tool_run_log_paths *paths, const struct tool_options *options,
                                           struct tool_problem *problem);

/* What a run before wrote is not touched until this one has all it needs; of one that was resumed it goes on behind the step
 * that was saved. The log begins with {"plan": ..., "settings": ...}, which memplan --verify compares. */
EO_NODISCARD eo_status tool_run_logs_open(struct tool_run_logs *logs, const struct tool_run_log_paths *paths,
                                          const struct tool_job *job, struct tool_problem *problem);
void tool_run_logs_step(struct tool_run_logs *logs, const struct tool_job *job, const struct tool_job_step *step);
void tool_run_logs_validation(struct tool_run_logs *logs, uint64_t step, double loss);
void tool_run_logs_saved(struct tool_run_logs *logs, const struct tool_job_saved *saved);
bool tool_run_logs_close(struct tool_run_logs *logs); /* false: what was asked for is not whole */

#endif
