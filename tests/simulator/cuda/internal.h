/* SPDX-License-Identifier: MIT
 *
 * The simulator's own structures. One lock, sim.lock, guards all of it but what is marked atomic. Under SCHEDULED an
 * operation runs with the lock held, in whichever host thread waits; under THREADS a stream's thread never takes it, so that
 * ThreadSanitizer sees no order but the one that events and host waits give.
 */
#ifndef EO_TESTS_SIMULATOR_CUDA_INTERNAL_H
#define EO_TESTS_SIMULATOR_CUDA_INTERNAL_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <ucontext.h>

#include "sim.h"

enum {
    SIM_COMPONENTS = 192, /* streams, and chains of graphs, that are alive at one time */
    SIM_DEVICES_MAX = 8,
    SIM_RANKS_MAX = 16,
    SIM_TURNS_MAX = 64,
    SIM_POOLS_MAX = 256, /* made in a run */
    SIM_FUNCTIONS_MAX = 256,
    SIM_NOTES_MAX = 1 << 16,
    SIM_PLACES_MAX = 128,
    SIM_GRANULARITY = 64 << 10, /* of virtual memory; the driver's own is larger, but who asks for it finds this */
};

struct sim_clock {
    uint32_t at[SIM_COMPONENTS];
};

/* Whether the machine is without this library (sim_config.lacks). */
bool sim_lacks(const char *library);

/* --- memory --- */

enum sim_memory_kind { SIM_MALLOC, SIM_POOL, SIM_MAPPED, SIM_NCCL, SIM_PINNED };

/* Who touched a stretch of memory. */
struct sim_mark {
    uint32_t component, tick;
    const char *name;
    uint32_t stream_label;
    uint64_t sequence;
};
enum { SIM_READERS = 12 };
struct sim_stretch {
    uintptr_t from, to;
    struct sim_mark writer; /* tick 0: nobody yet */
    uint64_t written_by, read_by; /* for sim_conflict_hash: the writer, and the readers since, in no order */
    uint32_t reader_count;
    struct sim_mark readers[SIM_READERS];
};

struct sim_memory {
    struct sim_memory *next;
    enum sim_memory_kind kind;
    uint32_t device;
    uintptr_t at; /* as the program sees it */
    uint64_t bytes, mapped_bytes;
    bool dead;      /* a pool's block that was freed, in the order of its stream */
    bool freed;     /* the host has called free */
    struct sim_stream *freed_on;
    struct sim_point *freed_at;
    uint32_t access; /* of SIM_MAPPED and SIM_POOL, a bit a device: cuMemSetAccess, cudaMemPoolSetAccess */
    struct sim_physical *physical;
    uint32_t stretch_count, stretch_capacity;
    struct sim_stretch *stretches;
    unsigned char *known; /* of SIM_PINNED: what copies have brought there or found there; where other bytes lie, the host
                             has written. NULL: no copy yet */
};

/* --- operations --- */

enum sim_work_kind { SIM_KERNEL, SIM_MARKER, SIM_RECORD, SIM_COLLECTIVE };

/* What an operation does, apart from when: a graph's node is one of these. */
struct sim_work {
    enum sim_work_kind kind;
    const char *name;
    void (*body)(const void *arguments);
    void *arguments;
    size_t argument_bytes;
    struct sim_range *ranges;
    uint32_t range_count;
    struct sim_memory *memory;     /* SIM_POOL_FREE */
    struct sim_event *event;       /* SIM_RECORD, of a graph, with the flag for external use */
    struct sim_collective *collective; /* SIM_COLLECTIVE: owned */
    bool is_copy;                  /* between devices it needs no peer access */
    bool explores;                 /* its ranges are known once it has run */
};

/* A place in a stream: complete when all before it is. Counted references; lives on when the stream has gone on. */
struct sim_point {
    _Atomic uint32_t references;
    _Atomic bool done;
    struct sim_stream *stream; /* only compared, and only while not done */
    uint64_t sequence;
    uint64_t end_ns;        /* virtual; THREADS: real */
    const char *name;       /* of the operation */
    uint32_t stream_label, component;
    struct sim_clock clock;  /* valid when done */
    struct sim_clock issued; /* what it comes after by streams and events alone, in sequence numbers */
};

