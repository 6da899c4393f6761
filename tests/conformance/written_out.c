/* SPDX-License-Identifier: MIT */
#include "tests/conformance/written_out.h"

#include <math.h>
#include <stdlib.h>

#include "streams/bf16.h"
#include "tests/conformance/written_out_network.h"

/* -- sums, in the order of the strategy ------------------------------------------------------------------------------*/

/* What a rank writes into its gradient buffer. */
static float contribution(const struct scene *scene, const struct pass_of *pass, uint32_t parameter, uint64_t i,
                          float weight)
{
    const float value =
        is_left_out(scene->plan, pass->rank, pass->step, pass->micro_batch) ? 0 : gradient_of(pass, parameter, i, weight);
    return scene->settings.reduce_dtype == EO_DTYPE_BF16 ? eo_bf16_to_float(eo_bf16_round(value)) : value;
}

/* A contribution summed over a group of ranks, in their order, and rounded as it lands. */
static float reduced(const struct scene *scene, struct pass_of pass, uint32_t group, uint32_t parameter, uint64_t i,
                     float weight)
{
    const uint32_t size = scene->plan->params.shard_group;
    volatile float sum = 0;
    for (uint32_t r = 0; r < size; r++) {
        pass.rank = group * size + r;
        const float value = contribution(scene, &pass, parameter, i, weight);
        sum = r == 0 ? value : sum + value;
    }
    return scene->settings.reduce_dtype == EO_DTYPE_BF16 ? eo_bf16_to_float(eo_bf16_of_sum(sum)) : sum;
}

/* All contributions of a step added up: of a group's sums, or of one rank's own; `weight` as it was gathered. */
static float added_up(const struct scene *scene, uint32_t step, uint32_t unit_index, bool of_rank, uint32_t k, uint64_t i,
                      float weight)
{
    const eo_plan *plan = scene->plan;
    const struct plan_parameter *parameter = &plan->parameters[k];
    volatile float gradient = 0;
    bool first = true;
    for (uint32_t b = 0; b < plan->params.micro_batches; b++) {
        for (uint32_t p = plan->position_count; p-- > 0;) {
            if (plan->positions[p].layer != parameter->layer)
                continue;
            const float seen = plan->positions[p].backward_without_weights ? 0 : weight;
            const struct pass_of pass = {unit_index, step, b, p};
            const float more = !gets_gradient(plan, p, parameter) ? 0
                               : of_rank ? contribution(scene, &pass, k, i, seen)
                                         : reduced(scene, pass, unit_index, k, i, seen);
            gradient = first ? more : gradient + more;
            first = false;
        }
    }
    return gradient;
}

/* Written from the table of strategies in evenodd/plan.h. */
static float global_gradient(const struct scene *scene, uint32_t step, uint32_t k, uint64_t i, float weight)
{
    const eo_plan_params *p = &scene->plan->params;
    uint32_t contributions = 0;
    for (uint32_t q = 0; q < scene->plan->position_count; q++)
        contributions += scene->plan->positions[q].layer == scene->plan->parameters[k].layer;
    contributions *= p->micro_batches;
    const bool stays_whole = p->strategy == EO_STRATEGY_DDP || (p->strategy == EO_STRATEGY_ZERO1 && contributions > 1) ||
                             (p->strategy == EO_STRATEGY_HSDP && p->shard_group == 1 && p->rank_count > 1);
    const uint32_t units = stays_whole ? p->rank_count : p->rank_count / p->shard_group;
    volatile float sum = 0;
    for (uint32_t u = 0; u < units; u++) {
        const float part = added_up(scene, step, u, stays_whole, k, i, weight);
        sum = u == 0 ? part : sum + part;
    }
    return sum;
}

struct moments {
    float m, v;
};

/* `applied`: of the steps that were not skipped and did not freeze the group, this one included. */
static float adamw(float weight, float gradient, struct moments *at, uint32_t step, uint32_t applied,
                   const struct plan_group *group)
{
    const eo_step_params params = step_params(step);
    eo_parameter_group groups[GROUPS];
    set_groups(step, groups);
    const eo_parameter_group *g = &groups[group->group];
    const float beta1 = g->exact ? g->beta1 : 0.9f, beta2 = g->exact ? g->beta2 : 0.999f, eps = g->exact ? g->eps : 1e-8f;
    const float rate = params.learning_rate * (g->learning_rate_factor != 0 ? g->learning_rate_factor : 1);
    const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    const float weight_decay = group->no_weight_decay ? 0 : g->exact ? g->weight_decay : params.weight_decay;
    if (g->frozen)
        return weight;
    volatile float a = beta1 * at->m, b = rest1 * gradient, c = beta2 * at->v, d = rest2 * gradient, e = d * gradient;
    volatile float m = a + b, v = c + e;
    volatile float mean = m / (float)(1 - pow(beta1, applied)), variance = v / (float)(1 - pow(beta2, applied));
    volatile float root = sqrtf(variance), sum = root + eps, ratio = mean / sum;
    volatile float decay = weight_decay * weight, both = ratio + decay;
    volatile float change = rate * both;
    at->m = m;
    at->v = v;
    return weight - change;
}

/* An average begins as the weights do. */
static void train_parameter(const struct scene *scene, uint32_t k, float *weights, float *averages)
{
    static float seen[LAYER_ELEMENTS_MAX];
    static struct moments moments[LAYER_ELEMENTS_MAX];
    const eo_plan *plan = scene->plan;
    const struct plan_parameter *parameter = &plan->parameters[k];
    const bool frozen = plan->layers[parameter->layer].frozen;
    memset(moments, 0, sizeof(moments));
    for (uint64_t i = 0; i < parameter->element_count; i++)
        weights[i] = first_weight(k, i);
    if (frozen)
        as_filled(scene, k, weights);
    memcpy(averages, weights, parameter->element_count * sizeof(*weights));
    for (uint32_t step = 0, applied = 1; step < STEPS && !frozen; step++) {
        if (step == SKIPPED_STEP)
            continue;
        as_gathered(scene, k, weights, seen);
        for (uint64_t i = 0; i < parameter->element_count; i++) {
            volatile float gradient = global_gradient(scene, step, k, i, seen[i]) * gradient_scale(plan, step);
            weights[i] = adamw(weights[i], gradient, &moments[i], step, applied, &plan->groups[parameter->group]);
            volatile float apart = weights[i] - averages[i], more = (1.0f - step_params(step).ema_decay) * apart;
            averages[i] = averages[i] + more;
        }
        applied += !(step == FREEZING_STEP && plan->groups[parameter->group].group == 1);
    }
}

void make_reference(struct scene *scene)
{
    uint64_t at = 0;
    scene->reference = malloc(2 * scene->plan->element_count * sizeof(float));
    scene->averages = scene->reference + scene->plan->element_count;
    for (uint32_t k = 0; k < scene->plan->parameter_count; k++) {
        train_parameter(scene, k, scene->reference + at, scene->averages + at);
        at += scene->plan->parameters[k].element_count;
    }
}
