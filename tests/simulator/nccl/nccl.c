/* SPDX-License-Identifier: MIT
 *
 * NCCL's communicators and groups, as the library's calls.
 */
#include "nccl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_comm *all_comms[256];
static uint32_t all_comm_count;

struct sim_comm *sim_comm_of(ncclComm_t handle)
{
    for (uint32_t i = 0; i < all_comm_count; i++)
        if (all_comms[i] == (struct sim_comm *)(void *)handle)
            return all_comms[i];
    return NULL;
}

ncclResult_t sim_comm_refuse(struct sim_comm *comm, ncclResult_t result, const char *text)
{
    if (comm)
        snprintf(comm->error, sizeof(comm->error), "%s", text);
    return result;
}

/* --- versions and texts --- */

ncclResult_t ncclGetVersion(int *version)
{
    NCCL_BEGIN();
    *version = sim.config.nccl_version;
    NCCL_END(ncclSuccess);
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",         "unhandled cuda error", "unhandled system error",
                                        "internal error",   "invalid argument",     "invalid usage",
                                        "remote process exited or there was a network error", "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t handle)
{
    const struct sim_comm *comm = sim_comm_of(handle);
    return comm ? comm->error : "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    NCCL_BEGIN();
    memset(id, 0, sizeof(*id));
    const uint64_t number = ++sim.unique_id;
    memcpy(id->internal, &number, sizeof(number));
    NCCL_END(ncclSuccess);
}

/* --- communicators --- */

static struct sim_clique *clique_by_id(uint64_t id, uint32_t rank_count)
{
    for (struct sim_clique *clique = sim.cliques; clique; clique = clique->next)
        if (clique->id == id)
            return clique;
    struct sim_clique *clique = sim_alloc(sizeof(*clique));
    clique->id = id;
    clique->index = sim.clique_count++;
    clique->rank_count = rank_count;
    clique->next = sim.cliques;
    sim.cliques = clique;
    return clique;
}

/* The last rank has come: what only all together can tell. */
static void complete_clique(struct sim_clique *clique)
{
    for (uint32_t a = 0; a < clique->rank_count; a++)
        for (uint32_t b = 0; b < a; b++)
            if (clique->comms[a]->device == clique->comms[b]->device)
                clique->failure = ncclInvalidUsage;
    for (uint32_t r = 0; r < clique->rank_count && clique->failure != ncclSuccess; r++)
        (void)sim_comm_refuse(clique->comms[r], clique->failure, "Duplicate GPU detected");
    clique->family = clique->index;
    for (struct sim_clique *other = sim.cliques; other; other = other->next) {
        bool same = other != clique && other->rank_count == clique->rank_count &&
                    other->arrived_count == other->rank_count;
        for (uint32_t r = 0; same && r < clique->rank_count; r++)
            same = other->comms[r]->device == clique->comms[r]->device;
        if (same && other->family < clique->family)
            clique->family = other->family;
    }
}

bool sim_comm_is_complete(const struct sim_clique *clique) { return clique->arrived_count == clique->rank_count; }

static ncclResult_t await_clique(struct sim_comm *comm)
{
    struct sim_patience patience = {0};
    while (!sim_comm_is_complete(comm->clique) && !comm->aborted)
        if (!sim_pause(&patience)) {
            sim_violate("hang: rank %u waits for the other ranks of communicator %u", comm->rank, comm->clique->index);
            return sim_comm_refuse(comm, ncclSystemError, "the other ranks did not come");
        }
    return comm->clique->failure;
}

static struct sim_comm *new_comm(struct sim_clique *clique, uint32_t rank, const ncclConfig_t *config)
{
    if (all_comm_count == sizeof(all_comms) / sizeof(all_comms[0]))
        abort();
    struct sim_comm *comm = sim_alloc(sizeof(*comm));
    all_comms[all_comm_count++] = comm;
    comm->clique = clique;
    comm->rank = rank;
    comm->device = sim_self()->device;
    comm->non_blocking = config && config->blocking == 0;
    comm->shares = config && config->splitShare == 1;
    comm->policy = config && config->CTAPolicy != NCCL_CONFIG_UNDEF_INT ? config->CTAPolicy : NCCL_CTA_POLICY_DEFAULT;
    comm->polls_left = comm->non_blocking ? 1 + (uint32_t)(sim_mix(sim.config.seed, clique->index) % 3) : 0;
    return comm;
}

static ncclResult_t hand_out(struct sim_comm *comm, ncclComm_t *out)
{
    sim_progress();
    *out = (ncclComm_t)(void *)comm;
    if (comm->non_blocking)
        return ncclInProgress;
    return sim_self()->group_depth > 0 ? ncclSuccess : await_clique(comm);
}

static ncclResult_t join_clique(struct sim_clique *clique, uint32_t rank, const ncclConfig_t *config, ncclComm_t *out)
{
    if (rank >= clique->rank_count || clique->rank_count > SIM_RANKS_MAX || clique->comms[rank]) {
        sim_violate("communicator %u: rank %u of %u, which cannot be, or has come before", clique->index, rank,
                    clique->rank_count);
        return ncclInvalidArgument;
    }
    struct sim_comm *comm = new_comm(clique, rank, config);
    clique->comms[rank] = comm;
    if (++clique->arrived_count == clique->rank_count)
        complete_clique(clique);
    return hand_out(comm, out);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int rank_count, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    NCCL_BEGIN();
    *out = NULL;
    if (rank_count < 1 || rank < 0 || (config && config->magic != 0xcafebeef))
        NCCL_END(ncclInvalidArgument);
    if (sim_unsafe_call("ncclCommInitRankConfig") != cudaSuccess)
        NCCL_END(ncclUnhandledCudaError);
    uint64_t number;
    memcpy(&number, id.internal, sizeof(number));
    struct sim_clique *clique = clique_by_id(number, (uint32_t)rank_count);
    if (clique->rank_count != (uint32_t)rank_count)
        sim_violate("communicator %u: %d ranks on one rank, %u on another", clique->index, rank_count,
                    clique->rank_count);
    NCCL_END(join_clique(clique, (uint32_t)rank, config, out));
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int rank_count, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(out, rank_count, id, rank, NULL);
}

/* Whether the communicator takes calls now; NULL when it does. */
static const char *unusable(const struct sim_comm *comm)
{
    if (!comm)
        return "is none";
    if (comm->aborted)
        return "was aborted";
    if (comm->destroyed || comm->finalized)
        return "was destroyed";
    if (!sim_comm_is_complete(comm->clique))
        return "is still being made";
    if (comm->polls_left > 0 || comm->late_count > 0 || comm->child)
        return "is still at its last call: poll ncclCommGetAsyncError until it is no longer ncclInProgress";
    return NULL;
}

bool sim_comm_usable(const struct sim_comm *comm, const char *call)
{
    const char *fault = unusable(comm);
    if (fault)
        sim_violate("%s: the communicator %s", call, fault);
    return fault == NULL;
}

/* One split of a clique: who belongs together is known when all have called. Until then the new cliques have more ranks
 * than there can be, so that nothing takes them for complete. */
struct sim_split {
    struct sim_split *next;
    uint64_t id;
    uint32_t arrived_count;
    int color[SIM_RANKS_MAX], key[SIM_RANKS_MAX];
    struct sim_comm *comms[SIM_RANKS_MAX]; /* by rank of the parent; NULL: no color */
};
static struct sim_split *splits;

static void complete_split(const struct sim_split *split, uint32_t rank_count)
{
    for (uint32_t r = 0; r < rank_count; r++) {
        struct sim_comm *comm = split->comms[r];
        if (!comm)
            continue;
        uint32_t place = 0, count = 0;
        for (uint32_t o = 0; o < rank_count; o++) {
            if (!split->comms[o] || split->color[o] != split->color[r])
                continue;
            count++;
            place += split->key[o] < split->key[r] || (split->key[o] == split->key[r] && o < r);
        }
        comm->rank = place;
        comm->clique->comms[place] = comm;
        if (++comm->clique->arrived_count == count) {
            comm->clique->rank_count = count;
            complete_clique(comm->clique);
        }
    }
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    NCCL_BEGIN();
    *out = NULL;
    struct sim_comm *comm = sim_comm_of(handle);
    if (!sim_comm_usable(comm, "ncclCommSplit"))
        NCCL_END(ncclInvalidUsage);
    if (comm->shares) /* not the child's */
        sim_violate("ncclCommSplit of a communicator with splitShare: the two share resources and the abort flag");
    const uint64_t id = sim_mix(comm->clique->id, 1000 + comm->split_count++);
    const uint32_t rank_count = comm->clique->rank_count;
    struct sim_split *split = splits;
    while (split && split->id != id)
        split = split->next;
    if (!split) {
        split = sim_alloc(sizeof(*split));
        split->id = id;
        split->next = splits;
        splits = split;
    }
    const ncclConfig_t inherited = {.blocking = comm->non_blocking ? 0 : 1, .CTAPolicy = comm->policy};
    split->color[comm->rank] = color;
    split->key[comm->rank] = key;
    if (color != NCCL_SPLIT_NOCOLOR)
        split->comms[comm->rank] = new_comm(clique_by_id(id ^ ((uint64_t)color << 32), SIM_RANKS_MAX + 1), UINT32_MAX,
                                            config ? config : &inherited);
    struct sim_comm *mine = split->comms[comm->rank];
    if (++split->arrived_count == rank_count)
        complete_split(split, rank_count);
    if (mine && mine->non_blocking && comm->non_blocking) {
        comm->child = mine;
        comm->child_at = out;
        sim_progress();
        NCCL_END(ncclSuccess); /* as NCCL says of a thread that has begun */
    }
    NCCL_END(mine ? hand_out(mine, out) : ncclSuccess);
}

bool sim_peer_is_gone(const struct sim_comm *comm, uint64_t sequence)
{
    return sim.config.peer == SIM_PEER_LOST && sim.config.peer_comm == comm->clique->index &&
           sequence >= sim.config.peer_sequence;
}

bool sim_comm_has_room(const struct sim_comm *comm)
{
    uint32_t count = 0;
    const struct sim_op *op = comm->late_count ? comm->late[0].stream->head : NULL;
    for (; op && sim.config.nccl_room; op = atomic_load(&op->next))
        count++;
    return count == 0 || count < sim.config.nccl_room;
}

static uint64_t capture_of(const struct sim_stream *stream)
{
    return stream->capture ? stream->capture->id : 0;
}

/* What a thread of NCCL's does. */
static void issue_late(struct sim_comm *comm)
{
    for (uint32_t i = 0; i < comm->late_count && comm->late_failure == ncclSuccess; i++)
        comm->late_failure = capture_of(comm->late[i].stream) == comm->late[i].capture
                                 ? sim_collective_issue(&comm->late[i].collective, comm->late[i].stream)
                                 : ncclUnhandledCudaError;
    comm->late_count = 0;
}

static void add_late(struct sim_comm *comm, const struct sim_grouped *collective)
{
    comm->late = realloc(comm->late, (comm->late_count + 1) * sizeof(*comm->late));
    if (!comm->late)
        abort();
    comm->late[comm->late_count++] = *collective;
    comm->polls_left = 1 + (uint32_t)(sim_mix(sim.config.seed, comm->issued + 9) % 2);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *state)
{
    NCCL_BEGIN();
    struct sim_comm *comm = sim_comm_of(handle);
    if (!comm || comm->destroyed) {
        sim_violate("ncclCommGetAsyncError: the communicator is none, or was destroyed");
        NCCL_END(ncclInvalidArgument);
    }
    struct sim_thread *self = sim_self();
    if (self->takes_turns)
        (void)sim_pause(&(struct sim_patience){0});
    if (comm->child && sim_comm_is_complete(comm->child->clique)) {
        *comm->child_at = (ncclComm_t)(void *)comm->child;
        comm->child = NULL;
    }
    if (!sim_comm_is_complete(comm->clique) || comm->child) {
        *state = ncclInProgress;
    } else if (comm->clique->failure != ncclSuccess) {
        *state = comm->clique->failure;
    } else if (comm->late_failure != ncclSuccess) {
        *state = comm->late_failure;
    } else if (comm->polls_left > 0) {
        sim_let_run(sim.config.nccl_room > 0);
        if (--comm->polls_left == 0 && !sim_comm_has_room(comm))
            comm->polls_left = 1;
        if (comm->polls_left == 0)
            issue_late(comm);
        *state = ncclInProgress;
    } else if (comm->issued > 0 && sim_peer_is_gone(comm, comm->issued - 1) && ++comm->error_polls > 2) {
        sim.fault_happened = true;
        *state = sim_comm_refuse(comm, ncclRemoteError, "a peer has closed its connection");
    } else {
        sim_window_settle(comm);
        *state = ncclSuccess;
    }
    NCCL_END(ncclSuccess);
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int *count)
{
    NCCL_BEGIN();
    const struct sim_comm *comm = sim_comm_of(handle);
    const bool usable = sim_comm_usable(comm, "ncclCommCount");
    if (usable)
        *count = (int)comm->clique->rank_count;
    NCCL_END(usable ? ncclSuccess : ncclInvalidArgument);
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int *rank)
{
    NCCL_BEGIN();
    const struct sim_comm *comm = sim_comm_of(handle);
    const bool usable = sim_comm_usable(comm, "ncclCommUserRank");
    if (usable)
        *rank = (int)comm->rank;
    NCCL_END(usable ? ncclSuccess : ncclInvalidArgument);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int *device)
{
    NCCL_BEGIN();
    const struct sim_comm *comm = sim_comm_of(handle);
    const bool usable = sim_comm_usable(comm, "ncclCommCuDevice");
    if (usable)
        *device = (int)comm->device;
    NCCL_END(usable ? ncclSuccess : ncclInvalidArgument);
}

/* --- groups and collectives --- */

/* The header's have no list of parameters, so they are no prototypes. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    int fault;
    (void)sim_enter(__func__, &fault); /* a lost device does not matter here */
    sim_self()->group_depth++;
    NCCL_END(ncclSuccess);
}

