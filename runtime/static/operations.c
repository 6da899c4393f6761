/* SPDX-License-Identifier: MIT
 *
 * The runtime's own operations of a list, kind by kind: each waits as the plan says, is issued, and records its event.
 */
#include "runtime/static/internal.h"

#include "base/check.h"

eo_status eo_static_wait(struct eo_runtime *rt, const struct eo_operation *o)
{
    const struct static_state *state = eo_static_state(rt);
    for (uint32_t s = 0; s < EO_STREAM_COUNT; s++) {
        if (o->wait[s] == EO_NONE)
            continue;
        /* A recorded step begins when all of the one before has ended; its events are not of the recording. */
        if (rt->graph.recording && o->wait_previous_run[s])
            continue;
        const struct eo_event *event = &state->events[o->wait[s]];
        if (o->stream == EO_STREAM_COMPUTE)
            EO_TRY(eo_runtime_wait(rt, event, state->wait_kinds[o->wait[s]]));
        else
            RUNTIME_TRY(rt, rt->device->ops->wait(rt->device, eo_runtime_queue(rt, o->stream), event), "step %llu",
                        (unsigned long long)rt->steps.finished + 1);
    }
    return EO_OK;
}

/* Where a reduction in place lands: this rank's part of the gradient buffer. */
static void *own_slice(const struct eo_runtime *rt, uint32_t p)
{
    const struct plan_position *position = &rt->plan->positions[p];
    const uint64_t bytes = rt->plan->layers[position->layer].layout.shard_count * eo_dtype_bytes(rt->plan->params.reduce_dtype);
    return (char *)eo_static_state(rt)->rows[position->buffer_row] + bytes * rt->shards.rank;
}

static eo_status gather_position(struct eo_runtime *rt, uint32_t p, struct eo_timeline_entry *entry)
{
    void *const *rows = eo_static_state(rt)->rows;
    const struct eo_plan *plan = rt->plan;
    const struct plan_layer *layer = &plan->layers[plan->positions[p].layer];
    const uint64_t bytes =
        layer->float8_gather ? layer->narrow_bytes : layer->layout.shard_count * eo_dtype_bytes(plan->params.dtype);
    rt->stats.collective_bytes += bytes * plan->params.shard_group;
    return rt->world->ops->all_gather(rt->comms.gather, rows[plan->positions[p].narrow_row],
                                      rows[layer->float8_gather ? layer->narrow_row : layer->shard_row], bytes, entry->name,
                                      &entry->span);
}

static eo_status reduce_position(struct eo_runtime *rt, const struct eo_operation *o, uint32_t p,
                                 struct eo_timeline_entry *entry)
{
    void *const *rows = eo_static_state(rt)->rows;
    const struct eo_plan *plan = rt->plan;
    const struct plan_layer *layer = &plan->layers[plan->positions[p].layer];
    const uint64_t count = layer->layout.shard_count;
    const eo_dtype dtype = o->whole ? EO_DTYPE_FP32 : plan->params.reduce_dtype;
    const void *send = rows[o->whole ? layer->sum_row : plan->positions[p].buffer_row];
    void *recv = o->in_place ? own_slice(rt, p) : rows[layer->gradient_row];
    rt->stats.collective_bytes += count * eo_dtype_bytes(dtype) * plan->params.shard_group;
    return rt->world->ops->reduce_scatter(rt->comms.reduce, recv, send, count, dtype, entry->name, &entry->span);
}

static eo_status gather_frozen_part(struct eo_runtime *rt, uint32_t p, struct eo_timeline_entry *entry)
{
    const struct eo_plan *plan = rt->plan;
    const struct plan_layer *part = &plan->layers[plan->layers[plan->positions[p].layer].frozen_part];
    const uint64_t bytes =
        part->float8_gather ? part->narrow_bytes : part->layout.shard_count * eo_dtype_bytes(plan->params.dtype);
    rt->stats.collective_count++;
    rt->stats.collective_bytes += bytes * plan->params.shard_group;
    return rt->world->ops->all_gather(rt->comms.gather, eo_static_state(rt)->rows[plan->positions[p].frozen_narrow_row],
                                      eo_static_state(rt)->rows[part->float8_gather ? part->narrow_row : part->shard_row], bytes,
                                      entry->name, &entry->span);
}

