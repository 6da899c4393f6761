/* SPDX-License-Identifier: MIT */
#include "tools/memplan/search/candidates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/memplan/search/strategies.h"
#include "tools/shared/clock.h"

static const char *const names[] = {"none",          "max-batch",     "max-seq",    "min-gpus",
                                    "min-recompute", "best-strategy", "max-layers", "best", "best-layout"};


bool tool_fit_parse(const char *text, enum tool_fit_kind *out)
{
    for (int k = TOOL_FIT_MAX_BATCH; k <= TOOL_FIT_BEST_LAYOUT; k++)
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

static void show_progress(struct tool_search *s, uint64_t value)
{
    const bool is_terminal = isatty(STDERR_FILENO);
    const uint64_t now = tool_now_ns(), second = 1000000000, pause = is_terminal ? second / 4 : 10 * second; /* a line stays */
    if (now - s->begun_ns < (is_terminal ? second : pause) || now - s->shown_ns < pause)
        return;
    s->shown_ns = now;
    fprintf(stderr, is_terminal ? "\r%s: %u plans, at %llu   " : "%s: %u plans, at %llu\n", tool_fit_name(s->fit->kind),
            s->fit->plan_count, (unsigned long long)value);
}

static uint32_t least_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* All further ones are as these are. Interleaved stages want whole groups of them. */
static uint32_t micro_batches_enough(const struct tool_slice *slice)
{
    const uint32_t stages = slice->pipeline > 1 ? slice->pipeline : 1;
    return (8 + 2 * slice->pipeline + stages - 1) / stages * stages;
}

static void set_value(struct tool_search *s, uint64_t value)
{
    struct tool_plan_settings *t = &s->settings->plan;
    switch (s->fit->kind) {
    case TOOL_FIT_MAX_BATCH:
    case TOOL_FIT_BEST:
    case TOOL_FIT_BEST_LAYOUT:
        t->batch = (uint32_t)value;
        break;
    case TOOL_FIT_MAX_SEQ:
        t->seq = (uint32_t)value * s->unit;
        break;
    case TOOL_FIT_MIN_GPUS:
        t->ranks = (uint32_t)value;
        s->sequences = s->global_batch / t->ranks;
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
    if (s->sequences) /* more of them take no more memory, and the clock counts all */
        t->micro_batches =
            least_u32(s->sequences / t->batch, t->graph ? UINT32_MAX : micro_batches_enough(&s->settings->slice));
}

/* Ranks that a global batch is not shared by, in whole micro-batches. */
static bool is_uneven(const struct tool_search *s)
{
    const struct tool_plan_settings *t = &s->settings->plan;
    const uint64_t each = (uint64_t)t->batch * t->ranks;
    return s->fit->kind == TOOL_FIT_MIN_GPUS && s->global_batch &&
           (s->global_batch % each || s->global_batch / each > TOOL_MICRO_BATCHES_MOST);
}

bool tool_search_share(struct tool_search *s)
{
    const struct tool_slice *slice = &s->settings->slice;
    const uint64_t cuts = tool_slice_cuts(slice) * (slice->context ? slice->context : 1), ranks = s->settings->plan.ranks;
    const uint64_t replicas = ranks / cuts;
    if (ranks % cuts || s->global_batch % replicas)
        return false;
    s->sequences = (uint32_t)(s->global_batch / replicas);
    return true;
}

static struct tool_fit_point plan_point(struct tool_search *s, uint64_t value, bool draft)
{
    struct tool_fit_point point = {.known = true, .value = value, .is_draft = draft};
    struct tool_memplan memplan;
    struct tool_problem problem;
    set_value(s, value);
    if (is_uneven(s)) {
        snprintf(point.refused, sizeof(point.refused), "--global-batch %u is no 1 to %d micro-batches of %u x %u sequences",
                 s->global_batch, TOOL_MICRO_BATCHES_MOST, s->settings->plan.ranks, s->settings->plan.batch);
        point.lower_bound_bytes = UINT64_MAX;
        return point;
    }
    s->settings->draft = draft;
    const eo_status status = tool_memplan_create_next(&memplan, s->config, s->settings, &s->scratch, &problem);
    s->settings->draft = false;
    if (status < 0) {
        snprintf(point.refused, sizeof(point.refused), "%.500s", problem.text);
        point.lower_bound_bytes = UINT64_MAX;
        return point;
    }
    point.total_bytes = memplan.total_bytes;
    const uint64_t host_bytes = memplan.summary.arena_bytes - memplan.device_bytes;
    point.lower_bound_bytes = memplan.summary.lower_bound_bytes - host_bytes + memplan.outside_bytes;
    const bool is_timed = !s->clock || tool_search_fits(s, &point); /* a clock plans a few more */
    if (is_timed && (s->fit->kind == TOOL_FIT_BEST || s->fit->kind == TOOL_FIT_BEST_LAYOUT))
        point.cost = tool_best_cost_of(&memplan, s->config, s->clock, &s->scratch);
    tool_memplan_fini(&memplan);
    return point;
}

struct tool_fit_point tool_search_try(struct tool_search *s, uint64_t value)
{
    s->fit->plan_count++;
    show_progress(s, value);
    const struct tool_fit_point point = plan_point(s, value, !s->no_drafts);
    const bool is_known = !point.is_draft || point.refused[0] || point.total_bytes <= s->fit->capacity_bytes ||
                          point.lower_bound_bytes > s->fit->capacity_bytes;
    return is_known ? point : plan_point(s, value, false);
}

struct tool_fit_point tool_search_exact(struct tool_search *s, uint64_t value)
{
    return plan_point(s, value, false);
}

void tool_search_settle(struct tool_search *s, struct tool_fit_point *point)
{
    if (point->known && point->is_draft)
        *point = plan_point(s, point->value, false);
}

bool tool_search_fits(const struct tool_search *s, const struct tool_fit_point *point)
{
    return !point->refused[0] && point->total_bytes <= s->fit->capacity_bytes;
}

bool tool_search_is_slower(const struct tool_search *s, const struct tool_fit_point *point)
{
    const double slack = point->is_draft ? 1.01 : 1; /* where rows lie decides a few waits */
    return s->best_token_ns > 0 && point->cost.token_ns > slack * s->best_token_ns;
}

/* The least value above `refused` that can be planned: a piece of the head wants a token, a unit its blocks. None: `most`. */
static uint64_t first_planned(struct tool_search *s, uint64_t refused, uint64_t most)
{
    uint64_t planned = refused;
    do {
        refused = planned;
        planned = planned > most / 2 ? most : 2 * planned;
    } while (planned < most && tool_search_try(s, planned).refused[0]);
    while (planned - refused > 1) {
        const uint64_t middle = refused + (planned - refused) / 2;
        *(tool_search_try(s, middle).refused[0] ? &refused : &planned) = middle;
    }
    return planned;
}

/*
 * The largest value in [least, most] that fits, where bytes grow with it. The arena need not grow with every step, its
 * lower bound does: past the answer all values are tried until the bound itself does not fit.
 */
static void search_largest(struct tool_search *s, uint64_t least, uint64_t most)
{
    struct tool_fit *fit = s->fit;
    uint64_t step = 1;
    struct tool_fit_point first = tool_search_try(s, least);
    if (first.refused[0] && least < most) {
        least = first_planned(s, least, most);
        first = tool_search_try(s, least);
    }
    if (!tool_search_fits(s, &first)) {
        fit->neighbour = first;
        return;
    }
    fit->found = true;
    fit->answer = first;
    uint64_t low = least, high = most + 1;
    while (low < most && high == most + 1) { /* double until it fails */
        const uint64_t next = low + step > most ? most : low + step;
        const struct tool_fit_point point = tool_search_try(s, next);
        if (tool_search_fits(s, &point)) {
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
        const struct tool_fit_point point = tool_search_try(s, middle);
        if (tool_search_fits(s, &point)) {
            fit->answer = point;
            low = middle;
        } else {
            fit->neighbour = point;
            high = middle;
        }
    }
    for (uint64_t beyond = low + 2; beyond <= most && beyond < low + 64; beyond++) {
        const struct tool_fit_point point = tool_search_try(s, beyond);
        if (tool_search_fits(s, &point)) { /* a lucky arrangement */
            fit->answer = point;
            fit->neighbour = (struct tool_fit_point){0};
            low = beyond;
        } else {
            if (!fit->neighbour.known)
                fit->neighbour = point;
            if (point.lower_bound_bytes > fit->capacity_bytes)
                break;
        }
    }
}

void tool_search_largest(struct tool_search *s, uint64_t least, uint64_t most)
{
    const struct tool_fit before = *s->fit;
    search_largest(s, least, most);
    if (tool_search_is_slower(s, &s->fit->answer))
        return;
    tool_search_settle(s, &s->fit->answer);
    if (s->fit->found && !tool_search_fits(s, &s->fit->answer)) { /* a draft that was lucky */
        s->no_drafts = true; /* next to none: all once more */
        *s->fit = before;
        search_largest(s, least, most);
        s->no_drafts = false;
    }
    if (s->fit->kind != TOOL_FIT_BEST && s->fit->kind != TOOL_FIT_BEST_LAYOUT) /* of them, the best one's */
        tool_search_settle(s, &s->fit->neighbour);
}

/* --- the searches ------------------------------------------------------------------------------------------------- */

static uint64_t next_world(const struct tool_search *s, uint64_t world)
{
    const uint64_t node = s->settings->gpus_per_node;
    if (world < node)
        return 2 * world > node ? node : 2 * world;
    return world + node;
}

uint64_t tool_fit_world_unit(const struct tool_memplan_settings *settings)
{
    const uint64_t node = settings->gpus_per_node, group = settings->plan.shard_group ? settings->plan.shard_group : 1;
    uint64_t both = node;
    while (both % group && both <= TOOL_PLAN_RANKS_MAX)
        both += node;
    return both > TOOL_PLAN_RANKS_MAX ? TOOL_PLAN_RANKS_MAX : both;
}

/* Bytes that a world holds of the model at least: master weights and the optimizer's state, in shards. Those of LoRA train next
 * to nothing, and what is offloaded does not count. */
static uint64_t least_state(const struct tool_plan_settings *s, const struct tool_model_config *config)
{
    const uint64_t optimizer = s->optimizer == EO_OPTIMIZER_ADAMW ? 8 : s->optimizer == EO_OPTIMIZER_ADAMW8BIT ? 2 : 4;
    const uint64_t each = s->offload_layers ? 0 : s->lora.rank ? s->float8_frozen ? 1 : 2 : 4 + optimizer;
    return each * tool_model_config_parameters(config);
}

/* From a world on none fits: bytes beside the shards are too many. Padding makes wide worlds take more, so worlds between are
 * asked, too. */
static bool none_fits(struct tool_search *s, uint64_t world)
{
    const uint64_t unit = tool_fit_world_unit(s->settings);
    for (uint64_t ranks = TOOL_PLAN_RANKS_MAX / unit * unit; ranks >= world && ranks >= unit; ranks = ranks / 2 / unit * unit) {
        const struct tool_fit_point point = tool_search_try(s, ranks);
        s->fit->neighbour = point;
        if (point.refused[0] || point.lower_bound_bytes <= s->fit->capacity_bytes)
            return false;
    }
    for (uint64_t ranks = world; ranks < unit; ranks = next_world(s, ranks)) {
        s->fit->neighbour = tool_search_try(s, ranks);
        if (!s->fit->neighbour.refused[0] && s->fit->neighbour.lower_bound_bytes <= s->fit->capacity_bytes)
            return false;
    }
    return true;
}

/* Worlds are 1, 2, 4 ... up to a node, then whole nodes. All of them are tried, from the first whose shards alone could
 * fit: padding makes some larger worlds take more. */
static void search_world(struct tool_search *s)
{
    struct tool_fit *fit = s->fit;
    const uint64_t most =
        s->global_batch ? least_u32(s->global_batch / s->settings->plan.batch, TOOL_PLAN_RANKS_MAX) : TOOL_PLAN_RANKS_MAX;
    const uint64_t state = least_state(&s->settings->plan, s->config);
    uint64_t world = 1;
    struct tool_fit_point last = {0};
    while (state / world > fit->capacity_bytes && next_world(s, world) <= most) {
        last = (struct tool_fit_point){.known = true, .value = world, .total_bytes = state / world};
        world = next_world(s, world);
    }
    if (!s->global_batch && none_fits(s, world)) {
        snprintf(fit->note, sizeof(fit->note),
                 "the memory of a rank at any world size is too large: use a smaller batch or "
                 "sequence, more recompute, or --head-chunks");
        return;
    }
    for (; world <= most; world = next_world(s, world)) {
        const struct tool_fit_point point = tool_search_try(s, world);
        if (tool_search_fits(s, &point)) {
            fit->found = true;
            fit->answer = point;
            break;
        }
        if (!last.known || last.refused[0] || !point.refused[0]) /* few worlds share a global batch */
            last = point;
    }
    if (last.known && last.total_bytes == state / last.value) /* its shards alone: plan it, for the figure */
        last = tool_search_try(s, last.value);
    fit->neighbour = last;
}

static void search_recompute(struct tool_search *s)
{
    struct tool_fit *fit = s->fit;
    uint64_t low = 0, high = s->config->layer_count;
    s->settings->plan.recompute = EO_RECOMPUTE_CHEAP;
    struct tool_memplan memplan;
    struct tool_problem problem;
    uint64_t cheap_bytes = UINT64_MAX;
    if (tool_memplan_create(&memplan, s->config, s->settings, &problem) >= 0) {
        cheap_bytes = memplan.total_bytes;
        tool_memplan_fini(&memplan);
    }
    fit->plan_count++;
    struct tool_fit_point all = tool_search_try(s, high), none = tool_search_try(s, 0);
    fit->has_cheap = none.known && cheap_bytes < none.total_bytes;
    fit->cheap_fits = cheap_bytes <= fit->capacity_bytes;
    if (tool_search_fits(s, &none)) {
        fit->found = true;
        fit->answer = none;
        return;
    }
    fit->neighbour = none;
    if (!tool_search_fits(s, &all)) {
        fit->neighbour = all;
        return;
    }
    fit->found = true;
    fit->answer = all;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        const struct tool_fit_point point = tool_search_try(s, middle);
        if (tool_search_fits(s, &point)) {
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
static void search_strategy(struct tool_search *s)
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
        fit->found = tool_search_fits(s, &point);
        *(fit->found ? &fit->answer : &fit->neighbour) = point;
    }
    for (uint32_t c = 0; c < count && used < sizeof(fit->note); c++)
        if (columns[c].refused[0])
            used += (size_t)snprintf(fit->note + used, sizeof(fit->note) - used, "%s%s: cannot be planned", c ? "; " : "",
                                     columns[c].name);
        else
            used += (size_t)snprintf(fit->note + used, sizeof(fit->note) - used,
                                     "%s%s: %.2f GiB, receives %.2f GiB in a step, "
                                     "%.2f of them between nodes",
                                     c ? "; " : "", columns[c].name, (double)columns[c].total_bytes / 1073741824.0,
                                     (double)columns[c].received_bytes / 1073741824.0,
                                     (double)columns[c].between_bytes / 1073741824.0);
}

/* Batches that divide a global one. The last has but one micro-batch, and may take less than the one before it. */
static void search_divisors(struct tool_search *s)
{
    struct tool_fit *fit = s->fit;
    for (uint32_t batch = 1; batch <= s->sequences && batch <= TOOL_BEST_BATCH_MAX; batch++) {
        if (s->sequences % batch || s->sequences / batch > TOOL_MICRO_BATCHES_MOST)
            continue;
        const struct tool_fit_point point = tool_search_exact(s, batch);
        fit->plan_count++;
        if (tool_search_fits(s, &point)) {
            fit->found = true;
            fit->answer = point;
            fit->neighbour = (struct tool_fit_point){0};
        } else if (!fit->neighbour.known || (fit->neighbour.refused[0] && !point.refused[0])) {
            fit->neighbour = point;
        }
    }
}

/* Tokens that the ranks of a slice share evenly. */
static uint32_t sequence_unit(const struct tool_slice *slice)
{
    return (slice->context ? slice->context : 1) * (slice->sequence_parallel && slice->tensor ? slice->tensor : 1);
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
    if (kind == TOOL_FIT_MIN_GPUS && kept && kept->global_batch && kept->global_batch < settings->plan.batch)
        return tool_problem_set(problem, EO_ERR_INVALID, "--global-batch %u is less than --batch %u", kept->global_batch,
                                settings->plan.batch);
    const struct tool_memplan_settings before = *settings;
    struct tool_search s = {.fit = fit,
                            .config = config,
                            .settings = settings,
                            .begun_ns = tool_now_ns(),
                            .no_drafts = kind == TOOL_FIT_MIN_GPUS || kind == TOOL_FIT_MIN_RECOMPUTE,
                            .recompute_blocks = settings->plan.recompute_blocks,
                            .global_batch = kept ? kept->global_batch : 0,
                            .unit = 1};
    const uint32_t layers = config->layer_count;
    switch (kind) {
    case TOOL_FIT_MAX_BATCH:
        if (!s.global_batch)
            tool_search_largest(&s, 1, 1 << 20);
        else if (tool_search_share(&s))
            search_divisors(&s);
        break;
    case TOOL_FIT_MAX_SEQ:
        s.unit = sequence_unit(&settings->slice);
        if (s.unit <= config->context)
            tool_search_largest(&s, 1, config->context / s.unit);
        break;
    case TOOL_FIT_MAX_LAYERS:
        tool_search_largest(&s, 1, TOOL_CONFIG_LAYERS_MAX);
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
    case TOOL_FIT_BEST_LAYOUT:
        tool_search_best(&s, kept);
        fit->by_clock = kept->clock != NULL;
        break;
    case TOOL_FIT_NONE:
        break;
    }
    if (s.shown_ns && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%60s\r", "");
    const bool is_best = kind == TOOL_FIT_BEST || kind == TOOL_FIT_BEST_LAYOUT;
    const bool is_least = kind != TOOL_FIT_BEST_STRATEGY && (kind != TOOL_FIT_MIN_GPUS || s.global_batch);
    const bool is_shown = fit->found || (is_least && fit->neighbour.known && !fit->neighbour.refused[0]); /* the least tried */
    *settings = is_best && is_shown ? fit->settings : before;
    config->layer_count = layers;
    if (kind == TOOL_FIT_BEST_LAYOUT && fit->plan_count == 0)
        return tool_problem_set(problem, EO_ERR_INVALID, "--fit %s: no layout of %u ranks shares --global-batch %u evenly",
                                tool_fit_name(kind), before.plan.ranks, s.global_batch);
    if (!is_best && is_shown)
        set_value(&s, fit->found ? fit->answer.value : fit->neighbour.value);
    if (!is_best && is_shown && s.sequences)
        settings->plan.micro_batches = s.sequences / settings->plan.batch;
    fit->answer.value *= s.unit;
    fit->neighbour.value *= s.unit;
    return EO_OK;
}
