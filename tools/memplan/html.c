/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/memplan/page.h"
#include "tools/memplan_page.h"
#include "tools/shared/clock.h"
#include "tools/shared/json_output.h"
#include "tools/shared/page.h"

enum { CHOICES_MAX = 8 };

static const char *const recompute_names[4] = {"none", "cheap", "half of the blocks", "all"};

struct choices {
    uint32_t values[CHOICES_MAX], count;
};

static void add_choice(struct choices *c, uint64_t value, uint64_t most)
{
    if (value == 0 || value > most || c->count == CHOICES_MAX)
        return;
    uint32_t at = 0;
    while (at < c->count && c->values[at] < value)
        at++;
    if (at < c->count && c->values[at] == value)
        return;
    memmove(&c->values[at + 1], &c->values[at], (c->count - at) * sizeof(c->values[0]));
    c->values[at] = (uint32_t)value;
    c->count++;
}

/* Half, the asked one, twice and four times as much. */
static struct choices around(uint32_t value, uint32_t most)
{
    struct choices c = {.count = 0};
    add_choice(&c, value / 2, most);
    add_choice(&c, value, most);
    add_choice(&c, 2 * (uint64_t)value, most);
    add_choice(&c, 4 * (uint64_t)value, most);
    return c;
}

struct all_choices {
    struct choices worlds, batches, seqs, recomputes;
};

static struct all_choices choices_of(const struct tool_memplan_view *view)
{
    const struct tool_plan_settings *s = &view->memplan->settings.plan;
    return (struct all_choices){around(s->ranks, TOOL_PLAN_RANKS_MAX),
                                around(s->batch, 1 << 20),
                                around(s->seq, view->config->context),
                                {.values = {0, 1, 2, 3}, .count = 4}};
}

static void set_recompute(struct tool_plan_settings *s, uint32_t index, uint32_t layer_count)
{
    s->recompute = index == 0 ? EO_RECOMPUTE_NONE : index == 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
    s->recompute_blocks = index == 2 ? (layer_count + 1) / 2 : layer_count;
}

static void plan_point(struct tool_page_point *point, const struct tool_memplan_view *view)
{
    struct tool_memplan_settings s = view->memplan->settings;
    struct tool_memplan m;
    struct tool_problem problem;
    s.plan.ranks = point->world;
    s.plan.batch = point->batch;
    s.plan.seq = point->seq;
    s.plan.head_chunks = 0;
    if (!s.outside.given)
        s.outside = (struct tool_outside){0};
    set_recompute(&s.plan, point->recompute, view->config->layer_count);
    if (tool_memplan_create(&m, view->config, &s, &problem) < 0)
        return;
    point->planned = true;
    point->arena_bytes = m.summary.arena_bytes;
    point->lower_bound_bytes = m.summary.lower_bound_bytes;
    point->outside_bytes = m.outside_bytes;
    point->total_bytes = m.total_bytes;
    memcpy(point->category_bytes_at_peak, m.summary.category_bytes_at_peak, sizeof(point->category_bytes_at_peak));
    tool_memplan_fini(&m);
}

