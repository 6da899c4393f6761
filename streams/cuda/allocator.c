/* SPDX-License-Identifier: MIT
 *
 * Allocators of the dynamic mode whose bookkeeping is CUDA's own:
 *
 *     malloc   cudaMalloc and cudaFree at each call; a free waits for the whole GPU
 *     pool     cudaMallocFromPoolAsync and cudaFreeAsync on the queue, from a pool of its own that keeps all it has
 *              (release threshold: the largest number; 0, CUDA's own default, gives memory back at each synchronisation)
 *
 * Here it is only remembered how much was asked for each block.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "streams/cuda/parts.h"

enum { BUCKETS = 1024, MALLOC_ROUND = 512 };

struct cuda_block {
    struct cuda_block *next; /* of its bucket */
    void *memory;
    uint64_t bytes;
};

struct cuda_allocator {
    struct eo_device *device;
    cudaMemPool_t pool; /* NULL: malloc */
    struct cuda_block *buckets[BUCKETS];
    uint64_t reserved_bytes, reserved_peak_bytes; /* malloc's; the pool counts its own */
};

static struct cuda_block **bucket_of(struct cuda_allocator *a, const void *memory)
{
    return &a->buckets[((uintptr_t)memory / MALLOC_ROUND * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}
_Static_assert(BUCKETS == 1 << (64 - 54), "the shift leaves a bucket's number");

/* What CUDA's defaults are is set here all the same, so that what is reported is what ran. */
static eo_status set_attributes(struct eo_device *device, cudaMemPool_t pool)
{
    uint64_t all = UINT64_MAX;
    EO_CUDA_TRY(device, "cudaMemPoolSetAttribute",
                cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    static const enum cudaMemPoolAttr reuses[] = {cudaMemPoolReuseFollowEventDependencies,
                                                  cudaMemPoolReuseAllowOpportunistic,
                                                  cudaMemPoolReuseAllowInternalDependencies};
    for (size_t i = 0; i < sizeof(reuses) / sizeof(reuses[0]); i++) {
        int on = 1;
        EO_CUDA_TRY(device, "cudaMemPoolSetAttribute", cudaMemPoolSetAttribute(pool, reuses[i], &on));
    }
    eo_log_write(&device->log, EO_LOG_INFO,
                 "rank %u: allocator pool: never gives memory back; blocks move between queues after events, once these are "
                 "seen done, and by the pool's own waits",
                 device->params.rank);
    return EO_OK;
}

/* Ranks of this process on other GPUs read blocks in collectives; memory of a pool is reached only by who was told. */
static eo_status let_peers_read(struct eo_device *device, cudaMemPool_t pool)
{
    for (int peer = 0; peer < (int)device->count; peer++) {
        int is_possible = 0;
        if (peer == eo_cuda_of(device)->device)
            continue;
        EO_CUDA_TRY(device, "cudaDeviceCanAccessPeer",
                    cudaDeviceCanAccessPeer(&is_possible, peer, eo_cuda_of(device)->device));
        const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = peer},
                                                 .flags = cudaMemAccessFlagsProtReadWrite};
        if (is_possible)
            EO_CUDA_TRY(device, "cudaMemPoolSetAccess", cudaMemPoolSetAccess(pool, &access, 1));
    }
    return EO_OK;
}

static eo_status make_pool(struct cuda_allocator *a)
{
    struct eo_device *device = a->device;
    struct cudaMemPoolProps properties;
    memset(&properties, 0, sizeof(properties));
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = eo_cuda_of(device)->device;
    EO_CUDA_TRY(device, "cudaMemPoolCreate", cudaMemPoolCreate(&a->pool, &properties));
    EO_TRY(let_peers_read(device, a->pool));
    return set_attributes(device, a->pool);
}

static void allocator_destroy(void **allocator)
{
    struct cuda_allocator *a = *allocator;
    *allocator = NULL;
    if (!a || a->device->is_lost)
        return;
    (void)cudaDeviceSynchronize();
    for (uint32_t i = 0; i < BUCKETS; i++) {
        while (a->buckets[i]) {
            struct cuda_block *block = a->buckets[i];
            a->buckets[i] = block->next;
            (void)(a->pool ? cudaFreeAsync(block->memory, eo_cuda_of(a->device)->streams[EO_QUEUE_COMPUTE])
                           : cudaFree(block->memory));
            free(block);
        }
    }
    (void)cudaDeviceSynchronize();
    if (a->pool)
        (void)cudaMemPoolDestroy(a->pool);
    (void)cudaGetLastError();
    free(a);
}

static eo_status malloc_create(void **out, struct eo_device *device)
{
    struct cuda_allocator *a = calloc(1, sizeof(*a));
    *out = a;
    if (!a)
        return EO_ERR_NO_MEMORY;
    a->device = device;
    return EO_OK;
}

static eo_status pool_create(void **out, struct eo_device *device)
{
    EO_TRY(malloc_create(out, device));
    const eo_status status = make_pool(*out);
    if (status < 0)
        allocator_destroy(out);
    return status;
}

static void *allocate(void *allocator, uint64_t bytes, uint32_t queue)
{
    struct cuda_allocator *a = allocator;
    const uint64_t size = eo_align_up(eo_max_u64(bytes, 1), MALLOC_ROUND);
    struct cuda_block *block = calloc(1, sizeof(*block));
    if (!block)
        return NULL;
    const cudaError_t error =
        a->pool ? cudaMallocFromPoolAsync(&block->memory, size, a->pool, eo_cuda_of(a->device)->streams[queue])
                : cudaMalloc(&block->memory, size);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        if (error != cudaErrorMemoryAllocation)
            (void)eo_cuda_note(a->device, error, "allocating");
        free(block);
        return NULL;
    }
    block->bytes = bytes;
    struct cuda_block **bucket = bucket_of(a, block->memory);
    block->next = *bucket;
    *bucket = block;
    if (!a->pool) {
        a->reserved_bytes += size;
        a->reserved_peak_bytes = eo_max_u64(a->reserved_peak_bytes, a->reserved_bytes);
    }
    return block->memory;
}

