/* SPDX-License-Identifier: MIT */
#include "tools/run/reports/report.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"
#include "tools/run/checkpoint/checkpoint.h"
#include "tools/run/reports/progress.h"
#include "tools/planning/reduction_text.h"

enum { CURVE_COLUMNS = 64, CURVE_ROWS = 12, BAR_COLUMNS = 40 };

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double tool_median(double *values, uint64_t count)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof(*values), by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* What is trained on, and what is held back. */
static void report_data(const struct tool_job *job)
{
    const struct tool_data *data = &job->data;
    const struct tool_options *o = job->options;
    const unsigned long long held_back = data->count - data->training_count;
    const char *files = data->file_count == 1 ? "" : "s";
    if (data->is_text) {
        printf("data: %.2f MiB of text in %u file%s, the last tenth held back", mib(data->count), data->file_count, files);
        if (job->config.vocabulary > 256)
            printf("; bytes: 256 of the model's %u words; --tokens takes files of its tokens", job->config.vocabulary);
        printf("\n");
        return;
    }
    printf("data: %s", o->tokens_paths[0]);
    if (data->file_count > 1)
        printf(" and %u more file%s", data->file_count - 1, data->file_count == 2 ? "" : "s");
    printf(", %llu token%s to train on", (unsigned long long)data->training_count, tool_plural(data->training_count));
    if (data->is_packed)
        printf(", %llu document%s in %llu row%s, %.1f %% padding", (unsigned long long)data->training.document_count,
               tool_plural(data->training.document_count), (unsigned long long)data->training.row_count,
               tool_plural(data->training.row_count),
               100 - 100.0 * (double)data->training.input_count / (double)(data->training.row_count * job->shape.seq));
    if (data->is_held_apart)
        printf("; held back: %s, %llu token%s\n", o->val_tokens_path, held_back, tool_plural(held_back));
    else if (held_back)
        printf("; the last tenth, %llu token%s, held back for --val-every (--val-tokens gives them a file)\n", held_back,
               tool_plural(held_back));
    else
        printf(", all of them\n");
}

static void report_bf16(const struct tool_job *job)
{
    const double gain = job->bf16_gain;
    if (!tool_job_would_gain_by_bf16(job))
        return;
    if (gain > 0)
        printf("bf16: this processor has %s; with --dtype bf16 its largest product takes %.2f of the time\n", eo_kernels_name(),
               1 / gain);
    else
        printf("bf16: this processor has %s, which --dtype bf16 uses\n", eo_kernels_name());
}

static const char *steps_text(const struct tool_job *job)
{
    const struct tool_options *o = job->options;
    if (!o->plan.graph)
        return "operation by operation";
    if (job->val_every == 1)
        return "operation by operation, for a validation follows each";
    if (job->checkpoints && job->checkpoints->options->every == 1)
        return "as a rule operation by operation, for a checkpoint follows each";
    return "as a graph after the first";
}

