/* SPDX-License-Identifier: MIT
 *
 * A step of one rank as a graph. The compute queue's stream begins and ends the capture; the other queues fork from it
 * at the beginning and join it at the end, whether or not something is issued to them, and the same at every launch:
 *
 *     compute   ... join all queues | graph | fork ...      what was issued before runs before, what comes after, after
 *     others    ...                 |       | wait for fork ...
 */
#include <stdlib.h>

#include "base/check.h"
#include "streams/cuda/parts.h"

static cudaError_t join_queues(const struct eo_device *device)
{
    const struct eo_cuda *cuda = eo_cuda_of(device);
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 1; i < device->params.queue_count && error == cudaSuccess; i++) {
        error = cudaEventRecord(cuda->ends[i], cuda->streams[i]);
        if (error == cudaSuccess)
            error = cudaStreamWaitEvent(cuda->streams[EO_QUEUE_COMPUTE], cuda->ends[i], 0);
    }
    return error;
}

static cudaError_t fork_queues(const struct eo_device *device)
{
    const struct eo_cuda *cuda = eo_cuda_of(device);
    cudaError_t error = cudaEventRecord(cuda->fork, cuda->streams[EO_QUEUE_COMPUTE]);
    for (uint32_t i = 1; i < device->params.queue_count && error == cudaSuccess; i++)
        error = cudaStreamWaitEvent(cuda->streams[i], cuda->fork, 0);
    return error;
}

/* Whatever has become of the capture, there is none afterwards. */
static cudaError_t end_capture(struct eo_cuda *cuda, cudaGraph_t *graph)
{
    *graph = NULL;
    const cudaError_t error = cudaStreamEndCapture(cuda->streams[EO_QUEUE_COMPUTE], graph);
    cuda->is_capturing = false;
    if (error != cudaSuccess && *graph) {
        (void)cudaGraphDestroy(*graph);
        *graph = NULL;
    }
    return error;
}

/* What captures refuse is no failure of the device: the step can be run without one. */
static eo_status capture_status(struct eo_device *device, cudaError_t error, const char *operation)
{
    if (error != cudaSuccess && eo_cuda_is_sticky(error))
        return eo_cuda_note(device, error, operation);
    return eo_cuda_status(&device->log, device->params.rank, error, operation);
}

eo_status eo_cuda_capture_begin(struct eo_device *device)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    EO_TRY(cuda->error);
    cuda->capture_error = EO_OK;
    cuda->is_capturing = false; /* so that this one is counted as another */
    EO_TRY(capture_status(device, cudaStreamBeginCapture(cuda->streams[EO_QUEUE_COMPUTE],
                                                         cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
    (void)eo_cuda_sees_capture(device, EO_QUEUE_COMPUTE);
    const eo_status status = capture_status(device, fork_queues(device), "a capture's fork");
    if (status < 0) {
        cudaGraph_t graph;
        (void)end_capture(cuda, &graph);
        if (graph)
            (void)cudaGraphDestroy(graph);
        (void)cudaGetLastError();
    }
    return status;
}

eo_status eo_cuda_capture_end(struct eo_device *device, void **graph)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    cudaGraph_t captured = NULL;
    cudaGraphExec_t exec = NULL;
    *graph = NULL;
    const cudaError_t joined = join_queues(device);
    const cudaError_t ended = end_capture(cuda, &captured);
    eo_status status = cuda->capture_error; /* told when it came */
    if (status == EO_OK)
        status = capture_status(device, joined, "a capture's join");
    if (status == EO_OK)
        status = capture_status(device, ended, "cudaStreamEndCapture");
    /* Without the flag all nodes run at the priority of the queue that launches. */
    if (status == EO_OK)
        status = capture_status(device, cudaGraphInstantiate(&exec, captured, cudaGraphInstantiateFlagUseNodePriority),
                                "cudaGraphInstantiate");
    if (captured)
        (void)cudaGraphDestroy(captured);
    (void)cudaGetLastError();
    *graph = exec;
    return status;
}

eo_status eo_cuda_graph_launch(struct eo_device *device, void *graph)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    EO_TRY(cuda->error);
    EO_CUDA_TRY(device, "a captured step: joining the queues", join_queues(device));
    EO_CUDA_TRY(device, "cudaGraphLaunch", cudaGraphLaunch(graph, cuda->streams[EO_QUEUE_COMPUTE]));
    EO_CUDA_TRY(device, "a captured step: resuming the queues", fork_queues(device));
    return EO_OK;
}

/* Waits for its last launch: a graph that runs is not destroyed. */
void eo_cuda_graph_destroy(struct eo_device *device, void **graph)
{
    if (!*graph)
        return;
    (void)cudaStreamSynchronize(eo_cuda_of(device)->streams[EO_QUEUE_COMPUTE]);
    (void)cudaGraphExecDestroy(*graph);
    (void)cudaGetLastError();
    *graph = NULL;
}