/* The positions of a gather or reduction, as one operation where the transport can. */
static eo_status exchange(struct eo_runtime *rt, const struct eo_operation *o, struct eo_timeline_entry *entry)
{
    const bool gathers = o->kind == EO_OP_ALL_GATHER;
    const uint32_t count = (o->more + 1u) * (1u + o->with_frozen);
    if (count > 1 && rt->world->ops->join)
        rt->world->ops->join(gathers ? rt->comms.gather : rt->comms.reduce, count);
    for (uint32_t part = 0; part <= o->more; part++) {
        const uint32_t p = eo_operation_position(o, part);
        EO_TRY(gathers ? gather_position(rt, p, entry) : reduce_position(rt, o, p, entry));
        if (o->with_frozen)
            EO_TRY(gather_frozen_part(rt, p, entry));
    }
    return EO_OK;
}

/* To the owners, and back: a sum of which each element has one that is not 0. */
static eo_status exchange_matrices(struct eo_runtime *rt, const struct eo_operation *o, struct eo_timeline_entry *entry)
{
    const struct layer_shard *shard = &rt->shards.layers[o->layer];
    const uint64_t count = rt->plan->layers[o->layer].layout.shard_count;
    rt->stats.collective_bytes += count * sizeof(float) * rt->plan->params.shard_group;
    return o->kind == EO_OP_MATRIX_GATHER
               ? rt->world->ops->all_gather(rt->comms.gather, shard->matrices, shard->direction, count * sizeof(float),
                                            entry->name, &entry->span)
               : rt->world->ops->reduce_scatter(rt->comms.reduce, shard->orthogonal, shard->matrices, count, EO_DTYPE_FP32,
                                                entry->name, &entry->span);
}

eo_status eo_static_issue_collective(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index)
{
    struct static_state *state = eo_static_state(rt);
    const struct eo_plan *plan = rt->plan;
    const struct plan_layer *layer = o->layer == EO_NONE ? NULL : &plan->layers[o->layer];
    const struct eo_comm_ops *comm = rt->world->ops;
    EO_TRY(eo_static_wait(rt, o));
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, o->kind, o->stream, o->position, o->layer, index);
    eo_status status;
    eo_runtime_range_begin(rt, entry->name);
    rt->stats.collective_count++;
    if (o->fence) {
        status = comm->all_gather(rt->comms.world, state->rows[plan->fenced_row], state->rows[plan->fence_row],
                                  plan->rows[plan->fence_row].bytes, entry->name, &entry->span);
    } else if (o->kind == EO_OP_NORM_GATHER) {
        status = comm->all_gather(rt->comms.world, rt->update.norm_gathered, rt->update.norm_local, eo_plan_norm_bytes(plan),
                                  rt->graph.recording ? entry->name : eo_norms_label(rt), &entry->span);
    } else if (o->kind == EO_OP_ALL_REDUCE) {
        rt->stats.collective_bytes += layer->layout.shard_count * sizeof(float);
        status = comm->all_reduce(rt->comms.replica, state->rows[layer->gradient_row], layer->layout.shard_count, EO_DTYPE_FP32,
                                  entry->name, &entry->span);
    } else if (o->kind == EO_OP_MATRIX_GATHER || o->kind == EO_OP_MATRIX_SCATTER) {
        status = exchange_matrices(rt, o, entry);
    } else {
        status = exchange(rt, o, entry);
    }
    eo_runtime_range_end(rt);
    RUNTIME_TRY(rt, status, "%s", entry->name);
    if (o->record)
        rt->device->ops->record(rt->device, o->stream, &state->events[o->id]);
    return EO_OK;
}

eo_status eo_static_issue_copy(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index)
{
    EO_TRY(eo_static_wait(rt, o));
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, o->kind, o->stream, o->position, o->layer, index);
    eo_offload_issue(rt, o, &entry->span);
    if (o->record)
        rt->device->ops->record(rt->device, eo_runtime_queue(rt, o->stream), &eo_static_state(rt)->events[o->id]);
    return EO_OK;
}

