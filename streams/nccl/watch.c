/* SPDX-License-Identifier: MIT
 *
 * What a communicator has under way. NCCL does not tell when a rank of the same node has died or comes late: kernels
 * wait for ever. So each collective stands between two events, and whoever waits for the device looks at the oldest: if
 * it has begun and does not end, its time runs.
 *
 * A captured step is one flight, for its collectives have no events that can be asked. It may take as long as a collective, and
 * STEPS_OF_GRACE times the longest one before it more. Before the first has ended, all that went before counts as a step: an
 * ordinary one is among it.
 */
#include <stdlib.h>

#include "base/check.h"
#include "streams/nccl/internal.h"
#include "streams/patience.h"

enum { STEPS_OF_GRACE = 4 };

eo_status eo_nccl_watch_init(struct eo_comm *comm)
{
    comm->flights = calloc(EO_NCCL_FLIGHTS_MAX, sizeof(*comm->flights));
    if (!comm->flights)
        return EO_ERR_NO_MEMORY;
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; i < EO_NCCL_FLIGHTS_MAX && error == cudaSuccess; i++) {
        error = cudaEventCreateWithFlags(&comm->flights[i].begin, cudaEventDisableTiming);
        if (error == cudaSuccess)
            error = cudaEventCreateWithFlags(&comm->flights[i].end, cudaEventDisableTiming);
    }
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&comm->step_begin, cudaEventDefault);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&comm->step_end, cudaEventDefault);
    return error == cudaSuccess ? EO_OK : eo_nccl_fail_cuda(comm->group, error, "cudaEventCreateWithFlags", "open");
}

void eo_nccl_watch_fini(struct eo_comm *comm)
{
    for (uint32_t i = 0; comm->flights && i < EO_NCCL_FLIGHTS_MAX; i++) {
        if (comm->flights[i].begin)
            (void)cudaEventDestroy(comm->flights[i].begin);
        if (comm->flights[i].end)
            (void)cudaEventDestroy(comm->flights[i].end);
    }
    free(comm->flights);
    comm->flights = NULL;
    if (comm->step_begin)
        (void)cudaEventDestroy(comm->step_begin);
    if (comm->step_end)
        (void)cudaEventDestroy(comm->step_end);
    comm->step_begin = comm->step_end = NULL;
}

/* By the device's clock: the host may look late. */
static eo_status take_step_time(struct eo_comm *comm)
{
    float ms = 0;
    const cudaError_t error = cudaEventElapsedTime(&ms, comm->step_begin, comm->step_end);
    comm->times_step = false;
    if (error != cudaSuccess)
        return eo_nccl_fail_cuda(comm->group, error, "cudaEventElapsedTime", "captured step");
    const uint64_t step_ns = 1 + (uint64_t)((double)ms * 1e6);
    if (step_ns > comm->step_ns)
        comm->step_ns = step_ns;
    return EO_OK;
}

/* Forgets what has ended. EO_IN_PROGRESS: something has not. */
static eo_status retire(struct eo_comm *comm)
{
    while (comm->flight_count) {
        const struct eo_nccl_flight *oldest = &comm->flights[comm->flight_head % EO_NCCL_FLIGHTS_MAX];
        const cudaError_t error = eo_cuda_query_event(oldest->end);
        if (error == cudaErrorNotReady)
            return EO_IN_PROGRESS;
        if (error != cudaSuccess)
            return eo_nccl_fail_cuda(comm->group, error, oldest->what, oldest->label);
        comm->flight_head++;
        comm->flight_count--;
        comm->is_waiting = false;
        if (oldest->is_timed)
            EO_TRY(take_step_time(comm));
    }
    return EO_OK;
}

eo_status eo_nccl_flight_begin(struct eo_comm *comm, cudaStream_t stream, const char *what, const char *label,
                               uint64_t bytes, struct eo_nccl_flight **flight)
{
    *flight = NULL;
    comm->sequence++;
    if (comm->group->root->first_ns == 0)
        comm->group->root->first_ns = eo_now_ns();
    if (comm->group->root->is_capturing) /* events of a capture cannot be asked */
        return EO_OK;
    if (comm->flight_count == EO_NCCL_FLIGHTS_MAX) {
        EO_TRY(retire(comm));
        if (comm->flight_count == EO_NCCL_FLIGHTS_MAX) /* the oldest is what matters: it stays */
            return EO_OK;
    }
    struct eo_nccl_flight *next = &comm->flights[(comm->flight_head + comm->flight_count) % EO_NCCL_FLIGHTS_MAX];
    next->what = what;
    next->label = label;
    next->bytes = bytes;
    next->sequence = comm->sequence;
    next->is_step = next->is_timed = false;
    const cudaError_t error = cudaEventRecord(next->begin, stream);
    if (error != cudaSuccess)
        return eo_nccl_fail_cuda(comm->group, error, "cudaEventRecord", label);
    *flight = next;
    return EO_OK;
}

