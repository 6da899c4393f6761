/* SPDX-License-Identifier: MIT
 *
 * A plan from inside: tables, made one after the other, each from those before it.
 *
 *     settings  what lies where, by strategy                          runtime/plan/strategy.c
 *     model --> tables (layers, parameters, positions, rows)          runtime/plan/tables/tables.c
 *           --> lists of operations with their accesses               runtime/plan/list/lists.c, with the rest of its room
 *           --> waits, from conflicts and vector clocks               runtime/plan/list/waits.c
 *           --> lifetimes, offsets, addresses, lower bound            runtime/plan/memory.c
 *           --> proof                                                 runtime/plan/proof/proof.c
 */
#ifndef EO_RUNTIME_PLAN_INTERNAL_H
#define EO_RUNTIME_PLAN_INTERNAL_H

#include <stdatomic.h>

#include <evenodd/plan.h>

#include "buffers/layout.h"
#include "runtime/plan/model.h"
#include "runtime/plan/schedule.h"
#include "streams/device.h"

enum { EO_STATES_MAX = 8 };

/* With these no sum of bytes in a plan can wrap, not even one with a sign: of a layer with its padding, and of all rows. */
#define EO_LAYER_ELEMENTS_MAX ((uint64_t)1 << 47)
#define EO_ROWS_BYTES_MAX     ((uint64_t)1 << 61)

struct plan_parameter {
    char name[EO_NAME_MAX];
    uint32_t layer;
    uint32_t model_index; /* as the trainer knows it */
    uint32_t dim_count;
    uint64_t dims[EO_DIMS_MAX];
    uint64_t element_count;
    uint64_t room; /* elements: with the trainer's padding behind it */
    uint64_t offset; /* element of the flat layer */
    bool float8_gather;
    bool fp32;   /* of a plan in bf16: two places of the flat layer an element, all of them on one rank. Weights fill them, and
                    gradient and state of element i lie at the i-th */
    bool joined; /* behind the one before it, in dynamic memory too */
    uint32_t group; /* into plan.groups */
    uint32_t view_index; /* in the trainer's layer, and so in its views */
    uint32_t owner;      /* Muon's matrices: the rank of the group that orthogonalizes it; EO_NONE of others */
};

/* Parameters that the optimizer treats alike: of one group of the trainer's, with weight decay or without. */
struct plan_group {
    uint32_t group;
    bool no_weight_decay;
    bool matrix; /* with EO_OPTIMIZER_MUON */
    bool fp32;
};

struct plan_layer {
    char name[EO_NAME_MAX];
    bool frozen;
    uint32_t parts; /* of the group, that hold different layers of this shape: shared by group / parts ranks */
    bool edge; /* first or last position, and larger than the body layers, or far smaller: rows of its own */
    struct eo_layout layout;
    uint32_t parameter_begin, parameter_count; /* into plan.parameters */
    uint32_t view_count;  /* parameters of the trainer's layer: with those of its frozen part */
    uint32_t frozen_part; /* EO_NONE, or a layer behind the trainer's: the frozen parameters of this one, sharded and gathered
                             beside it, so that all else of it is of the trainable ones alone */
    uint32_t part_of;     /* EO_NONE, or whose frozen part it is: then no position names it */
    uint32_t use_count;                        /* positions that use it */
    uint32_t contribution_count;               /* gradients that they make in a micro-batch */
    uint32_t first_position;
    uint32_t master_row;   /* fp32 master weights, or their low halves (bf16) */
    uint32_t shard_row;    /* what is gathered: the master row itself (fp32), or the high halves (bf16) */
    uint32_t gradient_row; /* EO_NONE when frozen */
    uint32_t sum_row;      /* where a step's contributions are added up: the gradient row, or, where they stay whole
                              until the last and the rank keeps a part, a row of their own; EO_NONE when frozen */
    bool whole;            /* contributions are added up as they are, and reduced at the last */
    uint32_t state_rows[EO_STATES_MAX + 1]; /* plan.state_count */
    uint32_t disk_row;     /* EO_NONE, or where low halves and state lie, one after the other (eo_plan_offload_offset) */
    uint32_t offload_row;  /* and the buffer that they are fetched into; they have no rows of their own then */
    uint32_t disk_gradient_row; /* EO_NONE, or directly behind disk_row: the gradient_row is then shared with other layers */
    uint32_t norm_row;     /* eo_plan_layer_sums */
    bool float8_gather;    /* what is gathered is not the shard row, but: */
    uint32_t narrow_row;   /* the shard as it is sent, in float8; EO_NONE elsewhere */
    bool float8_frozen;    /* float8_gather, and there is no shard row (EO_NONE) beside it: the shard, with MXFP8 in it */
    uint64_t narrow_bytes; /* of one rank's part */
    bool has_fp32;         /* parameters with fp32 */
    bool has_matrices;     /* for Muon; then: */
    uint32_t direction_row;/* the rank's part of their momentum */
    uint32_t matrices_row; /* all of it, then of what became of it; where a rank has all of a layer the direction_row */
};

