/* SPDX-License-Identifier: MIT
 *
 * Copies and fills, as the runtime's calls. What a call waits for is as the documentation has it, not as one
 * would wish: cudaMemset and a copy from pageable memory come back before the device has done them, and streams made with
 * cudaStreamNonBlocking do not wait for them.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

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
