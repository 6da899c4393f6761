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
 * A plan has two lists of operations (its schedule): the first step's gathers all weights, a later one's finds some that the
 * step before has gathered for it. Who leaves the schedule, as by an evaluation, has the first step's list next.
 *
 * Positions with `forward_in_backward` have no forward calls in training. A position of a frozen layer has
 * eo_backward_begin and eo_backward_end, and no eo_gradients_begin. Calls out of this order are refused by name.
 *
 * On a GPU the calls issue and return: the trainer launches its kernels on eo_runtime_stream(), weights, gradients and
 * buffers are device memory, and `begin` means that what is launched on that stream from then on finds them valid. On
 * the CPU the compute stream is the calling thread: `begin` blocks, and the pointers may be read and written at once.
 *
 * All calls on a runtime come from one thread, the rank's compute thread. Collective calls (create, steps, weights,
 * sum) must be made by all ranks in the same order; two runtimes of a rank must be stepped in the same order on all
 * ranks. EO_ERR_INVALID and EO_ERR_UNSUPPORTED change nothing; after any other error of a call here the runtime can only be
 * destroyed.
 *
 * No call keeps a pointer to the trainer's data, but for update_user, gradient_user, product_user, parallel.team and recorder,
 * which outlive the runtime: when it returns on this rank, what it was given may be written again or freed, whatever other
 * ranks do. Collectives compute in the floating-point mode (rounding, denormals) of the calling thread.
 */
#ifndef EVENODD_RUNTIME_H
#define EVENODD_RUNTIME_H

#include <evenodd/flight_recorder.h>
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
    EO_MEMORY_DYNAMIC_POOL,   /* the same from a caching pool; on CUDA the driver's (cudaMallocAsync) */
    EO_MEMORY_DYNAMIC_CACHING,/* CUDA: a caching allocator of ours, as PyTorch's is one; on the CPU as the pool */
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

/*
 * One layer's shard, as the trainer's own optimizer sees it. All arrays have `count` elements and lie in device memory.
 * The fp32 master weights are one array, or, in bf16 and static mode, split in two: bits = (high << 16) + low, where
 * high is the bf16 weight, rounded to nearest with ties away from zero. There the weights of a parameter with `fp32` are not
 * split: those of a part are an array of floats at &weights_high[part.at], and weights_low has nothing of them.
 */
typedef struct eo_shard {
    uint32_t layer;
    uint64_t offset;     /* element of the flat layer at which the shard begins */
    uint64_t count;
    float *weights;      /* NULL where they are split */
    uint16_t *weights_high;
    int16_t *weights_low;
    float *gradient;     /* summed over ranks and micro-batches; only the callback `gradient` may change it */
    float *const *state; /* plan.optimizer_states arrays, zero before the first step */
    uint32_t state_count; /* of EO_OPTIMIZER_ADAMW8BIT none are shown: 0; of a layer with Muon's matrices the momentum: 1 */
    float gradient_scale;/* clip factor, weights and loss scale: multiply the gradient by it, where group_scales is NULL */
    uint64_t step;       /* from 1, less those skipped */
    const eo_shard_part *parts; /* the parameters in it, in order; what lies between is padding */
    uint32_t part_count;
    const float *group_scales;  /* NULL, or in a step with several clip groups gradient_scale by group (eo_shard_part.group) */
} eo_shard;

/* C[m][n] = A[m][k] B[k][n], or += with `accumulate`, in fp32 and memory of the device; row-major, a transposed operand as
 * [k][m] or [n][k]. A and B may be one matrix; C is another. */
typedef struct eo_matrix_product {
    float *c;
    const float *a, *b;
    uint64_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
} eo_matrix_product;

