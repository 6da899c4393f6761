/* SPDX-License-Identifier: MIT
 *
 * The dynamic mode's allocator "caching": segments from cudaMalloc are kept, cut into blocks, and handed out again.
 *
 *     segment   | block live | block free | block live | block free ... |      neighbours by list
 *
 *     sizes     rounded to 512 bytes; up to 1 MiB from segments of 2 MiB ("small"), below 10 MiB from segments of
 *               20 MiB, above from a segment of its own, rounded to 2 MiB
 *     free      kept for each queue, small and large apart; the best fit; split when the rest is at least 512 bytes
 *               (small), or more than 1 MiB (large); free neighbours merge
 *     order     a free is good at once, on the host, for later work on the same queue: the stream orders it. No block
 *               ever changes its queue, so no events are needed
 *     failure   when cudaMalloc has no memory: wait for the GPU, give back all segments that are free as a whole, try
 *               again (a retry; they are counted), then fail
 *
 * Descriptors lie in host memory: nothing can be written into the blocks from here.
 */
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "streams/cuda/parts.h"

#define MIB ((uint64_t)1 << 20)

enum { CACHE_BUCKETS = 1024, CACHE_ROUND = 512 };
#define SMALL_MAX (1 * MIB)
#define SMALL_SEGMENT (2 * MIB)
#define SHARED_SEGMENT (20 * MIB)
#define OWN_SEGMENT_FROM (10 * MIB)
#define OWN_SEGMENT_ROUND (2 * MIB)
#define LARGE_REST_ABOVE (1 * MIB)

struct cached_block {
    struct cached_block *next;            /* of its bucket while live, of its list while free (by size, then age) */
    struct cached_block *before, *behind; /* neighbours in the segment */
    unsigned char *memory;
    uint64_t bytes, asked_bytes;
    uint32_t queue;
    bool is_small, is_free;
};

struct caching_allocator {
    struct eo_device *device;
    struct cached_block *free_lists[EO_QUEUES_MAX][2]; /* [queue][is small], smallest first */
    struct cached_block *live[CACHE_BUCKETS];
    uint64_t reserved_bytes, reserved_peak_bytes;
    uint64_t segments, retries;
};

static struct cached_block **live_bucket(struct caching_allocator *a, const void *memory)
{
    return &a->live[((uintptr_t)memory / CACHE_ROUND * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}
_Static_assert(CACHE_BUCKETS == 1 << (64 - 54), "the shift leaves a bucket's number");

/* -- free lists --------------------------------------------------------------------------------------------------- */

static void list_put(struct caching_allocator *a, struct cached_block *block)
{
    struct cached_block **link = &a->free_lists[block->queue][block->is_small];
    while (*link && (*link)->bytes < block->bytes)
        link = &(*link)->next;
    block->next = *link;
    block->is_free = true;
    *link = block;
}

static void list_remove(struct caching_allocator *a, struct cached_block *block)
{
    struct cached_block **link = &a->free_lists[block->queue][block->is_small];
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    block->is_free = false;
}

static struct cached_block *list_best(struct caching_allocator *a, uint64_t bytes, uint32_t queue, bool is_small)
{
    struct cached_block *block = a->free_lists[queue][is_small];
    while (block && block->bytes < bytes)
        block = block->next;
    return block;
}

/* -- segments ------------------------------------------------------------------------------------------------------ */

static void give_back_segment(struct caching_allocator *a, struct cached_block *block)
{
    (void)eo_cuda_note(a->device, cudaFree(block->memory), "cudaFree of a segment");
    a->reserved_bytes -= block->bytes;
    free(block);
}

static void give_back_free_segments(struct caching_allocator *a)
{
    for (uint32_t queue = 0; queue < EO_QUEUES_MAX; queue++) {
        for (int small = 0; small < 2; small++) {
            struct cached_block *block = a->free_lists[queue][small], *next;
            for (; block; block = next) {
                next = block->next;
                if (block->before || block->behind)
                    continue;
                list_remove(a, block);
                give_back_segment(a, block);
            }
        }
    }
}

static uint64_t segment_bytes(uint64_t bytes, bool is_small)
{
    if (is_small)
        return SMALL_SEGMENT;
    return bytes < OWN_SEGMENT_FROM ? SHARED_SEGMENT : eo_align_up(bytes, OWN_SEGMENT_ROUND);
}

/* A free block that is in no list yet. */
static struct cached_block *new_segment(struct caching_allocator *a, uint64_t bytes, uint32_t queue, bool is_small)
{
    struct cached_block *block = calloc(1, sizeof(*block));
    if (!block)
        return NULL;
    block->bytes = segment_bytes(bytes, is_small);
    block->queue = queue;
    block->is_small = is_small;
    cudaError_t error = cudaMalloc((void **)&block->memory, block->bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)eo_cuda_note(a->device, cudaDeviceSynchronize(), "work on the GPU");
        give_back_free_segments(a);
        a->retries++;
        error = cudaMalloc((void **)&block->memory, block->bytes);
    }
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        if (error != cudaErrorMemoryAllocation)
            (void)eo_cuda_note(a->device, error, "cudaMalloc of a segment");
        free(block);
        return NULL;
    }
    a->segments++;
    a->reserved_bytes += block->bytes;
    a->reserved_peak_bytes = eo_max_u64(a->reserved_peak_bytes, a->reserved_bytes);
    return block;
}

