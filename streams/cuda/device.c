/* SPDX-License-Identifier: MIT
 *
 * The CUDA device: streams, events, waits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "streams/cuda/kernels.h"
#include "streams/cuda/parts.h"
#include "streams/trace/cupti.h"
#include "streams/trace/nvtx.h"

/* -- life -------------------------------------------------------------------------------------------------------- */

/* Threads run near the GPU, so what they touch first, pinned memory included, lies near it too. */
static eo_status place(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    char bus_id[32];
    EO_CUDA_TRY(device, "cudaDeviceGetPCIBusId", cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), cuda->device));
    const struct eo_affinity_ops *ops = eo_affinity_best();
    EO_TRY(ops->init_near(&cuda->affinity, device->params.rank, bus_id, &device->log));
    cuda->affinity_ops = ops;
    ops->bind_thread(cuda->affinity);
    return EO_OK;
}

static eo_status make_streams(struct eo_device *device)
{
    static const char *const names[EO_QUEUES_MAX] = {"compute", "collectives", "reductions", "storage", "evictions"};
    struct eo_cuda *cuda = eo_cuda_of(device);
    int least = 0, greatest = 0;
    EO_CUDA_TRY(device, "cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (uint32_t i = 0; i < device->params.queue_count; i++) {
        char name[64];
        EO_CUDA_TRY(device, "cudaStreamCreateWithPriority",
                    cudaStreamCreateWithPriority(&cuda->streams[i], cudaStreamNonBlocking,
                                                 i == EO_QUEUE_COMPUTE ? least : greatest));
        (void)snprintf(name, sizeof(name), "evenodd rank %u %s", device->params.rank, names[i]);
        eo_nvtx_name_stream(cuda->streams[i], name);
    }
    return EO_OK;
}

/* Without timing: a record is cheaper, and a wait need not wait for a time to be written. */
static eo_status make_event(struct eo_device *device, cudaEvent_t *event)
{
    EO_CUDA_TRY(device, "cudaEventCreateWithFlags", cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    return EO_OK;
}

static eo_status make_events(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    cuda->events = calloc(device->params.event_count + 1u, sizeof(cuda->events[0]));
    if (!cuda->events)
        return EO_ERR_NO_MEMORY;
    for (; cuda->event_count < device->params.event_count; cuda->event_count++)
        EO_TRY(make_event(device, &cuda->events[cuda->event_count]));
    for (uint32_t i = 0; i < device->params.queue_count; i++)
        EO_TRY(make_event(device, &cuda->ends[i]));
    return make_event(device, &cuda->fork);
}

static eo_status cuda_init(struct eo_device *device)
{
    struct eo_cuda *cuda = calloc(1, sizeof(*cuda));
    if (!cuda)
        return EO_ERR_NO_MEMORY;
    device->state = cuda;
    EO_TRY(eo_cuda_choose(device));
    if (device->params.place_threads)
        EO_TRY(place(device));
    EO_TRY(make_streams(device));
    EO_TRY(make_events(device));
    EO_TRY(eo_cuda_stamps_init(device));
    EO_CUDA_TRY(device, "cudaMalloc for partial sums",
                cudaMalloc((void **)&cuda->chunks, device->params.queue_count * EO_SUM_CHUNKS_MAX * sizeof(double)));
    return eo_cuda_memory_init(device);
}

static void destroy_event(cudaEvent_t event)
{
    if (event)
        (void)cudaEventDestroy(event);
}

static void cuda_fini(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    if (!cuda || device->is_lost)
        return;
    for (uint32_t i = 0; i < EO_QUEUES_MAX; i++)
        if (cuda->streams[i])
            (void)cudaStreamSynchronize(cuda->streams[i]);
    eo_cuda_profiler_flush();
    eo_cuda_stamps_fini(device);
    eo_cuda_memory_fini(device);
    if (cuda->chunks)
        (void)cudaFree(cuda->chunks);
    for (uint32_t i = 0; i < cuda->event_count; i++)
        destroy_event(cuda->events[i]);
    destroy_event(cuda->fork);
    for (uint32_t i = 0; i < EO_QUEUES_MAX; i++) {
        destroy_event(cuda->ends[i]);
        if (cuda->streams[i])
            (void)cudaStreamDestroy(cuda->streams[i]);
    }
    eo_cuda_context_give_back(cuda->context_before);
    (void)cudaGetLastError(); /* what failed above had failed before, and was told then */
    if (cuda->affinity_ops)
        cuda->affinity_ops->fini(cuda->affinity);
    free(cuda->events);
    free(cuda);
    device->state = NULL;
}

/* -- events ------------------------------------------------------------------------------------------------------ */

/* An event's sequence says when it was recorded, and in which capture, 0 being none: capture << 40 | number. */
#define CAPTURE_SHIFT 40

static uint64_t capture_of(const struct eo_event *event)
{
    return event->sequence >> CAPTURE_SHIFT;
}

static void cuda_record(struct eo_device *device, uint32_t queue, struct eo_event *event)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    EO_ASSERT(queue < device->params.queue_count);
    if (!event->handle) {
        EO_ASSERT(cuda->events_taken < cuda->event_count); /* params.event_count is too small */
        event->handle = cuda->events[cuda->events_taken++];
    }
    const uint64_t capture = eo_cuda_sees_capture(device, queue) ? cuda->capture_count : 0;
    event->queue = queue;
    event->sequence = capture << CAPTURE_SHIFT | ++cuda->sequence;
    (void)eo_cuda_note(device, cudaEventRecord(event->handle, cuda->streams[queue]), "cudaEventRecord");
}

