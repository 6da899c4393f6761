/* SPDX-License-Identifier: MIT
 *
 * Trains a model, sharded over ranks, in memory placed before the first step. Ranks are threads of this process, or under a
 * launcher processes of one machine or several.
 */
#include "tools/train/train.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tools/run/machine/memory_check.h"
#include "tools/run/machine/processor.h"
#include "tools/run/reports/report.h"
#include "tools/run/sample.h"
#include "tools/run/step.h"
#include "tools/shared/arguments.h"
#include "tools/shared/clock.h"
#include "tools/shared/end_signals.h"
#include "tools/shared/told.h"
#include "tools/shared/weights_hash.h"

enum { PROMPT_TOKENS = 32, SAMPLE_DEFAULT = 160 };
static const double sample_temperature = 0.8;

static volatile sig_atomic_t interrupted;

/* The first Ctrl-C ends after the current step; a second one ends at once. */
static void on_interrupt(int number)
{
    static _Atomic uint64_t first_ns[NSIG];
    const uint64_t now_ns = tool_now_ns();
    uint64_t before_ns = 0;
    if (!atomic_compare_exchange_strong(&first_ns[number], &before_ns, now_ns) && now_ns - before_ns > TOOL_SAME_SIGNAL_NS)
        tool_end_by_signal(number);
    interrupted = 1;
}

/* One that was ignored when train began (a shell's background job) stays so. */
static void take_interrupts(int number)
{
    const struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    struct sigaction at_start;
    if (sigaction(number, NULL, &at_start) != 0 || at_start.sa_handler == SIG_IGN)
        return;
    sigaction(number, &action, NULL);
    tool_unblock_signal(number);
}

static void tell_checkpoints(const struct train *train, const struct tool_job_rank *rank)
{
    uint64_t copy_bytes;
    const char *folder = train->settings.checkpoint.folder;
    const bool is_in_place = eo_saver_is_in_place(rank->saver, &copy_bytes), on_gpu = tool_options_on_gpu(train->job.options);
    const double copy_mib = (double)copy_bytes / (1 << 20);
    if (folder && is_in_place && on_gpu)
        printf("checkpoints in %s: what is offloaded is written from where it lies, and updates wait for it; a copy of the rest, "
               "%.1f MiB a rank in host memory, beside the plan\n", folder, copy_mib);
    else if (folder && is_in_place)
        printf("checkpoints in %s: written from memory and disk as they are, without a copy\n", folder);
    else if (folder)
        printf("checkpoints in %s: a copy of %.1f MiB a rank in host memory, beside the plan%s\n", folder, copy_mib,
               train->settings.checkpoint.in_place ? "; nothing is offloaded that could be written in place" : "");
}

static eo_status on_begin(void *user, const struct tool_job_rank *rank, struct tool_problem *problem)
{
    struct train *train = user;
    EO_TRY(tool_run_logs_open(&train->logs, &train->settings.logs, &train->job, problem));
    tool_report_start(&train->job);
    tell_checkpoints(train, rank);
    tool_gpu_watch_from_now(&train->watch);
    tool_progress_begin(&train->progress, &train->job);
    return EO_OK;
}

static void on_step(void *user, const struct tool_job_step *step)
{
    struct train *train = user;
    train->skipped_count = step->skipped_count;
    tool_course_step(&train->course, step->skipped ? NAN : step->loss, /* it taught nothing */
                     (double)step->step_ns * 1e-9, (double)step->host_ns * 1e-9);
    tool_run_logs_step(&train->logs, &train->job, step);
    tool_progress_step(&train->progress, step);
}

static void on_validation(void *user, uint64_t step, double loss)
{
    struct train *train = user;
    tool_run_logs_validation(&train->logs, step, loss);
    tool_progress_validation(&train->progress, step, loss);
}

static void on_saved(void *user, const struct tool_job_saved *saved)
{
    struct train *train = user;
    tool_run_logs_saved(&train->logs, saved);
    tool_progress_saved(&train->progress, saved);
}

static eo_status take_sample(struct train *train, struct tool_job_rank *rank)
{
    const struct tool_job *job = &train->job;
    const uint32_t count = train->settings.sample_count, vocabulary = job->data.is_text ? 256 : job->config.vocabulary;
    const uint32_t prompt_count = job->shape.seq / 2 < PROMPT_TOKENS ? (job->shape.seq + 1) / 2 : PROMPT_TOKENS;
    int32_t *tokens = calloc(prompt_count + count, sizeof(*tokens));
    if (!tokens)
        return EO_ERR_NO_MEMORY;
    tool_data_prompt(&job->data, prompt_count, tokens);
    const struct tool_sample_params params = {.prompt_count = prompt_count,
                                              .count = count,
                                              .vocabulary = vocabulary,
                                              .temperature = sample_temperature,
                                              .seed = job->options->seed,
                                              .without_cache = getenv("EO_TEST_SAMPLE_WITHOUT_CACHE") != NULL};
    uint32_t made = 0;
    eo_status status = tool_job_check_data(rank);
    if (status >= 0)
        status = tool_sample(rank, &params, tokens, &made);
    if (status >= 0 && rank->rank == 0) {
        train->sample = tokens;
        train->prompt_count = prompt_count;
        train->sample_made = made;
    } else {
        free(tokens);
    }
    return status;
}

