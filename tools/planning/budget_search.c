/* SPDX-License-Identifier: MIT */
#include "tools/planning/budget_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- what is tried ----------------------------------------------------------------------------------------------- */

static bool fits_host(const struct tool_budget_search *s, const struct tool_budget_option *o)
{
    return s->request->host_bytes == 0 || o->host_bytes <= s->request->host_bytes;
}

/* Of a draft, as it lies now: as a rule a little more than in full. */
static uint64_t placed_bytes(const struct tool_budget_option *o)
{
    return o->arena_bytes + o->cache_bytes;
}

/* A draft may turn out to have more; in a careful search that is rare. */
static uint64_t bytes_of(const struct tool_budget_search *s, const struct tool_budget_option *o)
{
    return s->is_careful ? placed_bytes(o) : o->memory_bytes;
}

bool tool_budget_fits(const struct tool_budget_search *s, const struct tool_budget_option *o)
{
    return fits_host(s, o) && bytes_of(s, o) <= s->request->bytes;
}

static eo_status evaluate(struct tool_budget_search *s, const struct tool_plan_settings *settings, bool draft,
                          struct tool_budget_option *out)
{
    const eo_log silence = {0};
    const struct tool_plan_settings own = *settings; /* may lie in `out` */
    EO_TRY(tool_budget_evaluate(&own, s->config, &s->request->rates, draft, &silence, out));
    out->changes_bits = own.head_chunks != s->head_chunks;
    return EO_OK;
}

/* Several ways lead to the same settings. */
static const struct tool_budget_option *find_tried(const struct tool_budget_search *s, const struct tool_plan_settings *settings,
                                                   uint64_t hash)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->tried[i]->hash == hash && memcmp(&s->tried[i]->option.settings, settings, sizeof(*settings)) == 0)
            return &s->tried[i]->option;
    return NULL;
}

/* NULL: no memory. */
static struct tool_budget_tried *next_tried(struct tool_budget_search *s)
{
    if (s->count == s->capacity) {
        const uint32_t larger = s->capacity ? 2 * s->capacity : 256;
        struct tool_budget_tried **moved = realloc(s->tried, larger * sizeof(*moved));
        if (!moved)
            return NULL;
        s->tried = moved;
        s->capacity = larger;
    }
    return s->tried[s->count] = calloc(1, sizeof(struct tool_budget_tried));
}

void tool_budget_search_fini(struct tool_budget_search *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        free(s->tried[i]);
    free(s->tried);
}

eo_status tool_budget_try(struct tool_budget_search *s, const struct tool_plan_settings *settings)
{
    const uint64_t hash = XXH3_64bits(settings, sizeof(*settings));
    s->last = find_tried(s, settings, hash);
    if (s->last)
        return EO_OK;
    struct tool_budget_tried *next = next_tried(s);
    if (!next)
        return EO_ERR_NO_MEMORY;
    s->count++;
    next->hash = hash;
    EO_TRY(evaluate(s, settings, true, &next->option));
    s->last = &next->option;
    s->layer_count = next->option.layer_count;
    if (tool_budget_fits(s, &next->option) && next->option.step_s < s->best_s)
        s->best_s = next->option.step_s;
    return EO_OK;
}

/* Where each comes once, and leaves alone. */
bool tool_budget_may_offload_gradients(const struct tool_plan_settings *settings)
{
    return settings->micro_batches == 1 && settings->gradient_run <= 1;
}

bool tool_budget_may_update_late(const struct tool_plan_settings *settings)
{
    return !settings->no_prefetch;
}

bool tool_budget_has_disk(const struct tool_budget_search *s)
{
    return s->request->rates.disk_bytes_per_s > 0;
}

void tool_budget_set_level(struct tool_plan_settings *settings, uint32_t level)
{
    settings->recompute = level == 0 ? EO_RECOMPUTE_NONE : level == 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
    settings->recompute_blocks = level < 2 ? 0 : level - 1;
}

uint32_t tool_budget_level_of(const struct tool_plan_settings *p)
{
    return p->recompute == EO_RECOMPUTE_NONE ? 0 : p->recompute == EO_RECOMPUTE_CHEAP ? 1 : 1 + p->recompute_blocks;
}

