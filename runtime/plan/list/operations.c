/* SPDX-License-Identifier: MIT
 *
 * The operations of a list, kind by kind: what each reads and writes, and what of a reduction is still to be done.
 */
#include "runtime/plan/list/builder.h"

#include "base/arithmetic.h"

/* -- passes ------------------------------------------------------------------------------------------------------ */

/* The trainer's buffers that begin or end with this pass; what lies between is ordered by the compute stream. */
static void add_buffer_accesses(struct list_builder *b, eo_moment moment)
{
    const struct eo_plan *plan = b->plan;
    const uint32_t at = eo_moment_order(moment, plan->position_count);
    for (uint32_t i = b->first.begin[at]; i < b->first.begin[at + 1]; i++) {
        const uint32_t buffer = b->first.buffers[i];
        eo_list_access(b, plan->buffers[buffer].row, EO_WRITE, eo_subject(SUBJECT_BUFFER, buffer),
                       EO_VERSION_MICRO_BATCH, 0, 1);
    }
    for (uint32_t i = b->last.begin[at]; i < b->last.begin[at + 1]; i++) {
        const uint32_t buffer = b->last.buffers[i];
        if (eo_moment_order(plan->buffers[buffer].first, plan->position_count) == at)
            continue; /* scratch of one pass: written, and gone */
        eo_list_access(b, plan->buffers[buffer].row, EO_READ, eo_subject(SUBJECT_BUFFER, buffer), EO_VERSION_MICRO_BATCH, 0, 1);
    }
}

/* All that a position saves: what its recompute pass reads is not told. */
static void read_saved(struct list_builder *b, uint32_t position)
{
    const struct eo_plan *plan = b->plan;
    const uint32_t at = eo_moment_order((eo_moment){EO_PASS_FORWARD, position}, plan->position_count);
    for (uint32_t i = b->first.begin[at]; i < b->first.begin[at + 1]; i++) {
        const uint32_t buffer = b->first.buffers[i];
        if (plan->buffers[buffer].shared)
            eo_list_access(b, plan->buffers[buffer].row, EO_READ, eo_subject(SUBJECT_BUFFER, buffer), EO_VERSION_MICRO_BATCH, 0, 1);
    }
}

void eo_list_read_weights(struct list_builder *b, const struct plan_position *position)
{
    const struct plan_layer *layer = &b->plan->layers[position->layer];
    eo_list_access(b, position->gather_row, EO_READ, eo_subject(SUBJECT_WEIGHTS, position->layer),
                   eo_weights_version(layer), 0, 1);
    if (layer->frozen_part != EO_NONE)
        eo_list_access(b, position->frozen_gather_row, EO_READ, eo_subject(SUBJECT_WEIGHTS, layer->frozen_part),
                       EO_VERSION_FIXED, 0, 1);
}

void eo_list_add_pass(struct list_builder *b, eo_operation_kind kind, const struct list_pass *pass)
{
    const struct eo_plan *plan = b->plan;
    const struct plan_position *position = &plan->positions[pass->position];
    const struct plan_layer *layer = &plan->layers[position->layer];
    const eo_pass eo_pass_of[] = {
        [EO_OP_FORWARD] = EO_PASS_FORWARD, [EO_OP_RECOMPUTE] = EO_PASS_RECOMPUTE, [EO_OP_BACKWARD] = EO_PASS_BACKWARD};
    const eo_moment moment = {eo_pass_of[kind], pass->position};
    const uint32_t fold = kind == EO_OP_FORWARD
                              ? eo_fold_forward(pass->position, true)
                              : eo_fold_backward(b, pass->position, kind == EO_OP_BACKWARD ? FOLD_BACKWARD : FOLD_RECOMPUTE);
    struct eo_operation *operation =
        eo_list_operation(b, kind, EO_STREAM_COMPUTE, pass->position, position->layer, pass->micro_batch, fold);
    struct access_range *range = &b->pass_accesses[eo_moment_order(moment, plan->position_count)];
    if (range->made) {
        operation->access_begin = range->begin;
        operation->access_count = range->count;
        return;
    }
    if (pass->reads_weights)
        eo_list_read_weights(b, position);
    if (kind == EO_OP_BACKWARD && position->direct)
        eo_list_access(b, layer->gradient_row, EO_WRITE, eo_subject(SUBJECT_GRADIENT, position->layer),
                       EO_VERSION_MICRO_BATCH, 0, 1);
    else if (kind == EO_OP_BACKWARD && position->buffer_row != EO_NONE)
        eo_list_access(b, position->buffer_row, EO_WRITE, eo_subject(SUBJECT_LOCAL_GRADIENT, pass->position),
                       EO_VERSION_MICRO_BATCH, 0, 1);
    add_buffer_accesses(b, moment);
    if (kind == EO_OP_RECOMPUTE && position->saved != EO_NONE)
        read_saved(b, pass->position);
    eo_list_operation_end(b);
    *range = (struct access_range){operation->access_begin, operation->access_count, true};
}