struct sim_op {
    _Atomic(struct sim_op *) next;
    struct sim_stream *stream;
    struct sim_work work;
    struct sim_point *point;
    uint32_t dependency_count;
    struct sim_point **dependencies;
    struct sim_clock host; /* what the host thread knew to be over when it issued this */
    uint64_t host_ns, slow_until_ns;
    uint64_t identity; /* equal in all runs: the how many'th operation of which stream */
    bool has_begun; /* of a collective: has arrived */
};

struct sim_stream {
    uint32_t magic;
    struct sim_stream *next;
    uint32_t device, label, component;
    uint32_t rank;      /* of the thread that made it */
    uint64_t key;       /* equal in all runs: who made it, and as its how many'th */
    bool legacy, blocking, internal, destroyed, has_collectives;
    int priority;
    uint64_t sequence;  /* of the last operation issued */
    uint64_t operations; /* of those, without markers */
    uint64_t virtual_ns;
    struct sim_op *head, *tail;
    struct sim_point *last; /* of the last operation issued; NULL: none yet */
    struct sim_clock clock;  /* after the last operation that has run */
    struct sim_clock issued; /* after the last one issued */
    struct sim_capture *capture;
    uint32_t chain;             /* in the capture */
    uint32_t tip_count;
    uint32_t *tips;             /* nodes that the next one comes after */
    /* THREADS: the thread follows `next` from an operation that has run; `tail` is the host's end of the list. */
    pthread_t thread;
    bool has_thread;
    struct sim_op *first; /* already run: an empty one at the beginning */
    _Atomic bool stop;
};

struct sim_event {
    uint32_t magic;
    uint32_t device, label;
    bool no_timing;
    struct sim_point *point, *older; /* the current version and the one before; NULL: never recorded */
    uint64_t capture_id; /* last recorded while capturing; 0: not */
    uint32_t tip_count;
    uint32_t *tips;
    uint64_t older_capture_id; /* the same of the version before, while this one is captured */
    uint32_t older_tip_count;
    uint32_t *older_tips;
    _Atomic uint32_t references; /* a graph's external record keeps it */
    bool destroyed;
};

/* --- graphs --- */

struct sim_node {
    struct sim_work work;
    uint32_t chain, dependency_count;
    uint32_t *dependencies;
    struct sim_event *wait; /* external wait: binds at launch */
    uint32_t device;
    uint64_t stream_key; /* of the stream that was captured */
    int priority;
};

struct sim_graph {
    uint32_t magic, references;
    uint32_t device;
    uint32_t node_count, node_capacity, chain_count;
    struct sim_node *nodes;
    uint32_t collective_count;
    bool uses_priorities; /* of an instance */
    bool is_instance;
    struct sim_graph *next;
    struct sim_stream **chains; /* of an instance: internal streams */
    struct sim_point *last;     /* end of the latest launch */
    struct sim_comm *comms[16];
    uint32_t comm_count;
};

struct sim_capture {
    struct sim_capture *next;
    uint64_t id;
    enum cudaStreamCaptureMode mode;
    struct sim_thread *thread;
    struct sim_stream *origin;
    struct sim_graph *graph;
    bool invalid;
};

/* --- threads --- */

struct sim_thread {
    struct sim_thread *next;
    uint32_t rank;      /* SIM_ANY_RANK: one that takes no turns */
    bool takes_turns, finished;
    ucontext_t context;
    void *stack;
    void *(*main)(void *argument);
    void *argument;
    struct sim_clock clock; /* what this thread knows to be over */
    struct sim_clock asked; /* and with what it has only looked at, or heard of */
    struct sim_clock issued;
    uint64_t virtual_ns;
    uint32_t device;
    bool has_context;
    uint32_t chosen, used; /* a bit a GPU: by cudaSetDevice; by a call that needs its context */
    cudaError_t last_error;
    uint32_t calls[SIM_FUNCTIONS_MAX], noted[2]; /* calls noted: waits, records */
    struct {
        const void *at;
        uint32_t count;
    } places[SIM_PLACES_MAX]; /* where they came from */
    uint32_t streams_made, idle_polls;
    uint64_t idle_progress, idle_mark;
    uint32_t group_depth;
    uint32_t grouped_count, grouped_capacity;
    struct sim_grouped *grouped;
    uint32_t forgiven; /* in a call that calls others: these are not counted */
};