typedef struct eo_runtime_params {
    const eo_plan *plan;   /* required; who destroys it before the runtime only gives it up: the runtime keeps it */
    eo_world *world;       /* required; must outlive the runtime; its rank_count is the plan's */
    eo_memory memory;      /* [EO_MEMORY_STATIC] */
    eo_parallel parallel;  /* [the calling thread] for the runtime's own element-wise work */
    void (*update)(void *user, const eo_shard *shard); /* [the plan's optimizer] the trainer's own; on a GPU the host waits
                              for the norm before it is called, and it issues its work to eo_runtime_stream() */
    void *update_user;
    eo_flight_recorder *recorder; /* [none] keeps the timeline where it outlives the process */
    bool place_threads;    /* [false] bind calling and communication thread to cores, memory to their NUMA node */
    bool debug;            /* [false] poison what is dead, refuse views used too late, weights that a pass writes, and (static
                              mode) writes behind a buffer on CPUs, gradients that were not written, beside which something
                              was, or that were overwritten where they are to be added; slow */
    uint64_t delay_seed;   /* [0: none] random delays in both streams, for tests */
    bool graph_times;      /* [false] steps that are graphs tell their operations' times too: a node of the graph a time,
                              and a launch waits until the one before has run and been read. They are there when the
                              step's report was asked for, or the next step has begun */
    bool dynamic_implicit_prefetch; /* [false] dynamic mode: gather i+1 is issued after F(i) as FSDP2's default does,
                              which on a device without run-ahead hides nothing; else one layer ahead, explicitly */
    uint32_t dynamic_reduce_inputs; /* [1] dynamic mode: reduce-scatter inputs in flight (FSDP2's k), at most 64 */
    const eo_log *log;     /* [silence] copied */
    bool zero_gradients;   /* [false] eo_gradients_begin hands gradients out as zeros, for kernels that add: a fill more, of
                              every gradient in every backward pass. Not where a position adds to the gradients of another
                              (eo_position_params.adds_gradients) */
    const char *offload_folder; /* [the current one] for the file of what the plan offloads: on a disk, not in memory (tmpfs);
                              read during create. The file has no name and ends with the process. Not read with GPUs */
    void (*gradient)(void *user, const eo_shard *shard); /* [none] called with each layer's gradient before the optimizer, in
                              skipped steps too: it may read it, or change it. The norm was taken before. Without `update` the
                              host does not wait for the norm: gradient_scale is 0, `step` as far as the host knows. On a GPU
                              it issues its work to eo_runtime_stream(), and what it issues is recorded with a graph */
    void *gradient_user;
    eo_status (*product)(void *user, const eo_matrix_product *product); /* [plain loops, slow; on a GPU required] of
                              EO_OPTIMIZER_MUON, in every step from the first on; on a GPU it issues its work to
                              eo_runtime_stream(), in captures too. Its bits must not depend on the rank; eo_team_product
                              of evenodd/layers.h is one. A failure of it is EO_ERR_DEVICE of the step, and ends all ranks
                              (out of memory: EO_ERR_NO_MEMORY) */
    void *product_user;
    bool dynamic_offload;  /* [false] dynamic mode: shards, gradients and optimizer state lie in the host's memory, as by FSDP2's
                              CPUOffloadPolicy. A shard is copied to the device before each gather, a gradient back after its
                              reduction; the host does the update, by `parallel`. Not with update, gradient or float8
                              gathers. On the CPU the copies are made too, in its own memory */
} eo_runtime_params;
#define eo_runtime_params(...) EO_PARAMS(eo_runtime_params, __VA_ARGS__)

/* Pointers into the fixed buffers, of the plan's dtype (parameters with `fp32`: fp32) and reduce_dtype: weights[k] and
 * gradients[k] belong to the k-th parameter of the layer, in the order of eo_model_add_parameter. gradients is NULL until
 * eo_gradients_begin. Each begins at a multiple of 16 elements of that type (with `fp32`: of the plan's dtype), 32 bytes at
 * least. What lies there at first is arbitrary (with `zero_gradients`: 0); gradients are written, all of them, in every pass. A
 * position with adds_gradients finds those that it adds to, and leaves all others as they are. Valid until the pass ends.
 * Weights are read only: a value written there is lost or becomes the weight, by strategy and number of ranks; change them
 * between steps by eo_weights_write. In static mode a position has the same pointers in every pass, micro-batch, step and
 * evaluation, so a trainer may build its graph on them once; in the dynamic modes they move. */
