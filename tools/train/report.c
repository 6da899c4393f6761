/* SPDX-License-Identifier: MIT
 *
 * What a run came to: printed, and as the log's summary.
 */
#include "tools/train/train.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "tools/run/ranks/gather.h"
#include "tools/run/reports/report.h"
#include "tools/run/step.h"

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
                  resident_peak_bytes, calls_per_step, step_s_median > 0 ? (double)tool_step_inputs(job) / step_s_median : 0,
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

/* Every rank comes here, if rank 0 was asked for a trace. */
static void write_trace(struct train *train)
{
    struct tool_problem problem;
    struct tool_job *job = &train->job;
    const char *path = train->settings.trace_path ? train->settings.trace_path : "";
    uint32_t count = train->traces ? job->here_count : 0;
    if (count && train->watch.profile && tool_gpu_watch_trace(&train->watch, &train->traces[count]) >= 0)
        count++;
    train->is_trace_lost = tool_job_write_trace(job, train->traces, count, path, &problem) < 0;
    if (train->is_trace_lost)
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

void tool_train_report(struct train *train)
{
    const double step_s_median = tool_course_step_s(&train->course);
    const double host_s_median = tool_course_host_s(&train->course);
    uint64_t resident_peak_bytes = 0;
    const bool traces = tool_job_gather_figures(&train->job, train->traces);
    for (uint32_t r = 0; r < train->job.told_count; r++) /* pages that processes share are counted in each: no sum */
        if (train->job.ranks[r].resident_bytes > resident_peak_bytes)
            resident_peak_bytes = train->job.ranks[r].resident_bytes;
    if (train->job.ranks[0].stopped)
        printf("\ninterrupted after step %llu of %llu\n",
               (unsigned long long)(train->job.first_step + train->course.step_count),
               (unsigned long long)train->settings.common.steps);
    if (tool_early_stop_is_due(&train->job.ranks[0].early_stop))
        report_early_stop(train);
    if (train->skipped_count)
        printf("\n%llu steps were not finite, and skipped\n", (unsigned long long)train->skipped_count);
    tool_report_loss(&train->course, train->job.first_step);
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
