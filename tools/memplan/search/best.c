/* SPDX-License-Identifier: MIT */
#include "tools/memplan/search/best.h"

#include <math.h>

/*
 * A GPU's rates: half of an H100's 989 TFLOP/s in bf16, 80 % of NVLink's 450 GB/s one way and of a network card's 50, and 20
 * us for each collective. Their ratios decide the order, so one set serves for all devices.
 */
static const double flops_per_ns = 0.5 * 989e3, node_bytes_per_ns = 0.8 * 450, network_bytes_per_ns = 0.8 * 50;
static const double collective_ns = 20e3;

/* Of a token: forward, twice that backward, and what is computed again. Cheap recompute has no products: a hundredth. */
static double token_flops(const struct tool_memplan *m, const struct tool_model_config *c)
{
    const struct tool_plan_settings *s = &m->settings.plan;
    const double layers = c->layer_count;
    const double forward = 2 * (double)tool_model_config_active_parameters(c) + tool_model_config_core_flops(c, s->seq);
    const double ends = 2 * (double)c->vocabulary * c->width;
    const double again = s->recompute == EO_RECOMPUTE_BLOCKS  ? (forward - ends) * s->recompute_blocks / layers
                         : s->recompute == EO_RECOMPUTE_CHEAP ? 0.01 * forward
                                                              : 0;
    return 3 * forward + again;
}

double tool_best_least_ns(const struct tool_memplan_settings *settings, uint32_t micro_batches,
                          const struct tool_model_config *c, const struct tool_estimate_request *clock)
{
    const struct tool_plan_settings *s = &settings->plan;
    const struct tool_slice *slice = &settings->slice;
    const double ends = 2 * (double)c->vocabulary * c->width, looked_up = c->tied_head ? 0 : ends;
    const double forward = 2 * (double)tool_model_config_active_parameters(c) - looked_up - 2 * (double)c->context * c->width;
    const double blocks = s->recompute_blocks < c->layer_count ? s->recompute_blocks : c->layer_count;
    const double again = s->recompute == EO_RECOMPUTE_BLOCKS ? (forward - ends) * blocks / c->layer_count : 0;
    const struct tool_device_rates *rates = clock ? tool_device_rates_find(clock->device) : NULL;
    const double passes = s->lora.rank ? 2 : 3; /* frozen weights have no gradients */
    const double bubble = slice->pipeline > 1 ? (slice->pipeline - 1.0) / micro_batches / tool_slice_chunks(slice) : 0;
    return rates ? (1 + bubble) * (passes * forward + again) * 1e9 / (rates->product_flops * rates->product_share) : 0;
}

/* The time that memplan --time prints. False: there is none. */
static bool take_clock(struct tool_best_cost *cost, const struct tool_memplan *m, const struct tool_model_config *c,
                       const struct tool_estimate_request *clock, struct tool_scratch_memory *scratch)
{
    struct tool_estimate_request request = *clock;
    struct tool_time_answer time;
    struct tool_problem problem;
    const struct tool_slice *slice = &m->settings.slice;
    request.config = c;
    request.asked = &m->settings;
    request.plan = m;
    request.scratch = scratch;
    request.layout.tensor = slice->tensor ? slice->tensor : 1;
    request.layout.pipeline = slice->pipeline ? slice->pipeline : 1;
    request.layout.sequence_parallel = slice->sequence_parallel;
    if (tool_estimate_time(&time, &request, &problem) < 0)
        return false;
    cost->token_ns = 1e9 * m->settings.plan.ranks / time.step.tokens_per_second;
    cost->compute_ns = tool_best_least_ns(&m->settings, UINT32_MAX, c, clock); /* with other batches it waits otherwise */
    return true;
}

