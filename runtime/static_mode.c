/* SPDX-License-Identifier: MIT
 *
 * The static mode: walks the plan's list in the plan's memory. It decides nothing: which collective stands where, what
 * waits for what and where a buffer lies has all been said by the plan.
 *
 *     list   AG  F  AG  F  AG  F ...          the cursor stands on the next operation
 *            `-- issued in the *_end before   passes: the trainer's; the runtime's own are run in the next *_begin
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/plan/list/dead_rows.h"
#include "runtime/internal.h"

struct static_state {
    struct eo_arena arena;
    void **rows;             /* by row of the plan */
    struct eo_event *events; /* by operation id: its latest record */
    eo_wait *wait_kinds;     /* by operation id: what waiting for it is booked under */
    eo_list list;
    uint32_t cursor;
    struct dead_rows dead[EO_LIST_COUNT];
};

static struct static_state *state_of(const struct eo_runtime *rt)
{
    return rt->mode_state;
}

static const struct eo_operation_list *current_list(const struct eo_runtime *rt)
{
    return &rt->plan->schedule.lists[state_of(rt)->list];
}

/* -- start ---------------------------------------------------------------------------------------------------------*/

/* As the plan has it: an offloaded gradient's pointer lies further in. */
static char *row_begin(const struct eo_runtime *rt, uint32_t row)
{
    const struct plan_row *r = &rt->plan->rows[row];
    return (char *)state_of(rt)->arena.base[r->space] + r->offset;
}

/* To the end of the row's room: lengths of the device's fill are of four bytes. */
static void poison(struct eo_runtime *rt, uint32_t row)
{
    rt->device->ops->fill(rt->device, row_begin(rt, row), EO_POISON, eo_align_up(rt->plan->rows[row].bytes, 4));
}

/* Before the operation's event: who waits for that may write there. */
static void poison_dead_rows(struct eo_runtime *rt, uint32_t operation)
{
    const struct static_state *state = state_of(rt);
    const struct dead_rows *dead = &state->dead[state->list];
    const struct eo_operation *o = &current_list(rt)->operations[operation];
    if (!rt->params.debug)
        return;
    for (uint32_t a = 0; a < o->access_count && dead->rows[dead->begin[operation] + a] != EO_NONE; a++) {
        poison(rt, dead->rows[dead->begin[operation] + a]);
    }
}

static void set_pointers(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    struct static_state *state = state_of(rt);
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const struct plan_layer *layer = &plan->layers[l];
        if (layer->float8_gather)
            rt->shards.layers[l].narrow = state->rows[layer->narrow_row];
        if (rt->shards.split)
            rt->shards.layers[l].high = state->rows[layer->shard_row];
        else
            rt->shards.layers[l].weights = state->rows[layer->shard_row];
        if (layer->frozen)
            continue;
        if (rt->shards.split && layer->master_row != EO_NONE)
            rt->shards.layers[l].low = state->rows[layer->master_row];
        rt->shards.layers[l].gradient = state->rows[layer->gradient_row];
        rt->shards.layers[l].norm = state->rows[layer->norm_row];
        if (layer->has_matrices) {
            rt->shards.layers[l].direction = state->rows[layer->direction_row];
            rt->shards.layers[l].matrices = state->rows[layer->matrices_row];
        }
        for (uint32_t k = 0; layer->disk_row == EO_NONE && k < plan->state_count; k++)
            rt->shards.layers[l].state[k] = state->rows[layer->state_rows[k]];
    }
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct plan_position *position = &plan->positions[p];
        const uint32_t l = position->layer, frozen_part = plan->layers[l].frozen_part;
        eo_views_set(rt->views.positions[p].weights, plan, l, plan->params.dtype, state->rows[position->gather_row]);
        if (frozen_part != EO_NONE)
            eo_views_set(rt->views.positions[p].weights, plan, frozen_part, plan->params.dtype,
                         state->rows[position->frozen_gather_row]);
        if (position->buffer_row != EO_NONE)
            eo_views_set(rt->views.positions[p].gradients, plan, l, plan->params.reduce_dtype, state->rows[position->buffer_row]);
    }
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        rt->views.buffers[b] = plan->buffers[b].shared
                                   ? (void *)eo_align_up((uintptr_t)state->rows[plan->buffers[b].row], EO_DISK_ALIGN)
                                   : state->rows[plan->buffers[b].row];
    rt->update.norm_local = state->rows[plan->norm_local_row];
    rt->update.norm_gathered = state->rows[plan->norm_gathered_row];
    rt->update.step.norm = state->rows[plan->norm_result_row];
    rt->update.step.scalars = state->rows[plan->scalars_row];
    rt->update.values = state->rows[plan->values_row];
    if (plan->orthogonal_row != EO_NONE)
        rt->update.orthogonal = state->rows[plan->orthogonal_row];
    eo_host_set(&rt->host, plan, state->rows[plan->host_steps_row], state->rows[plan->staging_row]);
}

