/* SPDX-License-Identifier: MIT
 *
 * Communicators over MPI: each collective runs on its queue's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "streams/cpu/device.h"
#include "streams/mpi/internal.h"
#include "streams/patience.h"
#include "streams/transports.h"

enum {
    SCRATCH_BYTES = 4 << 20,     /* what is received of one piece of a reduction; there are two */
    MESSAGE_BYTES_MAX = 1 << 30, /* MPI counts in int */
};

struct mpi_work {
    struct eo_comm *comm;
    enum eo_mpi_kind kind;
    eo_dtype dtype;
    void *recv;
    const void *send;
    uint64_t count;
    const char *label;
    struct eo_span *span;
    uint64_t ready_ns;
    bool has_more; /* the next collective is of the same operation */
};

static uint64_t element_bytes(const struct mpi_work *work)
{
    return work->kind == EO_MPI_ALL_GATHER ? 1 : eo_dtype_bytes(work->dtype);
}

/* -- messages ---------------------------------------------------------------------------------------------------- */

static void no_requests(struct eo_comm *comm, uint32_t set)
{
    for (uint32_t i = 0; i < 2 * eo_mpi_rank_count(comm); i++)
        comm->requests[set][i] = eo_mpi.request_null;
}

static eo_status check_message(struct eo_comm *comm, int result, const char *what, uint32_t other)
{
    const eo_status status = eo_mpi_check(result, what, &comm->group->log);
    return status >= 0 ? EO_OK : eo_mpi_fail(comm->group, status, "rank %u: MPI could not %s rank %u in '%s', collective "
                                             "%llu", comm->group->rank, what, other, comm->post.label,
                                             (unsigned long long)comm->number);
}

static eo_status receive(struct eo_comm *comm, uint32_t set, uint32_t from, void *memory, uint64_t bytes, int tag)
{
    eo_mpi_lock();
    const int result = eo_mpi.Irecv(memory, (int)bytes, eo_mpi.byte, (int)from, tag, comm->comm,
                                    &comm->requests[set][from]);
    eo_mpi_unlock();
    return check_message(comm, result, "receive from", from);
}

static eo_status send_to(struct eo_comm *comm, uint32_t set, uint32_t to, const void *memory, uint64_t bytes, int tag)
{
    eo_mpi_lock();
    const int result = eo_mpi.Isend(memory, (int)bytes, eo_mpi.byte, (int)to, tag, comm->comm,
                                    &comm->requests[set][eo_mpi_rank_count(comm) + to]);
    eo_mpi_unlock();
    return check_message(comm, result, "send to", to);
}

/* The first rank whose message is not there, or that has not taken ours. */
static uint32_t missing_rank(struct eo_comm *comm, uint32_t set)
{
    const uint32_t rank_count = eo_mpi_rank_count(comm);
    for (uint32_t i = 0; i < 2 * rank_count; i++) {
        int is_complete = 1;
        if (comm->requests[set][i] != eo_mpi.request_null)
            (void)eo_mpi.Test(&comm->requests[set][i], &is_complete, MPI_STATUS_IGNORE);
        if (!is_complete)
            return i % rank_count;
    }
    return comm->group->rank;
}

/* A failed group's requests are left: they may still write, so their memory is not given back (eo_mpi_group_release). */
static void abandon(struct eo_comm *comm)
{
    eo_mpi_lock();
    for (uint32_t set = 0; set < 2; set++)
        for (uint32_t i = 0; i < eo_mpi_rank_count(comm); i++)
            if (comm->requests[set][i] != eo_mpi.request_null)
                (void)eo_mpi.Cancel(&comm->requests[set][i]);
    comm->is_stuck = true;
    eo_mpi_unlock();
}

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"all-gather", "reduce-scatter", "all-reduce", "barrier", "nothing"};
    return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "unknown collective";
}

static void describe(char *text, size_t bytes, const struct eo_mpi_post *post)
{
    if (post->kind >= EO_MPI_BARRIER)
        snprintf(text, bytes, "%s '%s'", kind_name(post->kind), post->label);
    else
        snprintf(text, bytes, "%s '%s' of %llu %s", kind_name(post->kind), post->label,
                 (unsigned long long)post->count,
                 post->kind == EO_MPI_ALL_GATHER   ? "bytes"
                 : post->dtype == EO_DTYPE_BF16 ? "bf16 elements"
                                                : "fp32 elements");
}

