/* SPDX-License-Identifier: MIT
 *
 * Trains a model, sharded over ranks, in memory placed before the first step. Ranks are threads of this process, or under a
 * launcher processes of one machine or several.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/shared/arguments.h"
#include "tools/interchange/adapters.h"
#include "tools/interchange/export/export.h"
#include "tools/run/budget.h"
#include "tools/run/machine/gpu_watch.h"
#include "tools/run/ranks/gather.h"
#include "tools/run/checkpoint/checkpoint.h"
#include "tools/run/machine/memory_check.h"
#include "tools/shared/overwrite.h"
#include "tools/run/reports/progress.h"
#include "tools/run/machine/processor.h"
#include "tools/run/reports/report.h"
#include "tools/run/reports/logs.h"
#include "tools/run/sample.h"
#include "tools/run/step.h"
#include "tools/run/reports/trace_merge.h"
#include "tools/shared/weights_hash.h"
#include "tools/run/ranks/world_threads.h"

enum train_key {
    TRAIN_VAL_EVERY = 0x200, TRAIN_PATIENCE, TRAIN_LOG, TRAIN_CSV, TRAIN_TENSORBOARD, TRAIN_TRACE, TRAIN_SAMPLE, TRAIN_PLAN,
    TRAIN_VAL_TOKENS, TRAIN_HASH, TRAIN_LORA, TRAIN_INIT_ADAPTER,
};
enum { PROMPT_TOKENS = 32, SAMPLE_DEFAULT = 160 };
static const double sample_temperature = 0.8;

static const struct argp_option train_options[] = {
    {"lora", TRAIN_LORA, "r=R,...", 0,
     "freeze the model, and train low-rank adapters beside linear layers of its blocks: r=16,alpha=32,targets=q_proj+v_proj, or a "
     "rank alone [alpha: 2 x rank; targets: all-linear]. --export then writes them in PEFT's format", 3},
    {"init-adapter", TRAIN_INIT_ADAPTER, "DIR", 0, "with --lora: start from these adapters, a folder of PEFT, on the --init weights", 3},
    {.doc = "Output:", .group = 4},
    {"val-every", TRAIN_VAL_EVERY, "N", 0, "loss on held-back data every N steps; of token files, the last tenth [never]", 4},
    {"patience", TRAIN_PATIENCE, "N", 0,
     "with --val-every: end early, when N losses on held-back data in a row are no lower than the lowest before [never]", 4},
    {"val-tokens", TRAIN_VAL_TOKENS, "FILE.bin", 0, "hold back this token file, and train on all of --tokens", 4},
    {"log", TRAIN_LOG, "FILE.jsonl", 0, "write the plan, a JSON object a step, and a summary", 4},
    {"csv", TRAIN_CSV, "FILE.csv", 0, "write a table with a row a step", 4},
    {"tensorboard", TRAIN_TENSORBOARD, "DIR", 0, "write an event file for TensorBoard in DIR", 4},
    {"trace", TRAIN_TRACE, "FILE.json", 0, "write the activity of both streams in the last steps, for Perfetto or Chrome", 4},
    {"sample", TRAIN_SAMPLE, "N", 0, "bytes (tokens) of text to generate at the end, 0: none [160]", 4},
    {"plan", TRAIN_PLAN, NULL, 0, "print the plan, and stop", 4},
    {"hash", TRAIN_HASH, "WHEN", 0, "print a hash of all weights at the end: on or off (slow for a large model) [on]", 4},
    {0},
};

struct train_settings {
    struct tool_options common;
    struct tool_export_settings export;
    struct tool_checkpoint_options checkpoint;
    uint64_t val_every, patience;
    uint32_t sample_count;
    bool no_hash;
    struct tool_run_log_paths logs;
    const char *trace_path;
    struct tool_job_world *world; /* of the train below */
};

struct train {
    struct train_settings settings;
    struct tool_job job;
    struct tool_job_world world;
    struct tool_job_checkpoints checkpoints;
    struct tool_progress progress;
    struct tool_run_logs logs;
    double *losses, *step_s, *host_s; /* of the steps that were run */
    uint64_t step_count, skipped_count;
    struct tool_trace_text *traces; /* by rank, and one of the GPUs */
    struct tool_gpu_watch watch;
    struct tool_budget_option chosen; /* by --budget */
    uint64_t weights_hash;
    struct tool_problem export_problem; /* "": the weights were exported, or nobody asked for it */
    int32_t *sample;
    uint32_t prompt_count, sample_made;
    eo_model *adapters;        /* of an export: NULL, or the adapters alone; */
    eo_transformer *unadapted; /* NULL, or the model without them */
    char base_path[PATH_MAX];
};