typedef struct eo_view {
    uint32_t parameter_count;
    void *const *weights;   /* NULL where the pass does not read weights */
    void *const *gradients;
} eo_view;

/* After a step whose gradient norm is not finite, the weights, the optimizer's state and its count of steps are as before. */
typedef enum eo_not_finite {
    EO_STOP, /* it is EO_ERR_NOT_FINITE, and the runtime can only be destroyed */
    EO_SKIP, /* the report says so, and training goes on */
} eo_not_finite;

/* Of one group of parameters in one step. With `update` the clips alone: other fields are refused, as it does not see them. */
typedef struct eo_parameter_group {
    float learning_rate_factor; /* [1] times the step's learning rate */
    float weight_decay;         /* [the step's] 0 for parameters with no_weight_decay */
    float beta1, beta2, eps;    /* [the step's] */
    bool exact;                 /* [false] the numbers above are taken as written, zeros too: so give all of them */
    bool frozen;                /* [false] weights and state stay as they are, and AdamW's count of steps too; the gradients are
                                   computed, and count in the norm */
    uint32_t clip_group;        /* [0] groups with the same one are clipped by the norm that they have together; of 0 `clip` of the
                                   step is the largest. Others need eo_plan_params.norm_parts; below EO_GROUPS_MAX */
    float clip;                 /* [0: off] of a clip_group above 0 the largest norm; in one of its groups, or the same in several */
} eo_parameter_group;

/* The same on all ranks, but for `values` and `weight`; and all ranks have finished as many steps, and made the same fills,
 * writes and loads of weights. Ranks on CPUs that differ in these numbers, in the step's, or in the parameters filled, written or
 * loaded since the step before end with EO_ERR_COMM before the update; NCCL and steps as graphs do not see it, and other values of
 * weights nobody sees. Every number must be finite and not negative,
 * but for `values` and an infinite `clip`; anything else is EO_ERR_INVALID. So is a number other than 0 that the plan's optimizer
 * does not read, of a group too: `momentum` of SGD (it is beta1), `ema_decay` of a plan without `ema`. With a trainer's own `update`
 * the betas, eps and weight_decay are nobody's. */
typedef struct eo_step_params {
    float learning_rate; /* required by the library's optimizers: 0 only with `exact_rate` or `exact`, or where all layers
                            are frozen */
    float beta1;         /* [0.9] below 1; of SGD the momentum */
    float beta2;         /* [0.999; Lion: 0.99; Muon: 0.95] below 1; not of SGD, unless `exact` */
    float eps;           /* [1e-8] of AdamW; of SGD and Lion 0, unless `exact` */
    float weight_decay;  /* [0] decoupled (Loshchilov and Hutter, "Decoupled Weight Decay Regularization"); of SGD a part of the
                            gradient, as in PyTorch's */
    float clip;          /* [0: off] largest global L2 norm of the gradient, less the parameters in a clip_group of their own */
    double values[4];    /* the trainer's own scalars (its loss), summed over the ranks into the report, together with
                            those at eo_step_values() */
    bool exact; /* [false] learning_rate, beta1, beta2 and eps are taken as written, zeros too: so give all of them, for a
                   beta of 0 forgets the gradients of steps before. With an eps of 0 a
                   weight without any gradient so far stays as it is */
    float ema_decay;     /* [0.999] at most 1: the average stays as it is; of a plan with `ema`: average += (1 - decay)
                            (weight - average), after the optimizer. It begins as the weights before the first step */
    eo_not_finite on_not_finite;   /* [EO_STOP] of the gradient norm; the same on all ranks */
    const eo_parameter_group *groups; /* [all as above] by group (eo_parameter_params.group) */
    uint32_t group_count;          /* at most the model's highest group + 1; further groups are as above */
    double weight;       /* [0] this rank's token count in the step. If any rank gives one, write gradients of the summed
                            loss, not scaled by eo_loss_scale; the library divides by the total. A rank without any
                            gives 0; 0 on all ranks: gradients are taken as they are */
    float loss_scale;    /* [1] what the loss was multiplied by, beside: gradients are divided by it, before norm and clipping. The
                            norm counts as infinite where it makes them too large for floats, as does a `weight` below 1 */
    float momentum;      /* [0.95] below 1: of EO_OPTIMIZER_MUON's matrices; all other numbers are AdamW's */
    bool exact_rate; /* [false] a learning_rate of 0 is meant, as at the begin of a warmup: the weights stay, the optimizer's
                        state goes on */
} eo_step_params;
#define eo_step_params(...) EO_PARAMS(eo_step_params, __VA_ARGS__)

