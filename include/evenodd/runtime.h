/* SPDX-License-Identifier: MIT
 *
 * The runtime: plan + world -> reserved memory and streams, then step after step of the plan's list.
 *
 *     eo_step_begin
 *       for each micro-batch
 *         for p = 0 ... P-1:   eo_forward_begin(p), the trainer's kernels, eo_forward_end(p)
 *         for p = P-1 ... 0:   eo_backward_begin(p)  (weights valid: recompute, first products)
 *                              eo_gradients_begin(p) (gradient buffer free: write gradients)
 *                              eo_backward_end(p)
 *     eo_step_end                clip by global norm, AdamW
 *
 * Positions with `forward_in_backward` have no forward calls in training. A position of a frozen layer has
 * eo_backward_begin and eo_backward_end, and no eo_gradients_begin. Calls out of this order are refused by name.
 *
 * All calls on a runtime come from one thread, the rank's compute thread. Collective calls (create, steps, weights,
 * sum) must be made by all ranks in the same order; two runtimes of a rank must be stepped in the same order on all
 * ranks. After an error other than EO_ERR_INVALID the runtime can only be destroyed.
 */
#ifndef EVENODD_RUNTIME_H
#define EVENODD_RUNTIME_H

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/model.h>
#include <evenodd/plan.h>
#include <evenodd/status.h>
#include <evenodd/world.h>

typedef struct eo_runtime eo_runtime;

typedef enum eo_memory {
    EO_MEMORY_STATIC,         /* everything placed before the first step */
    EO_MEMORY_DYNAMIC_MALLOC, /* the baseline: FSDP2's behaviour, from the system's allocator */
    EO_MEMORY_DYNAMIC_POOL,   /* the same from a caching pool */
} eo_memory;

/*
 * Runs task(arg, i) for i = 0 ... count-1 on the trainer's threads and returns when all are done. Which thread runs
 * which i does not change results.
 */
typedef struct eo_parallel {
    void (*run)(void *team, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg);
    void *team;
    uint32_t thread_count; /* [1] */
} eo_parallel;

/* One layer's shard, as the trainer's own optimizer sees it. All arrays have `count` elements. */
typedef struct eo_shard {
    uint32_t layer;
    uint64_t offset;     /* element of the flat layer at which the shard begins */
    uint64_t count;
    float *weights;      /* fp32 master weights */
    const float *gradient;
    float *const *state; /* plan.optimizer_states arrays, zero before the first step */
    uint32_t state_count;
    float gradient_scale;/* the clip factor: multiply the gradient by it */
    uint64_t step;       /* from 1 */
} eo_shard;

typedef struct eo_runtime_params {
    const eo_plan *plan;   /* required; must outlive the runtime */
    eo_world *world;       /* required; must outlive the runtime; its rank_count is the plan's */
    eo_memory memory;      /* [EO_MEMORY_STATIC] */
    eo_parallel parallel;  /* [the calling thread] for the runtime's own element-wise work */
    void (*update)(void *user, const eo_shard *shard); /* [AdamW] the trainer's own optimizer */
    void *update_user;
    bool place_threads;    /* [false] bind calling and communication thread to cores, memory to their NUMA node */
    bool debug;            /* [false] poison what is dead, refuse views used too late; slow */
    uint64_t delay_seed;   /* [0: none] random delays in both streams, for tests */
    bool dynamic_implicit_prefetch; /* [false] dynamic mode: gather i+1 is issued after F(i) as FSDP2's default does,
                              which on a device without run-ahead hides nothing; else one layer ahead, explicitly */
    uint32_t dynamic_reduce_inputs; /* [1] dynamic mode: reduce-scatter inputs in flight (FSDP2's k) */
    const eo_log *log;     /* [silence] copied */
} eo_runtime_params;

/* Pointers into the fixed buffers: weights[k] and gradients[k] belong to the k-th parameter of the layer, in the
 * order of eo_model_add_parameter. gradients is NULL until eo_gradients_begin. Valid until the pass ends. */
typedef struct eo_view {
    uint32_t parameter_count;
    void *const *weights;   /* NULL where the pass does not read weights */
    void *const *gradients;
} eo_view;