/* Not in the order of the calls: by size. */
static int by_size(const void *a, const void *b)
{
    const struct sim_collective *x = &((const struct sim_grouped *)a)->collective,
                                *y = &((const struct sim_grouped *)b)->collective;
    if (x->comm->clique->index != y->comm->clique->index)
        return x->comm->clique->index < y->comm->clique->index ? -1 : 1;
    return x->count == y->count ? 0 : x->count > y->count ? -1 : 1;
}

/* Of a non-blocking communicator a thread does it. */
static ncclResult_t issue_grouped(struct sim_thread *self)
{
    ncclResult_t result = sim.broken == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
    qsort(self->grouped, self->grouped_count, sizeof(*self->grouped), by_size);
    for (uint32_t i = 0; i < self->grouped_count && (result == ncclSuccess || result == ncclInProgress); i++) {
        struct sim_comm *comm = self->grouped[i].collective.comm;
        if (comm->non_blocking) {
            add_late(comm, &self->grouped[i]);
            result = ncclInProgress;
        } else {
            const ncclResult_t one = sim_collective_issue(&self->grouped[i].collective, self->grouped[i].stream);
            result = one == ncclSuccess ? result : one;
        }
    }
    self->grouped_count = 0;
    return result;
}

ncclResult_t ncclGroupEnd(void)
{
    int fault;
    (void)sim_enter(__func__, &fault);
    struct sim_thread *self = sim_self();
    if (fault) {
        self->group_depth--;
        self->grouped_count = 0;
        NCCL_END((ncclResult_t)fault);
    }
    if (self->group_depth == 0)
        NCCL_END(ncclInvalidUsage);
    if (--self->group_depth > 0)
        NCCL_END(ncclSuccess);
    ncclResult_t result = self->grouped_count ? issue_grouped(self) : ncclSuccess;
    for (uint32_t i = 0; i < all_comm_count; i++) {
        struct sim_comm *comm = all_comms[i];
        if (comm->ender == self) {
            const ncclResult_t ended = sim_comm_end_now(comm);
            result = result == ncclSuccess ? ended : result;
        } else if (result == ncclSuccess && !comm->non_blocking && !comm->destroyed && !comm->aborted &&
                   !sim_comm_is_complete(comm->clique) && comm->device == self->device) {
            result = await_clique(comm);
        }
    }
    NCCL_END(result);
}

