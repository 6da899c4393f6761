/* SPDX-License-Identifier: MIT */
#include "runtime/checkpoint/image.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t NO_ROOM = UINT64_MAX;

enum { ROOM_BYTES = CHECKPOINT_PIECE + 2 * EO_STORAGE_PIECE }; /* of what eo_offload_peek reads */

bool eo_image_may_be_in_place(const struct eo_runtime *rt)
{
    return rt->offload.storage && rt->plan->offload_begin < rt->plan->update_count;
}

static bool section_is_offloaded(const struct checkpoint_image *image, const struct checkpoint_section *section)
{
    return image->rt->plan->layers[section->layer].disk_row != EO_NONE;
}

/* Weights of 33 bytes for 32 elements. */
static bool section_is_narrow(const struct checkpoint_image *image, const struct checkpoint_section *section)
{
    return section->array == 0 && image->rt->plan->layers[section->layer].float8_frozen;
}

/* Both halves lie in the section's room, the high ones first. */
static bool section_is_split(const struct checkpoint_image *image, const struct checkpoint_section *section)
{
    return section->array == 0 && image->rt->shards.split && !section_is_narrow(image, section);
}

/* Of what is to be copied; 0: nothing. */
static uint64_t bytes_to_copy(const struct checkpoint_image *image, const struct checkpoint_section *section)
{
    uint64_t bytes = section->bytes;
    if (image->is_in_place && image->rt->device->ops->is_host_memory)
        return 0;
    if (image->is_in_place && section_is_offloaded(image, section)) {
        if (section->array > 0)
            return 0;
        if (section_is_split(image, section))
            bytes /= 2; /* the high halves */
    }
    return eo_align_up(bytes, CHECKPOINT_ALIGN);
}

static eo_status lay_out_image(struct checkpoint_image *image, uint32_t blob_bytes_max)
{
    const struct checkpoint_tables *tables = image->tables;
    image->rooms = calloc(tables->head->section_count, sizeof(*image->rooms));
    if (!image->rooms)
        return EO_ERR_NO_MEMORY;
    for (uint32_t s = 0; s < tables->head->section_count; s++) {
        const struct checkpoint_section *section = &tables->sections[s];
        const uint64_t bytes = section->layer == CHECKPOINT_TRAINER ? eo_align_up(blob_bytes_max, CHECKPOINT_ALIGN)
                                                                    : bytes_to_copy(image, section);
        image->rooms[s] = bytes ? image->bytes : NO_ROOM;
        image->bytes += bytes;
    }
    return EO_OK;
}

eo_status eo_image_init(struct checkpoint_image *image, struct eo_runtime *rt, const struct checkpoint_tables *tables,
                        uint32_t blob_bytes_max, bool in_place)
{
    void *memory;
    *image = (struct checkpoint_image){.rt = rt, .tables = tables, .is_in_place = in_place};
    EO_TRY(lay_out_image(image, blob_bytes_max));
    image->room = in_place ? aligned_alloc(CHECKPOINT_ALIGN, ROOM_BYTES) : NULL;
    if (in_place && !image->room)
        return EO_ERR_NO_MEMORY;
    EO_TRY(rt->device->ops->reserve(rt->device, EO_MEMORY_KIND_HOST, image->bytes, &memory));
    image->memory = memory;
    return EO_OK;
}

void eo_image_fini(struct checkpoint_image *image)
{
    if (image->memory)
        image->rt->device->ops->release(image->rt->device, EO_MEMORY_KIND_HOST, image->memory, image->bytes);
    free(image->rooms);
    free(image->room);
}

/* NULL: it is read from where it lies. */
static char *copied_section(const struct checkpoint_image *image, const struct checkpoint_section *section)
{
    const uint64_t offset = image->rooms[section - image->tables->sections];
    return offset == NO_ROOM ? NULL : image->memory + offset;
}

/* ---- copying ----------------------------------------------------------------------------------------------------- */

static void copy_weights(const struct checkpoint_image *image, const struct checkpoint_section *section, char *to)
{
    struct eo_device *device = image->rt->shards.device;
    const struct layer_shard *shard = &image->rt->shards.layers[section->layer];
    if (section_is_narrow(image, section)) { /* as it lies there; it fits in the room of its floats */
        device->ops->download(device, to, shard->narrow,
                              eo_plan_float8_runs(image->rt->plan, section->layer, image->rt->shards.rank, NULL, NULL));
        return;
    }
    if (!section_is_split(image, section)) {
        device->ops->download(device, to, shard->weights, section->bytes);
        return;
    }
    const uint64_t half = section->count * sizeof(uint16_t);
    device->ops->download(device, to, shard->high, half);
    if (image->is_in_place && section_is_offloaded(image, section))
        return;
    if (shard->low) /* frozen layers have none: that part of the room stays zero */
        device->ops->download(device, to + half, shard->low, half);
}

