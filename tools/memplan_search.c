/* SPDX-License-Identifier: MIT */
#include "tools/memplan_search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/job.h"
#include "tools/memplan_strategies.h"

static const char *const names[] = {"none", "max-batch", "max-seq", "min-gpus", "min-recompute", "best-strategy",
                                    "max-layers"};

struct search {
    struct eo_fit *fit;
    struct eo_model_config *config;
    struct eo_memplan_settings *settings;
    struct eo_problem *problem;
    uint64_t begun_ns, shown_ns;
    uint64_t lower_bound_bytes; /* of the last plan, with what lies outside */
};

bool eo_fit_parse(const char *text, enum eo_fit_kind *out)
{
    for (int k = EO_FIT_MAX_BATCH; k <= EO_FIT_MAX_LAYERS; k++)
        if (strcmp(text, names[k]) == 0) {
            *out = (enum eo_fit_kind)k;
            return true;
        }
    return false;
}

const char *eo_fit_name(enum eo_fit_kind kind)
{
    return names[kind];
}

static void show_progress(struct search *s, uint64_t value)
{
    const uint64_t now = eo_job_now_ns(), second = 1000000000;
    if (now - s->begun_ns < second || now - s->shown_ns < second / 4)
        return;
    s->shown_ns = now;
    fprintf(stderr, isatty(STDERR_FILENO) ? "\r%s: %u plans, at %llu   " : "%s: %u plans, at %llu\n",
            eo_fit_name(s->fit->kind), s->fit->plan_count, (unsigned long long)value);
}

static void set_value(struct search *s, uint64_t value)
{
    struct eo_memplan_settings *t = s->settings;
    switch (s->fit->kind) {
    case EO_FIT_MAX_BATCH: t->batch = (uint32_t)value; break;
    case EO_FIT_MAX_SEQ: t->seq = (uint32_t)value; break;
    case EO_FIT_MIN_GPUS: t->world = (uint32_t)value; break;
    case EO_FIT_MIN_RECOMPUTE:
        t->recompute = value ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_NONE;
        t->recompute_blocks = (uint32_t)value;
        break;
    case EO_FIT_MAX_LAYERS: s->config->layer_count = (uint32_t)value; break;
    case EO_FIT_BEST_STRATEGY:
        t->strategy = (eo_strategy)(value & 0xff);
        t->hsdp_group = (uint32_t)(value >> 8);
        break;
    case EO_FIT_NONE: break;
    }
}

/* Plans with this value. What the planner refuses does not fit. */
static struct eo_fit_point try_value(struct search *s, uint64_t value)
{
    struct eo_fit_point point = {.known = true, .value = value};
    struct eo_memplan memplan;
    struct eo_problem problem;
    set_value(s, value);
    s->fit->plan_count++;
    show_progress(s, value);
    if (eo_memplan_create(&memplan, s->config, s->settings, &problem) < 0) {
        snprintf(point.refused, sizeof(point.refused), "%.500s", problem.text);
        s->lower_bound_bytes = UINT64_MAX;
        return point;
    }
    point.total_bytes = memplan.total_bytes;
    s->lower_bound_bytes = memplan.summary.lower_bound_bytes + memplan.outside_bytes;
    eo_memplan_fini(&memplan);
    return point;
}

static bool point_fits(const struct search *s, const struct eo_fit_point *point)
{
    return !point->refused[0] && point->total_bytes <= s->fit->capacity_bytes;
}

/*
 * The largest value in [least, most] that fits, where bytes grow with it. The arena need not grow with every step, its
 * lower bound does: past the answer all values are tried until the bound itself does not fit.
 */
static void search_largest(struct search *s, uint64_t least, uint64_t most)
{
    struct eo_fit *fit = s->fit;
    uint64_t low = least, step = 1;
    struct eo_fit_point first = try_value(s, least);
    if (!point_fits(s, &first)) {
        fit->neighbour = first;
        return;
    }
    fit->found = true;
    fit->answer = first;
    uint64_t high = most + 1;
    while (low < most && high == most + 1) { /* double until it fails */
        const uint64_t next = low + step > most ? most : low + step;
        const struct eo_fit_point point = try_value(s, next);
        if (point_fits(s, &point)) {
            fit->answer = point;
            low = next;
            step *= 2;
        } else {
            fit->neighbour = point;
            high = next;
        }
    }
    while (high - low > 1 && high <= most) {
        const uint64_t middle = low + (high - low) / 2;
        const struct eo_fit_point point = try_value(s, middle);
        if (point_fits(s, &point)) {
            fit->answer = point;
            low = middle;
        } else {
            fit->neighbour = point;
            high = middle;
        }
    }
    for (uint64_t beyond = low + 2; beyond <= most && beyond < low + 64; beyond++) {
        const struct eo_fit_point point = try_value(s, beyond);
        if (point_fits(s, &point)) { /* a lucky arrangement */
            fit->answer = point;
            fit->neighbour = (struct eo_fit_point){0};
            low = beyond;
        } else {
            if (!fit->neighbour.known)
                fit->neighbour = point;
            if (s->lower_bound_bytes > fit->capacity_bytes)
                break;
        }
    }
}

/* --- the searches ------------------------------------------------------------------------------------------------- */

static uint64_t next_world(const struct search *s, uint64_t world)
{
    const uint64_t node = s->settings->gpus_per_node;
    if (world < node)
        return 2 * world > node ? node : 2 * world;
    return world + node;
}

/* Worlds are 1, 2, 4 ... up to a node, then whole nodes. All of them are tried, from the first whose shards alone could
 * fit: padding makes some larger worlds take more. */
