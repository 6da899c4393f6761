/* SPDX-License-Identifier: MIT
 *
 * How ranks meet in a collective. What is compared and what ends a wait is told in local.h.
 */
#include "streams/local/local.h"

#include <stdio.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "streams/patience.h"

#define NOBODY UINT32_MAX

/* How often a rank that waits looks whether the others' processes are there. */
#define LOOK_NS UINT64_C(50000000)
_Static_assert(LOOK_NS < EO_LOOK_NS_MAX, "time in which nobody looked would be lost");

static const char *kind_name(enum eo_local_kind kind)
{
    switch (kind) {
    case EO_LOCAL_ALL_GATHER:
        return "all-gather";
    case EO_LOCAL_REDUCE_SCATTER:
        return "reduce-scatter";
    case EO_LOCAL_ALL_REDUCE:
        return "all-reduce";
    case EO_LOCAL_BARRIER:
        return "barrier";
    }
    return "unknown collective";
}

static const char *label_of(const struct eo_local_end *end, uint32_t rank)
{
    return end->group->shared ? end->line->ranks[rank].labels[end->sequence & 1] : eo_local_post_of(end, rank)->label;
}

static void describe_post(char *text, size_t bytes, const struct eo_local_end *end, uint32_t rank)
{
    const struct eo_local_post *post = eo_local_post_of(end, rank);
    const char *label = label_of(end, rank);
    if (post->kind == EO_LOCAL_BARRIER)
        snprintf(text, bytes, "barrier '%s'", label);
    else
        snprintf(text, bytes, "%s '%s' of %llu %s", kind_name(post->kind), label,
                 (unsigned long long)post->count,
                 post->kind == EO_LOCAL_ALL_GATHER     ? "bytes"
                 : post->dtype == EO_DTYPE_BF16 ? "bf16 elements"
                                                : "fp32 elements");
}

static bool is_same(const struct eo_local_end *end, uint32_t rank)
{
    const struct eo_local_post *a = eo_local_post_of(end, end->rank), *b = eo_local_post_of(end, rank);
    const char *label = label_of(end, end->rank), *other = label_of(end, rank);
    return a->kind == b->kind && a->count == b->count && a->dtype == b->dtype &&
           (label == other || strcmp(label, other) == 0);
}

/* What a rank waits for in its collective, and what it found. */
struct meeting {
    struct eo_local_end *end;
    bool to_leave;     /* all done, else all entered */
    uint32_t missing;  /* the first rank that is not there */
    uint32_t differing, closed, gone;
};

