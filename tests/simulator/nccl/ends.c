/* SPDX-License-Identifier: MIT
 *
 * How NCCL's communicators end: finalized, destroyed, aborted; alone or in one group.
 */
#include "nccl.h"

static void end_comm(struct sim_comm *comm, const char *call)
{
    for (const struct sim_window *window = sim.windows; window; window = window->next)
        if (window->comm == comm && !comm->aborted)
            sim_violate("%s: %llu bytes are still registered", call, (unsigned long long)window->bytes);
    if (sim.broken == cudaSuccess && sim_graph_uses(comm)) /* else it could not be destroyed */
        sim_violate("%s: a graph still holds collectives of the communicator", call);
}

/* Waits for what was issued. */
static ncclResult_t drain_comm(struct sim_comm *comm)
{
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next)
        if (stream->device == comm->device && stream->has_collectives && stream->last &&
            atomic_load(&comm->ended) < comm->issued && sim_wait_for(stream->last, "ncclCommDestroy") != cudaSuccess)
            return ncclUnhandledCudaError;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle)
{
    NCCL_BEGIN();
    struct sim_comm *comm = sim_comm_of(handle);
    if (!sim_comm_usable(comm, "ncclCommFinalize"))
        NCCL_END(ncclInvalidUsage);
    end_comm(comm, "ncclCommFinalize");
    const ncclResult_t result = drain_comm(comm);
    comm->finalized = true;
    if (result == ncclSuccess && comm->non_blocking) {
        comm->polls_left = 1;
        NCCL_END(ncclInProgress);
    }
    NCCL_END(result);
}

static bool has_ended(const struct sim_comm *comm)
{
    return comm->finalized || comm->aborted;
}

/* Threads of NCCL's of a node's ranks use each other: who destroys waits until the others have ended theirs. */
static ncclResult_t await_others(const struct sim_comm *comm)
{
    struct sim_patience patience = {0};
    for (uint32_t r = 0; r < comm->clique->rank_count; r++)
        while (!has_ended(comm->clique->comms[r]))
            if (!sim_pause(&patience))
                return ncclSystemError;
    return ncclSuccess;
}

/* Abort joins it first. */
static void await_thread(struct sim_comm *comm)
{
    struct sim_patience patience = {0};
    while (!sim_comm_has_room(comm) && sim.broken == cudaSuccess) {
        sim_let_run(1);
        if (!sim_pause(&patience)) {
            sim_violate(
                "hang: ncclCommAbort on rank %u joins a thread that waits for room behind another communicator: abort that "
                "first",
                comm->rank);
            break;
        }
    }
    comm->late_count = 0;
}

/* With its flag set its own collectives end, but those that come after another communicator's come after that. */
static ncclResult_t await_own(const struct sim_comm *comm)
{
    struct sim_patience patience = {0};
    while (atomic_load(&comm->ended) < comm->issued && sim.broken == cudaSuccess) {
        sim_let_run(1);
        if (!sim_pause(&patience)) {
            sim_violate(
                "hang: ncclCommAbort on rank %u waits for a collective of communicator %u behind one of another: abort both "
                "in one group",
                comm->rank, comm->clique->index);
            return ncclSystemError;
        }
    }
    return ncclSuccess;
}

ncclResult_t sim_comm_end_now(struct sim_comm *comm)
{
    comm->ender = NULL;
    if (comm->aborted)
        return await_own(comm);
    ncclResult_t result = sim_comm_is_complete(comm->clique) ? drain_comm(comm) : ncclSuccess;
    comm->finalized = true;
    sim_progress();
    if (result == ncclSuccess && sim_comm_is_complete(comm->clique))
        result = await_others(comm);
    comm->destroyed = result == ncclSuccess;
    return result;
}

static ncclResult_t end_grouped(struct sim_comm *comm, const char *call)
{
    struct sim_thread *self = sim_self();
    if (self->device != comm->device && sim.broken == cudaSuccess)
        sim_violate("%s: on a thread of GPU %u for one of GPU %u: NCCL sets the thread's back, which makes a context there",
                    call, self->device, comm->device);
    self->used |= UINT32_C(1) << comm->device;
    comm->ender = self;
    return self->group_depth > 0 ? ncclSuccess : sim_comm_end_now(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t handle)
{
    NCCL_BEGIN();
    struct sim_comm *comm = sim_comm_of(handle);
    if (!comm || comm->destroyed || comm->aborted || comm->ender) {
        sim_violate("ncclCommDestroy: the communicator is none, or is gone already");
        NCCL_END(ncclInvalidArgument);
    }
    if (comm->polls_left > 0 || comm->child) {
        sim_violate("ncclCommDestroy: the communicator is still at its last call");
        NCCL_END(ncclInvalidArgument);
    }
    if (!comm->finalized)
        end_comm(comm, "ncclCommDestroy");
    NCCL_END(end_grouped(comm, __func__));
}

/* Its collectives end now, with nothing said about their results. */
ncclResult_t ncclCommAbort(ncclComm_t handle)
{
    int fault;
    if (sim_enter(__func__, &fault)) {
        sim_unlock();
        return (ncclResult_t)fault;
    }
    struct sim_comm *comm = sim_comm_of(handle);
    if (!comm || comm->destroyed || comm->aborted) {
        sim_violate("ncclCommAbort: the communicator is none, or is gone already");
        NCCL_END(ncclInvalidArgument);
    }
    comm->aborted = true;
    await_thread(comm);
    if (comm->child) /* the split ends, without success: what it gives is aborted by itself */
        *comm->child_at = (ncclComm_t)(void *)comm->child;
    comm->child = NULL;
    end_comm(comm, "ncclCommAbort");
    sim_progress();
    NCCL_END(end_grouped(comm, __func__));
}
