/* SPDX-License-Identifier: MIT
 *
 * Weights in the dynamic mode: all-gathers, what is cast for them, and copies of their outputs as tensors.
 */
#include "runtime/dynamic/internal.h"

#include <string.h>

#include "base/check.h"

eo_status eo_dynamic_drop_casts(struct eo_runtime *rt, uint64_t ended_gather)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    bool first = true;
    for (; state->cast_count && state->casts[state->cast_first].gather < ended_gather; first = false) {
        if (first && rt->params.dynamic_offload) { /* the copy queue comes after the gather, as compute does */
            rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &state->dropped);
            EO_TRY(eo_dynamic_order(rt, EO_QUEUE_COPY, &state->dropped));
        }
        eo_dynamic_give(rt, eo_dynamic_input_queue(rt), &state->casts[state->cast_first].memory);
        eo_dynamic_give(rt, eo_dynamic_input_queue(rt), &state->casts[state->cast_first].source);
        state->cast_first = (state->cast_first + 1) % state->cast_capacity;
        state->cast_count--;
    }
    return EO_OK;
}

static void count_cast(struct eo_runtime *rt, uint64_t bytes)
{
    rt->stats.cast_bytes += bytes;
    rt->stats.copied_bytes += bytes;
}

/* A shard as it is sent: in bf16, but for parameters with fp32. */
static void cast_shard(struct eo_runtime *rt, uint32_t queue, uint32_t l, const float *from, uint16_t *to)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    const uint64_t count = rt->plan->layers[l].layout.shard_count;
    rt->device->ops->cast_bf16(rt->device, queue, to, from, count);
    count_cast(rt, count * (sizeof(float) + sizeof(uint16_t)));
    for (uint32_t r = 0; r < shard->range_count; r++) {
        const struct shard_range *range = &shard->ranges[r];
        if (rt->plan->groups[range->group].fp32)
            rt->device->ops->copy(rt->device, queue, to + range->offset, from + range->offset, range->count * sizeof(float));
    }
}

eo_status eo_dynamic_narrow(struct eo_runtime *rt, uint32_t l)
{
    const struct layer_shard *shard = &rt->shards.layers[l];
    const uint64_t count = rt->plan->layers[l].layout.shard_count;
    void *cast;
    EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COMPUTE, count * sizeof(uint16_t), "the cast of a shard", &cast));
    cast_shard(rt, EO_QUEUE_COMPUTE, l, shard->weights, cast);
    eo_float8_narrow_shard(rt, l, cast, shard->narrow);
    eo_dynamic_give(rt, EO_QUEUE_COMPUTE, &cast);
    return EO_OK;
}

/* For the gather that is counted last. */
static struct gather_cast *new_cast(struct dynamic_state *state)
{
    EO_ASSERT(state->cast_count < state->cast_capacity);
    struct gather_cast *cast = &state->casts[(state->cast_first + state->cast_count++) % state->cast_capacity];
    *cast = (struct gather_cast){.gather = state->gather_count};
    return cast;
}

/* From the host: fp32, as it lies there, or cast on its way to the gather. */
static eo_status bring_input(struct eo_runtime *rt, uint32_t l, bool as_fp32, const void **out)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const uint64_t count = rt->plan->layers[l].layout.shard_count;
    struct gather_cast *cast = new_cast(state);
    EO_TRY(eo_dynamic_bring_shard(rt, l, &cast->memory));
    if (!as_fp32) {
        cast->source = cast->memory;
        EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COPY, count * sizeof(uint16_t), "the cast of a shard", &cast->memory));
        cast_shard(rt, EO_QUEUE_COPY, l, cast->source, cast->memory);
        if (!rt->device->ops->is_host_memory)
            eo_dynamic_give(rt, EO_QUEUE_COPY, &cast->source);
    }
    *out = cast->memory;
    rt->device->ops->record(rt->device, EO_QUEUE_COPY, &state->brought);
    return eo_dynamic_order(rt, EO_QUEUE_COMM, &state->brought);
}

eo_status eo_dynamic_bring_whole(struct eo_runtime *rt, uint32_t l, const void **out)
{
    eo_dynamic_state(rt)->gather_count++;
    return bring_input(rt, l, true, out);
}

/* What a gather sends: the fp32 shard itself, its cast, the part in float8 that was made after the update, or what comes from
 * the host. */
