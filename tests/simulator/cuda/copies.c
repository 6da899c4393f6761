/* SPDX-License-Identifier: MIT
 *
 * Allocation, copies and fills, as the runtime's calls. What a call waits for is as the documentation has it, not as one
 * would wish: cudaMemset and a copy from pageable memory come back before the device has done them, and streams made with
 * cudaStreamNonBlocking do not wait for them.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* --- allocation --- */

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

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned int flags)
{
    (void)at;
    (void)bytes;
    (void)flags;
    CUDA_BEGIN();
    CUDA_END(cudaErrorNotSupported);
}

cudaError_t cudaHostUnregister(void *at)
{
    (void)at;
    CUDA_BEGIN();
    CUDA_END(cudaErrorNotSupported);
}

cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *host, unsigned int flags)
{
    (void)flags;
    CUDA_BEGIN();
    const struct sim_memory *memory = sim_memory_find(host);
    const bool good = memory && memory->kind == SIM_PINNED;
    if (good)
        *device_pointer = host;
    CUDA_END(good ? cudaSuccess : cudaErrorInvalidValue);
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
    const struct sim_memory *memory = sim_memory_find(at);
    memset(attributes, 0, sizeof(*attributes));
    attributes->type = !memory                      ? cudaMemoryTypeUnregistered
                       : memory->kind == SIM_PINNED ? cudaMemoryTypeHost
                                                    : cudaMemoryTypeDevice;
    attributes->device = memory ? (int)memory->device : -1;
    attributes->devicePointer = memory ? (void *)(uintptr_t)at : NULL;
    attributes->hostPointer = memory && memory->kind != SIM_PINNED ? NULL : (void *)(uintptr_t)at;
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

static cudaError_t pool_operation(struct sim_stream *stream, struct sim_memory *memory, const char *name,
                                  struct sim_point **point, bool is_free)
{
    struct sim_work work = {.kind = SIM_KERNEL, .name = name, .body = touch, .range_count = 1};
    work.ranges = sim_alloc(sizeof(*work.ranges));
    work.ranges[0] = SIM_WRITES((void *)memory->at, memory->bytes);
    struct sim_op *op = sim_op_new(stream, &work);
    if (!is_free && memory->freed_at) /* the pool's own business when another stream had it */
        sim_op_after(op, memory->freed_at);
    *point = sim_submit(op);
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
    struct sim_point *point;
    const cudaError_t error = pool_operation(stream, memory, "cudaMallocAsync", &point, false);
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
    struct sim_point *point;
    const cudaError_t error = pool_operation(stream, memory, "cudaFreeAsync", &point, true);
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

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }

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

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    CUDA_BEGIN();
    const uint32_t device = (uint32_t)((uintptr_t)pool % 0x1000);
    for (struct sim_memory *memory = sim.memory, *next; memory && pool_bytes(device, true) > keep; memory = next) {
        next = memory->next;
        if (memory->kind == SIM_POOL && memory->freed && memory->device == device &&
            atomic_load(&memory->freed_at->done))
            sim_memory_drop(memory);
    }
    CUDA_END(cudaSuccess);
}

/* --- copies and fills --- */

struct copy {
    void *to;
    const void *from; /* NULL: from `data` */
    size_t bytes;
    int value; /* of a fill */
    bool to_pinned;
    bool from_pinned, was_issued; /* the latter: outside a capture, so the host must not write there until it has run */
    unsigned char data[];
};

/* What a copy has brought to pinned memory. The host finds it there when it has waited for the copy, and no sooner. */
struct sim_delivery {
    struct sim_delivery *next;
    uint32_t rank, component, tick;
    unsigned char *to;
    size_t bytes;
    unsigned char data[];
};

static unsigned char *known_at(const void *at)
{
    struct sim_memory *memory = sim_memory_find(at);
    if (!memory->known)
        memory->known = calloc(memory->bytes, 1);
    if (!memory->known)
        abort();
    return memory->known + ((uintptr_t)at - memory->at);
}

/* Pinned memory as the device sees it: with what its copies have brought, whether the host knows of them or not. */
static void look(unsigned char *out, const void *at, size_t bytes)
{
    memcpy(out, at, bytes);
    for (const struct sim_delivery *delivery = sim.deliveries; delivery; delivery = delivery->next) {
        const unsigned char *from = delivery->to > (const unsigned char *)at ? delivery->to : at;
        const unsigned char *delivery_end = delivery->to + delivery->bytes, *end = (const unsigned char *)at + bytes;
        end = delivery_end < end ? delivery_end : end;
        if (from < end)
            memcpy(out + (from - (const unsigned char *)at), delivery->data + (from - delivery->to), (size_t)(end - from));
    }
}