struct plan_range {
    uint64_t offset, count; /* elements */
};

/* A run of a shard's parameters of one group; of groups with fp32 one parameter. Padding joins its neighbours: every optimizer
 * leaves zero at zero. */
struct shard_range {
    uint64_t offset, count; /* in the shard */
    uint64_t second;        /* the offset in the second array of state; nothing of Muon's matrices */
    uint32_t group;         /* into plan.groups; of a norm's runs the trainer's */
};

struct plan_position {
    char name[EO_NAME_MAX];
    uint32_t layer;
    bool forward_in_backward, backward_without_weights;
    uint32_t contribution; /* which of its layer's gradients of a micro-batch it makes or adds to, in backward order */
    uint32_t adds_to;      /* EO_NONE, or the position whose gradients lie in the buffer: it adds to them */
    bool contributes;      /* no other adds to its gradients: they go on to the shard */
    bool adds_to_zeros;    /* in a buffer of its own */
    uint32_t gather_row;             /* full weights; with one rank the shard itself */
    uint32_t frozen_gather_row;      /* of the layer's frozen part; EO_NONE without */
    uint32_t frozen_narrow_row;      /* likewise: narrow_row of the frozen part */
    uint32_t narrow_row;             /* where its gather lands: gather_row, or in float8, from where it is widened */
    uint32_t buffer_row;             /* full gradients; EO_NONE when frozen */
    uint32_t body;                   /* the how-manieth position between the edges; EO_NONE of an edge */
    uint32_t saved;                  /* the how-manieth position whose saved buffers are offloaded; EO_NONE: they are not */
    uint32_t shared_count;           /* these buffers */
    bool leaves;                     /* they are, and no slot keeps them */
    bool direct;                     /* one rank, the first contribution of a step: buffer_row is the gradient shard itself */
    uint32_t zero_begin, zero_count; /* into plan.zero_ranges: padding, and parameters without gradient here */
};

struct plan_buffer {
    uint32_t row;
    eo_moment first, last;
    bool persistent, saved;
    bool shared;       /* saved, of a position that is offloaded: its row is that of a slot, */
    uint32_t place;    /* the how-manieth row of it */
    uint32_t disk_row; /* EO_NONE, or where it lies between forward and backward */
};

struct plan_row {
    char name[EO_NAME_MAX * 2];
    eo_category category;
    eo_space space; /* where it belongs; where it lies, once placed */
    uint64_t bytes, offset;
    bool always_live;
    uint32_t first_operation, last_operation; /* of the steady list: for people; EO_NONE for always */
};

/* A place of the folded step (runtime/plan/memory.c): one number for the same operation of every micro-batch. */
struct plan_place {
    uint32_t fold;
    uint32_t micro_batch;
};

struct eo_plan {
    eo_plan_params params;
    char model_name[EO_NAME_MAX];
    eo_log log; /* during create only */
    atomic_uint users; /* the trainer, and each runtime: the last one frees it */

    struct plan_layer *layers;
    struct plan_parameter *parameters; /* by layer */
    uint32_t *parameter_of_model;      /* model index -> index into parameters */
    struct plan_position *positions;
    struct plan_buffer *buffers;
    struct plan_group *groups;
    uint32_t group_count, trainer_group_count;
    uint32_t trainer_layer_count; /* the first ones: frozen parts lie behind */
    struct plan_range *zero_ranges;
    struct plan_row *rows;
    uint32_t state_count; /* arrays of state: the optimizer's, and behind them the average of the weights */
    uint32_t ema_state;   /* which of them that is; EO_NONE: there is none */
    uint32_t layer_count, parameter_count, position_count, buffer_count, zero_count, row_count, row_capacity;
    uint64_t element_count, rows_bytes; /* of all rows, each with room to be aligned */

