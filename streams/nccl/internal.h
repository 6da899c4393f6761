/* SPDX-License-Identifier: MIT
 *
 * The collectives of NCCL from inside. A group is this rank's alone; it holds a parent communicator that carries no
 * collective and is split once for all-gathers and once for reductions, so that each has its own policy. A group
 * that is split from another has a parent of its own, and what fails, is captured or keeps an order is the root's: the
 * rank has one GPU.
 *
 *     streams/nccl/library.c        NCCL itself, loaded
 *     streams/nccl/failure.c        the first failure, giving up
 *     streams/nccl/communicator.c   communicators made and ended
 *     streams/nccl/watch.c          what is under way, and since when
 *     streams/nccl/comm.c           collectives, registration
 *     streams/nccl/graph.c          captured steps
 *     streams/nccl/split.c          groups inside a group
 *     streams/nccl/group.c          joining; the table
 *
 * All communicators are asynchronous (blocking = 0): a call may answer "in progress", and then nothing may be called on
 * that communicator until it has settled; eo_nccl_settle waits for that, with the deadline.
 *
 * After the first failure no function of NCCL is called on a communicator again, but for one attempt to abort them.
 */
#ifndef EO_STREAMS_NCCL_INTERNAL_H
#define EO_STREAMS_NCCL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "streams/collective.h"
#include "streams/cuda/state.h"
#include "streams/nccl/calls.h"
#include "streams/nccl/choice.h"

enum { EO_NCCL_REGIONS_MAX = 8, EO_NCCL_FLIGHTS_MAX = 256, EO_NCCL_FAMILY_MAX = 32 };

/* A reservation, as this communicator knows it. */
struct eo_nccl_region {
    void *base;
    uint64_t bytes;
    void *handle;        /* of ncclCommRegister */
    ncclWindow_t window; /* of ncclCommWindowRegister */
};

/* A collective that was issued and may not have ended. */
struct eo_nccl_flight {
    cudaEvent_t begin, end; /* on the queue, before and after */
    const char *label;
    const char *what;
    uint64_t sequence, bytes;
    bool is_step, is_timed; /* a captured step; and its time is taken */
};

struct eo_comm {
    struct eo_group *group;
    struct eo_device *device;
    uint32_t queue;
    cudaStream_t stream;
    ncclComm_t nccl;
    bool reduces; /* else it gathers */
    uint64_t sequence;

    struct eo_nccl_region regions[EO_NCCL_REGIONS_MAX];
    uint32_t region_count;

    struct eo_nccl_flight *flights; /* ring: [head, head + count) are under way */
    uint64_t flight_head, flight_count;
    struct eo_nccl_flight *flight; /* of the operation that is being issued; it has so many requests, and so many to come: */
    uint32_t join_count, joined;
    bool in_group;             /* ncclGroupStart was called, ncclGroupEnd not yet */
    bool is_waiting;           /* the oldest was seen to have begun, so long ago: */
    struct eo_stopwatch waited;
    uint64_t ordinary_ns;      /* that steps before the first captured one took, all together */
    uint64_t step_ns;          /* the longest captured step; 0: none has ended */
    cudaEvent_t step_begin, step_end; /* of one captured step at a time */
    bool times_step;

    void *barrier; /* device memory of quiesce */
    cudaEvent_t last;    /* end of the latest collective, where launches are not ordered by NCCL ... */
    uint64_t last_epoch; /* ... of that epoch of the group */
};

struct eo_group {
    struct eo_group_params params;
    eo_log log;
    uint32_t rank;
    int cuda_device;
    const struct eo_nccl_mode *mode;
    bool ordered_launches;
    uint32_t cta_max;
    ncclComm_t parent;
    bool owns_parent;  /* else the caller's */
    bool is_splitting; /* the parent: NCCL may still write where the child was asked for */
    struct eo_comm *comms[2];    /* that gathers, that reduces; a group of replicas has the second alone */
    struct eo_group *root;       /* itself, where it was not split from another */
    struct eo_group *next;       /* of the family */
    struct eo_nccl_facts facts;

    /* The root's, for the family. */
    _Atomic uint32_t references; /* the world's own, and one of each other group */
    uint64_t first_ns;           /* when the first collective was issued; 0: none was */
    uint64_t epoch; /* changes where a captured step begins and ends: events of one are not waited for in another */
    bool is_capturing;
    uint32_t graph_count; /* alive: NCCL waits for ever for them to go when it aborts or destroys */

    _Atomic int failure; /* eo_status; written once, after the text */
    pthread_mutex_t lock;
    char text[1024];
    bool gave_up; /* the communicators were aborted, or are left as they are */
    struct eo_group_info info;
};

static inline eo_status eo_nccl_failure(const struct eo_group *group)
{
    return (eo_status)atomic_load(&group->root->failure);
}