/* Of a group of parameters in a step. */
typedef struct eo_group_norm {
    double norm;        /* the L2 norm of its gradient, as gradient_norm is that of all */
    double clip_factor; /* of its clip_group */
} eo_group_norm;

typedef struct eo_step_report {
    double gradient_norm; /* before clipping, over all ranks and parameters */
    double clip_factor;   /* of clip_group 0 */
    double values[4];     /* sums over ranks, in rank order */
    uint64_t step;        /* from 1 */
    bool skipped;         /* the norm is not finite: nothing was changed */
    uint64_t skipped_count; /* of all steps so far, this one included */
    double weight;        /* the sum over the ranks; 0: none was given */
    float loss_scale;     /* the step's */
    const double *layer_norms; /* [norm_parts; else NULL] L2 norms by layer (eo_model_add_layer), before clipping; of frozen
                                  layers 0. Their squares, as those of the groups, add up to that of gradient_norm. The
                                  runtime's memory: holds until the fourth step after this one ends */
    uint32_t layer_count;      /* 0 with NULL */
    uint32_t group_count;      /* the highest in the model + 1; 0 with NULL */
    const eo_group_norm *group_norms; /* by group (eo_parameter_params.group), like them */
    uint64_t done_ns;          /* when these sums were on the host, by the monotonic clock: on a GPU its own time, whenever the
                                  report is asked for. Steps right after each other took the difference */
} eo_step_report;

/*
 * Dynamic loss scaling, as PyTorch's GradScaler: the trainer multiplies its loss by `scale`, gives it as the step's loss_scale,
 * with EO_SKIP, and shows the reports in order. A zeroed struct is complete: fields at 0 get the values in brackets.
 */
typedef struct eo_loss_scaler {
    float scale;              /* [65536] */
    float growth;             /* [2] after `growth_interval` finite steps in a row */
    float backoff;            /* [0.5] after one that is not */
    uint32_t growth_interval; /* [2000] */
    uint32_t finite_steps;    /* since the scale changed, or one was not finite */
} eo_loss_scaler;

typedef enum eo_wait {
    EO_WAIT_ALL_GATHER,     /* compute stood still for weights */
    EO_WAIT_REDUCE_SCATTER, /* ... for a gradient buffer or a reduced gradient */
    EO_WAIT_NORM,           /* ... for the ranks' norm partials */
    EO_WAIT_FETCH,          /* ... for what was offloaded */
    EO_WAIT_COUNT,
} eo_wait;

