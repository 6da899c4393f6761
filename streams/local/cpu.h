/* SPDX-License-Identifier: MIT
 *
 * The local collectives of the CPU device; what ranks share is told in streams/local/local.h. `shared` (streams/shared/shared.h) is these
 * with ranks that are processes: another way to join and to open, and to find what a peer sends.
 */
#ifndef EO_STREAMS_LOCAL_CPU_H
#define EO_STREAMS_LOCAL_CPU_H

#include "streams/cpu/kernels.h"
#include "streams/local/local.h"

struct eo_local_work;
struct eo_shared_comm;

/* How a rank finds what its peers send, where ranks are processes. */
struct eo_local_peers {
    uint64_t (*place)(const struct eo_comm *comm, const void *send); /* of this rank's, for its post */
    const void *(*send_of)(const struct eo_comm *comm, uint32_t rank); /* of the collective that all have entered */
    bool (*is_hidden)(const struct eo_comm *comm); /* some rank's, from the others: it passes in pieces */
    eo_status (*run_in_pieces)(const struct eo_local_work *work);
};

struct eo_comm {
    struct eo_local_end end;
    uint32_t queue;
    struct eo_device *device;
    const struct eo_cpu_kernels *kernels;
    const void *sends[EO_LOCAL_RANKS_MAX]; /* by rank: what they send in the collective in progress, where we see it */
    const struct eo_local_peers *peers;    /* NULL where ranks are threads */
    struct eo_shared_comm *shared;         /* the peers' own */
    uint32_t joined;                       /* collectives still to be issued that go with those before */
    bool goes_on;                          /* the queue's thread: the operation in progress has more collectives, and began: */
    uint64_t ready_ns, start_ns;
};

/* What is enqueued. */
struct eo_local_work {
    struct eo_comm *comm;
    void *recv;
    struct eo_local_post post;
    struct eo_span *span;
    uint64_t ready_ns;
    bool has_more; /* the next collective is of the same operation */
};

/* The next collective of the communicator; these are ops of both tables. */
eo_status eo_local_cpu_all_gather(struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                                  const char *label, struct eo_span *span);
eo_status eo_local_cpu_reduce_scatter(struct eo_comm *comm, void *recv, const void *send, uint64_t recv_count,
                                      eo_dtype dtype, const char *label, struct eo_span *span);
eo_status eo_local_cpu_all_reduce(struct eo_comm *comm, void *buffer, uint64_t count, eo_dtype dtype,
                                  const char *label, struct eo_span *span);
eo_status eo_local_cpu_quiesce(struct eo_comm *comm);
void eo_local_cpu_join(struct eo_comm *comm, uint32_t count);

/* Refuses other devices. */
eo_status eo_local_cpu_comm_make(struct eo_comm **out, struct eo_group *group, struct eo_device *device,
                                 uint32_t queue);
/* Until the queue is drained and no peer reads this rank's memory; what does not end in time fails the group. */
void eo_local_cpu_await_all(struct eo_comm *comm);

/* Of what `sends` says: to recv + r * stride, `bytes` of each rank. */
void eo_local_cpu_gather(struct eo_comm *comm, unsigned char *recv, uint64_t stride, uint64_t bytes);
/* The sum of elements [offset, offset + count); `recv` may be this rank's own. */
void eo_local_cpu_reduce(struct eo_comm *comm, void *recv, uint64_t offset, uint64_t count, eo_dtype dtype);

#endif
