/* SPDX-License-Identifier: MIT
 *
 * The steps of a run as a table (--csv), for spreadsheets and data frames. A row a step; a validation has a row of its own, with
 * the step and its loss alone. With --log-norms the layers' norms are columns behind the others.
 */
#ifndef EO_TOOLS_LOGS_CSV_H
#define EO_TOOLS_LOGS_CSV_H

#include "tools/logs/step_log.h"

#define TOOL_CSV_HEAD "step,loss,grad_norm,lr,step_s,tokens_per_s,validation_loss"

struct tool_csv_step {
    uint64_t step; /* from 1 */
    double loss, gradient_norm, learning_rate, step_s, tokens_per_s;
};

/* EO_ERR_INVALID: what is there, and would be gone on with, has other columns. Changes nothing. `more`: of columns behind ours,
 * each with a comma before it. path NULL: no table. */
EO_NODISCARD eo_status tool_csv_check(const char *path, const char *more, const struct tool_step_log_kept *kept,
                                      struct tool_problem *problem);

/* Goes on behind the rows that are kept, where the run does (its step is not 0). Errors as of tool_step_log_open. */
EO_NODISCARD eo_status tool_csv_open(struct tool_step_log *table, const char *path, const char *more,
                                     const struct tool_step_log_kept *kept, struct tool_problem *problem);
void tool_csv_step(struct tool_step_log *table, const struct tool_csv_step *step, const double *more, uint32_t more_count);
void tool_csv_validation(struct tool_step_log *table, uint64_t step, double loss, uint32_t more_count);

#endif