static volatile sig_atomic_t interrupted;

/* The first Ctrl-C ends after the current step; the second one ends at once. */
static void on_interrupt(int number)
{
    interrupted = 1;
    signal(number, SIG_DFL);
}

/* A file each. */
static void check_outputs(const struct argp_state *state, const struct train_settings *s)
{
    const struct tool_input outputs[] = {{"--log", s->logs.log},
                                         {"--csv", s->logs.csv},
                                         {"--trace", s->trace_path},
                                         {"--export", s->export.path},
                                         {"--product-cache", s->common.plan_cache}};
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++)
        for (size_t k = 0; k < i; k++)
            if (tool_overwrite_is_same(outputs[k].path, outputs[i].path))
                argp_error(state, "%s and %s both name %s; give them a file each", outputs[k].option, outputs[i].option,
                           outputs[i].path);
}

/* Options that say nothing where they are given. */
static void check_together(const struct argp_state *state, const struct train_settings *s)
{
    tool_options_check_mode(state, &s->common);
    if (s->common.plan.lora.rank && s->common.memory != EO_MEMORY_STATIC)
        argp_error(state, "--lora needs --memory static: frozen weights beside trained ones are planned");
    if (s->common.plan.lora.rank && s->common.plan.float8_gather)
        argp_error(state, "--lora with --gather float8: frozen weights beside trained ones are gathered in --dtype; leave it out");
    if (s->common.adapter_path && (!s->common.plan.lora.rank || !s->common.init_path))
        argp_error(state, "--init-adapter needs --lora and --init: adapters stand beside a model's weights");
    if (s->export.merged && !s->common.plan.lora.rank)
        argp_error(state, "--export-merged needs --lora: without adapters the whole model is exported anyway");
    if (s->common.val_tokens_path && !s->common.tokens_paths)
        argp_error(state, "--val-tokens needs --tokens; of --text the last tenth is held back");
    if (s->common.val_tokens_path && !s->val_every)
        argp_error(state, "--val-tokens needs --val-every N, the number of steps between its losses");
    if (s->patience && !s->val_every)
        argp_error(state, "--patience needs --val-every N, the number of steps between the losses that it counts");
    const char *idle = s->world->collectives ? "--collectives" : s->world->join_s > 0 ? "--join-timeout"
                       : s->world->insecure  ? "--insecure" : NULL;
    if (idle && !s->world->environment.launcher && !s->world->environment.is_alone)
        argp_error(state, "%s needs ranks as processes (launch -n N, mpirun, srun, torchrun); these are threads of one process",
                   idle);
}