/* What the second array leaves out stays zero in the room, and so in the file: every array is whole there. */
static void copy_state(const struct checkpoint_image *image, const struct checkpoint_section *section, char *to)
{
    struct eo_device *device = image->rt->shards.device;
    const struct layer_shard *shard = &image->rt->shards.layers[section->layer];
    const struct eo_plan *plan = image->rt->plan;
    const float *state = shard->state[section->array - 1];
    if (!eo_plan_is_sparse(&plan->layers[section->layer], section->array - 1)) {
        device->ops->download(device, to, state, section->bytes);
        return;
    }
    for (uint32_t i = 0; i < shard->range_count; i++) {
        const struct shard_range *range = &shard->ranges[i];
        if (!plan->groups[range->group].matrix)
            device->ops->download(device, to + range->offset * sizeof(float), state + range->second,
                                  range->count * sizeof(float));
    }
}

eo_status eo_image_copy(struct checkpoint_image *image)
{
    if (image->is_in_place)
        EO_TRY(eo_offload_finish(image->rt));
    for (uint32_t s = 0; s + 1 < image->tables->head->section_count; s++) {
        const struct checkpoint_section *section = &image->tables->sections[s];
        char *to = copied_section(image, section);
        if (!to)
            continue;
        if (!image->is_in_place)
            EO_TRY(eo_offload_take(image->rt, section->layer, false));
        if (section->array == 0)
            copy_weights(image, section, to);
        else
            copy_state(image, section, to);
    }
    return EO_OK;
}

void eo_image_set_blob(struct checkpoint_image *image, const void *blob, uint32_t bytes, uint32_t bytes_max)
{
    char *to = copied_section(image, eo_checkpoint_blob_section(image->tables));
    if (bytes)
        memcpy(to, blob, bytes);
    memset(to + bytes, 0, eo_align_up(bytes_max, CHECKPOINT_ALIGN) - bytes);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Of a layer's array that is offloaded; `array` -1: the low halves. */
static void *from_storage(struct checkpoint_image *image, uint32_t l, int array, uint64_t at, uint64_t bytes,
                          struct checkpoint_error *error)
{
    struct eo_runtime *rt = image->rt;
    const uint64_t begin = array < 0 ? 0 : eo_plan_offload_offset(rt->plan, &rt->plan->layers[l], (uint32_t)array);
    void *part;
    if (eo_offload_peek(rt, l, begin + at, bytes, image->room, &part) >= 0)
        return part;
    (void)eo_checkpoint_io_error(error, 0, "checkpoint: rank %u cannot read its offload file", rt->world->rank);
    return NULL;
}

static void *joined_part(struct checkpoint_image *image, const struct checkpoint_section *section, uint64_t from,
                         uint64_t count, float *out, struct checkpoint_error *error)
{
    const struct layer_shard *shard = &image->rt->shards.layers[section->layer];
    const uint16_t *copy = (const uint16_t *)(const void *)copied_section(image, section), *high = copy ? copy : shard->high;
    const int16_t *low = copy ? (const int16_t *)(copy + section->count) : shard->low;
    if (image->is_in_place && section_is_offloaded(image, section)) {
        low = from_storage(image, section->layer, -1, from * sizeof(*low), count * sizeof(*low), error);
        if (!low)
            return NULL;
    } else if (low) { /* frozen layers have none */
        low += from;
    }
    eo_shard_join(image->rt, section->layer, high, low, from, count, out);
    return out;
}

/* Of an array that is one in memory. */
static const char *array_of(const struct checkpoint_image *image, const struct checkpoint_section *section)
{
    const struct layer_shard *shard = &image->rt->shards.layers[section->layer];
    const char *copy = copied_section(image, section);
    return copy                                ? copy
           : section_is_narrow(image, section) ? (const char *)shard->narrow
           : section->array == 0               ? (const char *)shard->weights
                                               : (const char *)shard->state[section->array - 1];
}

const void *eo_image_part(struct checkpoint_image *image, const struct checkpoint_section *section, uint64_t at, uint64_t bytes,
                          void *piece, struct checkpoint_error *error)
{
    void *part = piece;
    if (section->layer == CHECKPOINT_TRAINER)
        return copied_section(image, section) + at;
    if (section_is_split(image, section))
        part = joined_part(image, section, at / sizeof(float), bytes / sizeof(float), piece, error);
    else if (section_is_narrow(image, section))
        eo_float8_read_frozen(image->rt, section->layer, (const void *)array_of(image, section), at / sizeof(float),
                              bytes / sizeof(float), piece);
    else if (section->array > 0 && image->is_in_place && section_is_offloaded(image, section))
        part = from_storage(image, section->layer, (int)section->array - 1, at, bytes, error);
    else if (copied_section(image, section))
        return copied_section(image, section) + at; /* zeros stand behind it */
    else
        memcpy(piece, array_of(image, section) + at, bytes);
    if (part)
        memset((char *)part + bytes, 0, eo_align_up(bytes, CHECKPOINT_ALIGN) - bytes);
    return part;
}