static eo_status on_end(void *user, struct tool_job_rank *rank)
{
    struct train *train = user;
    uint64_t hash = 0;
    if (rank->rank == 0)
        tool_progress_end(&train->progress);
    if (train->traces)
        EO_TRY(tool_trace_take(rank->runtime, &train->traces[rank->rank - train->job.first_rank]));
    if (!train->settings.no_hash)
        EO_TRY(tool_weights_hash(rank->runtime, &hash));
    if (rank->rank == 0)
        train->weights_hash = hash;
    EO_TRY(tool_job_swap_average(rank)); /* the hash is of the weights, what follows of their average */
    if (train->settings.export.path)
        EO_TRY(tool_train_export(train, rank));
    rank->resident_bytes = tool_process_resident_peak(); /* of the training: a sample takes memory of its own */
    /* Who stops a run does not want to wait for a sample. */
    return train->settings.sample_count && !rank->stopped ? take_sample(train, rank) : EO_OK;
}

static eo_status run(struct train *train, struct tool_problem *problem)
{
    const struct train_settings *settings = &train->settings;
    struct tool_job *job = &train->job;
    if (settings->trace_path)
        train->traces = calloc(job->shape.rank_count + 1, sizeof(*train->traces));
    if (settings->trace_path && !train->traces)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "no memory for the traces");
    job->stop = &interrupted;
    job->tells = true;
    job->reports_late = tool_options_on_gpu(&settings->common);
    job->hooks = (struct tool_job_hooks){
        .user = train, .begin = on_begin, .step = on_step, .validation = on_validation, .saved = on_saved, .end = on_end};
    take_interrupts(SIGINT);
    take_interrupts(SIGTERM);
    const eo_status status = tool_job_run(job, problem);
    tool_gpu_watch_stop(&train->watch);
    if (status < 0)
        tool_progress_end(&train->progress);
    else
        tool_train_report(train);
    return status;
}

/* Each may be written, and is nothing that the run reads. */
static eo_status check_output_files(const struct train *train, struct tool_problem *problem)
{
    const struct train_settings *settings = &train->settings;
    EO_TRY(tool_run_logs_check(&settings->logs, &settings->common, problem));
    EO_TRY(tool_options_check_output(&settings->common, "--trace", settings->trace_path, problem));
    return tool_options_check_output(&settings->common, "--product-cache", settings->common.plan_cache, problem);
}

/* Before the first save, for what is offloaded or to measure its disk. */
static void make_offload_folder(const struct train_settings *settings)
{
    const struct tool_options *o = &settings->common;
    const bool measures = (o->budget_bytes || o->budget_available) && !(o->plan_only && o->rates_path);
    if (!tool_options_on_gpu(o) && settings->checkpoint.folder && o->offload_folder == settings->checkpoint.folder &&
        (measures || (!o->plan_only && tool_plan_settings_offload(&o->plan))))
        (void)mkdir(settings->checkpoint.folder, 0777);
}

