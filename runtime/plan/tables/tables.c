/* SPDX-License-Identifier: MIT
 *
 * Checks the model, and has the tables made, each from those before it.
 */
#include "runtime/plan/tables/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static bool is_used_later(const struct eo_model *model, uint32_t position)
{
    for (uint32_t p = position + 1; p < model->position_count; p++)
        if (model->positions[p].layer == model->positions[position].layer)
            return true;
    return false;
}

static bool trains(const struct model_layer *layer)
{
    return !layer->frozen && layer->frozen_count < layer->parameter_count;
}

static eo_status check_model(const struct eo_plan *plan, const struct eo_model *model)
{
    static const char *const passes[] = {"forward", "recompute", "backward"}; /* by eo_pass */
    const eo_log *log = &plan->log;
    EO_REQUIRE(log, model->layer_count > 0, "model '%s' has no layers", model->name);
    EO_REQUIRE(log, model->position_count > 0, "model '%s' has no positions, so nothing would run", model->name);
    for (uint32_t l = 0; l < model->layer_count; l++) {
        EO_REQUIRE(log, model->layers[l].parameter_count > 0,
                   "layer '%s' has no parameters; work without parameters belongs to the pass of a neighbour",
                   model->layers[l].name);
        uint32_t uses = 0;
        for (uint32_t p = 0; p < model->position_count; p++)
            uses += model->positions[p].layer == l;
        EO_REQUIRE(log, uses > 0, "layer '%s' has no position, so nothing would use it", model->layers[l].name);
    }
    bool any_adds = false;
    for (uint32_t p = 0; p < model->position_count; p++) {
        const struct model_position *position = &model->positions[p];
        if (!position->adds_gradients)
            continue;
        EO_REQUIRE(log, is_used_later(model, p),
                   "position '%s' adds gradients, but no later position uses layer '%s': there is nothing to add to",
                   position->name, model->layers[position->layer].name);
        any_adds = any_adds || trains(&model->layers[position->layer]);
    }
    EO_REQUIRE(log, any_adds || !plan->params.gradients_apart,
               "gradients_apart would have no effect: no position adds to the gradients of another; leave it out");
    for (uint32_t b = 0; b < model->buffer_count; b++) {
        const struct model_buffer *buffer = &model->buffers[b];
        if (buffer->persistent)
            continue;
        const eo_moment ends[2] = {buffer->first, buffer->last};
        for (int e = 0; e < 2; e++) {
            EO_REQUIRE(log, (unsigned)ends[e].pass <= EO_PASS_BACKWARD, "buffer '%s' names pass %d; passes are forward, "
                       "recompute and backward", buffer->name, (int)ends[e].pass);
            EO_REQUIRE(log, ends[e].position < model->position_count,
                       "buffer '%s' names position %u, but the model has %u", buffer->name, ends[e].position,
                       model->position_count);
            EO_REQUIRE(log,
                       ends[e].pass != EO_PASS_FORWARD || !model->positions[ends[e].position].forward_in_backward,
                       "buffer '%s' names the forward pass of '%s', but it runs in its backward pass", buffer->name,
                       model->positions[ends[e].position].name);
        }
        EO_REQUIRE(
            log, eo_moment_order(buffer->first, model->position_count) <= eo_moment_order(buffer->last, model->position_count),
            "buffer '%s' ends before it begins: it lives from %s of '%s' to %s of '%s', and backward passes run from the last "
            "position down to the first",
            buffer->name, passes[buffer->first.pass], model->positions[buffer->first.position].name, passes[buffer->last.pass],
            model->positions[buffer->last.position].name);
        EO_REQUIRE(log,
                   !buffer->saved || (buffer->first.pass == EO_PASS_FORWARD && buffer->last.pass != EO_PASS_FORWARD &&
                                      buffer->first.position == buffer->last.position),
                   "buffer '%s' is saved, but lives from elsewhere than the forward to the backward pass of one position",
                   buffer->name);
    }
    return EO_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct plan_row *one = *(const struct plan_row *const *)a, *other = *(const struct plan_row *const *)b;
    const int order = strcmp(one->name, other->name);
    return order ? order : one < other ? -1 : 1;
}

/* Uses of one layer may share a name, and a trainer may call a buffer as we call a row: all but the first are numbered. */
static eo_status make_names_unique(struct eo_plan *plan)
{
    struct plan_row **rows = calloc(plan->row_count, sizeof(*rows));
    if (!rows)
        return EO_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < plan->row_count; r++)
        rows[r] = &plan->rows[r];
    for (bool found = true; found;) { /* a new name may be taken too; each round makes them longer than a trainer's */
        found = false;
        qsort(rows, plan->row_count, sizeof(*rows), by_name);
        for (uint32_t first = 0, r = 1; r < plan->row_count; r++) {
            if (strcmp(rows[first]->name, rows[r]->name) != 0) {
                first = r;
                continue;
            }
            const size_t used = strlen(rows[r]->name);
            snprintf(rows[r]->name + used, sizeof(rows[r]->name) - used, " #%u", r - first + 1);
            found = true;
        }
    }
    free(rows);
    return EO_OK;
}

/* Frozen ones have no use for it. */
static void warn_without_matrices(const struct eo_plan *plan)
{
    bool has_matrix = plan->params.optimizer != EO_OPTIMIZER_MUON;
    for (uint32_t g = 0; g < plan->group_count; g++)
        has_matrix = has_matrix || plan->groups[g].matrix;
    if (!has_matrix)
        eo_log_write(&plan->log, EO_LOG_WARN,
                     "optimizer muon: no parameter has `matrix` (eo_parameter_params), so AdamW trains them all");
}

eo_status eo_plan_make_tables(struct eo_plan *plan, const struct eo_model *model)
{
    memcpy(plan->model_name, model->name, EO_NAME_MAX);
    EO_TRY(check_model(plan, model));
    EO_TRY(eo_plan_make_layers(plan, model));
    warn_without_matrices(plan);
    EO_TRY(eo_plan_take_float8(plan));
    EO_TRY(eo_plan_own_matrices(plan));
    eo_plan_find_edges(plan, model);
    EO_TRY(eo_plan_make_positions(plan, model));
    EO_TRY(eo_plan_make_updates(plan));
    EO_TRY(eo_plan_make_shard_rows(plan));
    EO_TRY(eo_plan_make_offload_rows(plan));
    EO_TRY(eo_plan_make_gradient_slots(plan));
    EO_TRY(eo_plan_make_sum_rows(plan));
    EO_TRY(eo_plan_make_buffer_rows(plan));
    EO_TRY(eo_plan_make_frozen_rows(plan));
    EO_TRY(eo_plan_make_matrix_rows(plan));
    EO_TRY(eo_plan_make_other_rows(plan, model));
    return plan->params.draft ? EO_OK : make_names_unique(plan);
}
