/* SPDX-License-Identifier: MIT
 *
 * A step of all ranks as one graph: a capture has one stream in which it begins and ends, and what ranks of one process
 * issue to each other's events belongs into one. Rank 0's compute stream is that one; the other streams join it by
 * events. Ranks meet before and after, so what rank 0 writes between two meetings is read by all after the second.
 *
 *     begin    meet | rank 0 begins, records fork | meet | each rank's queues wait for fork
 *     end      each rank records its points | meet | rank 0 waits for them, ends, instantiates | meet
 *     launch   each rank records its points | meet | rank 0 waits for them, launches, records fork | meet | queues wait
 */
#include "streams/local/cuda_meet.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"

struct eo_local_graph {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    _Atomic uint32_t references; /* one a rank */
};

static cudaStream_t queue_of(const struct eo_comm *comm, uint32_t queue)
{
    return comm->device->ops->queue_handle(comm->device, queue);
}

static bool is_root(uint32_t rank, uint32_t queue)
{
    return rank == 0 && queue == EO_QUEUE_COMPUTE;
}

/* A status of this step alone: the group goes on, and all ranks hear of it from rank 0. */
static eo_status as_status(struct eo_comm *comm, cudaError_t error, const char *call)
{
    return eo_cuda_status(&comm->end.group->log, comm->end.rank, error, call);
}

/* This rank's queues go on from rank 0's fork. */
static eo_status follow_fork(struct eo_comm *comm, const char *label)
{
    const cudaEvent_t fork = eo_local_cuda_rank_of(comm, 0)->fork;
    for (uint32_t q = 0; q < comm->self->queue_count; q++) {
        if (is_root(comm->end.rank, q))
            continue;
        const cudaError_t error = cudaStreamWaitEvent(queue_of(comm, q), fork, 0);
        if (error != cudaSuccess)
            return eo_local_cuda_fail(comm, error, "cudaStreamWaitEvent", label);
    }
    return EO_OK;
}

static eo_status record_points(struct eo_comm *comm, const char *label)
{
    for (uint32_t q = 0; q < comm->self->queue_count; q++) {
        if (is_root(comm->end.rank, q))
            continue;
        const cudaError_t error = cudaEventRecord(comm->self->points[q], queue_of(comm, q));
        if (error != cudaSuccess)
            return eo_local_cuda_fail(comm, error, "cudaEventRecord", label);
    }
    return EO_OK;
}

/* Rank 0: its compute queue goes on when all queues of all ranks have come to their points. */
static cudaError_t join_points(struct eo_comm *comm)
{
    cudaError_t error = cudaSuccess;
    for (uint32_t r = 0; r < comm->end.group->params.rank_count; r++) {
        const struct eo_local_cuda_rank *rank = eo_local_cuda_rank_of(comm, r);
        for (uint32_t q = 0; q < rank->queue_count && error == cudaSuccess; q++)
            if (!is_root(r, q))
                error = cudaStreamWaitEvent(queue_of(comm, EO_QUEUE_COMPUTE), rank->points[q], 0);
    }
    return error;
}

static void free_graph(struct eo_local_graph *graph)
{
    if (!graph)
        return;
    if (graph->exec)
        (void)cudaGraphExecDestroy(graph->exec);
    if (graph->graph)
        (void)cudaGraphDestroy(graph->graph);
    free(graph);
}

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;

static void mark_capture(struct eo_local_cuda_rank *root, cudaStream_t stream)
{
    pthread_mutex_lock(&capture_lock);
    root->capturing = stream;
    pthread_mutex_unlock(&capture_lock);
}

/*
 * Any rank ends the capture, which is rank 0's: as long as it runs, no rank can wait for the work it issued before, and a
 * rank that leaves would free memory under that work.
 */
void eo_local_cuda_capture_abandon(struct eo_comm *comm)
{
    struct eo_local_cuda_rank *root = eo_local_cuda_rank_of(comm, 0);
    cudaGraph_t graph = NULL;
    pthread_mutex_lock(&capture_lock);
    if (root && root->capturing) {
        (void)cudaStreamEndCapture(root->capturing, &graph); /* fails where queues have not joined */
        (void)cudaGetLastError();
        root->capturing = NULL;
    }
    pthread_mutex_unlock(&capture_lock);
    if (graph)
        (void)cudaGraphDestroy(graph);
}