static eo_status prepare(struct train *train, struct tool_problem *problem)
{
    const struct train_settings *settings = &train->settings;
    const bool writes = !train->world.rendezvous || train->world.environment.rank == 0; /* files are rank 0's */
    const struct tool_job_choices choices = {.checkpoint = &settings->checkpoint,
                                             .export_path = settings->export.path,
                                             .sample_count = settings->sample_count,
                                             .merged = settings->export.merged,
                                             .no_hash = settings->no_hash};
    if (!settings->common.plan_only)
        EO_TRY(tool_job_world_choose(&train->world, settings->common.plan.device, problem));
    EO_TRY(tool_job_world_threads(&train->world, &train->settings.common, problem));
    EO_TRY(tool_processor_choose(train->world.rendezvous ? &train->world : NULL, &settings->common, writes, problem));
    make_offload_folder(settings);
    EO_TRY(tool_job_budget(&train->settings.common, &settings->checkpoint, train->world.rendezvous ? &train->world : NULL,
                           writes, &train->chosen, problem));
    make_offload_folder(settings); /* what was chosen may need it */
    if (writes)
        EO_TRY(check_output_files(train, problem));
    EO_TRY(tool_job_prepare(&train->job, &settings->common, settings->val_every, problem));
    EO_TRY(tool_train_describe_adapters(train, problem));
    train->job.early_stop.patience = settings->patience;
    train->job.early_stop.data = settings->val_every ? tool_job_held_back_hash(&train->job) : 0;
    EO_TRY(tool_job_world_agree(&train->world, &train->job, &choices, problem));
    train->job.together = train->world.rendezvous ? &train->world : NULL;
    train->job.rank_timeout_s = train->world.silence_s;
    train->job.flight_folder = train->world.flight_folder;
    train->job.restart = train->world.environment.restart;
    if (!settings->common.plan_only)
        EO_TRY(tool_job_recorder_prepare(&train->job, problem));
    if (settings->export.path && !settings->common.plan_only && writes)
        EO_TRY(tool_train_check_export(train, problem));
    if (settings->common.plan_only)
        return EO_OK;
    EO_TRY(tool_gpu_watch_start(&train->watch, &settings->common, problem));
    train->watch.first_gpu = train->world.environment.rank - train->world.environment.local_rank;
    EO_TRY(tool_job_checkpoint_prepare(&train->checkpoints, &train->job, &settings->checkpoint, problem));
    if (train->checkpoints.resume_path[0])
        printf("resuming from %s, step %llu\n", train->checkpoints.resume_path, (unsigned long long)train->job.first_step);
    return EO_OK;
}

/* What another rank's failure led to here has been said: the failure itself. */
static void tell(struct train *train, const struct tool_problem *problem)
{
    if (!tool_job_world_was_told(&train->world))
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem->text);
}

static void print_plan(const struct tool_job *job)
{
    char words[TOOL_PLAN_WORDS_MAX];
    tool_job_plan_words(job, words);
    printf("settings: %s\n", words);
    eo_plan_print(job->plan, tool_write_to_stream, stdout);
}

static int train_main(struct train *train)
{
    struct tool_problem problem;
    if (prepare(train, &problem) < 0) {
        tool_job_world_fail(&train->world, EO_ERR_INVALID, problem.text);
        tell(train, &problem);
        return TOOL_EXIT_BAD_INPUT;
    }
    const bool is_first = train->world.environment.rank == 0; /* of processes: the plan is the same on all */
    if (is_first)
        tool_job_tell_model(&train->job);
    if (train->settings.common.plan_only) {
        if (is_first)
            print_plan(&train->job);
        return TOOL_EXIT_OK;
    }
    tool_warn_of_many_threads(&train->settings.common);
    const eo_status status = run(train, &problem);
    const bool logged = tool_run_logs_close(&train->logs) && !train->is_trace_lost;
    if (status < 0)
        tell(train, &problem);
    if (status < 0)
        return train->job.bad_input ? TOOL_EXIT_BAD_INPUT : TOOL_EXIT_FAILED;
    const bool saved = tool_job_checkpoint_verdict(&train->job, &problem) >= 0;
    if (!saved && is_first)
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
    if (train->export_problem.text[0])
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, train->export_problem.text);
    train->world.is_over = true;
    return saved && logged && !train->export_problem.text[0] ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    static struct train train;
    tool_process_spare_addresses();
    tool_options_init(&train.settings.common);
    train.settings.sample_count = SAMPLE_DEFAULT;
    struct tool_problem problem;
    if (tool_job_world_read(&train.world, &train.settings.common, &problem) < 0) {
        if (tool_told_first(train.world.environment.rank, problem.text))
            fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
        return TOOL_EXIT_BAD_INPUT;
    }
    train.settings.world = &train.world;
    tool_arguments_parse(&tool_train_argp, &(struct tool_arguments){.argc = argc, .argv = argv}, &train.settings);
    const int joined = tool_job_world_join(&train.world, &problem);
    if (joined < 0) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
        return joined == EO_ERR_COMM ? TOOL_EXIT_RANK_LOST : TOOL_EXIT_BAD_INPUT;
    }
    if (train.world.rendezvous && train.world.environment.rank != 0) /* files are rank 0's */
        train.settings.logs = (struct tool_run_log_paths){0};
    const int result = tool_job_world_leave(&train.world, train_main(&train));
    for (uint32_t r = 0; train.traces && r <= train.job.shape.rank_count; r++)
        free(train.traces[r].text);
    free(train.traces);
    tool_gpu_watch_fini(&train.watch);
    free(train.sample);
    eo_model_destroy(&train.adapters);
    eo_transformer_destroy(&train.unadapted);
    tool_job_fini(&train.job);
    tool_options_fini(&train.settings.common);
    return tool_output_end(result);
}