eo_status eo_static_issue_norm(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index)
{
    EO_TRY(eo_static_wait(rt, o));
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, o->kind, o->stream, o->position, o->layer, index);
    eo_runtime_range_begin(rt, entry->name);
    eo_norms_of_layer(rt, o->layer, o->stream, &entry->span);
    eo_runtime_range_end(rt);
    if (o->record)
        rt->device->ops->record(rt->device, o->stream, &eo_static_state(rt)->events[o->id]);
    return EO_OK;
}

static void accumulate(struct eo_runtime *rt, const struct eo_operation *o)
{
    const struct eo_device_ops *ops = rt->device->ops;
    const struct static_state *state = eo_static_state(rt);
    const struct layer_shard *shard = &rt->shards.layers[o->layer];
    const struct plan_layer *layer = &rt->plan->layers[o->layer];
    const eo_dtype dtype = rt->plan->params.reduce_dtype;
    if (o->whole)
        ops->accumulate(rt->device, state->rows[layer->sum_row], state->rows[rt->plan->positions[o->position].buffer_row],
                        dtype, o->first_gradient, layer->layout.padded_count);
    else if (o->fused_norm)
        ops->accumulate_sum_squares(rt->device, shard->norm, shard->gradient, own_slice(rt, o->position), dtype,
                                    o->first_gradient, layer->layout.shard_count);
    else
        ops->accumulate(rt->device, shard->gradient, own_slice(rt, o->position), dtype, o->first_gradient, layer->layout.shard_count);
    if (o->fused_norm)
        eo_norms_of_runs(rt, o->layer, o->stream);
}

eo_status eo_static_narrow(struct eo_runtime *rt, uint32_t l)
{
    eo_float8_narrow_shard(rt, l, rt->shards.layers[l].high, rt->shards.layers[l].narrow);
    return EO_OK;
}

eo_status eo_static_run_own(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index)
{
    struct static_state *state = eo_static_state(rt);
    const struct eo_device_ops *ops = rt->device->ops;
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, o->kind, o->stream, o->position, o->layer, index);
    EO_TRY(eo_static_wait(rt, o));
    ops->stamp(rt->device, o->stream, &entry->span.start_ns);
    eo_runtime_range_begin(rt, entry->name);
    if (o->kind == EO_OP_ACCUMULATE) {
        accumulate(rt, o);
    } else if (o->kind == EO_OP_NORM_PARTIAL) {
        eo_norms_of_layer(rt, o->layer, o->stream, NULL);
    } else if (o->kind == EO_OP_NORM_LOCAL) {
        eo_norms_local(rt);
    } else if (o->kind == EO_OP_NORM_SUM) {
        EO_TRY(eo_norms_sum(rt));
    } else if (o->kind == EO_OP_NARROW) {
        EO_TRY(eo_static_narrow(rt, o->layer));
    } else if (o->kind == EO_OP_WIDEN && rt->plan->layers[o->layer].float8_frozen) {
        const struct plan_position *position = &rt->plan->positions[o->position];
        const bool is_part = o->layer != position->layer;
        eo_float8_widen_frozen(rt, o->layer, state->rows[is_part ? position->frozen_narrow_row : position->narrow_row],
                               state->rows[is_part ? position->frozen_gather_row : position->gather_row]);
    } else if (o->kind == EO_OP_WIDEN) {
        eo_float8_widen_layer(rt, o->layer, state->rows[rt->plan->positions[o->position].narrow_row],
                              rt->views.positions[o->position].weights);
    } else if (o->kind == EO_OP_DIRECTION) {
        eo_muon_direction(rt, o->layer);
    } else if (o->kind == EO_OP_ORTHOGONALIZE) {
        EO_TRY(eo_muon_orthogonalize(rt, o->layer));
    } else {
        eo_update_layer(rt, o->layer);
    }
    eo_runtime_range_end(rt);
    ops->stamp(rt->device, o->stream, &entry->span.end_ns); /* before who waits for it can begin */
    eo_static_poison_dead_rows(rt, index);
    if (o->record)
        ops->record(rt->device, o->stream, &state->events[o->id]);
    return EO_OK;
}
