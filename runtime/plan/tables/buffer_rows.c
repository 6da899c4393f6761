/* SPDX-License-Identifier: MIT
 *
 * Rows that gathers fill and that reductions read: slots for the body, rows of their own for edges, and full weights that
 * stay.
 */
#include "runtime/plan/tables/tables.h"

#include "base/arithmetic.h"
#include "base/check.h"

/* With one rank a shard is the layer: there is nothing to gather, nor to reduce if it is written once a step. */
static void find_direct(struct eo_plan *plan, bool alone)
{
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        position->buffer_row = EO_NONE;
        if (alone)
            position->gather_row = position->narrow_row = layer->shard_row;
        position->direct = alone && !layer->frozen && layer->use_count == 1 && plan->params.micro_batches == 1 &&
                           plan->params.reduce_dtype == EO_DTYPE_FP32;
        if (position->direct)
            position->buffer_row = layer->gradient_row;
    }
}

/* Full weights that stay: a row a layer, whatever uses it. */
static eo_status make_resident_rows(struct eo_plan *plan)
{
    const uint64_t bytes = eo_dtype_bytes(plan->params.dtype);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        position->gather_row = plan->positions[layer->first_position].gather_row;
        if (layer->first_position == p)
            EO_TRY(eo_plan_add_row(plan, &position->gather_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER,
                                   layer->layout.padded_count * bytes, true, "gather.%s", layer->name));
        position->narrow_row = position->gather_row;
    }
    return EO_OK;
}

/* What a gather of the layer brings; 0 where there is none, or where it lands in the weights that stay. */
static uint64_t gathered_bytes(const struct eo_plan *plan, const struct plan_layer *layer)
{
    if (layer->float8_gather)
        return layer->narrow_bytes * eo_plan_layer_ranks(plan, layer);
    return plan->params.shard_group == 1 || plan->resident ? 0
                                                           : layer->layout.padded_count * eo_dtype_bytes(plan->params.dtype);
}

/* Of a layer whose gather lands in `narrow_row`: widened weights have a row for all of the body, one for each edge. */
static eo_status place_gather(struct eo_plan *plan, struct plan_position *position, uint32_t narrow_row, uint32_t *body_row)
{
    const struct plan_layer *layer = &plan->layers[position->layer];
    position->narrow_row = narrow_row;
    if (!layer->float8_gather)
        position->gather_row = narrow_row;
    else if (!plan->resident && layer->edge)
        return eo_plan_add_row(plan, &position->gather_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER,
                               layer->layout.padded_count * sizeof(uint16_t), false, "gather.%s.widened", position->name);
    else if (!plan->resident)
        position->gather_row = *body_row;
    return EO_OK;
}

/* Slots for the body, as many for each as positions go in one collective, sized by the largest layer that uses each; rows of
 * their own for edges, one a position. */
