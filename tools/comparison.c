/* SPDX-License-Identifier: MIT */
#include "tools/comparison.h"

#include <stdlib.h>
#include <string.h>

#include "tools/options.h"
#include "tools/report.h"

static double number_of(const json_t *run, const char *group, const char *key)
{
    return json_number_value(json_object_get(group ? json_object_get(run, group) : run, key));
}

static double median_of(const json_t *runs, const char *group, const char *key)
{
    const size_t count = json_array_size(runs);
    double *values = calloc(count ? count : 1, sizeof(*values));
    for (size_t i = 0; values && i < count; i++)
        values[i] = number_of(json_array_get(runs, i), group, key);
    const double median = values ? eo_median(values, count) : 0;
    free(values);
    return median;
}

static double run_median(const json_t *run, const char *key)
{
    const json_t *steps = json_object_get(run, key);
    const size_t count = json_array_size(steps);
    double *values = calloc(count ? count : 1, sizeof(*values));
    for (size_t i = 0; values && i < count; i++)
        values[i] = json_number_value(json_array_get(steps, i));
    const double median = values ? eo_median(values, count) : 0;
    free(values);
    return median;
}

static void sum_up_steps(const json_t *runs, struct eo_mode_figures *figures)
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
    figures->step_s = eo_median(values, used); /* sorts */
    figures->step_min_s = values[0];
    const size_t above = (99 * used + 99) / 100; /* the smallest value that 99 % do not exceed */
    figures->step_p99_s = values[above - 1];
    free(values);
}

static double host_median(const json_t *runs)
{
    const size_t count = json_array_size(runs);
    double *values = calloc(count ? count : 1, sizeof(*values));
    for (size_t i = 0; values && i < count; i++)
        values[i] = run_median(json_array_get(runs, i), "host_s");
    const double median = values ? eo_median(values, count) : 0;
    free(values);
    return median;
}

/* Of the runs of one round, which the machine met in nearly the same state. */
static void sum_up_ratios(const struct eo_comparison *comparison, int mode, struct eo_mode_figures *figures)
{
    double *ratios = calloc(comparison->run_count, sizeof(*ratios));
    uint32_t count = 0;
    for (uint32_t i = 0; ratios && i < comparison->run_count; i++) {
        const double base = run_median(json_array_get(comparison->runs[0], i), "steps_s");
        if (base > 0)
            ratios[count++] = run_median(json_array_get(comparison->runs[mode], i), "steps_s") / base;
    }
    if (count) {
        figures->ratio = eo_median(ratios, count);
        figures->ratio_low = ratios[0];
        figures->ratio_high = ratios[count - 1];
    }
    free(ratios);
}

