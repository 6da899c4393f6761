/* SPDX-License-Identifier: MIT
 *
 * The comparison as a page that stands alone: no script, no font, no picture from elsewhere. Colours follow the
 * reader's choice of light or dark; wide pictures scroll in frames of their own on small screens.
 */
#include <string.h>

#include "tools/headtohead/comparison.h"
#include "tools/headtohead_page.h"
#include "tools/run/options/options.h"
#include "tools/shared/page.h"

enum { PICTURE_WIDTH = 900, PICTURE_LEFT = 70, PICTURE_RIGHT = 10 };
enum { PLOT_WIDTH = PICTURE_WIDTH - PICTURE_LEFT - PICTURE_RIGHT };

/* By eo_memory. */
static const char *const mode_class[TOOL_VARIANTS_MAX] = {"m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"};

static void begin_picture(FILE *out, int height, const char *title)
{
    fprintf(out, "<div class=\"frame\"><svg viewBox=\"0 0 %d %d\" role=\"img\"><title>", PICTURE_WIDTH, height);
    tool_put_escaped(out, title);
    fputs("</title>\n", out);
}

static void end_picture(FILE *out)
{
    fputs("</svg></div>\n", out);
}

/* A scale from 0 to `most` with four lines; `factor` and `unit` are for its labels. */
static void put_scale(FILE *out, int top, int height, double most, double factor, const char *unit)
{
    for (int i = 0; i <= 4; i++) {
        const double y = top + height - height * i / 4.0;
        fprintf(out, "<path class=\"axis\" d=\"M%d %.1fH%d\"/><text class=\"soft\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%.4g %s</text>\n", PICTURE_LEFT, y, PICTURE_WIDTH - PICTURE_RIGHT,
                PICTURE_LEFT - 6, y + 4, most * factor * i / 4, unit);
    }
}

/* --- step times --------------------------------------------------------------------------------------------------- */

static void put_run_line(FILE *out, const json_t *run, int mode, double most_s, int top, int height)
{
    const json_t *steps = json_object_get(run, "steps_s");
    const size_t count = json_array_size(steps);
    fprintf(out, "<polyline class=\"%s\" points=\"", mode_class[mode]);
    for (size_t i = 0; i < count; i++) {
        const double s = json_number_value(json_array_get(steps, i));
        fprintf(out, "%.1f,%.1f ", PICTURE_LEFT + (count > 1 ? (double)PLOT_WIDTH * (double)i / (double)(count - 1) : 0),
                top + height - height * s / most_s);
    }
    fputs("\"/>\n", out);
}

static void put_mode_keys(const struct tool_comparison *comparison, FILE *out)
{
    for (int mode = 0; mode < comparison->mode_count; mode++)
        fprintf(out, "<span class=\"key\" style=\"background:var(--%s)\"></span>%s", mode_class[mode],
                comparison->variants[mode].name);
}

static void put_step_times(const struct tool_comparison *comparison, FILE *out)
{
    const int top = 10, height = 240;
    double most_s = 0;
    for (int mode = 0; mode < comparison->mode_count; mode++)
        most_s = comparison->figures[mode].step_p99_s > most_s ? comparison->figures[mode].step_p99_s : most_s;
    if (most_s <= 0)
        return;
    most_s *= 1.05;
    fputs("<h2>Step times</h2><figure>", out);
    begin_picture(out, height + 40, "Step times of all runs");
    put_scale(out, top, height, most_s, 1e3, "ms");
    for (int mode = 0; mode < comparison->mode_count; mode++)
        for (size_t i = 0; i < json_array_size(comparison->runs[mode]); i++)
            put_run_line(out, json_array_get(comparison->runs[mode], i), mode, most_s, top, height);
    fprintf(out, "<text class=\"soft\" x=\"%d\" y=\"%d\">step 2</text><text class=\"soft\" x=\"%d\" y=\"%d\" "
            "text-anchor=\"end\">last step</text>\n", PICTURE_LEFT, top + height + 18, PICTURE_WIDTH - PICTURE_RIGHT,
            top + height + 18);
    end_picture(out);
    fputs("<figcaption>Each line is a run.", out);
    put_mode_keys(comparison, out);
    fputs("</figcaption></figure>\n", out);
}

/* --- timelines ---------------------------------------------------------------------------------------------------- */

enum { RECORD_KIND, RECORD_STREAM, RECORD_NAME, RECORD_START, RECORD_END, RECORD_LIVE };

static double record_number(const json_t *record, int field)
{
    return json_number_value(json_array_get(record, (size_t)field));
}

/* The last run of a mode is drawn. */
static const json_t *timeline_of(const struct tool_comparison *comparison, int mode)
{
    const size_t count = json_array_size(comparison->runs[mode]);
    return count ? json_object_get(json_array_get(comparison->runs[mode], count - 1), "timeline") : NULL;
}