static void set_wait_kinds(struct eo_runtime *rt)
{
    for (int list = 0; list < EO_LIST_COUNT; list++) {
        for (uint32_t i = 0; i < rt->plan->schedule.lists[list].count; i++) {
            const struct eo_operation *o = &rt->plan->schedule.lists[list].operations[i];
            state_of(rt)->wait_kinds[o->id] = o->kind == EO_OP_ALL_GATHER || o->kind == EO_OP_MATRIX_GATHER ? EO_WAIT_ALL_GATHER
                                              : o->kind == EO_OP_NORM_GATHER || o->kind == EO_OP_NORM_PARTIAL ? EO_WAIT_NORM
                                              : o->stream == EO_STREAM_COPY  ? EO_WAIT_FETCH
                                                                             : EO_WAIT_REDUCE_SCATTER;
        }
    }
}

static const enum eo_memory_kind memory_kinds[EO_SPACE_DISK] = {
    [EO_SPACE_GATHER] = EO_MEMORY_KIND_GATHER,
    [EO_SPACE_GRADIENT] = EO_MEMORY_KIND_GRADIENT,
    [EO_SPACE_PRIVATE] = EO_MEMORY_KIND_PRIVATE,
    [EO_SPACE_HOST] = EO_MEMORY_KIND_HOST,
};

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* Asked before anything is taken, so that the answer can say what the memory is needed for. */
static eo_status check_memory(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    char others[80] = "";
    uint64_t needed_bytes = 0;
    for (int s = 0; s < EO_SPACE_DISK; s++)
        if (s != EO_SPACE_HOST || rt->device->ops->is_host_memory)
            needed_bytes += plan->space_bytes[s];
    const uint64_t for_all = rt->device->ops->is_host_memory ? rt->memory.free_bytes : rt->memory.total_bytes;
    if (needed_bytes <= for_all / rt->memory.ranks && needed_bytes <= rt->memory.free_bytes)
        return EO_OK;
    if (rt->memory.ranks > 1)
        snprintf(others, sizeof(others), " by each of its %u ranks, %.1f MiB in all", rt->memory.ranks,
                 mib(needed_bytes) * rt->memory.ranks);
    eo_log_write(&rt->log, EO_LOG_ERROR,
                 "rank %u: out of memory on device %s: %.1f MiB needed%s, %.1f MiB available of %.1f MiB; use more %s, a "
                 "smaller batch or more recompute",
                 rt->world->rank, rt->device->ops->name, mib(needed_bytes), others, mib(rt->memory.free_bytes),
                 mib(rt->memory.total_bytes), rt->memory.ranks > 1 ? "machines" : "ranks");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        if (plan->category_bytes_at_peak[c])
            eo_log_write(&rt->log, EO_LOG_ERROR, "rank %u:   %-18s %12.1f MiB at the peak", rt->world->rank,
                         eo_category_name((eo_category)c), mib(plan->category_bytes_at_peak[c]));
    return EO_ERR_NO_MEMORY;
}