void tool_report_start(const struct tool_job *job)
{
    const struct tool_options *o = job->options;
    const eo_plan_summary *s = &job->summary;
    printf("%s: %.2f million parameters, %u rank%s x %u thread%s, memory %s, kernels %s\n", o->model_name,
           (double)s->element_count * 1e-6, o->plan.ranks, tool_plural(o->plan.ranks), o->plan.threads,
           tool_plural(o->plan.threads),
           tool_memory_name(o->memory), eo_transformer_kernels(job->transformer));
    tool_tell_quota(o);
    char strategy[32], reduced[96];
    tool_strategy_text(o->plan.strategy, o->plan.shard_group, strategy, sizeof(strategy));
    if (o->plan.strategy != EO_STRATEGY_ZERO3)
        printf("strategy %s: a copy of the weights lies in groups of %u rank%s\n", strategy, s->params.shard_group,
               s->params.shard_group == 1 ? "" : "s");
    tool_reduction_text(job->plan, reduced, sizeof(reduced));
    if (tool_options_on_gpu(o) || o->plan.dtype != EO_DTYPE_FP32 || o->plan.reduce_dtype != EO_DTYPE_FP32 || o->plan.float8_frozen)
        printf("device %s, computed in %s, %s%s%sreduced in %s, steps %s\n", o->plan.device, eo_dtype_name(o->plan.dtype),
               o->plan.fp32_norms ? "norms in fp32, " : "",
               o->plan.float8_products ? "blocks' forward products in float8, " : "",
               o->plan.float8_gather   ? "gathered in float8, "
               : o->plan.float8_frozen ? "blocks' frozen matrices in mxfp8, "
                                       : "",
               reduced,
               steps_text(job));
    report_data(job);
    printf("step: %u sequence%s x %u token%s a rank, %u micro-batch%s: %llu token%s\n", job->shape.batch,
           tool_plural(job->shape.batch), job->shape.seq, tool_plural(job->shape.seq), job->shape.micro_batches,
           job->shape.micro_batches == 1 ? "" : "es", (unsigned long long)tool_step_tokens(job),
           tool_plural(tool_step_tokens(job)));
    printf("plan: %.1f MiB a rank (lower bound %.1f), %u operations a step, proven\n", mib(s->arena_bytes),
           mib(s->lower_bound_bytes), s->operation_count);
    if (s->space_bytes[EO_SPACE_DISK] && tool_options_on_gpu(o))
        printf("offload: %.1f MiB a rank in pinned memory of the host, copied to and from the GPU once a step\n",
               mib(s->space_bytes[EO_SPACE_DISK]));
    else if (s->space_bytes[EO_SPACE_DISK])
        printf("offload: %.1f MiB a rank on disk in %s, read and written once a step\n", mib(s->space_bytes[EO_SPACE_DISK]),
               o->offload_folder ? o->offload_folder : "the current folder");
    if (job->peak_flops_per_s > 0)
        printf("peak of the step's own matrix products, all ranks at once: %.0f GFLOP/s\n",
               job->peak_flops_per_s * 1e-9);
    report_bf16(job);
    if (!tool_options_on_gpu(o) && strcmp(eo_kernels_at(0), "plain") == 0)
        printf("kernels: plain, those for any processor; faster ones are for x86-64 with AVX2 or AVX-512\n");
    if (strcmp(eo_transformer_kernels(job->transformer), "reference") == 0 && strcmp(eo_kernels_name(), "reference") != 0)
        printf("kernels: those in plain C, a few times slower, for no others write gradients in bf16 beside fp32; give --dtype "
               "bf16 "
               "or --reduce fp32\n");
    fflush(stdout);
}

/* Of steps that counted; NAN: of none. */
static double mean_of_finite(const double *losses, uint64_t begin, uint64_t end)
{
    double sum = 0;
    uint64_t count = 0;
    for (uint64_t i = begin; i < end; i++) {
        sum += isfinite(losses[i]) ? losses[i] : 0;
        count += isfinite(losses[i]);
    }
    return count ? sum / (double)count : NAN;
}

