/* SPDX-License-Identifier: MIT
 *
 * --fit best: all settings together.
 */
#include "tools/memplan/search/candidates.h"

#include <stdio.h>

/* "--tp 2 --sequence-parallel --strategy zero2 --recompute none --batch 12 --granularity block". */
static void settings_text(const struct tool_memplan_settings *all, char *text, size_t bytes)
{
    const struct tool_plan_settings *s = &all->plan;
    char strategy[32], recompute[32], granularity[TOOL_GRANULARITY_TEXT_MAX], tensor[64] = "", pipeline[24] = "";
    tool_strategy_text(s->strategy, s->shard_group, strategy, sizeof(strategy));
    tool_recompute_text(s, recompute, sizeof(recompute));
    if (all->slice.tensor > 1)
        snprintf(tensor, sizeof(tensor), "--tp %u %s", all->slice.tensor, all->slice.sequence_parallel ? "--sequence-parallel " : "");
    if (all->slice.pipeline > 1)
        snprintf(pipeline, sizeof(pipeline), "--pp %u ", all->slice.pipeline);
    snprintf(text, bytes, "%s%s--strategy %s --recompute %s --batch %u --granularity %s", tensor, pipeline, strategy, recompute,
             s->batch, tool_granularity_text(s, granularity));
}

/* Recompute was tried by quarters of the blocks: the fewest with which the best one's batch still fits. */
static void refine_recompute(struct tool_search *s, struct tool_fit *best)
{
    struct tool_plan_settings *plan = &s->settings->plan;
    uint32_t low = 0, high = plan->recompute_blocks;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        plan->recompute_blocks = middle;
        struct tool_fit_point point = tool_search_try(s, best->answer.value);
        if (tool_search_fits(s, &point))
            tool_search_settle(s, &point);
        if (tool_search_fits(s, &point)) {
            best->answer = point;
            high = middle;
        } else {
            low = middle;
        }
    }
    plan->recompute_blocks = high;
    if (best->neighbour.known)
        best->neighbour = tool_search_exact(s, best->neighbour.value);
}

/* The fastest so far. */
struct race {
    struct tool_search *search;
    const struct tool_best_kept *kept;
    struct tool_fit best;
    struct tool_best_cost cost;
    struct tool_memplan_settings settings;
    struct tool_memplan_settings nearest; /* of best.neighbour, while nothing fits */
    uint32_t batch;                       /* as asked for */
};

static void take_if_faster(struct race *r, struct tool_fit *one)
{
    struct tool_search *s = r->search;
    if (tool_search_is_slower(s, &one->answer))
        return;
    tool_search_settle(s, &one->answer);
    if (!tool_search_fits(s, &one->answer)) /* a draft that was lucky */
        return;
    if (r->best.found && tool_best_compare(&one->answer.cost, &r->cost) >= 0)
        return;
    r->cost = one->answer.cost;
    s->best_token_ns = r->cost.token_ns;
    r->settings = *s->settings;
    r->best.found = true;
    r->best.answer = one->answer;
    r->best.neighbour = one->neighbour;
}

/* Whatever else the plan does, with this batch its clock shows more for a token than that of the best one. */
static bool is_too_slow(const struct race *r, uint32_t batch)
{
    const struct tool_search *s = r->search;
    const uint32_t micro_batches = s->sequences ? s->sequences / batch : s->settings->plan.micro_batches;
    return r->best.found && tool_best_least_ns(s->settings, micro_batches, s->config, s->clock) > r->cost.token_ns;
}

/* Batches that divide the sequences of a step on a rank: each has micro-batches of its own, so each is timed. */
static void try_divisors(struct race *r, struct tool_fit *one)
{
    struct tool_search *s = r->search;
    for (uint32_t batch = 1; batch <= s->sequences && batch <= TOOL_BEST_BATCH_MAX; batch++) {
        if (s->sequences % batch || s->sequences / batch > TOOL_MICRO_BATCHES_MOST || (r->kept->batch && batch != r->batch))
            continue;
        if (is_too_slow(r, batch))
            break; /* larger ones are fewer, and wait longer */
        const struct tool_fit_point point = tool_search_try(s, batch);
        if (tool_search_fits(s, &point)) {
            one->found = true;
            one->answer = point;
            one->neighbour = (struct tool_fit_point){0};
            take_if_faster(r, one);
        } else if (!point.refused[0]) {
            one->neighbour = point;
        }
    }
}

/*
 * Of all but the batch every combination is tried; of batches the largest that fits is the best, because a token's share of
 * what is received falls with it. A combination that computes longer than the best one takes is left out: its first plan
 * says so.
 */