/* Where gathers and reductions have a reservation each, each communicator is told of its own. */
static eo_status register_memory(struct eo_runtime *rt)
{
    const struct eo_arena *arena = &state_of(rt)->arena;
    const int reduced = rt->plan->params.separate_reservations ? EO_SPACE_GRADIENT : EO_SPACE_GATHER;
    const uint64_t begin_ns = eo_now_ns();
    if (!rt->world->ops->register_memory)
        return EO_OK;
    if (arena->bytes[EO_SPACE_GATHER])
        EO_TRY(rt->world->ops->register_memory(rt->comms.gather, arena->base[EO_SPACE_GATHER], arena->bytes[EO_SPACE_GATHER]));
    if (arena->bytes[reduced])
        EO_TRY(rt->world->ops->register_memory(rt->comms.reduce, arena->base[reduced], arena->bytes[reduced]));
    if (arena->bytes[reduced] && rt->comms.replica && rt->comms.replica != rt->comms.reduce)
        EO_TRY(rt->world->ops->register_memory(rt->comms.replica, arena->base[reduced], arena->bytes[reduced]));
    eo_log_write(&rt->log, EO_LOG_INFO, "rank %u: communication memory registered in %.1f ms", rt->world->rank,
                 (double)(eo_now_ns() - begin_ns) / 1e6);
    return EO_OK;
}

static eo_status static_init(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    struct static_state *state = calloc(1, sizeof(*state));
    rt->mode_state = state;
    if (!state)
        return EO_ERR_NO_MEMORY;
    EO_TRY(check_memory(rt));
    EO_TRY(eo_arena_init(&state->arena, rt->device, plan->space_bytes, memory_kinds, EO_SPACE_DISK));
    state->rows = calloc(plan->row_count, sizeof(*state->rows));
    state->events = calloc(plan->schedule.id_count, sizeof(*state->events));
    state->wait_kinds = calloc(plan->schedule.id_count, sizeof(*state->wait_kinds));
    if (!state->rows || !state->events || !state->wait_kinds)
        return EO_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < plan->disk_row_begin; r++)
        state->rows[r] = eo_arena_take(&state->arena, plan->rows[r].name, plan->rows[r].space, plan->rows[r].offset,
                                       plan->rows[r].bytes);
    for (uint32_t l = 0; l < plan->layer_count; l++) { /* written to disk from there */
        void **row = plan->layers[l].disk_gradient_row == EO_NONE ? NULL : &state->rows[plan->layers[l].gradient_row];
        if (row)
            *row = (void *)eo_align_up((uintptr_t)*row, EO_STORAGE_ALIGN);
    }
    eo_arena_seal(&state->arena);
    set_pointers(rt);
    EO_TRY(eo_offload_init(rt, state->rows));
    set_wait_kinds(rt);
    EO_TRY(register_memory(rt));
    if (rt->params.debug) {
        for (int list = 0; list < EO_LIST_COUNT; list++)
            EO_TRY(eo_dead_rows_find(plan, (eo_list)list, &state->dead[list]));
        for (uint32_t r = 0; r < plan->row_count; r++)
            if (!plan->rows[r].always_live)
                poison(rt, r);
    }
    rt->stats.arena_bytes = rt->stats.live_peak_bytes = rt->stats.reserved_peak_bytes = state->arena.reserved_bytes;
    return EO_OK;
}

static void static_fini(struct eo_runtime *rt)
{
    struct static_state *state = state_of(rt);
    if (!state)
        return;
    eo_offload_fini(rt);
    eo_arena_fini(&state->arena);
    free(state->rows);
    free(state->events);
    free(state->wait_kinds);
    for (int list = 0; list < EO_LIST_COUNT; list++)
        eo_dead_rows_free(&state->dead[list]);
    free(state);
    rt->mode_state = NULL;
}

