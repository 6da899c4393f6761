/* SPDX-License-Identifier: MIT
 *
 * A simulated CUDA runtime and NCCL: host code written for a GPU runs against it where there is none, under schedules
 * that are worse than a GPU's, and with checks that the real libraries leave out. Compiled against the real headers,
 * linked in place of the libraries. This header is for tests; the rest is cuda_runtime_api.h,
 * nccl.h, and the driver's entry points for virtual memory.
 *
 *     device memory   addresses that no thread may touch (a reserved range without access); what runs on a stream reaches the
 *                     bytes by sim_at(), which checks that the operation has declared them. Gaps lie between allocations
 *     stream          a queue of operations, each with the ranges that it reads and writes
 *     event           (stream, version): a wait binds to the record that was current when the wait was called
 *
 * Two executors. SCHEDULED: operations run only when a host thread waits or the scheduler chooses to, in an order picked
 * by the seed, and the host threads of sim_run_ranks() take turns, also by the seed: a run is a function of its seed.
 * A vector clock a stream finds every pair of accesses that nothing orders, even when the data came out right.
 * THREADS: a real thread a stream, for ThreadSanitizer, which takes the checker's place.
 *
 * What is wrong, but would only be a wrong number or a hang on a GPU, is a violation: counted, its text kept.
 */
#ifndef EO_TESTS_SIMULATOR_CUDA_SIM_H
#define EO_TESTS_SIMULATOR_CUDA_SIM_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* A function as the linker knows it: headers of CUDA 12 give some the name of their second version. */
#define SIM_TEXT_OF(name) #name
#define SIM_NAME_OF(name) SIM_TEXT_OF(name)

enum sim_executor { SIM_SCHEDULED, SIM_THREADS };

/* How SCHEDULED chooses among the heads of the streams. */
enum sim_policy {
    SIM_BY_SEED, /* one of those below */
    SIM_RANDOM,
    SIM_LAZY,   /* only what the host waits for, at the last moment */
    SIM_EAGER,  /* everything as soon as it can run */
    SIM_STARVE, /* one stream stands still for as long as anything else can run */
    SIM_RANKED, /* a priority a stream, which drops at a few places */
    SIM_POLICIES,
};

/* What shall go wrong in the call itself; see sim_count. */
enum sim_mutation_kind {
    SIM_MUTATE_NOTHING,
    SIM_DROP_WAIT,    /* cudaStreamWaitEvent does nothing */
    SIM_DROP_RECORD,  /* cudaEventRecord does nothing: the event stays at its older version */
    SIM_STALE_WAIT,   /* the wait binds to the version before */
};

struct sim_mutation {
    enum sim_mutation_kind kind;
    uint32_t rank;    /* of sim_run_ranks */
    uint32_t ordinal; /* which of this thread's calls of the function, from 0; with a place, of those from there */
    const void *place;
};

struct sim_fault {
    const char *function; /* its name; NULL: none */
    uint32_t rank;        /* in whose calls; SIM_ANY_RANK */
    uint32_t ordinal;     /* which of them, from 0 */
    int error;            /* a cudaError_t, CUresult or ncclResult_t; 0: one that fits the function */
};
#define SIM_ANY_RANK UINT32_MAX

/* From its `sequence`-th collective on, the rank's part of communicator `comm` (in order of creation) ... */
enum sim_peer { SIM_PEER_GOOD, SIM_PEER_STUCK /* never arrives */, SIM_PEER_LOST /* ... and the others are told */ };

struct sim_config {
    uint64_t seed;
    enum sim_policy policy;
    enum sim_executor executor;
    uint32_t device_count; /* [4]; */
    bool no_driver;        /* cudaErrorInsufficientDriver from every call */
    bool no_device;        /* cudaErrorNoDevice */
    const char *lacks;     /* libraries that cannot be loaded, as "nccl cublaslt cudnn" */
    int architecture;      /* [90] */
    uint64_t device_bytes; /* [256 MiB] a device */
    uint32_t hang_ms;      /* [20000] a wait that nothing can end is a violation after so long */
    bool pageable_copies;  /* [false: a violation] asynchronous copies to and from memory that is not pinned */
    int nccl_version;      /* [NCCL_VERSION_CODE of the header] */
    bool nccl_keeps_no_order; /* SCHEDULED: kernels of two communicators may start in any order, as without
                                 NCCL_LAUNCH_ORDER_IMPLICIT: two that nothing orders are a violation */
    uint32_t nccl_room; /* [any] a non-blocking communicator issues nothing to a stream where so much is still to run */
    bool nccl_no_symmetric; /* registering a window succeeds and gives none */
    uint32_t peer_comm, peer_rank, peer_sequence; /* of `peer` */
    enum sim_peer peer;
    uint32_t fail_operation; /* the n-th operation of rank fail_rank that runs (from 1) fails, and all that follow */
    uint32_t fail_rank;
    struct sim_fault fault;
    struct sim_mutation mutation;
    bool quiet; /* violations are expected: nothing on stderr */
    /* SCHEDULED: what a host thread learns by a look at an event, or from another thread, orders nothing on the device. What is
     * left is streams, events and what a thread itself waits for: the same under every schedule. */
    bool knows_least;
    uint32_t slow_operation; /* the n-th operation of rank slow_rank that is issued (from 1) begins so much later */
    uint32_t slow_rank;
    uint64_t slow_ns;
    uint32_t stopped_call; /* SCHEDULED: before the n-th look at the clock (from 1) all ranks were stopped for so long */
    uint64_t stopped_ns;
    uint64_t kernel_ns; /* SCHEDULED: all but collectives take so much longer */
    bool untouched; /* new memory is not filled, and a device has 256 GiB of addresses: for programs that look only at what
                       is issued. The same in all runs of a process */
};