struct sim_state {
    pthread_mutex_t lock;
    struct sim_config config;
    bool is_started;
    uint32_t generation;
    uint64_t host_ns;       /* virtual */
    uint32_t clock_calls;
    uint64_t host_progress; /* what host threads do for each other */
    uint64_t idle_progress, idle_since_ns;
    uint64_t random, progress, virtual_ns, order_hash, conflict_hash;
    struct sim_delivery *deliveries; /* what has come to pinned memory, and no host thread knows yet */
    cudaError_t broken; /* a sticky error: every call returns it */
    char broken_by[160];

    struct sim_thread *threads;
    uint32_t rank_count; /* that take turns now */
    struct sim_thread *ranks[SIM_TURNS_MAX]; /* and what they started */
    ucontext_t before;

    struct sim_memory *memory;
    struct sim_physical *physical;
    struct sim_span_reserved *reserved;
    uint64_t device_next[SIM_DEVICES_MAX], device_used[SIM_DEVICES_MAX];
    uint64_t pool_threshold[SIM_DEVICES_MAX];
    uint32_t pools_made, pool_count;
    uint32_t pool_access[SIM_POOLS_MAX]; /* of pools made, a bit a device */
    bool peer_access[SIM_DEVICES_MAX][SIM_DEVICES_MAX];

    struct sim_stream *streams;
    struct sim_stream *legacy[SIM_DEVICES_MAX];
    uint32_t event_count;
    struct sim_capture *captures;
    struct sim_graph *graphs;
    uint64_t capture_id;
    uint32_t stream_label, event_label;
    uint32_t component_next;
    bool component_used[SIM_COMPONENTS];
    uint32_t component_tick[SIM_COMPONENTS];

    struct sim_clique *cliques;
    uint32_t clique_count;
    uint64_t unique_id;
    struct sim_window *windows;
    struct sim_issue *issues;

    const char *functions[SIM_FUNCTIONS_MAX];
    uint32_t function_count, calls[SIM_FUNCTIONS_MAX];

    uint32_t violation_count, race_count;
    char violations[8][400];

    uint32_t note_count;
    struct sim_note {
        enum sim_mutation_kind kind;
        uint32_t rank, ordinal;
        struct sim_call_note note;
    } *notes;
    bool mutation_happened, fault_happened;
    uint32_t operations_of[SIM_RANKS_MAX + 1], issued_of[SIM_RANKS_MAX + 1];
};
extern struct sim_state sim;

/* Test programs are linked with --wrap for what host threads block on (tests/simulator/cuda/wraps.c); the simulator itself uses the real
 * ones. */
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline);
int __real_nanosleep(const struct timespec *duration, struct timespec *rest);
#define sim_mutex_lock         __real_pthread_mutex_lock
#define sim_mutex_unlock       __real_pthread_mutex_unlock
#define sim_cond_wait          __real_pthread_cond_wait
#define sim_cond_timedwait     __real_pthread_cond_timedwait
#define sim_sleep              __real_nanosleep

#define SIM_PRINTF(text, first) __attribute__((format(printf, text, first)))

/* tests/simulator/cuda/core.c */
struct sim_thread *sim_self(void);
struct sim_thread *sim_thread_new(uint32_t rank);
void sim_become(struct sim_thread *thread);
void sim_pass_turn(struct sim_thread *self);
/* Its number from 1; 0: it was not started, for who asks takes no turns. */
uint32_t sim_start_thread(void *(*main)(void *argument), void *argument);
void sim_await_thread(uint32_t number);
void sim_violate(const char *format, ...) SIM_PRINTF(1, 2); /* with the lock */
void sim_violate_race(const char *format, ...) SIM_PRINTF(1, 2);
uint64_t sim_mix(uint64_t a, uint64_t b);
uint64_t sim_next_random(void);
void *sim_alloc(size_t bytes); /* zeroed, or abort */

/*
 * Every entry point: takes the lock, gives another thread its turn now and then, counts, and answers whether a fault is
 * due (its code in *fault, else 0). Ends with sim_leave.
 */
bool sim_enter(const char *function, int *fault);
/* Keeps the last error, returns it. Drops the lock. */
cudaError_t sim_leave(cudaError_t error);
void sim_unlock(void);
/* Of a library's call, which a lost device does not fail: that is told by what runs there. */
bool sim_is_to_fail(const char *function);
/* A wait's loop: somebody else has to do something first. False when nothing has happened for too long. */
struct sim_patience {
    uint64_t begin_ns, progress;
};
bool sim_pause(struct sim_patience *patience);
/* Who polls has a deadline of its own: nothing has happened for far longer than a wait may take. */
bool sim_polls_in_vain(void);
void sim_progress(void);
uint64_t sim_real_ns(void);
uint64_t sim_now_ns(void); /* the host's clock as the program sees it, with the lock */

