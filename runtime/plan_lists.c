/* SPDX-License-Identifier: MIT
 *
 * The order of a step. A step is a row of passes (forward and backward uses of positions, micro-batch after
 * micro-batch); around each pass stand the collectives and the runtime's own operations:
 *
 *     [recompute] [accumulate, norm partial of what was reduced long enough ago] PASS [gathers] [reduce-scatter]
 *
 * - A gather stands directly after the last pass that used its buffer's old content, but at most as many passes ahead
 *   of its use as there are gather buffers. The first ones of a step stand at the end of the step before, after the
 *   update of their layer; in the first-step list at its head.
 * - What a buffer still holds is not gathered again. The rows of edges share their addresses with others, so there
 *   this holds only from one pass to the next.
 * - Gather and reduce-scatter that become ready together: the gather first where there are at least as many gradient
 *   as gather buffers, for then the reduction has until the pass after next; else the reduction first.
 * - A reduce-scatter can only overwrite. The first of a step lands in the gradient shard, later ones in place, and an
 *   accumulate adds the rank's slice before the buffer's next writer.
 *
 * What a strategy changes (plan_strategy.c has the facts):
 *
 * - Resident weights are gathered once a step, directly after the update of their layer, whoever uses them when.
 * - Whole gradients are added to their sum on the compute stream; at the last contribution the sum is reduced.
 * - With replicas the layer's gradient shard is all-reduced when it has all contributions, and taken in after that.
 *
 * What an operation reads and writes stands in its accesses; waits are derived from those (plan_waits.c).
 */
#include "runtime/plan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"

/* Names of contents, for the proof: kind and index. */
enum subject_kind {
    SUBJECT_WEIGHTS,
    SUBJECT_LOW_WEIGHTS,
    SUBJECT_GRADIENT,       /* in the sum row: contributions of this rank or group */
    SUBJECT_FINAL_GRADIENT, /* in the gradient row, where that is not yet the whole world's sum */
    SUBJECT_LOCAL_GRADIENT, /* by position: before the reduction */
    SUBJECT_REDUCED,        /* by position: after it, in place */
    SUBJECT_NORM,
    SUBJECT_NORM_LOCAL,
    SUBJECT_NORM_GATHERED,
    SUBJECT_NORM_RESULT,
    SUBJECT_SCALARS,
    SUBJECT_VALUES,
    SUBJECT_BUFFER,
    SUBJECT_STATE, /* and following */
};

static uint32_t subject(uint32_t kind, uint32_t index)
{
    return kind << 20 | index;
}

/* A use of a position in a step. */
struct pass {
    bool backward;
    bool reads_weights;
    bool resident; /* its weights are still there */
    uint32_t position, micro_batch;
    int64_t gather_after; /* the pass after which its gather stands; < 0: before the first pass */
};

/* A reduced gradient on its way to the shard and the norm. */
struct pending {
    uint32_t pass, position, micro_batch;
    bool accumulate, norm;
    uint32_t due; /* the pass before which it is taken in; pass_count: at the end */
};

struct builder {
    struct eo_plan *plan;
    struct eo_operation *operations;
    uint32_t count, capacity;
    struct eo_access *accesses;
    uint32_t access_count, access_capacity;
    struct plan_place *places;
    uint32_t place_capacity;
    uint32_t next_id;
    uint32_t end_fold, fold_parts;
    struct pass *passes;
    uint32_t pass_count, passes_a_batch;
    uint32_t next_gather; /* the pass whose gather is to be issued next */
    struct pending *pending;
    uint32_t pending_begin, pending_count;
    /* Accesses of passes are the same in every micro-batch. */
    struct access_range {
        uint32_t begin, count;
        bool made;
    } *pass_accesses; /* by moment order */
    uint32_t *buffers_by_first, *first_begin; /* buffer indices sorted by moment, and where each moment begins */
    uint32_t *buffers_by_last, *last_begin;
    bool failed;
};

static bool make_room(void **array, uint32_t *capacity, uint32_t needed, size_t item_bytes)
{
    if (needed <= *capacity)
        return true;
    uint32_t larger = *capacity ? *capacity : 256;
    while (larger < needed)
        larger *= 2;
    void *moved = realloc(*array, larger * item_bytes);
    if (!moved)
        return false;
    *array = moved;
    *capacity = larger;
    return true;
}

static void add_access(struct builder *b, uint32_t row, enum eo_access_mode mode, uint32_t subject_id,
                       enum eo_version_kind kind, int32_t offset, uint16_t scale)
{
    if (!make_room((void **)&b->accesses, &b->access_capacity, b->access_count + 1, sizeof(*b->accesses))) {
        b->failed = true;
        return;
    }
    b->accesses[b->access_count++] = (struct eo_access){
        .row = row,
        .subject = subject_id,
        .version_offset = offset,
        .mode = (uint8_t)mode,
        .version_kind = (uint8_t)kind,
        .version_scale = scale,
    };
}