/* -- operations ------------------------------------------------------------------------------------------------------*/

static eo_status wait_for(struct eo_runtime *rt, const struct eo_operation *o)
{
    const struct static_state *state = state_of(rt);
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
            EO_TRY(rt->device->ops->wait(rt->device, o->stream, event));
    }
    return EO_OK;
}

/* Where a reduction in place lands: this rank's part of the gradient buffer. */
static void *own_slice(const struct eo_runtime *rt, uint32_t p)
{
    const struct plan_position *position = &rt->plan->positions[p];
    const uint64_t bytes = rt->plan->layers[position->layer].layout.shard_count * eo_dtype_bytes(rt->plan->params.reduce_dtype);
    return (char *)state_of(rt)->rows[position->buffer_row] + bytes * rt->shards.rank;
}

static eo_status gather_position(struct eo_runtime *rt, uint32_t p, struct eo_timeline_entry *entry)
{
    void *const *rows = state_of(rt)->rows;
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
    void *const *rows = state_of(rt)->rows;
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
    const uint64_t bytes = part->layout.shard_count * eo_dtype_bytes(plan->params.dtype);
    rt->stats.collective_count++;
    rt->stats.collective_bytes += bytes * plan->params.shard_group;
    return rt->world->ops->all_gather(rt->comms.gather, state_of(rt)->rows[plan->positions[p].frozen_gather_row],
                                      state_of(rt)->rows[part->shard_row], bytes, entry->name, &entry->span);
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
               : rt->world->ops->reduce_scatter(rt->comms.gather, shard->direction, shard->matrices, count, EO_DTYPE_FP32,
                                                entry->name, &entry->span);
}

static eo_status issue_collective(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index)
{
    struct static_state *state = state_of(rt);
    const struct eo_plan *plan = rt->plan;
    const struct plan_layer *layer = o->layer == EO_NONE ? NULL : &plan->layers[o->layer];
    const struct eo_comm_ops *comm = rt->world->ops;
    EO_TRY(wait_for(rt, o));
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, o->kind, o->stream, o->position, o->layer, index);
    eo_status status;
    eo_runtime_range_begin(rt, entry->name);
    rt->stats.collective_count++;
    if (o->fence) {
        status = comm->all_gather(rt->comms.world, state->rows[plan->fenced_row], state->rows[plan->fence_row],
                                  plan->rows[plan->fence_row].bytes, entry->name, &entry->span);
    } else if (o->kind == EO_OP_NORM_GATHER) {
        status = comm->all_gather(rt->comms.world, rt->update.norm_gathered, rt->update.norm_local,
                                  EO_NORM_VALUES * sizeof(double), entry->name, &entry->span);
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

static eo_status issue_copy(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index)
{
    EO_TRY(wait_for(rt, o));
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, o->kind, o->stream, o->position, o->layer, index);
    eo_offload_issue(rt, o, &entry->span);
    if (o->record)
        rt->device->ops->record(rt->device, o->stream, &state_of(rt)->events[o->id]);
    return EO_OK;
}

static void norm_partial(struct eo_runtime *rt, const struct eo_operation *o, struct eo_span *span)
{
    const struct layer_shard *shard = &rt->shards.layers[o->layer];
    rt->device->ops->sum_squares(rt->device, o->stream, shard->norm, shard->gradient,
                                 rt->plan->layers[o->layer].layout.shard_count, span);
}

/* Beside the passes. */
static eo_status issue_norm_partial(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index)
{
    EO_TRY(wait_for(rt, o));
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, o->kind, o->stream, o->position, o->layer, index);
    eo_runtime_range_begin(rt, entry->name);
    norm_partial(rt, o, &entry->span);
    eo_runtime_range_end(rt);
    if (o->record)
        rt->device->ops->record(rt->device, o->stream, &state_of(rt)->events[o->id]);
    return EO_OK;
}