typedef struct eo_step_params {
    float learning_rate; /* required by AdamW */
    float beta1;         /* [0.9] */
    float beta2;         /* [0.999] */
    float eps;           /* [1e-8] */
    float weight_decay;  /* [0] decoupled (Loshchilov and Hutter, "Decoupled Weight Decay Regularization") */
    float clip;          /* [0: off] largest global L2 norm of the gradient */
    double values[4];    /* the trainer's own scalars (its loss), summed over the ranks into the report */
} eo_step_params;

typedef struct eo_step_report {
    double gradient_norm; /* before clipping, over all ranks and parameters */
    double clip_factor;
    double values[4];     /* sums over ranks, in rank order */
    uint64_t step;        /* from 1 */
} eo_step_report;

typedef enum eo_wait {
    EO_WAIT_ALL_GATHER,     /* compute stood still for weights */
    EO_WAIT_REDUCE_SCATTER, /* ... for a gradient buffer or a reduced gradient */
    EO_WAIT_NORM,           /* ... for the ranks' norm partials */
    EO_WAIT_COUNT,
} eo_wait;

/* Since create. Differences between two calls give a step's. */
typedef struct eo_runtime_stats {
    uint64_t steps;
    uint64_t arena_bytes;          /* reserved at create (static mode) */
    uint64_t live_peak_bytes;      /* dynamic mode: asked and not yet freed, at most; static: arena_bytes */
    uint64_t reserved_peak_bytes;  /* dynamic mode: taken from the system, as far as the allocator knows */
    uint64_t allocator_calls;      /* allocations and frees of evenodd */
    uint64_t allocated_bytes;      /* asked, added up */
    uint64_t copied_bytes;         /* read + written by copies that the static mode does not have */
    uint64_t collective_count;
    uint64_t collective_bytes;     /* full buffers */
    uint64_t wait_ns[EO_WAIT_COUNT];
    uint64_t step_ns;              /* from eo_step_begin to the end of eo_step_end, added up */
} eo_runtime_stats;

/* What one operation of the last finished step did. Times are of the monotonic clock. */
typedef struct eo_timeline_record {
    uint32_t operation;  /* of the list that was run */
    eo_operation_kind kind;
    eo_stream_id stream;
    const char *name;    /* lives as long as the runtime */
    uint64_t ready_ns;   /* its stream came to it: issued (collectives) or asked for (passes) */
    uint64_t start_ns;   /* its waits were over; of a collective, all ranks had entered */
    uint64_t end_ns;
    uint64_t live_bytes; /* at its end, dynamic mode */
} eo_timeline_record;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Compares the plan with all ranks, reserves and prefaults its memory, starts the communication stream, seals.
 * Collective. Weights are zero until they are filled. EO_OK, EO_ERR_INVALID, EO_ERR_NO_MEMORY (logged: needed and
 * available), EO_ERR_COMM (a rank has another plan: logged), EO_ERR_UNSUPPORTED (bf16 on this device).
 */
#define eo_runtime_create EO_PASTE(eo_runtime_create_api, EO_API) /* other headers: link error */
EO_EXPORT EO_NODISCARD eo_status eo_runtime_create(eo_runtime **out, const eo_runtime_params *params);

/* Waits for the streams, gives all memory back, writes NULL. Not collective. */
EO_EXPORT void eo_runtime_destroy(eo_runtime **runtime);

/* The text of the last failed call; "" if there was none. Lives until the next failed call. */
EO_EXPORT const char *eo_runtime_error(const eo_runtime *runtime);

/*
 * The step. None of these allocates (static mode). The begin calls wait for the communication stream, the end calls
 * do not, but for eo_step_end, which runs the optimizer. EO_ERR_INVALID: out of order, logged by name, nothing
 * changed. EO_ERR_COMM, EO_ERR_TIMEOUT: a rank is lost or disagrees.
 */