/*
 * A captured step stands as a whole between what was issued before its launch and what is issued after (the launch
 * joins all queues on both sides). So inside one there is nothing to wait for in events from outside, and outside
 * nothing in events from inside; CUDA would refuse both.
 */
static eo_status cuda_wait(struct eo_device *device, uint32_t queue, const struct eo_event *event)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    EO_ASSERT(queue < device->params.queue_count && event->queue < device->params.queue_count);
    if (event->sequence == 0 || event->queue == queue)
        return cuda->error;
    const uint64_t capture = eo_cuda_sees_capture(device, queue) ? cuda->capture_count : 0;
    if (capture_of(event) == capture)
        (void)eo_cuda_note(device, cudaStreamWaitEvent(cuda->streams[queue], event->handle, 0), "cudaStreamWaitEvent");
    return cuda->error;
}

/* What has failed is complete: nobody waits for it for ever, and the next wait or await tells. */
static bool cuda_is_complete(struct eo_device *device, const struct eo_event *event)
{
    const struct eo_cuda *cuda = eo_cuda_of(device);
    if (event->sequence == 0 || cuda->error < 0)
        return true;
    const cudaError_t error = capture_of(event) ? eo_cuda_query_stream(cuda->streams[event->queue])
                                                : eo_cuda_query_event(event->handle);
    if (error == cudaErrorNotReady)
        return false;
    (void)eo_cuda_note(device, error, "work on the GPU");
    return true;
}

static eo_status cuda_await(struct eo_device *device, const struct eo_event *event)
{
    const struct eo_cuda *cuda = eo_cuda_of(device);
    if (event->sequence == 0 || cuda->error < 0)
        return cuda->error;
    (void)eo_cuda_note(device, capture_of(event) ? cudaStreamSynchronize(cuda->streams[event->queue])
                                                 : cudaEventSynchronize(event->handle),
                       "work on the GPU");
    return cuda->error;
}

static eo_status cuda_drain(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    if (device->is_lost)
        return cuda->error < 0 ? cuda->error : EO_ERR_DEVICE;
    for (uint32_t i = 0; i < device->params.queue_count; i++)
        (void)eo_cuda_note(device, cudaStreamSynchronize(cuda->streams[i]), "work on the GPU");
    if (cuda->error == EO_OK)
        eo_cuda_stamps_anchor(device);
    return cuda->error;
}

static void *cuda_queue_handle(struct eo_device *device, uint32_t queue)
{
    EO_ASSERT(queue < EO_QUEUES_MAX);
    return eo_cuda_of(device)->streams[queue];
}

/* The same ranges name operations in NVTX's profilers and in CUPTI's records. */
static void cuda_range_begin(struct eo_device *device, const char *name)
{
    eo_nvtx_push(name);
    eo_cuda_profiler_push(name);
}

static void cuda_range_end(struct eo_device *device)
{
    eo_cuda_profiler_pop();
    eo_nvtx_pop();
}

const struct eo_device_ops eo_device_cuda_ops = {
    .name = "cuda",
    .is_host_memory = false,
    .init = cuda_init,
    .fini = cuda_fini,
    .reserve = eo_cuda_reserve,
    .release = eo_cuda_release,
    .available = eo_cuda_available,
    .record = cuda_record,
    .wait = cuda_wait,
    .is_complete = cuda_is_complete,
    .await = cuda_await,
    .drain = cuda_drain,
    .queue_handle = cuda_queue_handle,
    .stamp = eo_cuda_stamp,
    .resolve_stamps = eo_cuda_resolve_stamps,
    .resolve_graph_stamps = eo_cuda_resolve_graph_stamps,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
    .upload = eo_cuda_upload,
    .download = eo_cuda_download,
    .zero = eo_cuda_zero,
    .fill = eo_cuda_fill_memory,
    .copy = eo_cuda_copy,
    .copy_host = eo_cuda_copy_host,
    .cast_bf16 = eo_cuda_cast,
    .narrow = eo_cuda_narrow_runs,
    .widen = eo_cuda_widen_runs,
    .widen_mxfp8 = eo_cuda_widen_mxfp8_runs,
    .accumulate = eo_cuda_add,
    .sum_squares = eo_cuda_squares,
    .accumulate_sum_squares = eo_cuda_add_squares,
    .norm_local = eo_cuda_local_norm,
    .norm_sum = eo_cuda_sum_norms,
    .update = eo_cuda_update,
    .combine = eo_cuda_combine_all,
    .average = eo_cuda_average_all,
    .capture_begin = eo_cuda_capture_begin,
    .capture_end = eo_cuda_capture_end,
    .graph_launch = eo_cuda_graph_launch,
    .graph_destroy = eo_cuda_graph_destroy,
    .storage_peek = eo_cuda_storage_peek,
    .storage_check = eo_cuda_storage_check,
    .storage_open = eo_cuda_storage_open,
    .storage_close = eo_cuda_storage_close,
    .storage_copy = eo_cuda_storage_copy,
    .allocator = eo_cuda_allocator,
    .profiler = eo_cuda_profiler,
};
