/* SPDX-License-Identifier: MIT
 *
 * The local collectives on the CPU: each runs on its communication queue's thread, which meets the other ranks', reads
 * their buffers directly, and sums in rank order.
 */
#include "streams/local/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "streams/cpu/device.h"
#include "streams/patience.h"
#include "streams/transports.h"

/* -- on the queue's thread -------------------------------------------------------------------------------------- */

/* What each rank gives to each other one. */
static uint64_t slice_bytes(const struct eo_comm *comm, const struct eo_local_post *post)
{
    if (post->kind == EO_LOCAL_ALL_GATHER)
        return post->count;
    const bool is_whole = post->kind == EO_LOCAL_ALL_REDUCE;
    return (is_whole ? eo_local_slice_of(comm->end.group, post->count, 0).count : post->count) *
           eo_dtype_bytes(post->dtype);
}

/* Each rank begins with the one after it, so that not all read the same memory at once. */
void eo_local_cpu_gather(struct eo_comm *comm, unsigned char *recv, uint64_t stride, uint64_t bytes)
{
    const uint32_t rank_count = comm->end.group->params.rank_count;
    for (uint32_t i = 1; i <= rank_count; i++) {
        const uint32_t r = (comm->end.rank + i) % rank_count;
        const unsigned char *send = comm->sends[r];
        if (send == recv + r * stride)
            continue;
        if (bytes * rank_count >= EO_STREAM_BYTES)
            comm->kernels->stream_copy(recv + r * stride, send, bytes);
        else
            memcpy(recv + r * stride, send, bytes);
    }
}

/* Of an all-reduce: each rank has summed its slice in place. */
static void gather_slices(struct eo_comm *comm, unsigned char *buffer, uint64_t count, eo_dtype dtype)
{
    const uint32_t rank_count = comm->end.group->params.rank_count;
    const uint64_t size = eo_dtype_bytes(dtype);
    for (uint32_t i = 1; i < rank_count; i++) {
        const uint32_t r = (comm->end.rank + i) % rank_count;
        const struct eo_local_slice slice = eo_local_slice_of(comm->end.group, count, r);
        const unsigned char *send = comm->sends[r];
        memcpy(buffer + slice.begin * size, send + slice.begin * size, slice.count * size);
    }
}

void eo_local_cpu_reduce(struct eo_comm *comm, void *recv, uint64_t offset, uint64_t count, eo_dtype dtype)
{
    const uint32_t rank_count = comm->end.group->params.rank_count;
    if (rank_count == 1) {
        const void *send = comm->sends[0];
        if (send != recv)
            memcpy(recv, send, count * eo_dtype_bytes(dtype));
        return;
    }
    const float *fp32[EO_LOCAL_RANKS_MAX];
    const uint16_t *bf16[EO_LOCAL_RANKS_MAX];
    for (uint32_t r = 0; r < rank_count; r++) {
        fp32[r] = (const float *)comm->sends[r] + offset;
        bf16[r] = (const uint16_t *)comm->sends[r] + offset;
    }
    if (dtype == EO_DTYPE_FP32)
        comm->kernels->sum_fp32(recv, fp32, rank_count, count, count * 4 * rank_count >= EO_STREAM_BYTES);
    else
        comm->kernels->sum_bf16(recv, bf16, rank_count, count);
}

static uint64_t all_entered_ns(const struct eo_comm *comm)
{
    uint64_t latest_ns = 0;
    for (uint32_t r = 0; r < comm->end.group->params.rank_count; r++)
        latest_ns = eo_max_u64(latest_ns, eo_local_post_of(&comm->end, r)->entered_ns);
    return latest_ns;
}

/* The first rank that comes here puts the collective on the link; the others read when it ends. */
static uint64_t put_on_link(struct eo_comm *comm, uint64_t start_ns, uint64_t bytes)
{
    struct eo_group *group = comm->end.group;
    struct eo_fabric *fabric = &group->common->fabric;
    const uint32_t parity = comm->end.sequence & 1;
    if (!(fabric->bytes_per_ns > 0) || group->params.rank_count == 1)
        return 0;
    eo_local_lock(group);
    if (comm->end.line->link[parity].sequence != comm->end.sequence) {
        comm->end.line->link[parity].sequence = comm->end.sequence;
        /* W slices make the buffer; each rank receives all but its own. */
        comm->end.line->link[parity].end_ns =
            eo_fabric_send(fabric, start_ns, bytes * (group->params.rank_count - 1));
    }
    const uint64_t end_ns = comm->end.line->link[parity].end_ns;
    eo_local_unlock(group);
    return end_ns;
}

