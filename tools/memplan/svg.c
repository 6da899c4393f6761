/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "tools/memplan/page.h"
#include "tools/shared/page.h"

enum { WIDTH = 1200, LEFT = 78, RIGHT = 12, STAIRS_TOP = 34, STAIRS = 170, MAP_TOP = 250, MAP = 520, LEGEND_TOP = 800 };

/* Told apart in both themes, and by those who do not see red and green alike. */
static const char *const colours[EO_CATEGORY_COUNT] = {
    [EO_CATEGORY_MASTER] = "#4e79a7",        [EO_CATEGORY_COMPUTE_SHARD] = "#76b7b2",
    [EO_CATEGORY_GRADIENT] = "#b07aa1",      [EO_CATEGORY_OPTIMIZER] = "#9c755f",
    [EO_CATEGORY_GATHER_BUFFER] = "#f28e2b", [EO_CATEGORY_GRADIENT_BUFFER] = "#e15759",
    [EO_CATEGORY_ACTIVATION] = "#59a14f",    [EO_CATEGORY_SCRATCH] = "#edc948",
    [EO_CATEGORY_HEAD] = "#ff9da7",          [EO_CATEGORY_OTHER] = "#8a8f98",
};

struct picture {
    FILE *out;
    const struct tool_memplan *memplan;
    const struct tool_lifetimes *lifetimes;
    uint64_t bytes; /* of the vertical scale */
};

static double x_of(const struct picture *p, double point)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * point / p->lifetimes->point_count;
}

static void operation_name(const struct picture *p, uint32_t point, char *text, size_t bytes)
{
    eo_plan_operation o;
    text[0] = '\0';
    if (eo_plan_get_operation(p->memplan->plan, EO_LIST_STEADY, p->lifetimes->operations[point / 2], &o) >= 0)
        snprintf(text, bytes, "%s", o.name);
}