/* Each column stands for the mean of some steps. */
void tool_report_loss(const struct tool_course *course, uint64_t first_step)
{
    const uint64_t count = course->step_count, points = course->point_count;
    if (count == 0)
        return;
    const uint64_t columns = points < CURVE_COLUMNS ? points : CURVE_COLUMNS;
    double mean[CURVE_COLUMNS], low = INFINITY, high = -INFINITY;
    for (uint64_t c = 0; c < columns; c++) {
        mean[c] = mean_of_finite(course->losses, c * points / columns, (c + 1) * points / columns);
        low = fmin(low, mean[c]); /* of numbers alone */
        high = fmax(high, mean[c]);
    }
    printf("\nloss: %.4f in the first step, %.4f at the end%s\n", course->first_loss, tool_course_last_loss(course),
           count < TOOL_COURSE_LAST ? "" : " (mean of 10 steps)"); /* a single step's loss says little */
    const double height = high > low ? high - low : 1;
    for (int row = CURVE_ROWS - 1; row >= 0; row--) {
        printf("  %7.3f |", low + height * row / (CURVE_ROWS - 1));
        int used = 0, last = 0;
        char line[CURVE_COLUMNS + 1];
        for (uint64_t c = 0; c < columns; c++) {
            const bool here = isfinite(mean[c]) && (int)lround((mean[c] - low) / height * (CURVE_ROWS - 1)) == row;
            line[used++] = here ? '*' : ' ';
            last = here ? used : last;
        }
        printf(" %.*s\n", last, line);
    }
    char first[32], last[32];
    const int used = snprintf(first, sizeof(first), "step %llu", (unsigned long long)first_step + 1);
    const int digits = snprintf(last, sizeof(last), "%llu", (unsigned long long)(first_step + count));
    const int room = (int)columns + 1 - used;
    printf("          +");
    for (uint64_t c = 0; c <= columns; c++)
        putchar('-');
    printf("\n           %s%*s\n", first, room > digits ? room : digits + 1, last);
}

static void print_bar(double share)
{
    const int length = (int)lround(share * BAR_COLUMNS);
    for (int i = 0; i < length; i++)
        putchar('#');
    putchar('\n');
}

static void report_gpu_memory(const struct tool_job *job)
{
    const struct tool_gpu_memory *gpu = &job->gpu;
    const uint64_t outside = tool_gpu_outside_bytes(gpu);
    printf("memory of GPU 0:\n");
    printf("  %-24s %10.2f MiB of all ranks on it\n", "planned", mib(gpu->planned_bytes));
    printf("  %-24s %10.2f MiB before the ranks began: CUDA's context and kernels, other processes\n", "outside the plan",
           mib(gpu->start_bytes));
    if (tool_options_gpu_ranks(job->options, job->device.device_count) == 1)
        printf("  %-24s %10.2f MiB for communicators, and for their first runs\n", "", mib(gpu->communicator_bytes));
    printf("  %-24s %10.2f MiB for the libraries of products and attention, with workspace\n", "", mib(gpu->team_bytes));
    printf("  %-24s %10.2f MiB at most, by its driver", "in use", mib(gpu->used_bytes));
    if (job->options->memory == EO_MEMORY_STATIC)
        printf("; planned and outside are %.2f %% of it",
               100 * (double)(gpu->planned_bytes + outside) / (double)gpu->used_bytes);
    printf("\n");
}

void tool_report_memory(const struct tool_job *job, uint64_t resident_peak_bytes)
{
    const eo_plan_summary *s = &job->summary;
    printf("\nlive memory of a rank at its peak (%s):\n",
           job->options->memory == EO_MEMORY_STATIC ? "all of it placed before the first step"
                                                    : "as planned; the dynamic mode takes memory on demand");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++) {
        if (!s->category_bytes_at_peak[c])
            continue;
        printf("  %-24s %10.2f MiB  ", eo_category_name((eo_category)c), mib(s->category_bytes_at_peak[c]));
        print_bar((double)s->category_bytes_at_peak[c] / (double)s->lower_bound_bytes);
    }
    printf("  %-24s %10.2f MiB  (lower bound %.2f)\n", "planned", mib(s->arena_bytes), mib(s->lower_bound_bytes));
    uint64_t live = 0, reserved = 0;
    char who[32] = "process, all ranks";
    if (job->together)
        snprintf(who, sizeof(who), "largest of %u processes", job->told_count);
    for (uint32_t r = 0; r < job->told_count; r++) {
        const eo_runtime_stats *stats = &job->ranks[r].last;
        live = stats->live_peak_bytes > live ? stats->live_peak_bytes : live;
        reserved = stats->reserved_peak_bytes > reserved ? stats->reserved_peak_bytes : reserved;
    }
    if (job->options->memory != EO_MEMORY_STATIC)
        printf("  %-24s %10.2f MiB live, %.2f MiB reserved, at most\n", "taken", mib(live), mib(reserved));
    printf("  %-24s %10.2f MiB resident at most in training\n", who, mib(resident_peak_bytes));
    if (job->gpu.used_bytes)
        report_gpu_memory(job);
}

