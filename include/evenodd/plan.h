/* SPDX-License-Identifier: MIT
 *
 * A plan: memory map, schedule and proof, a pure function of (model, settings). It needs no device and no world, and
 * is equal on all ranks. The runtime reserves exactly what it says and runs exactly what it lists.
 */
#ifndef EVENODD_PLAN_H
#define EVENODD_PLAN_H

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/model.h>
#include <evenodd/status.h>

typedef struct eo_plan eo_plan;

#define EO_NO_STATE UINT32_MAX

/*
 * What of a layer lies on a rank in parts, and what as a whole. Gradients are the global batch's in any case, and so is
 * the result, up to the order of sums.
 *
 *              weights                         gradients                               optimizer state
 *     zero3    parts, gathered for each use    parts, reduced in every micro-batch     parts
 *     hsdp     as zero3 within groups of `shard_group` consecutive ranks; the groups are replicas, and all-reduce
 *              their parts once a step
 *     zero2    whole, gathered once a step     parts, reduced in every micro-batch     parts
 *     zero1    whole, gathered once a step     whole, reduced once a step              parts
 *     ddp      whole                           whole, all-reduced once a step          whole
 */
typedef enum eo_strategy {
    EO_STRATEGY_ZERO3,
    EO_STRATEGY_ZERO2,
    EO_STRATEGY_ZERO1,
    EO_STRATEGY_DDP,
    EO_STRATEGY_HSDP,
    EO_STRATEGY_COUNT,
} eo_strategy;