/* Relaxed: the ranks' threads issue into one capture, and what is unsafe in it is left out by the runtime. */
static eo_status begin(struct eo_comm *comm)
{
    struct eo_local_cuda_rank *self = comm->self;
    const cudaStream_t compute = queue_of(comm, EO_QUEUE_COMPUTE);
    EO_TRY(as_status(comm, cudaStreamBeginCapture(compute, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture"));
    mark_capture(self, compute);
    const eo_status status = as_status(comm, cudaEventRecord(self->fork, compute), "cudaEventRecord");
    if (status < 0)
        eo_local_cuda_capture_abandon(comm);
    return status;
}

eo_status eo_local_cuda_capture_begin(struct eo_comm *comm)
{
    eo_cuda_of(comm->device)->capture_error = EO_OK;
    EO_TRY(eo_local_cuda_barrier(comm, "capture of a step"));
    if (comm->end.rank == 0)
        comm->self->status = begin(comm);
    eo_status status = eo_local_cuda_barrier(comm, "capture begun");
    if (status >= 0)
        status = eo_local_cuda_rank_of(comm, 0)->status;
    if (status >= 0)
        status = follow_fork(comm, "capture begun");
    if (status < 0)
        eo_local_cuda_capture_abandon(comm);
    return status;
}

static eo_status end(struct eo_comm *comm)
{
    struct eo_local_cuda_rank *self = comm->self;
    struct eo_local_graph *graph = calloc(1, sizeof(*graph));
    eo_status joined = as_status(comm, join_points(comm), "a capture's join");
    for (uint32_t r = 0; r < comm->end.group->params.rank_count && joined >= 0; r++)
        joined = eo_local_cuda_rank_of(comm, r)->status; /* what its device could not capture: told when it came */
    if (!graph || joined < 0) {
        free(graph);
        eo_local_cuda_capture_abandon(comm);
        return joined < 0 ? joined : EO_ERR_NO_MEMORY;
    }
    mark_capture(self, NULL);
    eo_status status = as_status(comm, cudaStreamEndCapture(queue_of(comm, EO_QUEUE_COMPUTE), &graph->graph),
                                 "cudaStreamEndCapture");
    /* Else all nodes run at the launching queue's priority. */
    if (status >= 0)
        status = as_status(comm, cudaGraphInstantiate(&graph->exec, graph->graph, cudaGraphInstantiateFlagUseNodePriority),
                           "cudaGraphInstantiate");
    if (status < 0) {
        free_graph(graph);
        return status;
    }
    atomic_init(&graph->references, comm->end.group->params.rank_count);
    self->graph = graph;
    return EO_OK;
}

eo_status eo_local_cuda_capture_end(struct eo_comm *comm, void **graph)
{
    *graph = NULL;
    eo_status status = record_points(comm, "capture ends");
    comm->self->status = eo_cuda_of(comm->device)->capture_error;
    if (status >= 0)
        status = eo_local_cuda_barrier(comm, "capture ends");
    if (status < 0) {
        eo_local_cuda_capture_abandon(comm);
        return status;
    }
    if (comm->end.rank == 0)
        comm->self->status = end(comm);
    EO_TRY(eo_local_cuda_barrier(comm, "capture ended"));
    const struct eo_local_cuda_rank *root = eo_local_cuda_rank_of(comm, 0);
    EO_TRY(root->status);
    *graph = root->graph;
    return EO_OK;
}

eo_status eo_local_cuda_graph_launch(struct eo_comm *comm, void *graph)
{
    static const char label[] = "launch of a captured step";
    const struct eo_local_graph *captured = graph;
    EO_TRY(record_points(comm, label));
    EO_TRY(eo_local_cuda_barrier(comm, label));
    if (comm->end.rank == 0) {
        const cudaStream_t compute = queue_of(comm, EO_QUEUE_COMPUTE);
        cudaError_t error = join_points(comm);
        if (error == cudaSuccess)
            error = cudaGraphLaunch(captured->exec, compute);
        if (error == cudaSuccess)
            error = cudaEventRecord(comm->self->fork, compute);
        comm->self->status = error == cudaSuccess ? EO_OK : eo_local_cuda_fail(comm, error, "cudaGraphLaunch", label);
    }
    EO_TRY(eo_local_cuda_barrier(comm, "captured step launched"));
    return follow_fork(comm, label);
}

void eo_local_cuda_graph_destroy(struct eo_comm *comm, void **graph)
{
    struct eo_local_graph *captured = *graph;
    (void)comm;
    *graph = NULL;
    if (captured && atomic_fetch_sub(&captured->references, 1) == 1)
        free_graph(captured);
}