static eo_status late(struct eo_comm *comm, uint32_t set, bool has_entered)
{
    char what[160];
    eo_mpi_lock();
    const uint32_t missing = missing_rank(comm, set);
    eo_mpi_unlock();
    describe(what, sizeof(what), &comm->post);
    return eo_mpi_fail(comm->group, EO_ERR_TIMEOUT,
                       "rank %u has not %s %s, collective %llu, within %u ms of rank %u; find out why, or raise the timeout",
                       missing, has_entered ? "finished" : "entered", what,
                       (unsigned long long)comm->number, eo_patience_ms(&comm->group->params), comm->group->rank);
}

/* Of one set. Those that wait for others' posts sleep: they may wait for long. */
static eo_status await_requests(struct eo_comm *comm, uint32_t set, bool has_entered)
{
    const uint64_t limit_ns = eo_patience_ns(&comm->group->params);
    struct eo_stopwatch waited = eo_stopwatch_start();
    for (uint32_t looks = 0;; looks++) {
        int is_complete = 0;
        eo_mpi_lock();
        const int result = eo_mpi.Testall((int)(2 * eo_mpi_rank_count(comm)), comm->requests[set], &is_complete,
                                          MPI_STATUSES_IGNORE);
        const eo_status failure = eo_mpi_look(comm->group);
        eo_mpi_unlock();
        eo_status status = failure;
        if (result != MPI_SUCCESS)
            status = eo_mpi_fail(comm->group, eo_mpi_check(result, "MPI_Testall", &comm->group->log),
                                 "rank %u: MPI failed in '%s', collective %llu", comm->group->rank, comm->post.label,
                                 (unsigned long long)comm->number);
        else if (is_complete)
            return EO_OK; /* also beside a failure: the next collective ends with that */
        else if (failure >= 0 && eo_stopwatch_look(&waited, EO_LOOK_NS_MAX) >= limit_ns)
            status = late(comm, set, has_entered);
        if (status < 0) {
            abandon(comm);
            return status;
        }
        eo_mpi_pause(looks);
    }
}

/* -- meeting ----------------------------------------------------------------------------------------------------- */

static eo_status compare_posts(struct eo_comm *comm)
{
    const struct eo_mpi_post *mine = &comm->post;
    char what[160], other[160];
    describe(what, sizeof(what), mine);
    for (uint32_t r = 0; r < eo_mpi_rank_count(comm); r++) {
        struct eo_mpi_post *post = &comm->posts[r];
        if (r == comm->group->rank)
            continue;
        post->label[sizeof(post->label) - 1] = '\0';
        if (post->kind == EO_MPI_CLOSED)
            return eo_mpi_fail(comm->group, EO_ERR_COMM,
                               "rank %u has closed its communicator, rank %u entered %s as collective %llu", r,
                               comm->group->rank, what, (unsigned long long)comm->number);
        if (post->kind == mine->kind && post->dtype == mine->dtype && post->count == mine->count &&
            strcmp(post->label, mine->label) == 0)
            continue;
        describe(other, sizeof(other), post);
        return eo_mpi_fail(comm->group, EO_ERR_COMM,
                           "ranks disagree: rank %u entered %s as collective %llu, rank %u %s; all ranks must issue the "
                           "same collectives in the same order", r, other, (unsigned long long)comm->number,
                           comm->group->rank, what);
    }
    return EO_OK;
}

/* Tells all ranks what this one is about to do, and waits for nobody. */
static eo_status send_posts(struct eo_comm *comm, const struct mpi_work *work)
{
    comm->number++;
    comm->post = (struct eo_mpi_post){.kind = work->kind, .dtype = work->dtype, .count = work->count,
                                      .number = comm->number};
    snprintf(comm->post.label, sizeof(comm->post.label), "%s", work->label);
    eo_mpi_lock();
    const eo_status failure = eo_mpi_look(comm->group);
    eo_mpi_unlock();
    EO_TRY(failure);
    no_requests(comm, 0);
    for (uint32_t i = 1; i < eo_mpi_rank_count(comm); i++) {
        const uint32_t r = (comm->group->rank + i) % eo_mpi_rank_count(comm);
        EO_TRY(receive(comm, 0, r, &comm->posts[r], sizeof(comm->posts[r]), EO_MPI_TAG_POST));
        EO_TRY(send_to(comm, 0, r, &comm->post, sizeof(comm->post), EO_MPI_TAG_POST));
    }
    return EO_OK;
}

/* All ranks have said what they are about to do, and it is the same. */
static eo_status meet(struct eo_comm *comm, const struct mpi_work *work)
{
    EO_TRY(send_posts(comm, work));
    EO_TRY(await_requests(comm, 0, false));
    return compare_posts(comm);
}

