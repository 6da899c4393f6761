/* SPDX-License-Identifier: MIT
 *
 * The table behind eo_allocator. The front counts what was asked; a kind counts what it took from the system.
 */
#ifndef EO_BUFFERS_ALLOCATOR_KINDS_H
#define EO_BUFFERS_ALLOCATOR_KINDS_H

#include "buffers/allocator.h"

struct eo_allocator_ops {
    const char *kind;
    size_t size_bytes; /* of the kind's struct, which begins with struct eo_allocator; zeroed at create */
    void *(*allocate)(struct eo_allocator *allocator, uint64_t bytes, uint32_t queue);
    /* Returns the bytes that were asked for it. */
    uint64_t (*free)(struct eo_allocator *allocator, void *memory, uint32_t queue);
    void (*fini)(struct eo_allocator *allocator);                   /* gives everything back to the system */
};

struct eo_allocator {
    const struct eo_allocator_ops *ops;
    struct eo_allocator_stats stats;
};

enum { EO_BLOCK_ALIGN_BYTES = 64 };

extern const struct eo_allocator_ops eo_allocator_malloc_ops;
extern const struct eo_allocator_ops eo_allocator_pool_ops;

/* Of a device that has allocators of its own. */
EO_NODISCARD eo_status eo_allocator_of_device(struct eo_allocator **out, const char *kind, struct eo_device *device);

/* What a kind took from the system (or gave back: eo_allocator_gave_back). */
void eo_allocator_took(struct eo_allocator *allocator, uint64_t bytes);
void eo_allocator_gave_back(struct eo_allocator *allocator, uint64_t bytes);

#endif
