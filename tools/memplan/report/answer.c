/* SPDX-License-Identifier: MIT */
#include "tools/memplan/report/answer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* A line that stays within its columns: what does not fit is left out. */
struct line {
    char text[TOOL_ANSWER_COLUMNS + 1];
    size_t used;
};

static bool add(struct line *line, const char *format, ...) EO_PRINTF(2, 3);

static bool add(struct line *line, const char *format, ...)
{
    char more[256];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(more, sizeof(more), format, arguments);
    va_end(arguments);
    if (length < 0 || line->used + (size_t)length > TOOL_ANSWER_COLUMNS)
        return false;
    memcpy(line->text + line->used, more, (size_t)length + 1);
    line->used += (size_t)length;
    return true;
}

/* GiB, or MiB for models of tests. */
struct unit {
    double bytes;
    const char *name;
};

static struct unit unit_of(uint64_t total)
{
    return total >= (uint64_t)1 << 30 ? (struct unit){1073741824.0, "GiB"} : (struct unit){1048576.0, "MiB"};
}

static double in(struct unit unit, uint64_t bytes)
{
    return (double)bytes / unit.bytes;
}

/* The end of a path is what tells it apart. */
static void add_name(struct line *line, const char *source)
{
    static const char file[] = "/config.json";
    enum { MOST = 30 };
    size_t length = strlen(source);
    if (length > strlen(file) && strcmp(source + length - strlen(file), file) == 0)
        length -= strlen(file);
    const size_t shown = length > MOST ? MOST - 3 : length;
    add(line, "%s%.*s", length > MOST ? "..." : "", (int)shown, source + length - shown);
}

static void print_verdict(FILE *out, const struct tool_memplan_view *view, struct unit unit)
{
    const struct tool_memplan *m = view->memplan;
    const struct tool_plan_settings *s = &m->settings.plan;
    const uint64_t capacity = m->settings.capacity_bytes, usable = tool_usable_bytes(&m->settings);
    struct line line = {.used = 0};
    char strategy[32], slice[64];
    tool_strategy_text(s->strategy, s->shard_group, strategy, sizeof(strategy));
    tool_slice_text(&m->settings.slice, slice, sizeof(slice));
    add_name(&line, view->config->source);
    add(&line, ", %u ", s->ranks);
    if (view->device)
        add(&line, "x %s", view->device->name);
    else
        add(&line, "%s%s", m->settings.on_gpu ? "GPU" : "rank", tool_plural(s->ranks));
    add(&line, ", %s%s", strategy, slice);
    if (s->micro_batches > 1 && !slice[0]) /* a line has its columns; the settings have the tokens */
        add(&line, ", %u x", s->micro_batches);
    if (!slice[0])
        add(&line, "%s %" PRIu64 " tokens", s->micro_batches > 1 ? "" : ",", (uint64_t)s->batch * s->seq);
    add(&line, ": ");
    if (!capacity)
        add(&line, "%.1f %s a %s", in(unit, m->total_bytes), unit.name, m->settings.on_gpu ? "GPU" : "rank");
    else
        add(&line, "%s, %.1f of %.1f %s, %.1f %s", m->fits ? "FITS" : "DOES NOT FIT", in(unit, m->total_bytes),
            in(unit, capacity), unit.name, in(unit, m->fits ? usable - m->total_bytes : m->total_bytes - usable),
            m->fits ? "spare" : "lacking");
    if (!m->runs && !add(&line, " (planned, not run)"))
        add(&line, ", not run");
    if (m->settings.headroom_bytes)
        add(&line, " (headroom %.1f)", in(unit, m->settings.headroom_bytes));
    fprintf(out, "%s\n", line.text);
}

/* "backward, block 31", of "backward of block.31" and the like; without the number of a micro-batch. */
static void add_peak_place(struct line *line, const struct tool_lifetimes *t)
{
    if (!t)
        return;
    for (int p = 0; p < TOOL_PHASE_COUNT; p++) {
        const char *block = strstr(t->phases[p].operation, "block."), *layer = strstr(t->phases[p].operation, " of ");
        if (t->phases[p].bytes != t->peak_bytes)
            continue;
        add(line, " (%s", tool_phase_name((enum tool_phase)p));
        if (block)
            add(line, ", block %lu", strtoul(block + 6, NULL, 10));
        else if (layer) {
            const char *micro_batch = strstr(layer, " (");
            add(line, ", %.*s", micro_batch ? (int)(micro_batch - layer - 4) : EO_NAME_MAX, layer + 4);
        }
        add(line, ")");
        return;
    }
}