/* A new operation at the end of the list; its accesses are those added from now on until finish(). */
static struct eo_operation *add_operation(struct builder *b, eo_operation_kind kind, eo_stream_id stream,
                                          uint32_t position, uint32_t layer, uint32_t micro_batch, uint32_t fold)
{
    static struct eo_operation nowhere;
    if (!make_room((void **)&b->operations, &b->capacity, b->count + 1, sizeof(*b->operations)) ||
        !make_room((void **)&b->places, &b->place_capacity, b->next_id + 1, sizeof(*b->places))) {
        b->failed = true;
        return &nowhere;
    }
    struct eo_operation *operation = &b->operations[b->count++];
    *operation = (struct eo_operation){
        .kind = kind,
        .stream = stream,
        .position = position,
        .layer = layer,
        .micro_batch = micro_batch,
        .access_begin = b->access_count,
        .id = b->next_id,
    };
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        operation->wait[s] = EO_NONE;
    const uint32_t last = b->plan->params.micro_batches - 1;
    b->places[b->next_id++] = (struct plan_place){fold, micro_batch == EO_NONE ? last : micro_batch};
    return operation;
}

static void finish(struct builder *b)
{
    if (b->count)
        b->operations[b->count - 1].access_count = b->access_count - b->operations[b->count - 1].access_begin;
}

/* Where an operation stands in the folded step: twice P for forward, thrice P for backward (four times where whole
 * gradients are added up), then the end. */
static uint32_t fold_forward(uint32_t position, bool pass)
{
    return 2 * position + pass;
}

enum { FOLD_RECOMPUTE, FOLD_TAKE_IN, FOLD_BACKWARD, FOLD_ADD, FOLD_PARTS };

static uint32_t fold_backward(const struct builder *b, uint32_t position, uint32_t part)
{
    const uint32_t count = b->plan->position_count;
    return 2 * count + b->fold_parts * (count - 1 - position) + part;
}

static enum eo_version_kind weights_version(const struct plan_layer *layer)
{
    return layer->frozen ? EO_VERSION_FIXED : EO_VERSION_STEP;
}

/* -- passes ------------------------------------------------------------------------------------------------------ */

static bool sort_buffers(struct builder *b, bool by_last, uint32_t **sorted, uint32_t **begin)
{
    const struct eo_plan *plan = b->plan;
    const uint32_t moments = 3 * plan->position_count;
    *sorted = calloc(plan->buffer_count + 1, sizeof(uint32_t));
    *begin = calloc(moments + 2, sizeof(uint32_t));
    if (!*sorted || !*begin)
        return false;
    for (int round = 0; round < 2; round++) { /* count, then fill */
        for (uint32_t i = 0; i < plan->buffer_count; i++) {
            const struct plan_buffer *buffer = &plan->buffers[i];
            if (buffer->persistent)
                continue;
            const uint32_t at = eo_moment_order(by_last ? buffer->last : buffer->first, plan->position_count);
            if (round == 0)
                (*begin)[at + 2]++;
            else
                (*sorted)[(*begin)[at + 1]++] = i;
        }
        if (round == 0)
            for (uint32_t m = 2; m < moments + 2; m++)
                (*begin)[m] += (*begin)[m - 1];
    }
    return true;
}

/* The trainer's buffers that begin or end with this pass; what lies between is ordered by the compute stream. */
static void add_buffer_accesses(struct builder *b, eo_moment moment)
{
    const struct eo_plan *plan = b->plan;
    const uint32_t at = eo_moment_order(moment, plan->position_count);
    for (uint32_t i = b->first_begin[at]; i < b->first_begin[at + 1]; i++) {
        const uint32_t buffer = b->buffers_by_first[i];
        add_access(b, plan->buffers[buffer].row, EO_WRITE, subject(SUBJECT_BUFFER, buffer), EO_VERSION_MICRO_BATCH, 0,
                   1);
    }
    for (uint32_t i = b->last_begin[at]; i < b->last_begin[at + 1]; i++) {
        const uint32_t buffer = b->buffers_by_last[i];
        if (eo_moment_order(plan->buffers[buffer].first, plan->position_count) == at)
            continue; /* scratch of one pass: written, and gone */
        add_access(b, plan->buffers[buffer].row, EO_READ, subject(SUBJECT_BUFFER, buffer), EO_VERSION_MICRO_BATCH, 0,
                   1);
    }
}

