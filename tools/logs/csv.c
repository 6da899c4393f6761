/* SPDX-License-Identifier: MIT */
#include "tools/logs/csv.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shared/overwrite.h"

/* NaN, Inf and -Inf: with printf's nan a data frame takes the whole column for text. */
static void put_real(FILE *file, int digits, double value)
{
    if (isnan(value))
        fputs("NaN", file);
    else if (isinf(value))
        fputs(value < 0 ? "-Inf" : "Inf", file);
    else
        fprintf(file, "%.*g", digits, value);
}

/* A line without its end, which a spreadsheet writes as \r\n. */
static void cut_end(char *line)
{
    line[strcspn(line, "\r\n")] = '\0';
}

/* What is there must have the columns that will be written. */
static eo_status check_columns(const char *path, const char *more, struct tool_problem *problem)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    const ssize_t length = file ? getline(&line, &room, file) : -1;
    const size_t ours = strlen(TOOL_CSV_HEAD);
    if (length > 0)
        cut_end(line);
    const bool same = length <= 0 || strncmp(line, TOOL_CSV_HEAD, ours) != 0 || /* not a table: tool_overwrite_check says so */
                      strcmp(line + ours, more) == 0;
    free(line);
    if (file)
        fclose(file);
    return same ? EO_OK
                : tool_problem_set(problem, EO_ERR_INVALID, "--csv %s: the run before wrote other columns; give --log-norms as it "
                                   "did, and the same model, or choose another path", path);
}

static bool goes_on(const char *path, const struct tool_step_log_kept *kept)
{
    return path && kept->step && tool_overwrite_holds_something(path);
}

eo_status tool_csv_check(const char *path, const char *more, const struct tool_step_log_kept *kept,
                         struct tool_problem *problem)
{
    return goes_on(path, kept) ? check_columns(path, more, problem) : EO_OK;
}

eo_status tool_csv_open(struct tool_step_log *table, const char *path, const char *more, const struct tool_step_log_kept *kept,
                        struct tool_problem *problem)
{
    const bool continues = goes_on(path, kept);
    EO_TRY(continues ? tool_step_log_resume(table, "--csv", path, kept, problem)
                     : tool_step_log_open(table, "--csv", path, problem));
    if (table->file && !continues) {
        fprintf(table->file, "%s%s", TOOL_CSV_HEAD, more);
        tool_step_log_end(table);
    }
    return EO_OK;
}

void tool_csv_step(struct tool_step_log *table, const struct tool_csv_step *step, const double *more, uint32_t more_count)
{
    if (!table->file)
        return;
    const double values[] = {step->loss, step->gradient_norm, step->learning_rate, step->step_s, step->tokens_per_s};
    fprintf(table->file, "%" PRIu64, step->step);
    for (int i = 0; i < 5; i++) {
        putc(',', table->file);
        put_real(table->file, i < 3 ? 9 : 6, values[i]);
    }
    putc(',', table->file);
    for (uint32_t i = 0; i < more_count; i++) {
        putc(',', table->file);
        put_real(table->file, 9, more[i]);
    }
    tool_step_log_end(table);
}

void tool_csv_validation(struct tool_step_log *table, uint64_t step, double loss, uint32_t more_count)
{
    if (!table->file)
        return;
    fprintf(table->file, "%" PRIu64 ",,,,,,", step);
    put_real(table->file, 9, loss);
    for (uint32_t i = 0; i < more_count; i++)
        putc(',', table->file);
    tool_step_log_end(table);
}
