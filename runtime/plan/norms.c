/* SPDX-License-Identifier: MIT
 *
 * The numbers of a step's end: their bytes, and where each lies.
 */
#include "base/arithmetic.h"
#include "runtime/plan/internal.h"

static uint32_t part_layers(const struct eo_plan *plan)
{
    return plan->params.norm_parts ? plan->trainer_layer_count : 0;
}

static uint32_t part_groups(const struct eo_plan *plan)
{
    return plan->params.norm_parts ? plan->trainer_group_count : 0;
}

static uint64_t groups_end(const struct eo_plan *plan)
{
    return sizeof(struct eo_update_scalars) + plan->group_count * sizeof(struct eo_group_scalars);
}

static uint64_t results_end(const struct eo_plan *plan)
{
    return eo_align_up(sizeof(struct eo_norm_result) + plan->group_count * sizeof(struct eo_group_result), 8);
}

uint64_t eo_plan_scalars_bytes(const struct eo_plan *plan)
{
    return eo_align_up(groups_end(plan) + part_groups(plan) * sizeof(struct eo_clip_scalars), 8);
}

uint64_t eo_plan_result_bytes(const struct eo_plan *plan)
{
    return results_end(plan) + part_layers(plan) * sizeof(double) + part_groups(plan) * sizeof(struct eo_clip_result);
}

struct eo_step_memory eo_plan_step_memory(const struct eo_plan *plan, void *scalars, void *result)
{
    double *norms = (double *)((char *)result + results_end(plan));
    return (struct eo_step_memory){
        .scalars = scalars,
        .groups = (struct eo_group_scalars *)((struct eo_update_scalars *)scalars + 1),
        .norm = result,
        .results = (struct eo_group_result *)((struct eo_norm_result *)result + 1),
        .layer_count = part_layers(plan),
        .clip_count = part_groups(plan),
        .clips = (struct eo_clip_scalars *)((char *)scalars + groups_end(plan)),
        .layer_norms = norms,
        .clip_results = (struct eo_clip_result *)(norms + part_layers(plan)),
    };
}

uint64_t eo_plan_norm_bytes(const struct eo_plan *plan)
{
    return (EO_NORM_VALUES + part_layers(plan) + part_groups(plan)) * sizeof(double);
}

uint32_t eo_plan_layer_sums(const struct eo_plan *plan, const struct plan_layer *layer)
{
    const struct plan_parameter *parameters = &plan->parameters[layer->parameter_begin];
    uint32_t runs = 1;
    for (uint32_t k = 1; k < layer->parameter_count; k++)
        runs += plan->groups[parameters[k].group].group != plan->groups[parameters[k - 1].group].group;
    return plan->params.norm_parts && runs > 1 ? 1 + runs : 1;
}
