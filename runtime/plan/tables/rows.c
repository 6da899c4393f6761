/* SPDX-License-Identifier: MIT
 *
 * Rows of shards, of Muon's matrices, of the norm and of the trainer's buffers.
 */
#include "runtime/plan/tables/tables.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/check.h"

eo_status eo_plan_add_row(struct eo_plan *plan, uint32_t *out, eo_category category, eo_space space, uint64_t bytes,
                          bool always_live, const char *format, ...)
{
    if (plan->row_count == plan->row_capacity) {
        const uint32_t larger = plan->row_capacity ? plan->row_capacity * 2 : 256;
        struct plan_row *moved = realloc(plan->rows, larger * sizeof(*moved));
        if (!moved)
            return EO_ERR_NO_MEMORY;
        plan->rows = moved;
        plan->row_capacity = larger;
    }
    const uint64_t room = eo_align_up(bytes, eo_max_u64(plan->params.align_bytes, EO_DISK_ALIGN));
    EO_REQUIRE(&plan->log, room <= EO_ROWS_BYTES_MAX - plan->rows_bytes,
               "the plan of model '%s' has more than 2^61 bytes a rank; more ranks, or smaller layers and buffers, have less",
               plan->model_name);
    plan->rows_bytes += room;
    struct plan_row *row = &plan->rows[plan->row_count];
    *row = (struct plan_row){
        .category = category,
        .space = space,
        .bytes = bytes,
        .always_live = always_live,
        .first_operation = EO_NONE,
        .last_operation = EO_NONE,
    };
    va_list arguments;
    va_start(arguments, format);
    if (!plan->params.draft) /* nobody reads the names of a draft, and they would be a sixth of its time */
        vsnprintf(row->name, sizeof(row->name), format, arguments);
    va_end(arguments);
    *out = plan->row_count++;
    return EO_OK;
}

static eo_status add_state_row(struct eo_plan *plan, uint32_t l, uint32_t k)
{
    struct plan_layer *layer = &plan->layers[l];
    uint64_t count = layer->layout.shard_count;
    if (eo_plan_is_sparse(layer, k))
        EO_TRY(eo_plan_second_count(plan, l, &count));
    const uint64_t bytes = eo_plan_state_bytes(plan, k, count);
    if (k == plan->ema_state)
        return eo_plan_add_row(plan, &layer->state_rows[k], EO_CATEGORY_OPTIMIZER, EO_SPACE_PRIVATE, bytes, true, "ema.%s",
                               layer->name);
    return eo_plan_add_row(plan, &layer->state_rows[k], EO_CATEGORY_OPTIMIZER, EO_SPACE_PRIVATE, bytes, true, "state%u.%s", k,
                           layer->name);
}

eo_status eo_plan_make_shard_rows(struct eo_plan *plan)
{
    const bool split = plan->params.dtype == EO_DTYPE_BF16;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct plan_layer *layer = &plan->layers[l];
        const uint64_t count = layer->layout.shard_count;
        layer->master_row = layer->gradient_row = layer->sum_row = layer->norm_row = layer->narrow_row = EO_NONE;
        if (layer->float8_frozen) { /* all there is of it */
            layer->shard_row = EO_NONE;
        } else if (split) {
            EO_TRY(eo_plan_add_row(plan, &layer->shard_row, EO_CATEGORY_COMPUTE_SHARD, EO_SPACE_GATHER, count * 2, true,
                                   "weights.high.%s", layer->name));
            /* Frozen weights never move, so there is no remainder to remember. */
            if (!layer->frozen && !eo_plan_is_offloaded(plan, l))
                EO_TRY(eo_plan_add_row(plan, &layer->master_row, EO_CATEGORY_MASTER, EO_SPACE_PRIVATE, count * 2, true,
                                       "weights.low.%s", layer->name));
        } else {
            EO_TRY(eo_plan_add_row(plan, &layer->shard_row, EO_CATEGORY_MASTER, EO_SPACE_GATHER, count * 4, true, "weights.%s",
                                   layer->name));
            layer->master_row = layer->shard_row;
        }
        /* Made once a step, and not once a gather: a conversion in place of two in each micro-batch, and no gather waits for
         * the compute stream. */
        if (layer->float8_gather)
            EO_TRY(eo_plan_add_row(plan, &layer->narrow_row, EO_CATEGORY_COMPUTE_SHARD, EO_SPACE_GATHER, layer->narrow_bytes,
                                   true, "weights.%s.%s", layer->float8_frozen ? "mxfp8" : "float8", layer->name));
        if (layer->frozen)
            continue;
        /* With one micro-batch a gradient lives from its reduction to its update: activations lie there before. A late update
         * is of the next step, or of no list of a step: the gradient stays. */
        const bool is_late = plan->params.late_updates && eo_plan_is_offloaded(plan, l);
        if (!eo_plan_offloads_gradient(plan, l))
            EO_TRY(eo_plan_add_row(plan, &layer->gradient_row, EO_CATEGORY_GRADIENT, EO_SPACE_GRADIENT, count * 4, is_late,
                                   "gradient.%s", layer->name));
        layer->sum_row = layer->gradient_row;
        for (uint32_t k = 0; k < plan->state_count && !eo_plan_is_offloaded(plan, l); k++)
            EO_TRY(add_state_row(plan, l, k));
        EO_TRY(eo_plan_add_row(plan, &layer->norm_row, EO_CATEGORY_OTHER, EO_SPACE_PRIVATE,
                               eo_plan_layer_sums(plan, layer) * sizeof(double), true, "norm.%s", layer->name));
    }
    return EO_OK;
}