/* -- collectives --------------------------------------------------------------------------------------------------*/

/* Weights that stay are gathered again after their update, but frozen ones do not change. */
static bool brings_frozen_part(const struct list_builder *b, const struct list_pass *pass, int32_t version_offset)
{
    const struct plan_layer *layer = &b->plan->layers[b->plan->positions[pass->position].layer];
    return layer->frozen_part != EO_NONE && !(b->plan->resident && version_offset);
}

static void add_gather_accesses(struct list_builder *b, const struct list_pass *pass, int32_t version_offset)
{
    const struct plan_position *position = &b->plan->positions[pass->position];
    const struct plan_layer *layer = &b->plan->layers[position->layer];
    const enum eo_version_kind kind = eo_weights_version(layer);
    const uint32_t what = eo_subject(layer->float8_gather ? SUBJECT_NARROW_WEIGHTS : SUBJECT_WEIGHTS, position->layer);
    const int32_t offset = layer->frozen ? 0 : version_offset;
    eo_list_access(b, layer->float8_gather ? layer->narrow_row : layer->shard_row, EO_READ, what, kind, offset, 1);
    eo_list_access(b, position->narrow_row, EO_WRITE, what, kind, offset, 1);
    if (brings_frozen_part(b, pass, version_offset)) {
        const uint32_t frozen = eo_subject(SUBJECT_WEIGHTS, layer->frozen_part);
        eo_list_access(b, b->plan->layers[layer->frozen_part].shard_row, EO_READ, frozen, EO_VERSION_FIXED, 0, 1);
        eo_list_access(b, position->frozen_gather_row, EO_WRITE, frozen, EO_VERSION_FIXED, 0, 1);
    }
}

/* Of this pass, and of those that its gather brings. */
static void add_gather(struct list_builder *b, const struct list_pass *pass, int32_t version_offset)
{
    struct eo_operation *operation = eo_list_operation(b, EO_OP_ALL_GATHER, EO_STREAM_COMM, pass->position,
                                                       b->plan->positions[pass->position].layer, pass->micro_batch, 0);
    operation->with_frozen = brings_frozen_part(b, pass, version_offset);
    operation->more = (uint8_t)pass->brings;
    operation->descends = pass->backward;
    for (uint32_t part = 0; part <= pass->brings; part++)
        add_gather_accesses(b, pass + part, version_offset);
    eo_list_operation_end(b);
}

void eo_list_add_widening(struct list_builder *b, const struct list_pass *pass, uint32_t fold)
{
    const struct plan_position *position = &b->plan->positions[pass->position];
    const enum eo_version_kind kind = eo_weights_version(&b->plan->layers[position->layer]);
    if (!pass->widens)
        return;
    eo_list_operation(b, EO_OP_WIDEN, EO_STREAM_COMPUTE, pass->position, position->layer, pass->micro_batch, fold);
    eo_list_access(b, position->narrow_row, EO_READ, eo_subject(SUBJECT_NARROW_WEIGHTS, position->layer), kind, 0, 1);
    eo_list_access(b, position->gather_row, EO_WRITE, eo_subject(SUBJECT_WEIGHTS, position->layer), kind, 0, 1);
    eo_list_operation_end(b);
}