    bool resident;        /* full weights stay; gathered after each update */
    bool whole_gradients; /* see plan_layer.whole */
    uint32_t replicas;    /* groups of params.shard_group ranks; rank r has part r % shard_group in replica r / shard_group */

    uint32_t norm_local_row, norm_gathered_row, norm_result_row;
    uint32_t fence_row, fenced_row; /* EO_NONE: the schedule needs none */
    uint32_t scalars_row; /* struct eo_update_scalars, then groups */
    uint32_t next_scalars_row; /* EO_NONE without late updates */
    uint32_t values_row;  /* doubles that the trainer's kernels add to */
    uint32_t host_steps_row, staging_row;
    uint32_t orthogonal_row; /* scratch of the iteration; EO_NONE without matrices */
    uint32_t host_row_begin; /* rows of host memory, and behind them those of the disk, are placed one after the other */
    uint32_t disk_row_begin;
    uint32_t *updates;       /* trainable layers in the order of their updates; */
    uint32_t update_count, offload_begin; /* from offload_begin on they are offloaded */

    struct eo_schedule schedule;
    struct plan_place *places; /* by operation id; compute operations only are read */
    uint32_t fold_count, batch_fold_count; /* of the step; of the passes of a micro-batch */

    uint64_t space_bytes[EO_SPACE_COUNT];
    uint64_t lower_bound_bytes;
    uint64_t category_bytes_at_peak[EO_CATEGORY_COUNT];
    uint64_t fingerprint;
    uint64_t settings_print, parameters_print; /* it, as far as it had come behind them: to say what differs */
};

/* The step's numbers and the norm's results, those of the groups included: multiples of 8. */
uint64_t eo_plan_scalars_bytes(const struct eo_plan *plan);
uint64_t eo_plan_result_bytes(const struct eo_plan *plan);
/* Where they lie in memory of these sizes, of the device or of the host. */
struct eo_step_memory eo_plan_step_memory(const struct eo_plan *plan, void *scalars, void *result);
uint64_t eo_plan_norm_bytes(const struct eo_plan *plan); /* what a rank brings to the norm */
/* Doubles of a layer's norm row: the sum of all, and where it has several groups those of its runs of one. */
uint32_t eo_plan_layer_sums(const struct eo_plan *plan, const struct plan_layer *layer);

/* Whether a position's gradients, once they are written, lie in no slot: those of edges, and those that others add to, which
 * would hold up their slot. */
bool eo_plan_has_own_buffer(const struct eo_plan *plan, const struct plan_position *position);

/* Steps that may be in flight; pieces of data on their way between the host and the device, and their size. */
enum { EO_HOST_STEPS = 2, EO_STAGING_PIECES = 8, EO_STAGING_BYTES_MIN = 4 << 10, EO_STAGING_BYTES_MAX = 64 << 10 };

/* What a rank of a group sends of one parameter (runtime/plan/float8.c). */
struct plan_float8_run {
    uint32_t parameter;       /* of the layer */
    uint32_t scale;           /* index of its scale; EO_NONE: the plan's dtype. With float8_frozen 0: MXFP8 */
    uint64_t from, at, count; /* elements: the first one of the parameter and of the shard */
    uint64_t narrow_bytes;    /* before it in what the rank sends; of MXFP8 the exponents, and behind them: */
    uint64_t element_bytes;   /* the elements */
};

/* Writes the runs of a rank's part, at most one a parameter (NULL: just counts them); gives the bytes they take. */
uint64_t eo_plan_float8_runs(const struct eo_plan *plan, uint32_t layer, uint32_t rank, struct plan_float8_run *out,
                             uint32_t *out_count);

/* Whether a layer's parameters with float8_gather lie in MXFP8. */
bool eo_plan_is_float8_frozen(const struct eo_plan *plan, const struct plan_layer *layer);

uint64_t eo_plan_staging_bytes(const struct eo_plan *plan); /* of one piece */