static double timeline_end(const json_t *timeline)
{
    double end_s = 0;
    for (size_t r = 0; r < json_array_size(timeline); r++)
        for (size_t i = 0; i < json_array_size(json_array_get(timeline, r)); i++) {
            const double s = record_number(json_array_get(json_array_get(timeline, r), i), RECORD_END);
            end_s = s > end_s ? s : end_s;
        }
    return end_s;
}

static double longest_timeline(const struct tool_comparison *comparison)
{
    double most_s = 0;
    for (int mode = 0; mode < comparison->mode_count; mode++) {
        const double s = timeline_end(timeline_of(comparison, mode));
        most_s = s > most_s ? s : most_s;
    }
    return most_s;
}

/* One rank: compute above, communication below. Returns the height it took. */
static int put_rank(FILE *out, const json_t *records, size_t rank, int top, double most_s)
{
    const int lane = 22, gap = 3;
    for (int stream = 0; stream < 2; stream++)
        fprintf(out, "<text class=\"soft\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%zu %s</text>\n", PICTURE_LEFT - 6,
                top + stream * (lane + gap) + 15, rank, stream ? "comm" : "compute");
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *record = json_array_get(records, i);
        const double start_s = record_number(record, RECORD_START), end_s = record_number(record, RECORD_END);
        const int stream = record_number(record, RECORD_STREAM) > 0;
        if (end_s <= start_s)
            continue;
        fprintf(out, "<rect class=\"k%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>",
                (int)record_number(record, RECORD_KIND), PICTURE_LEFT + PLOT_WIDTH * start_s / most_s,
                top + stream * (lane + gap), PLOT_WIDTH * (end_s - start_s) / most_s, lane);
        tool_put_escaped(out, json_string_value(json_array_get(record, RECORD_NAME)));
        fprintf(out, ", %.3f ms</title></rect>\n", (end_s - start_s) * 1e3);
    }
    return 2 * (lane + gap) + 6;
}