static void accumulate(struct eo_runtime *rt, const struct eo_operation *o)
{
    const struct eo_device_ops *ops = rt->device->ops;
    const struct static_state *state = state_of(rt);
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
}

static eo_status static_narrow(struct eo_runtime *rt, uint32_t l)
{
    eo_float8_narrow_shard(rt, l, rt->shards.layers[l].high, rt->shards.layers[l].narrow);
    return EO_OK;
}

static eo_status run_own(struct eo_runtime *rt, const struct eo_operation *o, uint32_t index)
{
    struct static_state *state = state_of(rt);
    const struct eo_device_ops *ops = rt->device->ops;
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, o->kind, o->stream, o->position, o->layer, index);
    EO_TRY(wait_for(rt, o));
    ops->stamp(rt->device, o->stream, &entry->span.start_ns);
    eo_runtime_range_begin(rt, entry->name);
    if (o->kind == EO_OP_ACCUMULATE) {
        accumulate(rt, o);
    } else if (o->kind == EO_OP_NORM_PARTIAL) {
        norm_partial(rt, o, NULL);
    } else if (o->kind == EO_OP_NORM_LOCAL) {
        eo_update_norm_local(rt);
    } else if (o->kind == EO_OP_NORM_SUM) {
        EO_TRY(eo_update_norm_sum(rt));
    } else if (o->kind == EO_OP_NARROW) {
        EO_TRY(static_narrow(rt, o->layer));
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
    poison_dead_rows(rt, index);
    if (o->record)
        ops->record(rt->device, o->stream, &state->events[o->id]);
    return EO_OK;
}

static bool is_pass(eo_operation_kind kind)
{
    return kind == EO_OP_FORWARD || kind == EO_OP_RECOMPUTE || kind == EO_OP_BACKWARD;
}

/* Runs everything up to the trainer's next pass (`stop_at_own`: up to the runtime's own next operation), or the end. */
static eo_status advance(struct eo_runtime *rt, bool stop_at_own)
{
    struct static_state *state = state_of(rt);
    const struct eo_operation_list *list = current_list(rt);
    for (; state->cursor < list->count; state->cursor++) {
        const struct eo_operation *o = &list->operations[state->cursor];
        if (o->stream == EO_STREAM_COPY)
            EO_TRY(issue_copy(rt, o, state->cursor));
        else if (o->stream != EO_STREAM_COMPUTE && o->kind == EO_OP_NORM_PARTIAL)
            EO_TRY(issue_norm_partial(rt, o, state->cursor));
        else if (o->stream != EO_STREAM_COMPUTE)
            EO_TRY(issue_collective(rt, o, state->cursor));
        else if (stop_at_own || is_pass(o->kind))
            return EO_OK;
        else
            EO_TRY(run_own(rt, o, state->cursor));
    }
    return EO_OK;
}

static eo_status begin_pass(struct eo_runtime *rt, eo_operation_kind kind, uint32_t position)
{
    struct static_state *state = state_of(rt);
    EO_TRY(advance(rt, false));
    EO_ASSERT(state->cursor < current_list(rt)->count);
    const struct eo_operation *o = &current_list(rt)->operations[state->cursor];
    EO_ASSERT(o->kind == kind && o->position == position);
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, kind, o->stream, position, o->layer, state->cursor);
    EO_TRY(wait_for(rt, o));
    eo_runtime_open_pass(rt, entry);
    return EO_OK;
}

/* Only enqueues: what waits is left to the next begin. */
static eo_status end_pass(struct eo_runtime *rt, uint32_t position)
{
    struct static_state *state = state_of(rt);
    const struct eo_operation *o = &current_list(rt)->operations[state->cursor];
    eo_runtime_close_pass(rt);
    poison_dead_rows(rt, state->cursor);
    if (o->record)
        rt->device->ops->record(rt->device, o->stream, &state->events[o->id]);
    state->cursor++;
    return advance(rt, true);
}