static eo_status make_input(struct eo_runtime *rt, uint32_t l, const void **out)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const uint64_t count = rt->plan->layers[l].layout.shard_count;
    if (rt->params.dynamic_offload)
        return bring_input(rt, l, rt->plan->params.dtype == EO_DTYPE_FP32, out);
    *out = rt->plan->layers[l].float8_gather ? rt->shards.layers[l].narrow : rt->shards.layers[l].weights;
    if (rt->plan->params.dtype == EO_DTYPE_FP32 || rt->plan->layers[l].float8_gather)
        return EO_OK;
    struct gather_cast *cast = new_cast(state);
    EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COMM, count * sizeof(uint16_t), "the cast of a shard", &cast->memory));
    cast_shard(rt, EO_QUEUE_COMM, l, rt->shards.layers[l].weights, cast->memory);
    *out = cast->memory;
    return EO_OK;
}

eo_status eo_dynamic_gather(struct eo_runtime *rt, uint32_t position)
{
    const uint32_t l = eo_dynamic_layer(rt, position);
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct dynamic_group *group = &eo_dynamic_state(rt)->groups[l];
    const void *input;
    if (group->output || group->unsharded)
        return EO_OK;
    const uint64_t bytes = layer->float8_gather ? layer->narrow_bytes
                                                : layer->layout.shard_count * eo_dtype_bytes(rt->plan->params.dtype);
    group->gather = ++eo_dynamic_state(rt)->gather_count;
    EO_TRY(make_input(rt, l, &input));
    EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COMM, bytes * rt->world->rank_count, "the output of an all-gather", &group->output));
    struct eo_timeline_entry *entry = eo_dynamic_entry(rt, EO_OP_ALL_GATHER, EO_STREAM_COMM, position, l);
    eo_dynamic_note_live(rt, entry);
    rt->stats.copied_bytes += 2 * bytes; /* the own slice */
    rt->stats.collective_count++;
    rt->stats.collective_bytes += bytes * rt->world->rank_count;
    EO_TRY(rt->world->ops->all_gather(rt->comms.gather, group->output, input, bytes, entry->name, &entry->span));
    rt->device->ops->record(rt->device, EO_QUEUE_COMM, &group->gathered);
    return EO_OK;
}

eo_status eo_dynamic_give_held(struct eo_runtime *rt)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    if (!state->held)
        return EO_OK;
    EO_TRY(eo_dynamic_order(rt, EO_QUEUE_COMM, &state->held_of->copied_out));
    eo_dynamic_give(rt, EO_QUEUE_COMM, &state->held);
    return EO_OK;
}

/* Waits for the gather, and copies its output out into one tensor a parameter. */
eo_status eo_dynamic_unshard(struct eo_runtime *rt, uint32_t position, bool backward)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const uint32_t l = eo_dynamic_layer(rt, position);
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct dynamic_group *group = &state->groups[l];
    const uint64_t size = eo_dtype_bytes(rt->plan->params.dtype);
    if (group->unsharded)
        return EO_OK;
    EO_TRY(eo_dynamic_gather(rt, position));
    struct eo_timeline_entry *entry = eo_dynamic_entry(rt, EO_OP_COPY_OUT, EO_STREAM_COMPUTE, position, l);
    EO_TRY(eo_runtime_wait(rt, &group->gathered, EO_WAIT_ALL_GATHER));
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.start_ns);
    EO_TRY(eo_dynamic_drop_casts(rt, group->gather));
    EO_TRY(eo_dynamic_give_held(rt));
    void **const first = rt->views.positions[layer->first_position].weights;
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        const uint64_t bytes = parameter->room * size;
        EO_TRY(eo_dynamic_take_tensor(rt, layer, k, size, first));
        if (!layer->float8_gather)
            eo_dynamic_copy(rt, first[k], (const char *)group->output + parameter->offset * size, bytes);
    }
    if (layer->float8_gather) {
        eo_float8_widen_layer(rt, l, group->output, first);
        count_cast(rt, layer->narrow_bytes * rt->world->rank_count + layer->layout.padded_count * size);
    }
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.end_ns);
    eo_dynamic_note_live(rt, entry);
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &group->copied_out);
    for (uint32_t p = layer->first_position + 1; layer->use_count > 1 && p < rt->plan->position_count; p++)
        if (eo_dynamic_layer(rt, p) == l)
            memcpy(rt->views.positions[p].weights, first, layer->parameter_count * sizeof(*first));
    group->unsharded = true;
    state->held = group->output;
    state->held_of = group;
    group->output = NULL;
    return backward ? eo_dynamic_give_held(rt) : EO_OK;
}

void eo_dynamic_reshard(struct eo_runtime *rt, uint32_t l)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct dynamic_group *group = &eo_dynamic_state(rt)->groups[l];
    if (group->unsharded)
        eo_dynamic_give_tensors(rt, layer, rt->views.positions[layer->first_position].weights);
    group->unsharded = false;
}