static uint64_t release_block(void *allocator, void *memory, uint32_t queue)
{
    struct cuda_allocator *a = allocator;
    struct cuda_block **link = bucket_of(a, memory);
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    struct cuda_block *block = *link;
    EO_ASSERT(block);
    *link = block->next;
    const uint64_t bytes = block->bytes;
    free(block);
    const cudaError_t error =
        a->pool ? cudaFreeAsync(memory, eo_cuda_of(a->device)->streams[queue]) : cudaFree(memory);
    (void)eo_cuda_note(a->device, error, "freeing");
    if (!a->pool)
        a->reserved_bytes -= eo_align_up(eo_max_u64(bytes, 1), MALLOC_ROUND);
    return bytes;
}

static void reserved(const void *allocator, uint64_t *bytes, uint64_t *peak_bytes)
{
    const struct cuda_allocator *a = allocator;
    *bytes = a->reserved_bytes;
    *peak_bytes = a->reserved_peak_bytes;
    if (a->pool && (cudaMemPoolGetAttribute(a->pool, cudaMemPoolAttrReservedMemCurrent, bytes) != cudaSuccess ||
                    cudaMemPoolGetAttribute(a->pool, cudaMemPoolAttrReservedMemHigh, peak_bytes) != cudaSuccess))
        (void)cudaGetLastError();
}

static const struct eo_device_allocator_ops malloc_ops = {
    .kind = "malloc",
    .create = malloc_create,
    .destroy = allocator_destroy,
    .allocate = allocate,
    .free = release_block,
    .reserved = reserved,
};

static const struct eo_device_allocator_ops pool_ops = {
    .kind = "pool",
    .create = pool_create,
    .destroy = allocator_destroy,
    .allocate = allocate,
    .free = release_block,
    .reserved = reserved,
};

static const struct eo_device_allocator_ops *const allocator_table[] = {&malloc_ops, &pool_ops, &eo_cuda_caching_ops};

const struct eo_device_allocator_ops *eo_cuda_allocator(const char *kind)
{
    for (size_t i = 0; i < sizeof(allocator_table) / sizeof(allocator_table[0]); i++)
        if (strcmp(allocator_table[i]->kind, kind) == 0)
            return allocator_table[i];
    return NULL;
}