/* -- the mode --------------------------------------------------------------------------------------------------------*/

static eo_status static_step_begin(struct eo_runtime *rt)
{
    EO_TRY(eo_offload_settle(rt));
    state_of(rt)->list = rt->steps.restart && !rt->graph.recording ? EO_LIST_FIRST : EO_LIST_STEADY;
    state_of(rt)->cursor = 0;
    rt->steps.restart = false;
    return advance(rt, true);
}

static eo_status static_forward_begin(struct eo_runtime *rt, uint32_t position)
{
    return begin_pass(rt, EO_OP_FORWARD, position);
}

static eo_status static_backward_begin(struct eo_runtime *rt, uint32_t position)
{
    return begin_pass(rt, EO_OP_RECOMPUTE, position);
}

static eo_status static_gradients_begin(struct eo_runtime *rt, uint32_t position)
{
    const struct plan_position *p = &rt->plan->positions[position];
    const uint64_t bytes = eo_dtype_bytes(rt->plan->params.reduce_dtype);
    EO_TRY(end_pass(rt, position));
    EO_TRY(begin_pass(rt, EO_OP_BACKWARD, position));
    if (rt->params.zero_gradients && p->buffer_row != EO_NONE) {
        rt->device->ops->zero(rt->device, state_of(rt)->rows[p->buffer_row],
                              rt->plan->layers[p->layer].layout.padded_count * bytes);
        return EO_OK;
    }
    /* Padding, and parameters that get no gradient here: another layer's bytes must not be reduced into them. */
    for (uint32_t z = 0; p->buffer_row != EO_NONE && z < p->zero_count; z++) {
        const struct plan_range *range = &rt->plan->zero_ranges[p->zero_begin + z];
        rt->device->ops->zero(rt->device, (char *)state_of(rt)->rows[p->buffer_row] + range->offset * bytes,
                              range->count * bytes);
    }
    return EO_OK;
}

static eo_status static_step_end(struct eo_runtime *rt)
{
    EO_TRY(advance(rt, false));
    EO_ASSERT(state_of(rt)->cursor == current_list(rt)->count);
    return EO_OK;
}

static eo_status static_evaluation_begin(struct eo_runtime *rt)
{
    state_of(rt)->list = EO_LIST_FORWARD;
    state_of(rt)->cursor = 0;
    return advance(rt, true);
}

/* The same sizes as in the steps, at the same addresses: what a library sets up when it meets a size, it does here. */
static eo_status static_warm_up(struct eo_runtime *rt)
{
    const struct eo_operation_list *list = &rt->plan->schedule.lists[EO_LIST_FIRST];
    for (uint32_t i = 0; i < list->count; i++) {
        const struct eo_operation *o = &list->operations[i];
        bool met = o->stream == EO_STREAM_COMPUTE || o->stream == EO_STREAM_COPY || o->kind == EO_OP_NORM_PARTIAL ||
                   (o->kind == EO_OP_NORM_GATHER && !o->fence); /* the norm's compared the plans */
        for (uint32_t k = 0; k < i && !met; k++)
            met = list->operations[k].kind == o->kind && list->operations[k].position == o->position &&
                  list->operations[k].more == o->more && list->operations[k].in_place == o->in_place &&
                  list->operations[k].whole == o->whole;
        if (met)
            continue;
        struct eo_operation alone = *o;
        alone.record = false;
        for (int s = 0; s < EO_STREAM_COUNT; s++)
            alone.wait[s] = EO_NONE;
        EO_TRY(issue_collective(rt, &alone, i));
        EO_TRY(eo_host_drain(rt)); /* rows share addresses, and failures are told where they happen */
    }
    rt->stats.collective_count = rt->stats.collective_bytes = rt->timeline.ring.count = 0;
    return EO_OK;
}

