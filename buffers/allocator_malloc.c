/* SPDX-License-Identifier: MIT
 *
 * Kind `malloc`: every block is one call of posix_memalign and one of free, so that what the system's allocator does
 * (page faults, trimming, fragmentation) is what one measures.
 *
 *     | header | block ...      | rest |
 *     ^ 64     ^ 64             ^ multiple of 64
 */
#include "buffers/allocator_kinds.h"

#include <stdlib.h>

#include "base/arithmetic.h"

/* The list of live blocks runs through their headers: no bookkeeping call beside the block's own. */
struct malloc_header {
    struct malloc_header *previous, *next;
    uint64_t asked_bytes, taken_bytes;
    uint64_t mark; /* of a live block: its own address, turned over */
};
_Static_assert(sizeof(struct malloc_header) <= EO_BLOCK_ALIGN_BYTES, "a header fits before its block");

struct malloc_allocator {
    struct eo_allocator base;
    struct malloc_header *first;
};

static void *malloc_allocate(struct eo_allocator *base, uint64_t bytes, uint32_t queue)
{
    struct malloc_allocator *allocator = (struct malloc_allocator *)base;
    if (bytes > PTRDIFF_MAX - 2 * EO_BLOCK_ALIGN_BYTES)
        return NULL;
    const uint64_t taken_bytes = EO_BLOCK_ALIGN_BYTES + eo_align_up(bytes, EO_BLOCK_ALIGN_BYTES);
    void *memory;
    if (posix_memalign(&memory, EO_BLOCK_ALIGN_BYTES, taken_bytes) != 0)
        return NULL;
    struct malloc_header *header = memory;
    *header = (struct malloc_header){.next = allocator->first,
                                     .asked_bytes = bytes,
                                     .taken_bytes = taken_bytes,
                                     .mark = ~(uint64_t)(uintptr_t)header};
    if (header->next)
        header->next->previous = header;
    allocator->first = header;
    eo_allocator_took(base, taken_bytes);
    return (char *)memory + EO_BLOCK_ALIGN_BYTES;
}

static uint64_t malloc_free(struct eo_allocator *base, void *memory, uint32_t queue)
{
    struct malloc_allocator *allocator = (struct malloc_allocator *)base;
    struct malloc_header *header = (struct malloc_header *)((char *)memory - EO_BLOCK_ALIGN_BYTES);
    EO_ASSERT(header->mark == ~(uint64_t)(uintptr_t)header); /* else: not a live block of ours */
    header->mark = 0;
    if (header->next)
        header->next->previous = header->previous;
    if (header->previous)
        header->previous->next = header->next;
    else
        allocator->first = header->next;
    const uint64_t asked_bytes = header->asked_bytes;
    eo_allocator_gave_back(base, header->taken_bytes);
    free(header);
    return asked_bytes;
}

static void malloc_fini(struct eo_allocator *base)
{
    struct malloc_allocator *allocator = (struct malloc_allocator *)base;
    while (allocator->first)
        malloc_free(base, (char *)allocator->first + EO_BLOCK_ALIGN_BYTES, 0);
}

const struct eo_allocator_ops eo_allocator_malloc_ops = {
    .kind = "malloc",
    .size_bytes = sizeof(struct malloc_allocator),
    .allocate = malloc_allocate,
    .free = malloc_free,
    .fini = malloc_fini,
};
