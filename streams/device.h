/* SPDX-License-Identifier: MIT
 *
 * A device: its memory, its streams, its events and the element-wise kernels the runtime itself needs.
 *
 *     queue 0   compute: the caller's. On the CPU it is the calling thread itself: what is called here runs at once,
 *               and a wait blocks it; elsewhere a stream, and only await and drain block
 *     queue 1, 2 communication: work is enqueued and runs in order. On the CPU a worker thread each, with a fixed ring
 *     queue 3   copies to and from storage, likewise; storage is a file on the CPU, pinned host memory on a GPU
 *     queue 4   copies to storage, where it goes both ways at a time
 *
 * An event is a point in a queue. A wait binds to the record that was current when the wait was called.
 * Pointers are device memory unless said otherwise: the host may read and write them only where `is_host_memory`, and
 * reaches them by upload and download. Nothing here allocates after init, but for reserve, the functions of graphs and
 * the allocators of the dynamic mode.
 */
#ifndef EO_STREAMS_DEVICE_H
#define EO_STREAMS_DEVICE_H

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/status.h>

#include "base/clock.h"

enum { EO_QUEUE_COMPUTE = 0, EO_QUEUE_COMM = 1, EO_QUEUE_REDUCE = 2, EO_QUEUE_COPY = 3, EO_QUEUE_EVICT = 4, EO_QUEUES_MAX = 5 };

/* What a reservation is for. HOST is read and written by the host and by the device (pinned); the others are device
 * memory. */
enum eo_memory_kind {
    EO_MEMORY_KIND_GATHER,   /* read by peers in all-gathers */
    EO_MEMORY_KIND_GRADIENT, /* read by peers in reduce-scatters */
    EO_MEMORY_KIND_PRIVATE,
    EO_MEMORY_KIND_HOST,
    EO_MEMORY_KIND_COUNT,
};

/* The trainer's threads; see eo_parallel in evenodd/runtime.h. run == NULL: the calling thread alone. */
struct eo_workers {
    void (*run)(void *team, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg);
    void *team;
    uint32_t thread_count;
};

/*
 * Zero is an event that was never recorded; waiting for it returns at once. Its home is with who records it: the
 * backend takes a handle for it at its first record, and gives back all handles at fini.
 */
struct eo_event {
    uint32_t queue;
    uint64_t sequence;
    void *handle; /* the backend's, from a pool made at init; NULL on the CPU */
};

/* When a piece of work was issued, could start, and ended; written by whoever runs it, before its event completes, or
 * when its stamps are resolved. */
struct eo_span {
    uint64_t ready_ns, start_ns, end_ns;
};

struct eo_profiler_ops;
struct eo_storage;

enum { EO_STORAGE_ALIGN = 4096, EO_STORAGE_PIECE = 256 << 10, EO_STORAGE_CACHE_BYTES = 16 << 20 };

/* Between memory and storage. `memory`, `offset` and `bytes` are multiples of EO_STORAGE_ALIGN. */
struct eo_storage_copy {
    void *memory;
    uint64_t offset, bytes;
    uint32_t queue;
    uint64_t *sums;       /* of a file: one for each EO_STORAGE_PIECE from `offset` on, which a write sets and a read compares;
                             NULL: none */
    struct eo_span *span; /* may be NULL */
    bool writes;
    bool continues;       /* the span of the copy before */
    bool goes_on;         /* the next copy continues it */
};

struct eo_device_params {
    uint32_t queue_count;   /* compute included: 2, 3 with a stream for reductions, 4 with one for storage, 5 with one each way */
    uint32_t ring_capacity; /* items that may wait in one communication queue; issuing more is a bug and aborts */
    uint32_t rank, rank_count;
    uint32_t share_rank, share_ranks; /* of the ranks that share this process's processors; 0: rank and rank_count */
    uint32_t processes;               /* that the ranks of this host are in: each has limits of its own on memory; 0: one */
    uint32_t device_index;  /* which of the machine's devices of this name, modulo their number */
    uint32_t event_count;   /* events of its own that the caller will record */
    uint32_t stamp_count;   /* stamps that are out at one time: a fixed ring */
    uint32_t graph_stamp_count; /* stamps in a captured step; 0: it takes none, and costs nothing for them */
    bool place_threads;     /* bind calling thread, workers and memory, where hwloc is built in */
    bool share_memory;      /* what peers read lies where other processes of the machine can map it (CPU) */
    uint64_t delay_seed;    /* 0: none; else random delays before queue items and in waits, for tests */
    struct eo_workers workers;
    const eo_log *log;      /* copied */
};

