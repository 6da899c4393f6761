/* SPDX-License-Identifier: MIT
 *
 * The static mode: walks the plan's list in the plan's memory. It decides nothing: which collective stands where, what
 * waits for what and where a buffer lies has all been said by the plan.
 *
 *     list   AG  F  AG  F  AG  F ...          the cursor stands on the next operation
 *            `-- issued in the *_end before   passes: the trainer's; the runtime's own are run in the next *_begin
 */
#include "runtime/static/internal.h"

#include "base/check.h"

static bool is_pass(eo_operation_kind kind)
{
    return kind == EO_OP_FORWARD || kind == EO_OP_RECOMPUTE || kind == EO_OP_BACKWARD;
}

static bool is_copy(eo_operation_kind kind)
{
    return kind == EO_OP_FETCH || kind == EO_OP_EVICT;
}

/* Runs everything up to the trainer's next pass (`stop_at_own`: up to the runtime's own next operation), or the end. */
static eo_status advance(struct eo_runtime *rt, bool stop_at_own)
{
    struct static_state *state = eo_static_state(rt);
    const struct eo_operation_list *list = eo_static_list(rt);
    for (; state->cursor < list->count; state->cursor++) {
        const struct eo_operation *o = &list->operations[state->cursor];
        if (is_copy(o->kind))
            EO_TRY(eo_static_issue_copy(rt, o, state->cursor));
        else if (o->stream != EO_STREAM_COMPUTE && o->kind == EO_OP_NORM_PARTIAL)
            EO_TRY(eo_static_issue_norm(rt, o, state->cursor));
        else if (o->stream != EO_STREAM_COMPUTE)
            EO_TRY(eo_static_issue_collective(rt, o, state->cursor));
        else if (stop_at_own || is_pass(o->kind))
            return EO_OK;
        else
            EO_TRY(eo_static_run_own(rt, o, state->cursor));
    }
    return EO_OK;
}

static eo_status begin_pass(struct eo_runtime *rt, eo_operation_kind kind, uint32_t position)
{
    struct static_state *state = eo_static_state(rt);
    EO_TRY(advance(rt, false));
    EO_ASSERT(state->cursor < eo_static_list(rt)->count);
    const struct eo_operation *o = &eo_static_list(rt)->operations[state->cursor];
    EO_ASSERT(o->kind == kind && o->position == position);
    struct eo_timeline_entry *entry = eo_runtime_entry(rt, kind, o->stream, position, o->layer, state->cursor);
    EO_TRY(eo_static_wait(rt, o));
    eo_runtime_open_pass(rt, entry);
    return EO_OK;
}

/* Only enqueues: what waits is left to the next begin. */
static eo_status end_pass(struct eo_runtime *rt, uint32_t position)
{
    struct static_state *state = eo_static_state(rt);
    const struct eo_operation *o = &eo_static_list(rt)->operations[state->cursor];
    eo_runtime_close_pass(rt);
    eo_static_poison_dead_rows(rt, state->cursor);
    if (o->record)
        rt->device->ops->record(rt->device, o->stream, &state->events[o->id]);
    state->cursor++;
    return advance(rt, true);
}

static eo_status static_step_begin(struct eo_runtime *rt)
{
    EO_TRY(eo_offload_settle(rt));
    eo_static_state(rt)->list = rt->steps.restart && !rt->graph.recording ? EO_LIST_FIRST : EO_LIST_STEADY;
    eo_static_state(rt)->cursor = 0;
    EO_ASSERT(!(rt->steps.restart && rt->steps.is_late) || rt->graph.recording); /* the steady list begins with them */
    rt->steps.restart = rt->steps.is_late = false;
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
    if (rt->cursor.phase == PHASE_INPUTS) /* the buffer is another's */
        return EO_OK;
    if (p->adds_to != EO_NONE) /* it holds what is added to */
        return rt->params.debug ? eo_static_note_left(rt, position) : EO_OK;
    if ((rt->params.zero_gradients || p->adds_to_zeros) && p->buffer_row != EO_NONE) {
        rt->device->ops->zero(rt->device, eo_static_state(rt)->rows[p->buffer_row],
                              rt->plan->layers[p->layer].layout.padded_count * bytes);
        return EO_OK;
    }
    if (rt->params.debug && p->buffer_row != EO_NONE)
        rt->device->ops->fill(rt->device, eo_static_state(rt)->rows[p->buffer_row], EO_POISON,
                              rt->plan->layers[p->layer].layout.padded_count * bytes);
    /* Padding, and parameters that get no gradient here: another layer's bytes must not be reduced into them. */
    for (uint32_t z = 0; p->buffer_row != EO_NONE && z < p->zero_count; z++) {
        const struct plan_range *range = &rt->plan->zero_ranges[p->zero_begin + z];
        rt->device->ops->zero(rt->device, (char *)eo_static_state(rt)->rows[p->buffer_row] + range->offset * bytes,
                              range->count * bytes);
    }
    return EO_OK;
}

static eo_status finish_list(struct eo_runtime *rt)
{
    EO_TRY(advance(rt, false));
    EO_ASSERT(eo_static_state(rt)->cursor == eo_static_list(rt)->count);
    return EO_OK;
}