EO_EXPORT EO_NODISCARD eo_status eo_step_begin(eo_runtime *runtime);
EO_EXPORT EO_NODISCARD eo_status eo_forward_begin(eo_runtime *runtime, uint32_t position, const eo_view **view);
EO_EXPORT EO_NODISCARD eo_status eo_forward_end(eo_runtime *runtime, uint32_t position);
EO_EXPORT EO_NODISCARD eo_status eo_backward_begin(eo_runtime *runtime, uint32_t position, const eo_view **view);
EO_EXPORT EO_NODISCARD eo_status eo_gradients_begin(eo_runtime *runtime, uint32_t position, const eo_view **view);
EO_EXPORT EO_NODISCARD eo_status eo_backward_end(eo_runtime *runtime, uint32_t position);
EO_EXPORT EO_NODISCARD eo_status eo_step_end(eo_runtime *runtime, const eo_step_params *params,
                                             eo_step_report *report);

/* What the trainer multiplies its local mean loss by, so that the gradients are those of the global batch's mean. */
EO_EXPORT float eo_loss_scale(const eo_runtime *runtime); /* 1 / (ranks x micro-batches) */

/*
 * Forward only, over the same shards: eo_forward_begin / eo_forward_end for every position in order (those with
 * `forward_in_backward` too) between these two. Between steps only; the next step runs the first-step list.
 */
EO_EXPORT EO_NODISCARD eo_status eo_evaluation_begin(eo_runtime *runtime);
EO_EXPORT EO_NODISCARD eo_status eo_evaluation_end(eo_runtime *runtime);

/* A buffer the trainer had placed. Valid during its lifetime; in dynamic mode it moves from use to use, so ask in
 * every pass. In debug mode a buffer that is not live is refused: logged, NULL. */
EO_EXPORT void *eo_buffer(const eo_runtime *runtime, uint32_t buffer);

/* In debug mode, whether the view's pass has ended; always false else. */
EO_EXPORT bool eo_view_is_stale(const eo_runtime *runtime, const eo_view *view);

/* One weight or gradient of a view by its place in the layer; in debug mode NULL, logged, when the pass has ended. */
EO_EXPORT void *eo_view_weight(const eo_runtime *runtime, const eo_view *view, uint32_t index);
EO_EXPORT void *eo_view_gradient(const eo_runtime *runtime, const eo_view *view, uint32_t index);

/* Sums values over the ranks in rank order, on all ranks. Collective, between steps or evaluations. count <= 16. */
EO_EXPORT EO_NODISCARD eo_status eo_sum(eo_runtime *runtime, double *values, uint32_t count);

/*
 * Weights outside the schedule; between steps only; the streams are drained, and the next step runs the first-step
 * list. No rank ever holds more than one layer.
 *
 * fill    each rank fills its own shards: produce() writes elements [offset, offset + count) of the parameter. Not
 *         collective, but all ranks must do it. Optimizer state is left alone.
 * visit   gathers layer after layer and calls back for each parameter in model order with its full fp32 (or bf16)
 *         values, which live during the call. Collective.
 * read    full fp32 values of one parameter into the trainer's own buffer (NULL: this rank does not want it).
 *         Collective.
 * write   full fp32 values of one parameter, given on every rank. Not collective, but all ranks must do it.
 */
EO_EXPORT EO_NODISCARD eo_status eo_weights_fill(eo_runtime *runtime, uint32_t parameter,
                                                 void (*produce)(void *user, uint64_t offset, uint64_t count,
                                                                 float *values),
                                                 void *user);
EO_EXPORT EO_NODISCARD eo_status eo_weights_visit(eo_runtime *runtime,
                                                  void (*visit)(void *user, const eo_parameter_info *parameter,
                                                                const float *values),
                                                  void *user);
EO_EXPORT EO_NODISCARD eo_status eo_weights_read(eo_runtime *runtime, const char *name, float *values);
EO_EXPORT EO_NODISCARD eo_status eo_weights_write(eo_runtime *runtime, const char *name, const float *values);

EO_EXPORT void eo_runtime_get_stats(const eo_runtime *runtime, eo_runtime_stats *out);

/* The last finished step's operations, in order of issue; at most `capacity` are copied, their number returned. */
EO_EXPORT uint32_t eo_runtime_timeline(const eo_runtime *runtime, eo_timeline_record *records, uint32_t capacity);

/* All steps that are still in the ring, as Chrome / Perfetto trace JSON; process id = rank, thread = stream. */
EO_EXPORT void eo_runtime_write_trace(const eo_runtime *runtime, eo_write_fn write, void *user);

#ifdef __cplusplus
}
#endif

#endif