/* What a rank brings to the norm: its sum of squares, the trainer's values, its weight. */
enum { EO_STEP_VALUES = 4, EO_NORM_VALUES = 1 + EO_STEP_VALUES + 1 };

/*
 * Parameters of one optimizer step. They lie in device memory, uploaded once a step, so that a captured step needs no
 * new arguments. Behind them come the numbers of each group of parameters.
 */
struct eo_update_scalars {
    double values[EO_STEP_VALUES]; /* the trainer's, to be summed over the ranks */
    double weight;                 /* of this rank; gradients are divided by the sum over the ranks, if it is not 0, */
    double loss_scale;             /* and by this */
    uint64_t skipped;              /* steps not finite that the host knew of: see eo_group_scalars */
    float clip;                    /* 0: off */
    uint32_t group_count;
    float ema_decay;
    uint32_t clips_apart; /* 1: some group has a clip_group above 0 */
};

/* Steps that may end while the host prepares one: how many of them were skipped the device alone knows. */
enum { EO_STEPS_UNKNOWN = 2 };

struct eo_group_scalars {
    float learning_rate, beta1, beta2, eps, weight_decay;
    /* 1 - beta^t, where t counts the steps that were not skipped: [k] if k were that the host did not know of */
    float bias_correction1[EO_STEPS_UNKNOWN], bias_correction2[EO_STEPS_UNKNOWN];
    uint32_t frozen; /* 1: nothing of the group changes */
    uint32_t clip;   /* whose eo_clip_scalars are its own */
    float momentum;  /* of Muon's rules */
};

/* Of a group of the trainer's, where the plan has norms by group. */
struct eo_clip_scalars {
    uint32_t clip_group; /* those with the same one are clipped by their norm together */
    float clip;          /* the largest; 0: off */
};

struct eo_clip_result {
    double norm, clip_factor;
};

/* What the norm gives; in device memory. Behind it come the results of each group. */
struct eo_norm_result {
    double norm, clip_factor;
    double values[EO_STEP_VALUES], weight; /* sums over the ranks */
    uint64_t skipped;     /* steps whose norm was not finite, since the runtime began */
    float gradient_scale; /* what gradients are multiplied by: clip factor / (weight x loss scale). NaN where the norm is not
                             finite: an update then changes nothing */
};

struct eo_group_result {
    float gradient_scale; /* that of the norm, or of its clip group */
};

/* Where the numbers of a step's end lie in device memory. */
struct eo_step_memory {
    struct eo_update_scalars *scalars;
    struct eo_group_scalars *groups;
    struct eo_norm_result *norm;
    struct eo_group_result *results;
    /* Of norms in parts; counts of 0: there are none */
    uint32_t layer_count, clip_count;
    struct eo_clip_scalars *clips; /* by group of the trainer's */
    double *layer_norms;
    struct eo_clip_result *clip_results;
};

/* Numbers that a rank brings to the norm: behind EO_NORM_VALUES the sums of squares by layer, then by group of the trainer's. */
static inline uint32_t eo_norm_count(const struct eo_step_memory *step)
{
    return EO_NORM_VALUES + step->layer_count + step->clip_count;
}

/* A sum of squares, and the number that it is a part of: 0, or from EO_NORM_VALUES on. */
struct eo_norm_term {
    const double *partial; /* device memory */
    uint32_t into;
};

/*
 * Weights that an optimizer updates; arrays of `count`. The master weight is `weights` (fp32), or, where weights is NULL,
 * split: high is the bf16 weight, low the signed remainder (streams/bf16.h), joined and split exactly.
 */
struct eo_update_range {
    float *weights;
    uint16_t *high;
    int16_t *low;
    /* The optimizer's arrays of state; with one alone it is the first. In 8 bits: blocks, at whose bounds ranges begin and end.
     * Of Muon's matrices the second is a direction: EO_RULE_DIRECTION writes it, EO_RULE_MUON reads it */
    union {
        float *first_moment;
        struct eo_state8 *first_blocks;
    };
    union {
        float *second_moment;
        struct eo_state8 *second_blocks;
    };
    const float *gradient;
    uint64_t count;
    uint32_t group; /* whose numbers count */
};