static void try_combinations(struct race *r)
{
    struct tool_search *s = r->search;
    struct tool_fit *fit = s->fit;
    struct tool_best_space space;
    const uint32_t least_batch = r->kept->batch ? r->batch : 1, most = r->kept->batch ? r->batch : TOOL_BEST_BATCH_MAX;
    tool_best_space_of(&space, s->config, s->settings, r->kept);
    if (fit->kind == TOOL_FIT_BEST_LAYOUT)
        space.granularity_count = 1;
    for (uint32_t i = 0; i < space.strategy_count * space.recompute_count * space.granularity_count; i++) {
        struct tool_fit one = {.kind = fit->kind, .capacity_bytes = fit->capacity_bytes, .plan_count = fit->plan_count};
        tool_best_set(s->settings, &space, i);
        if (is_too_slow(r, least_batch))
            continue;
        s->fit = &one;
        struct tool_fit_point least = tool_search_try(s, least_batch);
        const bool too_slow = r->best.found && least.cost.compute_ns > r->cost.token_ns;
        if (s->sequences && !too_slow) /* a larger batch may take less: fewer micro-batches are added up */
            try_divisors(r, &one);
        else if (!too_slow && (tool_search_fits(s, &least) || least.refused[0]))
            tool_search_largest(s, least_batch, most);
        const bool too_many = s->sequences / (uint32_t)least.value > TOOL_MICRO_BATCHES_MOST;
        if ((least.refused[0] || too_many) && one.neighbour.known)
            least = one.neighbour;
        if (one.found && !s->sequences)
            take_if_faster(r, &one);
        fit->plan_count = one.plan_count;
        s->fit = fit;
        const bool may_be_nearest = !one.found && !r->best.found && !least.refused[0] &&
                                    s->sequences / (uint32_t)least.value <= TOOL_MICRO_BATCHES_MOST &&
                                    (!r->best.neighbour.known || least.lower_bound_bytes < r->best.neighbour.total_bytes);
        if (may_be_nearest)
            tool_search_settle(s, &least);
        if (may_be_nearest && (!r->best.neighbour.known || least.total_bytes < r->best.neighbour.total_bytes)) {
            r->best.neighbour = least;
            r->nearest = *s->settings;
            r->nearest.plan.batch = (uint32_t)least.value;
            if (s->sequences)
                r->nearest.plan.micro_batches = s->sequences / (uint32_t)least.value;
        }
    }
}

/* Cuts as they were given, else tensor groups within a node and stages, in powers of two; each with all combinations of whole
 * blocks. What cannot be is refused by the plan. */
static void try_layouts(struct race *r)
{
    enum { STAGES_MOST = 16 };
    struct tool_search *s = r->search;
    const struct tool_slice given = s->settings->slice;
    const uint32_t node = s->settings->gpus_per_node, layers = s->config->layer_count;
    const uint32_t tensor = r->kept->tensor && given.tensor ? given.tensor : 1,
                   stages = r->kept->pipeline && given.pipeline ? given.pipeline : 1;
    for (uint32_t t = tensor; t <= (r->kept->tensor ? tensor : node); t *= 2)
        for (uint32_t p = stages; p <= (r->kept->pipeline ? stages : STAGES_MOST); p *= 2) {
            if (layers % p || s->config->head_count % t)
                continue;
            s->settings->slice = given;
            s->settings->slice.tensor = t;
            s->settings->slice.pipeline = p;
            s->settings->slice.context = given.context ? given.context : 1;
            s->settings->slice.sequence_parallel = t > 1;
            s->settings->slice.stage = TOOL_SLICE_FULLEST;
            if (t * p == 1 && s->settings->slice.context == 1 && given.expert <= 1)
                s->settings->slice = (struct tool_slice){0};
            if (tool_search_share(s))
                try_combinations(r);
        }
}

void tool_search_best(struct tool_search *s, const struct tool_best_kept *kept)
{
    struct tool_fit *fit = s->fit;
    struct race r = {.search = s, .kept = kept, .best = *fit, .settings = *s->settings, .batch = s->settings->plan.batch};
    s->clock = kept->clock;
    if (fit->kind == TOOL_FIT_BEST_LAYOUT)
        try_layouts(&r);
    else if (!s->global_batch || tool_search_share(s))
        try_combinations(&r);
    *s->settings = r.settings;
    if (r.best.found && kept->global_batch)
        (void)tool_search_share(s);
    if (r.best.found)
        tool_search_settle(s, &r.best.neighbour);
    if (r.best.found && r.settings.plan.recompute == EO_RECOMPUTE_BLOCKS && !kept->recompute)
        refine_recompute(s, &r.best);
    s->settings->plan.batch = r.best.found ? (uint32_t)r.best.answer.value : r.batch;
    if (r.best.found && s->sequences)
        s->settings->plan.micro_batches = s->sequences / s->settings->plan.batch;
    r.best.plan_count = fit->plan_count;
    r.best.settings = r.best.found ? *s->settings : r.nearest;
    *fit = r.best;
    if (fit->found || fit->neighbour.known)
        settings_text(&fit->settings, fit->note, sizeof(fit->note));
}