static error_t parse_train_option(int key, char *text, struct argp_state *state)
{
    struct train_settings *settings = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &settings->common;
        state->child_inputs[1] = &settings->export;
        state->child_inputs[2] = &settings->checkpoint;
        state->child_inputs[3] = settings->world;
        return 0;
    case TRAIN_VAL_EVERY:
        settings->val_every = tool_option_count(state, "val-every", text, 1, 1000000000);
        return 0;
    case TRAIN_PATIENCE:
        settings->patience = tool_option_count(state, "patience", text, 1, 1000000000);
        return 0;
    case TRAIN_LORA: tool_option_lora(state, text, &settings->common.plan.lora); return 0;
    case TRAIN_INIT_ADAPTER: settings->common.adapter_path = text; return 0;
    case TRAIN_VAL_TOKENS: settings->common.val_tokens_path = text; return 0;
    case TRAIN_LOG: settings->logs.log = text; return 0;
    case TRAIN_CSV: settings->logs.csv = text; return 0;
    case TRAIN_TENSORBOARD: settings->logs.tensorboard = text; return 0;
    case TRAIN_TRACE: settings->trace_path = text; return 0;
    case TRAIN_SAMPLE:
        settings->sample_count = (uint32_t)tool_option_count(state, "sample", text, 0, 1 << 20);
        return 0;
    case TRAIN_HASH:
        settings->no_hash = tool_option_choice(state, "hash", text, "on", "off");
        return 0;
    case TRAIN_PLAN: settings->common.plan_only = true; return 0;
    case ARGP_KEY_END:
        settings->common.saves = settings->checkpoint.folder != NULL;
        if (!settings->common.offload_folder)
            settings->common.offload_folder = settings->checkpoint.folder;
        check_outputs(state, settings);
        check_together(state, settings);
        if (settings->trace_path && !tool_option_given(&settings->common, "graph-times"))
            settings->common.graph_times = true;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- while it runs ------------------------------------------------------------------------------------------------ */

static eo_status on_begin(void *user, struct tool_problem *problem)
{
    struct train *train = user;
    EO_TRY(tool_run_logs_open(&train->logs, &train->settings.logs, &train->job, problem));
    tool_report_start(&train->job);
    const bool is_in_place = !tool_options_on_gpu(train->job.options) && train->job.options->plan.offload_layers > 0;
    if (train->settings.checkpoint.folder && is_in_place)
        printf("checkpoints in %s: written from memory and disk as they are, without a copy\n", train->settings.checkpoint.folder);
    else if (train->settings.checkpoint.folder)
        printf("checkpoints in %s: a copy of %.1f MiB a rank in host memory, beside the plan\n",
               train->settings.checkpoint.folder,
               (double)eo_saver_bytes(train->job.plan, 0, TOOL_JOB_SETTINGS_MAX) / (1 << 20));
    tool_gpu_watch_from_now(&train->watch);
    tool_progress_begin(&train->progress, &train->job);
    return EO_OK;
}

static void on_step(void *user, const struct tool_job_step *step)
{
    struct train *train = user;
    const double step_s = (double)step->step_ns * 1e-9;
    train->skipped_count = step->skipped_count;
    train->losses[train->step_count] = step->loss;
    train->host_s[train->step_count] = (double)step->host_ns * 1e-9;
    train->step_s[train->step_count++] = step_s;
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

static struct tool_export_model export_model(const struct train *train)
{
    const struct tool_job *job = &train->job;
    const eo_transformer_params *params = eo_transformer_get_params(job->transformer);
    return (struct tool_export_model){
        .model = train->adapters ? train->adapters : eo_transformer_model(train->unadapted ? train->unadapted : job->transformer),
        .config = params->config,
        .origin = job->model_config ? job->model_config : job->import.model_config,
        .lora = params->lora.rank ? &params->lora : NULL,
        .merged = train->settings.export.merged,
        .base = train->base_path[0] ? train->base_path : NULL};
}

/* What an export with adapters has to describe: them alone, or the model without them. */
static eo_status describe_adapters(struct train *train, struct tool_problem *problem)
{
    const struct tool_job *job = &train->job;
    eo_transformer_params params = *eo_transformer_get_params(job->transformer);
    if (!train->settings.export.path || !params.lora.rank)
        return EO_OK;
    params.lora = (eo_lora){.rank = 0};
    const eo_status status = train->settings.export.merged
                                 ? eo_transformer_create(&train->unadapted, &params)
                                 : tool_adapters_model(&train->adapters, eo_transformer_model(job->transformer));
    if (job->options->init_path && !realpath(job->options->init_path, train->base_path))
        train->base_path[0] = '\0';
    return status < 0 ? tool_problem_set(problem, status, "--export %s: %s", train->settings.export.path, eo_status_text(status))
                      : EO_OK;
}

static eo_status sum_over_ranks(void *rank, double *value)
{
    return tool_job_sum(rank, value);
}

/* What cannot be written is told at the end, with what the run came to. */
static eo_status export_weights(struct train *train, struct tool_job_rank *rank)
{
    struct tool_problem problem;
    const struct tool_export_model model = export_model(train);
    const struct tool_export_meeting meeting = {sum_over_ranks, rank};
    const eo_status status =
        tool_export_weights(&train->settings.export, &model, rank->runtime, rank->rank == 0, &meeting, &problem);
    if (status >= 0 || rank->rank != 0 || status == EO_ERR_COMM || status == EO_ERR_TIMEOUT)
        return status;
    train->export_problem = problem;
    return EO_OK;
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
        EO_TRY(export_weights(train, rank));
    rank->resident_bytes = tool_process_resident_peak(); /* of the training: a sample takes memory of its own */
    /* Who stops a run does not want to wait for a sample. */
    return train->settings.sample_count && !rank->stopped ? take_sample(train, rank) : EO_OK;
}

/* --- afterwards --------------------------------------------------------------------------------------------------- */

/* Seconds of a step that compute stood still: mean over ranks and the steps after the first. */
static double mean_wait_s(const struct tool_job *job, eo_wait wait)
{
    double seconds = 0, steps = 0;
    for (uint32_t r = 0; r < job->told_count; r++) {
        const struct tool_job_rank *rank = &job->ranks[r];
        seconds += (double)(rank->last.wait_ns[wait] - rank->first.wait_ns[wait]) * 1e-9;
        steps += (double)(rank->last.steps - rank->first.steps);
    }
    return steps > 0 ? seconds / steps : 0;
}

static void write_waits(struct eo_json *json, const struct tool_job *job)
{
    static const char *const causes[EO_WAIT_COUNT] = {
        [EO_WAIT_ALL_GATHER] = "all_gather",
        [EO_WAIT_REDUCE_SCATTER] = "reduce_scatter",
        [EO_WAIT_NORM] = "norm",
        [EO_WAIT_FETCH] = "fetch",
    };
    eo_json_write(json, "'wait_s': {");
    for (int w = 0; w < EO_WAIT_COUNT; w++)
        eo_json_write(json, "%s: %g", causes[w], mean_wait_s(job, (eo_wait)w));
    eo_json_write(json, "}");
}

/* What the allocators and the collectives of rank 0 did: peaks, and means over the steps after the first. */
static void write_traffic(struct eo_json *json, const struct tool_job_rank *rank)
{
    const eo_runtime_stats *first = &rank->first, *last = &rank->last;
    const double steps = last->steps > first->steps ? (double)(last->steps - first->steps) : 1;
    eo_json_write(
        json,
        "'traffic': {'live_peak_bytes': %" PRIu64 ", 'reserved_peak_bytes': %" PRIu64
        ", 'allocated_bytes_per_step': %g, 'copied_bytes_per_step': %g, 'cast_bytes_per_step': %g,"
        "'collectives_per_step': %g, 'collective_bytes_per_step': %g}",
        last->live_peak_bytes, last->reserved_peak_bytes, (double)(last->allocated_bytes - first->allocated_bytes) / steps,
        (double)(last->copied_bytes - first->copied_bytes) / steps, (double)(last->cast_bytes - first->cast_bytes) / steps,
        (double)(last->collective_count - first->collective_count) / steps,
        (double)(last->collective_bytes - first->collective_bytes) / steps);
}

static double storage_bytes_per_step(const struct tool_job_rank *rank)
{
    const double steps = (double)(rank->last.steps - rank->first.steps);
    return steps > 0 ? (double)(rank->last.storage_bytes - rank->first.storage_bytes) / steps : 0;
}

/* `predicted_step_s` is null where nothing was predicted. */
static void write_offloading(struct eo_json *json, const struct train *train)
{
    const struct tool_job *job = &train->job;
    eo_json_write(json, "'predicted_step_s': %g, 'disk_bytes': %" PRIu64 ", 'io_bytes_per_step': %g, 'exposed_io_s': %g",
                  train->chosen.step_s > 0 ? train->chosen.step_s : NAN, job->summary.space_bytes[EO_SPACE_DISK],
                  storage_bytes_per_step(&job->ranks[0]), mean_wait_s(job, EO_WAIT_FETCH));
}

static void write_summary(struct train *train, double step_s_median, double host_s_median, uint64_t resident_peak_bytes)
{
    const struct tool_job *job = &train->job;
    const struct tool_early_stop *early = &job->ranks[0].early_stop;
    uint64_t arena = 0, calls = 0, steps = 0;
    for (uint32_t r = 0; r < job->told_count; r++) {
        const struct tool_job_rank *rank = &job->ranks[r];
        arena = rank->last.arena_bytes > arena ? rank->last.arena_bytes : arena;
        if (rank->step_count > 1 && rank->last.allocator_calls - rank->first.allocator_calls > calls)
            calls = rank->last.allocator_calls - rank->first.allocator_calls;
        steps = rank->step_count;
    }
    char hash[32];
    snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)train->weights_hash);
    const double calls_per_step = steps > 1 ? (double)calls / (double)(steps - 1) : 0;
    printf("weights_hash %s, %.0f allocator calls of evenodd a step\n", train->settings.no_hash ? "off" : hash, calls_per_step);
    struct eo_json line = tool_step_log_line(&train->logs.log);
    eo_json_write(&line,
                  "{'summary': {'weights_hash': %s, 'arena_bytes': %" PRIu64 ", 'planned_bytes': %" PRIu64
                  ", 'lower_bound_bytes': %" PRIu64 ", 'peak_rss_bytes': %" PRIu64 ", 'allocator_calls_per_step': %g,"
                  "'tokens_per_s': %g, 'step_s_median': %g, 'host_s_median': %g, 'peak_flops_per_s': %g, 'peak_share': %g",
                  train->settings.no_hash ? NULL : hash, arena, job->summary.arena_bytes, job->summary.lower_bound_bytes,
                  resident_peak_bytes, calls_per_step, step_s_median > 0 ? (double)tool_step_tokens(job) / step_s_median : 0,
                  step_s_median, host_s_median, job->peak_flops_per_s, tool_peak_share(job, step_s_median));
    write_waits(&line, job);
    write_traffic(&line, &job->ranks[0]);
    write_offloading(&line, train);
    eo_json_write(&line,
                  "'steps': %" PRIu64 ", 'skipped_steps': %" PRIu64 ", 'interrupted': %i, 'ended_early': %i, 'lowest_validation_loss': %g,"
                  "'lowest_validation_step': %" PRIu64 ", 'device_planned_bytes': %" PRIu64
                  ", 'device_outside_bytes': %" PRIu64 ", 'device_peak_bytes': %" PRIu64 "}}",
                  steps, train->skipped_count, job->ranks[0].stopped, tool_early_stop_is_due(early), early->lowest_step ? early->lowest_loss : NAN,
                  early->lowest_step, job->gpu.planned_bytes, tool_gpu_outside_bytes(&job->gpu), job->gpu.used_bytes);
    tool_step_log_end(&train->logs.log);
}