/* Takes note of what lies there; whether the host has written it since the last note. */
static bool is_written_by_host(const void *at, size_t bytes)
{
    unsigned char *found = sim_alloc(bytes), *known = known_at(at);
    look(found, at, bytes);
    const bool is_new = memcmp(found, known, bytes) != 0;
    memcpy(known, found, bytes);
    free(found);
    return is_new;
}

static void keep_delivery(const struct copy *copy, const void *from)
{
    const struct sim_op *op = sim_current_op();
    struct sim_delivery **link = &sim.deliveries, *new = sim_alloc(sizeof(*new) + copy->bytes);
    new->rank = op->stream->rank;
    new->component = op->stream->component;
    new->tick = sim.component_tick[new->component];
    new->to = copy->to;
    new->bytes = copy->bytes;
    memcpy(new->data, from, copy->bytes);
    memcpy(known_at(copy->to), from, copy->bytes);
    while (*link) /* in the order in which they came */
        link = &(*link)->next;
    *link = new;
}

static void deliver(struct sim_delivery **link)
{
    struct sim_delivery *delivery = *link;
    memcpy(delivery->to, delivery->data, delivery->bytes);
    *link = delivery->next;
    free(delivery);
}

void sim_deliver(void)
{
    const struct sim_thread *self = sim_self();
    for (struct sim_delivery **link = &sim.deliveries; *link;) {
        const struct sim_delivery *delivery = *link;
        const bool concerns = self->rank == SIM_ANY_RANK || delivery->rank == SIM_ANY_RANK || self->rank == delivery->rank;
        if (concerns && self->clock.at[delivery->component] >= delivery->tick)
            deliver(link);
        else
            link = &(*link)->next;
    }
}

void sim_deliver_to(const struct sim_range *range)
{
    for (struct sim_delivery **link = &sim.deliveries; *link;) {
        const unsigned char *from = range->at, *to = (*link)->to;
        if (to < from + range->bytes && from < to + (*link)->bytes)
            deliver(link);
        else
            link = &(*link)->next;
    }
}

void sim_deliveries_reset(void)
{
    while (sim.deliveries) {
        struct sim_delivery *next = sim.deliveries->next;
        free(sim.deliveries);
        sim.deliveries = next;
    }
}

static void copy_body(const void *arguments)
{
    const struct copy *copy = arguments;
    const void *from = copy->from ? sim_host_alias(copy->from) : copy->data;
    unsigned char *found = copy->from_pinned ? sim_alloc(copy->bytes) : NULL;
    if (copy->was_issued && is_written_by_host(copy->from, copy->bytes))
        sim_violate_race("not ordered: a copy of %zu bytes from pinned memory at %p, and the host, which has written there since "
                         "the copy was issued", copy->bytes, copy->from);
    if (found) {
        look(found, copy->from, copy->bytes);
        from = found;
    }
    if (copy->to_pinned)
        keep_delivery(copy, from);
    else
        memmove(sim_host_alias(copy->to), from, copy->bytes);
    free(found);
}

static void fill_body(const void *arguments)
{
    const struct copy *copy = arguments;
    memset(sim_host_alias(copy->to), copy->value, copy->bytes);
}

/* Pageable memory is read now, and written only by a call that waits. */
static cudaError_t issue_copy(struct sim_stream *stream, const char *name, void *to, const void *from, size_t bytes)
{
    const bool from_host = !sim_memory_find(from), to_host = !sim_memory_find(to);
    const size_t size = sizeof(struct copy) + (from_host ? bytes : 0);
    struct sim_work work = {.kind = SIM_KERNEL, .name = name, .body = copy_body, .argument_bytes = size};
    struct copy *copy = work.arguments = sim_alloc(size);
    *copy = (struct copy){.to = to, .from = from_host ? NULL : from, .bytes = bytes};
    if (from_host)
        memcpy(copy->data, from, bytes);
    if (sim.config.executor == SIM_SCHEDULED) {
        copy->to_pinned = !to_host && sim_memory_find(to)->kind == SIM_PINNED;
        copy->from_pinned = !from_host && sim_memory_find(from)->kind == SIM_PINNED;
        copy->was_issued = copy->from_pinned && !stream->capture;
        if (copy->was_issued && is_written_by_host(from, bytes))
            sim_host_writes(&SIM_READS(from, bytes));
    }
    work.is_copy = true;
    work.ranges = sim_alloc(2 * sizeof(*work.ranges));
    if (!from_host)
        work.ranges[work.range_count++] = SIM_READS(from, bytes);
    if (!to_host)
        work.ranges[work.range_count++] = SIM_WRITES(to, bytes);
    return sim_issue(stream, &work);
}

