/* SPDX-License-Identifier: MIT */
#include "tools/headtohead/comparison.h"

#include <stdlib.h>
#include <string.h>

#include "tools/run/options/options.h"
#include "tools/run/reports/report.h"

typedef double value_fn(const json_t *entry, const char *group, const char *key);

/* Of an entry without a key it is the entry. */
static double number_of(const json_t *entry, const char *group, const char *key)
{
    entry = group ? json_object_get(entry, group) : entry;
    return json_number_value(key ? json_object_get(entry, key) : entry);
}

static double median_by(value_fn *value_of, const json_t *list, const char *group, const char *key)
{
    const size_t count = json_array_size(list);
    double *values = calloc(count ? count : 1, sizeof(*values));
    for (size_t i = 0; values && i < count; i++)
        values[i] = value_of(json_array_get(list, i), group, key);
    const double median = values ? tool_median(values, count) : 0;
    free(values);
    return median;
}

static double median_of(const json_t *runs, const char *group, const char *key)
{
    return median_by(number_of, runs, group, key);
}

/* Of a list in the run. */
static double run_median(const json_t *run, const char *group, const char *key)
{
    (void)group;
    return median_by(number_of, json_object_get(run, key), NULL, NULL);
}

static void sum_up_steps(const json_t *runs, struct tool_mode_figures *figures)
{
    size_t count = 0, used = 0;
    for (size_t r = 0; r < json_array_size(runs); r++)
        count += json_array_size(json_object_get(json_array_get(runs, r), "steps_s"));
    double *values = calloc(count ? count : 1, sizeof(*values));
    if (!values || count == 0) {
        free(values);
        return;
    }
    for (size_t r = 0; r < json_array_size(runs); r++) {
        const json_t *steps = json_object_get(json_array_get(runs, r), "steps_s");
        for (size_t i = 0; i < json_array_size(steps); i++)
            values[used++] = json_number_value(json_array_get(steps, i));
    }
    figures->step_s = tool_median(values, used); /* sorts */
    figures->step_min_s = values[0];
    const size_t above = (99 * used + 99) / 100; /* the smallest value that 99 % do not exceed */
    figures->step_p99_s = values[above - 1];
    free(values);
}

/* Of the runs of one round, which the machine met in nearly the same state. */
static void sum_up_ratios(const struct tool_comparison *comparison, int mode, struct tool_mode_figures *figures)
{
    double *ratios = calloc(comparison->run_count, sizeof(*ratios));
    uint32_t count = 0;
    for (uint32_t i = 0; ratios && i < comparison->run_count; i++) {
        const double base = run_median(json_array_get(comparison->runs[0], i), NULL, "steps_s");
        if (base > 0)
            ratios[count++] = run_median(json_array_get(comparison->runs[mode], i), NULL, "steps_s") / base;
    }
    if (count) {
        figures->ratio = tool_median(ratios, count);
        figures->ratio_low = ratios[0];
        figures->ratio_high = ratios[count - 1];
    }
    free(ratios);
}

static void sum_up_mode(struct tool_comparison *comparison, int mode)
{
    static const char *const waits[EO_WAIT_COUNT] = {"all_gather", "reduce_scatter", "norm", "fetch"};
    const json_t *runs = comparison->runs[mode];
    struct tool_mode_figures *f = &comparison->figures[mode];
    sum_up_steps(runs, f);
    sum_up_ratios(comparison, mode, f);
    f->tokens_per_s = f->step_s > 0 ? median_of(runs, NULL, "tokens_per_step") / f->step_s : 0;
    f->allocator_calls = median_of(runs, NULL, "allocator_calls");
    f->allocated_bytes = median_of(runs, NULL, "allocated_bytes");
    f->copied_bytes = median_of(runs, NULL, "copied_bytes");
    f->cast_bytes = median_of(runs, NULL, "cast_bytes");
    f->offload_bytes = median_of(runs, NULL, "offload_bytes");
    f->offload_moved_bytes = median_of(runs, NULL, "offload_moved_bytes");
    f->host_s = median_by(run_median, runs, NULL, "host_s");
    f->page_faults = median_of(runs, NULL, "page_faults");
    f->collectives = median_of(runs, NULL, "collectives");
    f->sent_bytes = median_of(runs, NULL, "sent_bytes");
    f->live_peak_bytes = median_of(runs, NULL, "live_peak_bytes");
    f->reserved_peak_bytes = median_of(runs, NULL, "reserved_peak_bytes");
    f->resident_peak_bytes = median_of(runs, NULL, "resident_peak_bytes");
    f->gpu_kernels = median_of(runs, "gpu", "kernels");
    f->gpu_copies = median_of(runs, "gpu", "copies") + median_of(runs, "gpu", "peer_copies");
    f->gpu_fills = median_of(runs, "gpu", "fills");
    f->gpu_kernel_s = median_of(runs, "gpu", "kernel_s");
    f->gpu_copy_s = median_of(runs, "gpu", "copy_s");
    f->delayed = median_of(runs, NULL, "delayed_collectives");
    f->slowdown = median_of(runs, NULL, "pass_slowdown");
    f->timeline_steps = median_of(runs, NULL, "timeline_steps");
    f->simulated_s = median_of(runs, NULL, "simulated_s");
    f->simulated_medians_s = median_of(runs, NULL, "simulated_medians_s");
    f->simulated_measured_s = median_of(runs, NULL, "simulated_measured_s");
    for (int w = 0; w < EO_WAIT_COUNT; w++) {
        f->wait_s[w] = median_of(runs, "wait_s", waits[w]);
        f->collective_s[w] = median_of(runs, "collective_s", waits[w]);
        f->exposed_s[w] = median_of(runs, "exposed_s", waits[w]);
        f->start_delay_s[w] = median_of(runs, "start_delay_s", waits[w]);
        f->late_s[w] = median_of(runs, "late_ranks_s", waits[w]);
    }
}

