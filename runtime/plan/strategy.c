/* SPDX-License-Identifier: MIT
 *
 * Strategies are a table of facts: the rest of the planner asks these, and never for a name.
 */
#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/plan/internal.h"

enum group { GROUP_WORLD, GROUP_GIVEN, GROUP_ALONE };

static const struct strategy {
    const char *name;
    enum group group;     /* whose ranks hold one copy of weights and optimizer state in parts; the groups are replicas */
    bool resident;        /* full weights beside the parts, gathered after each update */
    bool whole_gradients; /* added up whole, and reduced once a step */
} strategies[EO_STRATEGY_COUNT] = {
    [EO_STRATEGY_ZERO3] = {"zero3", GROUP_WORLD, false, false},
    [EO_STRATEGY_ZERO2] = {"zero2", GROUP_WORLD, true, false},
    [EO_STRATEGY_ZERO1] = {"zero1", GROUP_WORLD, true, true},
    [EO_STRATEGY_DDP] = {"ddp", GROUP_ALONE, false, true},
    [EO_STRATEGY_HSDP] = {"hsdp", GROUP_GIVEN, false, false},
};

const char *eo_strategy_name(eo_strategy strategy)
{
    return (unsigned)strategy < EO_STRATEGY_COUNT ? strategies[strategy].name : "unknown";
}

eo_status eo_plan_take_strategy(struct eo_plan *plan)
{
    eo_plan_params *p = &plan->params;
    EO_REQUIRE(&plan->log, (unsigned)p->strategy < EO_STRATEGY_COUNT, "unknown strategy %d", (int)p->strategy);
    const struct strategy *s = &strategies[p->strategy];
    const uint32_t group = s->group == GROUP_WORLD ? p->rank_count : s->group == GROUP_ALONE ? 1 : p->shard_group;
    EO_REQUIRE(&plan->log, group > 0, "strategy %s needs the size of its groups (shard_group)", s->name);
    EO_REQUIRE(&plan->log, p->rank_count % group == 0, "strategy %s: groups of %u do not divide %u ranks", s->name, group,
               p->rank_count);
    EO_REQUIRE(&plan->log, p->shard_group == 0 || p->shard_group == group,
               "strategy %s has groups of %u, but %u was given; shard_group is for hsdp", s->name, group,
               p->shard_group);
    p->shard_group = group;
    plan->replicas = p->rank_count / group;
    plan->resident = s->resident && group > 1;
    /* A rank that has all of a layer in a world of several has nobody to reduce with before the replicas do. */
    plan->whole_gradients = s->whole_gradients || (group == 1 && plan->replicas > 1);
    return EO_OK;
}

uint32_t eo_plan_layer_ranks(const struct eo_plan *plan, const struct plan_layer *layer)
{
    return plan->params.shard_group > 1 ? plan->params.shard_group / layer->parts : 1;
}

eo_status eo_plan_check_parts(const struct eo_plan *plan)
{
    const eo_plan_params *p = &plan->params;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const struct plan_layer *layer = &plan->layers[l];
        EO_REQUIRE(&plan->log, layer->parts == 1 || p->shard_group == 1 || p->shard_group % layer->parts == 0,
                   "layer '%s': %u parts do not divide the groups of %u ranks", layer->name, layer->parts, p->shard_group);
        EO_REQUIRE(&plan->log, layer->parts == 1 || (p->gather_run == 1 && p->gradient_run == 1),
                   "layer '%s' is shared by fewer ranks than others, and no collective joins them: leave gather_run and "
                   "gradient_run out", layer->name);
    }
    return EO_OK;
}

eo_status eo_plan_shard_range(const eo_plan *plan, uint32_t layer, uint32_t rank, eo_shard_range *out)
{
    if (!plan || !out || layer >= plan->layer_count || rank >= plan->params.rank_count)
        return EO_ERR_INVALID;
    const uint64_t count = plan->layers[layer].layout.shard_count;
    *out = (eo_shard_range){
        .offset = count * (rank % plan->params.shard_group % eo_plan_layer_ranks(plan, &plan->layers[layer])),
        .count = count,
        .replica = rank / plan->params.shard_group,
        .ranks = eo_plan_layer_ranks(plan, &plan->layers[layer]),
    };
    return EO_OK;
}

eo_status eo_plan_parameter_place(const eo_plan *plan, uint32_t parameter, eo_parameter_place *out)
{
    if (!plan || !out || parameter >= plan->parameter_count)
        return EO_ERR_INVALID;
    const struct plan_parameter *p = &plan->parameters[plan->parameter_of_model[parameter]];
    *out = (eo_parameter_place){p->layer, plan->groups[p->group].group, p->offset, p->element_count};
    return EO_OK;
}

eo_status eo_plan_shard_part(const eo_plan *plan, uint32_t layer, uint32_t rank, uint32_t part, eo_shard_part *out)
{
    eo_shard_range shard;
    if (!out || eo_plan_shard_range(plan, layer, rank, &shard) < 0)
        return EO_ERR_INVALID;
    const struct plan_layer *l = &plan->layers[layer];
    for (uint32_t k = l->parameter_begin; k < l->parameter_begin + l->parameter_count; k++) {
        const struct plan_parameter *p = &plan->parameters[k];
        const uint64_t begin = eo_max_u64(p->offset, shard.offset);
        const uint64_t end = eo_min_u64(p->offset + p->element_count, shard.offset + shard.count);
        if (begin >= end || part-- > 0)
            continue;
        *out = (eo_shard_part){.parameter = p->model_index, .group = plan->groups[p->group].group, .from = begin - p->offset,
                               .at = begin - shard.offset, .count = end - begin};
        return EO_OK;
    }
    return EO_ERR_INVALID;
}