/* -- data -------------------------------------------------------------------------------------------------------- */

struct slice {
    uint64_t begin, count;
};

/* The elements that rank r gathers from, or sums. */
static struct slice slice_of(const struct mpi_work *work, uint32_t r)
{
    if (work->kind != EO_MPI_ALL_REDUCE)
        return (struct slice){r * work->count, work->count};
    const uint64_t vector = 64, share = eo_align_up(eo_div_up(work->count, eo_mpi_rank_count(work->comm)), vector);
    const uint64_t begin = eo_min_u64(share * r, work->count);
    return (struct slice){begin, eo_min_u64(share, work->count - begin)};
}

/* Every rank's slice to every other; `own`: where ours lies, if not at its place in `all`. */
static eo_status gather(struct eo_comm *comm, const struct mpi_work *work, unsigned char *all, const void *own)
{
    const uint64_t size = element_bytes(work);
    const struct slice mine = slice_of(work, comm->group->rank);
    if (own && own != all + mine.begin * size)
        comm->kernels->stream_copy(all + mine.begin * size, own, mine.count * size);
    const unsigned char *from = own ? own : all + mine.begin * size;
    const uint64_t longest = slice_of(work, 0).count * size;
    for (uint64_t at = 0; at < longest; at += MESSAGE_BYTES_MAX) {
        no_requests(comm, 0);
        for (uint32_t i = 1; i < eo_mpi_rank_count(comm); i++) {
            const uint32_t r = (comm->group->rank + i) % eo_mpi_rank_count(comm);
            const struct slice other = slice_of(work, r);
            if (other.count * size > at)
                EO_TRY(receive(comm, 0, r, all + other.begin * size + at,
                               eo_min_u64(other.count * size - at, MESSAGE_BYTES_MAX), EO_MPI_TAG_DATA));
            if (mine.count * size > at)
                EO_TRY(send_to(comm, 0, r, from + at, eo_min_u64(mine.count * size - at, MESSAGE_BYTES_MAX),
                               EO_MPI_TAG_DATA));
        }
        EO_TRY(await_requests(comm, 0, true));
    }
    return EO_OK;
}

/* Piece `p` of each slice is on its way, into scratch of its parity. */
static eo_status start_piece(struct eo_comm *comm, const struct mpi_work *work, uint64_t p)
{
    const uint32_t set = p & 1, rank = comm->group->rank;
    const uint64_t size = element_bytes(work), most = comm->piece_bytes / size, at = p * most;
    const struct slice mine = slice_of(work, rank);
    no_requests(comm, set);
    for (uint32_t i = 1; i < eo_mpi_rank_count(comm); i++) {
        const uint32_t r = (rank + i) % eo_mpi_rank_count(comm);
        const struct slice other = slice_of(work, r);
        if (mine.count > at)
            EO_TRY(receive(comm, set, r, comm->scratch[set] + r * comm->piece_bytes,
                           eo_min_u64(most, mine.count - at) * size, EO_MPI_TAG_DATA));
        if (other.count > at)
            EO_TRY(send_to(comm, set, r, (const unsigned char *)work->send + (other.begin + at) * size,
                           eo_min_u64(most, other.count - at) * size, EO_MPI_TAG_DATA));
    }
    return EO_OK;
}

static void sum_piece(struct eo_comm *comm, const struct mpi_work *work, unsigned char *recv, uint64_t p)
{
    const uint32_t rank_count = eo_mpi_rank_count(comm), rank = comm->group->rank;
    const uint64_t size = element_bytes(work), most = comm->piece_bytes / size, at = p * most;
    const struct slice mine = slice_of(work, rank);
    if (mine.count <= at)
        return;
    const uint64_t count = eo_min_u64(most, mine.count - at);
    for (uint32_t r = 0; r < rank_count; r++)
        comm->terms[r] = comm->scratch[p & 1] + r * comm->piece_bytes;
    comm->terms[rank] = (const unsigned char *)work->send + (mine.begin + at) * size;
    if (work->dtype == EO_DTYPE_FP32)
        comm->kernels->sum_fp32((float *)(recv + at * size), (const float *const *)comm->terms, rank_count, count, false);
    else
        comm->kernels->sum_bf16((uint16_t *)(recv + at * size), (const uint16_t *const *)comm->terms, rank_count, count);
}

/* This rank's slice, summed into `recv`, which may be its place in what it sends. One piece travels while another is
 * summed. */