static void put_timelines(const struct tool_comparison *comparison, FILE *out)
{
    const double most_s = longest_timeline(comparison);
    if (most_s <= 0)
        return;
    int height = 10;
    for (int mode = 0; mode < comparison->mode_count; mode++)
        height += 20 + 60 * (int)json_array_size(timeline_of(comparison, mode));
    fputs("<h2>One step</h2><figure>", out);
    begin_picture(out, height + 30, "The streams during a step");
    int top = 10;
    for (int mode = 0; mode < comparison->mode_count; mode++) {
        const json_t *timeline = timeline_of(comparison, mode);
        fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", PICTURE_LEFT, top + 10, comparison->variants[mode].name);
        top += 16;
        for (size_t r = 0; r < json_array_size(timeline); r++)
            top += put_rank(out, json_array_get(timeline, r), r, top, most_s);
    }
    for (int i = 0; i <= 4; i++)
        fprintf(out, "<path class=\"axis\" d=\"M%d 8V%d\"/><text class=\"soft\" x=\"%d\" y=\"%d\" "
                "text-anchor=\"middle\">%.4g ms</text>\n", PICTURE_LEFT + PLOT_WIDTH * i / 4, top,
                PICTURE_LEFT + PLOT_WIDTH * i / 4 - (i == 4 ? 18 : 0), top + 16, most_s * 1e3 * i / 4);
    end_picture(out);
    static const struct { const char *name, *colour; } keys[] = {
        {"all-gather, widening, copy out", "gather"}, {"forward", "forward"}, {"recompute", "recompute"},
        {"backward", "backward"}, {"reduce-scatter, all-reduce, copy in", "reduce"}, {"norm, accumulate", "norm"},
        {"optimizer, narrowing", "update"},
    };
    fputs("<figcaption>Number: rank. The last whole step of each mode's last run, from the same beginning.", out);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        fprintf(out, "<span class=\"key\" style=\"background:var(--%s)\"></span>%s", keys[i].colour, keys[i].name);
    fputs("</figcaption></figure>\n", out);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Static: the arena does not change; its categories as they are when most is live, one above the other. */
static void put_static_memory(FILE *out, const json_t *run, int top, int height, double most_bytes, double width)
{
    const char *name;
    json_t *value;
    double below = 0;
    int i = 0;
    json_object_foreach(json_object_get(run, "categories"), name, value)
    {
        const double bytes = json_number_value(value);
        const double y = top + height - height * (below + bytes) / most_bytes, tall = height * bytes / most_bytes;
        fprintf(out, "<rect class=\"f0\" opacity=\"%.2f\" x=\"%d\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                i++ % 2 ? 0.45 : 0.7, PICTURE_LEFT, y, width, tall);
        tool_put_escaped(out, name);
        fprintf(out, ", %.2f MiB</title></rect>\n", bytes / (1 << 20));
        if (tall >= 13) {
            fprintf(out, "<text x=\"%d\" y=\"%.1f\">", PICTURE_LEFT + 8, y + tall / 2 + 4);
            tool_put_escaped(out, name);
            fprintf(out, " %.1f MiB</text>\n", bytes / (1 << 20));
        }
        below += bytes;
    }
}

/* Dynamic: what rank 0 holds after each operation. */
static void put_dynamic_memory(FILE *out, const json_t *records, int mode, int top, int height, double most_bytes,
                               double most_s)
{
    double x = PICTURE_LEFT, last_y = -1;
    fprintf(out, "<path class=\"f%d\" opacity=\"0.55\" d=\"M%d %d", mode, PICTURE_LEFT, top + height);
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *record = json_array_get(records, i);
        const double bytes = record_number(record, RECORD_LIVE), end_s = record_number(record, RECORD_END);
        if (bytes <= 0 || end_s <= 0 || record_number(record, RECORD_STREAM) > 0)
            continue;
        const double y = top + height - height * bytes / most_bytes;
        if (last_y < 0)
            fprintf(out, "V%.2f", y);
        x = PICTURE_LEFT + PLOT_WIDTH * end_s / most_s;
        fprintf(out, "H%.2fV%.2f", x, y);
        last_y = y;
    }
    fprintf(out, "H%.2fV%dZ\"/>\n", x, top + height);
}

static void put_memory(const struct tool_comparison *comparison, FILE *out)
{
    const int height = 170, step = height + 50;
    const double most_s = longest_timeline(comparison);
    double most_bytes = 0;
    for (int mode = 0; mode < comparison->mode_count; mode++)
        if (comparison->figures[mode].live_peak_bytes > most_bytes)
            most_bytes = comparison->figures[mode].live_peak_bytes;
    if (most_bytes <= 0 || most_s <= 0)
        return;
    most_bytes *= 1.05;
    fputs("<h2>Memory of rank 0 over a step</h2><figure>", out);
    begin_picture(out, comparison->mode_count * step, "Memory over a step");
    for (int mode = 0; mode < comparison->mode_count; mode++) {
        const int top = 24 + mode * step;
        const json_t *timeline = timeline_of(comparison, mode);
        const struct tool_mode_figures *f = &comparison->figures[mode];
        fprintf(out, "<text x=\"%d\" y=\"%d\">%s: live at most %.1f MiB, reserved %.1f MiB</text>\n", PICTURE_LEFT, top - 8,
                comparison->variants[mode].name, f->live_peak_bytes / (1 << 20), f->reserved_peak_bytes / (1 << 20));
        put_scale(out, top, height, most_bytes, 1.0 / (1 << 20), "MiB");
        if (comparison->variants[mode].memory == EO_MEMORY_STATIC)
            put_static_memory(out, json_array_get(comparison->runs[mode], 0), top, height, most_bytes,
                              PLOT_WIDTH * timeline_end(timeline) / most_s);
        else
            put_dynamic_memory(out, json_array_get(timeline, 0), mode, top, height, most_bytes, most_s);
    }
    end_picture(out);
    fputs("<figcaption>Static: the reservation is constant; the picture shows its content at the peak. Dynamic: memory "
          "allocated and not yet freed, after each operation.</figcaption></figure>\n", out);
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

#define PAGE_ROW(name, ...)                                                 \
    do {                                                                    \
        fprintf(out, "<tr><td>%s</td>", name);                              \
        for (int mode = 0; mode < comparison->mode_count; mode++) {         \
            const struct tool_mode_figures *f = &comparison->figures[mode]; \
            fputs("<td>", out);                                             \
            fprintf(out, __VA_ARGS__);                                      \
            fputs("</td>", out);                                            \
        }                                                                   \
        fputs("</tr>\n", out);                                              \
    } while (0)

static void put_table(const struct tool_comparison *comparison, FILE *out)
{
    fputs("<div class=\"frame\"><table><tr><th></th>", out);
    for (int mode = 0; mode < comparison->mode_count; mode++)
        fprintf(out, "<th>%s</th>", comparison->variants[mode].name);
    fputs("</tr>\n", out);
    PAGE_ROW("step, median", "%.2f ms", f->step_s * 1e3);
    PAGE_ROW("step, minimum", "%.2f ms", f->step_min_s * 1e3);
    PAGE_ROW("step, 99th percentile", "%.2f ms", f->step_p99_s * 1e3);
    PAGE_ROW("step / step of the first", "%.3f (%.3f to %.3f)", f->ratio, f->ratio_low, f->ratio_high);
    PAGE_ROW("tokens/s", "%.0f", f->tokens_per_s);
    PAGE_ROW("host time of a step, median", f->host_s > 0 ? "%.3f ms" : "-", f->host_s * 1e3);
    PAGE_ROW("collectives a step and rank", "%.1f", f->collectives);
    PAGE_ROW("bytes sent a step and rank", "%.2f MiB", f->sent_bytes / (1 << 20));
    PAGE_ROW("allocator calls a step and rank", "%.1f", f->allocator_calls);
    PAGE_ROW("bytes asked a step and rank", "%.2f MiB", f->allocated_bytes / (1 << 20));
    PAGE_ROW("page faults a step", "%.1f", f->page_faults);
    PAGE_ROW("live peak of a rank", "%.2f MiB", f->live_peak_bytes / (1 << 20));
    PAGE_ROW("reserved peak of a rank", "%.2f MiB", f->reserved_peak_bytes / (1 << 20));
    PAGE_ROW("resident peak of the process", "%.2f MiB", f->resident_peak_bytes / (1 << 20));
    PAGE_ROW("bytes copied a step and rank", "%.2f MiB", (f->copied_bytes - f->cast_bytes) / (1 << 20));
    PAGE_ROW("bytes cast a step and rank", "%.2f MiB", f->cast_bytes / (1 << 20));
    PAGE_ROW("offloaded of a rank", "%.2f MiB", f->offload_bytes / (1 << 20));
    PAGE_ROW("bytes moved for it a step and rank", "%.2f MiB", f->offload_moved_bytes / (1 << 20));
    PAGE_ROW("compute idle for all-gather", f->timeline_steps > 0 ? "%.2f ms" : "-",
             f->wait_s[EO_WAIT_ALL_GATHER] * 1e3);
    PAGE_ROW("compute idle for reduce-scatter", f->timeline_steps > 0 ? "%.2f ms" : "-",
             f->wait_s[EO_WAIT_REDUCE_SCATTER] * 1e3);
    PAGE_ROW("compute idle for the norm", f->timeline_steps > 0 ? "%.2f ms" : "-",
             f->wait_s[EO_WAIT_NORM] * 1e3);
    PAGE_ROW("compute idle for what is offloaded", f->timeline_steps > 0 ? "%.2f ms" : "-", f->wait_s[EO_WAIT_FETCH] * 1e3);
    PAGE_ROW("all-gather, exposed of all", f->timeline_steps > 0 ? "%.2f of %.2f ms" : "-",
             f->exposed_s[EO_WAIT_ALL_GATHER] * 1e3,
             f->collective_s[EO_WAIT_ALL_GATHER] * 1e3);
    PAGE_ROW("reduce-scatter, exposed of all", f->timeline_steps > 0 ? "%.2f of %.2f ms" : "-",
             f->exposed_s[EO_WAIT_REDUCE_SCATTER] * 1e3,
             f->collective_s[EO_WAIT_REDUCE_SCATTER] * 1e3);
    PAGE_ROW("start delay of an all-gather", f->delayed > 0 ? "%.1f us" : "-", f->start_delay_s[EO_WAIT_ALL_GATHER] * 1e6);
    PAGE_ROW("start delay of a reduce-scatter", f->delayed > 0 ? "%.1f us" : "-",
             f->start_delay_s[EO_WAIT_REDUCE_SCATTER] * 1e6);
    PAGE_ROW("blocks beside a collective / alone", f->slowdown > 0 ? "%.3f" : "-", f->slowdown);
    if (comparison->figures[0].simulated_s > 0)
        fprintf(out, "<tr><td>the plan's list with measured times</td><td>%.2f ms (measured %.2f)</td><td "
                "colspan=\"%d\"></td></tr>\n", comparison->figures[0].simulated_s * 1e3,
                comparison->figures[0].simulated_measured_s * 1e3, comparison->mode_count - 1);
    PAGE_ROW("weights_hash", "%s", f->weights_hash);
    fputs("</table></div>\n", out);
}

void tool_comparison_write_page(const struct tool_comparison *comparison, FILE *out)
{
    const char *text = page_html;
    tool_page_to(out, &text, "{{css}}");
    fputs(page_css, out);
    tool_page_to(out, &text, "{{machine}}");
    tool_put_escaped(out, comparison->machine);
    tool_page_to(out, &text, "{{settings}}");
    tool_put_escaped(out, comparison->settings);
    tool_page_to(out, &text, "{{runs}}");
    fprintf(out, "%u run%s", comparison->run_count, tool_plural(comparison->run_count));
    tool_page_to(out, &text, "{{verdict}}");
    fputs(tool_comparison_verdict(comparison), out);
    tool_page_to(out, &text, "{{figures}}");
    put_table(comparison, out);
    put_step_times(comparison, out);
    put_memory(comparison, out);
    put_timelines(comparison, out);
    tool_page_to(out, &text, NULL);
}