static ncclResult_t collective(enum sim_collective_kind kind, const void *send, void *recv, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t handle, cudaStream_t stream_handle)
{
    struct sim_thread *self = sim_self();
    struct sim_comm *comm = sim_comm_of(handle);
    struct sim_stream *stream = sim_stream_of(stream_handle);
    if (!sim_comm_usable(comm, sim_collective_name(kind)))
        return ncclInvalidUsage;
    if (!stream || type < 0 || type >= ncclNumTypes || op < 0 || op >= ncclNumOps)
        return sim_comm_refuse(comm, ncclInvalidArgument, "stream, type or operation");
    if (comm->clique->failure != ncclSuccess)
        return comm->clique->failure;
    const struct sim_collective wanted = {.comm = comm, .kind = kind, .send = send, .recv = recv, .count = count,
                                          .type = type, .op = op, .root = root};
    const struct sim_grouped grouped = {wanted, stream, capture_of(stream)};
    if (count == 0 || comm->clique->rank_count == 1)
        return sim_collective_issue(&wanted, stream);
    if (self->group_depth == 0) {
        if (!comm->non_blocking || (!sim.config.nccl_room && sim_mix(sim.config.seed, comm->issued) % 3 == 0))
            return sim_collective_issue(&wanted, stream); /* NCCL's thread was as fast as that */
        add_late(comm, &grouped);
        return ncclInProgress;
    }
    if (self->grouped_count == self->grouped_capacity) {
        self->grouped_capacity = self->grouped_capacity ? 2 * self->grouped_capacity : 16;
        self->grouped = realloc(self->grouped, self->grouped_capacity * sizeof(*self->grouped));
        if (!self->grouped)
            abort();
    }
    self->grouped[self->grouped_count++] = grouped;
    return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    NCCL_BEGIN();
    NCCL_END(collective(SIM_ALL_GATHER, send, recv, count, type, ncclSum, 0, comm, stream));
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    NCCL_BEGIN();
    NCCL_END(collective(SIM_REDUCE_SCATTER, send, recv, count, type, op, 0, comm, stream));
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    NCCL_BEGIN();
    NCCL_END(collective(SIM_ALL_REDUCE, send, recv, count, type, op, 0, comm, stream));
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    NCCL_BEGIN();
    NCCL_END(collective(SIM_BROADCAST, send, recv, count, type, ncclSum, root, comm, stream));
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream)
{
    NCCL_BEGIN();
    NCCL_END(collective(SIM_ALL_TO_ALL, send, recv, count, type, ncclSum, 0, comm, stream));
}