void eo_list_add_gathers(struct list_builder *b, int64_t pass)
{
    for (; b->next_gather < b->pass_count; b->next_gather++) {
        const struct list_pass *next = &b->passes[b->next_gather];
        if (!next->reads_weights || next->resident || next->is_brought)
            continue;
        if (next->gather_after > pass)
            return;
        add_gather(b, next, 0);
    }
}

/* A gradient's n-th contribution of a step has version n (counted on over the steps). */
static int32_t contributions_a_batch(const struct plan_layer *layer)
{
    return (int32_t)layer->use_count;
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
                   (int32_t)(b->plan->params.micro_batches * layer->use_count) - 1, (uint16_t)contributions_a_batch(layer));
}

void eo_list_read_final(struct list_builder *b, uint32_t l, bool in_batch)
{
    const struct plan_layer *layer = &b->plan->layers[l];
    const int32_t batches = in_batch ? 1 : (int32_t)b->plan->params.micro_batches;
    if (has_final(b->plan, layer))
        eo_list_access(b, layer->gradient_row, EO_READ, eo_subject(SUBJECT_FINAL_GRADIENT, l), EO_VERSION_STEP, 0, 1);
    else
        eo_list_access(b, layer->gradient_row, EO_READ, eo_subject(SUBJECT_GRADIENT, l), EO_VERSION_MICRO_BATCH,
                       batches * (int32_t)layer->use_count - 1, (uint16_t)contributions_a_batch(layer));
}

static eo_stream_id reduce_stream(const struct eo_plan *plan)
{
    return plan->params.separate_reduce_stream ? EO_STREAM_REDUCE : EO_STREAM_COMM;
}

/* The layer's gradient shard has all contributions of the group. */
static void add_all_reduce(struct list_builder *b, uint32_t position, uint32_t l)
{
    eo_list_operation(b, EO_OP_ALL_REDUCE, reduce_stream(b->plan), position, l, EO_NONE, 0);
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
                   EO_VERSION_MICRO_BATCH, (int32_t)position->use, (uint16_t)contributions_a_batch(layer));
    eo_list_operation_end(b);
    if (!last || layer->sum_row == layer->gradient_row)
        return;
    operation = eo_list_operation(b, EO_OP_REDUCE_SCATTER, reduce_stream(plan), pass->position, position->layer, EO_NONE, 0);
    operation->whole = true;
    read_sum(b, position->layer);
    eo_list_access(b, layer->gradient_row, EO_WRITE, eo_subject(SUBJECT_FINAL_GRADIENT, position->layer),
                   EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
}

static bool is_first_use(const struct list_builder *b, const struct list_pass *pass)
{
    return pass->micro_batch == 0 && b->plan->positions[pass->position].use == 0;
}

/* Where the shard holds a gradient already, or is of another type. */
static bool lands_in_place(const struct list_builder *b, const struct list_pass *pass)
{
    const struct plan_layer *layer = &b->plan->layers[b->plan->positions[pass->position].layer];
    return !layer->whole && (!is_first_use(b, pass) || b->plan->params.reduce_dtype != EO_DTYPE_FP32);
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
        eo_list_access(b, layer->gradient_row, EO_WRITE, eo_subject(SUBJECT_GRADIENT, position->layer),
                       EO_VERSION_MICRO_BATCH, (int32_t)position->use, (uint16_t)contributions_a_batch(layer));
}