static void search_world(struct search *s)
{
    struct eo_fit *fit = s->fit;
    const uint64_t state = 16 * eo_model_config_parameters(s->config);
    uint64_t world = 1;
    struct eo_fit_point last = {0};
    const struct eo_fit_point widest = try_value(s, EO_MEMPLAN_WORLD_MAX - EO_MEMPLAN_WORLD_MAX % s->settings->gpus_per_node);
    if (!point_fits(s, &widest) && s->lower_bound_bytes > fit->capacity_bytes) {
        fit->neighbour = widest;
        snprintf(fit->note, sizeof(fit->note), "what a rank holds however many there are is too much: lower batch or "
                 "sequence, recompute more, or --head-chunks");
        return;
    }
    while (state / world > fit->capacity_bytes && next_world(s, world) <= EO_MEMPLAN_WORLD_MAX) {
        last = (struct eo_fit_point){.known = true, .value = world, .total_bytes = state / world};
        world = next_world(s, world);
    }
    for (; world <= EO_MEMPLAN_WORLD_MAX; world = next_world(s, world)) {
        const struct eo_fit_point point = try_value(s, world);
        if (point_fits(s, &point)) {
            fit->found = true;
            fit->answer = point;
            break;
        }
        last = point;
    }
    if (last.known && last.total_bytes == state / last.value) /* its shards alone: plan it, for the figure */
        last = try_value(s, last.value);
    fit->neighbour = last;
}

static void search_recompute(struct search *s)
{
    struct eo_fit *fit = s->fit;
    uint64_t low = 0, high = s->config->layer_count;
    s->settings->recompute = EO_RECOMPUTE_CHEAP;
    struct eo_memplan memplan;
    struct eo_problem problem;
    if (eo_memplan_create(&memplan, s->config, s->settings, &problem) >= 0) {
        fit->cheap_fits = memplan.total_bytes <= fit->capacity_bytes;
        eo_memplan_fini(&memplan);
    }
    fit->plan_count++;
    struct eo_fit_point all = try_value(s, high), none = try_value(s, 0);
    if (point_fits(s, &none)) {
        fit->found = true;
        fit->answer = none;
        return;
    }
    fit->neighbour = none;
    if (!point_fits(s, &all)) {
        fit->neighbour = all;
        return;
    }
    fit->found = true;
    fit->answer = all;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        const struct eo_fit_point point = try_value(s, middle);
        if (point_fits(s, &point)) {
            fit->answer = point;
            high = middle;
        } else {
            fit->neighbour = point;
            low = middle;
        }
    }
}

/* The strategy that fits with the least to receive, first over the links between nodes. The neighbour is the one before
 * it, which would receive less and does not fit. */
static void search_strategy(struct search *s)
{
    struct eo_fit *fit = s->fit;
    struct eo_strategy_column columns[EO_STRATEGY_COLUMNS];
    const uint32_t count = eo_strategy_columns(columns, s->config, s->settings);
    size_t used = 0;
    eo_strategy_sort(columns, count);
    fit->plan_count += count;
    for (uint32_t c = 0; c < count && !fit->found; c++) {
        struct eo_fit_point point = {.known = true, .value = (uint64_t)columns[c].group << 8 | columns[c].strategy,
                                     .total_bytes = columns[c].total_bytes};
        snprintf(point.refused, sizeof(point.refused), "%s", columns[c].refused);
        fit->found = point_fits(s, &point);
        *(fit->found ? &fit->answer : &fit->neighbour) = point;
    }
    for (uint32_t c = 0; c < count && used < sizeof(fit->note); c++)
        used += (size_t)snprintf(fit->note + used, sizeof(fit->note) - used, "%s%s: %.2f GiB, receives %.2f GiB in a step, "
                                 "%.2f of them between nodes", c ? "; " : "", columns[c].name,
                                 (double)columns[c].total_bytes / 1073741824.0,
                                 (double)columns[c].received_bytes / 1073741824.0,
                                 (double)columns[c].between_bytes / 1073741824.0);
}

eo_status eo_fit_search(struct eo_fit *fit, enum eo_fit_kind kind, struct eo_model_config *config,
                        struct eo_memplan_settings *settings, struct eo_problem *problem)
{
    *fit = (struct eo_fit){.kind = kind, .capacity_bytes = settings->capacity_bytes};
    if (settings->capacity_bytes == 0)
        return eo_problem_set(problem, EO_ERR_INVALID, "--fit %s: fit into what? give --device NAME or --device-memory "
                              "BYTES", eo_fit_name(kind));
    if (config->dense[0] && kind == EO_FIT_MAX_LAYERS && config->expert_count)
        return eo_problem_set(problem, EO_ERR_INVALID, "--fit max-layers: of a model whose layers are not alike");
    const struct eo_memplan_settings before = *settings;
    struct search s = {.fit = fit, .config = config, .settings = settings, .problem = problem,
                       .begun_ns = eo_job_now_ns()};
    const uint32_t layers = config->layer_count;
    switch (kind) {
    case EO_FIT_MAX_BATCH: search_largest(&s, 1, 1 << 20); break;
    case EO_FIT_MAX_SEQ: search_largest(&s, 1, config->context); break;
    case EO_FIT_MAX_LAYERS: search_largest(&s, 1, EO_CONFIG_LAYERS_MAX); break;
    case EO_FIT_MIN_GPUS: search_world(&s); break;
    case EO_FIT_MIN_RECOMPUTE: search_recompute(&s); break;
    case EO_FIT_BEST_STRATEGY: search_strategy(&s); break;
    case EO_FIT_NONE: break;
    }
    if (s.shown_ns && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%60s\r", "");
    *settings = before;
    config->layer_count = layers;
    if (fit->found)
        set_value(&s, fit->answer.value);
    return EO_OK;
}
