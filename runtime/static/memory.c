/* SPDX-License-Identifier: MIT
 *
 * The plan's memory: taken at create, its rows as pointers of the runtime, and in debug mode poisoned where they are dead.
 */
#include "runtime/static/internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/check.h"

/* As the plan has it: an offloaded gradient's pointer lies further in. */
static char *row_begin(const struct eo_runtime *rt, uint32_t row)
{
    const struct plan_row *r = &rt->plan->rows[row];
    return (char *)eo_static_state(rt)->arena.base[r->space] + r->offset;
}

/* To the end of the row's room: lengths of the device's fill are of four bytes. */
static void poison(struct eo_runtime *rt, uint32_t row)
{
    rt->device->ops->fill(rt->device, row_begin(rt, row), EO_POISON, eo_align_up(rt->plan->rows[row].bytes, 4));
}

void eo_static_poison_dead_rows(struct eo_runtime *rt, uint32_t operation)
{
    const struct static_state *state = eo_static_state(rt);
    const struct dead_rows *dead = &state->dead[state->list];
    const struct eo_operation *o = &eo_static_list(rt)->operations[operation];
    if (!rt->params.debug)
        return;
    for (uint32_t a = 0; a < o->access_count && dead->rows[dead->begin[operation] + a] != EO_NONE; a++) {
        poison(rt, dead->rows[dead->begin[operation] + a]);
    }
}

static void set_pointers(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    struct static_state *state = eo_static_state(rt);
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const struct plan_layer *layer = &plan->layers[l];
        if (layer->float8_gather)
            rt->shards.layers[l].narrow = state->rows[layer->narrow_row];
        if (layer->float8_frozen)
            continue;
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
            rt->shards.layers[l].orthogonal = rt->shards.layers[l].matrices + layer->layout.shard_count * rt->shards.rank;
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
    rt->update.step = eo_plan_step_memory(plan, state->rows[plan->scalars_row], state->rows[plan->norm_result_row]);
    rt->update.next_scalars = plan->next_scalars_row == EO_NONE ? NULL : state->rows[plan->next_scalars_row];
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
            eo_static_state(rt)->wait_kinds[o->id] =
                o->kind == EO_OP_ALL_GATHER || o->kind == EO_OP_MATRIX_GATHER   ? EO_WAIT_ALL_GATHER
                : o->kind == EO_OP_NORM_GATHER || o->kind == EO_OP_NORM_PARTIAL ? EO_WAIT_NORM
                : o->kind == EO_OP_FETCH || o->kind == EO_OP_EVICT              ? EO_WAIT_FETCH
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
    const eo_status status = eo_runtime_fail(
        rt, EO_ERR_NO_MEMORY,
        "out of memory on device %s: %.1f MiB needed%s, %.1f MiB available of %.1f MiB; use more %s, a smaller batch "
        "or more recompute",
        rt->device->ops->name, mib(needed_bytes), others, mib(rt->memory.free_bytes), mib(rt->memory.total_bytes),
        rt->memory.ranks > 1 ? "machines" : "ranks");
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        if (plan->category_bytes_at_peak[c])
            eo_log_write(&rt->log, EO_LOG_ERROR, "rank %u:   %-18s %12.1f MiB at the peak", rt->world->rank,
                         eo_category_name((eo_category)c), mib(plan->category_bytes_at_peak[c]));
    return status;
}

/* Where gathers and reductions have a reservation each, each communicator is told of its own. */
static eo_status register_memory(struct eo_runtime *rt)
{
    const struct eo_arena *arena = &eo_static_state(rt)->arena;
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

eo_status eo_static_init(struct eo_runtime *rt)
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
        state->left = calloc(plan->parameter_count, sizeof(*state->left));
        if (!state->left)
            return EO_ERR_NO_MEMORY;
        for (int list = 0; list < EO_LIST_COUNT; list++)
            EO_TRY(eo_dead_rows_find(plan, (eo_list)list, &state->dead[list]));
        for (uint32_t r = 0; r < plan->row_count; r++)
            if (!plan->rows[r].always_live)
                poison(rt, r);
    }
    rt->stats.arena_bytes = rt->stats.live_peak_bytes = rt->stats.reserved_peak_bytes = state->arena.reserved_bytes;
    return EO_OK;
}

void eo_static_fini(struct eo_runtime *rt)
{
    struct static_state *state = eo_static_state(rt);
    if (!state)
        return;
    eo_offload_fini(rt);
    eo_arena_fini(&state->arena);
    free(state->rows);
    free(state->events);
    free(state->wait_kinds);
    free(state->left);
    for (int list = 0; list < EO_LIST_COUNT; list++)
        eo_dead_rows_free(&state->dead[list]);
    free(state);
    rt->mode_state = NULL;
}