static void sum_up_mode(struct eo_comparison *comparison, int mode)
{
    static const char *const waits[EO_WAIT_COUNT] = {"all_gather", "reduce_scatter", "norm"};
    const json_t *runs = comparison->runs[mode];
    struct eo_mode_figures *f = &comparison->figures[mode];
    sum_up_steps(runs, f);
    sum_up_ratios(comparison, mode, f);
    f->tokens_per_s = f->step_s > 0 ? median_of(runs, NULL, "tokens_per_step") / f->step_s : 0;
    f->allocator_calls = median_of(runs, NULL, "allocator_calls");
    f->allocated_bytes = median_of(runs, NULL, "allocated_bytes");
    f->copied_bytes = median_of(runs, NULL, "copied_bytes");
    f->cast_bytes = median_of(runs, NULL, "cast_bytes");
    f->host_s = host_median(runs);
    f->page_faults = median_of(runs, NULL, "page_faults");
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

void eo_comparison_sum_up(struct eo_comparison *comparison)
{
    const char *first = NULL;
    comparison->equal = true;
    for (int mode = 0; mode < comparison->mode_count; mode++) {
        sum_up_mode(comparison, mode);
        if (comparison->own_sums)
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

const char *eo_comparison_verdict(const struct eo_comparison *comparison)
{
    if (!comparison->equal)
        return "The runs do NOT end with the same weights: this is a bug.";
    return comparison->own_sums ? "The runs of each mode end with the same weights; those of static memory sum in the order of "
                                  "their strategy, which is another than zero3's."
                                : "All runs end with the same weights.";
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum { ROW_NAME = 40, ROW_VALUE = 24 };

static void print_cell(FILE *out, const char *text)
{
    fprintf(out, " %*s", ROW_VALUE, text);
}

#define TABLE_ROW(name, ...)                                                                                          \
    do {                                                                                                              \
        fprintf(out, "%-*s", ROW_NAME, name);                                                                         \
        for (int mode = 0; mode < comparison->mode_count; mode++) {                                                        \
            const struct eo_mode_figures *f = &comparison->figures[mode];                                             \
            char cell[64];                                                                                            \
            snprintf(cell, sizeof(cell), __VA_ARGS__);                                                                \
            print_cell(out, cell);                                                                                    \
        }                                                                                                             \
        fputc('\n', out);                                                                                             \
    } while (0)

static double mib(double bytes)
{
    return bytes / (1 << 20);
}

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

void eo_comparison_print(const struct eo_comparison *comparison, FILE *out)
{
    fprintf(out, "\n%-*s", ROW_NAME, "");
    for (int mode = 0; mode < comparison->mode_count; mode++)
        print_cell(out, eo_memory_name((eo_memory)mode));
    fputc('\n', out);
    TABLE_ROW("step, median", "%.2f ms", f->step_s * 1e3);
    TABLE_ROW("step, minimum", "%.2f ms", f->step_min_s * 1e3);
    TABLE_ROW("step, 99th percentile", "%.2f ms", f->step_p99_s * 1e3);
    TABLE_ROW("step / step of static (spread)", "%.3f (%.3f to %.3f)", f->ratio, f->ratio_low, f->ratio_high);
    TABLE_ROW("tokens/s", "%.0f", f->tokens_per_s);
    TABLE_ROW("host time of a step, median", f->host_s > 0 ? "%.3f ms" : "-", f->host_s * 1e3);
    TABLE_ROW("allocator calls a step and rank", "%.1f", f->allocator_calls);
    TABLE_ROW("bytes asked a step and rank", "%.2f MiB", mib(f->allocated_bytes));
    TABLE_ROW("page faults a step, all ranks", "%.1f", f->page_faults);
    TABLE_ROW("live peak of a rank", "%.2f MiB", mib(f->live_peak_bytes));
    TABLE_ROW("reserved peak of a rank", "%.2f MiB", mib(f->reserved_peak_bytes));
    TABLE_ROW("resident peak of the process", "%.2f MiB", mib(f->resident_peak_bytes));
    TABLE_ROW("bytes copied a step and rank", "%.2f MiB", mib(f->copied_bytes - f->cast_bytes));
    TABLE_ROW("bytes cast a step and rank", "%.2f MiB", mib(f->cast_bytes));
    static const char *const idle[EO_WAIT_COUNT] = {
        "compute idle for all-gather", "compute idle for reduce-scatter", "compute idle for the norm"};
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
        TABLE_ROW("kernels a step, as CUPTI tells", "%.1f, %.3f ms", f->gpu_kernels, f->gpu_kernel_s * 1e3);
        TABLE_ROW("copies a step, as CUPTI tells", "%.1f, %.3f ms", f->gpu_copies, f->gpu_copy_s * 1e3);
        TABLE_ROW("fills a step, as CUPTI tells", "%.1f", f->gpu_fills);
    }
    TABLE_ROW("the plan's list with measured times", f->simulated_s > 0 ? "%.2f ms" : "-", f->simulated_s * 1e3);
    TABLE_ROW("... one rank, medians of the times", f->simulated_s > 0 ? "%.2f ms" : "-",
              f->simulated_medians_s * 1e3);
    TABLE_ROW("measured / simulated", f->simulated_s > 0 ? "%.3f" : "-", f->simulated_measured_s / f->simulated_s);
    TABLE_ROW("weights_hash", "%s", f->weights_hash);
    fprintf(out, "\n%s\n", eo_comparison_verdict(comparison));
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

json_t *eo_comparison_json(const struct eo_comparison *comparison)
{
    json_t *modes = json_object();
    for (int mode = 0; mode < comparison->mode_count; mode++) {
        const struct eo_mode_figures *f = &comparison->figures[mode];
        json_t *one = json_pack("{s:f, s:f, s:f, s:f, s:[f, f], s:f, s:s, s:O}",
            "step_s_median", f->step_s, "step_s_min", f->step_min_s, "step_s_p99", f->step_p99_s,
            "ratio_to_static", f->ratio, "ratio_spread", f->ratio_low, f->ratio_high, "tokens_per_s", f->tokens_per_s,
            "weights_hash", f->weights_hash, "runs", comparison->runs[mode]);
        const struct { const char *name; double value; } rows[] = {
            {"allocator_calls_per_step", f->allocator_calls}, {"allocated_bytes_per_step", f->allocated_bytes},
            {"page_faults_per_step", f->page_faults}, {"copied_bytes_per_step", f->copied_bytes},
            {"cast_bytes_per_step", f->cast_bytes}, {"host_s_median", f->host_s},
            {"live_peak_bytes", f->live_peak_bytes}, {"reserved_peak_bytes", f->reserved_peak_bytes},
            {"resident_peak_bytes", f->resident_peak_bytes},
            {"idle_all_gather_s", f->wait_s[EO_WAIT_ALL_GATHER]},
            {"idle_reduce_scatter_s", f->wait_s[EO_WAIT_REDUCE_SCATTER]}, {"idle_norm_s", f->wait_s[EO_WAIT_NORM]},
            {"all_gather_s", f->collective_s[EO_WAIT_ALL_GATHER]},
            {"reduce_scatter_s", f->collective_s[EO_WAIT_REDUCE_SCATTER]},
            {"exposed_all_gather_s", f->exposed_s[EO_WAIT_ALL_GATHER]},
            {"exposed_reduce_scatter_s", f->exposed_s[EO_WAIT_REDUCE_SCATTER]},
            {"start_delay_all_gather_s", f->start_delay_s[EO_WAIT_ALL_GATHER]},
            {"start_delay_reduce_scatter_s", f->start_delay_s[EO_WAIT_REDUCE_SCATTER]},
            {"late_all_gather_s", f->late_s[EO_WAIT_ALL_GATHER]},
            {"late_reduce_scatter_s", f->late_s[EO_WAIT_REDUCE_SCATTER]},
            {"gpu_kernels_per_step", f->gpu_kernels}, {"gpu_copies_per_step", f->gpu_copies},
            {"gpu_fills_per_step", f->gpu_fills}, {"gpu_kernel_s", f->gpu_kernel_s}, {"gpu_copy_s", f->gpu_copy_s},
            {"pass_slowdown", f->slowdown}, {"timeline_steps", f->timeline_steps},
        };
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
            json_object_set_new(one, rows[i].name, json_real(rows[i].value));
        if (f->simulated_s > 0) {
            json_object_set_new(one, "simulated_s", json_real(f->simulated_s));
            json_object_set_new(one, "simulated_medians_s", json_real(f->simulated_medians_s));
            json_object_set_new(one, "measured_over_simulated", json_real(f->simulated_measured_s / f->simulated_s));
        }
        json_object_set_new(modes, eo_memory_name((eo_memory)mode), one);
    }
    return json_pack("{s:i, s:s, s:s, s:i, s:b, s:o}", "schema", 1, "settings", comparison->settings, "machine",
                     comparison->machine, "runs", (int)comparison->run_count, "weights_equal", (int)comparison->equal,
                     "modes", modes);
}
