/* SPDX-License-Identifier: MIT
 *
 * The local collectives on CUDA: ranks are threads of one process, on one GPU or one each. What they share and how they
 * meet is told in streams/local/local.h; here only the host threads meet, when a collective is issued, because a wait binds
 * to the record that is current when it is called. What runs on the device is ordered by events alone:
 *
 *     rank r's stream      ... | entry[r] | waits for all entries | reads all sends, writes recv | exit[r] | ...
 *     reduce-scatter                                                                     ... and waits for all exits
 *     all-reduce           twice: sums its slice in place; then, all having entered again, copies the others' slices
 *
 *     entry   this rank's send is ready, and its recv free: recorded before the rank is seen to have entered
 *     exit    this rank reads nobody's send any more
 *
 * A later collective's entries stand behind the exits before them, so an all-gather needs no wait for exits.
 * Two of each a rank are enough: see the posts of streams/local/local.h.
 */
#ifndef EO_STREAMS_LOCAL_CUDA_MEET_H
#define EO_STREAMS_LOCAL_CUDA_MEET_H

#include <cuda_runtime_api.h>

#include "streams/cuda/state.h"
#include "streams/local/local.h"

struct eo_local_graph;

/* What a rank shows its peers; lives as long as the line. */
struct eo_local_cuda_rank {
    int device;                    /* CUDA's number */
    cudaEvent_t entry[2]; /* of collective s: [s & 1] */
    cudaEvent_t exit[2][2]; /* [whether captured][s & 1]: who closes asks for those that are not, and a record in a capture would
                               take the place of one whose work may still run */

    /* Captured steps; of rank 0 what all read between two meetings. */
    uint32_t queue_count;
    cudaEvent_t points[EO_QUEUES_MAX]; /* where this rank's queues are when a capture or a launch joins them */
    cudaEvent_t fork;                  /* from where all queues go on */
    cudaStream_t capturing; /* rank 0's compute stream while a capture runs on it, else NULL; under the capture's lock */
    struct eo_local_graph *graph;
    eo_status status;
};

struct eo_comm {
    struct eo_local_end end;
    struct eo_device *device;
    uint32_t queue;
    cudaStream_t stream;
    struct eo_local_cuda_rank *self;
    bool is_connected; /* this GPU reads the other ranks' */
    uint32_t join_count, joined; /* collectives of an operation of several, and those of them still to be issued */
};

static inline struct eo_local_cuda_rank *eo_local_cuda_rank_of(const struct eo_comm *comm, uint32_t rank)
{
    return comm->end.line->ranks[rank].shared;
}

/* The group fails with what CUDA said. Returns the failure that counts. */
eo_status eo_local_cuda_fail(struct eo_comm *comm, cudaError_t error, const char *call, const char *label);
/* A meeting in which nothing is done. */
eo_status eo_local_cuda_barrier(struct eo_comm *comm, const char *label);

/* streams/local/cuda_graph.c: for the table, and for close where a captured step was not ended. */
eo_status eo_local_cuda_capture_begin(struct eo_comm *comm);
eo_status eo_local_cuda_capture_end(struct eo_comm *comm, void **graph);
eo_status eo_local_cuda_graph_launch(struct eo_comm *comm, void *graph);
void eo_local_cuda_graph_destroy(struct eo_comm *comm, void **graph);
void eo_local_cuda_capture_abandon(struct eo_comm *comm);

#endif