/* What is done to ranges: streams/cpu/update_body.h and state8_body.h have the formulas. EO_RULE_DIRECTION is no update:
 * second_moment = what Muon's momentum will be; weights and the first one stay. */
enum eo_rule {
    EO_RULE_ADAMW,
    EO_RULE_SGD,
    EO_RULE_LION,
    EO_RULE_ADAMW8BIT,
    EO_RULE_MUON,
    EO_RULE_DIRECTION,
    EO_RULE_COUNT,
};

/* Weights and their moving average; arrays of `count`. The weights lie as in eo_update_range; the average is fp32. */
struct eo_average {
    float *weights;
    uint16_t *high;
    int16_t *low;
    float *average;
    uint64_t count;
};

enum eo_average_mode {
    EO_AVERAGE_BEGIN,  /* average = weight */
    EO_AVERAGE_UPDATE, /* average += (1 - decay) (weight - average); nothing where the norm is not finite */
    EO_AVERAGE_SWAP,   /* they change places, exactly */
};

/* Weights that a float8 gather carries in one form: float8 with a scale, or as they are. */
struct eo_float8_run {
    uint16_t *wide; /* bf16; `count` of them */
    void *narrow;   /* float8 of wide / *scale (base/float8.h); where scale is NULL, bf16 as they are */
    float *scale;
    uint64_t count;
};

/* Frozen weights as they lie on their ranks: in MXFP8, or as they are. */
struct eo_mxfp8_run {
    void *wide;              /* `count` elements of `dtype` */
    const uint8_t *narrow;   /* MXFP8 (base/mxfp8.h); where exponents is NULL, what `wide` holds */
    const uint8_t *exponents;
    uint64_t count;
    eo_dtype dtype;
};

struct eo_device {
    const struct eo_device_ops *ops;
    eo_log log;
    struct eo_device_params params;
    void *state;  /* the backend's */
    uint32_t count; /* devices of this name on the machine, set by init; 0: it does not say */
    bool is_lost; /* a collective that nothing can end stays on it: whatever would wait for the device, or take memory
                     from it, is left undone, and the process is to end (eo_group_info.must_exit) */
};

/*
 * The dynamic mode's allocators on a device whose memory the C library does not give; see buffers/allocator.h for what
 * the kinds do. One thread at a time.
 */
struct eo_device_allocator_ops {
    const char *kind; /* "malloc", "pool", "caching" */
    eo_status (*create)(void **out, struct eo_device *device);
    void (*destroy)(void **allocator); /* waits for the device; live blocks are freed as well */
    /* For work issued to `queue` from now on, and for work on other queues ordered after that. NULL: out of memory. */
    void *(*allocate)(void *allocator, uint64_t bytes, uint32_t queue);
    /* All that uses the block was issued, and `queue`, for which it was allocated, is ordered after it: so it may be
     * handed out again for later work on that queue. Returns the bytes that were asked for it. */
    uint64_t (*free)(void *allocator, void *memory, uint32_t queue);
    /* Taken from the system now, and at most. */
    void (*reserved)(const void *allocator, uint64_t *bytes, uint64_t *peak_bytes);
};

/*
 * Waits return the first error of the queue they wait for (a collective that failed), and go on returning it.
 * Element-wise kernels run on the compute queue; results do not depend on the number of workers. Rounding to bf16 is
 * to nearest, ties away from zero, NaN stays NaN (streams/bf16.h).
 */
struct eo_device_ops {
    const char *name;
    bool is_host_memory;                         /* the host may read and write all kinds of memory */
    eo_status (*init)(struct eo_device *device); /* device->params are set */
    void (*fini)(struct eo_device *device);      /* after failed init too; waits for the queues */

    /* Zeroed, prefaulted, aligned to a page at least. EO_ERR_NO_MEMORY, logged with what was needed and is free. */
    eo_status (*reserve)(struct eo_device *device, enum eo_memory_kind kind, uint64_t bytes, void **out);
    void (*release)(struct eo_device *device, enum eo_memory_kind kind, void *memory, uint64_t bytes);
    /* Device memory free now and in all, for a check before anything is reserved. */
    eo_status (*available)(struct eo_device *device, uint64_t *free_bytes, uint64_t *total_bytes);

