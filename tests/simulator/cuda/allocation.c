/* SPDX-License-Identifier: MIT
 *
 * Allocation, as the runtime's calls: of the device and of pinned memory, both at once, and in the order of a stream, by pools.
 */
#include "internal.h"

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    CUDA_BEGIN();
    CUDA_UNSAFE();
    if (!out)
        CUDA_END(cudaErrorInvalidValue);
    *out = NULL;
    if (bytes == 0)
        CUDA_END(cudaSuccess);
    struct sim_memory *memory = sim_memory_new(SIM_MALLOC, sim_self()->device, bytes);
    if (memory)
        *out = (void *)memory->at;
    CUDA_END(memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* Waits for the whole device. */
cudaError_t cudaFree(void *at)
{
    CUDA_BEGIN();
    CUDA_UNSAFE();
    if (!at)
        CUDA_END(cudaSuccess);
    struct sim_memory *memory = sim_memory_find(at);
    if (!memory || memory->at != (uintptr_t)at || memory->freed ||
        (memory->kind != SIM_MALLOC && memory->kind != SIM_POOL)) {
        sim_violate("cudaFree of %p: nothing of it lies there", at);
        CUDA_END(cudaErrorInvalidValue);
    }
    const cudaError_t error = sim_wait_device(memory->device, "cudaFree");
    if (error == cudaSuccess)
        sim_memory_drop(memory);
    CUDA_END(error);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    (void)flags;
    CUDA_BEGIN();
    CUDA_UNSAFE();
    struct sim_memory *memory = sim_memory_new(SIM_PINNED, sim_self()->device, bytes ? bytes : 1);
    *out = memory ? (void *)memory->at : NULL;
    CUDA_END(memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **out, size_t bytes) { return cudaHostAlloc(out, bytes, 0); }

cudaError_t cudaFreeHost(void *at)
{
    CUDA_BEGIN();
    CUDA_UNSAFE();
    if (!at)
        CUDA_END(cudaSuccess);
    struct sim_memory *memory = sim_memory_find(at);
    if (!memory || memory->kind != SIM_PINNED || memory->at != (uintptr_t)at) {
        sim_violate("cudaFreeHost of %p: nothing of it lies there", at);
        CUDA_END(cudaErrorInvalidValue);
    }
    const cudaError_t error = sim_wait_device(memory->device, "cudaFreeHost");
    sim_deliver_to(&(struct sim_range){.at = (const void *)memory->at, .bytes = memory->bytes});
    if (error == cudaSuccess)
        sim_memory_drop(memory);
    CUDA_END(error);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    CUDA_BEGIN();
    const uint32_t device = sim_self()->device;
    *free_bytes = sim.config.device_bytes - sim.device_used[device];
    *total_bytes = sim.config.device_bytes;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *at)
{
    CUDA_BEGIN();
    *attributes = (struct cudaPointerAttributes){
        .type = sim_is_device_address(at) ? cudaMemoryTypeDevice
                : sim_memory_find(at)     ? cudaMemoryTypeHost
                                          : cudaMemoryTypeUnregistered,
    };
    CUDA_END(cudaSuccess);
}

/* --- the stream-ordered allocator: a block may be used only by what comes after the call, in the order of streams and
 * events; a freed one is handed out again at once to the same stream, and to others when the free has run --- */

static struct sim_memory *reuse_block(uint32_t device, uint64_t bytes, const struct sim_stream *stream)
{
    for (struct sim_memory *memory = sim.memory; memory; memory = memory->next) {
        if (memory->kind != SIM_POOL || !memory->freed || memory->device != device || memory->bytes != bytes)
            continue;
        if (memory->freed_on != stream && !atomic_load(&memory->freed_at->done))
            continue;
        return memory;
    }
    return NULL;
}

static void touch(const void *arguments) { (void)arguments; }

static cudaError_t pool_operation(struct sim_stream *stream, struct sim_memory *memory, const char *name, bool is_free)
{
    struct sim_work work = {.kind = SIM_KERNEL, .name = name, .body = touch, .range_count = 1};
    work.ranges = sim_alloc(sizeof(*work.ranges));
    work.ranges[0] = SIM_WRITES((void *)memory->at, memory->bytes);
    struct sim_op *op = sim_op_new(stream, &work);
    if (!is_free && memory->freed_at) /* the pool's own business when another stream had it */
        sim_op_after(op, memory->freed_at);
    (void)sim_submit(op);
    sim_policy_step();
    return sim.broken;
}

/* Of pools made by cudaMemPoolCreate; NULL: the device's own, or none. */
static uint32_t *access_of(cudaMemPool_t pool)
{
    const uintptr_t number = (uintptr_t)pool / 0x1000;
    return number >= 2 && number - 2 < sim.pools_made ? &sim.pool_access[number - 2] : NULL;
}

static cudaError_t take_block(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t handle)
{
    int fault;
    if (sim_enter("cudaMallocAsync", &fault))
        return sim_leave((cudaError_t)fault);
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream || !out)
        CUDA_END(stream ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    *out = NULL;
    if (stream->capture) {
        sim_violate("cudaMallocAsync while capturing: the graph would own the memory");
        sim_capture_spoil(stream->capture);
        CUDA_END(cudaErrorStreamCaptureUnsupported);
    }
    if (bytes == 0)
        CUDA_END(cudaSuccess);
    struct sim_memory *memory = reuse_block(stream->device, bytes, stream);
    if (!memory)
        memory = sim_memory_new(SIM_POOL, stream->device, bytes);
    if (!memory) { /* idle blocks go back first */
        for (struct sim_memory *idle = sim.memory, *next; idle; idle = next) {
            next = idle->next;
            if (idle->kind == SIM_POOL && idle->freed && idle->device == stream->device &&
                atomic_load(&idle->freed_at->done))
                sim_memory_drop(idle);
        }
        memory = sim_memory_new(SIM_POOL, stream->device, bytes);
    }
    if (!memory)
        CUDA_END(cudaErrorMemoryAllocation);
    memory->freed = false;
    memory->access = UINT32_C(1) << memory->device | (access_of(pool) ? *access_of(pool) : 0);
    const cudaError_t error = pool_operation(stream, memory, "cudaMallocAsync", false);
    sim_release(memory->freed_at);
    memory->freed_at = NULL;
    *out = (void *)memory->at;
    CUDA_END(error);
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) { return take_block(out, bytes, NULL, stream); }

cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
    return take_block(out, bytes, pool, stream);
}

cudaError_t cudaFreeAsync(void *at, cudaStream_t handle)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(handle);
    struct sim_memory *memory = sim_memory_find(at);
    if (!stream)
        CUDA_END(cudaErrorInvalidResourceHandle);
    if (!memory || memory->at != (uintptr_t)at || memory->freed ||
        (memory->kind != SIM_POOL && memory->kind != SIM_MALLOC))
        CUDA_END(cudaErrorInvalidValue);
    if (stream->capture) {
        sim_capture_spoil(stream->capture);
        CUDA_END(cudaErrorStreamCaptureUnsupported);
    }
    const cudaError_t error = pool_operation(stream, memory, "cudaFreeAsync", true);
    memory->kind = SIM_POOL;
    memory->freed = true;
    memory->freed_on = stream;
    memory->freed_at = sim_retain(stream->last);
    CUDA_END(error);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    CUDA_BEGIN();
    *pool = (cudaMemPool_t)(uintptr_t)(0x1000 + device);
    CUDA_END(cudaSuccess);
}