/* Where gradients stay whole until the last contribution, a rank that keeps a part of them has a row for their sum. What
 * has one contribution a step is reduced from its buffer: there is nothing to add up. */
eo_status eo_plan_make_sum_rows(struct eo_plan *plan)
{
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct plan_layer *layer = &plan->layers[l];
        const bool is_sum = layer->contribution_count * plan->params.micro_batches > 1;
        layer->whole = plan->whole_gradients && !layer->frozen && (is_sum || plan->params.shard_group == 1);
        if (layer->whole && plan->params.shard_group > 1)
            EO_TRY(eo_plan_add_row(plan, &layer->sum_row, EO_CATEGORY_GRADIENT, EO_SPACE_GRADIENT,
                                   layer->layout.padded_count * sizeof(float), false, "sum.%s", layer->name));
    }
    return EO_OK;
}

/* No more than a layer has: small models are not to be decided by it. */
uint64_t eo_plan_staging_bytes(const struct eo_plan *plan)
{
    uint64_t count = 0;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        count = eo_max_u64(count, plan->layers[l].layout.shard_count);
    const uint64_t bytes = eo_max_u64(EO_STAGING_BYTES_MIN, eo_align_up(2 * sizeof(float) * count, 64));
    return eo_min_u64(EO_STAGING_BYTES_MAX, bytes);
}

/* Peers read a rank's norm until they have ended the gather. A reduction of the next step over the whole group comes after
 * that, on all ranks; where no layer has one there is a fence. */
static eo_status make_fence_rows(struct eo_plan *plan)
{
    bool trains = false;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        trains = trains || (!plan->layers[l].frozen && eo_plan_layer_ranks(plan, &plan->layers[l]) == plan->params.shard_group);
    plan->fence_row = plan->fenced_row = EO_NONE;
    if (trains || plan->params.rank_count == 1)
        return EO_OK;
    EO_TRY(eo_plan_add_row(plan, &plan->fence_row, EO_CATEGORY_OTHER, EO_SPACE_GATHER, sizeof(double), true, "norm.fence"));
    return eo_plan_add_row(plan, &plan->fenced_row, EO_CATEGORY_OTHER, EO_SPACE_GATHER,
                           sizeof(double) * plan->params.rank_count, true, "norm.fenced");
}

