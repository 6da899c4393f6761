/* SPDX-License-Identifier: MIT */
#include "tools/logs/csv.h"

#include <inttypes.h>

/* The line ends in tool_step_log_end. */
static void head(struct tool_step_log *table)
{
    const size_t length = sizeof(TOOL_CSV_HEAD) - 2;
    fwrite(TOOL_CSV_HEAD, 1, length, table->file);
    tool_step_log_end(table);
}

eo_status tool_csv_open(struct tool_step_log *table, const char *path, uint64_t first_step, struct tool_problem *problem)
{
    EO_TRY(first_step ? tool_step_log_resume(table, "--csv", path, first_step, problem)
                      : tool_step_log_open(table, "--csv", path, problem));
    if (table->file && ftell(table->file) <= 0) /* new; or a pipe, which has no place */
        head(table);
    return EO_OK;
}

void tool_csv_step(struct tool_step_log *table, const struct tool_csv_step *step)
{
    if (!table->file)
        return;
    fprintf(table->file, "%" PRIu64 ",%.9g,%.9g,%.9g,%.6g,%.6g,", step->step, step->loss, step->gradient_norm,
            step->learning_rate, step->step_s, step->tokens_per_s);
    tool_step_log_end(table);
}

void tool_csv_validation(struct tool_step_log *table, uint64_t step, double loss)
{
    if (!table->file)
        return;
    fprintf(table->file, "%" PRIu64 ",,,,,,%.9g", step, loss);
    tool_step_log_end(table);
}