/* The bodies of entry points. CUDA_BEGIN returns what a fault or a broken context returns. */
#define CUDA_BEGIN()                                                                                                  \
    do {                                                                                                              \
        int sim_fault_code;                                                                                           \
        if (sim_enter(__func__, &sim_fault_code))                                                                     \
            return sim_leave((cudaError_t)sim_fault_code);                                                            \
    } while (0)
#define CUDA_END(error) return sim_leave(error)
/* For calls that are refused in threads that capture. */
#define CUDA_UNSAFE()                                                                                                 \
    do {                                                                                                              \
        const cudaError_t sim_refusal = sim_unsafe_call(__func__);                                                    \
        if (sim_refusal != cudaSuccess)                                                                               \
            return sim_leave(sim_refusal);                                                                            \
    } while (0)

/* tests/simulator/cuda/order.c: happens-before */
void sim_clock_join(struct sim_clock *clock, const struct sim_clock *other);
uint32_t sim_component_new(void);
void sim_component_free(uint32_t component);
/* Checks and notes what an operation touches. `clock` is its own, with its own tick. */
void sim_access(const struct sim_op *op, const struct sim_clock *clock, const struct sim_range *range);
/* The host takes the memory away: it must know that all who touched it are done. */
void sim_host_frees(const struct sim_memory *memory, const char *call);
void sim_host_writes(const struct sim_range *range); /* it has written there: the same */
/* Host threads that synchronise by other means than CUDA: tests/simulator/cuda/wraps.c. */
void sim_host_release(const void *object);
void sim_host_acquire(const void *object);
void sim_host_forget(void);
void sim_meeting_enter(const void *post); /* a rank's part in a meeting of all, known by an address */
void sim_meeting_join(const void *post);

/* tests/simulator/cuda/memory.c */
struct sim_memory *sim_memory_find(const void *at);
struct sim_memory *sim_memory_new(enum sim_memory_kind kind, uint32_t device, uint64_t bytes);
void sim_memory_drop(struct sim_memory *memory);
void sim_memory_reset(void);
uint32_t sim_memory_leaks(void);
/* Whether the range is memory that a kernel of `device`, or a copy there, may touch now; NULL, or what is wrong with it. */
const char *sim_range_fault(const struct sim_range *range, uint32_t device, bool is_copy, char *text, size_t text_bytes);
bool sim_is_device_address(const void *at);
void *sim_host_alias(const void *at); /* unchecked */
const void *sim_device_address(const void *alias); /* the other way */
uintptr_t sim_address_take(uint32_t device, uint64_t bytes);
bool sim_map(uintptr_t at, uint64_t bytes);
void sim_unmap(uintptr_t at, uint64_t bytes);
bool sim_device_take(uint32_t device, uint64_t bytes);
void sim_device_give(uint32_t device, uint64_t bytes);
void sim_vmm_reset(void);
uint32_t sim_vmm_leaks(void);
CUdeviceptr sim_vmm_reservation_of(const void *at, uint64_t *bytes);

/* tests/simulator/cuda/run.c: streams and executors */
struct sim_stream *sim_stream_new(uint32_t device, uint64_t key, bool internal);
struct sim_stream *sim_stream_of(cudaStream_t handle); /* NULL: no such */
void sim_stream_drop(struct sim_stream *stream);
void sim_streams_reset(void);
uint32_t sim_stream_leaks(void);
struct sim_op *sim_op_new(struct sim_stream *stream, const struct sim_work *work); /* takes over what work points to */
void sim_op_after(struct sim_op *op, struct sim_point *point); /* NULL is taken */
/* Puts it at the end of its stream. The point belongs to the stream: retain it to keep it. */
struct sim_point *sim_submit(struct sim_op *op);
struct sim_point *sim_retain(struct sim_point *point);
void sim_release(struct sim_point *point);
void sim_work_copy(struct sim_work *to, const struct sim_work *from);
void sim_work_free(struct sim_work *work);
/* The host waits; what it then knows goes into its clock. */
cudaError_t sim_wait_for(struct sim_point *point, const char *why);
cudaError_t sim_wait_device(uint32_t device, const char *why);
void sim_know(struct sim_point *point); /* the thread has waited until it was done */
void sim_look(struct sim_point *point); /* the thread has seen that it is done */
/* tests/simulator/cuda/copies.c: what the host may see of pinned memory. */
void sim_deliver(void);                              /* what this thread knows to have come */
void sim_deliver_to(const struct sim_range *range);  /* what the device reads, or the host gives back */
void sim_deliveries_reset(void);
void sim_let_run(uint32_t count);       /* a few operations, perhaps */
bool sim_can_run(void);                  /* some operation */
/* At the end of a call that issued or asked something: the policy may run operations. */
void sim_policy_step(void);
void sim_break(cudaError_t error, const char *what); /* sticky */
const struct sim_op *sim_current_op(void);

