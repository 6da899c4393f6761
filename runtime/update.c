/* SPDX-License-Identifier: MIT
 *
 * The end of a step: global norm, clipping, optimizer. Both memory modes come here, with the same shards in the same
 * layout, so their results are the same bits.
 */
#include <math.h>
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/runtime_internal.h"

/* Runs of a rank's shard with one weight-decay setting. Padding joins its neighbours: AdamW leaves zero at zero. */
static uint32_t shard_ranges(const struct eo_runtime *rt, uint32_t l, struct shard_range *out)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    const uint64_t begin = layer->layout.shard_count * rt->world->rank, end = begin + layer->layout.shard_count;
    uint32_t count = 0;
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        const bool last = k + 1 == layer->parameter_count, decays = !parameter->no_weight_decay;
        const uint64_t until = last ? layer->layout.padded_count : parameter[1].offset;
        const uint64_t first = eo_max_u64(parameter->offset, begin), stop = eo_min_u64(until, end);
        if (first >= stop)
            continue;
        if (count && decays == out[count - 1].decays)
            out[count - 1].count += stop - first;
        else
            out[count++] = (struct shard_range){first - begin, stop - first, decays};
    }
    return count;
}

eo_status eo_update_init(struct eo_runtime *rt)
{
    rt->ranges = calloc(rt->plan->parameter_count + 1, sizeof(*rt->ranges));
    uint32_t most = 0;
    if (!rt->ranges)
        return EO_ERR_NO_MEMORY;
    for (uint32_t l = 0; l < rt->plan->layer_count; l++) {
        struct layer_shard *shard = &rt->shards[l];
        shard->ranges = &rt->ranges[rt->plan->layers[l].parameter_begin];
        shard->range_count = shard_ranges(rt, l, shard->ranges);
        most = shard->range_count > most ? shard->range_count : most;
    }
    rt->adamw = calloc(most + 1, sizeof(*rt->adamw));
    return rt->adamw ? EO_OK : EO_ERR_NO_MEMORY;
}

void eo_update_norm_local(struct eo_runtime *rt)
{
    double sum = 0;
    for (uint32_t l = 0; l < rt->plan->layer_count; l++)
        if (!rt->plan->layers[l].frozen)
            sum += *rt->shards[l].norm;
    rt->norm_local[0] = sum;
    for (int v = 0; v < EO_NORM_VALUES - 1; v++)
        rt->norm_local[1 + v] = rt->step_params.values[v];
}

/* All ranks add the same numbers in the same order, so they agree on the factor, and on whether to stop. */
eo_status eo_update_norm_sum(struct eo_runtime *rt)
{
    double sums[EO_NORM_VALUES] = {0};
    for (uint32_t r = 0; r < rt->world->rank_count; r++)
        for (int v = 0; v < EO_NORM_VALUES; v++)
            sums[v] += rt->norm_gathered[(size_t)r * EO_NORM_VALUES + v];
    const double norm = sqrt(sums[0]), clip = rt->step_params.clip;
    /* PyTorch's clip_grad_norm_ has the same 1e-6, so that runs can be compared. */
    const double factor = clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
    *rt->gradient_scale = (float)factor;
    rt->report.gradient_norm = norm;
    rt->report.clip_factor = factor;
    rt->report.step = rt->step + 1;
    for (int v = 0; v < EO_NORM_VALUES - 1; v++)
        rt->report.values[v] = sums[1 + v];
    if (isfinite(norm))
        return EO_OK;
    uint32_t culprit = EO_NONE;
    for (uint32_t l = 0; l < rt->plan->layer_count && culprit == EO_NONE; l++)
        if (!rt->plan->layers[l].frozen && !isfinite(*rt->shards[l].norm))
            culprit = l;
    return eo_runtime_fail(rt, EO_ERR_NOT_FINITE,
                           "step %llu: the gradient norm is not finite (%s); the weights were left as they are",
                           (unsigned long long)rt->step + 1,
                           culprit != EO_NONE ? rt->plan->layers[culprit].name : "another rank's shard");
}

void eo_update_layer(struct eo_runtime *rt, uint32_t l)
{
    const struct layer_shard *shard = &rt->shards[l];
    const struct plan_layer *layer = &rt->plan->layers[l];
    const eo_step_params *p = &rt->step_params;
    if (rt->params.update) {
        rt->params.update(rt->params.update_user, &(const eo_shard){
                                                      .layer = l,
                                                      .offset = layer->layout.shard_count * rt->world->rank,
                                                      .count = layer->layout.shard_count,
                                                      .weights = shard->weights,
                                                      .gradient = shard->gradient,
                                                      .state = (float *const *)shard->state,
                                                      .state_count = rt->plan->params.optimizer_states,
                                                      .gradient_scale = *rt->gradient_scale,
                                                      .step = rt->step + 1,
                                                  });
        return;
    }
    const float beta1 = p->beta1 != 0 ? p->beta1 : 0.9f, beta2 = p->beta2 != 0 ? p->beta2 : 0.999f;
    const double step = (double)(rt->step + 1);
    for (uint32_t i = 0; i < shard->range_count; i++) {
        const struct shard_range *range = &shard->ranges[i];
        rt->adamw[i] = (struct eo_adamw){
            .weights = shard->weights + range->offset,
            .first_moment = shard->state[0] + range->offset,
            .second_moment = shard->state[1] + range->offset,
            .gradient = shard->gradient + range->offset,
            .count = range->count,
            .gradient_scale = rt->gradient_scale,
            .learning_rate = p->learning_rate,
            .beta1 = beta1,
            .beta2 = beta2,
            .eps = p->eps != 0 ? p->eps : 1e-8f,
            .weight_decay = range->decays ? p->weight_decay : 0,
            .bias_correction1 = (float)(1 - pow(beta1, step)),
            .bias_correction2 = (float)(1 - pow(beta2, step)),
        };
    }
    rt->device->ops->adamw(rt->device, rt->adamw, shard->range_count);
}
