/* SPDX-License-Identifier: MIT
 *
 * Communicators and collectives of the local collectives on CUDA.
 */
#include "streams/local/cuda_meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "streams/cuda/collective_kernels.h"
#include "streams/patience.h"
#include "streams/transports.h"

_Static_assert((int)EO_CUDA_SUM_INPUTS_MAX >= (int)EO_LOCAL_RANKS_MAX, "the kernel sums all ranks in one launch");

#define TRY_CUDA(comm, label, call)                                                                                   \
    do {                                                                                                              \
        const cudaError_t try_error = (call);                                                                         \
        if (try_error != cudaSuccess)                                                                                 \
            return eo_local_cuda_fail(comm, try_error, #call, label);                                                 \
    } while (0)

/* -- open and close ---------------------------------------------------------------------------------------------- */

static void drop_rank(void *shared)
{
    struct eo_local_cuda_rank *rank = shared;
    if (!rank)
        return;
    const cudaEvent_t events[] = {rank->entry[0], rank->entry[1], rank->exit[0][0], rank->exit[0][1], rank->exit[1][0],
                                  rank->exit[1][1], rank->fork, rank->points[0], rank->points[1], rank->points[2], rank->points[3],
                                  rank->points[4]};
    _Static_assert(sizeof(events) / sizeof(events[0]) == 7 + EO_QUEUES_MAX, "every queue has a point");
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    free(rank);
}

static cudaError_t make_rank(struct eo_local_cuda_rank *rank)
{
    cudaEvent_t *const events[] = {&rank->entry[0], &rank->entry[1], &rank->exit[0][0], &rank->exit[0][1],
                                   &rank->exit[1][0], &rank->exit[1][1], &rank->fork, &rank->points[0], &rank->points[1],
                                   &rank->points[2], &rank->points[3], &rank->points[4]};
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(events[i], cudaEventDisableTiming);
    return error == cudaSuccess ? eo_cuda_sum_load() : error;
}

static eo_status local_cuda_group_create(struct eo_group **out, const struct eo_group_params *params)
{
    *out = NULL;
    if (params->fabric_gigabytes_per_s > 0) {
        eo_log_write(params->log, EO_LOG_ERROR,
                     "a simulated link works only for ranks on the CPU; leave fabric_gigabytes_per_s at 0 on CUDA");
        return EO_ERR_UNSUPPORTED;
    }
    return eo_local_group_create(out, params);
}

static eo_status local_cuda_open(struct eo_comm **out, struct eo_group *group, uint32_t rank, struct eo_device *device,
                                 uint32_t queue, bool reduces)
{
    (void)reduces;
    *out = NULL;
    if (device->ops != &eo_device_cuda_ops) {
        eo_log_write(&group->log, EO_LOG_ERROR, "local-cuda collectives run on device cuda, not on %s",
                     device->ops->name);
        return EO_ERR_UNSUPPORTED;
    }
    struct eo_comm *comm = calloc(1, sizeof(*comm));
    struct eo_local_cuda_rank *self = calloc(1, sizeof(*self));
    eo_status status = comm && self ? EO_OK : EO_ERR_NO_MEMORY;
    if (status == EO_OK) {
        self->device = eo_cuda_of(device)->device;
        self->queue_count = device->params.queue_count;
        status = eo_cuda_status(&group->log, rank, make_rank(self), "events and kernels of a communicator");
    }
    if (status == EO_OK)
        status = eo_local_end_open(&comm->end, group, rank, device, queue, self);
    if (status < 0) {
        drop_rank(self);
        free(comm);
        return status;
    }
    comm->device = device;
    comm->queue = queue;
    comm->stream = device->ops->queue_handle(device, queue);
    comm->self = self;
    *out = comm;
    return EO_OK;
}

/* Until this rank's stream is empty. No CUDA call that blocks: a failure of the group has to end the wait. */
static eo_status drain(struct eo_comm *comm, const char *label)
{
    const struct eo_group *group = comm->end.group;
    const uint64_t limit_ns = eo_patience_ns(&group->params);
    struct eo_stopwatch waited = eo_stopwatch_start();
    for (;;) {
        const cudaError_t error = eo_cuda_query_stream(comm->stream);
        if (error == cudaSuccess)
            return eo_local_failure(group);
        if (error != cudaErrorNotReady)
            return eo_local_cuda_fail(comm, error, "cudaStreamQuery", label);
        if (eo_stopwatch_look(&waited, EO_LOOK_NS_MAX) > limit_ns)
            return eo_local_fail(comm->end.group, EO_ERR_TIMEOUT,
                                 "rank %u, '%s': its queue %u did not finish within %u ms; find the cause on the device, or "
                                 "raise the timeout",
                                 comm->end.rank, label, comm->queue, eo_patience_ms(&group->params));
        eo_pause();
    }
}

/* Host threads have left the last collective (or failed): what they issued ends with their exit events. A captured event
 * answers with an error, for it never happens: its graph, if it was launched, has run when our own queue is empty. Of a
 * capture that was abandoned, later records are real. */
static bool await_exits(struct eo_comm *comm, struct eo_stopwatch *waited, uint64_t limit_ns)
{
    for (uint32_t r = 0; r < comm->end.group->params.rank_count; r++) {
        const struct eo_local_rank *peer = &comm->end.line->ranks[r];
        if (r == comm->end.rank || atomic_load(&peer->closed) || atomic_load(&peer->entered) == 0)
            continue; /* it reads nothing any more, or has read nothing yet (and may not have opened) */
        const struct eo_local_cuda_rank *rank = peer->shared;
        for (int i = 0; i < 4; i++) {
            while (eo_cuda_query_event(rank->exit[i / 2][i % 2]) == cudaErrorNotReady) {
                if (eo_stopwatch_look(waited, EO_LOOK_NS_MAX) > limit_ns)
                    return false;
                eo_pause();
            }
        }
    }
    (void)cudaGetLastError();
    return true;
}

static void local_cuda_close(struct eo_comm *comm)
{
    if (!comm)
        return;
    struct eo_group *group = comm->end.group;
    eo_local_cuda_capture_abandon(comm);
    const uint64_t limit_ns = eo_patience_ns(&group->params);
    struct eo_stopwatch waited = eo_stopwatch_start();
    while (eo_cuda_query_stream(comm->stream) == cudaErrorNotReady && eo_stopwatch_look(&waited, EO_LOOK_NS_MAX) < limit_ns)
        eo_pause();
    (void)cudaGetLastError();
    if (!eo_local_await_readers(&comm->end) || !await_exits(comm, &waited, limit_ns))
        (void)eo_local_fail(group, EO_ERR_TIMEOUT, "rank %u closed a communicator, but after %u ms a rank still reads its "
                            "memory", comm->end.rank, eo_patience_ms(&group->params));
    eo_local_end_close(&comm->end, drop_rank);
    free(comm);
}

/* -- collectives ------------------------------------------------------------------------------------------------- */

/* Once, when all ranks are seen first: this rank reads the others' memory, and lets them read its own. The latter is needed from
 * the next collective on: the first one, of plans, has memory that all reach. */
static eo_status connect_peers(struct eo_comm *comm, const char *label)
{
    for (uint32_t r = 0; r < comm->end.group->params.rank_count; r++) {
        const int other = eo_local_cuda_rank_of(comm, r)->device;
        int is_possible = 0;
        if (other == comm->self->device)
            continue;
        TRY_CUDA(comm, label, cudaDeviceCanAccessPeer(&is_possible, comm->self->device, other));
        if (!is_possible)
            return eo_local_fail(comm->end.group, EO_ERR_UNSUPPORTED,
                                 "rank %u on GPU %d cannot read the memory of rank %u on GPU %d; use GPUs with peer access, or "
                                 "a process for each rank with NCCL",
                                 comm->end.rank, comm->self->device, r, other);
        const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
        if (error == cudaErrorPeerAccessAlreadyEnabled)
            (void)cudaGetLastError();
        else if (error != cudaSuccess)
            return eo_local_cuda_fail(comm, error, "cudaDeviceEnablePeerAccess", label);
        TRY_CUDA(comm, label, eo_cuda_let_read(comm->device, other));
    }
    comm->is_connected = true;
    return EO_OK;
}

static eo_status wait_for_entries(struct eo_comm *comm, const char *label)
{
    for (uint32_t r = 0; r < comm->end.group->params.rank_count; r++)
        if (r != comm->end.rank)
            TRY_CUDA(comm, label, cudaStreamWaitEvent(
                comm->stream, eo_local_cuda_rank_of(comm, r)->entry[comm->end.sequence & 1], 0));
    return EO_OK;
}

static eo_status wait_for_exits(struct eo_comm *comm, bool captured, const char *label)
{
    for (uint32_t r = 0; r < comm->end.group->params.rank_count; r++)
        if (r != comm->end.rank)
            TRY_CUDA(comm, label, cudaStreamWaitEvent(
                comm->stream, eo_local_cuda_rank_of(comm, r)->exit[captured][comm->end.sequence & 1], 0));
    return EO_OK;
}

/* Each rank begins with the one after it, so that not all read the same memory at once. */
static eo_status gather(struct eo_comm *comm, unsigned char *recv, const struct eo_local_post *post)
{
    const uint32_t rank_count = comm->end.group->params.rank_count;
    for (uint32_t i = 1; i <= rank_count && post->count; i++) {
        const uint32_t r = (comm->end.rank + i) % rank_count;
        const void *send = eo_local_post_of(&comm->end, r)->send;
        if (send != recv + r * post->count)
            TRY_CUDA(comm, post->label, cudaMemcpyAsync(recv + r * post->count, send, post->count,
                                                        cudaMemcpyDeviceToDevice, comm->stream));
    }
    return EO_OK;
}

/* Elements [offset, offset + count); `recv` may be this rank's own. */
static eo_status reduce(struct eo_comm *comm, void *recv, const struct eo_local_post *post, uint64_t offset,
                        uint64_t count)
{
    const uint32_t rank_count = comm->end.group->params.rank_count;
    const float *fp32[EO_LOCAL_RANKS_MAX];
    const uint16_t *bf16[EO_LOCAL_RANKS_MAX];
    if (count == 0)
        return EO_OK;
    for (uint32_t r = 0; r < rank_count; r++) {
        const void *send = eo_local_post_of(&comm->end, r)->send;
        fp32[r] = (const float *)send + offset;
        bf16[r] = (const uint16_t *)send + offset;
    }
    eo_cuda_clear_unread(&comm->device->log, comm->device->params.rank);
    if (post->dtype == EO_DTYPE_FP32)
        TRY_CUDA(comm, post->label, eo_cuda_sum_fp32(recv, fp32, rank_count, count, comm->stream));
    else
        TRY_CUDA(comm, post->label, eo_cuda_sum_bf16(recv, bf16, rank_count, count, comm->stream));
    return EO_OK;
}

/* Of an all-reduce: each rank sums its slice in place ... */
static eo_status reduce_slice(struct eo_comm *comm, void *buffer, const struct eo_local_post *post)
{
    const struct eo_local_slice own = eo_local_slice_of(comm->end.group, post->count, comm->end.rank);
    return reduce(comm, (unsigned char *)buffer + own.begin * eo_dtype_bytes(post->dtype), post, own.begin, own.count);
}

/* ... and fetches those of the others. */
static eo_status gather_slices(struct eo_comm *comm, void *buffer, const struct eo_local_post *post)
{
    const uint32_t rank_count = comm->end.group->params.rank_count;
    const uint64_t size = eo_dtype_bytes(post->dtype);
    for (uint32_t i = 1; i < rank_count; i++) {
        const uint32_t r = (comm->end.rank + i) % rank_count;
        const struct eo_local_slice slice = eo_local_slice_of(comm->end.group, post->count, r);
        const unsigned char *send = eo_local_post_of(&comm->end, r)->send;
        if (slice.count)
            TRY_CUDA(comm, post->label, cudaMemcpyAsync((unsigned char *)buffer + slice.begin * size,
                                                        send + slice.begin * size, slice.count * size,
                                                        cudaMemcpyDeviceToDevice, comm->stream));
    }
    return EO_OK;
}

/* One rank: no meeting, no event; at most a copy. */
static eo_status run_alone(struct eo_comm *comm, void *recv, const struct eo_local_post *post)
{
    const uint64_t bytes =
        post->count * (post->kind == EO_LOCAL_ALL_GATHER ? 1 : eo_dtype_bytes(post->dtype));
    if (bytes && recv != post->send)
        TRY_CUDA(comm, post->label, cudaMemcpyAsync(recv, post->send, bytes, cudaMemcpyDeviceToDevice, comm->stream));
    return EO_OK;
}

enum part { PART_GATHER, PART_REDUCE, PART_REDUCE_SLICE, PART_GATHER_SLICES };

static eo_status run_part(struct eo_comm *comm, enum part part, void *recv, const struct eo_local_post *post)
{
    switch (part) {
    case PART_GATHER: return gather(comm, recv, post);
    case PART_REDUCE: return reduce(comm, recv, post, comm->end.rank * post->count, post->count);
    case PART_REDUCE_SLICE: return reduce_slice(comm, recv, post);
    case PART_GATHER_SLICES: return gather_slices(comm, recv, post);
    }
    return EO_ERR_INVALID;
}

static eo_status run_with_all(struct eo_comm *comm, enum part part, void *recv, const struct eo_local_post *post,
                              struct eo_span *span)
{
    const uint32_t next = (comm->end.sequence + 1) & 1;
    const bool captured = eo_cuda_sees_capture(comm->device, comm->queue);
    TRY_CUDA(comm, post->label, cudaEventRecord(comm->self->entry[next], comm->stream));
    eo_local_enter(&comm->end, post);
    eo_status status = eo_local_meet(&comm->end, false, eo_now_ns());
    if (status >= 0 && !comm->is_connected)
        status = connect_peers(comm, post->label);
    if (status >= 0)
        status = wait_for_entries(comm, post->label);
    if (status >= 0 && span)
        comm->device->ops->stamp(comm->device, comm->queue, &span->start_ns);
    if (status >= 0)
        status = run_part(comm, part, recv, post);
    /* Whatever was issued until a failure has its end too: who closes waits for it. */
    const cudaError_t error = cudaEventRecord(comm->self->exit[captured][next], comm->stream);
    if (status >= 0 && error != cudaSuccess)
        status = eo_local_cuda_fail(comm, error, "cudaEventRecord", post->label);
    eo_local_leave(&comm->end);
    if (status >= 0 && (part == PART_REDUCE || part == PART_GATHER_SLICES)) { /* nobody reads this rank's any more */
        EO_TRY(eo_local_meet(&comm->end, true, eo_now_ns()));
        EO_TRY(wait_for_exits(comm, captured, post->label));
    }
    return status;
}

static eo_status issue(struct eo_comm *comm, void *recv, struct eo_local_post post, struct eo_span *span)
{
    const bool joins = comm->joined > 0, begins = !joins || comm->joined == comm->join_count;
    const bool ends = !joins || --comm->joined == 0;
    struct eo_span *const begun = begins ? span : NULL;
    EO_TRY(eo_local_failure(comm->end.group));
    if (!post.label)
        post.label = "";
    if (begun)
        begun->ready_ns = eo_now_ns();
    if (comm->end.group->params.rank_count > 1 && post.kind == EO_LOCAL_ALL_REDUCE) {
        EO_TRY(run_with_all(comm, PART_REDUCE_SLICE, recv, &post, begun));
        EO_TRY(run_with_all(comm, PART_GATHER_SLICES, recv, &post, NULL));
    } else if (comm->end.group->params.rank_count > 1) {
        EO_TRY(run_with_all(comm, post.kind == EO_LOCAL_ALL_GATHER ? PART_GATHER : PART_REDUCE, recv, &post, begun));
    } else {
        if (begun)
            comm->device->ops->stamp(comm->device, comm->queue, &begun->start_ns);
        EO_TRY(run_alone(comm, recv, &post));
    }
    if (span && ends)
        comm->device->ops->stamp(comm->device, comm->queue, &span->end_ns);
    return EO_OK;
}

static eo_status local_cuda_all_gather(struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                                       const char *label, struct eo_span *span)
{
    return issue(comm, recv, (struct eo_local_post){.kind = EO_LOCAL_ALL_GATHER, .count = send_bytes, .label = label,
                                                    .send = send}, span);
}

static eo_status local_cuda_reduce_scatter(struct eo_comm *comm, void *recv, const void *send, uint64_t recv_count,
                                           eo_dtype dtype, const char *label, struct eo_span *span)
{
    return issue(comm, recv, (struct eo_local_post){.kind = EO_LOCAL_REDUCE_SCATTER, .dtype = dtype,
                                                    .count = recv_count, .label = label, .send = send}, span);
}

static eo_status local_cuda_all_reduce(struct eo_comm *comm, void *buffer, uint64_t count, eo_dtype dtype,
                                       const char *label, struct eo_span *span)
{
    return issue(comm, buffer, (struct eo_local_post){.kind = EO_LOCAL_ALL_REDUCE, .dtype = dtype, .count = count,
                                                      .label = label, .send = buffer}, span);
}

static void local_cuda_join(struct eo_comm *comm, uint32_t count)
{
    comm->joined = comm->join_count = count;
}

/* Who comes to the barrier has an empty queue, so it reads nobody's memory any more. */
static eo_status local_cuda_quiesce(struct eo_comm *comm)
{
    EO_TRY(drain(comm, EO_QUIESCE_LABEL));
    return eo_local_cuda_barrier(comm, EO_QUIESCE_LABEL);
}

static eo_status local_cuda_poll(struct eo_comm *comm)
{
    return eo_local_failure(comm->end.group);
}

const struct eo_comm_ops eo_comm_local_cuda_ops = {
    .name = "local-cuda",
    .group_create = local_cuda_group_create,
    .group_release = eo_local_group_release,
    .group_abort = eo_local_group_abort,
    .group_failure = eo_local_group_failure,
    .group_split = eo_local_group_split,
    .open = local_cuda_open,
    .close = local_cuda_close,
    .all_gather = local_cuda_all_gather,
    .reduce_scatter = local_cuda_reduce_scatter,
    .all_reduce = local_cuda_all_reduce,
    .join = local_cuda_join,
    .quiesce = local_cuda_quiesce,
    .poll = local_cuda_poll,
    .capture_begin = eo_local_cuda_capture_begin,
    .capture_end = eo_local_cuda_capture_end,
    .graph_launch = eo_local_cuda_graph_launch,
    .graph_destroy = eo_local_cuda_graph_destroy,
};
