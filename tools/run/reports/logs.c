/* SPDX-License-Identifier: MIT */
#include "tools/run/reports/logs.h"

#include <inttypes.h>

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

eo_status tool_run_logs_open(struct tool_run_logs *logs, const struct tool_run_log_paths *paths, const struct tool_job *job,
                             struct tool_problem *problem)
{
    EO_TRY(job->first_step ? tool_step_log_resume(&logs->log, "--log", paths->log, job->first_step, problem)
                           : tool_step_log_open(&logs->log, "--log", paths->log, problem));
    EO_TRY(tool_csv_open(&logs->csv, paths->csv, job->first_step, problem));
    EO_TRY(tool_tensorboard_open(&logs->tensorboard, paths->tensorboard, job->first_step, problem));
    log_plan(logs, job);
    return EO_OK;
}

void tool_run_logs_step(struct tool_run_logs *logs, const struct tool_job *job, const struct tool_job_step *step)
{
    const double step_s = (double)step->step_ns * 1e-9, tokens_per_s = (double)tool_step_tokens(job) / step_s;
    struct eo_json line = tool_step_log_line(&logs->log);
    eo_json_write(&line, "{'step': %" PRIu64 ", 'loss': %g, 'grad_norm': %g, 'lr': %g, 'step_s': %g, 'tokens_per_s': %g",
                  step->step, step->loss, step->gradient_norm, step->learning_rate, step_s, tokens_per_s);
    eo_json_write(&line, step->skipped ? "'skipped': true}" : "}");
    tool_step_log_end(&logs->log);
    tool_csv_step(&logs->csv, &(struct tool_csv_step){step->step, step->loss, step->gradient_norm, step->learning_rate, step_s,
                                                      tokens_per_s});
    const struct tool_tensorboard_scalar scalars[] = {{"train/loss", step->loss},
                                                      {"train/grad_norm", step->gradient_norm},
                                                      {"train/learning_rate", step->learning_rate},
                                                      {"train/step_seconds", step_s},
                                                      {"train/tokens_per_second", tokens_per_s}};
    tool_tensorboard_write(&logs->tensorboard, step->step, scalars, sizeof(scalars) / sizeof(scalars[0]));
}

void tool_run_logs_validation(struct tool_run_logs *logs, uint64_t step, double loss)
{
    struct eo_json line = tool_step_log_line(&logs->log);
    eo_json_write(&line, "{'validation': {'step': %" PRIu64 ", 'loss': %g}}", step, loss);
    tool_step_log_end(&logs->log);
    tool_csv_validation(&logs->csv, step, loss);
    tool_tensorboard_write(&logs->tensorboard, step, &(struct tool_tensorboard_scalar){"validation/loss", loss}, 1);
}

void tool_run_logs_saved(struct tool_run_logs *logs, const struct tool_job_saved *saved)
{
    struct eo_json line = tool_step_log_line(&logs->log);
    eo_json_write(&line, "{'checkpoint': {'step': %" PRIu64 ", 'bytes': %" PRIu64 ", 'lost_s': %g, 'write_s': %g}}",
                  saved->step, saved->file_bytes, (double)saved->lost_ns * 1e-9, (double)saved->write_ns * 1e-9);
    tool_step_log_end(&logs->log);
}

void tool_run_logs_close(struct tool_run_logs *logs)
{
    tool_step_log_close(&logs->log);
    tool_step_log_close(&logs->csv);
    tool_tensorboard_close(&logs->tensorboard);
}