/* Forgets everything and begins anew. Between tests; no other thread may be in a call. */
void sim_start(const struct sim_config *config);
/* Everything that was made must be gone: what is not is a violation. Returns how many violations there were. */
uint32_t sim_finish(void);

/* Runs main(arguments[r]) as rank r's host thread for all r, and returns when all have ended. SCHEDULED: they take turns,
 * by the seed, and share one thread of the system; what blocks otherwise than by the means of tests/simulator/cuda/wraps.c would stop all.
 * THREADS: a thread each. */
void sim_run_ranks(uint32_t count, void *(*main)(void *argument), void *const *arguments);
/* Lets another thread have its turn: for test code that polls. */
void sim_yield(void);

uint32_t sim_violation_count(void);
const char *sim_violation(uint32_t index); /* the first few; "" past them */
/* The first violation was that a pair of accesses is not ordered. */
bool sim_found_race(void);

/* How often rank's thread has called a function so far; of all threads with SIM_ANY_RANK. */
uint32_t sim_calls(const char *function, uint32_t rank);
/* Of those, the n-th call of cudaStreamWaitEvent or cudaEventRecord in words; and whether its order was implied by what
 * was there before. */
enum { SIM_NOTED_COMMS = 4 };
struct sim_call_note {
    char text[160];
    const void *place; /* in the program: where the call returns to */
    uint32_t place_ordinal;
    bool redundant;    /* of a wait: the order was there already */
    bool capturing;
    uint32_t issued;   /* operations that this rank had issued */
    uint32_t collectives[SIM_NOTED_COMMS]; /* of NCCL: issued on the first communicators, in order of creation */
};
bool sim_call_note(enum sim_mutation_kind kind, uint32_t rank, uint32_t ordinal, struct sim_call_note *out);
bool sim_mutation_happened(void);
bool sim_fault_happened(void);
/* The names of all functions that were called, one after the other; NULL past the last. */
const char *sim_function(uint32_t index);
uint64_t sim_order_hash(void); /* of the order in which they ran: equal where two runs were the same */
/* Of the order of conflicting accesses alone: of each byte, who wrote it after whom, and who read what of whom. Where no pair
 * is unordered, two runs with the same hash compute the same under every schedule. */
uint64_t sim_conflict_hash(void);

/*
 * How memory is shared out in rows [NULL: it is not]: asked when work is issued, with each of its pointers, for the rows at
 * that address. A range must lie within one of them; a kernel of a .cu file may touch the rows of its pointers alone. Where
 * there is no row the allocation is what counts.
 */
struct sim_row {
    uintptr_t from, to;
    const char *name;
};
extern uint32_t (*sim_rows_at)(const void *at, struct sim_row *out, uint32_t room);

/* Before each launch of a kernel of a .cu file [NULL]. */
extern void (*sim_on_launch)(const char *kernel, cudaStream_t stream);

/* --- for kernels that are not .cu files --- */

struct sim_range {
    const void *at; /* device memory, or pinned host memory */
    uint64_t bytes;
    bool writes;    /* what is read and written is given as written */
};
#define SIM_READS(at, bytes) ((struct sim_range){(at), (bytes), false})
#define SIM_WRITES(at, bytes) ((struct sim_range){(at), (bytes), true})

/* Enqueues body(arguments) with a copy of the arguments, as a kernel launch would. `name` is static. Ranges of 0 bytes
 * are left out. */
cudaError_t sim_kernel(const char *name, cudaStream_t stream, void (*body)(const void *arguments), const void *arguments,
                       size_t argument_bytes, const struct sim_range *ranges, uint32_t range_count);

/* In a body: where the host finds these bytes of a declared range. Aborts for bytes that were not declared (as written,
 * for sim_at_write). 0 bytes: NULL. */
const void *sim_at_read(const void *memory, uint64_t bytes);
void *sim_at_write(void *memory, uint64_t bytes);

#endif