uint64_t tool_gpu_outside_bytes(const struct tool_gpu_memory *gpu)
{
    return gpu->start_bytes + gpu->communicator_bytes + gpu->team_bytes;
}

/* Model FLOPs a second, and their share of what the card's data sheet says, if that was told. */
static void report_utilisation(const struct tool_job *job, double step_s)
{
    const double nominal = job->options->peak_tflops * 1e12;
    const double speed = eo_transformer_flops(job->transformer) * job->shape.micro_batches / step_s;
    printf("  %-28s %9.1f TFLOP/s a rank: (6 x multiplied parameters + 6 x layers x width x seq) x tokens / step\n",
           "model", speed * 1e-12);
    if (nominal > 0 && speed > nominal) {
        printf("  %-28s above --peak-tflops %g: is this the card's figure for this type?\n", "MFU of a GPU",
               job->options->peak_tflops);
    } else if (nominal > 0) {
        /* Of threads some GPUs may have a rank more than others: the mean. */
        const uint32_t ranks = job->options->world_ranks ? 1 : job->options->plan.ranks;
        const uint32_t gpus = job->device.device_count < ranks ? job->device.device_count : ranks;
        printf("  %-28s %9.1f %% of %.0f TFLOP/s\n", "MFU of a GPU", 100 * speed * ranks / gpus / nominal,
               nominal * 1e-12);
    }
}

void tool_report_time(const struct tool_job *job, double step_s_median, double host_s_median)
{
    const bool is_dynamic = job->options->memory != EO_MEMORY_STATIC;
    const bool offloads = is_dynamic ? job->options->dynamic_offload : tool_plan_settings_offload(&job->options->plan);
    const char *const causes[EO_WAIT_COUNT] = {
        [EO_WAIT_ALL_GATHER] = "waiting for all-gather",
        [EO_WAIT_REDUCE_SCATTER] = "waiting for reduce-scatter",
        [EO_WAIT_NORM] = "waiting for the norm",
        [EO_WAIT_FETCH] = tool_options_on_gpu(job->options) || is_dynamic ? "waiting for host memory" : "waiting for the disk",
    };
    double total = 0, waits[EO_WAIT_COUNT] = {0}, waited = 0, steps = 0;
    for (uint32_t r = 0; r < job->told_count; r++) {
        const struct tool_job_rank *rank = &job->ranks[r];
        if (rank->step_count < 2)
            return;
        steps += (double)(rank->last.steps - rank->first.steps);
        total += (double)rank->told_ns;
        for (int w = 0; w < EO_WAIT_COUNT; w++)
            waits[w] += (double)(rank->last.wait_ns[w] - rank->first.wait_ns[w]);
    }
    for (int w = 0; w < EO_WAIT_COUNT; w++)
        waited += waits[w];
    printf("\ntime of a step, mean over ranks and steps after the first:\n");
    if (job->ranks[0].graph.is_captured && !job->options->graph_times) {
        printf("  of graphs only the whole time is known; for the waits of compute use --graph-times on, or --graph off\n");
    } else {
        printf("  %-28s %9.2f ms %5.1f %%\n", "compute", (total - waited) / steps * 1e-6,
               100 * (total - waited) / total);
        static const char *const notes[EO_WAIT_COUNT] = {
            [EO_WAIT_ALL_GATHER] = ": exposed communication",
            [EO_WAIT_REDUCE_SCATTER] = ": exposed communication",
            [EO_WAIT_NORM] = "",
            [EO_WAIT_FETCH] = ": exposed copies",
        };
        for (int w = 0; w < EO_WAIT_COUNT; w++)
            if (w != EO_WAIT_FETCH || offloads)
                printf("  %-28s %9.2f ms %5.1f %%%s\n", causes[w], waits[w] / steps * 1e-6, 100 * waits[w] / total, notes[w]);
    }
    printf("  %-28s %9.2f ms, median %.2f ms: %.0f tokens/s", "step", total / steps * 1e-6, step_s_median * 1e3,
           (double)tool_step_inputs(job) / step_s_median);
    const double share = tool_peak_share(job, step_s_median);
    if (share > 0)
        printf(", %.0f %% of the products' peak", 100 * share);
    else if (job->peak_flops_per_s > 0)
        printf("; faster than the products were measured before (--peak-seconds)");
    printf("\n");
    if (host_s_median > 0)
        printf("  %-28s %9.3f ms, median of rank 0: its work for a step, without waits for the GPU\n", "host",
               host_s_median * 1e3);
    if (tool_options_on_gpu(job->options))
        report_utilisation(job, step_s_median);
}