void tool_budget_offload_nothing(struct tool_plan_settings *settings)
{
    settings->offload_layers = settings->offload_slots = 0;
    settings->offload_gradients = settings->late_updates = false;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* Of equal times, the one that leaves the disk alone, then the one with less memory; of equal plans, the plainer settings. */
static bool is_better(const struct tool_budget_option *a, const struct tool_budget_option *b)
{
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s;
    if (a->disk_bytes != b->disk_bytes)
        return a->disk_bytes < b->disk_bytes;
    if (a->memory_bytes != b->memory_bytes)
        return a->memory_bytes < b->memory_bytes;
    return tool_budget_level_of(&a->settings) < tool_budget_level_of(&b->settings);
}

enum { ANY_LEVEL = INT32_MAX };

/* Those with some level of recompute, and with gradients and activations on disk or not. */
struct kind {
    uint32_t level;
    bool has_gradients, has_activations;
};

static bool is_of_kind(const struct tool_budget_option *o, const struct kind *kind)
{
    const struct tool_plan_settings *p = &o->settings;
    return !kind || ((kind->level == ANY_LEVEL || tool_budget_level_of(p) == kind->level) &&
                     p->offload_gradients == kind->has_gradients && (p->offload_activations > 0) == kind->has_activations);
}

/* `kind` NULL: of any; of all, or of those that are not expanded. */
static struct tool_budget_tried *find_fastest_of(struct tool_budget_search *s, const struct kind *kind, bool of_all)
{
    struct tool_budget_tried *best = NULL;
    for (uint32_t i = 0; i < s->count; i++)
        if ((of_all || !s->tried[i]->is_expanded) && is_of_kind(&s->tried[i]->option, kind) &&
            tool_budget_fits(s, &s->tried[i]->option) && (!best || is_better(&s->tried[i]->option, &best->option)))
            best = s->tried[i];
    return best;
}

static struct tool_budget_tried *find_fastest(struct tool_budget_search *s)
{
    return find_fastest_of(s, NULL, true);
}

/* Of memory; where the host is too small for any, first of that. */
static bool takes_less(const struct tool_budget_search *s, const struct tool_budget_option *a, const struct tool_budget_option *b)
{
    if (fits_host(s, a) != fits_host(s, b))
        return fits_host(s, a);
    if (!fits_host(s, a) && a->host_bytes != b->host_bytes)
        return a->host_bytes < b->host_bytes;
    return bytes_of(s, a) < bytes_of(s, b);
}

static struct tool_budget_tried *find_least_of(struct tool_budget_search *s, const struct kind *kind)
{
    struct tool_budget_tried *least = NULL;
    for (uint32_t i = 0; i < s->count; i++)
        if (is_of_kind(&s->tried[i]->option, kind) && (!least || takes_less(s, &s->tried[i]->option, &least->option)))
            least = s->tried[i];
    return least;
}

static struct tool_budget_tried *find_least(struct tool_budget_search *s)
{
    return find_least_of(s, NULL);
}

static eo_status plan_in_full(struct tool_budget_search *s, struct tool_budget_tried *t)
{
    if (t->is_planned)
        return EO_OK;
    t->is_planned = true;
    return evaluate(s, &t->option.settings, false, &t->option);
}

/*
 * Until the first by `find` is planned in full, and none of its neighbours comes before it. A draft that has more bytes than it
 * seemed gets neighbours, too: some take less. After many of these the search becomes careful. NULL: there is none.
 */
static eo_status settle(struct tool_budget_search *s, struct tool_budget_tried *(*find)(struct tool_budget_search *s),
                        struct tool_budget_tried **out)
{
    const bool is_small = s->layer_count <= TOOL_BUDGET_FEW_LAYERS;
    uint32_t expansions = is_small ? 64 : s->layer_count < TOOL_BUDGET_MANY_LAYERS ? 4 : 2, surprises = is_small ? 64 : 32;
    for (struct tool_budget_tried *t = *out = find(s); t; t = *out = find(s)) {
        if (!t->is_planned) {
            EO_TRY(plan_in_full(s, t));
            if (find(s) == t)
                continue; /* it is what it seemed */
            surprises -= surprises > 0;
            s->is_careful = surprises == 0;
        }
        if (t->is_expanded || expansions == 0) {
            if (find(s) == t)
                return EO_OK;
            continue;
        }
        t->is_expanded = true;
        expansions--;
        EO_TRY(tool_budget_try_neighbours(s, &t->option.settings));
    }
    return EO_OK;
}

/* Each kind has best ones of its own, to which no few steps lead from the best of another. They are looked for: from the two
 * fastest that have no neighbours yet, or the one that takes least, until those have, or so many have. */
static eo_status explore_kind(struct tool_budget_search *s, const struct kind *kind, uint32_t expansions)
{
    enum { WIDTH = 2 };
    for (uint32_t stale = 0; stale < WIDTH && expansions > 0; expansions--) {
        const struct tool_budget_tried *fastest = find_fastest_of(s, kind, true);
        struct tool_budget_tried *t = find_fastest_of(s, kind, false);
        if (!fastest)
            t = find_least_of(s, kind);
        if (!t || t->is_expanded)
            return EO_OK;
        t->is_expanded = true;
        EO_TRY(tool_budget_try_neighbours(s, &t->option.settings));
        stale = find_fastest_of(s, kind, true) == fastest ? stale + 1 : 0;
    }
    return EO_OK;
}

static eo_status explore(struct tool_budget_search *s)
{
    const bool is_small = s->layer_count <= TOOL_BUDGET_FEW_LAYERS;
    const uint32_t expansions = is_small ? UINT32_MAX : s->layer_count < TOOL_BUDGET_MANY_LAYERS ? 3 : 2;
    for (uint32_t level = 0; level < (is_small ? s->config->layer_count + 2 : 1); level++)
        for (uint32_t k = 0; k < 4; k++)
            EO_TRY(explore_kind(s, &(struct kind){is_small ? level : ANY_LEVEL, k % 2, k / 2}, expansions));
    return EO_OK;
}

/* The next faster ones that take more memory, each the least memory for its time; at least 2 % are worth a line. */
static eo_status find_next(struct tool_budget_search *s, struct tool_budget_choice *out)
{
    const double worth = 0.98;
    const struct tool_budget_option *from = out->found ? &out->chosen : &out->least;
    while (out->next_count < TOOL_BUDGET_NEXT) {
        struct tool_budget_tried *next = NULL;
        for (uint32_t i = 0; i < s->count; i++) {
            const struct tool_budget_option *o = &s->tried[i]->option;
            if (fits_host(s, o) && o->memory_bytes > s->request->bytes && o->step_s < worth * from->step_s &&
                (!next || o->memory_bytes < next->option.memory_bytes ||
                 (o->memory_bytes == next->option.memory_bytes && is_better(o, &next->option))))
                next = s->tried[i];
        }
        if (!next)
            return EO_OK;
        if (!next->is_planned) { /* may have more bytes than another, then */
            EO_TRY(plan_in_full(s, next));
            continue;
        }
        out->next[out->next_count++] = next->option;
        from = &next->option;
    }
    return EO_OK;
}

/* Where nothing is cheap to compute again, the same plan without a recompute is the one to name. */
static eo_status settle_without_cheap(struct tool_budget_search *s, struct tool_budget_tried **best)
{
    if (!*best || (*best)->option.settings.recompute != EO_RECOMPUTE_CHEAP)
        return EO_OK;
    struct tool_plan_settings settings = (*best)->option.settings;
    tool_budget_set_level(&settings, 0);
    EO_TRY(tool_budget_try(s, &settings));
    return settle(s, find_fastest, best);
}

/* Where the fastest of all does not fit by its true bytes, the least may still. */
eo_status tool_budget_search(struct tool_budget_search *s, const struct tool_plan_settings *settings,
                             struct tool_budget_choice *out)
{
    struct tool_budget_tried *best, *least;
    s->best_s = INFINITY;
    EO_TRY(tool_budget_try_seeds(s, settings));
    EO_TRY(plan_in_full(s, s->tried[0]));
    out->everything = out->least = s->tried[0]->option;
    EO_TRY(explore(s));
    EO_TRY(settle(s, find_fastest, &best));
    EO_TRY(settle_without_cheap(s, &best));
    if (!best) {
        s->is_careful = false;
        EO_TRY(settle(s, find_least, &least));
        out->least = least->option;
        s->is_careful = false;
        best = tool_budget_fits(s, &least->option) ? least : NULL;
    }
    out->found = best != NULL;
    if (best)
        out->chosen = best->option;
    EO_TRY(find_next(s, out));
    out->plan_count = s->count;
    return EO_OK;
}