eo_status eo_plan_make_buffer_rows(struct eo_plan *plan)
{
    const bool alone = plan->params.shard_group == 1;
    const uint32_t gather_slots = plan->params.gather_slots * plan->params.gather_run;
    const uint32_t gradient_slots = plan->params.gradient_slots * plan->params.gradient_run;
    const uint64_t reduce_bytes = eo_dtype_bytes(plan->params.reduce_dtype);
    uint64_t gather_bytes[64] = {0}, gradient_count[64] = {0}, widened_count = 0;
    uint32_t gather_row[64], gradient_row[64], widened_row = EO_NONE;
    uint32_t body = 0;
    find_direct(plan, alone);
    if (plan->resident)
        EO_TRY(make_resident_rows(plan));
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct plan_layer *layer = &plan->layers[plan->positions[p].layer];
        plan->positions[p].body = layer->edge ? EO_NONE : body;
        if (layer->edge)
            continue;
        uint64_t *g = &gather_bytes[body % gather_slots], *d = &gradient_count[body % gradient_slots];
        *g = eo_max_u64(*g, gathered_bytes(plan, layer));
        if (layer->float8_gather && !plan->resident)
            widened_count = eo_max_u64(widened_count, layer->layout.padded_count);
        if (!layer->frozen && !plan->positions[p].direct)
            *d = eo_max_u64(*d, layer->layout.padded_count);
        body++;
    }
    for (uint32_t s = 0; s < gather_slots; s++)
        if (gather_bytes[s])
            EO_TRY(eo_plan_add_row(plan, &gather_row[s], EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, gather_bytes[s], false,
                                   "gather.slot%u", s));
    if (widened_count)
        EO_TRY(eo_plan_add_row(plan, &widened_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, widened_count * sizeof(uint16_t),
                               false, "gather.widened"));
    for (uint32_t s = 0; s < gradient_slots; s++)
        if (gradient_count[s])
            EO_TRY(eo_plan_add_row(plan, &gradient_row[s], EO_CATEGORY_GRADIENT_BUFFER, EO_SPACE_GRADIENT,
                                   gradient_count[s] * reduce_bytes, false, "gradient.slot%u", s));
    body = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        const bool buffered = !layer->frozen && !position->direct;
        const uint64_t bytes = gathered_bytes(plan, layer);
        if (layer->edge) {
            uint32_t row;
            if (bytes) {
                EO_TRY(eo_plan_add_row(plan, &row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, bytes, false, "gather.%s",
                                       position->name));
                EO_TRY(place_gather(plan, position, row, NULL));
            }
            if (buffered)
                EO_TRY(eo_plan_add_row(plan, &position->buffer_row, EO_CATEGORY_GRADIENT_BUFFER, EO_SPACE_GRADIENT,
                                       layer->layout.padded_count * reduce_bytes, false, "gradient.%s.buffer", position->name));
        } else {
            if (bytes)
                EO_TRY(place_gather(plan, position, gather_row[body % gather_slots], &widened_row));
            if (buffered)
                position->buffer_row = gradient_row[body % gradient_slots];
            body++;
        }
    }
    return EO_OK;
}

/* Where the frozen part of a position's layer is gathered to: as the layer itself, in rows of their own. So a part is there
 * whenever its layer is. */
eo_status eo_plan_make_frozen_rows(struct eo_plan *plan)
{
    const uint32_t slots = plan->params.gather_slots * plan->params.gather_run;
    uint64_t bytes[64] = {0};
    uint32_t rows[64], body = 0;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t s = 0; round == 1 && s < slots; s++)
            if (bytes[s])
                EO_TRY(eo_plan_add_row(plan, &rows[s], EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, bytes[s], false,
                                       "gather.frozen.slot%u", s));
        body = 0;
        for (uint32_t p = 0; p < plan->position_count; p++) {
            struct plan_position *position = &plan->positions[p];
            const struct plan_layer *layer = &plan->layers[position->layer];
            const uint32_t slot = layer->edge ? 0 : body++ % slots;
            position->frozen_gather_row = EO_NONE;
            if (layer->frozen_part == EO_NONE)
                continue;
            const struct plan_layer *part = &plan->layers[layer->frozen_part];
            const uint64_t part_bytes = part->layout.padded_count * eo_dtype_bytes(plan->params.dtype);
            if (plan->params.shard_group == 1)
                position->frozen_gather_row = part->shard_row;
            else if (round == 1 && plan->resident && layer->first_position != p)
                position->frozen_gather_row = plan->positions[layer->first_position].frozen_gather_row;
            else if (round == 1 && (plan->resident || layer->edge))
                EO_TRY(eo_plan_add_row(plan, &position->frozen_gather_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER,
                                       part_bytes, plan->resident, "gather.frozen.%s",
                                       plan->resident ? layer->name : position->name));
            else if (round == 1)
                position->frozen_gather_row = rows[slot];
            else if (!plan->resident && !layer->edge)
                bytes[slot] = eo_max_u64(bytes[slot], part_bytes);
        }
    }
    return EO_OK;
}