/* --- end --- */

uint32_t sim_comm_issued(uint32_t clique, uint32_t rank)
{
    for (uint32_t i = 0; i < all_comm_count; i++)
        if (all_comms[i]->clique->index == clique && all_comms[i]->rank == rank)
            return (uint32_t)all_comms[i]->issued;
    return 0;
}

void sim_nccl_reset(void)
{
    sim_collectives_reset();
    while (splits) {
        struct sim_split *next = splits->next;
        free(splits);
        splits = next;
    }
    sim_windows_reset();
    for (uint32_t i = 0; i < all_comm_count; i++) {
        free(all_comms[i]->late);
        free(all_comms[i]);
    }
    all_comm_count = 0;
    while (sim.cliques) {
        struct sim_clique *clique = sim.cliques, *next = clique->next;
        for (uint64_t c = 0; c < clique->call_count; c++) {
            for (uint32_t r = 0; r < clique->rank_count; r++)
                free(clique->calls[c]->entries[r]);
            free(clique->calls[c]);
        }
        free(clique->calls);
        free(clique);
        sim.cliques = next;
    }
}

uint32_t sim_nccl_leaks(void)
{
    uint32_t count = 0;
    for (const struct sim_thread *thread = sim.threads; thread; thread = thread->next)
        if (thread->group_depth > 0)
            sim_violate("rank %u: a group of NCCL was left open: what its thread calls next would never begin", thread->rank);
    for (uint32_t i = 0; i < all_comm_count; i++) {
        if (!all_comms[i]->destroyed && !all_comms[i]->aborted) {
            sim_violate("never destroyed: rank %u of communicator %u", all_comms[i]->rank, all_comms[i]->clique->index);
            count++;
        }
    }
    return count;
}
