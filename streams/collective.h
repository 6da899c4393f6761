/* SPDX-License-Identifier: MIT
 *
 * Collectives, enqueued on a device's queue. A group is what the ranks share; a communicator is one rank's end of one
 * line of collectives (the n-th communicator that each rank opens in a group belong together).
 *
 *     all-gather      recv[r * bytes ...] = rank r's send[0 ... bytes)       send may be recv + rank * bytes (in place)
 *     reduce-scatter  recv[0 ... count) = sum over r, in rank order, in fp32, of rank r's send[rank * count ...]
 *                     recv may be send + rank * count (in place)
 *     all-reduce      buffer[0 ... count) = sum over r, in rank order, in fp32, of rank r's buffer; the same bits on
 *                     every rank
 *
 * A collective only enqueues and returns: it does not allocate, and does not wait for the device; local-cuda waits for
 * the other ranks' threads to issue it too. It is complete on a rank (its event) when recv is written and, for
 * reduce-scatter and all-reduce, nobody reads that rank's send any more. An all-gather's send may still be read by slower ranks when
 * the event completes: whoever writes it must be ordered after a later collective of the same communicator, or call
 * quiesce. nccl does not promise the order of the sum, and rounds bf16 sums more than once.
 *
 * The first failure (ranks disagree, a rank is late, an abort) fails the whole group: collectives in progress and all
 * later ones end with it, on every communicator.
 */
#ifndef EO_STREAMS_COLLECTIVE_H
#define EO_STREAMS_COLLECTIVE_H

#include "streams/device.h"
#include "streams/exchange.h"

struct eo_group;
struct eo_comm;

enum { EO_GROUP_ID_BYTES = 128, EO_GROUP_PEER_BYTES = 128 };
#define EO_GROUP_NO_COLOR UINT32_MAX
#define EO_QUIESCE_LABEL  "create, evaluation, sum, weights or checkpoint" /* the calls that quiesce */

/* Of ranks that come into a group each by itself (nccl, shared, mpi), where `local` makes the group for all ranks at
 * once. */
struct eo_group_join {
    uint32_t rank, device_index;
    const void *id;     /* EO_GROUP_ID_BYTES of group_id, the same on all ranks, or: */
    void *communicator; /* the caller's own (ncclComm_t; mpi: where its MPI_Comm lies), split and left alone */
    const void *peers;  /* what group_peer gave on every rank, EO_GROUP_PEER_BYTES each, by rank; NULL: unknown */
    const char *mode;   /* NULL: the backend's choice */
    uint32_t cta_max;   /* 0: the backend's choice */
    bool ordered_launches; /* NCCL_LAUNCH_ORDER_IMPLICIT=1 stands in the environment */
    const struct eo_exchange *exchange; /* shared needs it; copied; NULL where the backend needs none */
};

struct eo_group_params {
    uint32_t rank_count;
    uint32_t timeout_ms;
    const struct eo_group_join *join; /* NULL for local */
    double fabric_gigabytes_per_s; /* 0: no simulated link */
    double fabric_latency_us;
    const eo_log *log; /* copied */
};

/* What a group runs on, for who prints it. */
struct eo_group_info {
    uint32_t built_version, run_version; /* of the library, 22809: 2.28.9 */
    const char *mode;                    /* the one that was chosen */
    char gather[96], reduce[96];         /* how each kind of collective runs */
    uint64_t communicator_bytes;         /* device memory that went away while communicators were made */
    uint64_t registered_bytes, register_ns;
    uint64_t outside_count;              /* collectives on memory that was not registered */
    bool must_exit;                      /* after a failure: work is stuck on the device; end the process */
};

struct eo_group_place {
    uint32_t rank, rank_count;
};

struct eo_comm_ops {
    const char *name;
    bool shares_memory; /* its devices are to be made with eo_device_params.share_memory */

    /* The group of all ranks, made once; each rank keeps a reference and drops it with group_release. */
    eo_status (*group_create)(struct eo_group **out, const struct eo_group_params *params);
    void (*group_release)(struct eo_group *group);
    void (*group_abort)(struct eo_group *group, uint32_t rank,
                        const char *reason); /* its rank in the group that all came from */
    void (*group_failure)(struct eo_group *group, char *text, size_t bytes);
    /* Collective over the parent's ranks, by the calling thread; blocks until all have come. Ranks of one color form a
     * group, ordered by key, then by their rank in the parent; the caller has one reference, and its place in it. With
     * EO_GROUP_NO_COLOR a rank comes into none: *out is NULL. Groups that come from one fail together: a rank that is
     * lost to one of them is lost to those that wait for its peers. May be NULL: then a group has none inside it. */
    eo_status (*group_split)(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                             uint32_t rank, uint32_t color, uint32_t key);