static bool has_met(void *arg)
{
    struct meeting *meeting = arg;
    const struct eo_local_end *end = meeting->end;
    const uint64_t sequence = end->sequence;
    if (eo_local_failure(end->group) < 0)
        return true;
    meeting->missing = NOBODY;
    for (uint32_t r = 0; r < end->group->params.rank_count; r++) {
        struct eo_local_rank *rank = &end->line->ranks[r];
        if (r == end->rank)
            continue;
        /* closed before entered: a rank enters no more once it is closed, so nothing is missed between the two. */
        const bool is_closed = atomic_load_explicit(&rank->closed, memory_order_acquire);
        const uint64_t reached = atomic_load_explicit(meeting->to_leave ? &rank->done : &rank->entered,
                                                      memory_order_acquire);
        if (reached >= sequence) {
            if (!meeting->to_leave && !is_same(end, r)) {
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

/* The first rank that has not come and never will. */
static uint32_t gone_rank(const struct meeting *meeting)
{
    const struct eo_local_end *end = meeting->end;
    for (uint32_t r = 0; r < end->group->params.rank_count; r++) {
        struct eo_local_rank *rank = &end->line->ranks[r];
        _Atomic uint64_t *reached = meeting->to_leave ? &rank->done : &rank->entered;
        if (r != end->rank && atomic_load(reached) < end->sequence && end->group->is_gone(end->group, r) &&
            atomic_load(reached) < end->sequence) /* it did not come as its last deed */
            return r;
    }
    return NOBODY;
}

/* A process that was killed wakes nobody. */
bool eo_local_await_look(struct eo_gate *gate, bool (*ready)(void *arg), void *arg, uint64_t *left_ns)
{
    struct eo_stopwatch piece = eo_stopwatch_start();
    const bool is_ready = eo_gate_wait(gate, ready, arg, piece.looked_ns + eo_min_u64(LOOK_NS, *left_ns));
    *left_ns -= eo_min_u64(eo_stopwatch_look(&piece, EO_LOOK_NS_MAX), *left_ns);
    return is_ready;
}

/* False when the time is over, or a rank is gone. */
static bool await_meeting(struct meeting *meeting, uint64_t left_ns)
{
    while (!eo_local_await_look(&meeting->end->line->gate, has_met, meeting, &left_ns)) {
        meeting->gone = meeting->end->group->is_gone ? gone_rank(meeting) : NOBODY;
        if (meeting->gone != NOBODY || left_ns == 0)
            return false;
    }
    return true;
}

static struct eo_local_line *line_at(const struct eo_group *group, uint32_t k)
{
    if (group->line_at)
        return group->line_at(group, k);
    struct eo_local_line *line = group->lines;
    while (line && k-- > 0)
        line = line->next;
    return line;
}

/* What a rank that does not come is in instead: a collective of another communicator that `end`'s rank has not entered, and which
 * neither leaves before a failure is told, under the lock. */
static void describe_place(const struct eo_local_end *end, uint32_t rank, char *text, size_t bytes)
{
    struct eo_group *group = end->group;
    snprintf(text, bytes, "find out why, or raise the timeout");
    eo_local_lock(group);
    for (uint32_t k = 0; line_at(group, k); k++) {
        struct eo_local_end there = {.group = group, .line = line_at(group, k)};
        const struct eo_local_rank *r = &there.line->ranks[rank], *own = &there.line->ranks[end->rank];
        char what[256];
        there.sequence = atomic_load(&r->entered);
        if (there.sequence <= atomic_load(&r->done) || there.sequence <= atomic_load(&own->entered) || atomic_load(&r->closed) ||
            atomic_load(&own->closed))
            continue;
        describe_post(what, sizeof(what), &there, rank);
        snprintf(text, bytes, "it is in %s, which rank %u has not entered: do all ranks make the same calls?", what, end->rank);
        break;
    }
    eo_local_unlock(group);
}

eo_status eo_local_meet(struct eo_local_end *end, bool to_leave, uint64_t from_ns)
{
    struct eo_group *group = end->group;
    struct meeting meeting = {end, to_leave, NOBODY, NOBODY, NOBODY, NOBODY};
    const uint64_t limit_ns = eo_patience_ns(&group->params);
    const uint64_t passed_ns = eo_min_u64(eo_now_ns() - from_ns, eo_min_u64(EO_LOOK_NS_MAX, limit_ns));
    const bool in_time = has_met(&meeting) || await_meeting(&meeting, limit_ns - passed_ns);
    const eo_status failure = eo_local_failure(group);
    if (failure < 0)
        return failure;
    if (in_time && meeting.differing == NOBODY && meeting.closed == NOBODY)
        return EO_OK;
    const unsigned long long sequence = end->number ? end->number : end->sequence;
    char what[256], other[256];
    describe_post(what, sizeof(what), end, end->rank);
    if (meeting.differing != NOBODY) {
        describe_post(other, sizeof(other), end, meeting.differing);
        return eo_local_fail(group, EO_ERR_COMM,
                             "ranks disagree: rank %u entered %s as collective %llu, rank %u %s; all ranks must issue "
                             "the same collectives in the same order",
                             meeting.differing, other, sequence, end->rank, what);
    }
    if (meeting.closed != NOBODY)
        return eo_local_fail(group, EO_ERR_COMM,
                             "rank %u has closed its communicator, rank %u entered %s as collective %llu",
                             meeting.closed, end->rank, what, sequence);
    if (meeting.gone != NOBODY)
        return eo_local_fail(group, EO_ERR_COMM,
                             "rank %u is gone: its process has ended, and rank %u waits for it in %s, collective %llu",
                             meeting.gone, end->rank, what, sequence);
    char place[400];
    describe_place(end, meeting.missing, place, sizeof(place));
    return eo_local_fail(group, EO_ERR_TIMEOUT, "rank %u has not %s %s, collective %llu, within %u ms of rank %u; %s",
                         meeting.missing, to_leave ? "finished" : "entered", what, sequence,
                         eo_patience_ms(&group->params), end->rank, place);
}

void eo_local_enter(struct eo_local_end *end, const struct eo_local_post *post)
{
    struct eo_local_rank *self = eo_local_self(end);
    const uint64_t sequence = ++end->sequence;
    self->posts[sequence & 1] = *post;
    self->posts[sequence & 1].entered_ns = eo_now_ns();
    if (end->group->shared)
        snprintf(self->labels[sequence & 1], EO_LOCAL_LABEL_BYTES, "%s", post->label);
    atomic_store(&self->entered, sequence);
    eo_gate_notify(&end->line->gate);
}

void eo_local_leave(struct eo_local_end *end)
{
    atomic_store(&eo_local_self(end)->done, end->sequence);
    eo_gate_notify(&end->line->gate);
}

/* After a failure a peer may have left without having entered as often as we did; it reads only while it is inside. */
static bool have_left(void *arg)
{
    const struct eo_local_end *end = arg;
    const bool has_failed = eo_local_failure(end->group) < 0;
    for (uint32_t r = 0; r < end->group->params.rank_count; r++) {
        struct eo_local_rank *rank = &end->line->ranks[r];
        const uint64_t entered = atomic_load(&rank->entered), done = atomic_load(&rank->done);
        if (r != end->rank && !atomic_load(&rank->closed) && done < (has_failed ? entered : end->sequence) &&
            !(end->group->is_gone && end->group->is_gone(end->group, r)))
            return false;
    }
    return true;
}

bool eo_local_await_readers(struct eo_local_end *end)
{
    uint64_t left_ns = eo_patience_ns(&end->group->params);
    while (!eo_local_await_look(&end->line->gate, have_left, end, &left_ns))
        if (left_ns == 0)
            return false;
    return true;
}