/* Bytes of the UTF-8 character beyond ASCII that begins here; 0: none does that a terminal may get. */
static uint32_t character_bytes(const int32_t *tokens, uint32_t left)
{
    unsigned char text[5] = {0};
    for (uint32_t i = 0; i < 4 && i < left; i++)
        text[i] = (unsigned char)tokens[i];
    const size_t length = eo_text_plain(text);
    return length > 1 ? (uint32_t)length : 0;
}

/* What a terminal can show as it is, the rest by its number. Returns how many tokens were printed. */
static uint32_t print_bytes(const int32_t *tokens, uint32_t left)
{
    const uint32_t length = character_bytes(tokens, left);
    for (uint32_t i = 0; i < length; i++)
        putchar(tokens[i]);
    if (length)
        return length;
    if (tokens[0] == '\n' || tokens[0] == '\t' || (tokens[0] < 128 && isprint(tokens[0])))
        putchar(tokens[0]);
    else
        printf("\\x%02x", (unsigned)tokens[0]);
    return 1;
}

static void print_characters(const int32_t *bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count;)
        i += print_bytes(bytes + i, count - i);
}

/* A character may be of several tokens: their bytes are put together first. False: no memory. */
static bool print_text(const struct tool_tokenizer *tokenizer, const int32_t *tokens, uint32_t count)
{
    uint64_t used = 0, room = 1;
    uint32_t length;
    for (uint32_t i = 0; i < count; i++) {
        (void)tool_tokenizer_text(tokenizer, (uint32_t)tokens[i], &length);
        room += length;
    }
    int32_t *bytes = room < UINT32_MAX ? malloc(room * sizeof(*bytes)) : NULL;
    if (!bytes)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const char *text = tool_tokenizer_text(tokenizer, (uint32_t)tokens[i], &length);
        for (uint32_t b = 0; b < length; b++)
            bytes[used++] = (unsigned char)text[b];
    }
    print_characters(bytes, (uint32_t)used);
    free(bytes);
    return true;
}

static void print_tokens(const int32_t *tokens, uint32_t count, bool is_text, const struct tool_tokenizer *tokenizer)
{
    if (is_text)
        print_characters(tokens, count);
    else if (!tokenizer || !tokenizer->count || !print_text(tokenizer, tokens, count))
        for (uint32_t i = 0; i < count; i++)
            printf("%d ", tokens[i]);
}

void tool_report_sample(const int32_t *tokens, uint32_t prompt_count, uint32_t count, bool is_text,
                        const struct tool_tokenizer *tokenizer)
{
    const bool is_numbers = !is_text && (!tokenizer || !tokenizer->count);
    printf("\nsample, after %u given token%s (up to the mark):\n", prompt_count, tool_plural(prompt_count));
    print_tokens(tokens, prompt_count, is_text, tokenizer);
    printf(is_numbers ? "|> " : "|>");
    print_tokens(tokens + prompt_count, count, is_text, tokenizer);
    putchar('\n');
}