/* Where a rank has all of a layer there is nothing to gather, of either half. */
static eo_status static_layer_gather(struct eo_runtime *rt, uint32_t l, enum weight_half half, void **weights)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct static_state *state = state_of(rt);
    if (half == HALF_LOW)
        EO_TRY(eo_offload_take(rt, l, false));
    void *shard = half == HALF_LOW ? (void *)rt->shards.layers[l].low : state->rows[layer->shard_row];
    *weights = shard;
    if (rt->plan->params.shard_group == 1)
        return EO_OK;
    const struct plan_position *first = &rt->plan->positions[layer->first_position];
    *weights = state->rows[layer->part_of == EO_NONE ? first->gather_row : first->frozen_gather_row];
    return eo_runtime_gather(rt, rt->comms.gather, *weights, shard,
                             layer->layout.shard_count * eo_dtype_bytes(rt->plan->params.dtype), "weights outside the schedule",
                             EO_WAIT_ALL_GATHER);
}

struct byte_range {
    uint64_t begin, end;
};

static int by_begin(const void *a, const void *b)
{
    const struct byte_range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The first gap of so many bytes among the rows that live between steps, or that layer_gather writes. */
static void *find_gap(const struct eo_runtime *rt, int space, const bool *kept, struct byte_range *ranges, uint64_t bytes)
{
    const struct eo_plan *plan = rt->plan;
    uint64_t count = 0, free_from = 0;
    char *base = state_of(rt)->arena.base[space];
    for (uint32_t r = 0; r < plan->row_count; r++) {
        const struct plan_row *row = &plan->rows[r];
        if (row->space == (eo_space)space && kept[r])
            ranges[count++] = (struct byte_range){row->offset, row->offset + row->bytes};
    }
    ranges[count++] = (struct byte_range){plan->space_bytes[space], plan->space_bytes[space]};
    qsort(ranges, count, sizeof(*ranges), by_begin);
    for (uint64_t i = 0; base && i < count; i++) {
        if (ranges[i].begin >= free_from && ranges[i].begin - free_from >= bytes)
            return base + free_from;
        free_from = eo_max_u64(free_from, eo_align_up(ranges[i].end, 64));
    }
    return NULL;
}

/* What lives in passes alone is free between steps. Not in debug mode, where it is full of poison. */
static void *static_idle_memory(struct eo_runtime *rt, uint64_t bytes)
{
    const struct eo_plan *plan = rt->plan;
    if (!rt->device->ops->is_host_memory || rt->params.debug)
        return NULL;
    bool *kept = calloc(plan->row_count, sizeof(*kept));
    struct byte_range *ranges = calloc((uint64_t)plan->row_count + 1, sizeof(*ranges));
    void *found = NULL;
    if (kept && ranges) {
        for (uint32_t r = 0; r < plan->row_count; r++)
            kept[r] = plan->rows[r].always_live;
        for (uint32_t p = 0; p < plan->position_count; p++)
            kept[plan->positions[p].gather_row] = true;
        for (uint32_t p = 0; p < plan->position_count; p++)
            if (plan->positions[p].frozen_gather_row != EO_NONE)
                kept[plan->positions[p].frozen_gather_row] = true;
        for (int space = 0; space < EO_SPACE_HOST && !found; space++)
            found = find_gap(rt, space, kept, ranges, bytes);
    }
    free(kept);
    free(ranges);
    return found;
}

const struct mode_ops eo_static_mode = {
    .init = static_init,
    .fini = static_fini,
    .step_begin = static_step_begin,
    .forward_begin = static_forward_begin,
    .forward_end = end_pass,
    .backward_begin = static_backward_begin,
    .gradients_begin = static_gradients_begin,
    .backward_end = end_pass,
    .step_end = static_step_end,
    .narrow = static_narrow,
    .evaluation_begin = static_evaluation_begin,
    .evaluation_end = static_step_end,
    .warm_up = static_warm_up,
    .layer_gather = static_layer_gather,
    .idle_memory = static_idle_memory,
};
