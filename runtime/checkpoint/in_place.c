/* SPDX-License-Identifier: MIT */
#include "runtime/checkpoint/in_place.h"

#include <string.h>

bool eo_in_place_is_possible(const struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    return rt->offload.storage && rt->device->ops->storage_peek && plan->offload_begin < plan->update_count;
}

static bool is_on_disk(const struct eo_runtime *rt, uint32_t layer)
{
    return rt->plan->layers[layer].disk_row != EO_NONE;
}

/* Of a layer's array on disk; `array` -1: the low halves. */
static void *from_disk(struct eo_runtime *rt, uint32_t l, int array, uint64_t at, uint64_t bytes, void *room,
                             struct checkpoint_error *error)
{
    const uint64_t begin = array < 0 ? 0 : eo_plan_offload_offset(rt->plan, &rt->plan->layers[l], (uint32_t)array);
    void *part;
    if (eo_offload_peek(rt, l, begin + at, bytes, room, &part) >= 0)
        return part;
    (void)eo_checkpoint_io_error(error, 0, "checkpoint: rank %u cannot read its offload file", rt->world->rank);
    return NULL;
}

static void *joined_part(struct eo_runtime *rt, const struct checkpoint_section *section, uint64_t from, uint64_t count,
                               float *out, void *room, struct checkpoint_error *error)
{
    const struct layer_shard *shard = &rt->shards.layers[section->layer];
    const int16_t *low = shard->low ? shard->low + from : NULL; /* frozen layers have none */
    if (is_on_disk(rt, section->layer))
        low = from_disk(rt, section->layer, -1, from * sizeof(*low), count * sizeof(*low), room, error);
    if (!low && is_on_disk(rt, section->layer))
        return NULL;
    eo_shard_join(rt, section->layer, shard->high, low, from, count, out);
    return out;
}

const void *eo_in_place_part(struct eo_runtime *rt, const struct checkpoint_section *section, uint64_t at, uint64_t bytes,
                             void *piece, void *room, struct checkpoint_error *error)
{
    const struct layer_shard *shard = &rt->shards.layers[section->layer];
    const bool is_weights = section->array == 0;
    void *part = room; /* the other is needed for joined halves alone */
    if (is_weights && rt->plan->layers[section->layer].float8_frozen)
        eo_float8_read_frozen(rt, section->layer, shard->narrow, at / sizeof(float), bytes / sizeof(float), room);
    else if (is_weights && rt->shards.split)
        part = joined_part(rt, section, at / sizeof(float), bytes / sizeof(float), piece, room, error);
    else if (is_weights)
        memcpy(room, (const char *)shard->weights + at, bytes);
    else if (is_on_disk(rt, section->layer))
        part = from_disk(rt, section->layer, (int)section->array - 1, at, bytes, room, error);
    else
        memcpy(room, (const char *)shard->state[section->array - 1] + at, bytes);
    if (part)
        memset((char *)part + bytes, 0, eo_align_up(bytes, CHECKPOINT_ALIGN) - bytes);
    return part;
}