static void put_rect(const struct picture *p, uint32_t row_index, const eo_plan_row *row, uint32_t first, uint32_t last)
{
    const double y = MAP_TOP + (double)MAP * (double)p->lifetimes->address[row_index] / (double)p->bytes;
    const double height = (double)MAP * (double)row->bytes / (double)p->bytes;
    const double x = x_of(p, first), width = x_of(p, last + 1.0) - x;
    fprintf(p->out, "<rect class=\"c%d\" x=\"%.2f\" y=\"%.3f\" width=\"%.2f\" height=\"%.3f\"><title>", (int)row->category, x,
            y, width, height < 0.02 ? 0.02 : height);
    tool_put_escaped(p->out, row->name);
    fprintf(p->out, "\n%s, %" PRIu64 " bytes at %" PRIu64 "\n", eo_category_name(row->category), row->bytes,
            p->lifetimes->address[row_index]);
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

static void put_map(const struct picture *p)
{
    const struct tool_lifetimes *t = p->lifetimes;
    eo_plan_row row;
    for (uint32_t r = 0; r < p->memplan->summary.row_count; r++)
        if (eo_plan_get_row(p->memplan->plan, r, &row) >= 0 && row.always_live && row.space < EO_SPACE_HOST)
            put_rect(p, r, &row, 0, t->point_count - 1);
    for (uint32_t i = 0; i < t->span_count; i++) {
        const struct tool_live_span *s = &t->spans[i];
        if (eo_plan_get_row(p->memplan->plan, s->row, &row) < 0)
            continue;
        if (s->first <= s->last) {
            put_rect(p, s->row, &row, s->first, s->last);
        } else {
            put_rect(p, s->row, &row, s->first, t->point_count - 1);
            put_rect(p, s->row, &row, 0, s->last);
        }
    }
}

static void put_stairs(const struct picture *p)
{
    const struct tool_lifetimes *t = p->lifetimes;
    const double bottom = STAIRS_TOP + STAIRS;
    uint64_t drawn = UINT64_MAX;
    fprintf(p->out, "<path class=\"stairs\" d=\"M%.1f %.1f", (double)LEFT, bottom);
    for (uint32_t point = 0; point < t->point_count; point++) {
        uint64_t sum = 0;
        for (int c = 0; c < EO_CATEGORY_COUNT; c++)
            sum += t->live[(uint64_t)point * EO_CATEGORY_COUNT + c];
        if (sum == drawn)
            continue;
        fprintf(p->out, "H%.2fV%.2f", x_of(p, point), bottom - STAIRS * (double)sum / (double)p->bytes);
        drawn = sum;
    }
    fprintf(p->out, "H%.1fV%.1fZ\"><title>live bytes through a step; at most %" PRIu64 "</title></path>\n",
            (double)(WIDTH - RIGHT), bottom, t->peak_bytes);
}

static void put_axes(const struct picture *p)
{
    const struct tool_lifetimes *t = p->lifetimes;
    for (int i = 0; i <= 4; i++) {
        const double share = i / 4.0;
        const double y[] = {STAIRS_TOP + STAIRS * (1 - share), MAP_TOP + MAP * share};
        for (int k = 0; k < 2; k++)
            fprintf(p->out,
                    "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.2f"
                    "</text>\n",
                    LEFT, y[k], WIDTH - RIGHT, LEFT - 6, y[k] + 4, share * tool_gib(p->bytes));
    }
    fprintf(p->out, "<text x=\"%d\" y=\"20\">live bytes, GiB (dashed: the arena)</text><text x=\"%d\" y=\"%d\">the arena by "
            "offset, GiB</text>\n", LEFT, LEFT, MAP_TOP - 10);
    const double arena = STAIRS_TOP + STAIRS * (1 - (double)p->memplan->summary.arena_bytes / (double)p->bytes);
    fprintf(p->out, "<path class=\"arena\" d=\"M%d %.1fH%d\"/>\n", LEFT, arena, WIDTH - RIGHT);
    const double peak = x_of(p, t->peak_point + 0.5);
    fprintf(p->out, "<path class=\"peak\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">peak</text>\n", peak,
            STAIRS_TOP - 4, MAP_TOP + MAP, peak, STAIRS_TOP + STAIRS + 16, peak > WIDTH - 80 ? "end" : "middle");
    char name[EO_NAME_MAX * 2];
    for (int i = 0; i < 5; i++) {
        const uint32_t point = (uint32_t)((uint64_t)(t->point_count - 1) * (uint64_t)i / 4);
        operation_name(p, point, name, sizeof(name));
        fprintf(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x_of(p, point), MAP_TOP + MAP + 18,
                i == 0 ? "start" : i == 4 ? "end" : "middle");
        tool_put_escaped(p->out, name);
        fprintf(p->out, "</text>\n");
    }
}

static void put_legend(const struct picture *p)
{
    for (int c = 0, n = 0; c < EO_CATEGORY_COUNT; c++) {
        if (!p->memplan->summary.category_bytes[c])
            continue;
        const int x = LEFT + n % 5 * 220, y = LEGEND_TOP + n / 5 * 22;
        fprintf(p->out, "<rect class=\"c%d\" x=\"%d\" y=\"%d\" width=\"14\" height=\"14\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                c, x, y, x + 20, y + 12, eo_category_name((eo_category)c));
        n++;
    }
}

void tool_page_svg(FILE *out, const struct tool_memplan_view *view)
{
    const eo_plan_summary *s = &view->shown->summary;
    char shown[320];
    tool_shown_text(view, shown, sizeof(shown));
    const struct picture p = {.out = out, .memplan = view->shown, .lifetimes = view->lifetimes,
                              .bytes = s->arena_bytes ? s->arena_bytes : 1};
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d 850\" role=\"img\" "
            "aria-label=\"memory of a step by offset and time\">\n<style>\n"
            "svg{color:#1b1f24;background:#fff;font:12px system-ui,sans-serif}text{fill:currentColor}\n"
            ".grid{stroke:currentColor;stroke-opacity:.15;fill:none}.stairs{fill:#4e79a7;fill-opacity:.55}\n"
            ".arena{stroke:currentColor;stroke-dasharray:6 4;fill:none}.peak{stroke:#e15759;stroke-width:1.2;fill:none}\n"
            "rect:hover{stroke:currentColor;stroke-width:1.5}\n", WIDTH);
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        fprintf(out, ".c%d{fill:%s}", c, colours[c]);
    fprintf(out, "\n@media (prefers-color-scheme:dark){svg{color:#e6e9ee;background:#14171c}}\n</style>\n");
    if (view->lifetimes) {
        put_axes(&p);
        put_stairs(&p);
        put_map(&p);
        put_legend(&p);
        fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT, LEGEND_TOP + 46, shown);
    } else {
        fprintf(out, "<text x=\"20\" y=\"40\">the step has too many operations for a picture; plan fewer micro-batches</text>\n");
    }
    fprintf(out, "</svg>\n");
}