/* -- blocks -------------------------------------------------------------------------------------------------------- */

/* Without room for a descriptor the block stays whole: larger than asked, and as good. */
static void split(struct caching_allocator *a, struct cached_block *block, uint64_t bytes)
{
    const uint64_t rest_bytes = block->bytes - bytes;
    if (block->is_small ? rest_bytes < CACHE_ROUND : rest_bytes <= LARGE_REST_ABOVE)
        return;
    struct cached_block *rest = calloc(1, sizeof(*rest));
    if (!rest)
        return;
    rest->memory = block->memory + bytes;
    rest->bytes = rest_bytes;
    rest->queue = block->queue;
    rest->is_small = block->is_small;
    rest->before = block;
    rest->behind = block->behind;
    if (rest->behind)
        rest->behind->before = rest;
    block->behind = rest;
    block->bytes = bytes;
    list_put(a, rest);
}

/* `block` takes in the one behind it. */
static void absorb(struct cached_block *block)
{
    struct cached_block *behind = block->behind;
    block->bytes += behind->bytes;
    block->behind = behind->behind;
    if (block->behind)
        block->behind->before = block;
    free(behind);
}

static void *caching_allocate(void *allocator, uint64_t bytes, uint32_t queue)
{
    struct caching_allocator *a = allocator;
    const uint64_t size = eo_align_up(eo_max_u64(bytes, 1), CACHE_ROUND);
    const bool is_small = size <= SMALL_MAX;
    EO_ASSERT(queue < EO_QUEUES_MAX);
    struct cached_block *block = list_best(a, size, queue, is_small);
    if (block)
        list_remove(a, block);
    else
        block = new_segment(a, size, queue, is_small);
    if (!block)
        return NULL;
    split(a, block, size);
    block->asked_bytes = bytes;
    struct cached_block **bucket = live_bucket(a, block->memory);
    block->next = *bucket;
    *bucket = block;
    return block->memory;
}

static uint64_t caching_free(void *allocator, void *memory, uint32_t queue)
{
    struct caching_allocator *a = allocator;
    struct cached_block **link = live_bucket(a, memory);
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    struct cached_block *block = *link;
    EO_ASSERT(block && block->queue == queue);
    *link = block->next;
    const uint64_t asked_bytes = block->asked_bytes;
    if (block->behind && block->behind->is_free) {
        list_remove(a, block->behind);
        absorb(block);
    }
    if (block->before && block->before->is_free) {
        block = block->before;
        list_remove(a, block);
        absorb(block);
    }
    list_put(a, block);
    return asked_bytes;
}

static void caching_reserved(const void *allocator, uint64_t *bytes, uint64_t *peak_bytes)
{
    const struct caching_allocator *a = allocator;
    *bytes = a->reserved_bytes;
    *peak_bytes = a->reserved_peak_bytes;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

static eo_status caching_create(void **out, struct eo_device *device)
{
    struct caching_allocator *a = calloc(1, sizeof(*a));
    *out = a;
    if (!a)
        return EO_ERR_NO_MEMORY;
    a->device = device;
    return EO_OK;
}

static void caching_destroy(void **allocator)
{
    struct caching_allocator *a = *allocator;
    *allocator = NULL;
    if (!a || a->device->is_lost)
        return;
    (void)cudaDeviceSynchronize();
    for (uint32_t i = 0; i < CACHE_BUCKETS; i++)
        while (a->live[i])
            (void)caching_free(a, a->live[i]->memory, a->live[i]->queue);
    give_back_free_segments(a); /* all are */
    EO_ASSERT(a->reserved_bytes == 0);
    eo_log_write(&a->device->log, EO_LOG_INFO,
                 "rank %u: allocator caching: %llu segments, at most %.1f MiB, %llu retries after freeing all",
                 a->device->params.rank, (unsigned long long)a->segments,
                 (double)a->reserved_peak_bytes / (double)MIB, (unsigned long long)a->retries);
    (void)cudaGetLastError();
    free(a);
}

const struct eo_device_allocator_ops eo_cuda_caching_ops = {
    .kind = "caching",
    .create = caching_create,
    .destroy = caching_destroy,
    .allocate = caching_allocate,
    .free = caching_free,
    .reserved = caching_reserved,
};
