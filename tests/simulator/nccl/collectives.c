/* SPDX-License-Identifier: MIT
 *
 * NCCL's collectives: what is checked when they are issued, how they meet, what they move.
 */
#include "nccl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *sim_collective_name(enum sim_collective_kind kind)
{
    static const char *const names[SIM_COLLECTIVE_KINDS] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce",
                                                            "ncclBroadcast", "ncclAlltoAll"};
    return names[kind];
}

uint64_t sim_type_bytes(ncclDataType_t type)
{
    switch ((int)type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 4;
    }
}

void sim_collective_bytes(const struct sim_collective *c, uint64_t *send_bytes, uint64_t *recv_bytes)
{
    const uint64_t bytes = c->count * sim_type_bytes(c->type), ranks = c->comm->clique->rank_count;
    *send_bytes = c->kind == SIM_REDUCE_SCATTER || c->kind == SIM_ALL_TO_ALL ? ranks * bytes : bytes;
    *recv_bytes = c->kind == SIM_ALL_GATHER || c->kind == SIM_ALL_TO_ALL ? ranks * bytes : bytes;
}

struct sim_collective *sim_collective_copy(const struct sim_collective *collective)
{
    struct sim_collective *copy = sim_alloc(sizeof(*copy));
    *copy = *collective;
    return copy;
}

void sim_collective_free(struct sim_collective *collective) { free(collective); }
struct sim_comm *sim_collective_comm(const struct sim_collective *collective) { return collective->comm; }

/* --- checks at issue --- */