/* The info's words on how its collectives run. */
void eo_nccl_tell_mode(struct eo_group *group);

/* streams/nccl/failure.c: the first failure counts; it is logged and kept. Returns the failure that counts. */
eo_status eo_nccl_fail(struct eo_group *group, eo_status status, const char *format, ...) EO_PRINTF(3, 4);
/* With what NCCL, or CUDA, said to a call. */
eo_status eo_nccl_fail_call(struct eo_group *group, ncclComm_t comm, ncclResult_t result, const char *call,
                            const char *label);
eo_status eo_nccl_fail_cuda(struct eo_group *group, cudaError_t error, const char *call, const char *label);

/* What a call on `comm` has answered: EO_OK once it has settled. Waits, until the deadline or a failure. */
eo_status eo_nccl_settle(struct eo_group *group, ncclComm_t comm, ncclResult_t result, const char *call,
                         const char *label);
/* The same where NCCL answers ncclSuccess for what a thread of its own has only begun. */
eo_status eo_nccl_settle_begun(struct eo_group *group, ncclComm_t comm, ncclResult_t result, const char *call,
                               const char *label);

/* Waits for the other ranks of this machine, with the deadline: their threads inside NCCL use each other. */
void eo_nccl_destroy(struct eo_group *group, ncclComm_t comm);
/* After a failure: tries to end what runs on the device, once. */
void eo_nccl_give_up(struct eo_group *group);

/* streams/nccl/watch.c */
eo_status eo_nccl_watch_init(struct eo_comm *comm);
void eo_nccl_watch_fini(struct eo_comm *comm);
/* Before and after what is issued; `flight` NULL: the ring is full, it goes unwatched. */
eo_status eo_nccl_flight_begin(struct eo_comm *comm, cudaStream_t stream, const char *what, const char *label,
                               uint64_t bytes, struct eo_nccl_flight **flight);
eo_status eo_nccl_flight_end(struct eo_comm *comm, cudaStream_t stream, struct eo_nccl_flight *flight);
/* The flight that has begun is a captured step: all of its collectives, and what is computed between them. */
eo_status eo_nccl_flight_is_step(struct eo_comm *comm, cudaStream_t stream, struct eo_nccl_flight *flight);
eo_status eo_nccl_poll(struct eo_comm *comm);
/* Until the stream is empty, or any communicator of the family has failed: the stream may wait for their streams. */
eo_status eo_nccl_drain(struct eo_comm *comm, cudaStream_t stream, const char *label);

/* streams/nccl/comm.c: for the table. */
eo_status eo_nccl_open(struct eo_comm **out, struct eo_group *group, uint32_t rank, struct eo_device *device, uint32_t queue,
                       bool reduces);
void eo_nccl_close(struct eo_comm *comm);
eo_status eo_nccl_register(struct eo_comm *comm, void *memory, uint64_t bytes);
eo_status eo_nccl_all_gather(struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                             const char *label, struct eo_span *span);
eo_status eo_nccl_all_reduce(struct eo_comm *comm, void *buffer, uint64_t count, eo_dtype dtype, const char *label,
                             struct eo_span *span);
eo_status eo_nccl_reduce_scatter(struct eo_comm *comm, void *recv, const void *send, uint64_t recv_count,
                                 eo_dtype dtype, const char *label, struct eo_span *span);
eo_status eo_nccl_quiesce(struct eo_comm *comm);
void eo_nccl_join(struct eo_comm *comm, uint32_t count);

/* streams/nccl/graph.c: for the table. */
eo_status eo_nccl_capture_begin(struct eo_comm *comm);
eo_status eo_nccl_capture_end(struct eo_comm *comm, void **graph);
eo_status eo_nccl_graph_launch(struct eo_comm *comm, void *graph);
void eo_nccl_graph_destroy(struct eo_comm *comm, void **graph);

/* streams/nccl/split.c: for the table. */
eo_status eo_nccl_group_split(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                              uint32_t rank, uint32_t color, uint32_t key);
/* streams/nccl/communicator.c: alone in its family, but for a root that it is given. */
void eo_nccl_group_release(struct eo_group *group);
ncclConfig_t eo_nccl_config(const struct eo_group *group, const struct eo_nccl_use *use, const char *name);
uint64_t eo_nccl_free_bytes(void);
void eo_nccl_count_taken(struct eo_group *group, uint64_t before_bytes, const char *what);
/* A split of the parent for gathers or reductions. */
eo_status eo_nccl_split(struct eo_group *group, bool reduces, ncclComm_t *out);
/* Finalize and destroy, with the deadline; nothing after a failure. NULL is taken; writes NULL. */
void eo_nccl_end(struct eo_group *group, ncclComm_t *comm);

#endif
