/* SPDX-License-Identifier: MIT
 *
 * Kind `pool`: segments taken from the system once, cut into blocks that are handed out again and again.
 *
 *     segment  | block live | block free | block live      | block free ...          |   neighbours by list
 *                                 \______________________________/
 *                                  free tree of its kind (small, large), by size
 *
 * Sizes are those of the caching allocators users come from, so descriptors lie outside the blocks: a header inside
 * would make 20 MiB need a 22 MiB segment. They come from slabs of 256, and a hash table leads from a live address to
 * its descriptor, so that a block costs no call of the system's allocator.
 */
#include "buffers/allocator_kinds.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/arithmetic.h"
#include "buffers/free_tree.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)

enum { ROUND_BYTES = 512, SLAB_BLOCKS = 256, TABLE_SLOTS_MIN = 1024 };
#define SMALL_BYTES_MAX (1 * MIB)
#define SHARED_BYTES_MAX (10 * MIB) /* above: a segment of its own */
#define SMALL_SEGMENT_BYTES (2 * MIB)
#define LARGE_SEGMENT_BYTES (20 * MIB)
#define SEGMENT_ROUND_BYTES (2 * MIB) /* also the alignment of segments: a huge page */
#define LARGE_REST_BYTES (1 * MIB)    /* a large block is split only if more is left */

struct pool_block {
    struct eo_free_node node;           /* its size and address, live or free. First: node and block are one pointer */
    struct pool_block *previous, *next; /* neighbours in the segment; the first block of a segment stays its first */
    uint64_t asked_bytes;
    uint64_t segment_bytes; /* of a first block, else 0 */
    bool is_small, is_live;
    struct pool_block *segment_previous, *segment_next; /* of first blocks: all segments; next: unused descriptors */
};

struct pool_slab {
    struct pool_slab *next;
    struct pool_block blocks[SLAB_BLOCKS];
};

struct pool_allocator {
    struct eo_allocator base;
    struct eo_free_node *small_tree, *large_tree;
    struct pool_block *segments, *unused;
    struct pool_slab *slabs;
    struct pool_block **live; /* open addressing by address, at most half full */
    uint64_t live_slots, live_count;
};

static struct eo_free_node **block_tree(struct pool_allocator *pool, const struct pool_block *block)
{
    return block->is_small ? &pool->small_tree : &pool->large_tree;
}

static struct pool_block *descriptor_take(struct pool_allocator *pool)
{
    if (!pool->unused) {
        struct pool_slab *slab = malloc(sizeof(*slab));
        if (!slab)
            return NULL;
        slab->next = pool->slabs;
        pool->slabs = slab;
        for (uint32_t k = 0; k < SLAB_BLOCKS; k++) {
            slab->blocks[k].segment_next = pool->unused;
            pool->unused = &slab->blocks[k];
        }
    }
    struct pool_block *block = pool->unused;
    pool->unused = block->segment_next;
    *block = (struct pool_block){0};
    return block;
}

static void descriptor_return(struct pool_allocator *pool, struct pool_block *block)
{
    block->segment_next = pool->unused;
    pool->unused = block;
}

