/* SPDX-License-Identifier: MIT
 *
 * The end of a step: norm and clip, Muon's matrices, each layer's update, and the gathers of the next step behind it.
 */
#include "runtime/plan/list/builder.h"

/* At the end of a step one after the other; a late update is beside the pass that it stands before. */
static uint32_t next_fold(struct list_builder *b)
{
    if (!b->is_late)
        return b->end_fold++;
    const struct list_pass *pass = b->late_pass;
    return pass->backward ? eo_fold_before_backward(b, pass->position) : eo_fold_forward(pass->position, false);
}

static void add_update(struct list_builder *b, uint32_t l)
{
    struct eo_plan *plan = b->plan;
    const struct plan_layer *layer = &plan->layers[l];
    eo_list_operation(b, EO_OP_UPDATE, EO_STREAM_COMPUTE, EO_NONE, l, EO_NONE, next_fold(b));
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
        eo_list_access(b, layer->matrices_row, EO_READ, eo_subject(SUBJECT_STEP_DIRECTION, l), EO_VERSION_STEP, 0, 1);
    for (uint32_t k = 0; layer->offload_row == EO_NONE && k < plan->state_count; k++)
        eo_list_access(b, layer->state_rows[k], EO_UPDATE, eo_subject(SUBJECT_STATE + k, l), EO_VERSION_STEP, 1, 1);
    eo_list_operation_end(b);
    if (!layer->float8_gather)
        return;
    eo_list_operation(b, EO_OP_NARROW, EO_STREAM_COMPUTE, EO_NONE, l, EO_NONE, next_fold(b));
    eo_list_access(b, layer->shard_row, EO_READ, eo_subject(SUBJECT_WEIGHTS, l), EO_VERSION_STEP, 1, 1);
    eo_list_access(b, layer->narrow_row, EO_WRITE, eo_subject(SUBJECT_NARROW_WEIGHTS, l), EO_VERSION_STEP, 1, 1);
    eo_list_operation_end(b);
}

/* The update, and if its layer is offloaded its way back, after which the buffer is free for a later one. */
void eo_list_add_offloaded_update(struct list_builder *b, uint32_t update)
{
    const struct eo_plan *plan = b->plan;
    const uint32_t l = plan->updates[update], next = update + plan->params.offload_slots;
    const bool is_offloaded = update >= plan->offload_begin, prefetches = !plan->params.no_prefetch;
    if (is_offloaded && !prefetches)
        eo_list_add_copy(b, EO_OP_FETCH, l);
    add_update(b, l);
    if (is_offloaded)
        eo_list_add_copy(b, EO_OP_EVICT, l);
    if (is_offloaded && prefetches && next < plan->update_count)
        eo_list_add_copy(b, EO_OP_FETCH, plan->updates[next]);
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
    return plan->resident && layer->frozen && (!layer->float8_gather || layer->float8_frozen);
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
        if (eo_list_is_late(plan, pass) || (p < plan->position_count && !are_updated(plan, pass, p)))
            return;
        eo_list_add_gather(b, pass, 1);
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
    eo_list_add_offloaded_update(b, b->updated++);
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
    const uint32_t update_count = plan->params.late_updates ? plan->offload_begin : plan->update_count;
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
    for (uint32_t u = 0; u < update_count; u++)
        come_to_update(b, u);
    while (b->updated < update_count)
        finish_update(b);
    add_next_gathers(b, plan->position_count);
}