static void sort_parts(const uint64_t bytes[TOOL_PART_COUNT], enum tool_part order[TOOL_PART_COUNT])
{
    for (int p = 0; p < TOOL_PART_COUNT; p++) {
        int at = p;
        for (; at > 0 && bytes[order[at - 1]] < bytes[p]; at--)
            order[at] = order[at - 1];
        order[at] = (enum tool_part)p;
    }
}

/* The largest parts, as many as there is room for; "rest" is what is left of the total. */
static void print_peak(FILE *out, const struct tool_memplan_view *view, const uint64_t bytes[TOOL_PART_COUNT],
                       const enum tool_part order[TOOL_PART_COUNT], struct unit unit)
{
    for (int shown = 5; shown > 0; shown--) {
        struct line line = {.used = 0};
        uint64_t rest = view->memplan->total_bytes;
        bool fits = add(&line, "peak");
        add_peak_place(&line, view->lifetimes);
        for (int i = 0; i < shown && in(unit, bytes[order[i]]) >= 0.05; i++) {
            fits = fits && add(&line, "%s %s %.1f", i ? "," : ":", tool_part_name(order[i]), in(unit, bytes[order[i]]));
            rest -= bytes[order[i]];
        }
        if (in(unit, rest) >= 0.05 && !add(&line, ", rest %.1f", in(unit, rest)))
            fits = fits && rest < view->memplan->total_bytes / 20;
        if (!fits)
            continue;
        fprintf(out, "%s\n", line.text);
        return;
    }
}

static void print_table(FILE *out, const struct tool_memplan_view *view, const uint64_t bytes[TOOL_PART_COUNT],
                        const enum tool_part order[TOOL_PART_COUNT])
{
    const struct tool_memplan *m = view->memplan;
    const char *who = m->settings.on_gpu ? "GPU" : "rank";
    fprintf(out, "\nat the peak of a %-8s %15s %10s %6s\n", who, "bytes", "GiB", "%");
    for (int i = 0; i < TOOL_PART_COUNT; i++)
        if (bytes[order[i]])
            fprintf(out, "%-20s %19" PRIu64 " %10.3f %6.1f  %s\n", tool_part_name(order[i]), bytes[order[i]],
                    tool_gib(bytes[order[i]]), 100 * (double)bytes[order[i]] / (double)m->total_bytes,
                    order[i] == TOOL_PART_OUTSIDE && m->settings.outside.given ? "as given with --outside"
                                                                               : tool_part_explanation(order[i]));
    fprintf(out, "%-20s %19" PRIu64 " %10.3f %6.1f  = %.3f GB; %s\n", "total", m->total_bytes, tool_gib(m->total_bytes), 100.0,
            (double)m->total_bytes * 1e-9, m->runs ? "all but outside is exact" : "planned, not run");
}

/* --- what else -------------------------------------------------------------------------------------------------------- */

/* Whole nodes, and the micro-batches of a global batch (0: none was given), as the command line takes them. */
static bool complete(struct tool_memplan_settings *s, uint32_t global_batch)
{
    const struct tool_slice *slice = &s->slice;
    const uint64_t cuts = tool_slice_cuts(slice) * (slice->context ? slice->context : 1);
    const uint64_t each = s->plan.ranks / cuts * s->plan.batch;
    if (s->plan.ranks > s->gpus_per_node && s->plan.ranks % s->gpus_per_node)
        return false;
    if (!global_batch)
        return true;
    if (!each || global_batch % each || global_batch / each > TOOL_MICRO_BATCHES_MOST)
        return false;
    s->plan.micro_batches = (uint32_t)(global_batch / each);
    return true;
}

