/* SPDX-License-Identifier: MIT
 *
 * NCCL in one process. A clique is the ranks of a communicator; its calls are matched by their place in each rank's
 * order of issue, as NCCL does without looking at what they are. Here they are compared.
 */
#ifndef EO_TESTS_SIMULATOR_NCCL_NCCL_H
#define EO_TESTS_SIMULATOR_NCCL_NCCL_H

#include "tests/simulator/cuda/internal.h"

enum sim_collective_kind {
    SIM_ALL_GATHER,
    SIM_REDUCE_SCATTER,
    SIM_ALL_REDUCE,
    SIM_BROADCAST,
    SIM_ALL_TO_ALL,
    SIM_COLLECTIVE_KINDS,
};

struct sim_collective {
    struct sim_comm *comm;
    enum sim_collective_kind kind;
    const void *send;
    void *recv;
    uint64_t count; /* as the caller gave it */
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    /* of one that is issued */
    struct sim_call *call;
    uint64_t sequence;
    uint64_t send_offset, recv_offset; /* in windows; UINT64_MAX: none */
};

/* The n-th collective of a clique. */
struct sim_call {
    uint32_t rank_count;
    struct sim_collective *entries[SIM_RANKS_MAX]; /* copies */
    struct sim_clock clocks[SIM_RANKS_MAX];
    uint64_t end_ns;
    _Atomic uint32_t arrived_count;
    _Atomic bool over;
};

struct sim_clique {
    struct sim_clique *next;
    uint32_t index, rank_count, family, arrived_count;
    uint64_t id;
    struct sim_comm *comms[SIM_RANKS_MAX];
    ncclResult_t failure; /* of its creation */
    uint64_t call_count, call_capacity;
    struct sim_call **calls;
};

struct sim_comm {
    struct sim_clique *clique;
    uint32_t rank, device;
    bool non_blocking, shares, aborted, destroyed, finalized;
    struct sim_thread *ender; /* ncclCommAbort or ncclCommDestroy was called in its group */
    int policy;
    uint32_t polls_left; /* of ncclCommGetAsyncError, before the latest call is through */
    uint32_t error_polls;
    uint64_t issued;
    _Atomic uint64_t ended;
    struct sim_grouped *late; /* not on their streams before a poll says so */
    uint32_t late_count;
    ncclResult_t late_failure;
    uint32_t split_count, window_calls;
    struct sim_comm *child; /* of a split under way: written to child_at when all have come and a poll sees it */
    ncclComm_t *child_at;
    ncclWindow_t window, *window_at; /* of a registration under way: written when a poll sees its end */
    bool warm[SIM_COLLECTIVE_KINDS];
    char error[200];
};

struct sim_window {
    struct sim_window *next;
    struct sim_comm *comm;
    uintptr_t at;
    uint64_t bytes;
    bool symmetric;
};

/* In a group: issued at its end. */
struct sim_grouped {
    struct sim_collective collective;
    struct sim_stream *stream;
    uint64_t capture; /* the stream's; 0: none */
};

void sim_collectives_reset(void);
uint64_t sim_type_bytes(ncclDataType_t type);
void sim_collective_move(struct sim_call *call);
void sim_collective_bytes(const struct sim_collective *collective, uint64_t *send_bytes, uint64_t *recv_bytes);
const char *sim_collective_name(enum sim_collective_kind kind);
/* NULL: lies in no window of this communicator. */
const struct sim_window *sim_window_of(const struct sim_comm *comm, const void *at);
bool sim_peer_is_gone(const struct sim_comm *comm, uint64_t sequence);
struct sim_comm *sim_comm_of(ncclComm_t handle);
/* Whether a call may use it; if not, that is a violation of `call`. */
bool sim_comm_usable(const struct sim_comm *comm, const char *call);
/* Returns the result, and keeps the text. */
ncclResult_t sim_comm_refuse(struct sim_comm *comm, ncclResult_t result, const char *text);
bool sim_comm_is_complete(const struct sim_clique *clique);
/* Whether the collective that waits to be issued has room, as launches need in the driver. */
bool sim_comm_has_room(const struct sim_comm *comm);
/* What its destruction or abort waits for; with a group open that comes at the group's end. */
ncclResult_t sim_comm_end_now(struct sim_comm *comm);
void sim_windows_reset(void);
void sim_window_settle(struct sim_comm *comm);
ncclResult_t sim_collective_issue(const struct sim_collective *collective, struct sim_stream *stream);

#define NCCL_BEGIN()                                                                                                  \
    do {                                                                                                              \
        int sim_fault_code;                                                                                           \
        if (sim_enter(__func__, &sim_fault_code) || sim.broken != cudaSuccess) {                                      \
            sim_unlock();                                                                                             \
            return sim_fault_code ? (ncclResult_t)sim_fault_code : ncclUnhandledCudaError;                            \
        }                                                                                                             \
    } while (0)
#define NCCL_END(result)                                                                                              \
    do {                                                                                                              \
        const ncclResult_t sim_result = (result);                                                                     \
        sim_unlock();                                                                                                 \
        return sim_result;                                                                                            \
    } while (0)

#endif
