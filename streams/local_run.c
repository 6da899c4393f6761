/* SPDX-License-Identifier: MIT
 *
 * One collective on one rank: meet, read, leave. What is compared and what ends a wait is told in local.h.
 */
#include "streams/local.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/arithmetic.h"
#include "base/check.h"

#define NOBODY UINT32_MAX

static const char *kind_name(enum eo_local_kind kind)
{
    switch (kind) {
    case EO_LOCAL_ALL_GATHER:
        return "all-gather";
    case EO_LOCAL_REDUCE_SCATTER:
        return "reduce-scatter";
    case EO_LOCAL_BARRIER:
        return "barrier";
    }
    return "unknown collective";
}

static void describe_post(char *text, size_t bytes, const struct eo_local_post *post)
{
    if (post->kind == EO_LOCAL_BARRIER)
        snprintf(text, bytes, "barrier '%s'", post->label);
    else
        snprintf(text, bytes, "%s '%s' of %llu %s", kind_name(post->kind), post->label,
                 (unsigned long long)post->count,
                 post->kind == EO_LOCAL_ALL_GATHER     ? "bytes"
                 : post->dtype == EO_DTYPE_BF16 ? "bf16 elements"
                                                : "fp32 elements");
}

static bool is_same(const struct eo_local_post *a, const struct eo_local_post *b)
{
    return a->kind == b->kind && a->count == b->count && a->dtype == b->dtype &&
           (a->label == b->label || strcmp(a->label, b->label) == 0);
}

/* What a rank waits for in its collective, and what it found. */
struct meeting {
    struct eo_comm *comm;
    bool to_leave;     /* all done, else all entered */
    uint32_t missing;  /* the first rank that is not there */
    uint32_t differing, closed;
};

static bool has_met(void *arg)
{
    struct meeting *meeting = arg;
    struct eo_comm *comm = meeting->comm;
    const uint64_t sequence = comm->sequence;
    const struct eo_local_post *mine = &comm->line->ranks[comm->rank].posts[sequence & 1];
    if (eo_local_failure(comm->group) < 0)
        return true;
    meeting->missing = NOBODY;
    for (uint32_t r = 0; r < comm->group->params.rank_count; r++) {
        struct eo_local_rank *rank = &comm->line->ranks[r];
        if (r == comm->rank)
            continue;
        /* closed before entered: a rank enters no more once it is closed, so nothing is missed between the two. */
        const bool is_closed = atomic_load_explicit(&rank->closed, memory_order_acquire);
        const uint64_t reached = atomic_load_explicit(meeting->to_leave ? &rank->done : &rank->entered,
                                                      memory_order_acquire);
        if (reached >= sequence) {
            if (!meeting->to_leave && !is_same(mine, &rank->posts[sequence & 1])) {
                meeting->differing = r;
                return true;
            }
        } else if (is_closed) {
            meeting->closed = r;
            return true;
        } else if (meeting->missing == NOBODY) {
            meeting->missing = r;
        }
    }
    return meeting->missing == NOBODY;
}

/* Waits until all have entered, or until all are done. */
static eo_status meet(struct eo_comm *comm, bool to_leave, uint64_t from_ns)
{
    struct eo_group *group = comm->group;
    const struct eo_local_post *mine = &comm->line->ranks[comm->rank].posts[comm->sequence & 1];
    struct meeting meeting = {comm, to_leave, NOBODY, NOBODY, NOBODY};
    const uint64_t deadline_ns = from_ns + group->params.timeout_ms * UINT64_C(1000000);
    const bool in_time = has_met(&meeting) || eo_gate_wait(&comm->line->gate, has_met, &meeting, deadline_ns);
    const eo_status failure = eo_local_failure(group);
    if (failure < 0)
        return failure;
    const unsigned long long sequence = comm->sequence;
    char what[256], other[256];
    describe_post(what, sizeof(what), mine);
    if (meeting.differing != NOBODY) {
        describe_post(other, sizeof(other), &comm->line->ranks[meeting.differing].posts[comm->sequence & 1]);
        return eo_local_fail(group, EO_ERR_COMM,
                             "ranks disagree: rank %u entered %s as collective %llu, rank %u %s; all ranks must issue "
                             "the same collectives in the same order",
                             meeting.differing, other, sequence, comm->rank, what);
    }
    if (meeting.closed != NOBODY)
        return eo_local_fail(group, EO_ERR_COMM,
                             "rank %u has closed its communicator, rank %u entered %s as collective %llu",
                             meeting.closed, comm->rank, what, sequence);
    if (!in_time)
        return eo_local_fail(group, EO_ERR_TIMEOUT,
                             "rank %u has not %s %s, collective %llu, within %u ms of rank %u; find out what stopped "
                             "it, or raise the timeout",
                             meeting.missing, to_leave ? "finished" : "entered", what, sequence,
                             group->params.timeout_ms, comm->rank);
    return EO_OK;
}

static uint64_t slice_bytes(const struct eo_local_post *post)
{
    return post->count * (post->kind == EO_LOCAL_ALL_GATHER ? 1 : post->dtype == EO_DTYPE_BF16 ? 2 : 4);
}

