/* SPDX-License-Identifier: MIT
 *
 * Gradients in the dynamic mode: chunked into the input of a reduction, whose output becomes the gradient shard.
 */
#include "runtime/dynamic/internal.h"

#include "base/check.h"

uint32_t eo_dynamic_gradient_queue(const struct eo_runtime *rt)
{
    return rt->plan->params.reduce_dtype == EO_DTYPE_FP32 ? eo_dynamic_state(rt)->reduce_queue : EO_QUEUE_COMPUTE;
}

/* Adds a reduction's output to the gradient shard, or makes one of it where it is not fp32. */
static eo_status add_output(struct eo_runtime *rt, struct dynamic_reduction *reduction)
{
    const uint32_t l = eo_dynamic_layer(rt, reduction->position);
    struct layer_shard *shard = &rt->shards.layers[l];
    const uint64_t count = rt->plan->layers[l].layout.shard_count;
    const bool first = !shard->gradient;
    struct eo_timeline_entry *entry = eo_dynamic_entry(rt, EO_OP_ACCUMULATE, EO_STREAM_COMPUTE, reduction->position, l);
    if (first)
        EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COMPUTE, count * sizeof(float), "a gradient shard", (void **)&shard->gradient));
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.start_ns);
    rt->device->ops->accumulate(rt->device, shard->gradient, reduction->output, rt->plan->params.reduce_dtype, first, count);
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &reduction->filled);
    EO_TRY(eo_dynamic_order(rt, eo_dynamic_state(rt)->reduce_queue, &reduction->filled));
    eo_dynamic_give(rt, eo_dynamic_state(rt)->reduce_queue, &reduction->output);
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.end_ns);
    eo_dynamic_note_live(rt, entry);
    return EO_OK;
}

/* The oldest reduction's input is dropped, its output becomes the gradient shard or is added to it. */
eo_status eo_dynamic_finish_reduction(struct eo_runtime *rt)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    struct dynamic_reduction *reduction = &state->reductions[state->reduction_first];
    struct layer_shard *shard = &rt->shards.layers[eo_dynamic_layer(rt, reduction->position)];
    EO_TRY(eo_runtime_wait(rt, &reduction->done, EO_WAIT_REDUCE_SCATTER));
    eo_dynamic_give(rt, EO_QUEUE_COMPUTE, &reduction->input);
    if (rt->params.dynamic_offload)
        EO_TRY(eo_dynamic_take_gradient(rt, reduction));
    else if (!shard->gradient && rt->plan->params.reduce_dtype == EO_DTYPE_FP32)
        shard->gradient = reduction->output;
    else
        EO_TRY(add_output(rt, reduction));
    state->reduction_first = (state->reduction_first + 1) % state->reduction_limit;
    state->reduction_count--;
    return EO_OK;
}

/* The gradients of a pass, chunked and padded into one input, which is reduced. */
eo_status eo_dynamic_reduce(struct eo_runtime *rt, uint32_t position)
{
    struct dynamic_state *state = eo_dynamic_state(rt);
    const struct plan_position *p = &rt->plan->positions[position];
    const struct plan_layer *layer = &rt->plan->layers[p->layer];
    const uint64_t count = layer->layout.shard_count, size = eo_dtype_bytes(rt->plan->params.reduce_dtype);
    while (state->reduction_count >= state->reduction_limit)
        EO_TRY(eo_dynamic_finish_reduction(rt));
    struct dynamic_reduction *reduction =
        &state->reductions[(state->reduction_first + state->reduction_count) % state->reduction_limit];
    reduction->position = position;
    struct eo_timeline_entry *entry = eo_dynamic_entry(rt, EO_OP_COPY_IN, EO_STREAM_COMPUTE, position, p->layer);
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.start_ns);
    EO_TRY(eo_dynamic_take(rt, EO_QUEUE_COMPUTE, layer->layout.padded_count * size, "the input of a reduce-scatter",
                           &reduction->input));
    char *input = reduction->input;
    void **gradients = rt->views.positions[position].gradients;
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
        if (gradients[k])
            eo_dynamic_copy(rt, input + parameter->offset * size, gradients[k], parameter->room * size);
    }
    eo_dynamic_give_tensors(rt, layer, gradients);
    for (uint32_t z = 0; z < p->zero_count; z++) {
        const struct plan_range *range = &rt->plan->zero_ranges[p->zero_begin + z];
        rt->device->ops->zero(rt->device, input + range->offset * size, range->count * size);
    }
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.end_ns);
    eo_dynamic_note_live(rt, entry);
    rt->device->ops->record(rt->device, EO_QUEUE_COMPUTE, &reduction->filled);
    EO_TRY(eo_dynamic_order(rt, state->reduce_queue, &reduction->filled));
    EO_TRY(eo_dynamic_take(rt, state->reduce_queue, count * size, "the output of a reduce-scatter", &reduction->output));
    entry = eo_dynamic_entry(rt, EO_OP_REDUCE_SCATTER, (eo_stream_id)state->reduce_queue, position, p->layer);
    eo_dynamic_note_live(rt, entry);
    rt->stats.collective_count++;
    rt->stats.collective_bytes += count * size * rt->world->rank_count;
    state->reduction_count++;
    EO_TRY(rt->world->ops->reduce_scatter(rt->comms.reduce, reduction->output, reduction->input, count,
                                          rt->plan->params.reduce_dtype, entry->name, &entry->span));
    rt->device->ops->record(rt->device, state->reduce_queue, &reduction->done);
    if (rt->params.dynamic_offload)
        eo_dynamic_send_gradient(rt, reduction);
    return EO_OK;
}
