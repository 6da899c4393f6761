/* SPDX-License-Identifier: MIT */
#include "tools/run/reports/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "tools/run/checkpoint/checkpoint.h"

enum { RECENT = sizeof(((struct tool_progress *)NULL)->recent_ns) / sizeof(uint64_t) };
static const uint64_t plain_interval_ns = 5000000000u, terminal_interval_ns = 100000000u;

uint64_t tool_step_tokens(const struct tool_job *job)
{
    const struct tool_batch_shape *shape = &job->shape;
    return (uint64_t)shape->rank_count * shape->batch * shape->seq * shape->micro_batches;
}

uint64_t tool_step_inputs(const struct tool_job *job)
{
    const struct tool_packing *packing = &job->data.training;
    const double rows = (double)packing->row_count * job->shape.seq;
    const double share = job->data.is_packed ? (double)packing->input_count / rows : 1;
    return (uint64_t)((double)tool_step_tokens(job) * share + 0.5);
}

double tool_peak_share(const struct tool_job *job, double step_s)
{
    const double flops = eo_transformer_flops(job->transformer) * job->shape.micro_batches * job->shape.rank_count;
    const double share = job->peak_flops_per_s > 0 && step_s > 0 ? flops / step_s / job->peak_flops_per_s : 0;
    return share <= 1 ? share : 0; /* the machine was busy when its peak was measured */
}

void tool_progress_begin(struct tool_progress *progress, const struct tool_job *job)
{
    *progress = (struct tool_progress){.job = job, .terminal = isatty(STDOUT_FILENO) == 1};
}

static double recent_step_s(const struct tool_progress *progress)
{
    const uint64_t count = progress->count < RECENT ? progress->count : RECENT;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += progress->recent_ns[i];
    return count ? (double)sum * 1e-9 / (double)count : 0;
}

/* "1:02:03" or "2:03". */
static void print_duration(double seconds)
{
    const unsigned long long s = (unsigned long long)(seconds + 0.5);
    if (s >= 3600)
        printf("%llu:%02llu:%02llu", s / 3600, s / 60 % 60, s % 60);
    else
        printf("%llu:%02llu", s / 60, s % 60);
}

static void print_line(struct tool_progress *progress, const struct tool_job_step *step)
{
    const struct tool_job *job = progress->job;
    const double step_s = recent_step_s(progress), share = tool_peak_share(job, step_s);
    printf("step %5llu / %llu   loss %7.4f   %8.0f tokens/s", (unsigned long long)step->step,
           (unsigned long long)job->options->steps, step->loss, (double)tool_step_inputs(job) / step_s);
    if (share > 0)
        printf("   %3.0f %% of peak", 100 * share);
    if (step->skipped_count)
        printf("   skipped %llu", (unsigned long long)step->skipped_count);
    fputs("   left ", stdout);
    print_duration(step_s * (double)(job->options->steps - step->step));
}

void tool_progress_step(struct tool_progress *progress, const struct tool_job_step *step)
{
    progress->recent_ns[progress->count++ % RECENT] = step->step_ns;
    const uint64_t now_ns = tool_now_ns();
    const bool edge = progress->count == 1 || step->step == progress->job->options->steps;
    if (!edge && now_ns - progress->shown_ns < (progress->terminal ? terminal_interval_ns : plain_interval_ns))
        return;
    progress->shown_ns = now_ns;
    if (progress->terminal)
        fputs("\r", stdout);
    print_line(progress, step);
    fputs(progress->terminal ? "\033[K" : "\n", stdout);
    fflush(stdout);
}

void tool_progress_validation(struct tool_progress *progress, uint64_t step, double loss)
{
    if (progress->terminal)
        fputs("\r\033[K", stdout);
    printf("step %5llu / %llu   validation loss %.4f (held-back text)\n", (unsigned long long)step,
           (unsigned long long)progress->job->options->steps, loss);
    fflush(stdout);
}

void tool_progress_saved(struct tool_progress *progress, const struct tool_job_saved *saved)
{
    if (progress->terminal)
        fputs("\r\033[K", stdout);
    printf("step %5llu / %llu   saved: %.1f MiB a rank; the step lost %.1f ms, written beside training in %.0f ms\n",
           (unsigned long long)saved->step, (unsigned long long)progress->job->options->steps,
           (double)saved->file_bytes / (1 << 20), (double)saved->lost_ns * 1e-6, (double)saved->write_ns * 1e-6);
    fflush(stdout);
}

void tool_progress_end(struct tool_progress *progress)
{
    if (progress->terminal && progress->count)
        fputs("\n", stdout);
    fflush(stdout);
}