/* Since create. Differences between two calls give a step's. */
typedef struct eo_runtime_stats {
    uint64_t steps;
    uint64_t arena_bytes;          /* reserved at create (static mode), host memory included */
    uint64_t outside_bytes;        /* of a GPU's memory, that communicators took beside the plan until they had run once; where
                                      ranks share the GPU, also what others took meanwhile */
    uint64_t live_peak_bytes;      /* dynamic mode: asked and not yet freed, at most; static: arena_bytes */
    uint64_t reserved_peak_bytes;  /* dynamic mode: taken from the system, as far as the allocator knows */
    uint64_t allocator_calls;      /* allocations and frees of evenodd */
    uint64_t allocated_bytes;      /* asked, added up */
    uint64_t copied_bytes;         /* dynamic mode: read + written by copies and casts, by FSDP2's count: with the own slice of
                                      each gather and the widening of float8, which static memory has too, and counts nowhere */
    uint64_t cast_bytes;           /* ... what of it were casts */
    uint64_t collective_count;
    uint64_t collective_bytes;     /* full buffers */
    uint64_t wait_ns[EO_WAIT_COUNT]; /* the compute stream's, in steps; of a GPU told a little later; of graphs with graph_times */
    uint64_t host_wait_ns;         /* that callers waited for a GPU, or read times of graphs */
    uint64_t step_ns;              /* from eo_step_begin to the end of eo_step_end, added up: of the calling thread, which a
                                      GPU may be steps behind (eo_step_report.done_ns tells its times) */
    uint64_t storage_bytes;        /* of what is offloaded: read + written */
    uint64_t offload_bytes;        /* room for it: on disk, or in the host's memory */
} eo_runtime_stats;

/* What one operation of the last finished step did. Times are of the monotonic clock; 0: not known yet (on a GPU the
 * device may not have come to it). */
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
 * Compares the plan with all ranks, reserves and prefaults its memory, starts the communication stream, seals. On the
 * device that the world says. Collective. Weights are zero until they are filled.
 *
 * EO_OK
 * EO_ERR_INVALID      a parameter of this rank. Of what can be seen from the parameters alone nothing was begun: create may be
 *                     called again (or eo_world_abort, for the others wait). What is found later is told to the others
 * EO_ERR_NO_MEMORY    logged: needed, by how many ranks that share it, and available
 * EO_ERR_COMM         a rank has another plan, or could not create its runtime: logged
 * EO_ERR_TIMEOUT, EO_ERR_DEVICE
 * EO_ERR_UNSUPPORTED  the device, or the memory mode on it
 */
#define eo_runtime_create EO_OF_API(eo_runtime_create)
EO_EXPORT EO_NODISCARD eo_status eo_runtime_create(eo_runtime **out, const eo_runtime_params *params);

/* Waits for the streams, gives all memory back, writes NULL. Not collective. While it has a saver: logged, and nothing done. */
EO_EXPORT void eo_runtime_destroy(eo_runtime **runtime);

/* The text of the last failed call; "" if there was none. Lives until the next failed call. */
EO_EXPORT const char *eo_runtime_error(const eo_runtime *runtime);

/*
 * The step. None of these allocates (static mode). The begin calls wait for the communication stream, the end calls
 * do not, but for eo_step_end, which runs the optimizer. EO_ERR_INVALID: out of order, logged by name, nothing
 * changed. EO_ERR_COMM, EO_ERR_TIMEOUT: a rank is lost or disagrees.
 *
 * A gradient norm that is not finite leaves the weights as they are, and is EO_ERR_NOT_FINITE of eo_step_end, unless
 * on_not_finite says EO_SKIP. With report NULL on a GPU, a bad norm is reported two steps later, by eo_step_begin on all
 * ranks; a device failure by any later call.
 */
EO_EXPORT EO_NODISCARD eo_status eo_step_begin(eo_runtime *runtime);
EO_EXPORT EO_NODISCARD eo_status eo_forward_begin(eo_runtime *runtime, uint32_t position, const eo_view **view);
EO_EXPORT EO_NODISCARD eo_status eo_forward_end(eo_runtime *runtime, uint32_t position);
EO_EXPORT EO_NODISCARD eo_status eo_backward_begin(eo_runtime *runtime, uint32_t position, const eo_view **view);
EO_EXPORT EO_NODISCARD eo_status eo_gradients_begin(eo_runtime *runtime, uint32_t position, const eo_view **view);
EO_EXPORT EO_NODISCARD eo_status eo_backward_end(eo_runtime *runtime, uint32_t position);
/* All passes of the next micro-batch with gradients of zero, for a rank that has no data for it: the other ranks need not
 * know. At the begin of a micro-batch. A step may have fewer micro-batches than were planned in this way; eo_loss_scale stays
 * what it is, so give each rank's `weight`. */
