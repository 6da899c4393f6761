/* SPDX-License-Identifier: MIT
 *
 * Rows that gathers fill and that reductions read: slots for the body, rows of their own for edges, and full weights that
 * stay.
 */
#include "runtime/plan/tables/tables.h"

#include "base/arithmetic.h"
#include "base/check.h"

/* With one rank a shard is the layer: there is nothing to gather, nor to reduce if it is written once a step. Of a tied layer the
 * first contribution is written there, and the others are added. */
static void find_direct(struct eo_plan *plan, bool alone)
{
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        position->buffer_row = EO_NONE;
        if (alone) /* in MXFP8 there is something to widen */
            position->gather_row = position->narrow_row = layer->float8_frozen ? layer->narrow_row : layer->shard_row;
        position->direct = alone && !layer->frozen && plan->params.micro_batches == 1 &&
                           (layer->contribution_count == 1 ||
                            (position->contribution == 0 && !layer->whole && plan->params.rank_count == 1)) &&
                           plan->params.reduce_dtype == EO_DTYPE_FP32;
        if (position->direct)
            position->buffer_row = layer->gradient_row;
    }
}

/* Full weights that stay: a row a layer, whatever uses it. Those in MXFP8 stay as they were gathered. */
static eo_status make_resident_rows(struct eo_plan *plan)
{
    const uint64_t bytes = eo_dtype_bytes(plan->params.dtype);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        position->narrow_row = plan->positions[layer->first_position].narrow_row;
        if (layer->first_position == p)
            EO_TRY(eo_plan_add_row(plan, &position->narrow_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER,
                                   layer->float8_frozen ? layer->narrow_bytes * eo_plan_layer_ranks(plan, layer)
                                                        : layer->layout.padded_count * bytes,
                                   true, "gather.%s", layer->name));
        position->gather_row = position->narrow_row;
    }
    return EO_OK;
}

/* What a gather of the layer brings; 0 where there is none, or where it lands in the weights that stay. */
static uint64_t gathered_bytes(const struct eo_plan *plan, const struct plan_layer *layer)
{
    if (plan->params.shard_group == 1 || (plan->resident && layer->float8_frozen))
        return 0;
    if (layer->float8_gather)
        return layer->narrow_bytes * eo_plan_layer_ranks(plan, layer);
    return plan->resident ? 0 : layer->layout.padded_count * eo_dtype_bytes(plan->params.dtype);
}

/* Of what is widened before its use; 0 where weights are used as they were gathered. */
static uint64_t widened_bytes(const struct eo_plan *plan, const struct plan_layer *layer)
{
    return layer->float8_gather && (!plan->resident || layer->float8_frozen) ? layer->layout.padded_count * eo_dtype_bytes(plan->params.dtype) : 0;
}

/* Of a layer whose gather lands in `narrow_row`; EO_NONE: it needs none. Widened weights have a row for all of the body, one for
 * each edge. */
static eo_status place_gather(struct eo_plan *plan, struct plan_position *position, uint32_t narrow_row, uint32_t body_row)
{
    const struct plan_layer *layer = &plan->layers[position->layer];
    const uint64_t bytes = widened_bytes(plan, layer);
    if (narrow_row != EO_NONE)
        position->narrow_row = narrow_row;
    if (narrow_row != EO_NONE && !layer->float8_gather)
        position->gather_row = narrow_row;
    if (bytes && layer->edge)
        return eo_plan_add_row(plan, &position->gather_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, bytes, false,
                               "gather.%s.widened", position->name);
    if (bytes)
        position->gather_row = body_row;
    return EO_OK;
}

bool eo_plan_has_own_buffer(const struct eo_plan *plan, const struct plan_position *position)
{
    return plan->layers[position->layer].edge || position->adds_to != EO_NONE || !position->contributes;
}

static bool is_buffered(const struct eo_plan *plan, const struct plan_position *position)
{
    return !plan->layers[position->layer].frozen && !position->direct;
}

