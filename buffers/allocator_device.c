/* SPDX-License-Identifier: MIT
 *
 * The kinds of a device whose memory is not the C library's: handed on to its own allocators.
 */
#include "buffers/allocator_kinds.h"

#include <stdlib.h>

#include "base/check.h"

struct device_allocator {
    struct eo_allocator base;
    const struct eo_device_allocator_ops *ops;
    void *allocator;
};

/* What it takes from the system comes and goes inside: the peak is its own. */
static void note_reserved(struct device_allocator *device)
{
    struct eo_allocator_stats *stats = &device->base.stats;
    device->ops->reserved(device->allocator, &stats->reserved_bytes, &stats->reserved_peak_bytes);
}

static void *device_allocate(struct eo_allocator *base, uint64_t bytes, uint32_t queue)
{
    struct device_allocator *device = (struct device_allocator *)base;
    void *memory = device->ops->allocate(device->allocator, bytes, queue);
    note_reserved(device);
    return memory;
}

static uint64_t device_free(struct eo_allocator *base, void *memory, uint32_t queue)
{
    struct device_allocator *device = (struct device_allocator *)base;
    const uint64_t bytes = device->ops->free(device->allocator, memory, queue);
    note_reserved(device);
    return bytes;
}

static void device_allocator_fini(struct eo_allocator *base)
{
    struct device_allocator *device = (struct device_allocator *)base;
    device->ops->destroy(&device->allocator);
}

static const struct eo_allocator_ops device_allocator_ops = {
    .kind = "device",
    .size_bytes = sizeof(struct device_allocator),
    .allocate = device_allocate,
    .free = device_free,
    .fini = device_allocator_fini,
};

eo_status eo_allocator_of_device(struct eo_allocator **out, const char *kind, struct eo_device *device)
{
    const struct eo_device_allocator_ops *ops = device->ops->allocator(kind);
    *out = NULL;
    if (!ops)
        return EO_ERR_INVALID;
    struct device_allocator *allocator = calloc(1, sizeof(*allocator));
    if (!allocator)
        return EO_ERR_NO_MEMORY;
    allocator->base.ops = &device_allocator_ops;
    allocator->ops = ops;
    const eo_status status = ops->create(&allocator->allocator, device);
    if (status < 0) {
        free(allocator);
        return status;
    }
    *out = &allocator->base;
    return EO_OK;
}
