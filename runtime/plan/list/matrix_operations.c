/* SPDX-License-Identifier: MIT
 *
 * Muon's operations of a layer with matrices, before its update:
 *
 *     compute      direction                    orthogonalization                      update
 *     gathers                 gather of matrices
 *     reductions                                                  scatter of matrices
 *
 * Where a rank has all of a layer it works on its own row, and nothing travels.
 */
#include "runtime/plan/list/builder.h"

/* Reads the momentum and leaves it alone: the update makes it anew, and no step that is skipped has to take it back. */
void eo_list_add_direction(struct list_builder *b, uint32_t l)
{
    const struct eo_plan *plan = b->plan;
    const struct plan_layer *layer = &plan->layers[l];
    eo_list_operation(b, EO_OP_DIRECTION, EO_STREAM_COMPUTE, EO_NONE, l, EO_NONE, b->end_fold++);
    eo_list_read_final(b, l, false);
    eo_list_access(b, plan->norm_result_row, EO_READ, eo_subject(SUBJECT_NORM_RESULT, 0), EO_VERSION_STEP, 1, 1);
    eo_list_access(b, plan->scalars_row, EO_READ, eo_subject(SUBJECT_SCALARS, 0), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, layer->state_rows[0], EO_READ, eo_subject(SUBJECT_STATE, l), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, layer->direction_row, EO_WRITE, eo_subject(SUBJECT_DIRECTION, l), EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
    if (layer->matrices_row == layer->direction_row)
        return;
    eo_list_operation(b, EO_OP_MATRIX_GATHER, EO_STREAM_COMM, EO_NONE, l, EO_NONE, 0);
    eo_list_access(b, layer->direction_row, EO_READ, eo_subject(SUBJECT_DIRECTION, l), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, layer->matrices_row, EO_WRITE, eo_subject(SUBJECT_MATRICES, l), EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
}

void eo_list_add_orthogonalization(struct list_builder *b, uint32_t l)
{
    const struct eo_plan *plan = b->plan;
    const struct plan_layer *layer = &plan->layers[l];
    const bool alone = layer->matrices_row == layer->direction_row;
    eo_list_operation(b, EO_OP_ORTHOGONALIZE, EO_STREAM_COMPUTE, EO_NONE, l, EO_NONE, b->end_fold++);
    eo_list_access(b, layer->matrices_row, EO_READ, eo_subject(alone ? SUBJECT_DIRECTION : SUBJECT_MATRICES, l),
                   EO_VERSION_STEP, 0, 1);
    eo_list_access(b, layer->matrices_row, EO_WRITE, eo_subject(alone ? SUBJECT_STEP_DIRECTION : SUBJECT_ORTHOGONAL, l),
                   EO_VERSION_STEP, 0, 1);
    eo_list_access(b, plan->orthogonal_row, EO_WRITE, eo_subject(SUBJECT_MATRIX_SCRATCH, l), EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
    if (alone)
        return;
    eo_list_operation(b, EO_OP_MATRIX_SCATTER, eo_list_reduce_stream(plan), EO_NONE, l, EO_NONE, 0);
    /* Until it has ended, peers may read the direction. */
    eo_list_access(b, layer->direction_row, EO_READ, eo_subject(SUBJECT_DIRECTION, l), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, layer->matrices_row, EO_READ, eo_subject(SUBJECT_ORTHOGONAL, l), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, layer->matrices_row, EO_WRITE, eo_subject(SUBJECT_STEP_DIRECTION, l), EO_VERSION_STEP, 0, 1);
    eo_list_operation_end(b);
}