static eo_status make_own_buffers(struct eo_plan *plan)
{
    for (uint32_t p = plan->position_count; p-- > 0;) { /* backward order: first what is added to */
        struct plan_position *position = &plan->positions[p];
        if (!is_buffered(plan, position) || !eo_plan_has_own_buffer(plan, position))
            continue;
        if (position->adds_to != EO_NONE)
            position->buffer_row = plan->positions[position->adds_to].buffer_row;
        else
            EO_TRY(
                eo_plan_add_row(plan, &position->buffer_row, EO_CATEGORY_GRADIENT_BUFFER, EO_SPACE_GRADIENT,
                                plan->layers[position->layer].layout.padded_count * eo_dtype_bytes(plan->params.reduce_dtype),
                                false, "gradient.%s.buffer", position->name));
    }
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
    uint64_t gather_bytes[64] = {0}, gradient_count[64] = {0}, widened = 0;
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
        widened = eo_max_u64(widened, widened_bytes(plan, layer));
        if (is_buffered(plan, &plan->positions[p]) && !eo_plan_has_own_buffer(plan, &plan->positions[p]))
            *d = eo_max_u64(*d, layer->layout.padded_count);
        body++;
    }
    for (uint32_t s = 0; s < gather_slots; s++)
        if (gather_bytes[s])
            EO_TRY(eo_plan_add_row(plan, &gather_row[s], EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, gather_bytes[s], false,
                                   "gather.slot%u", s));
    if (widened)
        EO_TRY(eo_plan_add_row(plan, &widened_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, widened, false, "gather.widened"));
    for (uint32_t s = 0; s < gradient_slots; s++)
        if (gradient_count[s])
            EO_TRY(eo_plan_add_row(plan, &gradient_row[s], EO_CATEGORY_GRADIENT_BUFFER, EO_SPACE_GRADIENT,
                                   gradient_count[s] * reduce_bytes, false, "gradient.slot%u", s));
    body = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        const uint64_t bytes = gathered_bytes(plan, layer);
        if (layer->edge) {
            uint32_t row = EO_NONE;
            if (bytes)
                EO_TRY(eo_plan_add_row(plan, &row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, bytes, false, "gather.%s",
                                       position->name));
            EO_TRY(place_gather(plan, position, row, EO_NONE));
        } else {
            EO_TRY(place_gather(plan, position, bytes ? gather_row[body % gather_slots] : EO_NONE, widened_row));
            if (is_buffered(plan, position) && !eo_plan_has_own_buffer(plan, position))
                position->buffer_row = gradient_row[body % gradient_slots];
            body++;
        }
    }
    return make_own_buffers(plan);
}

/* Of the frozen part of a position's layer: where it is gathered to, as the layer itself, in rows of their own. So a part is
 * there whenever its layer is. */
static eo_status place_frozen_part(struct eo_plan *plan, struct plan_position *position, uint32_t slot_row)
{
    const struct plan_layer *layer = &plan->layers[position->layer], *part = &plan->layers[layer->frozen_part];
    const uint64_t bytes = !plan->resident       ? gathered_bytes(plan, part)
                           : part->float8_frozen ? part->narrow_bytes * eo_plan_layer_ranks(plan, part)
                                                 : part->layout.padded_count * eo_dtype_bytes(plan->params.dtype);
    const struct plan_position *first = &plan->positions[layer->first_position];
    if (plan->params.shard_group == 1)
        position->frozen_narrow_row = part->float8_gather ? part->narrow_row : part->shard_row;
    else if (plan->resident && first != position)
        position->frozen_narrow_row = first->frozen_narrow_row;
    else if (plan->resident || layer->edge)
        return eo_plan_add_row(plan, &position->frozen_narrow_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, bytes,
                               plan->resident, "gather.frozen.%s", plan->resident ? layer->name : position->name);
    else
        position->frozen_narrow_row = slot_row;
    return EO_OK;
}

/* ... and used from: widened, a row for all of the body has it, or one of the edge's own. */
static eo_status place_widened_part(struct eo_plan *plan, struct plan_position *position, uint32_t body_row)
{
    const struct plan_layer *layer = &plan->layers[position->layer], *part = &plan->layers[layer->frozen_part];
    if (!part->float8_gather)
        position->frozen_gather_row = position->frozen_narrow_row;
    else if (layer->edge)
        return eo_plan_add_row(plan, &position->frozen_gather_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER,
                               widened_bytes(plan, part), false, "gather.frozen.%s.widened", position->name);
    else
        position->frozen_gather_row = body_row;
    return EO_OK;
}

eo_status eo_plan_make_frozen_rows(struct eo_plan *plan)
{
    const uint32_t slots = plan->params.gather_slots * plan->params.gather_run;
    const bool gathers = plan->params.shard_group > 1 && !plan->resident;
    uint64_t bytes[64] = {0}, widened = 0;
    uint32_t rows[64], widened_row = EO_NONE, body = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct plan_layer *layer = &plan->layers[plan->positions[p].layer];
        const uint32_t slot = layer->edge ? 0 : body++ % slots;
        if (layer->frozen_part == EO_NONE || layer->edge)
            continue;
        const struct plan_layer *part = &plan->layers[layer->frozen_part];
        bytes[slot] = eo_max_u64(bytes[slot], gathers ? gathered_bytes(plan, part) : 0);
        widened = eo_max_u64(widened, widened_bytes(plan, part));
    }
    for (uint32_t s = 0; s < slots; s++)
        if (bytes[s])
            EO_TRY(eo_plan_add_row(plan, &rows[s], EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, bytes[s], false,
                                   "gather.frozen.slot%u", s));
    if (widened)
        EO_TRY(eo_plan_add_row(plan, &widened_row, EO_CATEGORY_GATHER_BUFFER, EO_SPACE_GATHER, widened, false,
                               "gather.frozen.widened"));
    body = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct plan_position *position = &plan->positions[p];
        const struct plan_layer *layer = &plan->layers[position->layer];
        const uint32_t slot = layer->edge ? 0 : body++ % slots;
        position->frozen_gather_row = position->frozen_narrow_row = EO_NONE;
        if (layer->frozen_part == EO_NONE)
            continue;
        EO_TRY(place_frozen_part(plan, position, bytes[slot] ? rows[slot] : EO_NONE));
        EO_TRY(place_widened_part(plan, position, widened_row));
    }
    return EO_OK;
}
