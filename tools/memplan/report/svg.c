/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tools/memplan/report/svg.h"
#include "tools/shared/page.h"

enum { WIDTH = 1200, WIDTH_MIN = 240, LEFT = 52, RIGHT = 10, STAIRS_TOP = 52, STAIRS = 230, MAP = 460, LETTER = 7 };

/* Told apart in both themes, and by those who do not see red and green alike. */
static const char *const colours[EO_CATEGORY_COUNT] = {
    [EO_CATEGORY_MASTER] = "#4e79a7",        [EO_CATEGORY_COMPUTE_SHARD] = "#76b7b2",
    [EO_CATEGORY_GRADIENT] = "#b07aa1",      [EO_CATEGORY_OPTIMIZER] = "#9c755f",
    [EO_CATEGORY_GATHER_BUFFER] = "#f28e2b", [EO_CATEGORY_GRADIENT_BUFFER] = "#e15759",
    [EO_CATEGORY_ACTIVATION] = "#59a14f",    [EO_CATEGORY_SCRATCH] = "#edc948",
    [EO_CATEGORY_HEAD] = "#ff9da7",          [EO_CATEGORY_OTHER] = "#8a8f98",
};

const char *tool_page_colour(eo_category category)
{
    return (unsigned)category < EO_CATEGORY_COUNT ? colours[category] : colours[EO_CATEGORY_OTHER];
}

struct picture {
    FILE *out;
    const struct tool_memplan *memplan;
    const struct tool_lifetimes *lifetimes;
    uint32_t width;
    uint64_t room_bytes; /* that the device has for the arena; 0: not asked */
};

/* A diagram whose bytes grow upwards. */
struct axis {
    const struct picture *picture;
    int top, height;
    double bytes; /* at the top */
};

static double x_of(const struct picture *p, double point)
{
    return LEFT + (double)(p->width - LEFT - RIGHT) * point / p->lifetimes->point_count;
}

static double y_of(const struct axis *a, double bytes)
{
    return a->top + a->height * (1 - bytes / a->bytes);
}

/* 1, 2 or 5 times a power of ten, so that `range` has at most `count` of them. */
static double round_step(double range, double count)
{
    const double least = range / count, power = pow(10, floor(log10(least)));
    for (int factor = 1; factor < 10; factor = factor == 2 ? 5 : 2 * factor)
        if (power * factor >= least * (1 - 1e-9))
            return power * factor;
    return power * 10;
}

/* --- rows ---------------------------------------------------------------------------------------------------------- */

static void operation_name(const struct picture *p, uint32_t point, char *text, size_t bytes)
{
    eo_plan_operation o;
    text[0] = '\0';
    if (eo_plan_get_operation(p->memplan->plan, EO_LIST_STEADY, p->lifetimes->operations[point / 2], &o) >= 0)
        snprintf(text, bytes, "%s", o.name);
}

static void put_row(const struct axis *a, uint32_t row_index, const eo_plan_row *row, uint32_t first, uint32_t last)
{
    const struct picture *p = a->picture;
    const uint64_t address = p->lifetimes->address[row_index];
    if (address + row->bytes > a->bytes) /* of the host's memory, or on a disk */
        return;
    const double x = x_of(p, first), width = x_of(p, last + 1.0) - x, height = a->height * (double)row->bytes / a->bytes;
    fprintf(p->out, "<rect class=\"c%d\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>", (int)row->category, x,
            y_of(a, (double)(address + row->bytes)), width, height < 0.02 ? 0.02 : height);
    tool_put_escaped(p->out, row->name);
    fprintf(p->out, "\n%s, %" PRIu64 " bytes at %" PRIu64 "\n", eo_category_name(row->category), row->bytes, address);
    if (row->always_live) {
        fprintf(p->out, "always live</title></rect>\n");
        return;
    }
    char from[EO_NAME_MAX * 2], to[EO_NAME_MAX * 2];
    operation_name(p, first, from, sizeof(from));
    operation_name(p, last, to, sizeof(to));
    tool_put_escaped(p->out, from);
    fprintf(p->out, " ... ");
    tool_put_escaped(p->out, to);
    fprintf(p->out, "</title></rect>\n");
}