/* Muon's, taken by the layers in turn. Activations lie there before. */
eo_status eo_plan_make_matrix_rows(struct eo_plan *plan)
{
    uint64_t part_counts[EO_MATRIX_SLOTS] = {0}, counts[EO_MATRIX_SLOTS] = {0};
    uint32_t parts[EO_MATRIX_SLOTS], matrices[EO_MATRIX_SLOTS], slot = 0;
    plan->orthogonal_row = EO_NONE;
    for (int round = 0; round < 2; round++) {
        for (uint32_t s = 0; round == 1 && s < EO_MATRIX_SLOTS && part_counts[s]; s++) {
            EO_TRY(eo_plan_add_row(plan, &parts[s], EO_CATEGORY_SCRATCH, EO_SPACE_GRADIENT, part_counts[s] * sizeof(float),
                                   false, "muon.part%u", s));
            matrices[s] = parts[s];
            if (counts[s] > part_counts[s])
                EO_TRY(eo_plan_add_row(plan, &matrices[s], EO_CATEGORY_SCRATCH, EO_SPACE_GRADIENT, counts[s] * sizeof(float),
                                       false, "muon.matrices%u", s));
        }
        slot = 0;
        for (uint32_t u = 0; u < plan->update_count; u++) {
            struct plan_layer *layer = &plan->layers[plan->updates[u]];
            if (!layer->has_matrices)
                continue;
            const uint32_t s = plan->params.shard_group > 1 ? slot++ % EO_MATRIX_SLOTS : 0;
            part_counts[s] = eo_max_u64(part_counts[s], layer->layout.shard_count);
            counts[s] = eo_max_u64(counts[s], layer->layout.padded_count);
            layer->direction_row = parts[s];
            layer->matrices_row = matrices[s];
        }
    }
    return part_counts[0] == 0 ? EO_OK
                               : eo_plan_add_row(plan, &plan->orthogonal_row, EO_CATEGORY_SCRATCH, EO_SPACE_PRIVATE,
                                                 eo_plan_orthogonal_bytes(plan), false, "muon.scratch");
}

eo_status eo_plan_make_other_rows(struct eo_plan *plan, const struct eo_model *model)
{
    const uint64_t norm_bytes = eo_plan_norm_bytes(plan);
    EO_TRY(eo_plan_add_row(plan, &plan->norm_local_row, EO_CATEGORY_OTHER, EO_SPACE_GATHER, norm_bytes, true, "norm.local"));
    EO_TRY(eo_plan_add_row(plan, &plan->norm_gathered_row, EO_CATEGORY_OTHER, EO_SPACE_GATHER,
                           norm_bytes * plan->params.rank_count, true, "norm.gathered"));
    EO_TRY(make_fence_rows(plan));
    EO_TRY(eo_plan_add_row(plan, &plan->norm_result_row, EO_CATEGORY_OTHER, EO_SPACE_PRIVATE, eo_plan_result_bytes(plan), true,
                           "norm.result"));
    EO_TRY(eo_plan_add_row(plan, &plan->scalars_row, EO_CATEGORY_OTHER, EO_SPACE_PRIVATE, eo_plan_scalars_bytes(plan), true,
                           "step.scalars"));
    plan->next_scalars_row = EO_NONE;
    if (plan->params.late_updates) /* a recorded step's, while the updates left of the one before read theirs */
        EO_TRY(eo_plan_add_row(plan, &plan->next_scalars_row, EO_CATEGORY_OTHER, EO_SPACE_PRIVATE, eo_plan_scalars_bytes(plan), true,
                               "step.scalars.next"));
    EO_TRY(eo_plan_add_row(plan, &plan->values_row, EO_CATEGORY_OTHER, EO_SPACE_PRIVATE, EO_STEP_VALUES * sizeof(double), true,
                           "step.values"));
    plan->buffer_count = model->buffer_count;
    plan->buffers = calloc(model->buffer_count + 1, sizeof(*plan->buffers));
    if (!plan->buffers)
        return EO_ERR_NO_MEMORY;
    eo_plan_find_saved(plan, model);
    EO_TRY(eo_plan_make_saved_rows(plan, model));
    for (uint32_t b = 0; b < model->buffer_count; b++) {
        const struct model_buffer *from = &model->buffers[b];
        struct plan_buffer *to = &plan->buffers[b];
        to->first = from->first;
        to->last = from->last;
        to->persistent = from->persistent;
        to->saved = from->saved;
        if (to->shared)
            continue;
        EO_TRY(
            eo_plan_add_row(plan, &to->row, from->category, EO_SPACE_PRIVATE, from->bytes, from->persistent, "%s", from->name));
    }
    plan->host_row_begin = plan->row_count;
    EO_TRY(eo_plan_add_row(plan, &plan->host_steps_row, EO_CATEGORY_OTHER, EO_SPACE_HOST,
                           EO_HOST_STEPS * (eo_plan_scalars_bytes(plan) + eo_plan_result_bytes(plan)), true, "host.steps"));
    EO_TRY(eo_plan_add_row(plan, &plan->staging_row, EO_CATEGORY_OTHER, EO_SPACE_HOST,
                           EO_STAGING_PIECES * eo_plan_staging_bytes(plan), true, "host.staging"));
    return eo_plan_make_disk_rows(plan, model);
}