/* Without the first step, which finds everything cold, where there are others. */
static double median_of_steps(const struct train *train, const double *seconds)
{
    const uint64_t skipped = train->step_count > 1;
    const uint64_t count = train->step_count - skipped;
    double *copy = malloc((count ? count : 1) * sizeof(*copy));
    if (!copy)
        return 0;
    memcpy(copy, seconds + skipped, count * sizeof(*copy));
    const double median = tool_median(copy, count);
    free(copy);
    return median;
}

/* Every rank comes here, if rank 0 was asked for a trace. */
static void write_trace(struct train *train)
{
    struct tool_problem problem;
    struct tool_job *job = &train->job;
    const char *path = train->settings.trace_path ? train->settings.trace_path : "";
    uint32_t count = train->traces ? job->here_count : 0;
    if (count && train->watch.profile && tool_gpu_watch_trace(&train->watch, &train->traces[count]) >= 0)
        count++;
    if (tool_job_write_trace(job, train->traces, count, path, &problem) < 0)
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
    else
        printf("trace in %s%s: open it with https://ui.perfetto.dev or chrome://tracing\n", path,
               job->together && job->shape.rank_count > TOOL_TRACE_RANKS_MAX ? ", of rank 0 alone: the ranks are many" : "");
}

static void report_sample(const struct train *train)
{
    tool_report_sample(train->sample, train->prompt_count, train->sample_made, train->job.data.is_text,
                       &train->job.tokenizer);
    if (train->sample_made < train->settings.sample_count)
        printf("interrupted after %u of %u token%s\n", train->sample_made, train->settings.sample_count,
               train->settings.sample_count == 1 ? "" : "s");
}