struct tool_best_cost tool_best_cost_of(const struct tool_memplan *m, const struct tool_model_config *c,
                                        const struct tool_estimate_request *clock, struct tool_scratch_memory *scratch)
{
    const struct tool_plan_settings *s = &m->settings.plan;
    const double tokens = (double)s->batch * s->seq * s->micro_batches;
    const struct tool_traffic traffic = tool_traffic_of(m);
    const double compute_ns = token_flops(m, c) / flops_per_ns;
    const double links_ns = ((double)traffic.received_bytes / node_bytes_per_ns +
                             (double)traffic.between_bytes / network_bytes_per_ns + traffic.collectives * collective_ns) / tokens;
    struct tool_best_cost cost = {.token_ns = compute_ns > links_ns ? compute_ns : links_ns,
                                   .compute_ns = compute_ns,
                                   .between_bytes = (double)traffic.between_bytes / tokens,
                                   .received_bytes = (double)traffic.received_bytes / tokens,
                                   .batch = s->batch,
                                   .total_bytes = m->total_bytes};
    if (clock && !take_clock(&cost, m, c, clock, scratch))
        cost.token_ns = INFINITY;
    return cost;
}

static int order(double a, double b)
{
    return (a > b) - (a < b);
}

int tool_best_compare(const struct tool_best_cost *a, const struct tool_best_cost *b)
{
    int by = order(a->token_ns, b->token_ns);
    by = by ? by : order(a->compute_ns, b->compute_ns);
    by = by ? by : order(a->between_bytes, b->between_bytes);
    by = by ? by : order(a->received_bytes, b->received_bytes);
    by = by ? by : order(b->batch, a->batch);
    return by ? by : order((double)a->total_bytes, (double)b->total_bytes);
}

/* Groups are powers of two and whole nodes, as long as they divide the ranks. */
static void add_groups(struct tool_best_space *space, const struct tool_memplan_settings *settings)
{
    const uint32_t ranks = settings->plan.ranks, node = settings->gpus_per_node;
    for (uint64_t group = 2, next; group < ranks && space->strategy_count < TOOL_BEST_STRATEGIES_MAX; group = next) {
        next = group < node && 2 * group > node ? node : 2 * group;
        if (ranks % group == 0) {
            space->strategies[space->strategy_count].strategy = EO_STRATEGY_HSDP;
            space->strategies[space->strategy_count++].group = (uint32_t)group;
        }
    }
}

void tool_best_space_of(struct tool_best_space *space, const struct tool_model_config *config,
                        const struct tool_memplan_settings *settings, const struct tool_best_kept *kept)
{
    static const eo_strategy plain[] = {EO_STRATEGY_DDP, EO_STRATEGY_ZERO1, EO_STRATEGY_ZERO2, EO_STRATEGY_ZERO3};
    const struct tool_plan_settings *s = &settings->plan;
    const uint32_t layers = config->layer_count;
    *space = (struct tool_best_space){.granularity_count = kept->granularity ? 1 : 2};
    if (kept->strategy) {
        space->strategies[space->strategy_count].strategy = s->strategy;
        space->strategies[space->strategy_count++].group = s->shard_group;
    } else {
        for (int k = 0; k < 4; k++)
            space->strategies[space->strategy_count++].strategy = plain[k];
        add_groups(space, settings);
    }
    if (kept->recompute) {
        space->recomputes[space->recompute_count].recompute = s->recompute;
        space->recomputes[space->recompute_count++].blocks = s->recompute_blocks;
        return;
    }
    space->recomputes[space->recompute_count++].recompute = EO_RECOMPUTE_NONE;
    space->recomputes[space->recompute_count++].recompute = EO_RECOMPUTE_CHEAP;
    for (uint32_t quarter = 1; quarter <= 4; quarter++) {
        const uint32_t blocks = layers * quarter / 4;
        if (blocks == 0 || blocks == layers * (quarter - 1) / 4)
            continue;
        space->recomputes[space->recompute_count].recompute = EO_RECOMPUTE_BLOCKS;
        space->recomputes[space->recompute_count++].blocks = blocks;
    }
}

void tool_best_set(struct tool_memplan_settings *settings, const struct tool_best_space *space, uint32_t index)
{
    struct tool_plan_settings *s = &settings->plan;
    const uint32_t granularity = index % space->granularity_count, rest = index / space->granularity_count;
    const uint32_t strategy = rest % space->strategy_count, recompute = rest / space->strategy_count;
    if (space->granularity_count > 1)
        s->half_blocks = granularity == 1;
    s->strategy = space->strategies[strategy].strategy;
    s->shard_group = space->strategies[strategy].group;
    s->recompute = space->recomputes[recompute].recompute;
    s->recompute_blocks = space->recomputes[recompute].blocks;
}