EO_EXPORT EO_NODISCARD eo_status eo_micro_batch_skip(eo_runtime *runtime);
EO_EXPORT EO_NODISCARD eo_status eo_step_end_sized(eo_runtime *runtime, const eo_step_params *params, eo_step_report *report,
                                             size_t report_bytes);
EO_CALLER EO_NODISCARD eo_status eo_step_end(eo_runtime *runtime, const eo_step_params *params, eo_step_report *report)
{
    return eo_step_end_sized(runtime, params, report, sizeof(*report));
}

/*
 * Whole steps as one graph, where the device has graphs. After eo_step_capture the next step (eo_step_begin ...
 * eo_step_end, the trainer's kernels on eo_runtime_stream() included) is recorded instead of run, and run once as a graph
 * by its eo_step_end; eo_step_replay runs it again, a whole step in one call. Static mode, with the runtime's own
 * optimizer. Collective.
 *
 * What a step reads from the host must be in device memory before it begins: use eo_runtime_upload between steps, into
 * a persistent buffer, and eo_step_values() for the loss. Refused for the first step after create,
 * an evaluation, a weights call (or, with late updates, a save). Run one ordinary step first. Ordinary steps may come between; they end in the same bits.
 *
 * EO_ERR_INVALID      out of order, or the step before was not of the schedule: logged, nothing changed. Of eo_step_begin
 *                     after eo_step_capture: an evaluation, eo_sum or weights came between; nothing will be recorded, and
 *                     the same step may be run in the ordinary way
 * EO_ERR_UNSUPPORTED  this device, mode or optimizer has no graphs, or the step could not be recorded: logged, nothing
 *                     was run; the same step may be run in the ordinary way
 */
EO_EXPORT EO_NODISCARD eo_status eo_step_capture(eo_runtime *runtime);
EO_EXPORT EO_NODISCARD eo_status eo_step_replay_sized(eo_runtime *runtime, const eo_step_params *params, eo_step_report *report,
                                             size_t report_bytes);
EO_CALLER EO_NODISCARD eo_status eo_step_replay(eo_runtime *runtime, const eo_step_params *params, eo_step_report *report)
{
    return eo_step_replay_sized(runtime, params, report, sizeof(*report));
}

/*
 * The report of one of the last four steps, which need not have been asked for when it ended: so a trainer runs ahead of a
 * GPU and learns the losses of all steps a little later. Waits for that step. Between steps only.
 *
 * EO_ERR_INVALID     another step, or during a step
 * EO_ERR_NOT_FINITE  as of eo_step_end; EO_ERR_COMM, EO_ERR_TIMEOUT, EO_ERR_DEVICE
 */
EO_EXPORT EO_NODISCARD eo_status eo_runtime_get_report_sized(eo_runtime *runtime, uint64_t step, eo_step_report *report,
                                                             size_t report_bytes);
EO_CALLER EO_NODISCARD eo_status eo_runtime_get_report(eo_runtime *runtime, uint64_t step, eo_step_report *report)
{
    return eo_runtime_get_report_sized(runtime, step, report, sizeof(*report));
}

/* Four doubles in device memory, zero at eo_step_begin, for the trainer's kernels to add to (its loss): summed over
 * the ranks into report.values together with step_params.values. */
EO_EXPORT double *eo_step_values(const eo_runtime *runtime);

/* What the ranks compute on ("cpu", "cuda"), and the compute stream as its own type (a cudaStream_t; NULL on the CPU). */
EO_EXPORT const char *eo_runtime_device(const eo_runtime *runtime);
/* The rank that it is of. */
EO_EXPORT uint32_t eo_runtime_rank(const eo_runtime *runtime);
EO_EXPORT const eo_plan *eo_runtime_plan(const eo_runtime *runtime); /* what it was created with */
EO_EXPORT void *eo_runtime_stream(const eo_runtime *runtime);