/* Bytes with these settings; false: they cannot be given, or planned. */
static bool try_settings(const struct tool_model_config *config, const struct tool_memplan_settings *settings,
                         uint32_t global_batch, uint64_t *total)
{
    struct tool_memplan_settings s = *settings;
    struct tool_memplan m;
    struct tool_problem problem;
    if (!complete(&s, global_batch))
        return false;
    if (!s.outside.given)
        s.outside = (struct tool_outside){0};
    if (tool_memplan_create(&m, config, &s, &problem) < 0)
        return false;
    *total = m.total_bytes;
    tool_memplan_fini(&m);
    return true;
}

static void set_recompute(struct tool_memplan_settings *s, eo_recompute recompute)
{
    s->plan.recompute = recompute;
    s->plan.recompute_blocks = recompute == EO_RECOMPUTE_BLOCKS ? UINT32_MAX : 0;
}

/* " fits with 15.0 left", or what it takes where nobody asked for a fit. */
static void add_outcome(struct line *line, const char *separator, const char *what, bool several,
                        const struct tool_memplan_settings *s, uint64_t total, struct unit unit)
{
    const uint64_t usable = tool_usable_bytes(s);
    if (!s->capacity_bytes)
        add(line, "%s%s %.1f %s", separator, what, in(unit, total), unit.name);
    else if (total <= usable)
        add(line, "%s%s fit%s with %.1f left", separator, what, several ? "" : "s", in(unit, usable - total));
    else
        add(line, "%s%s lack%s %.1f", separator, what, several ? "" : "s", in(unit, total - usable));
}

static void print_tries(FILE *out, const struct tool_memplan_view *view, struct unit unit)
{
    const struct tool_memplan_settings *asked = view->asked;
    const struct tool_plan_settings *plan = &asked->plan;
    struct tool_memplan_settings s = *asked;
    struct line line = {.used = 0};
    char what[48];
    uint64_t total;
    add(&line, "try:");
    set_recompute(&s, EO_RECOMPUTE_CHEAP);
    const bool has_cheap = plan->recompute == EO_RECOMPUTE_NONE && try_settings(view->config, &s, view->global_batch, &total) &&
                           total < view->memplan->total_bytes;
    if (has_cheap)
        add(&line, " --recompute cheap %.1f %s", in(unit, total), unit.name);
    set_recompute(&s, EO_RECOMPUTE_NONE);
    const bool saves_nothing = plan->recompute == EO_RECOMPUTE_CHEAP &&
                               try_settings(view->config, &s, view->global_batch, &total) && total <= view->memplan->total_bytes;
    if (saves_nothing)
        add(&line, " --recompute none %.1f %s (cheap saves nothing here)", in(unit, total), unit.name);
    set_recompute(&s, EO_RECOMPUTE_BLOCKS);
    if ((plan->recompute != EO_RECOMPUTE_BLOCKS || plan->recompute_blocks < view->config->layer_count) &&
        try_settings(view->config, &s, view->global_batch, &total) && total < view->memplan->total_bytes)
        add(&line, has_cheap || saves_nothing ? ", all %.1f" : " --recompute all %.1f %s", in(unit, total), unit.name);
    const char *separator = line.used > strlen("try:") ? "; " : " ";
    s = *asked;
    s.plan.batch = view->memplan->fits ? plan->batch + 1 : plan->batch / 2;
    if (s.plan.batch > 0 && try_settings(view->config, &s, view->global_batch, &total)) {
        snprintf(what, sizeof(what), "batch %u", s.plan.batch);
        add_outcome(&line, separator, what, false, asked, total, unit);
        separator = "; ";
    }
    s = *asked;
    s.plan.ranks = view->memplan->fits ? plan->ranks / 2 : plan->ranks * 2;
    if (s.plan.ranks > 0 && s.plan.ranks <= TOOL_PLAN_RANKS_MAX && try_settings(view->config, &s, view->global_batch, &total)) {
        snprintf(what, sizeof(what), "%u %s%s", s.plan.ranks, view->memplan->settings.on_gpu ? "GPU" : "rank",
                 tool_plural(s.plan.ranks));
        add_outcome(&line, separator, what, s.plan.ranks > 1, asked, total, unit);
    }
    if (line.used > strlen("try:"))
        fprintf(out, "%s\n", line.text);
}