static void put_rows(const struct axis *a)
{
    const struct tool_memplan *m = a->picture->memplan;
    const struct tool_lifetimes *t = a->picture->lifetimes;
    eo_plan_row row;
    fprintf(a->picture->out, "<g class=\"rows\">\n");
    for (uint32_t r = 0; r < m->summary.row_count; r++)
        if (eo_plan_get_row(m->plan, r, &row) >= 0 && row.always_live)
            put_row(a, r, &row, 0, t->point_count - 1);
    for (uint32_t i = 0; i < t->span_count; i++) {
        const struct tool_live_span *s = &t->spans[i];
        if (eo_plan_get_row(m->plan, s->row, &row) < 0)
            continue;
        if (s->first <= s->last) {
            put_row(a, s->row, &row, s->first, s->last);
        } else {
            put_row(a, s->row, &row, s->first, t->point_count - 1);
            put_row(a, s->row, &row, 0, s->last);
        }
    }
    fprintf(a->picture->out, "</g>\n");
}

/* --- live bytes ---------------------------------------------------------------------------------------------------- */

/* Of the categories up to `last`, from the bottom. Steps that nobody sees are left out. */
static void put_stack(const struct axis *a, int last)
{
    const struct tool_lifetimes *t = a->picture->lifetimes;
    FILE *out = a->picture->out;
    const double bottom = a->top + a->height;
    double drawn = -1;
    fprintf(out, "<path class=\"c%d\" d=\"M%d %.1f", last, LEFT, bottom);
    for (uint32_t point = 0; point < t->point_count; point++) {
        uint64_t sum = 0;
        for (int c = 0; c <= last; c++)
            sum += t->live[(uint64_t)point * EO_CATEGORY_COUNT + c];
        const double y = round(10 * y_of(a, (double)sum)) / 10;
        if (y == drawn)
            continue;
        fprintf(out, "H%.1fV%.1f", x_of(a->picture, point), y);
        drawn = y;
    }
    fprintf(out, "H%.1fV%.1fZ\"><title>%s</title></path>\n", (double)(a->picture->width - RIGHT), bottom,
            eo_category_name((eo_category)last));
}

/* --- axes ---------------------------------------------------------------------------------------------------------- */

static void put_text(FILE *out, double x, double y, const char *anchor, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    tool_put_escaped(out, text);
    fprintf(out, "</text>\n");
}

/* In lines of the picture's width. */
static void put_wrapped(const struct picture *p, double y, const char *text)
{
    const size_t most = (p->width - LEFT) / LETTER;
    char line[256];
    for (size_t length; *text; text += length + strspn(text + length, " "), y += 16) {
        length = strlen(text);
        if (length > most)
            for (length = most; length > 1 && text[length] != ' ';)
                length--;
        snprintf(line, sizeof(line), "%.*s", (int)length, text);
        put_text(p->out, LEFT, y, "start", line);
    }
}

/* Reductions between passes belong to the pass before them. */
static enum tool_phase band_of(const struct tool_lifetimes *t, uint32_t operation, uint32_t last_pass)
{
    while (operation > 0 && operation < last_pass && t->operation_phases[operation] == TOOL_PHASE_REDUCE)
        operation--;
    return (enum tool_phase)t->operation_phases[operation];
}

