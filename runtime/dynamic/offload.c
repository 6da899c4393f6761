/* SPDX-License-Identifier: MIT
 *
 * The dynamic mode's shards, gradients and optimizer state in the host's memory, as FSDP2's CPUOffloadPolicy keeps them:
 *
 *     gather      copy queue: fp32 shard to the device, [cast]; then the collective
 *     reduction   reduction queue: the collective, then its output to the host: where the gradient shard is, or, if there is
 *                 one already or the reduction is not in fp32, beside it, to be added by the host
 *     step's end  the host waits for all of it, sums squares, also by layer and group, and updates
 *
 * Where it differs from FSDP2: gradients of later micro-batches are added when their place is needed, not at once, and bf16
 * travels as such; both are in its favour.
 */
#include "runtime/dynamic/internal.h"

#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/check.h"

static bool is_on(const struct eo_runtime *rt)
{
    return rt->params.dynamic_offload;
}

uint32_t eo_dynamic_input_queue(const struct eo_runtime *rt)
{
    return is_on(rt) ? EO_QUEUE_COPY : EO_QUEUE_COMM;
}

/* Bytes of an array in host memory. */
static uint64_t room_of(uint64_t bytes)
{
    return eo_align_up(bytes, 64);
}

/* Bytes of all layers' sums of squares; not 0 where all are frozen. */
static uint64_t sums_bytes(const struct eo_plan *plan)
{
    uint64_t sums = 0;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        sums += plan->layers[l].frozen ? 0 : eo_plan_layer_sums(plan, &plan->layers[l]);
    return eo_max_u64(sums, 1) * sizeof(double);
}

static uint64_t host_bytes(const struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    const struct dynamic_state *state = eo_dynamic_state(rt);
    uint64_t bytes = room_of(sums_bytes(plan)), most = 0;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const uint64_t count = plan->layers[l].layout.shard_count;
        bytes += room_of(count * sizeof(float)) * (plan->layers[l].frozen ? 1 : 2);
        most = eo_max_u64(most, room_of(count * sizeof(float)));
        for (uint32_t k = 0; k < plan->state_count && !plan->layers[l].frozen; k++)
            bytes += room_of(eo_plan_state_bytes(plan, k, count));
    }
    return bytes + most * state->reduction_limit;
}

/* Where the device's memory is not the host's, a CPU device computes on it. */
static eo_status make_host_device(struct eo_runtime *rt)
{
    if (rt->device->ops->is_host_memory)
        return EO_OK;
    struct dynamic_state *state = eo_dynamic_state(rt);
    EO_TRY(eo_device_create(&state->host_device, "cpu",
                            &(struct eo_device_params){.queue_count = 1, .ring_capacity = 1, .rank = rt->world->rank,
                                                       .rank_count = rt->world->rank_count, .event_count = 1, .stamp_count = 1,
                                                       .workers = rt->device->params.workers, .log = &rt->log}));
    rt->shards.device = state->host_device;
    return EO_OK;
}

static void *take_room(char **at, uint64_t bytes)
{
    void *room = *at;
    *at += room_of(bytes);
    return room;
}

eo_status eo_dynamic_offload_init(struct eo_runtime *rt)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const struct eo_plan *plan = rt->plan;
    struct dynamic_offload *offload = &state->offload;
    offload->bytes = host_bytes(rt);
    EO_TRY(make_host_device(rt));
    EO_TRY(rt->device->ops->reserve(rt->device, EO_MEMORY_KIND_HOST, offload->bytes, &offload->memory));
    EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COMPUTE, sums_bytes(plan), "norms of layers", (void **)&offload->device_norms));
    rt->device->ops->zero(rt->device, offload->device_norms, sums_bytes(plan));
    offload->gradients = calloc(plan->layer_count, sizeof(*offload->gradients));
    offload->has_arrived = calloc(plan->layer_count, sizeof(*offload->has_arrived));
    if (!offload->gradients || !offload->has_arrived)
        return EO_ERR_NO_MEMORY;
    char *at = offload->memory;
    offload->norms = take_room(&at, sums_bytes(plan));
    double *norm = offload->device_norms;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct layer_shard *shard = &rt->shards.layers[l];
        const uint64_t count = plan->layers[l].layout.shard_count;
        shard->weights = take_room(&at, count * sizeof(float));
        offload->staging_bytes = eo_max_u64(offload->staging_bytes, room_of(count * sizeof(float)));
        if (plan->layers[l].frozen)
            continue;
        shard->norm = norm;
        norm += eo_plan_layer_sums(plan, &plan->layers[l]);
        offload->gradients[l] = take_room(&at, count * sizeof(float));
        for (uint32_t k = 0; k < plan->state_count; k++)
            shard->state[k] = take_room(&at, eo_plan_state_bytes(plan, k, count));
    }
    offload->staging = at;
    eo_log_write(&rt->log, EO_LOG_INFO, "rank %u: %.1f MiB of the host for shards, gradients and optimizer state",
                 rt->world->rank, (double)offload->bytes / (1 << 20));
    return EO_OK;
}

