/* SPDX-License-Identifier: MIT
 *
 * Gradients in a list: their reduction, when the result is taken into shard and norm, and its way to replicas and disk.
 */
#include "runtime/plan/list/builder.h"

#include "base/arithmetic.h"

/* A gradient's n-th contribution of a step has version n (counted on over the steps). */
static int32_t contributions_a_batch(const struct plan_layer *layer)
{
    return (int32_t)layer->contribution_count;
}

/* Whether a reduction follows the contributions' sum: then the final gradient is another content. */
static bool has_final(const struct eo_plan *plan, const struct plan_layer *layer)
{
    return plan->replicas > 1 || layer->sum_row != layer->gradient_row;
}

/* All contributions of the step. */
static void read_sum(struct list_builder *b, uint32_t l)
{
    const struct plan_layer *layer = &b->plan->layers[l];
    eo_list_access(b, layer->sum_row, EO_READ, eo_subject(SUBJECT_GRADIENT, l), EO_VERSION_MICRO_BATCH,
                   (int32_t)(b->plan->params.micro_batches * layer->contribution_count) - 1,
                   (uint16_t)contributions_a_batch(layer));
}

void eo_list_read_final(struct list_builder *b, uint32_t l, bool in_batch)
{
    const struct plan_layer *layer = &b->plan->layers[l];
    const int32_t batches = in_batch ? 1 : (int32_t)b->plan->params.micro_batches;
    if (has_final(b->plan, layer))
        eo_list_access(b, layer->gradient_row, EO_READ, eo_subject(SUBJECT_FINAL_GRADIENT, l), EO_VERSION_STEP, 0, 1);
    else
        eo_list_access(b, layer->gradient_row, EO_READ, eo_subject(SUBJECT_GRADIENT, l), EO_VERSION_MICRO_BATCH,
                       batches * (int32_t)layer->contribution_count - 1, (uint16_t)contributions_a_batch(layer));
}

eo_stream_id eo_list_reduce_stream(const struct eo_plan *plan)
{
    return plan->params.separate_reduce_stream ? EO_STREAM_REDUCE : EO_STREAM_COMM;
}

