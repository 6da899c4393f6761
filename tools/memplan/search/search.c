/* SPDX-License-Identifier: MIT */
#include "tools/memplan/search/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/memplan/search/strategies.h"
#include "tools/shared/clock.h"

static const char *const names[] = {"none",          "max-batch",     "max-seq",    "min-gpus",
                                    "min-recompute", "best-strategy", "max-layers", "best"};

struct search {
    struct tool_fit *fit;
    struct tool_model_config *config;
    struct tool_memplan_settings *settings;
    struct tool_problem *problem;
    uint64_t begun_ns, shown_ns;
    uint64_t lower_bound_bytes; /* of the last plan, with what lies outside */
    uint32_t recompute_blocks;  /* as asked for */
    struct tool_best_cost cost; /* of the last plan, where the best is searched */
};

bool tool_fit_parse(const char *text, enum tool_fit_kind *out)
{
    for (int k = TOOL_FIT_MAX_BATCH; k <= TOOL_FIT_BEST; k++)
        if (strcmp(text, names[k]) == 0) {
            *out = (enum tool_fit_kind)k;
            return true;
        }
    return false;
}

const char *tool_fit_name(enum tool_fit_kind kind)
{
    return names[kind];
}

static void show_progress(struct search *s, uint64_t value)
{
    const uint64_t now = tool_now_ns(), second = 1000000000;
    if (now - s->begun_ns < second || now - s->shown_ns < second / 4)
        return;
    s->shown_ns = now;
    fprintf(stderr, isatty(STDERR_FILENO) ? "\r%s: %u plans, at %llu   " : "%s: %u plans, at %llu\n",
            tool_fit_name(s->fit->kind), s->fit->plan_count, (unsigned long long)value);
}

static void set_value(struct search *s, uint64_t value)
{
    struct tool_plan_settings *t = &s->settings->plan;
    switch (s->fit->kind) {
    case TOOL_FIT_MAX_BATCH:
    case TOOL_FIT_BEST:
        t->batch = (uint32_t)value;
        break;
    case TOOL_FIT_MAX_SEQ:
        t->seq = (uint32_t)value;
        break;
    case TOOL_FIT_MIN_GPUS:
        t->ranks = (uint32_t)value;
        break;
    case TOOL_FIT_MIN_RECOMPUTE:
        t->recompute = value ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_NONE;
        t->recompute_blocks = (uint32_t)value;
        break;
    case TOOL_FIT_MAX_LAYERS:
        s->config->layer_count = (uint32_t)value;
        if (t->recompute == EO_RECOMPUTE_BLOCKS && s->recompute_blocks != UINT32_MAX)
            t->recompute_blocks = s->recompute_blocks < value ? s->recompute_blocks : (uint32_t)value;
        break;
    case TOOL_FIT_BEST_STRATEGY:
        t->strategy = (eo_strategy)(value & 0xff);
        t->shard_group = (uint32_t)(value >> 8);
        break;
    case TOOL_FIT_NONE:
        break;
    }
}

/* Plans with this value. What the planner refuses does not fit. */
static struct tool_fit_point try_value(struct search *s, uint64_t value)
{
    struct tool_fit_point point = {.known = true, .value = value};
    struct tool_memplan memplan;
    s->cost = (struct tool_best_cost){0};
    struct tool_problem problem;
    set_value(s, value);
    s->fit->plan_count++;
    show_progress(s, value);
    if (tool_memplan_create(&memplan, s->config, s->settings, &problem) < 0) {
        snprintf(point.refused, sizeof(point.refused), "%.500s", problem.text);
        s->lower_bound_bytes = UINT64_MAX;
        return point;
    }
    point.total_bytes = memplan.total_bytes;
    s->lower_bound_bytes = memplan.summary.lower_bound_bytes + memplan.outside_bytes;
    if (s->fit->kind == TOOL_FIT_BEST)
        s->cost = tool_best_cost_of(&memplan, s->config);
    tool_memplan_fini(&memplan);
    return point;
}

static bool point_fits(const struct search *s, const struct tool_fit_point *point)
{
    return !point->refused[0] && point->total_bytes <= s->fit->capacity_bytes;
}

/*
 * The largest value in [least, most] that fits, where bytes grow with it. The arena need not grow with every step, its
 * lower bound does: past the answer all values are tried until the bound itself does not fit.
 */