typedef struct eo_plan_params {
    uint32_t rank_count;      /* [1] of the world */
    eo_strategy strategy;     /* [EO_STRATEGY_ZERO3] */
    uint32_t shard_group;     /* required by hsdp, where it divides rank_count: ranks that hold one copy in parts. In a
                                 summary: of any strategy (ddp: 1) */
    uint32_t micro_batches;   /* [1] a step */
    uint32_t gather_slots;    /* [2] gather buffers for body layers (all but a first and a last of their own size), by
                                 position modulo this */
    uint32_t gradient_slots;  /* [2] likewise */
    eo_dtype dtype;           /* [EO_DTYPE_FP32] of gathered weights; master weights stay fp32, in bf16 as two halves */
    eo_dtype reduce_dtype;    /* [EO_DTYPE_FP32] of gradient buffers and their reduction, which sums in fp32. Gradients that
                                 were added up before are fp32 and reduced as such: of ddp, of zero1 with several
                                 contributions to a layer, and of hsdp over the replicas */
    uint32_t optimizer_states; /* [the optimizer's] arrays of state a parameter, in fp32 but for EO_OPTIMIZER_ADAMW8BIT;
                                  EO_NO_STATE: none, not with EO_OPTIMIZER_MUON. Other numbers are for the trainer's own
                                  optimizer (eo_runtime_params.update) */
    uint32_t align_bytes;     /* [256] of every row, and the unit of a shard; a power of two, 64 at least */
    bool no_prefetch;         /* [false] gathers stand directly before their use: to see what prefetch is worth */
    bool separate_reduce_stream; /* [false] reduce-scatters on a communication stream of their own */
    bool separate_reservations; /* [false] gather and gradient memory in a reservation each, for devices that register
                                   them with different communicators; larger where embedding and head are large */
    const eo_log *log;          /* [the model's] used during the call */
    uint32_t offload_layers;  /* [0] trainable layers whose optimizer state, and in bf16 the low halves of the master weights,
                                 lie in EO_SPACE_DISK between their updates: the last ones in the order of updates;
                                 UINT32_MAX for all. Changes no bit */
    uint32_t offload_slots;   /* [2] buffers through which they come and go: as many layers may be in memory at a time */
    bool float8_gather;       /* [false] all-gathers carry parameters with float8_gather in float8 (e4m3), with a scale for
                                 each rank's part of a parameter: about half the bytes. What is gathered is widened before
                                 its use, so weights computed with are bf16 with four significant bits; master weights stay
                                 as they are. Needs dtype bf16 and groups of several ranks. The parts, and so the roundings,
                                 depend on the number of ranks */
    bool offload_gradients;   /* [false] with offload_layers: their gradient shards lie on the disk too, between reduction and
                                 update. Only of layers that are used once, with one micro-batch; not where replicas reduce in
                                 bf16. The layers updated first keep theirs in memory: their buffers are fetched earlier */
    bool ema;                    /* [false] an exponential moving average of the trainable weights: one fp32 array more a
                                    parameter, a rank's part of each layer beside its optimizer state. Updated with the weights
                                    (eo_step_params.ema_decay), saved and resharded with them; see eo_weights_swap_ema */
    bool norms_beside;        /* [false] sums of squares of gradient shards are taken on the stream of reductions, beside backward
                                 passes: for a GPU. Those that an accumulate takes along stay with it. Changes no bit */
    uint32_t gather_run;      /* [1] neighbouring positions between embedding and head that one all-gather brings, where they need
                                 one: fewer collectives of more bytes. There are gather_slots * gather_run buffers, 64 at most.
                                 Changes no bit */
    uint32_t gradient_run;    /* [1] and as many whose gradients are reduced by one, with gradient_slots * gradient_run buffers;
                                 not of gradients that are added up whole */
    eo_optimizer optimizer;      /* [EO_OPTIMIZER_ADAMW] the library's, whose state is planned. Checkpoints have its name */
    uint32_t offload_activations; /* [0] positions whose `saved` buffers lie in EO_SPACE_DISK between their forward and backward
                                     passes: the first ones that have any; UINT32_MAX for all. They share two sets of buffers,
                                     and the last two stay in these. Changes no bit */
    bool norm_parts;             /* [false] steps report gradient norms by layer and by group of parameters, and groups may be clipped
                                    apart (eo_parameter_group.clip_group). The sums come with those of the norm; layers with
                                    several groups read their gradient once more for them. Changes no bit */
    bool late_updates;           /* [false] with offload_layers: these layers are updated in the forward passes of the next step, each
                                    before its weights are needed, so that their way to and from the disk has these passes to
                                    hide behind. Their gradients stay until then. Evaluations, checkpoints, weights calls and
                                    the average's first make the updates that are left. Not with no_prefetch, and not with a
                                    trainer's own optimizer. Changes no bit */
    bool float8_frozen;          /* [false] frozen parameters with float8_gather lie on their ranks in MXFP8: float8 (e4m3), with a
                                    power of two for each 32 elements in C order, 33 bytes in all. They are gathered so, and
                                    widened to `dtype` before their use; there is no other copy. eo_weights_fill and checkpoints
                                    that are loaded round to it, all that reads weights gets what was rounded. The bits are those
                                    of any number of ranks. In static memory. Not with float8_gather */
    bool draft;                  /* [false] a plan to compare with many others, made several times as fast: rows are placed in one
                                    pass, so the arena may be a few percent larger than without, rows and operations have no
                                    names, and the schedule is not proven. All else is the same, the lower bound included. No runtime takes it */
    bool input_gradients; /* [false] the plan has a list for gradients of inputs alone (eo_input_gradients_begin), and memory
                             for it: a step's, as a rule. Changes no bit */
    bool gradients_apart; /* [false] positions with adds_gradients begin with zeros, in a buffer of their own that is reduced
                             for itself: one more reduction for each, and where few activations are kept a smaller peak, for no
                             buffer is held from one use to the other. Sums are rounded in another order */
    bool separate_evict_stream; /* [false] evictions on a stream of their own, so that copies from and to the host run at one
                                   time: for a GPU, whose link carries both ways. On CPUs one thread makes all copies, in the
                                   order of the list. Changes no bit */
} eo_plan_params;
#define eo_plan_params(...) EO_PARAMS(eo_plan_params, __VA_ARGS__)

