/* SPDX-License-Identifier: MIT
 *
 * NCCL's memory, and what is registered of it.
 */
#include "nccl.h"

#include <stdlib.h>

ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
    NCCL_BEGIN();
    *out = NULL;
    if (sim_unsafe_call("ncclMemAlloc") != cudaSuccess)
        NCCL_END(ncclUnhandledCudaError);
    const uint64_t rounded = (bytes + SIM_GRANULARITY - 1) / SIM_GRANULARITY * SIM_GRANULARITY;
    struct sim_memory *memory = bytes ? sim_memory_new(SIM_NCCL, sim_self()->device, rounded) : NULL;
    if (memory)
        *out = (void *)memory->at;
    if (!memory && bytes)
        sim_self()->last_error = cudaErrorMemoryAllocation;
    NCCL_END(memory ? ncclSuccess : bytes ? ncclUnhandledCudaError : ncclInvalidArgument);
}

ncclResult_t ncclMemFree(void *at)
{
    NCCL_BEGIN();
    struct sim_memory *memory = sim_memory_find(at);
    if (!memory || memory->kind != SIM_NCCL || memory->at != (uintptr_t)at)
        NCCL_END(ncclInvalidArgument);
    for (const struct sim_window *window = sim.windows; window; window = window->next)
        if (window->at >= memory->at && window->at < memory->at + memory->bytes && !window->comm->aborted &&
            !window->comm->destroyed)
            sim_violate("ncclMemFree of memory that is still registered");
    sim_host_frees(memory, "ncclMemFree");
    sim_memory_drop(memory);
    NCCL_END(ncclSuccess);
}

const struct sim_window *sim_window_of(const struct sim_comm *comm, const void *at)
{
    for (const struct sim_window *window = sim.windows; window; window = window->next)
        if (window->comm == comm && (uintptr_t)at >= window->at && (uintptr_t)at - window->at < window->bytes)
            return window;
    return NULL;
}

static struct sim_window *add_window(struct sim_comm *comm, const void *at, uint64_t bytes, bool symmetric)
{
    struct sim_window *window = sim_alloc(sizeof(*window));
    *window = (struct sim_window){sim.windows, comm, (uintptr_t)at, bytes, symmetric};
    sim.windows = window;
    return window;
}

/* A window's handle lies on the device, a registration's on the host. */
static bool remove_window(const void *handle, const struct sim_comm *comm)
{
    for (struct sim_window **link = &sim.windows; *link; link = &(*link)->next) {
        if ((*link == handle || (*link)->at == (uintptr_t)handle) && (*link)->comm == comm) {
            struct sim_window *gone = *link;
            *link = gone->next;
            free(gone);
            return true;
        }
    }
    return false;
}

static bool check_registration(const struct sim_comm *comm, const void *at, uint64_t bytes, const char *call)
{
    const struct sim_memory *memory = sim_memory_find(at);
    if (!sim_comm_usable(comm, call))
        return false;
    for (const struct sim_capture *capture = sim.captures; capture; capture = capture->next) {
        if (capture->origin->device == comm->device) {
            sim_violate("%s while capturing", call);
            return false;
        }
    }
    if (!memory || bytes > memory->bytes - ((uintptr_t)at - memory->at)) {
        sim_violate("%s: not the memory of one allocation", call);
        return false;
    }
    if (memory->kind != SIM_NCCL && memory->kind != SIM_MAPPED)
        sim_violate("%s: memory of cudaMalloc cannot be registered, and NCCL does not say so", call);
    return true;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void *at, size_t bytes, void **registration)
{
    NCCL_BEGIN();
    struct sim_comm *comm = sim_comm_of(handle);
    *registration = NULL;
    if (!check_registration(comm, at, bytes, "ncclCommRegister"))
        NCCL_END(ncclInvalidUsage);
    *registration = add_window(comm, at, bytes, false);
    NCCL_END(ncclSuccess);
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void *registration)
{
    NCCL_BEGIN();
    NCCL_END(remove_window(registration, sim_comm_of(handle)) ? ncclSuccess : ncclInvalidArgument);
}

void sim_window_settle(struct sim_comm *comm)
{
    if (comm->window_at)
        *comm->window_at = comm->window;
    comm->window_at = NULL;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void *at, size_t bytes, ncclWindow_t *window, int flags)
{
    NCCL_BEGIN();
    struct sim_comm *comm = sim_comm_of(handle);
    if (!check_registration(comm, at, bytes, "ncclCommWindowRegister"))
        NCCL_END(ncclInvalidUsage);
    if (sim.config.nccl_no_symmetric && sim.config.nccl_version >= 22902) {
        *window = NULL;
        NCCL_END(ncclSuccess);
    }
    const struct sim_memory *memory = sim_memory_find(at);
    if (((uintptr_t)at - memory->at) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
        *window = NULL;
        NCCL_END(sim_comm_refuse(comm, ncclInvalidArgument, "the base is not aligned"));
    }
    for (const struct sim_window *other = sim.windows; other; other = other->next)
        if (other->comm == comm && other->symmetric && sim_memory_find((void *)other->at) == memory)
            sim_violate("a second window in one allocation: corrupts data below NCCL 2.31.2");
    /* A barrier. */
    comm->window_calls++;
    sim_progress();
    struct sim_patience patience = {0};
    for (uint32_t r = 0; r < comm->clique->rank_count; r++) {
        while (comm->clique->comms[r]->window_calls < comm->window_calls && !comm->aborted) {
            if (!sim_pause(&patience)) {
                sim_violate("hang: ncclCommWindowRegister on rank %u waits for rank %u", comm->rank, r);
                NCCL_END(ncclSystemError);
            }
        }
    }
    const bool stands_in = sim.config.nccl_no_symmetric; /* 2.28: a registration, called a window */
    void *made = add_window(comm, at, bytes, !stands_in && (flags & NCCL_WIN_COLL_SYMMETRIC));
    comm->window = (ncclWindow_t)(stands_in ? made : at);
    comm->window_at = window;
    if (comm->non_blocking)
        comm->polls_left = 1 + (uint32_t)(sim_mix(sim.config.seed, comm->window_calls) % 3);
    else
        sim_window_settle(comm);
    NCCL_END(ncclSuccess); /* under way or not */
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t window)
{
    NCCL_BEGIN();
    NCCL_END(remove_window(window, sim_comm_of(handle)) ? ncclSuccess : ncclInvalidArgument);
}

void sim_windows_reset(void)
{
    while (sim.windows) {
        struct sim_window *next = sim.windows->next;
        free(sim.windows);
        sim.windows = next;
    }
}