/* The layer's gradient shard has all contributions of the group. */
static void add_all_reduce(struct list_builder *b, uint32_t position, uint32_t l)
{
    eo_list_operation(b, EO_OP_ALL_REDUCE, eo_list_reduce_stream(b->plan), position, l, EO_NONE, 0);
    read_sum(b, l);
    eo_list_access(b, b->plan->layers[l].gradient_row, EO_WRITE, eo_subject(SUBJECT_FINAL_GRADIENT, l), EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
}

/* A contribution as it was written joins the layer's sum; the last one sends that on its way. */
static void add_whole(struct list_builder *b, const struct list_pass *pass, bool first, bool last)
{
    struct eo_plan *plan = b->plan;
    const struct plan_position *position = &plan->positions[pass->position];
    const struct plan_layer *layer = &plan->layers[position->layer];
    struct eo_operation *operation = eo_list_operation(b, EO_OP_ACCUMULATE, EO_STREAM_COMPUTE, pass->position, position->layer,
                                                       pass->micro_batch, eo_fold_backward(b, pass->position, FOLD_ADD));
    operation->whole = true;
    operation->first_gradient = first;
    eo_list_access(b, position->buffer_row, EO_READ, eo_subject(SUBJECT_LOCAL_GRADIENT, pass->position),
                   EO_VERSION_MICRO_BATCH, 0, 1);
    eo_list_access(b, layer->sum_row, first ? EO_WRITE : EO_UPDATE, eo_subject(SUBJECT_GRADIENT, position->layer),
                   EO_VERSION_MICRO_BATCH, (int32_t)position->contribution, (uint16_t)contributions_a_batch(layer));
    eo_list_operation_end(b);
    if (!last || layer->sum_row == layer->gradient_row)
        return;
    operation = eo_list_operation(b, EO_OP_REDUCE_SCATTER, eo_list_reduce_stream(plan), pass->position, position->layer, EO_NONE,
                                  0);
    operation->whole = true;
    read_sum(b, position->layer);
    eo_list_access(b, layer->gradient_row, EO_WRITE, eo_subject(SUBJECT_FINAL_GRADIENT, position->layer),
                   EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
}

static bool is_first_contribution(const struct list_builder *b, const struct list_pass *pass)
{
    return pass->micro_batch == 0 && b->plan->positions[pass->position].contribution == 0;
}

static bool is_last_contribution(const struct list_builder *b, const struct list_pass *pass)
{
    const struct plan_position *position = &b->plan->positions[pass->position];
    return pass->micro_batch == b->plan->params.micro_batches - 1 &&
           position->contribution + 1 == b->plan->layers[position->layer].contribution_count;
}

/* Where the shard holds a gradient already, or is of another type. */
static bool lands_in_place(const struct list_builder *b, const struct list_pass *pass)
{
    const struct plan_layer *layer = &b->plan->layers[b->plan->positions[pass->position].layer];
    return !layer->whole && (!is_first_contribution(b, pass) || b->plan->params.reduce_dtype != EO_DTYPE_FP32);
}

static void add_reduction_accesses(struct list_builder *b, const struct list_pass *pass, bool in_place)
{
    const struct plan_position *position = &b->plan->positions[pass->position];
    const struct plan_layer *layer = &b->plan->layers[position->layer];
    eo_list_access(b, position->buffer_row, EO_READ, eo_subject(SUBJECT_LOCAL_GRADIENT, pass->position),
                   EO_VERSION_MICRO_BATCH, 0, 1);
    if (in_place)
        eo_list_access(b, position->buffer_row, EO_WRITE, eo_subject(SUBJECT_REDUCED, pass->position),
                       EO_VERSION_MICRO_BATCH, 0, 1);
    else
        eo_list_access(b, layer->gradient_row, EO_WRITE, eo_subject(SUBJECT_GRADIENT, position->layer), EO_VERSION_MICRO_BATCH,
                       (int32_t)position->contribution, (uint16_t)contributions_a_batch(layer));
}

/* Of this pass, and of so many after it. */
static void add_reduce_scatter(struct list_builder *b, const struct list_pass *pass, uint32_t more)
{
    struct eo_operation *operation = eo_list_operation(b, EO_OP_REDUCE_SCATTER, eo_list_reduce_stream(b->plan), pass->position,
                                                       b->plan->positions[pass->position].layer, pass->micro_batch, 0);
    operation->in_place = lands_in_place(b, pass);
    operation->first_gradient = is_first_contribution(b, pass);
    operation->more = (uint8_t)more;
    operation->descends = true;
    const bool in_place = operation->in_place;
    for (uint32_t part = 0; part <= more; part++)
        add_reduction_accesses(b, pass + part, in_place);
    eo_list_operation_end(b);
}

/* After the norm has been taken of it. */
static void add_gradient_eviction(struct list_builder *b, uint32_t l)
{
    const struct plan_layer *layer = &b->plan->layers[l];
    eo_list_operation(b, EO_OP_EVICT, eo_list_copy_stream(b->plan, EO_OP_EVICT), EO_NONE, l, EO_NONE, 0)->gradient = true;
    eo_list_read_final(b, l, false);
    eo_list_access(b, layer->disk_gradient_row, EO_WRITE, eo_subject(SUBJECT_OFFLOADED_GRADIENT, l), EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
}

/* On the stream of what it follows, at once; else on the compute stream, when a wait for that costs nothing any more. */
static bool is_beside(const struct list_builder *b, const struct list_pending *pending)
{
    return b->plan->params.norms_beside && !pending->accumulate;
}

/* It may stand in a later micro-batch than the gradient came from: `standing` is where its time is told. */
static void take_in(struct list_builder *b, const struct list_pending *pending, uint32_t fold, uint32_t standing)
{
    struct eo_plan *plan = b->plan;
    const struct plan_position *position = &plan->positions[pending->position];
    const struct plan_layer *layer = &plan->layers[position->layer];
    const uint32_t gradient = eo_subject(SUBJECT_GRADIENT, position->layer);
    const uint16_t scale = (uint16_t)contributions_a_batch(layer);
    struct eo_operation *operation =
        eo_list_operation(b, pending->accumulate ? EO_OP_ACCUMULATE : EO_OP_NORM_PARTIAL,
                          is_beside(b, pending) ? eo_list_reduce_stream(plan) : EO_STREAM_COMPUTE, pending->position,
                          position->layer, pending->micro_batch, fold);
    if (!b->failed)
        b->places[operation->id].micro_batch = standing;
    const bool takes_norm = pending->norm && !(pending->accumulate && plan->replicas > 1);
    operation->fused_norm = pending->accumulate && takes_norm;
    operation->first_gradient = pending->micro_batch == 0 && position->contribution == 0;
    const bool overwrite = operation->first_gradient;
    if (pending->accumulate) {
        eo_list_access(b, position->buffer_row, EO_READ, eo_subject(SUBJECT_REDUCED, pending->position),
                       EO_VERSION_MICRO_BATCH, 0, 1);
        eo_list_access(b, layer->gradient_row, overwrite ? EO_WRITE : EO_UPDATE, gradient, EO_VERSION_MICRO_BATCH,
                       (int32_t)position->contribution, scale);
    } else {
        eo_list_read_final(b, position->layer, true);
    }
    if (takes_norm)
        eo_list_access(b, layer->norm_row, EO_WRITE, eo_subject(SUBJECT_NORM, position->layer), EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
    if (takes_norm && layer->disk_gradient_row != EO_NONE)
        add_gradient_eviction(b, position->layer);
}

/* Contributions are added in the order of their passes, whichever buffers they lie in: what a layer has pending is not
 * taken in later than what comes now. */
static void hurry_earlier(struct list_builder *b, uint32_t l, uint32_t due)
{
    for (uint32_t i = b->pending_begin; i < b->pending_begin + b->pending_count; i++)
        if (b->plan->positions[b->pending[i].position].layer == l)
            b->pending[i].due = (uint32_t)eo_min_u64(b->pending[i].due, due);
}

/* The pass after which an offloaded gradient's row gets another layer's: its norm is to be taken, and it is to leave, before. */
static uint32_t next_of_gradient_row(const struct list_builder *b, uint32_t pass_index)
{
    const struct eo_plan *plan = b->plan;
    const struct plan_layer *layer = &plan->layers[plan->positions[b->passes[pass_index].position].layer];
    uint32_t next = layer->disk_gradient_row == EO_NONE ? b->pass_count : pass_index + 1;
    while (next < b->pass_count &&
           !(b->passes[next].backward &&
             plan->layers[plan->positions[b->passes[next].position].layer].gradient_row == layer->gradient_row))
        next++;
    return next;
}

/* What is to be done with a reduction that stands after pass `now`. */
static void await_reduction(struct list_builder *b, uint32_t pass_index, uint32_t now)
{
    struct eo_plan *plan = b->plan;
    const struct list_pass *pass = &b->passes[pass_index];
    const struct plan_position *position = &plan->positions[pass->position];
    const bool last = is_last_contribution(b, pass);
    const bool in_place = lands_in_place(b, pass);
    if (!in_place && !last)
        return;
    if (!in_place && plan->replicas > 1)
        add_all_reduce(b, pass->position, position->layer);

    /* In a slot: its next writer needs it gone. In a buffer of its own: soon, for its addresses are wanted; but not before
     * the reduction has had as many passes as there are gradient buffers. */
    uint32_t due = now + plan->params.gradient_slots * (position->body == EO_NONE ? 1 : plan->params.gradient_run);
    if (in_place) {
        uint32_t writer = pass_index + 1;
        while (writer < b->pass_count &&
               !(b->passes[writer].backward && plan->positions[b->passes[writer].position].buffer_row == position->buffer_row))
            writer++;
        due = eo_plan_has_own_buffer(plan, position) ? (uint32_t)eo_min_u64(due, writer) : writer;
    }
    due = (uint32_t)eo_min_u64(due, next_of_gradient_row(b, pass_index));
    if (in_place)
        hurry_earlier(b, position->layer, due);
    const struct list_pending pending = {
        .position = pass->position,
        .micro_batch = pass->micro_batch,
        .accumulate = in_place,
        .norm = last,
        .due = due,
    };
    if (is_beside(b, &pending))
        take_in(b, &pending, 0, pass->micro_batch);
    else
        b->pending[b->pending_begin + b->pending_count++] = pending;
}

/* Whether the next pass is a neighbour whose reduction goes with this one's. */
static bool waits_for_next(const struct list_builder *b, uint32_t pass_index)
{
    const struct eo_plan *plan = b->plan;
    const struct list_pass *pass = &b->passes[pass_index], *next = pass + 1;
    if (plan->params.gradient_run == 1 || pass_index + 1 == b->pass_count || !next->backward ||
        next->micro_batch != pass->micro_batch)
        return false;
    const struct plan_position *position = &plan->positions[pass->position], *after = &plan->positions[next->position];
    return position->body != EO_NONE && after->body != EO_NONE && after->buffer_row != EO_NONE && !after->direct &&
           after->contributes && position->body / plan->params.gradient_run == after->body / plan->params.gradient_run &&
           position->layer != after->layer && !plan->layers[position->layer].whole && !plan->layers[after->layer].whole &&
           lands_in_place(b, pass) == lands_in_place(b, next);
}

void eo_list_add_reduction(struct list_builder *b, uint32_t pass_index)
{
    const struct plan_position *position = &b->plan->positions[b->passes[pass_index].position];
    const struct plan_layer *layer = &b->plan->layers[position->layer];
    if (!position->direct && layer->whole) {
        const struct list_pass *pass = &b->passes[pass_index];
        add_whole(b, pass, is_first_contribution(b, pass), is_last_contribution(b, pass));
    } else if (!position->direct && waits_for_next(b, pass_index)) {
        b->held_reductions++;
        return;
    } else if (!position->direct) {
        add_reduce_scatter(b, &b->passes[pass_index - b->held_reductions], b->held_reductions);
    }
    for (uint32_t held = b->held_reductions + 1; held-- > 0;)
        await_reduction(b, pass_index - held, pass_index);
    b->held_reductions = 0;
}

void eo_list_take_in(struct list_builder *b, uint32_t pass, uint32_t fold, bool at_end)
{
    const uint32_t standing = at_end ? b->plan->params.micro_batches - 1 : b->passes[pass].micro_batch;
    uint32_t kept = b->pending_begin;
    const uint32_t end = b->pending_begin + b->pending_count;
    for (uint32_t i = b->pending_begin; i < end; i++) {
        struct list_pending pending = b->pending[i];
        if (pending.due > pass) {
            b->pending[kept++] = pending;
            continue;
        }
        take_in(b, &pending, at_end ? b->end_fold++ : fold, standing);
        if (!pending.accumulate || !pending.norm || b->plan->replicas == 1)
            continue;
        add_all_reduce(b, pending.position, b->plan->positions[pending.position].layer);
        pending.accumulate = false;
        if (is_beside(b, &pending)) {
            take_in(b, &pending, 0, standing);
            continue;
        }
        pending.due = (uint32_t)eo_min_u64(pass + b->plan->params.gradient_slots, b->pass_count);
        b->pending[kept++] = pending;
    }
    b->pending_count = kept - b->pending_begin;
}