/* Where a row lies. One reservation each; a row of PRIVATE may be placed in a reservation for communication. */
typedef enum eo_space {
    EO_SPACE_GATHER,   /* communication memory: gather buffers and compute-dtype shards; and, unless
                          `separate_reservations`, what is reduced as well */
    EO_SPACE_GRADIENT, /* communication memory for reductions, where it is separate: gradient buffers and shards */
    EO_SPACE_PRIVATE,  /* memory that no peer reads */
    EO_SPACE_HOST,     /* host memory that the device copies from and to (pinned on a GPU): small, of the runtime's own */
    EO_SPACE_DISK,     /* a file in the runtime's offload_folder; with GPUs pinned memory of the host */
    EO_SPACE_COUNT,
} eo_space;

typedef struct eo_plan_summary {
    uint64_t element_count;            /* parameters of the model */
    uint64_t arena_bytes;              /* the sum of the reservations of one rank, disk apart; less space_bytes[EO_SPACE_HOST] it
                                          is what lies in device memory */
    uint64_t space_bytes[EO_SPACE_COUNT];
    uint64_t lower_bound_bytes;        /* the largest sum of bytes live at one time of a step: no placement can be smaller. A
                                          forward-only run may need more where a head is not the last position */
    uint64_t category_bytes[EO_CATEGORY_COUNT]; /* rows added up; rows that share addresses are each counted */
    uint64_t category_bytes_at_peak[EO_CATEGORY_COUNT]; /* what is live when most of a step is: sums to the lower bound */
    uint32_t row_count;
    uint32_t operation_count;          /* of the steady list */
    uint64_t fingerprint;              /* of model, settings, map and schedule: compared by all ranks */
    eo_plan_params params;             /* with the defaults filled in; log is NULL. Last, for it may grow */
} eo_plan_summary;

/* A row of the memory map. */
typedef struct eo_plan_row {
    const char *name;    /* no other row has it; a trainer's buffer is called as it was added, unless that was taken */
    eo_category category;
    eo_space space;      /* the reservation it lies in */
    uint64_t offset;     /* in that reservation, the same on every rank */
    uint64_t bytes;
    bool always_live;
    char first[EO_NAME_MAX * 2]; /* the operations of its first and last use, as text */
    char last[EO_NAME_MAX * 2];
} eo_plan_row;

typedef enum eo_list {
    EO_LIST_FIRST,   /* the first step, and every step after the schedule was left */
    EO_LIST_STEADY,  /* repeats */
    EO_LIST_FORWARD, /* forward only: evaluation and sampling */
    EO_LIST_UPDATES, /* with late_updates: those left to the next step, when the schedule is left before it */
    EO_LIST_INPUTS,  /* with input_gradients: the passes of a micro-batch, without gradients of weights */
    EO_LIST_COUNT,
} eo_list;

typedef enum eo_operation_kind {
    EO_OP_ALL_GATHER,
    EO_OP_FORWARD,
    EO_OP_RECOMPUTE,
    EO_OP_BACKWARD,
    EO_OP_REDUCE_SCATTER,
    EO_OP_ALL_REDUCE,     /* of a gradient shard over the replicas */
    EO_OP_ACCUMULATE,     /* the rank's slice of a reduced gradient buffer is added to the gradient shard; of gradients that
                             stay whole in a step, the gradient buffer to their sum */
    EO_OP_NORM_PARTIAL,   /* sum of squares of one gradient shard */
    EO_OP_NORM_LOCAL,     /* the rank's partials added up in model order, the trainer's values beside them */
    EO_OP_NORM_GATHER,    /* all-gather of the ranks' partials */
    EO_OP_NORM_SUM,       /* in rank order, then the clip factor */
    EO_OP_UPDATE,         /* the optimizer on one layer's shard */
    EO_OP_FETCH,          /* an offloaded layer from disk into a buffer */
    EO_OP_EVICT,          /* and back */
    EO_OP_NARROW,         /* float8 gathers: the rank's part of a layer as it will be sent, after its update */
    EO_OP_WIDEN,          /* float8 gathers: what was gathered to bf16, before the pass that uses it */
    EO_OP_DIRECTION,      /* Muon: the momentum of a layer's matrices as it is after this step, of the rank's shard */
    EO_OP_MATRIX_GATHER,  /* Muon: those of all ranks */
    EO_OP_ORTHOGONALIZE,  /* Muon: Newton and Schulz's iteration of the matrices that this rank owns */
    EO_OP_MATRIX_SCATTER, /* Muon: each rank's part of the results, from their owners */
    EO_OP_COPY_OUT,       /* dynamic memory alone: what was gathered, to a tensor a parameter; the tensors are taken here */
    EO_OP_COPY_IN,        /* ... gradients into the input of their reduction, which is taken here */
    EO_OP_KIND_COUNT,
} eo_operation_kind;

