/* SPDX-License-Identifier: MIT
 *
 * Passes and gathers in a list: what each reads and writes.
 */
#include "runtime/plan/list/builder.h"

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
    const bool has_gradients = kind == EO_OP_BACKWARD && !b->inputs_alone;
    if (range->made && (kind != EO_OP_BACKWARD || has_gradients)) {
        operation->access_begin = range->begin;
        operation->access_count = range->count;
        return;
    }
    if (pass->reads_weights)
        eo_list_read_weights(b, position);
    if (has_gradients && position->adds_to != EO_NONE)
        eo_list_access(b, position->buffer_row, EO_READ, eo_subject(SUBJECT_LOCAL_GRADIENT, position->adds_to),
                       EO_VERSION_MICRO_BATCH, 0, 1);
    if (has_gradients && position->direct && position->contributes)
        eo_list_access(b, layer->gradient_row, EO_WRITE, eo_subject(SUBJECT_GRADIENT, position->layer), EO_VERSION_MICRO_BATCH,
                       0, (uint16_t)layer->contribution_count);
    else if (has_gradients && position->buffer_row != EO_NONE)
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
        const struct plan_layer *part = &b->plan->layers[layer->frozen_part];
        const uint32_t frozen = eo_subject(part->float8_gather ? SUBJECT_NARROW_WEIGHTS : SUBJECT_WEIGHTS, layer->frozen_part);
        eo_list_access(b, part->float8_gather ? part->narrow_row : part->shard_row, EO_READ, frozen, EO_VERSION_FIXED, 0, 1);
        eo_list_access(b, position->frozen_narrow_row, EO_WRITE, frozen, EO_VERSION_FIXED, 0, 1);
    }
}

void eo_list_add_gather(struct list_builder *b, const struct list_pass *pass, int32_t version_offset)
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

static void add_widening(struct list_builder *b, const struct list_pass *pass, uint32_t l, uint32_t from, uint32_t to, uint32_t fold)
{
    const enum eo_version_kind kind = eo_weights_version(&b->plan->layers[l]);
    eo_list_operation(b, EO_OP_WIDEN, EO_STREAM_COMPUTE, pass->position, l, pass->micro_batch, fold);
    eo_list_access(b, from, EO_READ, eo_subject(SUBJECT_NARROW_WEIGHTS, l), kind, 0, 1);
    eo_list_access(b, to, EO_WRITE, eo_subject(SUBJECT_WEIGHTS, l), kind, 0, 1);
    eo_list_operation_end(b);
}

void eo_list_add_widening(struct list_builder *b, const struct list_pass *pass, uint32_t fold)
{
    const struct plan_position *position = &b->plan->positions[pass->position];
    const uint32_t l = position->layer;
    if (pass->widens)
        add_widening(b, pass, l, position->narrow_row, position->gather_row, fold);
    if (pass->widens_frozen)
        add_widening(b, pass, b->plan->layers[l].frozen_part, position->frozen_narrow_row, position->frozen_gather_row, fold);
}

void eo_list_add_gathers(struct list_builder *b, int64_t pass)
{
    for (; b->next_gather < b->pass_count; b->next_gather++) {
        const struct list_pass *next = &b->passes[b->next_gather];
        if (!next->reads_weights || next->resident || next->is_brought)
            continue;
        if (next->gather_after > pass || (b->holds_late && eo_list_is_late(b->plan, next)))
            return;
        eo_list_add_late_updates(b, next);
        eo_list_add_gather(b, next, 0);
    }
}