static void report_early_stop(const struct train *train)
{
    const struct tool_early_stop *early = &train->job.ranks[0].early_stop;
    printf("\nended early after step %" PRIu64 " of %" PRIu64 ": %" PRIu64 " losses on held-back data in a row were no lower "
           "than %.4f, of step %" PRIu64 "\n", early->seen_step, train->settings.common.steps, early->since_lowest,
           early->lowest_loss, early->lowest_step);
}

static void report(struct train *train)
{
    const double step_s_median = median_of_steps(train, train->step_s);
    const double host_s_median = median_of_steps(train, train->host_s);
    uint64_t resident_peak_bytes = 0;
    const bool traces = tool_job_gather_figures(&train->job, train->traces);
    for (uint32_t r = 0; r < train->job.told_count; r++) /* pages that processes share are counted in each: no sum */
        if (train->job.ranks[r].resident_bytes > resident_peak_bytes)
            resident_peak_bytes = train->job.ranks[r].resident_bytes;
    if (train->job.ranks[0].stopped)
        printf("\ninterrupted after step %llu of %llu\n", (unsigned long long)(train->job.first_step + train->step_count),
               (unsigned long long)train->settings.common.steps);
    if (tool_early_stop_is_due(&train->job.ranks[0].early_stop))
        report_early_stop(train);
    if (train->skipped_count)
        printf("\n%llu steps were not finite, and skipped\n", (unsigned long long)train->skipped_count);
    tool_report_loss(train->losses, train->step_count);
    tool_report_memory(&train->job, resident_peak_bytes);
    tool_report_time(&train->job, step_s_median, host_s_median);
    tool_gpu_watch_print(&train->watch, stdout);
    if (train->sample)
        report_sample(train);
    printf("\n");
    write_summary(train, step_s_median, host_s_median, resident_peak_bytes);
    if (train->settings.export.path && !train->export_problem.text[0])
        printf("weights exported to %s\n", train->settings.export.path);
    if (traces)
        write_trace(train);
}