    /* The communicator enqueues on `queue` of `device`. A rank opens one for all-gathers, and one that `reduces`, or either:
     * nccl makes them differently; the others run both on each. local waits for nobody, nccl for all. */
    eo_status (*open)(struct eo_comm **out, struct eo_group *group, uint32_t rank, struct eo_device *device, uint32_t queue,
                      bool reduces);
    /* Waits for peers that still read this rank's memory (or the deadline). NULL is taken. */
    void (*close)(struct eo_comm *comm);

    /* `label` (static, the same on all ranks: it is compared) names the operation in errors; `span` may be NULL, else
     * it is written when the operation ends. Then `recv` is whole, and of a reduce-scatter `send` is free. Slower peers may
     * still read the `send` of an all-gather: it is free when a later collective of this communicator has ended, or after
     * quiesce. */
    eo_status (*all_gather)(struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                            const char *label, struct eo_span *span);
    eo_status (*reduce_scatter)(struct eo_comm *comm, void *recv, const void *send, uint64_t recv_count,
                                eo_dtype dtype, const char *label, struct eo_span *span);
    /* On the communicator of reduce-scatters. May be NULL, as group_split may. */
    eo_status (*all_reduce)(struct eo_comm *comm, void *buffer, uint64_t count, eo_dtype dtype, const char *label,
                            struct eo_span *span);
    /* The next `count` collectives of the communicator are one operation, from the begin of the first to the end of the last:
     * none of them is waited for alone, and their spans are one. NULL: they are issued one after the other. */
    void (*join)(struct eo_comm *comm, uint32_t count);
    /* Blocks the calling thread until its queue is drained and no peer reads this rank's memory: a barrier, in errors
     * EO_QUIESCE_LABEL. */
    eo_status (*quiesce)(struct eo_comm *comm);

    /* What follows may be NULL: then there is nothing to do, or, of graphs, there are none. */

    /* For groups that are joined: what one rank makes and all are given, and what each rank tells the others. They fail
     * where there is no device, but for group_id. */
    eo_status (*group_id)(void *id, const eo_log *log);
    eo_status (*group_peer)(void *peer, uint32_t device_index, const char *node, const eo_log *log);
    void (*group_info)(const struct eo_group *group, struct eo_group_info *out);

    /* A reservation that collectives of this communicator will use, told once after open, before the first collective;
     * by all ranks, in the same order, with the same sizes. Undone by close. */
    eo_status (*register_memory)(struct eo_comm *comm, void *memory, uint64_t bytes);
    /* The first failure of the group, or EO_OK. Does not block. The runtime calls it again and again while the host
     * waits for an event, so a collective that has failed or is late can be found here, and its queue be freed. */
    eo_status (*poll)(struct eo_comm *comm);
    /* Collectives connect, or choose how to run, when a size is met first: the runtime runs each once at create. */
    bool warms_up;

    /*
     * A step as a graph: between begin and end, what this rank issues to the queues of its device (by this thread) is
     * recorded, not run, collectives of both communicators included. All ranks call all of these in the same order,
     * with the communicator of gathers; ranks of one process may be recorded as one graph, so they may wait for each
     * other here. Launched on the compute queue, behind what is there; does not wait for it. When the graph has run,
     * so has everything in it, on all queues. A failed capture_begin or capture_end leaves no capture under way.
     */
    eo_status (*capture_begin)(struct eo_comm *comm);
    eo_status (*capture_end)(struct eo_comm *comm, void **graph);
    eo_status (*graph_launch)(struct eo_comm *comm, void *graph);
    void (*graph_destroy)(struct eo_comm *comm, void **graph);
};

/* The table by name ("local"); NULL where it is not built. */
const struct eo_comm_ops *eo_comm_find(const char *name);

/* Behind the text of a failure of a group inside another: all groups that came from one read it. */
void eo_comm_say_split(char *text, size_t bytes);

#endif
