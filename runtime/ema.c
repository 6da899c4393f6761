/* SPDX-License-Identifier: MIT
 *
 * The moving average of the weights: behind the optimizer's arrays of state, so it is placed, offloaded and saved as these are.
 */
#include "base/check.h"
#include "runtime/internal.h"

static void average_range(struct eo_runtime *rt, uint32_t l, const struct shard_range *range, enum eo_average_mode mode)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    const struct eo_step_memory *step = eo_update_memory(rt);
    float *weights = eo_shard_weights(rt, shard, range);
    rt->shards.device->ops->average(rt->shards.device,
                                    &(const struct eo_average){
                                        .weights = weights,
                                        .high = weights ? NULL : shard->high + range->offset,
                                        .low = weights ? NULL : shard->low + range->offset,
                                        .average = shard->state[rt->plan->ema_state] + range->offset,
                                        .count = range->count,
                                    },
                                    mode, step->scalars, step->norm);
}

/* All of it is of one type, or each of its runs. */
static void average(struct eo_runtime *rt, uint32_t l, enum eo_average_mode mode)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    if (!rt->plan->layers[l].has_fp32)
        average_range(rt, l, &(struct shard_range){.count = rt->plan->layers[l].layout.shard_count,
                                                   .group = rt->plan->parameters[rt->plan->layers[l].parameter_begin].group}, mode);
    for (uint32_t i = 0; rt->plan->layers[l].has_fp32 && i < shard->range_count; i++)
        average_range(rt, l, &shard->ranges[i], mode);
}

static eo_status average_all(struct eo_runtime *rt, enum eo_average_mode mode)
{
    eo_saver_await_layer(rt, EO_NONE);
    for (uint32_t u = 0; u < rt->plan->update_count; u++) {
        EO_TRY(eo_offload_take(rt, rt->plan->updates[u], true));
        average(rt, rt->plan->updates[u], mode);
    }
    return EO_OK;
}

eo_status eo_ema_check(struct eo_runtime *rt, const char *call)
{
    if (!rt->ema.is_swapped)
        return EO_OK;
    return eo_runtime_fail(rt, EO_ERR_INVALID, "%s: the average lies in the weights' place; call eo_weights_swap_ema before", call);
}

/* Until it begins the weights may still be filled: each time it is made of them anew. */
eo_status eo_ema_make(struct eo_runtime *rt, const char *call)
{
    if (rt->plan->ema_state == EO_NONE)
        return EO_OK;
    EO_TRY(eo_ema_check(rt, call));
    return rt->ema.is_begun ? EO_OK : average_all(rt, EO_AVERAGE_BEGIN);
}

eo_status eo_ema_begin(struct eo_runtime *rt, const char *call)
{
    EO_TRY(eo_ema_make(rt, call));
    rt->ema.is_begun = true;
    return EO_OK;
}

void eo_ema_update(struct eo_runtime *rt, uint32_t l)
{
    if (rt->plan->ema_state != EO_NONE)
        average(rt, l, EO_AVERAGE_UPDATE);
}

eo_status eo_weights_swap_ema(eo_runtime *rt)
{
    EO_TRY(eo_runtime_check_idle(rt, "eo_weights_swap_ema"));
    if (rt->plan->ema_state == EO_NONE)
        return eo_runtime_fail(rt, EO_ERR_INVALID, "eo_weights_swap_ema: the plan has no average; set eo_plan_params.ema");
    EO_TRY(eo_runtime_leave_schedule(rt, "eo_weights_swap_ema"));
    EO_TRY(average_all(rt, rt->ema.is_begun ? EO_AVERAGE_SWAP : EO_AVERAGE_BEGIN));
    rt->ema.is_swapped = !rt->ema.is_swapped;
    rt->float8.stale = true;
    return EO_OK;
}