/* Of this pass, and of so many after it. */
static void add_reduce_scatter(struct list_builder *b, const struct list_pass *pass, uint32_t more)
{
    struct eo_operation *operation = eo_list_operation(b, EO_OP_REDUCE_SCATTER, reduce_stream(b->plan), pass->position,
                                                       b->plan->positions[pass->position].layer, pass->micro_batch, 0);
    operation->in_place = lands_in_place(b, pass);
    operation->first_gradient = is_first_use(b, pass);
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
    eo_list_operation(b, EO_OP_EVICT, EO_STREAM_COPY, EO_NONE, l, EO_NONE, 0)->gradient = true;
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
                          is_beside(b, pending) ? reduce_stream(plan) : EO_STREAM_COMPUTE, pending->position, position->layer,
                          pending->micro_batch, fold);
    if (!b->failed)
        b->places[operation->id].micro_batch = standing;
    const bool takes_norm = pending->norm && !(pending->accumulate && plan->replicas > 1);
    operation->fused_norm = pending->accumulate && takes_norm;
    operation->first_gradient = pending->micro_batch == 0 && position->use == 0;
    const bool overwrite = operation->first_gradient;
    if (pending->accumulate) {
        eo_list_access(b, position->buffer_row, EO_READ, eo_subject(SUBJECT_REDUCED, pending->position),
                       EO_VERSION_MICRO_BATCH, 0, 1);
        eo_list_access(b, layer->gradient_row, overwrite ? EO_WRITE : EO_UPDATE, gradient, EO_VERSION_MICRO_BATCH,
                       (int32_t)position->use, scale);
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
    const struct plan_layer *layer = &plan->layers[position->layer];
    const bool last = pass->micro_batch == plan->params.micro_batches - 1 && position->use == layer->use_count - 1;
    const bool in_place = lands_in_place(b, pass);
    if (!in_place && !last)
        return;
    if (!in_place && plan->replicas > 1)
        add_all_reduce(b, pass->position, position->layer);

    /* Body: the slot's next writer needs it gone. Edge: soon, for its addresses are wanted; but not before the
     * reduction has had as many passes as there are gradient buffers. */
    uint32_t due = now + plan->params.gradient_slots * (position->body == EO_NONE ? 1 : plan->params.gradient_run);
    if (in_place) {
        uint32_t writer = pass_index + 1;
        while (writer < b->pass_count &&
               !(b->passes[writer].backward && plan->positions[b->passes[writer].position].buffer_row == position->buffer_row))
            writer++;
        due = layer->edge ? (uint32_t)eo_min_u64(due, writer) : writer;
    }
    due = (uint32_t)eo_min_u64(due, next_of_gradient_row(b, pass_index));
    if (in_place)
        hurry_earlier(b, position->layer, due);
    const struct list_pending pending = {
        .pass = pass_index,
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
           position->body / plan->params.gradient_run == after->body / plan->params.gradient_run &&
           position->layer != after->layer && !plan->layers[position->layer].whole && !plan->layers[after->layer].whole &&
           lands_in_place(b, pass) == lands_in_place(b, next);
}

void eo_list_add_reduction(struct list_builder *b, uint32_t pass_index)
{
    const struct plan_position *position = &b->plan->positions[b->passes[pass_index].position];
    const struct plan_layer *layer = &b->plan->layers[position->layer];
    if (!position->direct && layer->whole) {
        const struct list_pass *pass = &b->passes[pass_index];
        add_whole(b, pass, is_first_use(b, pass),
                  pass->micro_batch == b->plan->params.micro_batches - 1 && position->use == layer->use_count - 1);
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

/* -- the runtime's own operations -------------------------------------------------------------------------------- */

static void add_copy(struct list_builder *b, eo_operation_kind kind, uint32_t l)
{
    const struct plan_layer *layer = &b->plan->layers[l];
    const uint32_t subject = eo_subject(SUBJECT_OFFLOADED, l);
    const bool fetches = kind == EO_OP_FETCH;
    eo_list_operation(b, kind, EO_STREAM_COPY, EO_NONE, l, EO_NONE, 0);
    eo_list_access(b, fetches ? layer->disk_row : layer->offload_row, EO_READ, subject, EO_VERSION_STEP, !fetches, 1);
    if (fetches && layer->disk_gradient_row != EO_NONE)
        eo_list_access(b, layer->disk_gradient_row, EO_READ, eo_subject(SUBJECT_OFFLOADED_GRADIENT, l), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, fetches ? layer->offload_row : layer->disk_row, EO_WRITE, subject, EO_VERSION_STEP, !fetches, 1);
    eo_list_operation_end(b);
}

void eo_list_add_saved(struct list_builder *b, eo_operation_kind kind, const struct list_pass *pass, uint32_t p)
{
    const struct eo_plan *plan = b->plan;
    const bool fetches = kind == EO_OP_FETCH;
    if (p == EO_NONE || !plan->positions[p].leaves)
        return;
    eo_list_operation(b, kind, EO_STREAM_COPY, p, plan->positions[p].layer, pass->micro_batch, 0)->saved = true;
    const uint32_t at = eo_moment_order((eo_moment){EO_PASS_FORWARD, p}, plan->position_count);
    for (int writes = 0; writes < 2; writes++)
        for (uint32_t i = b->first.begin[at]; i < b->first.begin[at + 1]; i++) {
            const uint32_t index = b->first.buffers[i];
            const struct plan_buffer *buffer = &plan->buffers[index];
            if (buffer->shared)
                eo_list_access(b, fetches == (bool)writes ? buffer->row : buffer->disk_row, writes ? EO_WRITE : EO_READ,
                               eo_subject(SUBJECT_BUFFER, index), EO_VERSION_MICRO_BATCH, 0, 1);
        }
    eo_list_operation_end(b);
}

void eo_list_add_first_fetches(struct list_builder *b)
{
    const struct eo_plan *plan = b->plan;
    for (uint32_t u = plan->offload_begin; u < plan->update_count && u < plan->offload_begin + plan->params.offload_slots; u++)
        add_copy(b, EO_OP_FETCH, plan->updates[u]);
}

static void add_update(struct list_builder *b, uint32_t l)
{
    struct eo_plan *plan = b->plan;
    const struct plan_layer *layer = &plan->layers[l];
    eo_list_operation(b, EO_OP_UPDATE, EO_STREAM_COMPUTE, EO_NONE, l, EO_NONE, b->end_fold++);
    if (layer->disk_gradient_row == EO_NONE) /* else it came with the rest */
        eo_list_read_final(b, l, false);
    eo_list_access(b, plan->norm_result_row, EO_READ, eo_subject(SUBJECT_NORM_RESULT, 0), EO_VERSION_STEP, 1, 1);
    eo_list_access(b, plan->scalars_row, EO_READ, eo_subject(SUBJECT_SCALARS, 0), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, layer->shard_row, EO_UPDATE, eo_subject(SUBJECT_WEIGHTS, l), EO_VERSION_STEP, 1, 1);
    if (layer->offload_row != EO_NONE)
        eo_list_access(b, layer->offload_row, EO_UPDATE, eo_subject(SUBJECT_OFFLOADED, l), EO_VERSION_STEP, 1, 1);
    else if (layer->master_row != layer->shard_row)
        eo_list_access(b, layer->master_row, EO_UPDATE, eo_subject(SUBJECT_LOW_WEIGHTS, l), EO_VERSION_STEP, 1, 1);
    if (layer->has_matrices)
        eo_list_access(b, layer->direction_row, EO_READ, eo_subject(SUBJECT_STEP_DIRECTION, l), EO_VERSION_STEP, 0, 1);
    for (uint32_t k = 0; layer->offload_row == EO_NONE && k < plan->state_count; k++)
        eo_list_access(b, layer->state_rows[k], EO_UPDATE, eo_subject(SUBJECT_STATE + k, l), EO_VERSION_STEP, 1, 1);
    eo_list_operation_end(b);
    if (!layer->float8_gather)
        return;
    eo_list_operation(b, EO_OP_NARROW, EO_STREAM_COMPUTE, EO_NONE, l, EO_NONE, b->end_fold++);
    eo_list_access(b, layer->shard_row, EO_READ, eo_subject(SUBJECT_WEIGHTS, l), EO_VERSION_STEP, 1, 1);
    eo_list_access(b, layer->narrow_row, EO_WRITE, eo_subject(SUBJECT_NARROW_WEIGHTS, l), EO_VERSION_STEP, 1, 1);
    eo_list_operation_end(b);
}

/* The update, and if its layer is offloaded its way back, after which the buffer is free for a later one. */
static void add_offloaded_update(struct list_builder *b, uint32_t update)
{
    const struct eo_plan *plan = b->plan;
    const uint32_t l = plan->updates[update], next = update + plan->params.offload_slots;
    const bool is_offloaded = update >= plan->offload_begin, prefetches = !plan->params.no_prefetch;
    if (is_offloaded && !prefetches)
        add_copy(b, EO_OP_FETCH, l);
    add_update(b, l);
    if (is_offloaded)
        add_copy(b, EO_OP_EVICT, l);
    if (is_offloaded && prefetches && next < plan->update_count)
        add_copy(b, EO_OP_FETCH, plan->updates[next]);
}

/* For the next step's local norm, which nothing else orders after the peers' reading of this one's. */
static void add_fence(struct list_builder *b)
{
    const struct eo_plan *plan = b->plan;
    struct eo_operation *operation = eo_list_operation(b, EO_OP_NORM_GATHER, EO_STREAM_COMM, EO_NONE, EO_NONE, EO_NONE, 0);
    operation->fence = true;
    eo_list_access(b, plan->fence_row, EO_READ, eo_subject(SUBJECT_FENCED, 0), EO_VERSION_FIXED, 0, 1);
    eo_list_access(b, plan->fenced_row, EO_WRITE, eo_subject(SUBJECT_FENCED, 1), EO_VERSION_STEP, 1, 1);
    eo_list_operation_end(b);
}

/* Weights that stay and do not change are there since the first step's list. */
static bool stays(const struct eo_plan *plan, const struct list_pass *pass)
{
    const struct plan_layer *layer = &plan->layers[plan->positions[pass->position].layer];
    return plan->resident && layer->frozen && !layer->float8_gather;
}

/* All layers that a gather brings, once those up to position p are. */
static bool are_updated(const struct eo_plan *plan, const struct list_pass *pass, uint32_t p)
{
    for (uint32_t part = 0; part <= pass->brings; part++) {
        const struct plan_layer *layer = &plan->layers[plan->positions[pass[part].position].layer];
        if (!layer->frozen && layer->first_position > p)
            return false;
    }
    return true;
}

/* Of the next step, once the layers up to position p are updated. Gathers keep the order of their use, so one whose layer is
 * not updated yet holds up those behind it. */
static void add_next_gathers(struct list_builder *b, uint32_t p)
{
    const struct eo_plan *plan = b->plan;
    for (; b->end_gather < b->pass_count && b->passes[b->end_gather].gather_after < 0; b->end_gather++) {
        const struct list_pass *pass = &b->passes[b->end_gather];
        if (!pass->reads_weights || pass->resident || pass->is_brought || stays(plan, pass))
            continue;
        if (p < plan->position_count && !are_updated(plan, pass, p))
            return;
        add_gather(b, pass, 1);
    }
}

static void orthogonalize_next(struct list_builder *b)
{
    const uint32_t l = b->plan->updates[b->orthogonalized++];
    if (b->plan->layers[l].has_matrices)
        eo_list_add_orthogonalization(b, l);
}

static void finish_update(struct list_builder *b)
{
    if (b->orthogonalized == b->updated)
        orthogonalize_next(b);
    const uint32_t l = b->plan->updates[b->updated];
    add_offloaded_update(b, b->updated++);
    add_next_gathers(b, b->plan->layers[l].first_position);
}

/*
 * Muon's matrices travel while others are worked on: of three layers one is gathered, one orthogonalized, and the results of
 * one are scattered. What a rank has less to do in one layer it has more in the next (runtime/plan/matrices.c).
 */
static void come_to_update(struct list_builder *b, uint32_t u)
{
    const struct plan_layer *layer = &b->plan->layers[b->plan->updates[u]];
    while (!layer->has_matrices && b->updated < u)
        finish_update(b);
    if (layer->has_matrices)
        eo_list_add_direction(b, b->plan->updates[u]);
    b->begun = u + 1;
    if (!layer->has_matrices || layer->matrices_row == layer->direction_row) { /* nothing travels */
        while (b->updated <= u)
            finish_update(b);
        return;
    }
    while (b->orthogonalized < u)
        orthogonalize_next(b);
    while (b->updated + EO_MATRIX_SLOTS <= b->begun)
        finish_update(b);
}

void eo_list_add_step_end(struct list_builder *b)
{
    struct eo_plan *plan = b->plan;
    eo_list_take_in(b, b->pass_count, 0, true);
    if (plan->replicas > 1) /* what went to the replicas just now */
        eo_list_take_in(b, b->pass_count, 0, true);

    eo_list_operation(b, EO_OP_NORM_LOCAL, EO_STREAM_COMPUTE, EO_NONE, EO_NONE, EO_NONE, b->end_fold++);
    for (uint32_t l = 0; l < plan->layer_count; l++)
        if (!plan->layers[l].frozen)
            eo_list_access(b, plan->layers[l].norm_row, EO_READ, eo_subject(SUBJECT_NORM, l), EO_VERSION_STEP, 0, 1);
    /* The step's scalars are uploaded before it. The values are the trainer's kernels': never another content. */
    eo_list_access(b, plan->scalars_row, EO_WRITE, eo_subject(SUBJECT_SCALARS, 0), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, plan->values_row, EO_READ, eo_subject(SUBJECT_VALUES, 0), EO_VERSION_FIXED, 0, 1);
    if (plan->fenced_row != EO_NONE)
        eo_list_access(b, plan->fenced_row, EO_READ, eo_subject(SUBJECT_FENCED, 1), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, plan->norm_local_row, EO_WRITE, eo_subject(SUBJECT_NORM_LOCAL, 0), EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
    eo_list_operation(b, EO_OP_NORM_GATHER, EO_STREAM_COMM, EO_NONE, EO_NONE, EO_NONE, 0);
    eo_list_access(b, plan->norm_local_row, EO_READ, eo_subject(SUBJECT_NORM_LOCAL, 0), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, plan->norm_gathered_row, EO_WRITE, eo_subject(SUBJECT_NORM_GATHERED, 0), EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
    if (plan->fence_row != EO_NONE)
        add_fence(b);
    eo_list_operation(b, EO_OP_NORM_SUM, EO_STREAM_COMPUTE, EO_NONE, EO_NONE, EO_NONE, b->end_fold++);
    eo_list_access(b, plan->norm_gathered_row, EO_READ, eo_subject(SUBJECT_NORM_GATHERED, 0), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, plan->scalars_row, EO_READ, eo_subject(SUBJECT_SCALARS, 0), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, plan->norm_result_row, EO_UPDATE, eo_subject(SUBJECT_NORM_RESULT, 0), EO_VERSION_STEP, 1, 1);
    eo_list_operation_end(b);

    b->end_gather = plan->params.no_prefetch ? b->pass_count : 0;
    b->updated = b->orthogonalized = b->begun = 0;
    for (uint32_t u = 0; u < plan->update_count; u++)
        come_to_update(b, u);
    while (b->updated < plan->update_count)
        finish_update(b);
    add_next_gathers(b, plan->position_count);
}