static uint64_t table_home(const struct pool_allocator *pool, uint64_t address)
{
    /* Blocks lie 512 bytes apart at least; the product's high bits depend on all others. */
    return ((address / ROUND_BYTES) * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (pool->live_slots - 1);
}

static void table_put(struct pool_allocator *pool, struct pool_block *block)
{
    uint64_t slot = table_home(pool, block->node.address);
    while (pool->live[slot])
        slot = (slot + 1) & (pool->live_slots - 1);
    pool->live[slot] = block;
}

/* Room for one more; doubling keeps it from being a call per block. */
static bool table_reserve(struct pool_allocator *pool)
{
    if (pool->live && pool->live_count + 1 <= pool->live_slots / 2)
        return true;
    struct pool_block **old = pool->live;
    const uint64_t old_slots = pool->live_slots;
    const uint64_t new_slots = old ? 2 * old_slots : TABLE_SLOTS_MIN;
    struct pool_block **larger = calloc(new_slots, sizeof(*larger));
    if (!larger)
        return false;
    pool->live = larger;
    pool->live_slots = new_slots;
    for (uint64_t slot = 0; slot < old_slots; slot++)
        if (old[slot])
            table_put(pool, old[slot]);
    free(old);
    return true;
}

static struct pool_block *table_remove(struct pool_allocator *pool, const void *memory)
{
    const uint64_t address = (uint64_t)(uintptr_t)memory, mask = pool->live_slots - 1;
    EO_ASSERT(pool->live);
    uint64_t slot = table_home(pool, address);
    while (pool->live[slot] && pool->live[slot]->node.address != address)
        slot = (slot + 1) & mask;
    struct pool_block *block = pool->live[slot];
    EO_ASSERT(block); /* else: not a live block of ours, or freed twice */
    pool->live[slot] = NULL;
    /* Close the gap, or a search for a later entry of the run would stop here. */
    for (uint64_t at = (slot + 1) & mask; pool->live[at]; at = (at + 1) & mask) {
        const uint64_t home = table_home(pool, pool->live[at]->node.address);
        if (((at - home) & mask) >= ((at - slot) & mask)) {
            pool->live[slot] = pool->live[at];
            pool->live[at] = NULL;
            slot = at;
        }
    }
    return block;
}

/* Memory of the system, aligned to a huge page, and backed by huge pages where the system gives them. */
static void *segment_map(uint64_t bytes)
{
    uint64_t mapped_bytes;
    if (!eo_checked_add(bytes, SEGMENT_ROUND_BYTES, &mapped_bytes))
        return NULL;
    char *mapped = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    char *aligned = (char *)(uintptr_t)eo_align_up((uint64_t)(uintptr_t)mapped, SEGMENT_ROUND_BYTES);
    const uint64_t before = (uint64_t)(aligned - mapped), after = SEGMENT_ROUND_BYTES - before;
    if (before)
        (void)munmap(mapped, before);
    if (after)
        (void)munmap(aligned + bytes, after);
    (void)madvise(aligned, bytes, MADV_HUGEPAGE); /* a wish */
    return aligned;
}

static void segment_release(struct pool_allocator *pool, struct pool_block *first)
{
    if (first->segment_previous)
        first->segment_previous->segment_next = first->segment_next;
    else
        pool->segments = first->segment_next;
    if (first->segment_next)
        first->segment_next->segment_previous = first->segment_previous;
    (void)munmap((void *)(uintptr_t)first->node.address, first->segment_bytes);
    eo_allocator_gave_back(&pool->base, first->segment_bytes);
}

/* Segments without a live block go back to the system: only when it has nothing else to give. */
static void release_free_segments(struct pool_allocator *pool)
{
    for (struct pool_block *block = pool->segments, *next; block; block = next) {
        next = block->segment_next;
        if (block->is_live || block->next)
            continue;
        eo_free_tree_remove(block_tree(pool, block), &block->node);
        segment_release(pool, block);
        descriptor_return(pool, block);
    }
}

/* A new segment as one block, not in a tree. */
static struct pool_block *segment_create(struct pool_allocator *pool, uint64_t rounded_bytes)
{
    const bool is_small = rounded_bytes <= SMALL_BYTES_MAX;
    const uint64_t bytes = is_small                            ? SMALL_SEGMENT_BYTES
                           : rounded_bytes <= SHARED_BYTES_MAX ? LARGE_SEGMENT_BYTES
                                                               : eo_align_up(rounded_bytes, SEGMENT_ROUND_BYTES);
    struct pool_block *block = descriptor_take(pool);
    if (!block)
        return NULL;
    void *memory = segment_map(bytes);
    if (!memory) {
        release_free_segments(pool);
        memory = segment_map(bytes);
    }
    if (!memory) {
        descriptor_return(pool, block);
        return NULL;
    }
    block->node.address = (uint64_t)(uintptr_t)memory;
    block->node.bytes = bytes;
    block->segment_bytes = bytes;
    block->is_small = is_small;
    block->segment_next = pool->segments;
    if (pool->segments)
        pool->segments->segment_previous = block;
    pool->segments = block;
    eo_allocator_took(&pool->base, bytes);
    return block;
}

/* Cuts what a block does not need into a free block after it. Without a descriptor the block just stays large. */
static void block_split(struct pool_allocator *pool, struct pool_block *block, uint64_t rounded_bytes)
{
    const uint64_t rest_bytes = block->node.bytes - rounded_bytes;
    if (block->is_small ? rest_bytes < ROUND_BYTES : rest_bytes <= LARGE_REST_BYTES)
        return;
    struct pool_block *rest = descriptor_take(pool);
    if (!rest)
        return;
    rest->is_small = block->is_small;
    rest->node.address = block->node.address + rounded_bytes;
    rest->node.bytes = rest_bytes;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next)
        rest->next->previous = rest;
    block->next = rest;
    block->node.bytes = rounded_bytes;
    eo_free_tree_insert(block_tree(pool, rest), &rest->node);
}