static void add_pass_operation(struct builder *b, eo_operation_kind kind, const struct pass *pass)
{
    const struct eo_plan *plan = b->plan;
    const struct plan_position *position = &plan->positions[pass->position];
    const struct plan_layer *layer = &plan->layers[position->layer];
    const eo_pass eo_pass_of[] = {[EO_OP_FORWARD] = EO_PASS_FORWARD,
                                  [EO_OP_RECOMPUTE] = EO_PASS_RECOMPUTE,
                                  [EO_OP_BACKWARD] = EO_PASS_BACKWARD};
    const eo_moment moment = {eo_pass_of[kind], pass->position};
    const uint32_t fold = kind == EO_OP_FORWARD
                              ? fold_forward(pass->position, true)
                              : fold_backward(b, pass->position,
                                              kind == EO_OP_BACKWARD ? FOLD_BACKWARD : FOLD_RECOMPUTE);
    struct eo_operation *operation = add_operation(b, kind, EO_STREAM_COMPUTE, pass->position, position->layer,
                                                   pass->micro_batch, fold);
    struct access_range *range = &b->pass_accesses[eo_moment_order(moment, plan->position_count)];
    if (range->made) {
        operation->access_begin = range->begin;
        operation->access_count = range->count;
        return;
    }
    if (pass->reads_weights)
        add_access(b, position->gather_row, EO_READ, subject(SUBJECT_WEIGHTS, position->layer),
                   weights_version(layer), 0, 1);
    if (kind == EO_OP_BACKWARD && position->direct)
        add_access(b, layer->gradient_row, EO_WRITE, subject(SUBJECT_GRADIENT, position->layer),
                   EO_VERSION_MICRO_BATCH, 0, 1);
    else if (kind == EO_OP_BACKWARD && position->buffer_row != EO_NONE)
        add_access(b, position->buffer_row, EO_WRITE, subject(SUBJECT_LOCAL_GRADIENT, pass->position),
                   EO_VERSION_MICRO_BATCH, 0, 1);
    add_buffer_accesses(b, moment);
    finish(b);
    *range = (struct access_range){operation->access_begin, operation->access_count, true};
}

/* -- collectives --------------------------------------------------------------------------------------------------*/

static void add_gather(struct builder *b, const struct pass *pass, int32_t version_offset)
{
    const struct plan_position *position = &b->plan->positions[pass->position];
    const struct plan_layer *layer = &b->plan->layers[position->layer];
    const enum eo_version_kind kind = weights_version(layer);
    const uint32_t what = subject(SUBJECT_WEIGHTS, position->layer);
    const int32_t offset = layer->frozen ? 0 : version_offset;
    add_operation(b, EO_OP_ALL_GATHER, EO_STREAM_COMM, pass->position, position->layer, pass->micro_batch, 0);
    add_access(b, layer->shard_row, EO_READ, what, kind, offset, 1);
    add_access(b, position->gather_row, EO_WRITE, what, kind, offset, 1);
    finish(b);
}