/* tests/simulator/cuda/rows.c: NULL, or which row the range leaves. */
enum { SIM_ROWS_AT_MAX = 32 };
const char *sim_row_fault(const struct sim_range *range, char *text, size_t text_bytes);

/* tests/simulator/cuda/kernels.c: runs it and notes what it touches; false: the context is broken. */
bool sim_explore(struct sim_op *op);

/* tests/simulator/cuda/threads.c */
void sim_threads_submit(struct sim_op *op);
void sim_threads_stop(struct sim_stream *stream);
void sim_op_free(struct sim_op *op);
void sim_op_body(struct sim_op *op); /* with sim_current_op set */

/* tests/simulator/cuda/graph.c */
cudaError_t sim_unsafe_call(const char *function); /* 900, and the capture is invalid */
cudaError_t sim_capture_refuses(struct sim_stream *stream, const char *call); /* a call that no capturing stream takes */
cudaError_t sim_capture_add(struct sim_stream *stream, struct sim_work *work); /* takes work over */
struct sim_capture *sim_capture_by_id(uint64_t id);
void sim_capture_spoil(struct sim_capture *capture);
void sim_graphs_reset(void);
uint32_t sim_graph_leaks(void);
bool sim_graph_uses(const struct sim_comm *comm);
/* A wait within a capture, or one that takes the stream into it. */
cudaError_t sim_capture_join(struct sim_stream *stream, struct sim_event *event, unsigned int flags);
bool sim_capture_implies(const struct sim_stream *stream, const struct sim_event *event);
cudaError_t sim_capture_refuses_default(const struct sim_stream *legacy);
void sim_event_release(struct sim_event *event);

/* Issues work to a stream: captured, or enqueued. Takes over what work points to. */
cudaError_t sim_issue(struct sim_stream *stream, struct sim_work *work);

/* tests/simulator/cuda/events.c */
void sim_events_reset(void);
uint32_t sim_event_leaks(void);
struct sim_event *sim_event_of(cudaEvent_t handle);
void sim_event_set(struct sim_event *event, struct sim_point *point); /* retains */
/* Every call that a mutation may change: NULL past the last that is kept. */
struct sim_note *sim_note_call(enum sim_mutation_kind kind, const void *place, const struct sim_stream *stream,
                               const char *format, ...) SIM_PRINTF(4, 5);
bool sim_mutates(enum sim_mutation_kind kind, const struct sim_note *note);

/* tests/simulator/nccl/nccl.c */
/* Of a collective at the head of its stream: may it begin; take part (`clock`: as it begins); is all data moved. Under
 * THREADS these three run without the lock. */
bool sim_collective_may_begin(const struct sim_op *op);
void sim_collective_begin(struct sim_op *op, const struct sim_clock *clock);
bool sim_collective_is_over(const struct sim_op *op);
void sim_collective_end(struct sim_op *op, struct sim_clock *clock); /* the clock gets all ranks' */
void sim_collective_launch(struct sim_op *op); /* it enters its communicator's order */
struct sim_collective *sim_collective_copy(const struct sim_collective *collective);
void sim_collective_free(struct sim_collective *collective);
uint32_t sim_comm_issued(uint32_t clique, uint32_t rank); /* collectives; 0 where there is no such communicator */
struct sim_comm *sim_collective_comm(const struct sim_collective *collective);
void sim_nccl_reset(void);
uint32_t sim_nccl_leaks(void);

#define SIM_MAGIC_STREAM 0x53747265u
#define SIM_MAGIC_EVENT  0x4576656eu
#define SIM_MAGIC_GRAPH  0x47726170u
#define SIM_MAGIC_EXEC   0x45786563u

#endif