/* A host address that is none of ours is pageable; one in a device's range that is no allocation is a mistake. */
static bool is_wild(const void *at) { return !at || (sim_is_device_address(at) && !sim_memory_find(at)); }

static bool is_pageable(const void *at) { return !sim_memory_find(at); }

static bool kind_fits(const void *to, const void *from, enum cudaMemcpyKind kind)
{
    const bool to_device = sim_is_device_address(to), from_device = sim_is_device_address(from);
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    case cudaMemcpyDefault:
        return true;
    default:
        return false;
    }
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t handle)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream)
        CUDA_END(cudaErrorInvalidResourceHandle);
    if (bytes == 0)
        CUDA_END(cudaSuccess);
    if (is_wild(to) || is_wild(from) || !kind_fits(to, from, kind)) {
        sim_violate("cudaMemcpyAsync of %zu bytes from %p to %p: an address is not what it is said to be", bytes, from, to);
        CUDA_END(cudaErrorInvalidValue);
    }
    if (is_pageable(to) || is_pageable(from)) {
        if (!sim.config.pageable_copies)
            sim_violate("cudaMemcpyAsync of %zu bytes with host memory that is not pinned: it is not asynchronous", bytes);
        if (stream->capture) {
            sim_capture_spoil(stream->capture);
            CUDA_END(cudaErrorStreamCaptureUnsupported);
        }
    }
    cudaError_t error = issue_copy(stream, "cudaMemcpyAsync", to, from, bytes);
    if (error == cudaSuccess && is_pageable(to))
        error = sim_wait_for(stream->last, "cudaMemcpyAsync to pageable memory");
    CUDA_END(error);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t handle)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(handle);
    const struct sim_memory *target = sim_memory_find(to), *source = sim_memory_find(from);
    if (!stream)
        CUDA_END(cudaErrorInvalidResourceHandle);
    if (!target || !source || target->device != (uint32_t)to_device || source->device != (uint32_t)from_device) {
        sim_violate("cudaMemcpyPeerAsync from %p to %p: not memory of the devices named", from, to);
        CUDA_END(cudaErrorInvalidValue);
    }
    CUDA_END(issue_copy(stream, "cudaMemcpyPeerAsync", to, from, bytes));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(NULL);
    const cudaError_t implicit = sim_capture_refuses_default(stream);
    if (implicit != cudaSuccess)
        CUDA_END(implicit);
    CUDA_UNSAFE();
    if (bytes == 0)
        CUDA_END(cudaSuccess);
    if (is_wild(to) || is_wild(from) || !kind_fits(to, from, kind)) {
        sim_violate("cudaMemcpy of %zu bytes from %p to %p: an address is not what it is said to be", bytes, from, to);
        CUDA_END(cudaErrorInvalidValue);
    }
    const bool returns_early = is_pageable(from) || (sim_is_device_address(from) && sim_is_device_address(to));
    cudaError_t error = issue_copy(stream, "cudaMemcpy", to, from, bytes);
    if (error == cudaSuccess && !returns_early)
        error = sim_wait_for(stream->last, "cudaMemcpy");
    CUDA_END(error);
}

static cudaError_t issue_fill(struct sim_stream *stream, const char *name, void *to, int value, size_t bytes)
{
    struct sim_work work = {.kind = SIM_KERNEL, .name = name, .body = fill_body, .argument_bytes = sizeof(struct copy)};
    struct copy *fill = work.arguments = sim_alloc(sizeof(*fill));
    *fill = (struct copy){.to = to, .bytes = bytes, .value = value};
    work.ranges = sim_alloc(sizeof(*work.ranges));
    work.ranges[work.range_count++] = SIM_WRITES(to, bytes);
    return sim_issue(stream, &work);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t handle)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream)
        CUDA_END(cudaErrorInvalidResourceHandle);
    CUDA_END(bytes ? issue_fill(stream, "cudaMemsetAsync", to, value, bytes) : cudaSuccess);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(NULL);
    const cudaError_t implicit = sim_capture_refuses_default(stream);
    if (implicit != cudaSuccess)
        CUDA_END(implicit);
    CUDA_UNSAFE();
    CUDA_END(bytes ? issue_fill(stream, "cudaMemset", to, value, bytes) : cudaSuccess);
}
