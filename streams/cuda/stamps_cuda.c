/* SPDX-License-Identifier: MIT
 *
 * Times of the GPU on the host's clock. `base` is an event whose host time is known; others are so many milliseconds
 * after it. CUDA gives those as floats: far from the base they are coarse, so the base moves along. At a drain, when
 * the GPU is idle, the clocks are compared anew, so they do not drift apart.
 */
#include <stdlib.h>

#include "base/check.h"
#include "streams/cuda/device_cuda.h"

static const float base_moves_after_ms = 1000; /* a float's step is 0.06 us there */

eo_status eo_cuda_stamps_init(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    const uint32_t count = device->params.stamp_count;
    if (count == 0)
        return EO_OK;
    cuda->stamps = calloc(count, sizeof(cuda->stamps[0]));
    if (!cuda->stamps)
        return EO_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        EO_CUDA_TRY(device, "cudaEventCreateWithFlags",
                    cudaEventCreateWithFlags(&cuda->stamps[i].event, cudaEventDefault));
    EO_CUDA_TRY(device, "cudaEventCreateWithFlags", cudaEventCreateWithFlags(&cuda->base, cudaEventDefault));
    eo_cuda_stamps_anchor(device);
    return cuda->error;
}

void eo_cuda_stamps_fini(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    for (uint32_t i = 0; cuda->stamps && i < device->params.stamp_count; i++)
        if (cuda->stamps[i].event)
            (void)cudaEventDestroy(cuda->stamps[i].event);
    if (cuda->base)
        (void)cudaEventDestroy(cuda->base);
    free(cuda->stamps);
    cuda->stamps = NULL;
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

/* In a captured step there are none: the same event would be recorded at every launch, and *ns be that of another. */
void eo_cuda_stamp(struct eo_device *device, uint32_t queue, uint64_t *ns)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    if (!cuda->stamps || eo_cuda_sees_capture(device, queue))
        return;
    if (cuda->stamps_taken - cuda->stamps_resolved == device->params.stamp_count) {
        /* More than were asked for: the oldest is waited for, which is slow, but true. */
        (void)cudaEventSynchronize(cuda->stamps[cuda->stamps_resolved % device->params.stamp_count].event);
        (void)resolve_oldest(device);
    }
    struct eo_cuda_stamp *stamp = &cuda->stamps[cuda->stamps_taken++ % device->params.stamp_count];
    stamp->ns = ns;
    (void)eo_cuda_note(device, cudaEventRecord(stamp->event, cuda->streams[queue]), "cudaEventRecord for a time");
}