/* Settings on trial, and the text of those that fit. */
struct remedies {
    const struct tool_model_config *config;
    uint32_t global_batch;
    uint64_t usable;
    char *text;
    size_t bytes, used;
};

static bool add_if_fits(struct remedies *r, const struct tool_memplan_settings *s, const char *format, ...) EO_PRINTF(3, 4);

static bool add_if_fits(struct remedies *r, const struct tool_memplan_settings *s, const char *format, ...)
{
    char words[96];
    uint64_t total;
    va_list arguments;
    if (!try_settings(r->config, s, r->global_batch, &total) || total > r->usable)
        return false;
    va_start(arguments, format);
    vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    if (r->used < r->bytes)
        r->used += (size_t)snprintf(r->text + r->used, r->bytes - r->used, "%s%s (%.1f GiB)", r->used ? ", " : "", words,
                                    tool_gib(total));
    return true;
}

void tool_answer_remedies(const struct tool_model_config *config, const struct tool_memplan_settings *given,
                          uint32_t global_batch, char *text, size_t bytes)
{
    struct remedies r = {config, global_batch, tool_usable_bytes(given), text, bytes, 0};
    struct tool_memplan_settings s = *given;
    uint64_t total;
    text[0] = '\0';
    s.plan.strategy = EO_STRATEGY_ZERO3;
    if (given->plan.strategy != EO_STRATEGY_ZERO3)
        (void)add_if_fits(&r, &s, "--strategy zero3");
    s = *given;
    set_recompute(&s, EO_RECOMPUTE_CHEAP);
    if (!add_if_fits(&r, &s, "--recompute cheap")) {
        set_recompute(&s, EO_RECOMPUTE_BLOCKS);
        (void)add_if_fits(&r, &s, "--recompute all");
    }
    s = *given;
    for (bool fits = false; s.plan.batch > 1 && !fits;) {
        s.plan.batch /= 2;
        fits = add_if_fits(&r, &s, "--batch %u", s.plan.batch);
    }
    static const char *const words[] = {"", " --recompute all", " --recompute all --batch 1"};
    uint32_t most =
        TOOL_PLAN_RANKS_MAX; /* a second way is worth its words where it needs fewer; the third where no other fits */
    for (int way = 0; way < (given->plan.batch > 1 && most == TOOL_PLAN_RANKS_MAX ? 3 : 2); way++) {
        bool fits = false;
        s = *given;
        if (way > 0)
            set_recompute(&s, EO_RECOMPUTE_BLOCKS);
        s.plan.batch = way == 2 ? 1 : s.plan.batch;
        for (s.plan.ranks *= way == 2 ? 1 : 2; s.plan.ranks <= most && !fits;
             s.plan.ranks *= 2) { /* the last way: as many, too */
            fits = add_if_fits(&r, &s, "--ranks %u%s", s.plan.ranks, words[way]);
            if (fits)
                most = s.plan.ranks / 2;
        }
    }
    if (try_settings(config, given, global_batch, &total) && r.used < bytes)
        snprintf(text + r.used, bytes - r.used, "%sa device with %.1f GiB for it", r.used ? ", " : "", tool_gib(total));
}

/* As many of them as there is room for. */
static void print_remedies(FILE *out, const char *remedies)
{
    struct line line = {.used = 0};
    add(&line, "would fit: ");
    for (const char *at = remedies, *end; *at; at = *end ? end + 2 : end) {
        end = strstr(at, ", ") ? strstr(at, ", ") : at + strlen(at);
        if (!add(&line, "%s%.*s", at == remedies ? "" : ", ", (int)(end - at), at))
            break;
    }
    fprintf(out, "%s\n", line.text);
}

void tool_answer_print(FILE *out, const struct tool_memplan_view *view)
{
    const struct unit unit = unit_of(view->memplan->total_bytes);
    uint64_t bytes[TOOL_PART_COUNT];
    enum tool_part order[TOOL_PART_COUNT];
    tool_parts_of(view->memplan, bytes);
    sort_parts(bytes, order);
    print_verdict(out, view, unit);
    print_peak(out, view, bytes, order, unit);
    if (view->remedies && !view->fit)
        print_remedies(out, view->remedies);
    else
        print_tries(out, view, unit);
    print_table(out, view, bytes, order);
}