typedef enum eo_stream_id {
    EO_STREAM_COMPUTE,
    EO_STREAM_COMM,   /* gathers, and reductions too unless they have a stream of their own */
    EO_STREAM_REDUCE,
    EO_STREAM_COPY, /* fetches, and evictions too unless they have a stream of their own */
    EO_STREAM_EVICT,
    EO_STREAM_COUNT,
} eo_stream_id;

typedef struct eo_plan_operation {
    eo_operation_kind kind;
    eo_stream_id stream;
    uint32_t position;     /* of passes, gathers and reductions; UINT32_MAX where there is none */
    uint32_t layer;        /* UINT32_MAX where there is none */
    uint32_t micro_batch;
    uint64_t bytes;        /* of a collective: the full buffer, all shards; of a fetch or eviction: what is read or written; of
                              an accumulate: the sums that it adds to, in fp32 */
    eo_dtype dtype;        /* of a gather or reduction: what it carries; float8: with scales, and vectors in bf16 */
    char name[EO_NAME_MAX * 2];
    uint32_t wait_count;   /* one a stream at most */
    uint32_t waits[EO_STREAM_COUNT];          /* operations of the list */
    bool wait_previous_step[EO_STREAM_COUNT]; /* the record of the step before is meant */
    double flops;          /* of an orthogonalization: its products, in fp32, for all matrices of the layer, whichever rank owns
                              them. Else 0 */
    uint32_t id;           /* the same operation has the same in all lists, and no other has it: the step before may have run
                              another list, with the operation that is waited for at another place */
} eo_plan_operation;

/* What an operation does with a row. A buffer of the trainer is named by the first and the last pass of its life. */
typedef struct eo_plan_access {
    uint32_t row;
    bool reads, writes; /* writes alone: overwrites all of it */
} eo_plan_access;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Lays out memory, makes the schedule and proves it. Allocates, waits for nothing. Any thread; the model is read
 * during the call only.
 *
 * EO_OK
 * EO_ERR_INVALID    the model or a setting: logged with the reason
 * EO_ERR_SCHEDULE   the proof found a hazard: a fault of evenodd, whatever the model. Logged with both operations and
 *                   the buffer, and with the model and the settings, to be reported
 * EO_ERR_NO_MEMORY
 */
#define eo_plan_create EO_OF_API(eo_plan_create)
EO_EXPORT EO_NODISCARD eo_status eo_plan_create(eo_plan **out, const eo_model *model, const eo_plan_params *params);
EO_EXPORT void eo_plan_destroy(eo_plan **plan);