    void (*record)(struct eo_device *device, uint32_t queue, struct eo_event *event);
    /* What is issued to `queue` from now on runs after the event. Queue 0 on the CPU: blocks. */
    eo_status (*wait)(struct eo_device *device, uint32_t queue, const struct eo_event *event);
    bool (*is_complete)(struct eo_device *device, const struct eo_event *event);
    /* The calling thread waits for the event. */
    eo_status (*await)(struct eo_device *device, const struct eo_event *event);
    eo_status (*drain)(struct eo_device *device); /* the calling thread waits for all queues */
    /* The backend's own handle of a queue (a cudaStream_t); NULL on the CPU. */
    void *(*queue_handle)(struct eo_device *device, uint32_t queue);

    /* *ns gets the time, of eo_now_ns's clock, at which the queue comes to this point: on the CPU now, elsewhere when
     * resolve_stamps finds that it has passed; until then `ns` stays valid. While capturing: at every run of the graph,
     * told by resolve_graph_stamps, as long as there is room; `ns` stays valid as long as the graph. */
    void (*stamp)(struct eo_device *device, uint32_t queue, uint64_t *ns);
    void (*resolve_stamps)(struct eo_device *device); /* does not wait */
    /* The graph that was captured last has run, and has not been launched again since: the times of its stamps. NULL
     * where there are no graphs. */
    void (*resolve_graph_stamps)(struct eo_device *device);
    /* For profilers: what the calling thread issues between the two is called `name` (static). NULL: there are none. */
    void (*range_begin)(struct eo_device *device, const char *name);
    void (*range_end)(struct eo_device *device);

    /* On the compute queue. Host memory is of kind HOST, and stays as it is until the copy has run. */
    void (*upload)(struct eo_device *device, void *to, const void *from_host, uint64_t bytes);
    void (*download)(struct eo_device *device, void *to_host, const void *from, uint64_t bytes);
    void (*zero)(struct eo_device *device, void *memory, uint64_t bytes);
    void (*fill)(struct eo_device *device, void *memory, uint32_t pattern, uint64_t bytes); /* bytes % 4 == 0 */
    void (*copy)(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes); /* on any queue */
    /* Between the device's memory and memory of kind HOST, on a queue that is not compute. `span`: its start and end. */
    void (*copy_host)(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes, bool to_host,
                      struct eo_span *span);
    /* to[i] = from[i] as bf16, on any queue: the dynamic mode's cast before a gather. */
    void (*cast_bf16)(struct eo_device *device, uint32_t queue, uint16_t *to, const float *from, uint64_t count);

    /* Of each run: *scale from `wide`, then `narrow`; and back. `runs` is a host array, valid during the call. */
    void (*narrow)(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count);
    void (*widen)(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count);
    /* `wide` of each run. NULL: the device cannot, and plans with float8_frozen are refused on it. */
    void (*widen_mxfp8)(struct eo_device *device, const struct eo_mxfp8_run *runs, uint32_t run_count);

    /* to[i] += from[i], or = where `overwrite`; from is fp32 or bf16 */
    void (*accumulate)(struct eo_device *device, float *to, const void *from, eo_dtype dtype, bool overwrite,
                       uint64_t count);
    /* *out = sum of squares of values, accumulated in double in an order fixed by `count` alone; on any queue. `span`: NULL, or
     * gets its start and end */
    void (*sum_squares)(struct eo_device *device, uint32_t queue, double *out, const float *values, uint64_t count,
                        struct eo_span *span);
    /* accumulate, then sum_squares of the result, in one pass; the same bits as one after the other */
    void (*accumulate_sum_squares)(struct eo_device *device, double *out, float *to, const void *from, eo_dtype dtype,
                                   bool overwrite, uint64_t count);

