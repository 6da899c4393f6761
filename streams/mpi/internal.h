/* SPDX-License-Identifier: MIT
 *
 * How the collectives over MPI work.
 *
 * Each begins with a post from each rank to each other (what it is about to do), so that ranks that disagree, are late
 * or have closed are named before any data moves. Then data goes by point-to-point messages, straight between the
 * trainer's buffers: of a reduction each rank receives what the others have for it, in pieces, and sums it itself, in
 * rank order in fp32, for MPI's reductions promise no order. All requests are tested, never waited for, so that there
 * are deadlines; and a failure is told to all by a notice, for which each rank has a receive posted at all times.
 */
#ifndef EO_STREAMS_MPI_INTERNAL_H
#define EO_STREAMS_MPI_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "eo_config.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#include EO_MPI_HEADER
#pragma GCC diagnostic pop

#include "streams/cpu/kernels.h"
#include "streams/mpi/mpi.h"

#define EO_MPI_FUNCTIONS(X)                                                                                           \
    X(Initialized) X(Finalized) X(Init_thread) X(Query_thread) X(Finalize) X(Abort) X(Comm_rank) X(Comm_size)         \
    X(Comm_idup) X(Comm_split) X(Comm_free) X(Comm_set_errhandler) X(Error_string) X(Isend) X(Irecv) X(Iallgather)    \
    X(Test) X(Testall) X(Cancel) X(Request_free)

/* The library, once it is loaded. */
struct eo_mpi {
#define X(name) __typeof__(&MPI_##name) name;
    EO_MPI_FUNCTIONS(X)
#undef X
    MPI_Comm world, comm_null;
    MPI_Datatype byte;
    MPI_Errhandler errors_return;
    MPI_Request request_null;
};

/* streams/mpi/library.c: loaded at its first use, with all calls under one lock. */
extern struct eo_mpi eo_mpi;
void eo_mpi_lock(void);
void eo_mpi_unlock(void);
EO_NODISCARD eo_status eo_mpi_load(const eo_log *log); /* under the lock */
bool eo_mpi_is_loaded(void);
/* The status of a call's result; logged with `what`. */
eo_status eo_mpi_check(int result, const char *what, const eo_log *log);
/* Until the request has completed; EO_ERR_TIMEOUT is logged with `what`. */
eo_status eo_mpi_await(MPI_Request *request, uint64_t limit_ns, const char *what, const eo_log *log);
/* A duplicate, with errors that return. Collective; EO_ERR_TIMEOUT. */
eo_status eo_mpi_duplicate(MPI_Comm *out, MPI_Comm of, uint64_t limit_ns, const eo_log *log);
/* Between two looks at requests that are not complete: `looks` counts them from 0. */
void eo_mpi_pause(uint32_t looks);

enum { EO_MPI_TAG_POST = 1, EO_MPI_TAG_DATA = 2, EO_MPI_TAG_NOTICE = 3 };

struct eo_mpi_notice {
    int32_t status;
    char text[1020];
};

struct eo_group {
    struct eo_group_params params;
    eo_log log;
    MPI_Comm comm; /* a duplicate, for duplicates of communicators; of the root also for notices */
    uint32_t rank;
    _Atomic uint32_t references; /* a world's, and one of each communicator that not all have closed */
    struct eo_group *root; /* itself, where it was not split from another: failures are the family's */
    _Atomic int failure; /* eo_status; with the notice under the lock of MPI */
    struct eo_mpi_notice first, incoming;
    MPI_Request incoming_request;
    MPI_Request *outgoing_requests; /* by rank */
    struct eo_group *next_kept;
};

enum eo_mpi_kind { EO_MPI_ALL_GATHER, EO_MPI_REDUCE_SCATTER, EO_MPI_ALL_REDUCE, EO_MPI_BARRIER, EO_MPI_CLOSED };

struct eo_mpi_post {
    uint32_t kind, dtype;
    uint64_t count, number;
    char label[64];
};

struct eo_comm {
    struct eo_group *group;
    struct eo_device *device;
    const struct eo_cpu_kernels *kernels;
    uint32_t queue;
    MPI_Comm comm;
    uint64_t number; /* of the collective in progress */
    struct eo_mpi_post post, *posts; /* ours, and by rank */
    MPI_Request *requests[2];        /* 2 a rank: receives, and then sends; of a reduction's pieces by parity */
    const void **terms;              /* of a sum, by rank */
    unsigned char *scratch[2];
    uint64_t piece_bytes;            /* of each other rank */
    uint32_t joined;                 /* collectives still to be issued that go with those before */
    bool goes_on;                    /* the queue's thread: the operation in progress has more collectives, and began: */
    uint64_t ready_ns, start_ns;
    bool is_stuck;                   /* requests are left that did not end */
    struct eo_comm *next_kept;
};

static inline uint32_t eo_mpi_rank_count(const struct eo_comm *comm)
{
    return comm->group->params.rank_count;
}

/* streams/mpi/closing.c */
void eo_mpi_comm_free(struct eo_comm *comm);
void eo_mpi_comm_keep(struct eo_comm *comm); /* that this rank has closed */
/* Gives back the communicators that all ranks have closed, of a family or (NULL) of all; how many are left that others have
 * not closed yet. */
uint32_t eo_mpi_comms_sweep(const struct eo_group *root);
void eo_mpi_group_drop(struct eo_group *group); /* a reference, and waits for nobody */
void eo_mpi_group_release(struct eo_group *group);

/* streams/mpi/group.c */
eo_status eo_mpi_group_create(struct eo_group **out, const struct eo_group_params *params);
eo_status eo_mpi_group_split(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                             uint32_t rank, uint32_t color, uint32_t key);
void eo_mpi_group_abort(struct eo_group *group, uint32_t rank, const char *reason);
void eo_mpi_group_failure(struct eo_group *group, char *text, size_t bytes);
eo_status eo_mpi_fail(struct eo_group *group, eo_status status, const char *format, ...) EO_PRINTF(3, 4);
/* The failure of the family, a notice that has come included. Under the lock of MPI. */
eo_status eo_mpi_look(struct eo_group *group);

static inline eo_status eo_mpi_failure(const struct eo_group *group)
{
    return (eo_status)atomic_load(&group->root->failure);
}

/* Of what ranks do together outside collectives: they come there from work of their own. */
static inline uint64_t eo_mpi_join_limit_ns(const struct eo_group *group)
{
    enum { LEAST_MS = 10000 };
    const uint32_t ms = group->params.timeout_ms > LEAST_MS ? group->params.timeout_ms : LEAST_MS;
    return ms * UINT64_C(1000000);
}

#endif