/* Each rank begins with the one after it, so that not all read the same memory at once. */
static void gather(struct eo_comm *comm, unsigned char *recv, uint64_t bytes)
{
    const uint32_t rank_count = comm->group->params.rank_count;
    for (uint32_t i = 1; i <= rank_count; i++) {
        const uint32_t r = (comm->rank + i) % rank_count;
        const unsigned char *send = comm->line->ranks[r].posts[comm->sequence & 1].send;
        if (send == recv + r * bytes)
            continue;
        if (bytes * rank_count >= EO_STREAM_BYTES)
            comm->kernels->stream_copy(recv + r * bytes, send, bytes);
        else
            memcpy(recv + r * bytes, send, bytes);
    }
}

/* `recv` may be this rank's own slice. */
static void reduce(struct eo_comm *comm, void *recv, uint64_t count, eo_dtype dtype)
{
    const uint32_t rank_count = comm->group->params.rank_count;
    const uint64_t offset = comm->rank * count;
    if (rank_count == 1) {
        const void *send = comm->line->ranks[0].posts[comm->sequence & 1].send;
        if (send != recv)
            memcpy(recv, send, count * (dtype == EO_DTYPE_BF16 ? 2 : 4));
        return;
    }
    const float *fp32[EO_LOCAL_RANKS_MAX];
    const uint16_t *bf16[EO_LOCAL_RANKS_MAX];
    for (uint32_t r = 0; r < rank_count; r++) {
        const void *send = comm->line->ranks[r].posts[comm->sequence & 1].send;
        fp32[r] = (const float *)send + offset;
        bf16[r] = (const uint16_t *)send + offset;
    }
    if (dtype == EO_DTYPE_FP32)
        comm->kernels->sum_fp32(recv, fp32, rank_count, count, count * 4 * rank_count >= EO_STREAM_BYTES);
    else
        comm->kernels->sum_bf16(recv, bf16, rank_count, count);
}

static uint64_t all_entered_ns(const struct eo_comm *comm)
{
    uint64_t latest_ns = 0;
    for (uint32_t r = 0; r < comm->group->params.rank_count; r++)
        latest_ns = eo_max_u64(latest_ns, comm->line->ranks[r].posts[comm->sequence & 1].entered_ns);
    return latest_ns;
}

/* The first rank that comes here puts the collective on the link; the others read when it ends. */
static uint64_t put_on_link(struct eo_comm *comm, uint64_t start_ns, uint64_t bytes)
{
    struct eo_group *group = comm->group;
    const uint32_t parity = comm->sequence & 1;
    if (!(group->fabric.bytes_per_ns > 0) || group->params.rank_count == 1)
        return 0;
    pthread_mutex_lock(&group->lock);
    if (comm->line->link[parity].sequence != comm->sequence) {
        comm->line->link[parity].sequence = comm->sequence;
        /* W slices make the buffer; each rank receives all but its own. */
        comm->line->link[parity].end_ns =
            eo_fabric_send(&group->fabric, start_ns, bytes * (group->params.rank_count - 1));
    }
    const uint64_t end_ns = comm->line->link[parity].end_ns;
    pthread_mutex_unlock(&group->lock);
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

static void leave(struct eo_comm *comm)
{
    atomic_store(&comm->line->ranks[comm->rank].done, comm->sequence);
    eo_gate_notify(&comm->line->gate);
}

eo_status eo_local_run(void *arguments)
{
    const struct eo_local_work *work = arguments;
    struct eo_comm *comm = work->comm;
    struct eo_local_rank *self = &comm->line->ranks[comm->rank];
    const uint64_t sequence = ++comm->sequence, entered_ns = eo_now_ns();
    self->posts[sequence & 1] = work->post;
    self->posts[sequence & 1].entered_ns = entered_ns;
    atomic_store(&self->entered, sequence);
    eo_gate_notify(&comm->line->gate);

    const eo_status status = meet(comm, false, entered_ns);
    if (status < 0) {
        leave(comm);
        return status;
    }
    const uint64_t start_ns = all_entered_ns(comm);
    const uint64_t end_ns = put_on_link(comm, start_ns, slice_bytes(&work->post));
    if (work->post.kind == EO_LOCAL_ALL_GATHER)
        gather(comm, work->recv, work->post.count);
    else if (work->post.kind == EO_LOCAL_REDUCE_SCATTER)
        reduce(comm, work->recv, work->post.count, work->post.dtype);
    leave(comm);
    if (work->post.kind == EO_LOCAL_REDUCE_SCATTER)
        EO_TRY(meet(comm, true, eo_now_ns()));
    EO_TRY(sleep_until(comm->group, end_ns));
    if (work->span)
        *work->span = (struct eo_span){work->ready_ns, start_ns, eo_now_ns()};
    return EO_OK;
}

/* After a failure a peer may have left without having entered as often as we did; it reads only while it is inside. */
static bool have_left(void *arg)
{
    const struct eo_comm *comm = arg;
    const bool has_failed = eo_local_failure(comm->group) < 0;
    for (uint32_t r = 0; r < comm->group->params.rank_count; r++) {
        struct eo_local_rank *rank = &comm->line->ranks[r];
        const uint64_t entered = atomic_load(&rank->entered), done = atomic_load(&rank->done);
        if (r != comm->rank && !atomic_load(&rank->closed) && done < (has_failed ? entered : comm->sequence))
            return false;
    }
    return true;
}

bool eo_local_await_readers(struct eo_comm *comm)
{
    return eo_gate_wait(&comm->line->gate, have_left, comm,
                        eo_now_ns() + comm->group->params.timeout_ms * UINT64_C(1000000));
}