static eo_status reduce(struct eo_comm *comm, const struct mpi_work *work, unsigned char *recv)
{
    const uint64_t size = element_bytes(work), most = comm->piece_bytes / size;
    const uint64_t piece_count = eo_div_up(slice_of(work, 0).count, most); /* no slice is longer than the first */
    for (uint64_t p = 0; p <= piece_count; p++) {
        if (p < piece_count)
            EO_TRY(start_piece(comm, work, p));
        if (p == 0)
            continue;
        EO_TRY(await_requests(comm, (p - 1) & 1, true));
        sum_piece(comm, work, recv, p - 1);
    }
    return EO_OK;
}

static eo_status move_data(struct eo_comm *comm, const struct mpi_work *work)
{
    const uint64_t begin = slice_of(work, comm->group->rank).begin * element_bytes(work);
    const uint64_t bytes = work->count * element_bytes(work);
    switch (work->kind) {
    case EO_MPI_ALL_GATHER:
        return gather(comm, work, work->recv, work->send);
    case EO_MPI_REDUCE_SCATTER:
        if (eo_mpi_rank_count(comm) > 1)
            return reduce(comm, work, work->recv);
        if (work->recv != work->send)
            memcpy(work->recv, work->send, bytes);
        return EO_OK;
    case EO_MPI_ALL_REDUCE:
        if (eo_mpi_rank_count(comm) == 1)
            return EO_OK;
        EO_TRY(reduce(comm, work, (unsigned char *)work->recv + begin));
        return gather(comm, work, work->recv, NULL);
    case EO_MPI_BARRIER:
    case EO_MPI_CLOSED:
        return EO_OK;
    }
    return EO_OK;
}

static eo_status run_collective(void *arguments)
{
    const struct mpi_work *work = arguments;
    struct eo_comm *comm = work->comm;
    EO_TRY(meet(comm, work));
    const uint64_t start_ns = eo_now_ns();
    if (!comm->goes_on) {
        comm->ready_ns = work->ready_ns;
        comm->start_ns = start_ns;
    }
    comm->goes_on = work->has_more;
    EO_TRY(move_data(comm, work));
    if (work->span && !work->has_more)
        *work->span = (struct eo_span){comm->ready_ns, comm->start_ns, eo_now_ns()};
    return EO_OK;
}

/* -- on the caller's thread -------------------------------------------------------------------------------------- */

static eo_status make_comm(struct eo_comm **out, struct eo_group *group, struct eo_device *device, uint32_t queue)
{
    const uint32_t rank_count = group->params.rank_count;
    struct eo_comm *comm = calloc(1, sizeof(*comm));
    if (!comm)
        return EO_ERR_NO_MEMORY;
    comm->group = group;
    comm->device = device;
    comm->queue = queue;
    comm->kernels = eo_cpu_of(device)->kernels;
    comm->piece_bytes = eo_max_u64(eo_align_up(SCRATCH_BYTES / rank_count, 64), 4096);
    comm->posts = calloc(rank_count, sizeof(*comm->posts));
    comm->terms = calloc(rank_count, sizeof(*comm->terms));
    bool is_whole = comm->posts && comm->terms;
    for (uint32_t set = 0; set < 2; set++) {
        comm->requests[set] = calloc(2 * (size_t)rank_count, sizeof(MPI_Request));
        comm->scratch[set] = aligned_alloc(64, comm->piece_bytes * rank_count);
        is_whole = is_whole && comm->requests[set] && comm->scratch[set];
        if (is_whole)
            memset(comm->scratch[set], 0, comm->piece_bytes * rank_count); /* no page comes in a step */
    }
    if (!is_whole) {
        eo_mpi_comm_free(comm);
        return EO_ERR_NO_MEMORY;
    }
    no_requests(comm, 0);
    no_requests(comm, 1);
    *out = comm;
    return EO_OK;
}

static eo_status mpi_open(struct eo_comm **out, struct eo_group *group, uint32_t rank, struct eo_device *device, uint32_t queue,
                          bool reduces)
{
    (void)reduces;
    *out = NULL;
    if (device->ops != &eo_device_cpu_ops) {
        eo_log_write(&group->log, EO_LOG_ERROR, "collectives over mpi run on device cpu, not on %s", device->ops->name);
        return EO_ERR_UNSUPPORTED;
    }
    EO_REQUIRE(&group->log, rank == group->rank, "communicator: rank %u is not the rank of this process, %u of %u", rank,
               group->rank, group->params.rank_count);
    EO_REQUIRE(&group->log, queue != EO_QUEUE_COMPUTE && queue < device->params.queue_count,
               "communicator: queue %u; collectives run on queues 1 ... %u", queue, device->params.queue_count - 1);
    struct eo_comm *comm;
    EO_TRY(make_comm(&comm, group, device, queue));
    const eo_status status = eo_mpi_duplicate(&comm->comm, group->comm, eo_mpi_join_limit_ns(group), &group->log);
    if (status < 0) {
        eo_mpi_comm_free(comm);
        return status;
    }
    group->references++; /* until all ranks have closed it */
    (void)eo_mpi_comms_sweep(group->root);
    *out = comm;
    return EO_OK;
}