/* `block` takes in its free right neighbour. Neither is in a tree. */
static void block_absorb_next(struct pool_allocator *pool, struct pool_block *block)
{
    struct pool_block *gone = block->next;
    block->node.bytes += gone->node.bytes;
    block->next = gone->next;
    if (block->next)
        block->next->previous = block;
    descriptor_return(pool, gone);
}

static void *pool_allocate(struct eo_allocator *base, uint64_t bytes, uint32_t queue)
{
    struct pool_allocator *pool = (struct pool_allocator *)base;
    if (bytes > PTRDIFF_MAX - SEGMENT_ROUND_BYTES || !table_reserve(pool))
        return NULL;
    const uint64_t rounded_bytes = eo_align_up(eo_max_u64(bytes, 1), ROUND_BYTES);
    struct eo_free_node **tree = rounded_bytes <= SMALL_BYTES_MAX ? &pool->small_tree : &pool->large_tree;
    struct pool_block *block = (struct pool_block *)eo_free_tree_best_fit(*tree, rounded_bytes);
    if (block)
        eo_free_tree_remove(tree, &block->node);
    else
        block = segment_create(pool, rounded_bytes);
    if (!block)
        return NULL;
    block_split(pool, block, rounded_bytes);
    block->is_live = true;
    block->asked_bytes = bytes;
    table_put(pool, block);
    pool->live_count++;
    return (void *)(uintptr_t)block->node.address;
}

static uint64_t pool_free(struct eo_allocator *base, void *memory, uint32_t queue)
{
    struct pool_allocator *pool = (struct pool_allocator *)base;
    struct pool_block *block = table_remove(pool, memory);
    pool->live_count--;
    const uint64_t asked_bytes = block->asked_bytes;
    block->is_live = false;
    if (block->next && !block->next->is_live) {
        eo_free_tree_remove(block_tree(pool, block->next), &block->next->node);
        block_absorb_next(pool, block);
    }
    if (block->previous && !block->previous->is_live) {
        block = block->previous;
        eo_free_tree_remove(block_tree(pool, block), &block->node);
        block_absorb_next(pool, block);
    }
    eo_free_tree_insert(block_tree(pool, block), &block->node);
    return asked_bytes;
}

static void pool_fini(struct eo_allocator *base)
{
    struct pool_allocator *pool = (struct pool_allocator *)base;
    while (pool->segments)
        segment_release(pool, pool->segments);
    while (pool->slabs) {
        struct pool_slab *slab = pool->slabs;
        pool->slabs = slab->next;
        free(slab);
    }
    free(pool->live);
}

const struct eo_allocator_ops eo_allocator_pool_ops = {
    .kind = "pool",
    .size_bytes = sizeof(struct pool_allocator),
    .allocate = pool_allocate,
    .free = pool_free,
    .fini = pool_fini,
};