static eo_status static_step_end(struct eo_runtime *rt)
{
    EO_TRY(finish_list(rt));
    rt->steps.is_late = rt->plan->params.late_updates;
    return EO_OK;
}

static eo_status static_finish_updates(struct eo_runtime *rt)
{
    eo_static_state(rt)->list = EO_LIST_UPDATES;
    eo_static_state(rt)->cursor = 0;
    return finish_list(rt);
}

static eo_status static_evaluation_begin(struct eo_runtime *rt)
{
    eo_static_state(rt)->list = rt->cursor.phase == PHASE_INPUTS ? EO_LIST_INPUTS : EO_LIST_FORWARD;
    eo_static_state(rt)->cursor = 0;
    return advance(rt, true);
}

/* The same sizes as in the steps, at the same addresses: what a library sets up when it meets a size, it does here. */
static eo_status static_warm_up(struct eo_runtime *rt)
{
    const struct eo_operation_list *list = &rt->plan->schedule.lists[EO_LIST_FIRST];
    for (uint32_t i = 0; i < list->count; i++) {
        const struct eo_operation *o = &list->operations[i];
        bool met = o->stream == EO_STREAM_COMPUTE || is_copy(o->kind) || o->kind == EO_OP_NORM_PARTIAL ||
                   (o->kind == EO_OP_NORM_GATHER && !o->fence); /* the norm's compared the plans */
        for (uint32_t k = 0; k < i && !met; k++)
            met = list->operations[k].kind == o->kind && list->operations[k].position == o->position &&
                  list->operations[k].layer == o->layer && list->operations[k].more == o->more &&
                  list->operations[k].in_place == o->in_place &&
                  list->operations[k].whole == o->whole;
        if (met)
            continue;
        struct eo_operation alone = *o;
        alone.record = false;
        for (int s = 0; s < EO_STREAM_COUNT; s++)
            alone.wait[s] = EO_NONE;
        EO_TRY(eo_static_issue_collective(rt, &alone, i));
        EO_TRY(eo_host_drain(rt)); /* rows share addresses, and failures are told where they happen */
    }
    rt->stats.collective_count = rt->stats.collective_bytes = rt->timeline.ring.count = 0;
    return EO_OK;
}

/* In MXFP8, and widened. */
static eo_status gather_frozen(struct eo_runtime *rt, uint32_t l, void **weights)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    const struct plan_position *first = &rt->plan->positions[layer->first_position];
    const bool is_part = layer->part_of != EO_NONE;
    void *const *rows = eo_static_state(rt)->rows;
    void *gathered = rows[is_part ? first->frozen_narrow_row : first->narrow_row];
    *weights = rows[is_part ? first->frozen_gather_row : first->gather_row];
    if (rt->plan->params.shard_group > 1)
        EO_TRY(eo_runtime_gather(rt, rt->comms.gather, gathered, rt->shards.layers[l].narrow, layer->narrow_bytes,
                                 eo_runtime_weights_name(rt, l), EO_WAIT_ALL_GATHER));
    eo_float8_widen_frozen(rt, l, gathered, *weights);
    return EO_OK;
}

/* Where a rank has all of a layer there is nothing to gather, of either half. */
static eo_status static_layer_gather(struct eo_runtime *rt, uint32_t l, enum weight_half half, void **weights)
{
    const struct plan_layer *layer = &rt->plan->layers[l];
    struct static_state *state = eo_static_state(rt);
    if (layer->float8_frozen)
        return gather_frozen(rt, l, weights);
    if (half == HALF_LOW)
        EO_TRY(eo_offload_take(rt, l, false));
    void *shard = half == HALF_LOW ? (void *)rt->shards.layers[l].low : state->rows[layer->shard_row];
    *weights = shard;
    if (rt->plan->params.shard_group == 1)
        return EO_OK;
    const struct plan_position *first = &rt->plan->positions[layer->first_position];
    *weights = state->rows[layer->part_of == EO_NONE ? first->gather_row : first->frozen_gather_row];
    return eo_runtime_gather(rt, rt->comms.gather, *weights, shard,
                             layer->layout.shard_count * eo_dtype_bytes(rt->plan->params.dtype), eo_runtime_weights_name(rt, l),
                             EO_WAIT_ALL_GATHER);
}

const struct mode_ops eo_static_mode = {
    .init = eo_static_init,
    .fini = eo_static_fini,
    .step_begin = static_step_begin,
    .forward_begin = static_forward_begin,
    .forward_end = end_pass,
    .backward_begin = static_backward_begin,
    .gradients_begin = static_gradients_begin,
    .check_gradients = eo_static_check_written,
    .backward_end = end_pass,
    .step_end = static_step_end,
    .narrow = eo_static_narrow,
    .finish_updates = static_finish_updates,
    .evaluation_begin = static_evaluation_begin,
    .evaluation_end = finish_list,
    .warm_up = static_warm_up,
    .layer_gather = static_layer_gather,
    .idle_memory = eo_static_idle_memory,
};