eo_status eo_nccl_flight_end(struct eo_comm *comm, cudaStream_t stream, struct eo_nccl_flight *flight)
{
    if (!flight)
        return EO_OK;
    cudaError_t error = flight->is_timed ? cudaEventRecord(comm->step_end, stream) : cudaSuccess;
    if (error == cudaSuccess)
        error = cudaEventRecord(flight->end, stream);
    if (error != cudaSuccess)
        return eo_nccl_fail_cuda(comm->group, error, "cudaEventRecord", flight->label);
    comm->flight_count++;
    return EO_OK;
}

eo_status eo_nccl_flight_is_step(struct eo_comm *comm, cudaStream_t stream, struct eo_nccl_flight *flight)
{
    if (!flight)
        return EO_OK;
    flight->is_step = true;
    flight->is_timed = !comm->times_step;
    if (!flight->is_timed)
        return EO_OK;
    comm->times_step = true;
    const cudaError_t error = cudaEventRecord(comm->step_begin, stream);
    return error == cudaSuccess ? EO_OK : eo_nccl_fail_cuda(comm->group, error, "cudaEventRecord", flight->label);
}

static uint64_t limit_of(const struct eo_comm *comm, const struct eo_nccl_flight *flight)
{
    const uint64_t step_ns = comm->step_ns ? comm->step_ns : comm->ordinary_ns;
    return eo_patience_ns(&comm->group->params) + (flight->is_step ? STEPS_OF_GRACE * step_ns : 0);
}

static eo_status check_oldest(struct eo_comm *comm)
{
    const struct eo_group *group = comm->group;
    const eo_status status = retire(comm);
    if (status != EO_IN_PROGRESS)
        return status;
    const struct eo_nccl_flight *oldest = &comm->flights[comm->flight_head % EO_NCCL_FLIGHTS_MAX];
    if (!comm->is_waiting) {
        if (eo_cuda_query_event(oldest->begin) != cudaSuccess)
            return EO_OK;
        comm->is_waiting = true;
        comm->waited = eo_stopwatch_start();
        if (oldest->is_step && comm->ordinary_ns == 0)
            comm->ordinary_ns = comm->waited.looked_ns - group->root->first_ns;
        return EO_OK;
    }
    const uint64_t limit_ns = limit_of(comm, oldest);
    if (eo_stopwatch_look(&comm->waited, EO_LOOK_NS_MAX) <= limit_ns)
        return EO_OK;
    return eo_nccl_fail(comm->group, EO_ERR_TIMEOUT,
                        "rank %u of %u: %s '%s' of %llu bytes, collective %llu, has begun but not ended within %llu ms: a rank "
                        "is gone, late, or issued something else; find it, or raise the timeout",
                        group->rank, group->params.rank_count, oldest->what, oldest->label, (unsigned long long)oldest->bytes,
                        (unsigned long long)oldest->sequence, (unsigned long long)(limit_ns / 1000000));
}

static eo_status check(struct eo_comm *comm)
{
    ncclResult_t state = ncclSuccess;
    EO_TRY(eo_nccl_failure(comm->group));
    const ncclResult_t asked = ncclCommGetAsyncError(comm->nccl, &state);
    if (asked != ncclSuccess)
        state = asked;
    if (state != ncclSuccess && state != ncclInProgress) {
        const struct eo_nccl_flight *oldest =
            comm->flight_count ? &comm->flights[comm->flight_head % EO_NCCL_FLIGHTS_MAX] : NULL;
        return eo_nccl_fail_call(comm->group, comm->nccl, state, oldest ? oldest->what : "between collectives",
                                 oldest ? oldest->label : comm->reduces ? "reduce-scatters" : "all-gathers");
    }
    return comm->group->root->is_capturing ? EO_OK : check_oldest(comm);
}

eo_status eo_nccl_poll(struct eo_comm *comm)
{
    const eo_status status = check(comm);
    if (status < 0)
        eo_nccl_give_up(comm->group);
    return status;
}

static eo_status poll_family(const struct eo_group *root)
{
    EO_TRY(eo_nccl_failure(root));
    for (const struct eo_group *member = root; member; member = member->next)
        for (int i = 0; i < 2; i++)
            if (member->comms[i] && member->comms[i]->nccl)
                EO_TRY(eo_nccl_poll(member->comms[i]));
    return EO_OK;
}

eo_status eo_nccl_drain(struct eo_comm *comm, cudaStream_t stream, const char *label)
{
    for (;;) {
        EO_TRY(poll_family(comm->group->root));
        const cudaError_t error = eo_cuda_query_stream(stream);
        if (error == cudaSuccess)
            return EO_OK;
        if (error != cudaErrorNotReady)
            return eo_nccl_fail_cuda(comm->group, error, "cudaStreamQuery", label);
        eo_pause();
    }
}