/* Forward, backward ...: a band behind each, named where there is room. */
static void put_phases(const struct picture *p, int bottom)
{
    const struct tool_lifetimes *t = p->lifetimes;
    const uint32_t count = t->point_count / 2;
    uint32_t last_pass = count;
    while (last_pass > 0 && t->operation_phases[last_pass - 1] > TOOL_PHASE_BACKWARD)
        last_pass--;
    for (uint32_t first = 0, next; first < count; first = next) {
        const enum tool_phase phase = band_of(t, first, last_pass);
        for (next = first + 1; next < count && band_of(t, next, last_pass) == phase;)
            next++;
        const double x = x_of(p, 2.0 * first), width = x_of(p, 2.0 * next) - x;
        const char *name = tool_phase_name(phase);
        fprintf(p->out, "<rect class=\"phase p%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>%s</title></rect>\n",
                (int)phase, x, STAIRS_TOP - 16, width, bottom - STAIRS_TOP + 16, name);
        if (width > LETTER * (double)strlen(name))
            put_text(p->out, x + width / 2, STAIRS_TOP - 4, "middle", name);
    }
}

static void put_bytes_axis(const struct axis *a, const char *title)
{
    const struct picture *p = a->picture;
    const bool is_small = a->bytes < 1073741824.0;
    const double unit = is_small ? 1048576.0 : 1073741824.0, step = round_step(a->bytes / unit, 6);
    char text[160];
    for (int i = 0; i * step * unit <= a->bytes * (1 + 1e-9); i++) {
        const double y = y_of(a, i * step * unit);
        fprintf(p->out, "<path class=\"grid\" d=\"M%d %.1fH%u\"/>\n", LEFT, y, p->width - RIGHT);
        snprintf(text, sizeof(text), "%g", i * step);
        put_text(p->out, LEFT - 6, y + 4, "end", text);
    }
    snprintf(text, sizeof(text), "%s, %s", title, is_small ? "MiB" : "GiB");
    put_text(p->out, 4, a->top == STAIRS_TOP ? 16 : a->top - 8, "start", text);
}

static void put_time_axis(const struct axis *a)
{
    const struct picture *p = a->picture;
    const uint32_t count = p->lifetimes->point_count / 2, step = (uint32_t)fmax(1, round_step(count, p->width / 110.0));
    char text[32];
    for (uint32_t i = 0; i <= count; i += step) {
        const double x = x_of(p, 2.0 * i);
        fprintf(p->out, "<path class=\"tick\" d=\"M%.1f %dv5\"/>\n", x, a->top + a->height);
        snprintf(text, sizeof(text), "%u", i);
        put_text(p->out, x, a->top + a->height + 18, x > p->width - 4 * LETTER ? "end" : "middle", text);
    }
    put_text(p->out, LEFT, a->top + a->height + 36, "start", "operations of the compute stream");
}

static void put_line(const struct axis *a, const char *class, double bytes, const char *text)
{
    if (bytes <= 0 || bytes > a->bytes)
        return;
    const struct picture *p = a->picture;
    const double y = y_of(a, bytes);
    fprintf(p->out, "<path class=\"%s\" d=\"M%d %.1fH%u\"/>\n", class, LEFT, y, p->width - RIGHT);
    put_text(p->out, p->width - RIGHT - 2, y < a->top + 14 ? y + 13 : y - 4, "end", text);
}

/* The y below the last line; without `shown` nothing is written. */
static double put_legend(const struct picture *p, double y, bool shown)
{
    double x = LEFT;
    for (int c = 0; c < EO_CATEGORY_COUNT; c++) {
        if (!p->memplan->summary.category_bytes[c])
            continue;
        const char *name = eo_category_name((eo_category)c);
        const double width = 34 + LETTER * (double)strlen(name);
        if (x + width > p->width && x > LEFT) {
            x = LEFT;
            y += 20;
        }
        if (shown) {
            fprintf(p->out, "<rect class=\"c%d\" x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\"/>", c, x, y);
            put_text(p->out, x + 17, y + 11, "start", name);
        }
        x += width;
    }
    return y + 20;
}

/* --- the whole ----------------------------------------------------------------------------------------------------- */