/* matrices.c: who orthogonalizes which matrix of Muon's, and the scratch that takes: one sum, and the iteration's matrices; its steps. */
enum { EO_MATRIX_SLOTS = 3, EO_MATRIX_SUM_BYTES = 64, EO_MATRIX_STEPS = 5 };
EO_NODISCARD eo_status eo_plan_own_matrices(struct eo_plan *plan);
uint64_t eo_plan_orthogonal_bytes(const struct eo_plan *plan);
double eo_plan_matrix_work(const struct plan_parameter *parameter); /* in products and sums, of one step of the iteration */
double eo_plan_layer_orthogonal_flops(const struct eo_plan *plan, uint32_t layer); /* of all its matrices, whoever owns them */

/* ranges.c: of a rank of the group, at most one for each parameter; their number. */
uint32_t eo_plan_shard_ranges(const struct eo_plan *plan, uint32_t layer, uint32_t rank, struct shard_range *out);
/* Whether an array of state leaves out Muon's matrices; how long the second is then. */
bool eo_plan_is_sparse(const struct plan_layer *layer, uint32_t state);
EO_NODISCARD eo_status eo_plan_second_count(const struct eo_plan *plan, uint32_t layer, uint64_t *out);

enum { EO_DISK_ALIGN = EO_STORAGE_ALIGN, EO_SAVED_SLOTS = 2 };

/* Ranks that share a layer: its group, or a part of it. runtime/plan/strategy.c */
uint32_t eo_plan_layer_ranks(const struct eo_plan *plan, const struct plan_layer *layer);
EO_NODISCARD eo_status eo_plan_check_parts(const struct eo_plan *plan);

/* Of an offloaded layer's arrays, from the begin of its disk row: the low halves, then the states. `state` of
 * state_count: the end, and where the gradient is fetched to. */
uint64_t eo_plan_copy_bytes(const struct eo_plan *plan, const struct eo_operation *operation); /* of a fetch or eviction */
uint64_t eo_plan_state_bytes(const struct eo_plan *plan, uint32_t state, uint64_t count); /* of an array of state */
uint64_t eo_plan_offload_offset(const struct eo_plan *plan, const struct plan_layer *layer, uint32_t state);

/* Positions of a forward-only run; both EO_NONE where it may not use the buffer. */
struct evaluation_life {
    uint32_t first, last;
};

struct evaluation_life eo_evaluation_life(const struct eo_plan *plan, const struct plan_buffer *buffer);

/* Whether a forward-only run comes to its moments in another order than a step: with a head before the last position. */
bool eo_evaluation_turns(const struct eo_plan *plan);

/* Each makes its tables in `plan`; EO_ERR_INVALID is logged. */
EO_NODISCARD eo_status eo_plan_take_strategy(struct eo_plan *plan);
EO_NODISCARD eo_status eo_plan_take_float8(struct eo_plan *plan); /* of layers, once their parameters have places */
EO_NODISCARD eo_status eo_plan_make_tables(struct eo_plan *plan, const struct eo_model *model);
EO_NODISCARD eo_status eo_plan_make_lists(struct eo_plan *plan);
EO_NODISCARD eo_status eo_plan_make_memory(struct eo_plan *plan);

/* A runtime's part in the plan; the last who leaves or destroys it frees it. */
void eo_plan_use(const struct eo_plan *plan);
void eo_plan_leave(const struct eo_plan *plan);

/* Vector clocks of a sequence of runs, kept for the lifetimes. clock[s] = operations of stream s that have ended
 * before this one starts, counted over the whole sequence, itself included in its own stream. */
struct plan_instance {
    uint32_t run, operation; /* of lists[sequence[run]] */
    uint32_t clock[EO_STREAM_COUNT];
};

struct plan_trace {
    struct plan_instance *instances; /* in issue order */
    uint32_t count;
    uint32_t *by_stream[EO_STREAM_COUNT]; /* instance of the n-th operation of a stream */
    uint32_t stream_count[EO_STREAM_COUNT];
    eo_list *sequence;
    uint32_t run_count;
};

/*
 * Derives the waits of the lists in `sequence`, from reads and writes by row: rows do not share addresses yet. A list
 * that stands there twice has those of its later run. Returns the clocks of the whole sequence.
 */
EO_NODISCARD eo_status eo_plan_derive_waits(struct eo_plan *plan, const eo_list *sequence, uint32_t run_count,
                                            struct plan_trace *out);
void eo_plan_trace_free(struct plan_trace *trace);

/* names.c: "backward of block.3", "all-gather of embedding (micro-batch 1)". */
void eo_plan_operation_text(const struct eo_plan *plan, const struct eo_operation *operation, char *text,
                            size_t bytes);

#endif
