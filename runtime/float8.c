/* SPDX-License-Identifier: MIT
 *
 * Weights for gathers in float8: a rank's part as it is sent, and what was gathered, widened for its use.
 */
#include <stdlib.h>

#include "base/arithmetic.h"
#include "runtime/internal.h"

eo_status eo_float8_init(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    uint32_t most = 0;
    if (!plan->params.float8_gather)
        return EO_OK;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        most = plan->layers[l].parameter_count > most ? plan->layers[l].parameter_count : most;
    rt->float8.room = calloc(most, sizeof(*rt->float8.room));
    rt->float8.runs = calloc((size_t)most + plan->params.shard_group, sizeof(*rt->float8.runs)); /* each cut adds one */
    rt->float8.stale = true;
    return rt->float8.room && rt->float8.runs ? EO_OK : EO_ERR_NO_MEMORY;
}

void eo_float8_fini(struct runtime_float8 *float8)
{
    free(float8->room);
    free(float8->runs);
}

/* Adds a rank's runs, in what it sends; `wide` are still NULL. Returns their number. */
static uint32_t add_runs(struct eo_runtime *rt, uint32_t l, uint32_t rank, void *narrow, struct eo_float8_run *runs)
{
    uint32_t count;
    (void)eo_plan_float8_runs(rt->plan, l, rank, rt->float8.room, &count);
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_float8_run *from = &rt->float8.room[i];
        runs[i] = (struct eo_float8_run){.narrow = (char *)narrow + from->narrow_bytes,
                                         .scale = from->scale == EO_NONE ? NULL : (float *)narrow + from->scale,
                                         .count = from->count};
    }
    return count;
}

void eo_float8_narrow_shard(struct eo_runtime *rt, uint32_t l, uint16_t *wide, void *narrow)
{
    const uint32_t count = add_runs(rt, l, rt->shards.rank, narrow, rt->float8.runs);
    for (uint32_t i = 0; i < count; i++)
        rt->float8.runs[i].wide = wide + rt->float8.room[i].at;
    rt->device->ops->narrow(rt->device, rt->float8.runs, count);
}

void eo_float8_widen_layer(struct eo_runtime *rt, uint32_t l, void *gathered, void *const *weights)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    uint32_t count = 0;
    for (uint32_t r = 0; r < rt->plan->params.shard_group; r++) {
        struct eo_float8_run *runs = rt->float8.runs + count;
        const uint32_t more = add_runs(rt, l, r, (char *)gathered + layer->narrow_bytes * r, runs);
        for (uint32_t i = 0; i < more; i++)
            runs[i].wide = (uint16_t *)weights[rt->float8.room[i].parameter] + rt->float8.room[i].from;
        count += more;
    }
    rt->device->ops->widen(rt->device, rt->float8.runs, count);
}

eo_status eo_float8_refresh(struct eo_runtime *rt)
{
    for (uint32_t l = 0; rt->float8.stale && l < rt->plan->layer_count; l++)
        if (rt->plan->layers[l].float8_gather)
            EO_TRY(rt->mode->narrow(rt, l));
    rt->float8.stale = false;
    return EO_OK;
}