struct tool_page_point *tool_page_points(const struct tool_memplan_view *view, uint32_t *count)
{
    const struct all_choices c = choices_of(view);
    const uint32_t all = c.worlds.count * c.batches.count * c.seqs.count * 4;
    struct tool_page_point *points = calloc(all, sizeof(*points));
    const uint64_t begun_ns = tool_now_ns();
    uint64_t shown_ns = begun_ns;
    const bool terminal = isatty(STDERR_FILENO);
    *count = 0;
    if (!points)
        return NULL;
    for (uint32_t i = 0; i < all; i++) {
        points[i] = (struct tool_page_point){.world = c.worlds.values[i / 4 / c.seqs.count / c.batches.count],
                                             .batch = c.batches.values[i / 4 / c.seqs.count % c.batches.count],
                                             .seq = c.seqs.values[i / 4 % c.seqs.count],
                                             .recompute = i % 4};
        plan_point(&points[i], view);
        const uint64_t now = tool_now_ns();
        if (now - begun_ns > 1000000000 && now - shown_ns > 500000000) {
            shown_ns = now;
            fprintf(stderr, terminal ? "\rplans for the page: %u of %u " : "plans for the page: %u of %u\n", i + 1, all);
        }
    }
    if (terminal && shown_ns != begun_ns)
        fprintf(stderr, "\r%40s\r", "");
    *count = all;
    return points;
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

static void put_slider(FILE *out, const char *name, const char *label, const struct choices *c, uint32_t value)
{
    uint32_t index = 0;
    for (uint32_t i = 0; i < c->count; i++)
        index = c->values[i] == value ? i : index;
    fprintf(out, "<label for=\"%s\">%s: <output id=\"%s-now\" for=\"%s\"></output>\n<input type=\"range\" id=\"%s\" min=\"0\" "
            "max=\"%u\" step=\"1\" value=\"%u\"></label>\n", name, label, name, name, name, c->count - 1, index);
}

static void write_choices(struct eo_json *json, const char *name, const struct choices *c)
{
    eo_json_write(json, "%s: [", name);
    for (uint32_t i = 0; i < c->count; i++)
        eo_json_write(json, "%u", c->values[i]);
    eo_json_write(json, "]");
}

static uint32_t recompute_index(const struct tool_memplan_view *view)
{
    const struct tool_plan_settings *s = &view->memplan->settings.plan;
    if (s->recompute != EO_RECOMPUTE_BLOCKS)
        return s->recompute == EO_RECOMPUTE_CHEAP;
    return s->recompute_blocks >= view->config->layer_count ? 3 : 2;
}

static void put_data(FILE *out, const struct tool_memplan_view *view, const struct tool_page_point *points, uint32_t count)
{
    const struct all_choices choices = choices_of(view);
    struct eo_json json = {.write = tool_write_to_stream, .user = out};
    eo_json_write(&json, "{'capacity': %" PRIu64 ", 'categories': [", tool_usable_bytes(&view->memplan->settings));
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        eo_json_write(&json, "%s", eo_category_name((eo_category)c));
    eo_json_write(&json, "], 'recompute': [");
    for (int r = 0; r < 4; r++)
        eo_json_write(&json, "%s", recompute_names[r]);
    eo_json_write(&json, "], 'choices': {");
    write_choices(&json, "world", &choices.worlds);
    write_choices(&json, "batch", &choices.batches);
    write_choices(&json, "seq", &choices.seqs);
    write_choices(&json, "recompute", &choices.recomputes);
    eo_json_write(&json, "}, 'points': [");
    for (uint32_t i = 0; i < count; i++) {
        const struct tool_page_point *p = &points[i];
        eo_json_write(&json,
                      "{'k': [%u, %u, %u, %u], 'arena': %" PRIu64 ", 'low': %" PRIu64 ", 'out': %" PRIu64 ", 'total': %" PRIu64
                      ", 'c': [",
                      p->world, p->batch, p->seq, p->recompute, p->arena_bytes, p->lower_bound_bytes, p->outside_bytes,
                      p->total_bytes);
        for (int c = 0; c < EO_CATEGORY_COUNT; c++)
            eo_json_write(&json, "%" PRIu64, p->category_bytes_at_peak[c]);
        eo_json_write(&json, "]}");
    }
    eo_json_write(&json, "]}");
}

static void put_report(FILE *out, const struct tool_memplan_view *view)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory)
        return;
    tool_report_plan(memory, view);
    tool_report_explain(memory, view);
    fclose(memory);
    tool_put_escaped(out, text);
    free(text);
}

void tool_page_html(FILE *out, const struct tool_memplan_view *view, const struct tool_page_point *points, uint32_t count)
{
    const struct tool_plan_settings *s = &view->memplan->settings.plan;
    const struct all_choices choices = choices_of(view);
    const char *text = page_html;
    char strategy[32];
    tool_strategy_text(s->strategy, s->shard_group, strategy, sizeof(strategy));
    tool_page_to(out, &text, "{{css}}");
    fputs(page_css, out);
    tool_page_to(out, &text, "{{model}}");
    tool_put_escaped(out, view->config->source);
    tool_page_to(out, &text, "{{facts}}");
    fprintf(out, "%s, %" PRIu64 " parameters, %s, %s%s%s", tool_config_family_name(view->config->family),
            view->memplan->summary.element_count, strategy, eo_dtype_name(s->dtype),
            s->float8_gather ? " gathered in float8" : "",
            view->memplan->runs ? "" : "; planned, not run");
    tool_page_to(out, &text, "{{sliders}}");
    put_slider(out, "world", "ranks", &choices.worlds, s->ranks);
    put_slider(out, "batch", "sequences a rank", &choices.batches, s->batch);
    put_slider(out, "seq", "tokens a sequence", &choices.seqs, s->seq);
    put_slider(out, "recompute", "recompute", &choices.recomputes, recompute_index(view));
    tool_page_to(out, &text, "{{plans}}");
    fprintf(out, "%u plan%s", count, tool_plural(count));
    tool_page_to(out, &text, "{{shown}}");
    fprintf(out, "%u rank%s, %u x %u tokens", s->ranks, tool_plural(s->ranks), s->batch, s->seq);
    tool_page_to(out, &text, "{{picture}}");
    tool_page_svg(out, view);
    tool_page_to(out, &text, "{{report}}");
    put_report(out, view);
    tool_page_to(out, &text, "{{data}}");
    put_data(out, view, points, count);
    tool_page_to(out, &text, "{{script}}");
    fputs(page_js, out);
    tool_page_to(out, &text, NULL);
}