    /* out[0], and from EO_NORM_VALUES on out[i] = sum of the partials into i, in their order, from 0; out[1 + v] = values[v] +
     * device_values[v] (NULL: the first alone); then the weight. `terms` is a host array, valid during the call. */
    void (*norm_local)(struct eo_device *device, double *out, const struct eo_norm_term *terms, uint32_t count,
                       const struct eo_step_memory *step, const double *device_values);
    /* `gathered`: rank_count times what norm_local gave, summed in rank order, from 0. In double:
     * divisor = (sum of weights, or 1 if that is 0) x loss_scale; norm = sqrt(sum of squares) / divisor;
     * clip_factor = clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1; values = their sums;
     * gradient_scale = (float)(clip_factor / divisor), NaN where the norm is not finite: then `skipped` is one more. It is
     * infinite, too, of a divisor below 1 where floats may not hold the divided gradients, or the divisor's inverse.
     * Norms in parts likewise. With clips_apart a group's factor is that of the norm of its clip group, whose squares are summed
     * in the order of groups; the norm's is that of clip group 0. */
    void (*norm_sum)(struct eo_device *device, const double *gathered, uint32_t rank_count, const struct eo_step_memory *step);
    /* Each range by the rule, with the numbers of its group; g = gradient * gradient_scale, nothing at all where that is NaN.
     * `ranges` is a host array, valid during the call. */
    void (*update)(struct eo_device *device, enum eo_rule rule, const struct eo_update_range *ranges, uint32_t range_count,
                   const struct eo_step_memory *step);
    /* out[i] = f (x a[i] + y b[i]); b may be NULL, and either may be out. f is 1, or with `squares` the inverse of its root, of
     * a root of 1e-7 at least. */
    void (*combine)(struct eo_device *device, float *out, const float *a, float x, const float *b, float y,
                    const double *squares, uint64_t count);
    /* scalars and norm are read for UPDATE alone. */
    void (*average)(struct eo_device *device, const struct eo_average *average, enum eo_average_mode mode,
                    const struct eo_update_scalars *scalars, const struct eo_norm_result *norm);

    /*
     * Graphs; NULL where the device has none. Between begin and end, what is issued to this device's queues (by this
     * thread) is recorded, not run. The communicator's capture functions (collective.h) wrap these, because ranks of
     * one process may have to be captured together; nothing above calls them directly.
     */
    eo_status (*capture_begin)(struct eo_device *device);
    eo_status (*capture_end)(struct eo_device *device, void **graph);
    eo_status (*graph_launch)(struct eo_device *device, void *graph); /* on the compute queue; does not wait */
    void (*graph_destroy)(struct eo_device *device, void **graph);

    /*
     * Whether `folder` has room for a file of so many bytes for each of `sharers` ranks: at most 80 % of what is free. To be
     * asked by all before one opens. Files that killed jobs have left there are removed first. EO_ERR_INVALID: no such folder,
     * or it lies in memory; EO_ERR_IO: no room; logged. NULL where there is no storage.
     */
    eo_status (*storage_check)(struct eo_device *device, const char *folder, uint64_t bytes, uint32_t sharers);
    /*
     * A file in `folder` for what does not fit into memory, all of it reserved. No name leads to it, so nothing is left of it
     * when the process ends, however it ends (storage_file.h). EO_ERR_IO: the system's error; logged.
     */
    eo_status (*storage_open)(struct eo_device *device, const char *folder, uint64_t bytes, struct eo_storage **out);
    void (*storage_close)(struct eo_device *device, struct eo_storage **storage);
    /* On its queue, on CPUs EO_QUEUE_COPY. A failure is logged, and the queue's. */
    void (*storage_copy)(struct eo_device *device, struct eo_storage *storage, const struct eo_storage_copy *copy);
    /* What failed of it, where, and why; "": nothing. Told from when a wait returns the queue's EO_ERR_IO. NULL: none can. */
    const char *(*storage_failure)(const struct eo_device *device);
    /* A read into host memory, at once, by any thread, beside what is on the queue. EO_ERR_IO: logged. */
    eo_status (*storage_peek)(struct eo_storage *storage, const struct eo_storage_copy *copy);
    /* What the page cache holds of it at most: 0, or EO_STORAGE_CACHE_BYTES of a file that cannot be accessed past it. NULL
     * where storage is no file. */
    uint64_t (*storage_cache_bytes)(const struct eo_storage *storage);

    /* What tells what the devices of this kind ran; NULL, or giving NULL: there is nothing that does. */
    const struct eo_profiler_ops *(*profiler)(void);

    /* An allocator of the dynamic mode by kind, NULL where there is none; NULL itself where C's allocators serve. */
    const struct eo_device_allocator_ops *(*allocator)(const char *kind);
};

/* Picks the backend by name ("cpu"), copies params, calls init. EO_ERR_UNSUPPORTED where it is not built. */
EO_NODISCARD eo_status eo_device_create(struct eo_device **out, const char *name,
                                        const struct eo_device_params *params);
void eo_device_destroy(struct eo_device **device);
/* Whether a device of this name is built in. */
bool eo_device_is_known(const char *name);
/* Whether its memory is the host's. */
bool eo_device_is_host(const char *name);
/* NULL where it is not built. */
const struct eo_profiler_ops *eo_device_profiler(const char *name);

#endif
