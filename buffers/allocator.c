/* SPDX-License-Identifier: MIT */
#include "buffers/allocator.h"

#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "buffers/allocator_kinds.h"

static const struct {
    const char *kind;
    const struct eo_allocator_ops *ops;
} allocator_table[] = {
    {"malloc", &eo_allocator_malloc_ops},
    {"pool", &eo_allocator_pool_ops},
    {"caching", &eo_allocator_pool_ops},
};

eo_status eo_allocator_create(struct eo_allocator **out, const char *kind, struct eo_device *device)
{
    *out = NULL;
    if (device && device->ops->allocator)
        return eo_allocator_of_device(out, kind, device);
    for (size_t k = 0; k < sizeof(allocator_table) / sizeof(allocator_table[0]); k++) {
        const struct eo_allocator_ops *ops = allocator_table[k].ops;
        if (strcmp(allocator_table[k].kind, kind) != 0)
            continue;
        struct eo_allocator *allocator = calloc(1, ops->size_bytes);
        if (!allocator)
            return EO_ERR_NO_MEMORY;
        allocator->ops = ops;
        *out = allocator;
        return EO_OK;
    }
    return EO_ERR_INVALID;
}

void eo_allocator_destroy(struct eo_allocator **allocator)
{
    if (!*allocator)
        return;
    (*allocator)->ops->fini(*allocator);
    free(*allocator);
    *allocator = NULL;
}

void *eo_allocate(struct eo_allocator *allocator, uint64_t bytes, uint32_t queue)
{
    void *memory = allocator->ops->allocate(allocator, bytes, queue);
    if (!memory)
        return NULL;
    struct eo_allocator_stats *stats = &allocator->stats;
    stats->calls++;
    stats->allocated_bytes += bytes;
    stats->live_bytes += bytes;
    stats->live_peak_bytes = eo_max_u64(stats->live_peak_bytes, stats->live_bytes);
    return memory;
}

void eo_free(struct eo_allocator *allocator, void *memory, uint32_t queue)
{
    if (!memory)
        return;
    allocator->stats.calls++;
    allocator->stats.live_bytes -= allocator->ops->free(allocator, memory, queue);
}

void eo_allocator_get_stats(const struct eo_allocator *allocator, struct eo_allocator_stats *out)
{
    *out = allocator->stats;
}

void eo_allocator_took(struct eo_allocator *allocator, uint64_t bytes)
{
    struct eo_allocator_stats *stats = &allocator->stats;
    stats->reserved_bytes += bytes;
    stats->reserved_peak_bytes = eo_max_u64(stats->reserved_peak_bytes, stats->reserved_bytes);
}

void eo_allocator_gave_back(struct eo_allocator *allocator, uint64_t bytes)
{
    EO_ASSERT(bytes <= allocator->stats.reserved_bytes);
    allocator->stats.reserved_bytes -= bytes;
}