/* The paper is a rectangle, for outside browsers nobody draws the background of the root. */
static void put_style(FILE *out)
{
    fprintf(out, "<style>\n.paper{fill:#fff}.memplan{color:#1b1f24;font:12px system-ui,sans-serif}.memplan text{fill:currentColor}\n"
            ".grid,.tick{stroke:currentColor;stroke-opacity:.18;fill:none}.tick{stroke-opacity:.6}\n"
            ".arena,.room,.peak{stroke:currentColor;fill:none}.arena{stroke-dasharray:6 4}.room{stroke:#e15759;stroke-width:2}\n"
            ".peak{stroke-dasharray:2 3}.phase{fill:currentColor;fill-opacity:.05}.p1{fill-opacity:.12}.p3{fill-opacity:.2}\n"
            ".rows rect:hover{stroke:currentColor;stroke-width:1.5}\n");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        fprintf(out, ".c%d{fill:%s}", c, colours[c]);
    fprintf(out, "\n@media (prefers-color-scheme:dark){.paper{fill:#14171c}.memplan{color:#e6e9ee}}\n</style>\n"
            "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n");
}

static void put_diagrams(const struct picture *p, int map_top)
{
    const uint64_t device = p->memplan->device_bytes, arena = p->memplan->summary.arena_bytes;
    const struct axis map = {p, map_top, MAP, (double)(device ? device : 1)};
    const struct axis stairs = {p, STAIRS_TOP, STAIRS, 1.04 * (double)(p->room_bytes > arena ? p->room_bytes : arena) + 1};
    const double peak = x_of(p, p->lifetimes->peak_point + 0.5);
    put_phases(p, map_top + MAP);
    put_bytes_axis(&stairs, "live bytes of a step");
    for (int c = EO_CATEGORY_COUNT; c-- > 0;)
        if (p->memplan->summary.category_bytes[c])
            put_stack(&stairs, c);
    put_line(&stairs, "arena", (double)device, "arena");
    put_line(&stairs, "room", (double)p->room_bytes, "capacity less what lies outside");
    put_bytes_axis(&map, "the arena by offset");
    put_rows(&map);
    put_line(&map, "room", (double)p->room_bytes, "capacity less what lies outside");
    put_time_axis(&map);
    fprintf(p->out, "<path class=\"peak\" d=\"M%.1f %dV%d\"/>\n", peak, STAIRS_TOP, map_top + MAP);
    put_text(p->out, peak, STAIRS_TOP + STAIRS + 14, peak > p->width - 30 ? "end" : "middle", "peak");
}

void tool_page_svg(FILE *out, const struct tool_memplan_view *view, uint32_t width)
{
    const struct tool_memplan *m = view->memplan;
    const uint64_t usable = m->settings.capacity_bytes ? tool_usable_bytes(&m->settings) : 0;
    const struct picture p = {.out = out, .memplan = view->shown, .lifetimes = view->lifetimes,
                              .width = width == 0 ? WIDTH : width < WIDTH_MIN ? WIDTH_MIN : width,
                              .room_bytes = usable > m->outside_bytes ? usable - m->outside_bytes : 0};
    const int map_top = STAIRS_TOP + STAIRS + 40, legend = map_top + MAP + 50;
    char shown[320];
    tool_shown_text(view, shown, sizeof(shown));
    const double height = !view->lifetimes ? 80 : put_legend(&p, legend, false) + (shown[0] ? 16.0 * LETTER * 320 / p.width : 0);
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"memplan\" viewBox=\"0 0 %u %.0f\" role=\"img\" "
            "aria-label=\"memory of a step by offset and time\">\n", p.width, height);
    put_style(out);
    if (view->lifetimes) {
        put_diagrams(&p, map_top);
        put_wrapped(&p, put_legend(&p, legend, true) + 12, shown);
    } else {
        put_wrapped(&p, 40, "the step has too many operations for a picture; plan fewer micro-batches");
    }
    fprintf(out, "</svg>\n");
}