void tool_comparison_sum_up(struct tool_comparison *comparison)
{
    const char *first = NULL;
    comparison->equal = true;
    for (int mode = 0; mode < comparison->mode_count; mode++) {
        sum_up_mode(comparison, mode);
        if (comparison->sums != TOOL_SUMS_EQUAL)
            first = NULL;
        for (size_t i = 0; i < json_array_size(comparison->runs[mode]); i++) {
            const char *hash =
                json_string_value(json_object_get(json_array_get(comparison->runs[mode], i), "weights_hash"));
            if (i == 0)
                snprintf(comparison->figures[mode].weights_hash, sizeof(comparison->figures[mode].weights_hash), "%s",
                         hash ? hash : "");
            first = first ? first : hash;
            if (!hash || strcmp(hash, first) != 0)
                comparison->equal = false;
        }
    }
    if (!first) /* nothing was compared */
        comparison->equal = false;
}

const char *tool_comparison_verdict(const struct tool_comparison *comparison)
{
    if (!comparison->equal && comparison->sums_in_time)
        return "The runs end with other weights, as they may: without --repeatable, sums and the choice of products on a GPU "
               "depend on time.";
    if (!comparison->equal)
        return "The runs do NOT end with the same weights: this is a bug.";
    static const char *const texts[] = {
        [TOOL_SUMS_EQUAL] = "All runs end with the same weights.",
        [TOOL_SUMS_STRATEGY] = ("The runs of each mode end with the same weights; static memory sums in the order of its "
                                "strategy, a different one from zero3's."),
        [TOOL_SUMS_CHOSEN] = "The runs of each variant end with the same weights; between variants the order of sums may differ.",
    };
    return texts[comparison->sums];
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum { ROW_NAME = 40, ROW_VALUE = 24 };

static void print_cell(FILE *out, const char *text)
{
    fprintf(out, " %*s", ROW_VALUE, text);
}

#define TABLE_ROW(name, ...)                                                \
    do {                                                                    \
        fprintf(out, "%-*s", ROW_NAME, name);                               \
        for (int mode = 0; mode < comparison->mode_count; mode++) {         \
            const struct tool_mode_figures *f = &comparison->figures[mode]; \
            char cell[64];                                                  \
            snprintf(cell, sizeof(cell), __VA_ARGS__);                      \
            print_cell(out, cell);                                          \
        }                                                                   \
        fputc('\n', out);                                                   \
    } while (0)

static double mib(double bytes)
{
    return bytes / (1 << 20);
}

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

void tool_comparison_print(const struct tool_comparison *comparison, FILE *out)
{
    fprintf(out, "\n%-*s", ROW_NAME, "");
    for (int mode = 0; mode < comparison->mode_count; mode++)
        print_cell(out, comparison->variants[mode].name);
    fputc('\n', out);
    TABLE_ROW("step, median", "%.2f ms", f->step_s * 1e3);
    TABLE_ROW("step, minimum", "%.2f ms", f->step_min_s * 1e3);
    TABLE_ROW("step, 99th percentile", "%.2f ms", f->step_p99_s * 1e3);
    char ratio[TOOL_VARIANT_NAME_MAX + 32];
    snprintf(ratio, sizeof(ratio), "step / step of %s (spread)", comparison->variants[0].name);
    TABLE_ROW(ratio, "%.3f (%.3f to %.3f)", f->ratio, f->ratio_low, f->ratio_high);
    TABLE_ROW("tokens/s", "%.0f", f->tokens_per_s);
    TABLE_ROW("host time of a step, median", f->host_s > 0 ? "%.3f ms" : "-", f->host_s * 1e3);
    TABLE_ROW("collectives a step and rank", "%.1f", f->collectives);
    TABLE_ROW("bytes sent a step and rank", "%.2f MiB", mib(f->sent_bytes));
    TABLE_ROW("allocator calls a step and rank", "%.1f", f->allocator_calls);
    TABLE_ROW("bytes asked a step and rank", "%.2f MiB", mib(f->allocated_bytes));
    TABLE_ROW("page faults a step, all ranks", "%.1f", f->page_faults);
    TABLE_ROW("live peak of a rank", "%.2f MiB", mib(f->live_peak_bytes));
    TABLE_ROW("reserved peak of a rank", "%.2f MiB", mib(f->reserved_peak_bytes));
    TABLE_ROW("resident peak of the process", "%.2f MiB", mib(f->resident_peak_bytes));
    TABLE_ROW("bytes copied a step and rank", "%.2f MiB", mib(f->copied_bytes - f->cast_bytes));
    TABLE_ROW("bytes cast a step and rank", "%.2f MiB", mib(f->cast_bytes));
    TABLE_ROW("offloaded of a rank", "%.2f MiB", mib(f->offload_bytes));
    TABLE_ROW("bytes moved for it a step and rank", "%.2f MiB", mib(f->offload_moved_bytes));
    static const char *const idle[EO_WAIT_COUNT] = {"compute idle for all-gather", "compute idle for reduce-scatter",
                                                    "compute idle for the norm", "compute idle for what is offloaded"};
    for (int w = 0; w < EO_WAIT_COUNT; w++)
        TABLE_ROW(idle[w], f->timeline_steps > 0 ? "%.2f ms %5.1f %%" : "-", f->wait_s[w] * 1e3,
                  share(f->wait_s[w], f->step_s));
    TABLE_ROW("all-gather, exposed of all", f->timeline_steps > 0 ? "%.2f of %.2f ms" : "-",
              f->exposed_s[EO_WAIT_ALL_GATHER] * 1e3, f->collective_s[EO_WAIT_ALL_GATHER] * 1e3);
    TABLE_ROW("reduce-scatter, exposed of all", f->timeline_steps > 0 ? "%.2f of %.2f ms" : "-",
              f->exposed_s[EO_WAIT_REDUCE_SCATTER] * 1e3, f->collective_s[EO_WAIT_REDUCE_SCATTER] * 1e3);
    TABLE_ROW("start delay of an all-gather", f->delayed > 0 ? "%.1f us" : "-", f->start_delay_s[EO_WAIT_ALL_GATHER] * 1e6);
    TABLE_ROW("... waiting for late ranks before it", f->delayed > 0 ? "%.1f us" : "-", f->late_s[EO_WAIT_ALL_GATHER] * 1e6);
    TABLE_ROW("start delay of a reduce-scatter", f->delayed > 0 ? "%.1f us" : "-",
              f->start_delay_s[EO_WAIT_REDUCE_SCATTER] * 1e6);
    TABLE_ROW("... waiting for late ranks before it", f->delayed > 0 ? "%.1f us" : "-",
              f->late_s[EO_WAIT_REDUCE_SCATTER] * 1e6);
    TABLE_ROW("blocks beside a collective / alone", f->slowdown > 0 ? "%.3f" : "-", f->slowdown);
    if (comparison->figures[0].gpu_kernels > 0) {
        TABLE_ROW("kernels a step, by CUPTI", "%.1f, %.3f ms", f->gpu_kernels, f->gpu_kernel_s * 1e3);
        TABLE_ROW("copies a step, by CUPTI", "%.1f, %.3f ms", f->gpu_copies, f->gpu_copy_s * 1e3);
        TABLE_ROW("fills a step, by CUPTI", "%.1f", f->gpu_fills);
    }
    TABLE_ROW("the plan's list with measured times", f->simulated_s > 0 ? "%.2f ms" : "-", f->simulated_s * 1e3);
    TABLE_ROW("... one rank, medians of the times", f->simulated_s > 0 ? "%.2f ms" : "-",
              f->simulated_medians_s * 1e3);
    TABLE_ROW("measured / simulated", f->simulated_s > 0 ? "%.3f" : "-", f->simulated_measured_s / f->simulated_s);
    TABLE_ROW("weights_hash", "%s", f->weights_hash);
    fprintf(out, "\n%s\n", tool_comparison_verdict(comparison));
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

void tool_comparison_json(struct eo_json *json, const void *user)
{
    const struct tool_comparison *comparison = user;
    eo_json_write(json, "{'schema': 1, 'settings': %s, 'machine': %s, 'runs': %u, 'weights_equal': %i, 'modes': {",
                  comparison->settings, comparison->machine, comparison->run_count, comparison->equal);
    for (int mode = 0; mode < comparison->mode_count; mode++) {
        const struct tool_mode_figures *f = &comparison->figures[mode];
        eo_json_write(json,
                      "%s: {'step_s_median': %g, 'step_s_min': %g, 'step_s_p99': %g, 'ratio_to_static': %g,"
                      "'ratio_spread': [%g, %g], 'tokens_per_s': %g, 'weights_hash': %s, 'runs':",
                      comparison->variants[mode].name, f->step_s, f->step_min_s, f->step_p99_s, f->ratio, f->ratio_low,
                      f->ratio_high, f->tokens_per_s, f->weights_hash);
        tool_json_value(json, comparison->runs[mode]);
        eo_json_write(json,
                      "'allocator_calls_per_step': %g, 'allocated_bytes_per_step': %g, 'page_faults_per_step': %g,"
                      "'copied_bytes_per_step': %g, 'cast_bytes_per_step': %g, 'host_s_median': %g, 'live_peak_bytes': %g,"
                      "'reserved_peak_bytes': %g, 'resident_peak_bytes': %g, 'collectives_per_step': %g,"
                      "'sent_bytes_per_step': %g",
                      f->allocator_calls, f->allocated_bytes, f->page_faults, f->copied_bytes, f->cast_bytes, f->host_s,
                      f->live_peak_bytes, f->reserved_peak_bytes, f->resident_peak_bytes, f->collectives, f->sent_bytes);
        eo_json_write(json, "'offload_bytes': %g, 'offload_moved_bytes_per_step': %g", f->offload_bytes, f->offload_moved_bytes);
        eo_json_write(json,
                      "'idle_all_gather_s': %g, 'idle_reduce_scatter_s': %g, 'idle_norm_s': %g, 'idle_fetch_s': %g,"
                      "'all_gather_s': %g,"
                      "'reduce_scatter_s': %g, 'exposed_all_gather_s': %g, 'exposed_reduce_scatter_s': %g,"
                      "'start_delay_all_gather_s': %g, 'start_delay_reduce_scatter_s': %g, 'late_all_gather_s': %g,"
                      "'late_reduce_scatter_s': %g",
                      f->wait_s[EO_WAIT_ALL_GATHER], f->wait_s[EO_WAIT_REDUCE_SCATTER], f->wait_s[EO_WAIT_NORM],
                      f->wait_s[EO_WAIT_FETCH], f->collective_s[EO_WAIT_ALL_GATHER], f->collective_s[EO_WAIT_REDUCE_SCATTER],
                      f->exposed_s[EO_WAIT_ALL_GATHER], f->exposed_s[EO_WAIT_REDUCE_SCATTER],
                      f->start_delay_s[EO_WAIT_ALL_GATHER], f->start_delay_s[EO_WAIT_REDUCE_SCATTER],
                      f->late_s[EO_WAIT_ALL_GATHER], f->late_s[EO_WAIT_REDUCE_SCATTER]);
        eo_json_write(json,
                      "'gpu_kernels_per_step': %g, 'gpu_copies_per_step': %g, 'gpu_fills_per_step': %g, 'gpu_kernel_s': %g,"
                      "'gpu_copy_s': %g, 'pass_slowdown': %g, 'timeline_steps': %g",
                      f->gpu_kernels, f->gpu_copies, f->gpu_fills, f->gpu_kernel_s, f->gpu_copy_s, f->slowdown,
                      f->timeline_steps);
        if (f->simulated_s > 0)
            eo_json_write(json, "'simulated_s': %g, 'simulated_medians_s': %g, 'measured_over_simulated': %g", f->simulated_s,
                          f->simulated_medians_s, f->simulated_measured_s / f->simulated_s);
        eo_json_write(json, "}");
    }
    eo_json_write(json, "}}");
}
