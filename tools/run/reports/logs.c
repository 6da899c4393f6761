/* SPDX-License-Identifier: MIT */
#include "tools/run/reports/logs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/logs/csv.h"
#include "tools/run/reports/progress.h"
#include "tools/shared/overwrite.h"

eo_status tool_run_logs_check(const struct tool_run_log_paths *paths, const struct tool_options *options,
                              struct tool_problem *problem)
{
    EO_TRY(tool_options_check_output(options, "--log", paths->log, problem));
    EO_TRY(tool_options_check_output(options, "--csv", paths->csv, problem));
    return tool_check_folder("--tensorboard", paths->tensorboard, problem);
}

static void log_plan(struct tool_run_logs *logs, const struct tool_job *job)
{
    struct eo_json line = tool_step_log_line(&logs->log);
    char words[TOOL_PLAN_WORDS_MAX];
    tool_job_plan_words(job, words);
    eo_json_write(&line, "{'plan':");
    eo_plan_write_json(job->plan, line.write, line.user);
    line.after_key = false, line.filled |= 1; /* the value was written by another writer */
    eo_json_write(&line, "'settings': %s}", words);
    tool_step_log_end(&logs->log);
}

static const char *layer_name(const struct tool_job *job, uint32_t layer)
{
    return eo_model_layer_name(eo_transformer_model(job->transformer), layer);
}

/* ",norm.embedding,norm.block.0" ... NULL: no memory. */
static char *norm_columns(const struct tool_job *job, uint32_t norm_count)
{
    enum { COLUMN_BYTES = EO_NAME_MAX + 8 };
    char *columns = calloc((size_t)norm_count + 1, COLUMN_BYTES);
    size_t used = 0;
    for (uint32_t l = 0; columns && l < norm_count; l++)
        used += (size_t)snprintf(columns + used, COLUMN_BYTES, ",norm.%s", layer_name(job, l));
    return columns;
}

/* Those come last that take away what a run before has written: one that is refused leaves all as it was. */
static eo_status open_all(struct tool_run_logs *logs, const struct tool_run_log_paths *paths, const struct tool_job *job,
                          const char *columns, struct tool_problem *problem)
{
    const bool validates = tool_early_stop_lacks(&job->early_stop, job->val_every, job->first_step);
    const struct tool_step_log_kept kept = {job->first_step, job->first_step - validates};
    EO_TRY(tool_csv_check(paths->csv, columns, &kept, problem));
    EO_TRY(tool_tensorboard_open(&logs->tensorboard, paths->tensorboard, job->first_step, problem));
    EO_TRY(job->first_step ? tool_step_log_resume(&logs->log, "--log", paths->log, &kept, problem)
                           : tool_step_log_open(&logs->log, "--log", paths->log, problem));
    return tool_csv_open(&logs->csv, paths->csv, columns, &kept, problem);
}

eo_status tool_run_logs_open(struct tool_run_logs *logs, const struct tool_run_log_paths *paths, const struct tool_job *job,
                             struct tool_problem *problem)
{
    logs->norm_count = job->options->plan.norm_parts ? eo_model_layer_count(eo_transformer_model(job->transformer)) : 0;
    char *columns = norm_columns(job, logs->norm_count);
    if (!columns)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "no memory for the head of --csv");
    const eo_status status = open_all(logs, paths, job, columns, problem);
    free(columns);
    if (status >= 0)
        log_plan(logs, job);
    return status;
}

static void log_norms(struct eo_json *line, const struct tool_job *job, const struct tool_job_step *step)
{
    eo_json_write(line, "'layer_norms': {");
    for (uint32_t l = 0; l < step->layer_count; l++)
        eo_json_write(line, "%s: %g", layer_name(job, l), step->layer_norms[l]);
    eo_json_write(line, "}");
}

static void board_norms(struct tool_run_logs *logs, const struct tool_job *job, const struct tool_job_step *step)
{
    char tag[EO_NAME_MAX + 8];
    for (uint32_t l = 0; l < step->layer_count; l++) {
        snprintf(tag, sizeof(tag), "norm/%s", layer_name(job, l));
        tool_tensorboard_write(&logs->tensorboard, step->step, &(struct tool_tensorboard_scalar){tag, step->layer_norms[l]}, 1);
    }
}

void tool_run_logs_step(struct tool_run_logs *logs, const struct tool_job *job, const struct tool_job_step *step)
{
    const double step_s = (double)step->step_ns * 1e-9, tokens_per_s = (double)tool_step_inputs(job) / step_s;
    struct eo_json line = tool_step_log_line(&logs->log);
    eo_json_write(&line, "{'step': %" PRIu64 ", 'loss': %g, 'grad_norm': %g, 'lr': %g, 'step_s': %g, 'tokens_per_s': %g",
                  step->step, step->loss, step->gradient_norm, step->learning_rate, step_s, tokens_per_s);
    if (logs->norm_count)
        log_norms(&line, job, step);
    eo_json_write(&line, step->skipped ? "'skipped': true}" : "}");
    tool_step_log_end(&logs->log);
    tool_csv_step(&logs->csv, &(struct tool_csv_step){step->step, step->loss, step->gradient_norm, step->learning_rate, step_s,
                                                      tokens_per_s}, step->layer_norms, step->layer_count);
    const struct tool_tensorboard_scalar scalars[] = {{"train/loss", step->loss},
                                                      {"train/grad_norm", step->gradient_norm},
                                                      {"train/learning_rate", step->learning_rate},
                                                      {"train/step_seconds", step_s},
                                                      {"train/tokens_per_second", tokens_per_s}};
    tool_tensorboard_write(&logs->tensorboard, step->step, scalars, sizeof(scalars) / sizeof(scalars[0]));
    board_norms(logs, job, step);
}

void tool_run_logs_validation(struct tool_run_logs *logs, uint64_t step, double loss)
{
    struct eo_json line = tool_step_log_line(&logs->log);
    eo_json_write(&line, "{'validation': {'step': %" PRIu64 ", 'loss': %g}}", step, loss);
    tool_step_log_end(&logs->log);
    tool_csv_validation(&logs->csv, step, loss, logs->norm_count);
    tool_tensorboard_write(&logs->tensorboard, step, &(struct tool_tensorboard_scalar){"validation/loss", loss}, 1);
}

void tool_run_logs_saved(struct tool_run_logs *logs, const struct tool_job_saved *saved)
{
    struct eo_json line = tool_step_log_line(&logs->log);
    eo_json_write(&line, "{'checkpoint': {'step': %" PRIu64 ", 'bytes': %" PRIu64 ", 'lost_s': %g, 'write_s': %g}}",
                  saved->step, saved->file_bytes, (double)saved->lost_ns * 1e-9, (double)saved->write_ns * 1e-9);
    tool_step_log_end(&logs->log);
}

bool tool_run_logs_close(struct tool_run_logs *logs)
{
    tool_step_log_close(&logs->log);
    tool_step_log_close(&logs->csv);
    tool_tensorboard_close(&logs->tensorboard);
    return !logs->log.is_lost && !logs->csv.is_lost && !logs->tensorboard.is_lost;
}