static eo_status run(struct train *train, struct tool_problem *problem)
{
    const struct train_settings *settings = &train->settings;
    struct tool_job *job = &train->job;
    train->losses = calloc(settings->common.steps, sizeof(*train->losses));
    train->step_s = calloc(settings->common.steps, sizeof(*train->step_s));
    train->host_s = calloc(settings->common.steps, sizeof(*train->host_s));
    if (settings->trace_path)
        train->traces = calloc(job->shape.rank_count + 1, sizeof(*train->traces));
    if (!train->losses || !train->step_s || !train->host_s || (settings->trace_path && !train->traces))
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "no memory for the losses of %llu steps",
                                (unsigned long long)settings->common.steps);
    job->stop = &interrupted;
    job->tells = true;
    job->reports_late = tool_options_on_gpu(&settings->common);
    job->hooks = (struct tool_job_hooks){
        .user = train, .begin = on_begin, .step = on_step, .validation = on_validation, .saved = on_saved, .end = on_end};
    const struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    const eo_status status = tool_job_run(job, problem);
    tool_gpu_watch_stop(&train->watch);
    if (status < 0)
        tool_progress_end(&train->progress);
    else
        report(train);
    return status;
}

/* Everything is checked before anything is written. */
static eo_status check_export(const struct train *train, struct tool_problem *problem)
{
    const struct tool_export_model model = export_model(train);
    return tool_export_check(&train->settings.export, &model, problem);
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
    const struct tool_job_choices choices = {
        .checkpoint = &settings->checkpoint, .export_path = settings->export.path, .sample_count = settings->sample_count};
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
    EO_TRY(describe_adapters(train, problem));
    train->job.early_stop.patience = settings->patience;
    EO_TRY(tool_job_world_agree(&train->world, &train->job, &choices, problem));
    train->job.together = train->world.rendezvous ? &train->world : NULL;
    train->job.rank_timeout_s = train->world.silence_s;
    train->job.flight_folder = train->world.flight_folder;
    train->job.restart = train->world.environment.restart;
    if (!settings->common.plan_only)
        EO_TRY(tool_job_recorder_prepare(&train->job, problem));
    if (settings->export.path && !settings->common.plan_only && writes)
        EO_TRY(check_export(train, problem));
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
    tool_run_logs_close(&train->logs);
    if (status < 0)
        tell(train, &problem);
    if (status < 0)
        return train->job.bad_input ? TOOL_EXIT_BAD_INPUT : TOOL_EXIT_FAILED;
    const bool saved = tool_job_checkpoint_verdict(&train->job, &problem) >= 0;
    if (!saved && is_first)
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
    if (train->export_problem.text[0])
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, train->export_problem.text);
    train->world.ends_alike = !saved;
    return saved && !train->export_problem.text[0] ? TOOL_EXIT_OK : TOOL_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    static struct train train;
    const struct argp_child children[] = {{.argp = &tool_options_argp},
                                          {.argp = &tool_export_argp},
                                          {.argp = &tool_checkpoint_argp},
                                          {.argp = &tool_job_world_argp},
                                          {0}};
    const struct argp argp = {
        .options = train_options, .parser = parse_train_option, .children = children,
        .doc = "Trains a GPT, sharded over ranks, in memory placed before the first step.",
    };
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the call that meets it */
    tool_options_init(&train.settings.common);
    train.settings.sample_count = SAMPLE_DEFAULT;
    struct tool_problem problem;
    if (tool_job_world_read(&train.world, &train.settings.common, &problem) < 0) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.text);
        return TOOL_EXIT_BAD_INPUT;
    }
    train.settings.world = &train.world;
    tool_arguments_parse(&argp, &(struct tool_arguments){.argc = argc, .argv = argv}, &train.settings);
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
    free(train.losses);
    free(train.step_s);
    free(train.host_s);
    free(train.sample);
    eo_model_destroy(&train.adapters);
    eo_transformer_destroy(&train.unadapted);
    tool_job_fini(&train.job);
    tool_options_fini(&train.settings.common);
    return tool_output_end(result);
}