void eo_dynamic_offload_fini(struct eo_runtime *rt)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    if (state->offload.memory)
        rt->device->ops->release(rt->device, EO_MEMORY_KIND_HOST, state->offload.memory, state->offload.bytes);
    eo_device_destroy(&state->host_device);
    free(state->offload.gradients);
    free(state->offload.has_arrived);
}

eo_status eo_dynamic_bring_shard(struct eo_runtime *rt, uint32_t l, void **out)
{
    const uint64_t bytes = rt->plan->layers[l].layout.shard_count * sizeof(float);
    EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COPY, bytes, "a shard from the host", out));
    struct eo_timeline_entry *entry = eo_dynamic_entry(rt, EO_OP_FETCH, EO_STREAM_COPY, EO_NONE, l);
    eo_dynamic_note_live(rt, entry);
    rt->device->ops->copy_host(rt->device, EO_QUEUE_COPY, *out, rt->shards.layers[l].weights, bytes, false, &entry->span);
    rt->stats.storage_bytes += bytes;
    return EO_OK;
}

/* Compute gets nothing to do while the host waits: the time in which it stands still is told by its own wait. */
static eo_status await_host(struct eo_runtime *rt, const struct eo_event *event, const char *what)
{
    EO_TRY(eo_runtime_wait(rt, event, EO_WAIT_FETCH));
    return eo_host_await(rt, event, what);
}

static void *staging_of(const struct eo_runtime *rt, const struct dynamic_reduction *reduction)
{
    const struct dynamic_state *state = eo_dynamic_state(rt);
    return state->offload.staging + state->offload.staging_bytes * (uint64_t)(reduction - state->reductions);
}

void eo_dynamic_send_gradient(struct eo_runtime *rt, struct dynamic_reduction *reduction)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const uint32_t l = eo_dynamic_layer(rt, reduction->position);
    const eo_dtype dtype = rt->plan->params.reduce_dtype;
    const uint64_t bytes = rt->plan->layers[l].layout.shard_count * eo_dtype_bytes(dtype);
    reduction->is_first = !state->offload.has_arrived[l];
    reduction->is_staged = !reduction->is_first || dtype != EO_DTYPE_FP32;
    state->offload.has_arrived[l] = true;
    struct eo_timeline_entry *entry =
        eo_dynamic_entry(rt, EO_OP_EVICT, (eo_stream_id)state->reduce_queue, EO_NONE, l);
    eo_dynamic_note_live(rt, entry);
    rt->device->ops->copy_host(rt->device, state->reduce_queue,
                               reduction->is_staged ? staging_of(rt, reduction) : state->offload.gradients[l], reduction->output,
                               bytes, true, &entry->span);
    rt->device->ops->record(rt->device, state->reduce_queue, &reduction->landed);
    rt->stats.storage_bytes += bytes;
}

eo_status eo_dynamic_take_gradient(struct eo_runtime *rt, struct dynamic_reduction *reduction)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const uint32_t l = eo_dynamic_layer(rt, reduction->position);
    struct eo_device *host = rt->shards.device;
    rt->shards.layers[l].gradient = state->offload.gradients[l];
    if (reduction->is_staged || rt->device->ops->is_host_memory) /* whose blocks know no queues */
        EO_TRY(await_host(rt, &reduction->landed, "waiting for a gradient"));
    eo_dynamic_give(rt, state->reduce_queue, &reduction->output);
    if (!reduction->is_staged)
        return EO_OK;
    host->ops->accumulate(host, state->offload.gradients[l], staging_of(rt, reduction), rt->plan->params.reduce_dtype,
                          reduction->is_first, rt->plan->layers[l].layout.shard_count);
    return EO_OK;
}

eo_status eo_dynamic_await_gradients(struct eo_runtime *rt)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    rt->device->ops->record(rt->device, state->reduce_queue, &state->offload.all_landed);
    return await_host(rt, &state->offload.all_landed, "waiting for the gradients");
}

void eo_dynamic_sum_on_host(struct eo_runtime *rt)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const struct eo_plan *plan = rt->plan;
    const struct dynamic_offload *offload = &state->offload;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        state->offload.has_arrived[l] = false;
        if (!plan->layers[l].frozen)
            eo_norms_on_host(rt, l, offload->norms + (rt->shards.layers[l].norm - offload->device_norms));
    }
    rt->device->ops->upload(rt->device, offload->device_norms, offload->norms, sums_bytes(plan));
}