/*
 * Small data between the host's ordinary memory and device memory, through pinned memory, in the order of the compute
 * stream. upload: `from` may be written again when it returns; it waits for nothing but room. download: waits until the
 * data is there. Not while a step is being recorded. EO_ERR_INVALID, EO_ERR_DEVICE, EO_ERR_COMM, EO_ERR_TIMEOUT.
 */
EO_EXPORT EO_NODISCARD eo_status eo_runtime_upload(eo_runtime *runtime, void *to, const void *from, uint64_t bytes);
EO_EXPORT EO_NODISCARD eo_status eo_runtime_download(eo_runtime *runtime, void *to, const void *from,
                                                     uint64_t bytes);

/* Takes what a report says into account; NULL: only fills in what is 0. A report of an earlier scale, read late, changes
 * nothing. Every rank that does so with the same reports has the same scale. */
EO_EXPORT void eo_loss_scaler_update(eo_loss_scaler *scaler, const eo_step_report *report);

/* What the trainer multiplies its local mean loss by, so that the gradients are those of the global batch's mean. */
EO_EXPORT float eo_loss_scale(const eo_runtime *runtime); /* 1 / (ranks x micro-batches) */

/*
 * Forward only, over the same shards: eo_forward_begin / eo_forward_end for every position in order (those with
 * `forward_in_backward` too) between these two. Between steps only; the next step gathers all weights anew: a little slower,
 * same bits, and it cannot be captured.
 */
EO_EXPORT EO_NODISCARD eo_status eo_evaluation_begin(eo_runtime *runtime);
EO_EXPORT EO_NODISCARD eo_status eo_evaluation_end(eo_runtime *runtime);

/*
 * Gradients of inputs alone, through a network that does not learn from them (a GAN's discriminator): the passes of one
 * micro-batch between these two, in the order of a step and with its buffers. Weights are gathered, and nothing is reduced:
 * eo_gradients_begin hands out a NULL for every gradient. Weights, optimizer state and the count of steps stay as they are.
 * Between steps only, as an evaluation; a model of frozen layers alone needs no more than ordinary steps. EO_ERR_INVALID, too:
 * the plan has no `input_gradients`.
 */
EO_EXPORT EO_NODISCARD eo_status eo_input_gradients_begin(eo_runtime *runtime);
EO_EXPORT EO_NODISCARD eo_status eo_input_gradients_end(eo_runtime *runtime);

/* A buffer the trainer had placed. Valid during its lifetime; in dynamic mode it moves from use to use, so ask in
 * every pass. In debug mode a buffer that is not live is refused: logged, NULL. */
EO_EXPORT void *eo_buffer(const eo_runtime *runtime, uint32_t buffer);

/* In debug mode, whether the view's pass has ended; always false else. */
EO_EXPORT bool eo_view_is_stale(const eo_runtime *runtime, const eo_view *view);

/* One weight or gradient of a view by its place in the layer; in debug mode NULL, logged, when the pass has ended. */
EO_EXPORT void *eo_view_weight(const eo_runtime *runtime, const eo_view *view, uint32_t index);
EO_EXPORT void *eo_view_gradient(const eo_runtime *runtime, const eo_view *view, uint32_t index);

/* Sums values over the ranks in rank order, on all ranks. Collective, between steps or evaluations. Any count,
 * the same on all ranks; each six are a collective of their own: for losses, flags and running means, not for weights. */
EO_EXPORT EO_NODISCARD eo_status eo_sum(eo_runtime *runtime, double *values, uint32_t count);

