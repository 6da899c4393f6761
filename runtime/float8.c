/* SPDX-License-Identifier: MIT
 *
 * Weights for gathers in float8: a rank's part as it is sent, and what was gathered, widened for its use. And frozen weights
 * in MXFP8, which have no other form.
 */
#include <stdlib.h>

#include <string.h>

#include "base/arithmetic.h"
#include "base/mxfp8.h"
#include "runtime/internal.h"
#include "streams/bf16.h"

/* The runs of a rank's parts do not change: its saver's thread reads them too. */
static eo_status init_frozen(struct eo_runtime *rt, uint32_t most)
{
    const struct eo_plan *plan = rt->plan;
    struct plan_float8_run *next = calloc(plan->parameter_count, sizeof(*next));
    rt->float8.frozen_runs = next;
    rt->float8.mxfp8_runs = calloc((size_t)most + plan->params.shard_group, sizeof(*rt->float8.mxfp8_runs));
    if (!next || !rt->float8.mxfp8_runs)
        return EO_ERR_NO_MEMORY;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct layer_shard *shard = &rt->shards.layers[l];
        if (!plan->layers[l].float8_frozen)
            continue;
        (void)eo_plan_float8_runs(plan, l, rt->shards.rank, next, &shard->narrow_run_count);
        shard->narrow_runs = next;
        next += shard->narrow_run_count;
    }
    return EO_OK;
}

eo_status eo_float8_init(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    uint32_t most = 0;
    if (!plan->params.float8_gather && !plan->params.float8_frozen)
        return EO_OK;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        most = plan->layers[l].parameter_count > most ? plan->layers[l].parameter_count : most;
    rt->float8.room = calloc(most, sizeof(*rt->float8.room));
    rt->float8.runs = calloc((size_t)most + plan->params.shard_group, sizeof(*rt->float8.runs)); /* each cut adds one */
    rt->float8.stale = true;
    if (!rt->float8.room || !rt->float8.runs)
        return EO_ERR_NO_MEMORY;
    return plan->params.float8_frozen ? init_frozen(rt, most) : EO_OK;
}

void eo_float8_fini(struct runtime_float8 *float8)
{
    free(float8->room);
    free(float8->runs);
    free(float8->mxfp8_runs);
    free(float8->frozen_runs);
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

void eo_float8_widen_frozen(struct eo_runtime *rt, uint32_t l, const void *gathered, void *weights)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    const eo_dtype dtype = rt->plan->params.dtype;
    uint32_t total = 0;
    for (uint32_t r = 0; r < rt->plan->params.shard_group; r++) {
        const uint8_t *narrow = (const uint8_t *)gathered + layer->narrow_bytes * r;
        uint32_t count;
        (void)eo_plan_float8_runs(rt->plan, l, r, rt->float8.room, &count);
        for (uint32_t i = 0; i < count; i++) {
            const struct plan_float8_run *from = &rt->float8.room[i];
            rt->float8.mxfp8_runs[total++] = (struct eo_mxfp8_run){
                .wide = (char *)weights + (layer->layout.shard_count * r + from->at) * eo_dtype_bytes(dtype),
                .narrow = narrow + from->element_bytes,
                .exponents = from->scale == EO_NONE ? NULL : narrow + from->narrow_bytes,
                .count = from->count,
                .dtype = dtype,
            };
        }
    }
    rt->device->ops->widen_mxfp8(rt->device, rt->float8.mxfp8_runs, total);
}

/* Of a run, elements [from, from + count) of it. */
static void read_run(const struct eo_runtime *rt, uint32_t l, const struct plan_float8_run *run, const uint8_t *narrow, uint64_t from,
                     uint64_t count, float *out)
{
    const struct plan_parameter *parameter = &rt->plan->parameters[rt->plan->layers[l].parameter_begin + run->parameter];
    const uint8_t *exponents = narrow + run->narrow_bytes, *elements = narrow + run->element_bytes;
    const float *floats = (const float *)(const void *)elements;
    const uint16_t *halves = (const uint16_t *)(const void *)elements;
    const bool is_fp32 = rt->plan->params.dtype == EO_DTYPE_FP32;
    for (uint64_t k = 0; k < count; k++) {
        const uint64_t i = from + k;
        if (run->scale != EO_NONE)
            out[k] = eo_mxfp8_widen(elements[i], exponents[i / EO_MXFP8_BLOCK]);
        else if (parameter->fp32) /* two places of the layer an element */
            out[k] = i < run->count / 2 ? floats[i] : 0;
        else
            out[k] = is_fp32 ? floats[i] : eo_bf16_to_float(halves[i]);
    }
}

void eo_float8_read_frozen(const struct eo_runtime *rt, uint32_t l, const void *narrow, uint64_t from, uint64_t count, float *out)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    memset(out, 0, count * sizeof(*out)); /* padding */
    for (uint32_t r = 0; r < shard->narrow_run_count; r++) {
        const struct plan_float8_run *run = &shard->narrow_runs[r];
        const uint64_t begin = eo_max_u64(from, run->at), end = eo_min_u64(from + count, run->at + run->count);
        if (begin < end)
            read_run(rt, l, run, narrow, begin - run->at, end - begin, out + (begin - from));
    }
}

eo_status eo_float8_refresh(struct eo_runtime *rt)
{
    for (uint32_t l = 0; rt->float8.stale && l < rt->plan->layer_count; l++)
        if (rt->plan->layers[l].float8_gather && !rt->plan->layers[l].float8_frozen)
            EO_TRY(rt->mode->narrow(rt, l));
    rt->float8.stale = false;
    return EO_OK;
}