static void add_gathers_after(struct builder *b, int64_t pass)
{
    for (; b->next_gather < b->pass_count; b->next_gather++) {
        const struct pass *next = &b->passes[b->next_gather];
        if (!next->reads_weights || next->resident)
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
static void read_sum(struct builder *b, uint32_t l)
{
    const struct plan_layer *layer = &b->plan->layers[l];
    add_access(b, layer->sum_row, EO_READ, subject(SUBJECT_GRADIENT, l), EO_VERSION_MICRO_BATCH,
               (int32_t)(b->plan->params.micro_batches * layer->use_count) - 1, (uint16_t)contributions_a_batch(layer));
}

/* What norm and optimizer take. Of operations outside micro-batches, or of the last one. */
static void read_final(struct builder *b, uint32_t l, bool in_batch)
{
    const struct plan_layer *layer = &b->plan->layers[l];
    const int32_t batches = in_batch ? 1 : (int32_t)b->plan->params.micro_batches;
    if (has_final(b->plan, layer))
        add_access(b, layer->gradient_row, EO_READ, subject(SUBJECT_FINAL_GRADIENT, l), EO_VERSION_STEP, 0, 1);
    else
        add_access(b, layer->gradient_row, EO_READ, subject(SUBJECT_GRADIENT, l), EO_VERSION_MICRO_BATCH,
                   batches * (int32_t)layer->use_count - 1, (uint16_t)contributions_a_batch(layer));
}

static eo_stream_id reduce_stream(const struct eo_plan *plan)
{
    return plan->params.separate_reduce_stream ? EO_STREAM_REDUCE : EO_STREAM_COMM;
}

/* The layer's gradient shard has all contributions of the group. */
static void add_all_reduce(struct builder *b, uint32_t position, uint32_t l)
{
    add_operation(b, EO_OP_ALL_REDUCE, reduce_stream(b->plan), position, l, EO_NONE, 0);
    read_sum(b, l);
    add_access(b, b->plan->layers[l].gradient_row, EO_WRITE, subject(SUBJECT_FINAL_GRADIENT, l), EO_VERSION_STEP, 0, 1);
    finish(b);
}

/* A contribution as it was written joins the layer's sum; the last one sends that on its way. */
static void add_whole(struct builder *b, const struct pass *pass, bool first, bool last)
{
    struct eo_plan *plan = b->plan;
    const struct plan_position *position = &plan->positions[pass->position];
    const struct plan_layer *layer = &plan->layers[position->layer];
    struct eo_operation *operation =
        add_operation(b, EO_OP_ACCUMULATE, EO_STREAM_COMPUTE, pass->position, position->layer, pass->micro_batch,
                      fold_backward(b, pass->position, FOLD_ADD));
    operation->whole = true;
    operation->first_gradient = first;
    add_access(b, position->buffer_row, EO_READ, subject(SUBJECT_LOCAL_GRADIENT, pass->position),
               EO_VERSION_MICRO_BATCH, 0, 1);
    add_access(b, layer->sum_row, first ? EO_WRITE : EO_UPDATE, subject(SUBJECT_GRADIENT, position->layer),
               EO_VERSION_MICRO_BATCH, (int32_t)position->use, (uint16_t)contributions_a_batch(layer));
    finish(b);
    if (!last || layer->sum_row == layer->gradient_row)
        return;
    operation = add_operation(b, EO_OP_REDUCE_SCATTER, reduce_stream(plan), pass->position, position->layer, EO_NONE, 0);
    operation->whole = true;
    read_sum(b, position->layer);
    add_access(b, layer->gradient_row, EO_WRITE, subject(SUBJECT_FINAL_GRADIENT, position->layer), EO_VERSION_STEP, 0,
               1);
    finish(b);
}

static void add_reduce_scatter(struct builder *b, const struct pass *pass, bool first, bool in_place)
{
    const struct plan_position *position = &b->plan->positions[pass->position];
    const struct plan_layer *layer = &b->plan->layers[position->layer];
    struct eo_operation *operation = add_operation(b, EO_OP_REDUCE_SCATTER, reduce_stream(b->plan), pass->position,
                                                   position->layer, pass->micro_batch, 0);
    operation->in_place = in_place;
    operation->first_gradient = first;
    add_access(b, position->buffer_row, EO_READ, subject(SUBJECT_LOCAL_GRADIENT, pass->position),
               EO_VERSION_MICRO_BATCH, 0, 1);
    if (in_place)
        add_access(b, position->buffer_row, EO_WRITE, subject(SUBJECT_REDUCED, pass->position),
                   EO_VERSION_MICRO_BATCH, 0, 1);
    else
        add_access(b, layer->gradient_row, EO_WRITE, subject(SUBJECT_GRADIENT, position->layer),
                   EO_VERSION_MICRO_BATCH, (int32_t)position->use, (uint16_t)contributions_a_batch(layer));
    finish(b);
}

/* The reduction of a pass's gradients, and what is to be done with the result, and when. */
static void add_reduction(struct builder *b, uint32_t pass_index)
{
    struct eo_plan *plan = b->plan;
    const struct pass *pass = &b->passes[pass_index];
    const struct plan_position *position = &plan->positions[pass->position];
    const struct plan_layer *layer = &plan->layers[position->layer];
    const bool first = pass->micro_batch == 0 && position->use == 0;
    const bool last =
        pass->micro_batch == plan->params.micro_batches - 1 && position->use == layer->use_count - 1;
    const bool in_place = !layer->whole && (!first || plan->params.reduce_dtype != EO_DTYPE_FP32);

    if (!position->direct && layer->whole)
        add_whole(b, pass, first, last);
    else if (!position->direct)
        add_reduce_scatter(b, pass, first, in_place);
    if (!in_place && !last)
        return;
    if (!in_place && plan->replicas > 1)
        add_all_reduce(b, pass->position, position->layer);

    /* Body: the slot's next writer needs it gone. Edge: soon, for its addresses are wanted; but not before the
     * reduction has had as many passes as there are gradient buffers. */
    uint32_t due = pass_index + plan->params.gradient_slots;
    if (in_place) {
        uint32_t writer = pass_index + 1;
        while (writer < b->pass_count && !(b->passes[writer].backward &&
                                           plan->positions[b->passes[writer].position].buffer_row ==
                                               position->buffer_row))
            writer++;
        due = layer->edge ? (uint32_t)eo_min_u64(due, writer) : writer;
    }
    b->pending[b->pending_begin + b->pending_count++] = (struct pending){
        .pass = pass_index,
        .position = pass->position,
        .micro_batch = pass->micro_batch,
        .accumulate = in_place,
        .norm = last,
        .due = (uint32_t)eo_min_u64(due, b->pass_count),
    };
}

/* -- the runtime's own operations ----------------------------------------------------------------------------------*/

/* It may stand in a later micro-batch than the gradient came from: `standing` is where its time is told. */
static void take_in(struct builder *b, const struct pending *pending, uint32_t fold, uint32_t standing)
{
    struct eo_plan *plan = b->plan;
    const struct plan_position *position = &plan->positions[pending->position];
    const struct plan_layer *layer = &plan->layers[position->layer];
    const uint32_t gradient = subject(SUBJECT_GRADIENT, position->layer);
    const uint16_t scale = (uint16_t)contributions_a_batch(layer);
    struct eo_operation *operation =
        add_operation(b, pending->accumulate ? EO_OP_ACCUMULATE : EO_OP_NORM_PARTIAL, EO_STREAM_COMPUTE,
                      pending->position, position->layer, pending->micro_batch, fold);
    if (!b->failed)
        b->places[operation->id].micro_batch = standing;
    const bool takes_norm = pending->norm && !(pending->accumulate && plan->replicas > 1);
    operation->fused_norm = pending->accumulate && takes_norm;
    operation->first_gradient = pending->micro_batch == 0 && position->use == 0;
    const bool overwrite = operation->first_gradient;
    if (pending->accumulate) {
        add_access(b, position->buffer_row, EO_READ, subject(SUBJECT_REDUCED, pending->position),
                   EO_VERSION_MICRO_BATCH, 0, 1);
        add_access(b, layer->gradient_row, overwrite ? EO_WRITE : EO_UPDATE, gradient, EO_VERSION_MICRO_BATCH,
                   (int32_t)position->use, scale);
    } else {
        read_final(b, position->layer, true);
    }
    if (takes_norm)
        add_access(b, layer->norm_row, EO_WRITE, subject(SUBJECT_NORM, position->layer), EO_VERSION_STEP, 0, 1);
    finish(b);
}

/* What is due before a pass. A gradient that gets its last contribution here, and has replicas, goes to them now, and
 * comes back to be taken in as late as any other reduction. */
static void take_in_due(struct builder *b, uint32_t pass, uint32_t fold, bool at_end)
{
    const uint32_t standing = at_end ? b->plan->params.micro_batches - 1 : b->passes[pass].micro_batch;
    uint32_t kept = b->pending_begin;
    const uint32_t end = b->pending_begin + b->pending_count;
    for (uint32_t i = b->pending_begin; i < end; i++) {
        struct pending pending = b->pending[i];
        if (pending.due > pass) {
            b->pending[kept++] = pending;
            continue;
        }
        take_in(b, &pending, at_end ? b->end_fold++ : fold, standing);
        if (!pending.accumulate || !pending.norm || b->plan->replicas == 1)
            continue;
        add_all_reduce(b, pending.position, b->plan->positions[pending.position].layer);
        pending.accumulate = false;
        pending.due = (uint32_t)eo_min_u64(pass + b->plan->params.gradient_slots, b->pass_count);
        b->pending[kept++] = pending;
    }
    b->pending_count = kept - b->pending_begin;
}

static void add_update(struct builder *b, uint32_t l)
{
    struct eo_plan *plan = b->plan;
    const struct plan_layer *layer = &plan->layers[l];
    add_operation(b, EO_OP_UPDATE, EO_STREAM_COMPUTE, EO_NONE, l, EO_NONE, b->end_fold++);
    read_final(b, l, false);
    add_access(b, plan->norm_result_row, EO_READ, subject(SUBJECT_NORM_RESULT, 0), EO_VERSION_STEP, 0, 1);
    add_access(b, plan->scalars_row, EO_READ, subject(SUBJECT_SCALARS, 0), EO_VERSION_STEP, 0, 1);
    add_access(b, layer->shard_row, EO_UPDATE, subject(SUBJECT_WEIGHTS, l), EO_VERSION_STEP, 1, 1);
    if (layer->master_row != layer->shard_row)
        add_access(b, layer->master_row, EO_UPDATE, subject(SUBJECT_LOW_WEIGHTS, l), EO_VERSION_STEP, 1, 1);
    for (uint32_t k = 0; k < plan->params.optimizer_states; k++)
        add_access(b, layer->state_rows[k], EO_UPDATE, subject(SUBJECT_STATE + k, l), EO_VERSION_STEP, 1, 1);
    finish(b);
}

/* Norm, clip, optimizer; each gather of the next step's first passes directly after the update of its layer. */
static void add_step_end(struct builder *b)
{
    struct eo_plan *plan = b->plan;
    take_in_due(b, b->pass_count, 0, true);
    if (plan->replicas > 1) /* what went to the replicas just now */
        take_in_due(b, b->pass_count, 0, true);

    add_operation(b, EO_OP_NORM_LOCAL, EO_STREAM_COMPUTE, EO_NONE, EO_NONE, EO_NONE, b->end_fold++);
    for (uint32_t l = 0; l < plan->layer_count; l++)
        if (!plan->layers[l].frozen)
            add_access(b, plan->layers[l].norm_row, EO_READ, subject(SUBJECT_NORM, l), EO_VERSION_STEP, 0, 1);
    /* The step's scalars are uploaded before it. The values are the trainer's kernels': never another content. */
    add_access(b, plan->scalars_row, EO_WRITE, subject(SUBJECT_SCALARS, 0), EO_VERSION_STEP, 0, 1);
    add_access(b, plan->values_row, EO_READ, subject(SUBJECT_VALUES, 0), EO_VERSION_FIXED, 0, 1);
    add_access(b, plan->norm_local_row, EO_WRITE, subject(SUBJECT_NORM_LOCAL, 0), EO_VERSION_STEP, 0, 1);
    finish(b);
    add_operation(b, EO_OP_NORM_GATHER, EO_STREAM_COMM, EO_NONE, EO_NONE, EO_NONE, 0);
    add_access(b, plan->norm_local_row, EO_READ, subject(SUBJECT_NORM_LOCAL, 0), EO_VERSION_STEP, 0, 1);
    add_access(b, plan->norm_gathered_row, EO_WRITE, subject(SUBJECT_NORM_GATHERED, 0), EO_VERSION_STEP, 0, 1);
    finish(b);
    add_operation(b, EO_OP_NORM_SUM, EO_STREAM_COMPUTE, EO_NONE, EO_NONE, EO_NONE, b->end_fold++);
    add_access(b, plan->norm_gathered_row, EO_READ, subject(SUBJECT_NORM_GATHERED, 0), EO_VERSION_STEP, 0, 1);
    add_access(b, plan->scalars_row, EO_READ, subject(SUBJECT_SCALARS, 0), EO_VERSION_STEP, 0, 1);
    add_access(b, plan->norm_result_row, EO_WRITE, subject(SUBJECT_NORM_RESULT, 0), EO_VERSION_STEP, 0, 1);
    finish(b);

    uint32_t gather = plan->params.no_prefetch ? b->pass_count : 0;
    for (uint32_t p = 0; p <= plan->position_count; p++) {
        if (p < plan->position_count) {
            const uint32_t l = plan->positions[p].layer;
            if (plan->layers[l].first_position != p || plan->layers[l].frozen)
                continue;
            add_update(b, l);
        }
        /* Gathers keep the order of their use, so one whose layer is not updated yet holds up those behind it. */
        for (; gather < b->pass_count && b->passes[gather].gather_after < 0; gather++) {
            const struct pass *pass = &b->passes[gather];
            const struct plan_layer *layer = &plan->layers[plan->positions[pass->position].layer];
            if (!pass->reads_weights || pass->resident || (plan->resident && layer->frozen))
                continue; /* weights that stay and do not change are there since the first step's list */
            if (!layer->frozen && p < plan->position_count && layer->first_position > p)
                break;
            add_gather(b, pass, 1);
        }
    }
}

/* -- lists ---------------------------------------------------------------------------------------------------------*/

/* Which passes find their weights, and after which pass the others' gathers stand. */
static bool plan_gathers(struct builder *b)
{
    const struct eo_plan *plan = b->plan;
    int64_t *last_user = malloc(plan->row_count * sizeof(*last_user));
    uint32_t *content = malloc(plan->row_count * sizeof(*content));
    if (!last_user || !content) {
        free(last_user);
        free(content);
        return false;
    }
    for (uint32_t r = 0; r < plan->row_count; r++) {
        last_user[r] = -1;
        content[r] = EO_NONE;
    }
    int64_t after = -1;
    const int64_t ahead = plan->params.no_prefetch ? 1 : plan->params.gather_slots;
    for (uint32_t t = 0; t < b->pass_count; t++) {
        struct pass *pass = &b->passes[t];
        pass->gather_after = after; /* of what needs none: as those before it, so that it holds up none behind it */
        if (!pass->reads_weights)
            continue;
        const struct plan_position *position = &plan->positions[pass->position];
        const uint32_t row = position->gather_row;
        if (row == plan->layers[position->layer].shard_row) {
            pass->resident = true;
            continue;
        }
        const bool stays = plan->resident || !plan->layers[position->layer].edge || last_user[row] + 1 >= (int64_t)t;
        pass->resident = content[row] == position->layer && stays;
        if (!pass->resident) {
            const int64_t earliest = plan->resident && !plan->params.no_prefetch ? -1 : (int64_t)t - ahead;
            if (earliest > after)
                after = earliest;
            if (last_user[row] > after)
                after = last_user[row];
            pass->gather_after = after;
        }
        content[row] = position->layer;
        last_user[row] = t;
    }
    free(last_user);
    free(content);
    return true;
}

static bool make_passes(struct builder *b, bool forward_only)
{
    const struct eo_plan *plan = b->plan;
    const uint32_t batches = forward_only ? 1 : plan->params.micro_batches;
    b->pass_count = 0;
    for (uint32_t m = 0; m < batches; m++) {
        for (uint32_t p = 0; p < plan->position_count; p++)
            if (forward_only || !plan->positions[p].forward_in_backward)
                b->passes[b->pass_count++] = (struct pass){.position = p, .micro_batch = m, .reads_weights = true};
        for (uint32_t p = plan->position_count; !forward_only && p-- > 0;)
            b->passes[b->pass_count++] = (struct pass){
                .backward = true,
                .position = p,
                .micro_batch = m,
                .reads_weights = !plan->positions[p].backward_without_weights,
            };
    }
    b->next_gather = 0;
    return plan_gathers(b);
}

static bool keep_list(struct builder *b, eo_list list)
{
    struct eo_operation_list *out = &b->plan->schedule.lists[list];
    out->operations = malloc((b->count + 1) * sizeof(*out->operations));
    if (b->failed || !out->operations)
        return false;
    memcpy(out->operations, b->operations, b->count * sizeof(*out->operations));
    out->count = b->count;
    return true;
}

/* Steady: the body. First: its first gathers, then the body. */
static bool make_training_lists(struct builder *b)
{
    const struct eo_plan *plan = b->plan;
    const bool gather_first = plan->params.gradient_slots >= plan->params.gather_slots;
    if (!make_passes(b, false))
        return false;
    uint32_t prologue = 0;
    if (!plan->params.no_prefetch)
        add_gathers_after(b, -1);
    prologue = b->count;
    for (uint32_t t = 0; t < b->pass_count; t++) {
        const struct pass *pass = &b->passes[t];
        if (plan->params.no_prefetch)
            add_gathers_after(b, (int64_t)t - 1);
        if (!pass->backward) {
            take_in_due(b, t, fold_forward(pass->position, false), false);
            add_pass_operation(b, EO_OP_FORWARD, pass);
        } else {
            add_pass_operation(b, EO_OP_RECOMPUTE, pass);
            take_in_due(b, t, fold_backward(b, pass->position, FOLD_TAKE_IN), false);
            add_pass_operation(b, EO_OP_BACKWARD, pass);
        }
        const bool reduces = pass->backward && plan->positions[pass->position].buffer_row != EO_NONE;
        if (reduces && !gather_first)
            add_reduction(b, t);
        if (!plan->params.no_prefetch)
            add_gathers_after(b, t);
        if (reduces && gather_first)
            add_reduction(b, t);
    }
    add_step_end(b);
    if (b->failed || !keep_list(b, EO_LIST_FIRST))
        return false;
    b->count -= prologue;
    memmove(b->operations, b->operations + prologue, b->count * sizeof(*b->operations));
    return keep_list(b, EO_LIST_STEADY);
}

/* When a forward-only run is at a position, in the order of a training micro-batch. */
static uint32_t forward_moment(const struct eo_plan *plan, uint32_t p)
{
    const eo_pass where = plan->positions[p].forward_in_backward ? EO_PASS_BACKWARD : EO_PASS_FORWARD;
    return eo_moment_order((eo_moment){where, p}, plan->position_count);
}

/* What begins in this pass is written; what began in a forward pass before, and ends before the next, is read. */
static void add_forward_buffers(struct builder *b, uint32_t p)
{
    const struct eo_plan *plan = b->plan;
    const uint32_t now = forward_moment(plan, p);
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const struct plan_buffer *buffer = &plan->buffers[i];
        if (buffer->persistent)
            continue;
        const uint32_t first = eo_moment_order(buffer->first, plan->position_count);
        const uint32_t last = eo_moment_order(buffer->last, plan->position_count);
        const bool ends = p + 1 == plan->position_count || last < forward_moment(plan, p + 1);
        if (eo_begins_in_forward(plan, buffer, p))
            add_access(b, buffer->row, EO_WRITE, subject(SUBJECT_BUFFER, i), EO_VERSION_MICRO_BATCH, 0, 1);
        else if (buffer->first.pass == EO_PASS_FORWARD && first < now && last >= now && ends)
            add_access(b, buffer->row, EO_READ, subject(SUBJECT_BUFFER, i), EO_VERSION_MICRO_BATCH, 0, 1);
    }
}

/* Forward only, on the same rows: each buffer holds from its first pass to the last forward pass of its lifetime. */
static bool make_forward_list(struct builder *b)
{
    const struct eo_plan *plan = b->plan;
    b->count = 0;
    if (!make_passes(b, true))
        return false;
    if (!plan->params.no_prefetch)
        add_gathers_after(b, -1);
    for (uint32_t t = 0; t < b->pass_count; t++) {
        const struct pass *pass = &b->passes[t];
        const struct plan_position *position = &plan->positions[pass->position];
        if (plan->params.no_prefetch)
            add_gathers_after(b, (int64_t)t - 1);
        add_operation(b, EO_OP_FORWARD, EO_STREAM_COMPUTE, pass->position, position->layer, 0, 0);
        add_access(b, position->gather_row, EO_READ, subject(SUBJECT_WEIGHTS, position->layer),
                   weights_version(&plan->layers[position->layer]), 0, 1);
        add_forward_buffers(b, pass->position);
        finish(b);
        if (!plan->params.no_prefetch)
            add_gathers_after(b, t);
    }
    return keep_list(b, EO_LIST_FORWARD);
}

static bool make_schedule_rows(struct eo_plan *plan)
{
    struct eo_schedule *schedule = &plan->schedule;
    schedule->rows = calloc(plan->row_count, sizeof(*schedule->rows));
    if (!schedule->rows)
        return false;
    schedule->row_count = plan->row_count;
    for (uint32_t r = 0; r < plan->row_count; r++)
        schedule->rows[r] = (struct eo_schedule_row){.name = plan->rows[r].name, .bytes = plan->rows[r].bytes};
    schedule->rows[plan->values_row].initialised = true;
    schedule->rows[plan->values_row].initial_subject = subject(SUBJECT_VALUES, 0);
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        const struct plan_layer *layer = &plan->layers[l];
        schedule->rows[layer->shard_row].initialised = true;
        schedule->rows[layer->shard_row].initial_subject = subject(SUBJECT_WEIGHTS, l);
        if (layer->frozen)
            continue;
        if (layer->master_row != layer->shard_row) {
            schedule->rows[layer->master_row].initialised = true;
            schedule->rows[layer->master_row].initial_subject = subject(SUBJECT_LOW_WEIGHTS, l);
        }
        for (uint32_t k = 0; k < plan->params.optimizer_states; k++) {
            schedule->rows[layer->state_rows[k]].initialised = true;
            schedule->rows[layer->state_rows[k]].initial_subject = subject(SUBJECT_STATE + k, l);
        }
    }
    return true;
}