static eo_status await_queue(struct eo_comm *comm)
{
    struct eo_cpu_queue *queue = &eo_cpu_of(comm->device)->queues[comm->queue];
    return eo_cpu_queue_await(queue, eo_cpu_queue_point(queue));
}

/* Says so to the others, and waits for none of them: they may have other things to do first. What is left of the
 * communicator is given back once all have closed it. */
static void mpi_close(struct eo_comm *comm)
{
    if (!comm)
        return;
    (void)await_queue(comm);
    const struct eo_group *root = comm->group->root;
    const struct mpi_work last = {.comm = comm, .kind = EO_MPI_CLOSED, .label = "close"};
    if (send_posts(comm, &last) < 0)
        comm->is_stuck = true;
    eo_mpi_comm_keep(comm);
    (void)eo_mpi_comms_sweep(root);
}

static eo_status enqueue(const struct mpi_work *work)
{
    struct mpi_work item = *work;
    item.label = work->label ? work->label : "";
    item.ready_ns = eo_now_ns();
    item.has_more = item.comm->joined > 1;
    item.comm->joined -= item.comm->joined > 0;
    _Static_assert(sizeof(item) <= EO_CPU_ARGUMENT_BYTES, "a collective does not fit into an item of the ring");
    eo_cpu_enqueue(item.comm->device, item.comm->queue, run_collective, &item, sizeof(item));
    return EO_OK;
}

static eo_status mpi_all_gather(struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                                const char *label, struct eo_span *span)
{
    return enqueue(&(const struct mpi_work){.comm = comm, .kind = EO_MPI_ALL_GATHER, .recv = recv, .send = send,
                                            .count = send_bytes, .label = label, .span = span});
}

static eo_status mpi_reduce_scatter(struct eo_comm *comm, void *recv, const void *send, uint64_t recv_count,
                                    eo_dtype dtype, const char *label, struct eo_span *span)
{
    return enqueue(&(const struct mpi_work){.comm = comm, .kind = EO_MPI_REDUCE_SCATTER, .dtype = dtype, .recv = recv,
                                            .send = send, .count = recv_count, .label = label, .span = span});
}

static eo_status mpi_all_reduce(struct eo_comm *comm, void *buffer, uint64_t count, eo_dtype dtype, const char *label,
                                struct eo_span *span)
{
    return enqueue(&(const struct mpi_work){.comm = comm, .kind = EO_MPI_ALL_REDUCE, .dtype = dtype, .recv = buffer,
                                            .send = buffer, .count = count, .label = label, .span = span});
}

static void mpi_join(struct eo_comm *comm, uint32_t count)
{
    comm->joined = count;
}

static eo_status mpi_quiesce(struct eo_comm *comm)
{
    EO_TRY(await_queue(comm)); /* first, or a full ring could not take the barrier */
    EO_TRY(enqueue(&(const struct mpi_work){.comm = comm, .kind = EO_MPI_BARRIER, .label = EO_QUIESCE_LABEL}));
    return await_queue(comm);
}

static void mpi_group_info(const struct eo_group *group, struct eo_group_info *out)
{
    *out = (struct eo_group_info){.mode = "messages", .must_exit = eo_mpi_failure(group) < 0};
    snprintf(out->gather, sizeof(out->gather), "messages between the buffers");
    snprintf(out->reduce, sizeof(out->reduce), "messages, summed here in rank order");
}

const struct eo_comm_ops eo_comm_mpi_ops = {
    .name = "mpi",
    .group_create = eo_mpi_group_create,
    .group_release = eo_mpi_group_release,
    .group_abort = eo_mpi_group_abort,
    .group_failure = eo_mpi_group_failure,
    .group_split = eo_mpi_group_split,
    .open = mpi_open,
    .close = mpi_close,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .all_reduce = mpi_all_reduce,
    .join = mpi_join,
    .quiesce = mpi_quiesce,
    .group_info = mpi_group_info,
};