static bool overlap(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static void check_in_place(const struct sim_collective *c, uint64_t send_bytes, uint64_t recv_bytes)
{
    const uintptr_t send = (uintptr_t)c->send, recv = (uintptr_t)c->recv;
    const uint64_t bytes = c->count * sim_type_bytes(c->type), own = c->comm->rank * bytes;
    if (!overlap(send, send_bytes, recv, recv_bytes))
        return;
    const bool in_place = c->kind == SIM_ALL_GATHER       ? send == recv + own
                          : c->kind == SIM_REDUCE_SCATTER ? recv == send + own
                          : c->kind == SIM_ALL_TO_ALL     ? false
                                                          : send == recv;
    if (!in_place)
        sim_violate("%s on rank %u: send and recv overlap, and not by the rule of in-place calls",
                    sim_collective_name(c->kind), c->comm->rank);
}

static void check_window(const struct sim_collective *c, const struct sim_window *window, const void *at, uint64_t bytes)
{
    if (window && bytes > window->bytes - ((uintptr_t)at - window->at))
        sim_violate("%s on rank %u goes past the end of a registered buffer", sim_collective_name(c->kind),
                    c->comm->rank);
}

static void check_algorithm(const struct sim_collective *c, const struct sim_window *send, const struct sim_window *recv)
{
    const struct sim_comm *comm = c->comm;
    const uint32_t ranks = comm->clique->rank_count;
    if (!send || !recv || !send->symmetric || !recv->symmetric || ranks == 1)
        return;
    const bool by_copies = comm->policy == NCCL_CTA_POLICY_ZERO && (c->kind == SIM_ALL_GATHER || c->kind == SIM_ALL_TO_ALL);
    if (by_copies && ranks == 2 && sim.config.nccl_version < 23102)
        sim_violate("%s by copy engines on 2 ranks: hangs below NCCL 2.31.2", sim_collective_name(c->kind));
    if (!by_copies && sim.config.nccl_version < 23007)
        sim_violate("%s by a symmetric kernel: reads too early below NCCL 2.30.7", sim_collective_name(c->kind));
}

static void check_collective(struct sim_collective *c, const struct sim_stream *stream)
{
    const char *name = sim_collective_name(c->kind);
    struct sim_comm *comm = c->comm;
    uint64_t send_bytes, recv_bytes;
    sim_collective_bytes(c, &send_bytes, &recv_bytes);
    if ((uintptr_t)c->send % 16 || (uintptr_t)c->recv % 16)
        sim_violate("%s on rank %u: a buffer is not aligned to 16 bytes", name, comm->rank);
    if (c->op == ncclAvg)
        sim_violate("%s on rank %u with ncclAvg: loses the fast kernels, and 1 / ranks is in the loss already", name,
                    comm->rank);
    if (stream->device != comm->device)
        sim_violate("%s on rank %u: the stream is of another device than the communicator", name, comm->rank);
    check_in_place(c, send_bytes, recv_bytes);
    const struct sim_window *send = sim_window_of(comm, c->send), *recv = sim_window_of(comm, c->recv);
    check_window(c, send, c->send, send_bytes);
    check_window(c, recv, c->recv, recv_bytes);
    check_algorithm(c, send, recv);
    c->send_offset = send ? (uintptr_t)c->send - send->at : UINT64_MAX;
    c->recv_offset = recv ? (uintptr_t)c->recv - recv->at : UINT64_MAX;
    /* In place the slice is another on each rank: it counts from the whole. */
    const uint64_t own = comm->rank * c->count * sim_type_bytes(c->type);
    if (c->kind == SIM_ALL_GATHER && (uintptr_t)c->send == (uintptr_t)c->recv + own)
        c->send_offset = c->recv_offset;
    if (c->kind == SIM_REDUCE_SCATTER && (uintptr_t)c->recv == (uintptr_t)c->send + own)
        c->recv_offset = c->send_offset;
    if (stream->capture && !comm->warm[c->kind])
        sim_violate("%s on rank %u is captured and was never run before: it would connect while capturing", name,
                    comm->rank);
    comm->warm[c->kind] = true;
}

ncclResult_t sim_collective_issue(const struct sim_collective *collective, struct sim_stream *stream)
{
    struct sim_work work = {.kind = SIM_COLLECTIVE, .name = sim_collective_name(collective->kind)};
    uint64_t send_bytes, recv_bytes;
    sim_collective_bytes(collective, &send_bytes, &recv_bytes);
    if (collective->count == 0)
        return ncclSuccess;
    work.collective = sim_collective_copy(collective);
    check_collective(work.collective, stream);
    work.ranges = sim_alloc(2 * sizeof(*work.ranges));
    work.ranges[work.range_count++] = SIM_READS(collective->send, send_bytes);
    work.ranges[work.range_count++] = SIM_WRITES(collective->recv, recv_bytes);
    return sim_issue(stream, &work) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* --- the order of issue --- */

/* What the ranks of one set of devices issued, over all of their communicators: rank r's n-th must be everybody's n-th. */
struct sim_issue {
    struct sim_issue *next;
    uint32_t family;
    uint64_t counts[SIM_RANKS_MAX], capacity, known;
    uint32_t *cliques;
};

static void check_order(const struct sim_comm *comm)
{
    struct sim_issue *issue = sim.issues;
    while (issue && issue->family != comm->clique->family)
        issue = issue->next;
    if (!issue) {
        issue = sim_alloc(sizeof(*issue));
        issue->family = comm->clique->family;
        issue->next = sim.issues;
        sim.issues = issue;
    }
    const uint64_t at = issue->counts[comm->rank]++;
    if (at == issue->known) {
        if (issue->known == issue->capacity) {
            issue->capacity = issue->capacity ? 2 * issue->capacity : 256;
            issue->cliques = realloc(issue->cliques, issue->capacity * sizeof(*issue->cliques));
            if (!issue->cliques)
                abort();
        }
        issue->cliques[issue->known++] = comm->clique->index;
    } else if (issue->cliques[at] != comm->clique->index) {
        sim_violate("rank %u issues its collective %llu on communicator %u, another rank on communicator %u: they can "
                    "wait for each other for ever",
                    comm->rank, (unsigned long long)at, comm->clique->index, issue->cliques[at]);
    }
}

static void compare_entries(const struct sim_collective *mine, const struct sim_collective *other, uint64_t sequence)
{
    if (mine->kind != other->kind || mine->count != other->count || mine->type != other->type || mine->op != other->op ||
        mine->root != other->root)
        sim_violate("collective %llu of communicator %u: rank %u calls %s of %llu elements of type %d, rank %u %s of %llu "
                    "of type %d",
                    (unsigned long long)sequence, mine->comm->clique->index, mine->comm->rank,
                    sim_collective_name(mine->kind), (unsigned long long)mine->count, (int)mine->type,
                    other->comm->rank, sim_collective_name(other->kind), (unsigned long long)other->count,
                    (int)other->type);
    else if (mine->send_offset != other->send_offset || mine->recv_offset != other->recv_offset)
        sim_violate("collective %llu of communicator %u: ranks %u and %u use different offsets in their registered "
                    "buffers",
                    (unsigned long long)sequence, mine->comm->clique->index, mine->comm->rank, other->comm->rank);
}

void sim_collective_launch(struct sim_op *op)
{
    struct sim_collective *mine = op->work.collective;
    struct sim_comm *comm = mine->comm;
    struct sim_clique *clique = comm->clique;
    check_order(comm);
    mine->sequence = comm->issued++;
    if (mine->sequence == clique->call_count) {
        if (clique->call_count == clique->call_capacity) {
            clique->call_capacity = clique->call_capacity ? 2 * clique->call_capacity : 64;
            clique->calls = realloc(clique->calls, clique->call_capacity * sizeof(struct sim_call *));
            if (!clique->calls)
                abort();
        }
        struct sim_call *call = sim_alloc(sizeof(*call));
        call->rank_count = clique->rank_count;
        clique->calls[clique->call_count++] = call;
    }
    struct sim_call *call = clique->calls[mine->sequence];
    mine->call = call;
    for (uint32_t r = 0; r < clique->rank_count; r++) {
        if (call->entries[r]) {
            compare_entries(mine, call->entries[r], mine->sequence);
            break;
        }
    }
    call->entries[comm->rank] = sim_collective_copy(mine);
}

/* --- how they run --- */

bool sim_collective_may_begin(const struct sim_op *op)
{
    const struct sim_collective *mine = op->work.collective;
    if (mine->comm->aborted)
        return true;
    if (sim.config.peer != SIM_PEER_GOOD && sim.config.peer_comm == mine->comm->clique->index &&
        sim.config.peer_rank == mine->comm->rank && mine->sequence >= sim.config.peer_sequence) {
        sim.fault_happened = true;
        return false;
    }
    return atomic_load(&mine->comm->ended) == mine->sequence;
}

/* What may be overwritten from now on is. */
static void spoil_recv(const struct sim_collective *c)
{
    uint64_t send_bytes, recv_bytes;
    sim_collective_bytes(c, &send_bytes, &recv_bytes);
    unsigned char *recv = sim_host_alias(c->recv);
    const unsigned char *send = sim_host_alias(c->send);
    if (c->kind == SIM_ALL_GATHER && send >= recv && send < recv + recv_bytes) {
        memset(recv, 0xff, (size_t)(send - recv));
        memset(recv + (send - recv) + send_bytes, 0xff, recv_bytes - send_bytes - (size_t)(send - recv));
    } else if (!(recv < send + send_bytes && send < recv + recv_bytes)) {
        memset(recv, 0xff, recv_bytes);
    }
}

/* Where not all of both fit on a device, kernels that start in different orders on two ranks wait for each other for ever. */
static void check_kept_order(struct sim_op *op, const struct sim_clock *clock)
{
    static struct {
        uint32_t generation, component, tick;
        const struct sim_comm *comm;
    } last[SIM_DEVICES_MAX][8];
    const struct sim_comm *comm = op->work.collective->comm;
    uint32_t own = 0;
    for (uint32_t i = 0; i < 8; i++) {
        const bool is_there = last[comm->device][i].generation == sim.generation;
        if (is_there && last[comm->device][i].comm == comm) {
            own = i;
            break;
        }
        if (!is_there) {
            own = i;
            break;
        }
    }
    for (uint32_t i = 0; i < 8; i++)
        if (last[comm->device][i].generation == sim.generation && last[comm->device][i].comm != comm &&
            clock->at[last[comm->device][i].component] < last[comm->device][i].tick)
            sim_violate("%s on communicator %u of rank %u, and a collective of another communicator: nothing says which of "
                        "them begins first", op->work.name, comm->clique->index, comm->rank);
    last[comm->device][own].generation = sim.generation;
    last[comm->device][own].comm = comm;
    last[comm->device][own].component = op->stream->component;
    last[comm->device][own].tick = clock->at[op->stream->component];
}

void sim_collective_begin(struct sim_op *op, const struct sim_clock *clock)
{
    if (clock && sim.config.nccl_keeps_no_order)
        check_kept_order(op, clock);
    const struct sim_collective *mine = op->work.collective;
    struct sim_call *call = mine->call;
    if (clock) {
        call->clocks[mine->comm->rank] = *clock;
        if (op->point->end_ns > call->end_ns)
            call->end_ns = op->point->end_ns;
    }
    if (mine->comm->aborted)
        return;
    spoil_recv(mine);
    if (atomic_fetch_add(&call->arrived_count, 1) + 1 < call->rank_count)
        return;
    for (uint32_t r = 0; r < call->rank_count; r++)
        if (call->entries[r]->comm->aborted) /* it was there and has left, its memory may be gone: this ends for nobody */
            return;
    sim_collective_move(call);
    atomic_store(&call->over, true);
}

bool sim_collective_is_over(const struct sim_op *op)
{
    const struct sim_collective *mine = op->work.collective;
    return mine->comm->aborted || atomic_load(&mine->call->over);
}

void sim_collective_end(struct sim_op *op, struct sim_clock *clock)
{
    const struct sim_collective *mine = op->work.collective;
    struct sim_call *call = mine->call;
    if (clock) {
        *clock = call->clocks[mine->comm->rank];
        for (uint32_t r = 0; r < call->rank_count && !mine->comm->aborted; r++)
            sim_clock_join(clock, &call->clocks[r]);
        if (call->end_ns > op->point->end_ns)
            op->point->end_ns = call->end_ns;
    }
    atomic_store(&mine->comm->ended, mine->sequence + 1);
}

/* --- what they move --- */

static float from_bf16(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float number;
    memcpy(&number, &bits, sizeof(number));
    return number;
}

/* To nearest, ties to even. */
static uint16_t to_bf16(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return isnan(number) ? (uint16_t)(bits >> 16 | 0x40) : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* out[i] = the ranks' values added in rank order, in fp32 (fp64 for doubles). */
static void sum_ranks(const struct sim_call *call, uint64_t first, uint64_t count, unsigned char *out)
{
    const ncclDataType_t type = call->entries[0]->type;
    for (uint64_t i = 0; i < count; i++) {
        float sum = 0;
        double wide = 0;
        for (uint32_t r = 0; r < call->rank_count; r++) {
            const unsigned char *send = sim_host_alias(call->entries[r]->send);
            if (type == ncclBfloat16) {
                const float value = from_bf16(((const uint16_t *)(const void *)send)[first + i]);
                sum = r == 0 ? value : sum + value;
            } else if (type == ncclFloat64) {
                const double value = ((const double *)(const void *)send)[first + i];
                wide = r == 0 ? value : wide + value;
            } else {
                const float value = ((const float *)(const void *)send)[first + i];
                sum = r == 0 ? value : sum + value;
            }
        }
        if (type == ncclBfloat16)
            ((uint16_t *)(void *)out)[i] = to_bf16(sum);
        else if (type == ncclFloat64)
            ((double *)(void *)out)[i] = wide;
        else
            ((float *)(void *)out)[i] = sum;
    }
}

/* All results first, then all stores: recv may lie in send. */
void sim_collective_move(struct sim_call *call)
{
    const struct sim_collective *any = call->entries[0];
    const uint64_t bytes = any->count * sim_type_bytes(any->type), ranks = call->rank_count;
    unsigned char *result = sim_alloc(ranks * bytes), *own = sim_alloc(ranks * ranks * bytes);
    const bool sums = any->kind == SIM_REDUCE_SCATTER || any->kind == SIM_ALL_REDUCE;
    if (sums && any->type != ncclFloat32 && any->type != ncclFloat64 && any->type != ncclBfloat16)
        abort();
    for (uint32_t r = 0; r < ranks; r++) {
        const unsigned char *send = sim_host_alias(call->entries[r]->send);
        if (any->kind == SIM_ALL_GATHER)
            memcpy(result + r * bytes, send, bytes);
        else if (any->kind == SIM_REDUCE_SCATTER)
            sum_ranks(call, r * any->count, any->count, result + r * bytes);
        else if (any->kind == SIM_ALL_TO_ALL)
            for (uint32_t to = 0; to < ranks; to++)
                memcpy(own + (to * ranks + r) * bytes, send + to * bytes, bytes);
    }
    if (any->kind == SIM_ALL_REDUCE)
        sum_ranks(call, 0, any->count, result);
    if (any->kind == SIM_BROADCAST)
        memcpy(result, sim_host_alias(call->entries[any->root]->send), bytes);
    for (uint32_t r = 0; r < ranks; r++) {
        unsigned char *recv = sim_host_alias(call->entries[r]->recv);
        if (any->kind == SIM_ALL_GATHER)
            memcpy(recv, result, ranks * bytes);
        else if (any->kind == SIM_REDUCE_SCATTER)
            memcpy(recv, result + r * bytes, bytes);
        else if (any->kind == SIM_ALL_TO_ALL)
            memcpy(recv, own + r * ranks * bytes, ranks * bytes);
        else
            memcpy(recv, result, bytes);
    }
    free(result);
    free(own);
}

void sim_collectives_reset(void)
{
    while (sim.issues) {
        struct sim_issue *next = sim.issues->next;
        free(sim.issues->cliques);
        free(sim.issues);
        sim.issues = next;
    }
}
