/* SPDX-License-Identifier: MIT
 *
 * A list that grows: its operations, and their accesses.
 */
#include "runtime/plan/list/builder.h"

#include <stdlib.h>

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

/* A step, in versions. */
static int32_t steps_back(const struct list_builder *b, enum eo_version_kind kind, uint16_t scale)
{
    return kind == EO_VERSION_FIXED  ? 0
           : kind == EO_VERSION_STEP ? 1
                                     : (int32_t)(b->plan->params.micro_batches * (scale == 0 ? 1u : scale));
}

void eo_list_access(struct list_builder *b, uint32_t row, enum eo_access_mode mode, uint32_t subject_id,
                    enum eo_version_kind kind, int32_t offset, uint16_t scale)
{
    if (!make_room((void **)&b->accesses, &b->access_capacity, b->access_count + 1, sizeof(*b->accesses))) {
        b->failed = true;
        return;
    }
    b->accesses[b->access_count++] = (struct eo_access){
        .row = row,
        .subject = subject_id,
        .version_offset = offset - (b->is_late ? steps_back(b, kind, scale) : 0),
        .mode = (uint8_t)mode,
        .version_kind = (uint8_t)kind,
        .version_scale = scale,
    };
}

/* Where layers are shared by parts of the group, all of it is the part and the others. */
static int group_scope(const struct eo_plan *plan, uint32_t layer)
{
    bool any = false;
    for (uint32_t l = 0; l < plan->layer_count; l++)
        any = any || plan->layers[l].parts > 1;
    if (plan->params.shard_group == 1)
        return EO_SCOPE_ALONE;
    if (layer == EO_NONE || plan->layers[layer].parts == 1)
        return any ? EO_SCOPE_GROUP | EO_SCOPE_PART : EO_SCOPE_GROUP;
    return eo_plan_layer_ranks(plan, &plan->layers[layer]) > 1 ? EO_SCOPE_PART : EO_SCOPE_ALONE;
}

static int collective_scope(const struct eo_plan *plan, eo_operation_kind kind, uint32_t layer)
{
    const int group = group_scope(plan, layer);
    const int replicas = plan->replicas > 1 ? EO_SCOPE_REPLICAS : EO_SCOPE_ALONE;
    switch ((int)kind) {
    case EO_OP_ALL_GATHER:
    case EO_OP_REDUCE_SCATTER:
    case EO_OP_MATRIX_GATHER:
    case EO_OP_MATRIX_SCATTER:
        return group;
    case EO_OP_ALL_REDUCE:
        return replicas;
    case EO_OP_NORM_GATHER:
        return group | replicas;
    default:
        return EO_SCOPE_ALONE;
    }
}

struct eo_operation *eo_list_operation(struct list_builder *b, eo_operation_kind kind, eo_stream_id stream,
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
        .late = b->is_late,
        .peers_read = kind == EO_OP_ALL_GATHER || kind == EO_OP_NORM_GATHER || kind == EO_OP_MATRIX_GATHER,
        .scope = (uint8_t)collective_scope(b->plan, kind, layer),
    };
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        operation->wait[s] = EO_NONE;
    const uint32_t last = b->plan->params.micro_batches - 1;
    b->places[b->next_id++] = (struct plan_place){fold, micro_batch != EO_NONE ? micro_batch : b->is_late ? 0 : last};
    return operation;
}

void eo_list_operation_end(struct list_builder *b)
{
    if (b->count)
        b->operations[b->count - 1].access_count = b->access_count - b->operations[b->count - 1].access_begin;
}
