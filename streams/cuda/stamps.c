/* SPDX-License-Identifier: MIT
 *
 * Times of the GPU on the host's clock. `base` is an event whose host time is known; others are so many milliseconds
 * after it. CUDA gives those as floats: far from the base they are coarse, so the base moves along. At a drain, when
 * the GPU is idle, the clocks are compared anew, so they do not drift apart.
 *
 * A captured step has events of its own: external ones, so that they are nodes of the graph, which every launch records
 * anew. They are read between two launches.
 */
#include <stdlib.h>

#include "base/check.h"
#include "streams/cuda/parts.h"

static const float base_moves_after_ms = 1000; /* a float's step is 0.06 us there */

static eo_status make_stamps(struct eo_device *device, uint32_t count, struct eo_cuda_stamp **out)
{
    struct eo_cuda_stamp *stamps = calloc(count + 1u, sizeof(*stamps));
    *out = stamps;
    if (!stamps)
        return EO_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        EO_CUDA_TRY(device, "cudaEventCreateWithFlags", cudaEventCreateWithFlags(&stamps[i].event, cudaEventDefault));
    return EO_OK;
}

eo_status eo_cuda_stamps_init(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    if (device->params.stamp_count == 0)
        return EO_OK;
    EO_TRY(make_stamps(device, device->params.stamp_count, &cuda->stamps));
    EO_TRY(make_stamps(device, device->params.graph_stamp_count, &cuda->graph_stamps));
    EO_CUDA_TRY(device, "cudaEventCreateWithFlags", cudaEventCreateWithFlags(&cuda->base, cudaEventDefault));
    eo_cuda_stamps_anchor(device);
    return cuda->error;
}

static void destroy_stamps(struct eo_cuda_stamp **stamps, uint32_t count)
{
    for (uint32_t i = 0; *stamps && i < count; i++)
        if ((*stamps)[i].event)
            (void)cudaEventDestroy((*stamps)[i].event);
    free(*stamps);
    *stamps = NULL;
}

void eo_cuda_stamps_fini(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    destroy_stamps(&cuda->stamps, device->params.stamp_count);
    destroy_stamps(&cuda->graph_stamps, device->params.graph_stamp_count);
    if (cuda->base)
        (void)cudaEventDestroy(cuda->base);
    cuda->base = NULL;
}

void eo_cuda_stamps_anchor(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    if (!cuda->stamps)
        return;
    eo_cuda_resolve_stamps(device);
    const cudaStream_t stream = cuda->streams[EO_QUEUE_COMPUTE];
    cudaError_t error = cudaEventRecord(cuda->base, stream);
    if (error == cudaSuccess)
        error = cudaEventSynchronize(cuda->base);
    cuda->base_ns = (double)eo_now_ns();
    (void)eo_cuda_note(device, error, "comparing the clocks");
}

/* False: the GPU has not come there yet. */
static bool resolve_oldest(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    struct eo_cuda_stamp *stamp = &cuda->stamps[cuda->stamps_resolved % device->params.stamp_count];
    float ms = 0;
    cudaError_t error = eo_cuda_query_event(stamp->event);
    if (error == cudaErrorNotReady)
        return false;
    if (error == cudaSuccess)
        error = cudaEventElapsedTime(&ms, cuda->base, stamp->event);
    cuda->stamps_resolved++;
    if (eo_cuda_note(device, error, "times of the GPU") < 0)
        return true;
    const double at_ns = cuda->base_ns + (double)ms * 1e6;
    *stamp->ns = at_ns > 0 ? (uint64_t)at_ns : 0;
    if (ms > base_moves_after_ms) {
        const cudaEvent_t old = cuda->base;
        cuda->base = stamp->event;
        cuda->base_ns = at_ns;
        stamp->event = old;
    }
    return true;
}

void eo_cuda_resolve_stamps(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    while (cuda->stamps_resolved < cuda->stamps_taken && resolve_oldest(device)) {
    }
}

void eo_cuda_resolve_graph_stamps(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    eo_cuda_resolve_stamps(device); /* the base moves along */
    for (uint32_t i = 0; i < cuda->graph_stamps_taken; i++) {
        float ms = 0;
        const cudaError_t error = cudaEventElapsedTime(&ms, cuda->base, cuda->graph_stamps[i].event);
        if (eo_cuda_note(device, error, "times of a captured step") < 0)
            return;
        const double at_ns = cuda->base_ns + (double)ms * 1e6;
        *cuda->graph_stamps[i].ns = at_ns > 0 ? (uint64_t)at_ns : 0;
    }
}

/* An ordinary record would only say where the capture is. */
static void stamp_in_graph(struct eo_device *device, uint32_t queue, uint64_t *ns)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    if (cuda->graph_stamps_capture != cuda->capture_count)
        cuda->graph_stamps_taken = 0;
    cuda->graph_stamps_capture = cuda->capture_count;
    if (cuda->graph_stamps_taken == device->params.graph_stamp_count)
        return;
    struct eo_cuda_stamp *stamp = &cuda->graph_stamps[cuda->graph_stamps_taken++];
    stamp->ns = ns;
    (void)eo_cuda_note(device, cudaEventRecordWithFlags(stamp->event, cuda->streams[queue], cudaEventRecordExternal),
                       "cudaEventRecordWithFlags for a time");
}

void eo_cuda_stamp(struct eo_device *device, uint32_t queue, uint64_t *ns)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    if (!cuda->stamps)
        return;
    if (eo_cuda_sees_capture(device, queue)) {
        stamp_in_graph(device, queue, ns);
        return;
    }
    if (cuda->stamps_taken - cuda->stamps_resolved == device->params.stamp_count) {
        /* More than were asked for: the oldest is waited for, which is slow, but true. */
        (void)cudaEventSynchronize(cuda->stamps[cuda->stamps_resolved % device->params.stamp_count].event);
        (void)resolve_oldest(device);
    }
    struct eo_cuda_stamp *stamp = &cuda->stamps[cuda->stamps_taken++ % device->params.stamp_count];
    stamp->ns = ns;
    (void)eo_cuda_note(device, cudaEventRecord(stamp->event, cuda->streams[queue]), "cudaEventRecord for a time");
}