eo_status eo_plan_make_lists(struct eo_plan *plan)
{
    const uint32_t moments = 3 * plan->position_count;
    const uint64_t passes = (uint64_t)plan->params.micro_batches * 2 * plan->position_count;
    const uint32_t fold_parts = plan->whole_gradients ? FOLD_PARTS : FOLD_ADD;
    struct builder b = {.plan = plan, .fold_parts = fold_parts, .end_fold = (2 + fold_parts) * plan->position_count};
    b.passes = calloc(passes, sizeof(*b.passes));
    b.pending = calloc(passes, sizeof(*b.pending));
    b.pass_accesses = calloc(moments, sizeof(*b.pass_accesses));
    const bool ok = b.passes && b.pending && b.pass_accesses &&
                    sort_buffers(&b, false, &b.buffers_by_first, &b.first_begin) &&
                    sort_buffers(&b, true, &b.buffers_by_last, &b.last_begin) && make_training_lists(&b) &&
                    make_forward_list(&b) && make_schedule_rows(plan);
    plan->schedule.accesses = b.accesses;
    plan->schedule.access_count = b.access_count;
    plan->schedule.id_count = b.next_id;
    plan->schedule.micro_batches = plan->params.micro_batches;
    plan->places = b.places;
    plan->fold_count = b.end_fold;
    plan->batch_fold_count = (2 + fold_parts) * plan->position_count;
    free(b.operations);
    free(b.passes);
    free(b.pending);
    free(b.pass_accesses);
    free(b.buffers_by_first);
    free(b.first_begin);
    free(b.buffers_by_last);
    free(b.last_begin);
    return ok && !b.failed ? EO_OK : EO_ERR_NO_MEMORY;
}