/* A pool of its own: its number tells it from others. A free block of one pool serves another one too. */
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
    CUDA_BEGIN();
    if (!pool || !props || props->allocType != cudaMemAllocationTypePinned ||
        props->location.type != cudaMemLocationTypeDevice || props->location.id < 0 ||
        (uint32_t)props->location.id >= sim.config.device_count)
        CUDA_END(cudaErrorInvalidValue);
    if (sim.pools_made == SIM_POOLS_MAX)
        abort();
    *pool = (cudaMemPool_t)(uintptr_t)(0x1000 * (2 + sim.pools_made++) + (uint32_t)props->location.id);
    sim.pool_count++;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t count)
{
    CUDA_BEGIN();
    for (size_t i = 0; i < count; i++)
        if ((uintptr_t)pool < 0x2000 || access[i].location.type != cudaMemLocationTypeDevice ||
            access[i].location.id < 0 || (uint32_t)access[i].location.id >= sim.config.device_count ||
            access[i].location.id == (int)((uintptr_t)pool % 0x1000) || !access_of(pool))
            CUDA_END(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; i++)
        *access_of(pool) |= access[i].flags == cudaMemAccessFlagsProtReadWrite ? UINT32_C(1) << access[i].location.id : 0;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    CUDA_BEGIN();
    if ((uintptr_t)pool < 0x2000 || sim.pool_count == 0)
        CUDA_END(cudaErrorInvalidValue);
    sim.pool_count--;
    CUDA_END(cudaSuccess);
}

static uint64_t pool_bytes(uint32_t device, bool with_free)
{
    uint64_t bytes = 0;
    for (const struct sim_memory *memory = sim.memory; memory; memory = memory->next)
        if (memory->kind == SIM_POOL && memory->device == device && (with_free || !memory->freed))
            bytes += memory->bytes;
    return bytes;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    CUDA_BEGIN();
    const uint32_t device = (uint32_t)((uintptr_t)pool % 0x1000);
    if (attribute == cudaMemPoolAttrReleaseThreshold)
        sim.pool_threshold[device] = *(uint64_t *)value;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    CUDA_BEGIN();
    const uint32_t device = (uint32_t)((uintptr_t)pool % 0x1000);
    if (attribute == cudaMemPoolAttrReservedMemCurrent || attribute == cudaMemPoolAttrReservedMemHigh)
        *(uint64_t *)value = pool_bytes(device, true);
    else if (attribute == cudaMemPoolAttrUsedMemCurrent || attribute == cudaMemPoolAttrUsedMemHigh)
        *(uint64_t *)value = pool_bytes(device, false);
    else if (attribute == cudaMemPoolAttrReleaseThreshold)
        *(uint64_t *)value = sim.pool_threshold[device];
    else
        CUDA_END(cudaErrorInvalidValue);
    CUDA_END(cudaSuccess);
}