EO_EXPORT void eo_plan_get_summary_sized(const eo_plan *plan, eo_plan_summary *out, size_t out_bytes);
EO_CALLER void eo_plan_get_summary(const eo_plan *plan, eo_plan_summary *out)
{
    eo_plan_get_summary_sized(plan, out, sizeof(*out));
}
EO_EXPORT EO_NODISCARD eo_status eo_plan_get_row_sized(const eo_plan *plan, uint32_t row, eo_plan_row *out, size_t out_bytes);
EO_CALLER EO_NODISCARD eo_status eo_plan_get_row(const eo_plan *plan, uint32_t row, eo_plan_row *out)
{
    return eo_plan_get_row_sized(plan, row, out, sizeof(*out));
}
EO_EXPORT uint32_t eo_plan_operation_count(const eo_plan *plan, eo_list list);
EO_EXPORT EO_NODISCARD eo_status eo_plan_get_operation_sized(const eo_plan *plan, eo_list list, uint32_t operation,
                                                             eo_plan_operation *out, size_t out_bytes);
EO_CALLER EO_NODISCARD eo_status eo_plan_get_operation(const eo_plan *plan, eo_list list, uint32_t operation,
                                                       eo_plan_operation *out)
{
    return eo_plan_get_operation_sized(plan, list, operation, out, sizeof(*out));
}
/* The accesses of an operation, from 0; EO_ERR_INVALID past the last. */
EO_EXPORT EO_NODISCARD eo_status eo_plan_get_access(const eo_plan *plan, eo_list list, uint32_t operation,
                                                    uint32_t access, eo_plan_access *out);

/* The part of a layer's elements, padding included, whose master weights and optimizer state a rank has. The ranks with
 * replica 0 have all of it, each element once; other replicas have the same again. Frozen parameters beside trained ones are a
 * layer of their own, behind the model's: eo_plan_parameter_place tells its number. */
typedef struct eo_shard_range {
    uint64_t offset, count; /* elements of the flat layer */
    uint32_t replica;
    uint32_t ranks; /* that share the layer */
} eo_shard_range;
EO_EXPORT EO_NODISCARD eo_status eo_plan_shard_range(const eo_plan *plan, uint32_t layer, uint32_t rank,
                                                     eo_shard_range *out);

/* Where a parameter of the model lies: its elements are [offset, offset + count) of the flat layer. */
typedef struct eo_parameter_place {
    uint32_t layer;
    uint32_t group;
    uint64_t offset, count;
} eo_parameter_place;
EO_EXPORT EO_NODISCARD eo_status eo_plan_parameter_place(const eo_plan *plan, uint32_t parameter, eo_parameter_place *out);

/* A piece of a parameter in a rank's shard: its elements [from, from + count) are elements [at, at + count) of the shard. */
typedef struct eo_shard_part {
    uint32_t parameter; /* of the model */
    uint32_t group;
    uint64_t from, at, count;
} eo_shard_part;
/* The parts of a rank's shard from 0 on, in the order of the layer; EO_ERR_INVALID past the last. */
EO_EXPORT EO_NODISCARD eo_status eo_plan_shard_part(const eo_plan *plan, uint32_t layer, uint32_t rank, uint32_t part,
                                                    eo_shard_part *out);

EO_EXPORT const char *eo_strategy_name(eo_strategy strategy);
EO_EXPORT const char *eo_category_name(eo_category category);
EO_EXPORT const char *eo_operation_kind_name(eo_operation_kind kind);

/* The plan for people: settings, bytes by category, rows, collectives; and as JSON, complete but for eo_plan_get_access. */
EO_EXPORT void eo_plan_print(const eo_plan *plan, eo_write_fn write, void *user);
EO_EXPORT void eo_plan_write_json(const eo_plan *plan, eo_write_fn write, void *user);

/*
 * Runs a list against a clock: `duration_ns[i]` is what operation i takes once it has started; an operation starts
 * when its stream is free and what it waits for has ended. The list is run `step_count` times, and the time from the
 * end of the last but one to the end of the last run goes to *out_ns. Allocates during the call.
 */
EO_EXPORT EO_NODISCARD eo_status eo_plan_simulate(const eo_plan *plan, eo_list list, const uint64_t *duration_ns,
                                                  uint32_t step_count, uint64_t *out_ns);

#ifdef __cplusplus
}
#endif

#endif