/*
 * Weights outside the schedule; between steps only; the streams are drained, and the next step gathers all
 * weights anew, as after an evaluation. No rank ever holds more than one layer.
 *
 * fill    each rank fills its own shards: produce() writes elements [offset, offset + count) of the parameter, in one
 *         call or in several for consecutive parts; `values` is host memory. Every rank must call it before the next step:
 *         the first such call after a step waits for all ranks, the next ones for none. Optimizer state is left alone.
 * visit   gathers layer after layer and calls back for each parameter in model order (frozen ones after the trainable ones of
 *         their layer) with its full values, in host memory that lives during the call. Collective.
 * read    full values of one parameter into the trainer's own buffer (NULL: this rank does not want it). Collective.
 * write   full values of one parameter, given on every rank. Called as fill is.
 *
 * Values are always the fp32 master weights. In bf16 too: both halves are gathered, so what is read and written again
 * loses nothing (a frozen layer has no low half: its weights are rounded when they are filled). Where the values are
 * not in host memory as they are, visit and read take room for one layer: on the CPU, in static mode, memory that passes
 * use, if it suffices; else it is allocated during the call.
 *
 * produce and visit make no step, evaluation, sum, report, checkpoint or weights call on this runtime, and do not destroy it: refused
 * by name, with EO_ERR_INVALID or in the log.
 *
 * A negative status of produce or visit is that of the call, on this rank alone: it is not called again, the runtime goes on,
 * and nobody waits. Of the parameter being filled a part is then filled. Agree with the other ranks (eo_sum), or
 * eo_world_abort.
 */
EO_EXPORT EO_NODISCARD eo_status eo_weights_fill(eo_runtime *runtime, uint32_t parameter,
                                                 eo_status (*produce)(void *user, uint64_t offset, uint64_t count,
                                                                      float *values),
                                                 void *user);
EO_EXPORT EO_NODISCARD eo_status eo_weights_visit(
    eo_runtime *runtime, eo_status (*visit)(void *user, const eo_parameter_info *parameter, const float *values), void *user);
EO_EXPORT EO_NODISCARD eo_status eo_weights_read(eo_runtime *runtime, const char *name, float *values);
EO_EXPORT EO_NODISCARD eo_status eo_weights_write(eo_runtime *runtime, const char *name, const float *values);

/*
 * Weights and their average change places, on all ranks, and at the next call back: what is evaluated, visited and read
 * in between is the average. Nothing is rounded, so the weights come back bit by bit. Frozen layers have no average.
 * Collective, between steps; the next step gathers all weights anew, as after an evaluation. Until they are back, steps, saves and writes of
 * weights are refused. EO_ERR_INVALID: the plan has no `ema`, or during a step.
 */
EO_EXPORT EO_NODISCARD eo_status eo_weights_swap_ema(eo_runtime *runtime);

EO_EXPORT void eo_runtime_get_stats_sized(const eo_runtime *runtime, eo_runtime_stats *out, size_t out_bytes);
EO_CALLER void eo_runtime_get_stats(const eo_runtime *runtime, eo_runtime_stats *out)
{
    eo_runtime_get_stats_sized(runtime, out, sizeof(*out));
}

/* The last step's whose collectives have all ended (as a rule the last but one), in order of issue; at most `capacity`
 * are copied, their number returned. Of a step that was a graph without graph_times nothing is known: 0. */
EO_EXPORT uint32_t eo_runtime_timeline_sized(const eo_runtime *runtime, eo_timeline_record *records, uint32_t capacity,
                                             size_t record_bytes);
EO_CALLER uint32_t eo_runtime_timeline(const eo_runtime *runtime, eo_timeline_record *records, uint32_t capacity)
{
    return eo_runtime_timeline_sized(runtime, records, capacity, sizeof(*records));
}

/* All steps that are still in the ring, as Chrome / Perfetto trace JSON; process id = rank, thread = stream. */
EO_EXPORT void eo_runtime_write_trace(const eo_runtime *runtime, eo_write_fn write, void *user);

/* How fast what is offloaded would be read and written in a folder, in bytes a second, on the CPU; NULL: the current one. Takes
 * 96 MiB of disk and of memory during the call, and a fraction of a second. Errors as of eo_runtime_create, logged. */
EO_EXPORT EO_NODISCARD eo_status eo_storage_measure(const char *folder, const eo_log *log, double *bytes_per_s);
/* What the page cache holds at most of a rank's offloaded bytes in a folder: 0 where the file system has direct access. It
 * comes on top of the rank's arena. Errors as above. */
EO_EXPORT EO_NODISCARD eo_status eo_storage_cache_bytes(const char *folder, const eo_log *log, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
