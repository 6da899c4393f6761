/* SPDX-License-Identifier: MIT
 *
 * The local collectives of the CPU device; what ranks share is told in streams/local.h. `shared` (shared_cpu.h) is these
 * with ranks that are processes: another way to join and to open, and to find what a peer sends.
 */
#ifndef EO_STREAMS_CPU_LOCAL_CPU_H
#define EO_STREAMS_CPU_LOCAL_CPU_H

#include "streams/cpu/kernels_cpu.h"
#include "streams/local.h"

extern const struct eo_comm_ops eo_comm_local_ops, eo_comm_shared_ops;

struct eo_shared_comm;

struct eo_comm {
    struct eo_local_end end;
    uint32_t queue;
    struct eo_device *device;
    const struct eo_cpu_kernels *kernels;
    const void *sends[EO_LOCAL_RANKS_MAX]; /* by rank: what they send in the collective in progress, where we see it */
    struct eo_shared_comm *shared;         /* NULL where ranks are threads */
};

/* What is enqueued. */
struct eo_local_work {
    struct eo_comm *comm;
    void *recv;
    struct eo_local_post post;
    struct eo_span *span;
    uint64_t ready_ns;
};

static inline uint64_t eo_element_bytes(eo_dtype dtype)
{
    return dtype == EO_DTYPE_BF16 ? 2 : 4;
}

/* The next collective of the communicator; these are ops of both tables. */
eo_status eo_local_cpu_all_gather(struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                                  const char *label, struct eo_span *span);
eo_status eo_local_cpu_reduce_scatter(struct eo_comm *comm, void *recv, const void *send, uint64_t recv_count,
                                      eo_dtype dtype, const char *label, struct eo_span *span);
eo_status eo_local_cpu_all_reduce(struct eo_comm *comm, void *buffer, uint64_t count, eo_dtype dtype,
                                  const char *label, struct eo_span *span);
eo_status eo_local_cpu_quiesce(struct eo_comm *comm);

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