/* In pieces, so that a failure does not have to wait for a slow link. */
static eo_status sleep_until(const struct eo_group *group, uint64_t end_ns)
{
    enum { PIECE_NS = 20000000 };
    for (uint64_t now_ns = eo_now_ns(); now_ns < end_ns; now_ns = eo_now_ns()) {
        EO_TRY(eo_local_failure(group));
        const uint64_t until_ns = eo_min_u64(end_ns, now_ns + PIECE_NS);
        const struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    return EO_OK;
}

/* All ranks have entered: until leave they may be read. */
static eo_status enter_with_all(struct eo_comm *comm, const struct eo_local_post *post, uint64_t *start_ns,
                                uint64_t *end_ns)
{
    eo_local_enter(&comm->end, post);
    const eo_status status = eo_local_meet(&comm->end, false, eo_local_post_of(&comm->end, comm->end.rank)->entered_ns);
    if (status < 0) {
        eo_local_leave(&comm->end);
        return status;
    }
    *start_ns = all_entered_ns(comm);
    *end_ns = put_on_link(comm, *start_ns, slice_bytes(comm, post));
    for (uint32_t r = 0; r < comm->end.group->params.rank_count; r++)
        comm->sends[r] = comm->peers ? comm->peers->send_of(comm, r) : eo_local_post_of(&comm->end, r)->send;
    return EO_OK;
}

static eo_status all_reduce(struct eo_comm *comm, const struct eo_local_work *work, uint64_t *end_ns)
{
    const struct eo_local_post *post = &work->post;
    const struct eo_local_slice own = eo_local_slice_of(comm->end.group, post->count, comm->end.rank);
    uint64_t start_ns;
    eo_local_cpu_reduce(comm, (unsigned char *)work->recv + own.begin * eo_dtype_bytes(post->dtype), own.begin, own.count,
           post->dtype);
    eo_local_leave(&comm->end);
    EO_TRY(enter_with_all(comm, post, &start_ns, end_ns));
    gather_slices(comm, work->recv, post->count, post->dtype);
    return EO_OK;
}

/* From where the peers' data lies. */
static eo_status run_directly(const struct eo_local_work *work, uint64_t *end_ns)
{
    struct eo_comm *comm = work->comm;
    const struct eo_local_post *post = &work->post;
    if (post->kind == EO_LOCAL_ALL_GATHER)
        eo_local_cpu_gather(comm, work->recv, post->count, post->count);
    else if (post->kind == EO_LOCAL_REDUCE_SCATTER)
        eo_local_cpu_reduce(comm, work->recv, comm->end.rank * post->count, post->count, post->dtype);
    else if (post->kind == EO_LOCAL_ALL_REDUCE && comm->end.group->params.rank_count > 1)
        EO_TRY(all_reduce(comm, work, end_ns));
    eo_local_leave(&comm->end);
    if (post->kind == EO_LOCAL_REDUCE_SCATTER || post->kind == EO_LOCAL_ALL_REDUCE)
        return eo_local_meet(&comm->end, true, eo_now_ns());
    return EO_OK;
}

static eo_status run_collective(void *arguments)
{
    const struct eo_local_work *work = arguments;
    struct eo_comm *comm = work->comm;
    const struct eo_local_post *post = &work->post;
    uint64_t start_ns, end_ns;
    comm->end.number++;
    EO_TRY(enter_with_all(comm, post, &start_ns, &end_ns));
    if (comm->peers && comm->peers->is_hidden(comm)) {
        eo_local_leave(&comm->end);
        EO_TRY(comm->peers->run_in_pieces(work));
    } else {
        EO_TRY(run_directly(work, &end_ns));
    }
    if (!comm->goes_on) {
        comm->ready_ns = work->ready_ns;
        comm->start_ns = start_ns;
    }
    comm->goes_on = work->has_more;
    if (work->has_more) /* the link's latency is behind the last */
        return EO_OK;
    EO_TRY(sleep_until(comm->end.group, end_ns));
    if (work->span)
        *work->span = (struct eo_span){comm->ready_ns, comm->start_ns, eo_now_ns()};
    return EO_OK;
}

/* -- on the caller's thread ------------------------------------------------------------------------------------- */

eo_status eo_local_cpu_comm_make(struct eo_comm **out, struct eo_group *group, struct eo_device *device,
                                 uint32_t queue)
{
    *out = NULL;
    if (device->ops != &eo_device_cpu_ops) {
        eo_log_write(&group->log, EO_LOG_ERROR, "local collectives run on device cpu, not on %s", device->ops->name);
        return EO_ERR_UNSUPPORTED;
    }
    struct eo_comm *comm = calloc(1, sizeof(*comm));
    if (!comm)
        return EO_ERR_NO_MEMORY;
    comm->device = device;
    comm->queue = queue;
    comm->kernels = eo_cpu_of(device)->kernels;
    *out = comm;
    return EO_OK;
}

static eo_status local_open(struct eo_comm **out, struct eo_group *group, uint32_t rank, struct eo_device *device,
                            uint32_t queue, bool reduces)
{
    (void)reduces;
    struct eo_comm *comm;
    *out = NULL;
    EO_TRY(eo_local_cpu_comm_make(&comm, group, device, queue));
    const eo_status status = eo_local_end_open(&comm->end, group, rank, device, queue, NULL);
    if (status < 0) {
        free(comm);
        return status;
    }
    *out = comm;
    return EO_OK;
}

static eo_status await_queue(struct eo_comm *comm)
{
    struct eo_cpu_queue *queue = &eo_cpu_of(comm->device)->queues[comm->queue];
    return eo_cpu_queue_await(queue, eo_cpu_queue_point(queue));
}

void eo_local_cpu_await_all(struct eo_comm *comm)
{
    struct eo_group *group = comm->end.group;
    (void)await_queue(comm);
    if (!eo_local_await_readers(&comm->end))
        (void)eo_local_fail(group, EO_ERR_TIMEOUT, "rank %u closed a communicator, but after %u ms a rank still reads its "
                            "memory", comm->end.rank, eo_patience_ms(&group->params));
}

static void local_close(struct eo_comm *comm)
{
    if (!comm)
        return;
    eo_local_cpu_await_all(comm);
    eo_local_end_close(&comm->end, NULL);
    free(comm);
}

static eo_status enqueue_collective(struct eo_comm *comm, void *recv, struct eo_local_post post, struct eo_span *span)
{
    if (!post.label)
        post.label = "";
    if (comm->peers)
        post.place = comm->peers->place(comm, post.send);
    const bool has_more = comm->joined > 1;
    comm->joined -= comm->joined > 0;
    const struct eo_local_work work = {comm, recv, post, span, eo_now_ns(), has_more};
    _Static_assert(sizeof(work) <= EO_CPU_ARGUMENT_BYTES, "a collective does not fit into an item of the ring");
    eo_cpu_enqueue(comm->device, comm->queue, run_collective, &work, sizeof(work));
    return EO_OK;
}

eo_status eo_local_cpu_all_gather(struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                                  const char *label, struct eo_span *span)
{
    const struct eo_local_post post = {.kind = EO_LOCAL_ALL_GATHER, .count = send_bytes, .label = label, .send = send};
    return enqueue_collective(comm, recv, post, span);
}

eo_status eo_local_cpu_reduce_scatter(struct eo_comm *comm, void *recv, const void *send, uint64_t recv_count,
                                      eo_dtype dtype, const char *label, struct eo_span *span)
{
    const struct eo_local_post post = {
        .kind = EO_LOCAL_REDUCE_SCATTER, .dtype = dtype, .count = recv_count, .label = label, .send = send};
    return enqueue_collective(comm, recv, post, span);
}

eo_status eo_local_cpu_all_reduce(struct eo_comm *comm, void *buffer, uint64_t count, eo_dtype dtype,
                                  const char *label, struct eo_span *span)
{
    const struct eo_local_post post = {
        .kind = EO_LOCAL_ALL_REDUCE, .dtype = dtype, .count = count, .label = label, .send = buffer};
    return enqueue_collective(comm, buffer, post, span);
}

void eo_local_cpu_join(struct eo_comm *comm, uint32_t count)
{
    comm->joined = count;
}

/* Who is in the barrier has finished all collectives before it, so nobody reads anybody's memory after it. */
eo_status eo_local_cpu_quiesce(struct eo_comm *comm)
{
    EO_TRY(await_queue(comm)); /* first, or a full ring could not take the barrier */
    const struct eo_local_post post = {.kind = EO_LOCAL_BARRIER, .label = EO_QUIESCE_LABEL};
    EO_TRY(enqueue_collective(comm, NULL, post, NULL));
    return await_queue(comm);
}

const struct eo_comm_ops eo_comm_local_ops = {
    .name = "local",
    .group_create = eo_local_group_create,
    .group_release = eo_local_group_release,
    .group_abort = eo_local_group_abort,
    .group_failure = eo_local_group_failure,
    .group_split = eo_local_group_split,
    .open = local_open,
    .close = local_close,
    .all_gather = eo_local_cpu_all_gather,
    .reduce_scatter = eo_local_cpu_reduce_scatter,
    .all_reduce = eo_local_cpu_all_reduce,
    .join = eo_local_cpu_join,
    .quiesce = eo_local_cpu_quiesce,
};