static void search_largest(struct search *s, uint64_t least, uint64_t most)
{
    struct tool_fit *fit = s->fit;
    uint64_t low = least, step = 1;
    struct tool_fit_point first = try_value(s, least);
    if (!point_fits(s, &first)) {
        fit->neighbour = first;
        return;
    }
    fit->found = true;
    fit->answer = first;
    uint64_t high = most + 1;
    while (low < most && high == most + 1) { /* double until it fails */
        const uint64_t next = low + step > most ? most : low + step;
        const struct tool_fit_point point = try_value(s, next);
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
        const struct tool_fit_point point = try_value(s, middle);
        if (point_fits(s, &point)) {
            fit->answer = point;
            low = middle;
        } else {
            fit->neighbour = point;
            high = middle;
        }
    }
    for (uint64_t beyond = low + 2; beyond <= most && beyond < low + 64; beyond++) {
        const struct tool_fit_point point = try_value(s, beyond);
        if (point_fits(s, &point)) { /* a lucky arrangement */
            fit->answer = point;
            fit->neighbour = (struct tool_fit_point){0};
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
    struct tool_fit *fit = s->fit;
    const uint64_t state = 16 * tool_model_config_parameters(s->config);
    uint64_t world = 1;
    struct tool_fit_point last = {0};
    const struct tool_fit_point widest =
        try_value(s, TOOL_PLAN_RANKS_MAX - TOOL_PLAN_RANKS_MAX % s->settings->gpus_per_node);
    if (!point_fits(s, &widest) && s->lower_bound_bytes > fit->capacity_bytes) {
        fit->neighbour = widest;
        snprintf(fit->note, sizeof(fit->note), "the memory of a rank at any world size is too large: use a smaller batch or "
                 "sequence, more recompute, or --head-chunks");
        return;
    }
    while (state / world > fit->capacity_bytes && next_world(s, world) <= TOOL_PLAN_RANKS_MAX) {
        last = (struct tool_fit_point){.known = true, .value = world, .total_bytes = state / world};
        world = next_world(s, world);
    }
    for (; world <= TOOL_PLAN_RANKS_MAX; world = next_world(s, world)) {
        const struct tool_fit_point point = try_value(s, world);
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
    struct tool_fit *fit = s->fit;
    uint64_t low = 0, high = s->config->layer_count;
    s->settings->plan.recompute = EO_RECOMPUTE_CHEAP;
    struct tool_memplan memplan;
    struct tool_problem problem;
    if (tool_memplan_create(&memplan, s->config, s->settings, &problem) >= 0) {
        fit->cheap_fits = memplan.total_bytes <= fit->capacity_bytes;
        tool_memplan_fini(&memplan);
    }
    fit->plan_count++;
    struct tool_fit_point all = try_value(s, high), none = try_value(s, 0);
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
        const struct tool_fit_point point = try_value(s, middle);
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
    struct tool_fit *fit = s->fit;
    struct tool_strategy_column columns[TOOL_STRATEGY_COLUMNS];
    const uint32_t count = tool_strategy_columns(columns, s->config, s->settings);
    size_t used = 0;
    tool_strategy_sort(columns, count);
    fit->plan_count += count;
    for (uint32_t c = 0; c < count && !fit->found; c++) {
        struct tool_fit_point point = {.known = true,
                                       .value = (uint64_t)columns[c].group << 8 | columns[c].strategy,
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

/* "zero2, recompute none, batch 12, granularity block". */
static size_t settings_text(const struct tool_plan_settings *s, char *text, size_t bytes)
{
    char strategy[32], recompute[32], granularity[TOOL_GRANULARITY_TEXT_MAX];
    tool_strategy_text(s->strategy, s->shard_group, strategy, sizeof(strategy));
    tool_recompute_text(s, recompute, sizeof(recompute));
    return (size_t)snprintf(text, bytes, "--strategy %s --recompute %s --batch %u --granularity %s", strategy, recompute,
                            s->batch, tool_granularity_text(s, granularity));
}

/* Recompute was tried by quarters of the blocks: the fewest with which the best one's batch still fits. */
static void refine_recompute(struct search *s, struct tool_fit *best)
{
    struct tool_plan_settings *plan = &s->settings->plan;
    uint32_t low = 0, high = plan->recompute_blocks;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        plan->recompute_blocks = middle;
        const struct tool_fit_point point = try_value(s, best->answer.value);
        if (point_fits(s, &point)) {
            best->answer = point;
            high = middle;
        } else {
            low = middle;
        }
    }
    plan->recompute_blocks = high;
    if (best->neighbour.known)
        best->neighbour = try_value(s, best->neighbour.value);
}

/*
 * Of all but the batch every combination is tried; of batches the largest that fits is the best, because a token's share of
 * what is received falls with it. A combination that computes longer than the best one takes is left out: its first plan
 * says so.
 */
static void search_best(struct search *s, const struct tool_best_kept *kept)
{
    struct tool_fit *fit = s->fit, best = *fit;
    struct tool_best_space space;
    struct tool_best_cost best_cost = {0};
    struct tool_memplan_settings best_settings = *s->settings;
    const uint32_t batch = s->settings->plan.batch;
    tool_best_space_of(&space, s->config, s->settings, kept);
    for (uint32_t i = 0; i < space.strategy_count * space.recompute_count * space.granularity_count; i++) {
        struct tool_fit one = {.kind = fit->kind, .capacity_bytes = fit->capacity_bytes, .plan_count = fit->plan_count};
        tool_best_set(s->settings, &space, i);
        s->fit = &one;
        const struct tool_fit_point least = try_value(s, kept->batch ? batch : 1);
        const bool too_slow = best.found && s->cost.compute_ns > best_cost.token_ns;
        if (point_fits(s, &least) && !too_slow)
            search_largest(s, kept->batch ? batch : 1, kept->batch ? batch : TOOL_BEST_BATCH_MAX);
        fit->plan_count = one.plan_count;
        s->fit = fit;
        if (!one.found) {
            if (!best.found && least.known && (!best.neighbour.known || least.total_bytes < best.neighbour.total_bytes) &&
                !least.refused[0])
                best.neighbour = least;
            continue;
        }
        (void)try_value(s, one.answer.value);
        if (best.found && tool_best_compare(&s->cost, &best_cost) >= 0)
            continue;
        best_cost = s->cost;
        best_settings = *s->settings;
        best.found = true;
        best.answer = one.answer;
        best.neighbour = one.neighbour;
    }
    *s->settings = best_settings;
    if (best.found && best_settings.plan.recompute == EO_RECOMPUTE_BLOCKS && !kept->recompute)
        refine_recompute(s, &best);
    s->settings->plan.batch = best.found ? (uint32_t)best.answer.value : batch;
    best.plan_count = fit->plan_count;
    best.settings = *s->settings;
    *fit = best;
    if (fit->found)
        settings_text(&fit->settings.plan, fit->note, sizeof(fit->note));
}

eo_status tool_fit_search(struct tool_fit *fit, enum tool_fit_kind kind, struct tool_model_config *config,
                          struct tool_memplan_settings *settings, const struct tool_best_kept *kept,
                          struct tool_problem *problem)
{
    *fit = (struct tool_fit){.kind = kind, .capacity_bytes = tool_usable_bytes(settings)};
    if (settings->capacity_bytes == 0)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--fit %s: the capacity is missing; give --device NAME or --device-memory BYTES",
                                tool_fit_name(kind));
    if (kind == TOOL_FIT_MAX_LAYERS && ((config->dense[0] && config->expert_count) || config->mixers_listed))
        return tool_problem_set(problem, EO_ERR_INVALID, "--fit max-layers: the layers of this model are not alike");
    const struct tool_memplan_settings before = *settings;
    struct search s = {.fit = fit,
                       .config = config,
                       .settings = settings,
                       .problem = problem,
                       .begun_ns = tool_now_ns(),
                       .recompute_blocks = settings->plan.recompute_blocks};
    const uint32_t layers = config->layer_count;
    switch (kind) {
    case TOOL_FIT_MAX_BATCH:
        search_largest(&s, 1, 1 << 20);
        break;
    case TOOL_FIT_MAX_SEQ:
        search_largest(&s, 1, config->context);
        break;
    case TOOL_FIT_MAX_LAYERS:
        search_largest(&s, 1, TOOL_CONFIG_LAYERS_MAX);
        break;
    case TOOL_FIT_MIN_GPUS:
        search_world(&s);
        break;
    case TOOL_FIT_MIN_RECOMPUTE:
        search_recompute(&s);
        break;
    case TOOL_FIT_BEST_STRATEGY:
        search_strategy(&s);
        break;
    case TOOL_FIT_BEST:
        search_best(&s, kept);
        break;
    case TOOL_FIT_NONE:
        break;
    }
    if (s.shown_ns && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%60s\r", "");
    *settings = kind == TOOL_FIT_BEST && fit->found ? fit->settings : before;
    config->layer_count = layers;
    if (fit->found)
        set_value(&s, fit->answer.value);
    return EO_OK;
}
