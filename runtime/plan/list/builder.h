/* SPDX-License-Identifier: MIT
 *
 * What the lists of a plan are made with: operations one after the other, each with its accesses, and where it stands in
 * the folded step. lists.c knows the order, late_updates.c that of updates left to the next step; passes.c, reductions.c,
 * copies.c, matrix_operations.c and step_end.c know what each operation reads and writes.
 */
#ifndef EO_RUNTIME_PLAN_LIST_BUILDER_H
#define EO_RUNTIME_PLAN_LIST_BUILDER_H

#include "runtime/plan/list/buffer_agenda.h"

/* Names of contents, for the proof: kind and index. */
enum subject_kind {
    SUBJECT_WEIGHTS,
    SUBJECT_LOW_WEIGHTS,
    SUBJECT_NARROW_WEIGHTS, /* as a float8 gather sends them */
    SUBJECT_GRADIENT,       /* in the sum row: contributions of this rank or group */
    SUBJECT_FINAL_GRADIENT, /* in the gradient row, where that is not yet the whole world's sum */
    SUBJECT_LOCAL_GRADIENT, /* by position: before the reduction */
    SUBJECT_REDUCED,        /* by position: after it, in place */
    SUBJECT_NORM,
    SUBJECT_NORM_LOCAL,
    SUBJECT_NORM_GATHERED,
    SUBJECT_NORM_RESULT,
    SUBJECT_SCALARS,
    SUBJECT_VALUES,
    SUBJECT_FENCED,
    SUBJECT_BUFFER,
    SUBJECT_OFFLOADED, /* low halves and state together */
    SUBJECT_OFFLOADED_GRADIENT,
    SUBJECT_DIRECTION,      /* Muon: the rank's part of the matrices' momentum, */
    SUBJECT_MATRICES,       /* all of it, */
    SUBJECT_ORTHOGONAL,     /* what the ranks made of their matrices, */
    SUBJECT_STEP_DIRECTION, /* and the rank's part of that */
    SUBJECT_MATRIX_SCRATCH,
    SUBJECT_STATE, /* and following */
};

static inline uint32_t eo_subject(uint32_t kind, uint32_t index)
{
    return kind << 20 | index;
}

/* A use of a position in a step. */
struct list_pass {
    bool backward;
    bool reads_weights;
    bool resident; /* its weights are still there: no gather */
    bool widens;   /* float8: from what was gathered, now or before */
    bool widens_frozen; /* likewise, of its layer's frozen part */
    uint32_t position, micro_batch;
    int64_t gather_after; /* the pass after which its gather stands; < 0: before the first pass */
    bool is_brought;      /* by the gather of a pass before */
    uint32_t brings;      /* passes after this one whose weights come with its gather */
};

/* A reduced gradient on its way to the shard and the norm. */
struct list_pending {
    uint32_t position, micro_batch;
    bool accumulate, norm;
    uint32_t due; /* the pass before which it is taken in; pass_count: at the end */
};

struct list_builder {
    struct eo_plan *plan;
    struct eo_operation *operations;
    uint32_t count, capacity;
    struct eo_access *accesses;
    uint32_t access_count, access_capacity;
    struct plan_place *places;
    uint32_t place_capacity;
    uint32_t next_id;
    uint32_t end_fold, fold_parts;
    bool fold_widens; /* widening is a part of its own before recompute, whose scratch may lie where weights were narrow */
    struct list_pass *passes;
    uint32_t pass_count;
    uint32_t next_gather; /* the pass whose gather is to be issued next */
    uint32_t updated, orthogonalized, begun; /* updates before these have come so far */
    uint32_t end_gather; /* the pass of the next step whose gather is to be issued next */
    uint32_t late_update; /* updates before this one have come; update_count: none is left to the next step, or all have come */
    const struct list_pass *late_pass; /* they stand before this pass */
    bool is_late;         /* operations are those of the step before */
    bool inputs_alone;    /* passes have no gradients of weights */
    bool holds_late;      /* gathers of weights that wait for such an update are not issued yet */
    uint32_t held_reductions; /* passes before this one whose reductions wait to go with its own */
    struct list_pending *pending;
    uint32_t pending_begin, pending_count;
    /* Accesses of passes are the same in every micro-batch. */
    struct access_range {
        uint32_t begin, count;
        bool made;
    } *pass_accesses; /* by moment order */
    struct buffer_agenda first, last; /* buffers whose life begins, or ends, in a moment */
    struct buffer_agenda evaluation_first, evaluation_last; /* ... in a position of a forward-only run */
    bool failed;
};

/* Where an operation stands in the folded step: twice P for forward, thrice P for backward (once more where weights are widened,
 * and where whole gradients are added up), then the end. */
static inline uint32_t eo_fold_forward(uint32_t position, bool pass)
{
    return 2 * position + pass;
}

static inline uint32_t eo_fold_before_backward(const struct list_builder *b, uint32_t position)
{
    const uint32_t count = b->plan->position_count;
    return 2 * count + b->fold_parts * (count - 1 - position);
}

enum { FOLD_RECOMPUTE, FOLD_TAKE_IN, FOLD_BACKWARD, FOLD_ADD, FOLD_PARTS };

static inline uint32_t eo_fold_backward(const struct list_builder *b, uint32_t position, uint32_t part)
{
    return eo_fold_before_backward(b, position) + b->fold_widens + part;
}

static inline enum eo_version_kind eo_weights_version(const struct plan_layer *layer)
{
    return layer->frozen ? EO_VERSION_FIXED : EO_VERSION_STEP;
}

/* Adds an operation to the list, and then its accesses, until the end of the operation. Failures show in `failed`. */
struct eo_operation *eo_list_operation(struct list_builder *b, eo_operation_kind kind, eo_stream_id stream,
                                       uint32_t position, uint32_t layer, uint32_t micro_batch, uint32_t fold);
void eo_list_access(struct list_builder *b, uint32_t row, enum eo_access_mode mode, uint32_t subject,
                    enum eo_version_kind kind, int32_t offset, uint16_t scale);
void eo_list_operation_end(struct list_builder *b);

/* passes.c */
void eo_list_read_weights(struct list_builder *b, const struct plan_position *position); /* all that it was given */
void eo_list_add_pass(struct list_builder *b, eo_operation_kind kind, const struct list_pass *pass);
/* Of this pass, and of those that its gather brings; the weights of this step, or of the next (1). */
void eo_list_add_gather(struct list_builder *b, const struct list_pass *pass, int32_t version_offset);
void eo_list_add_gathers(struct list_builder *b, int64_t pass); /* that stand after this pass, or before */
void eo_list_add_widening(struct list_builder *b, const struct list_pass *pass, uint32_t fold); /* if it widens */

eo_stream_id eo_list_reduce_stream(const struct eo_plan *plan);
/* reductions.c: the reduction of a pass's gradients, and what is to be done with the result, and when. */
void eo_list_add_reduction(struct list_builder *b, uint32_t pass_index);
/* What is due before a pass. A gradient that gets its last contribution here, and has replicas, goes to them now, and
 * comes back to be taken in as late as any other reduction. */
void eo_list_take_in(struct list_builder *b, uint32_t pass, uint32_t fold, bool at_end);
/* What norm and optimizer take; of operations outside micro-batches, or of the last one. */
void eo_list_read_final(struct list_builder *b, uint32_t layer, bool in_batch);

/* copies.c: a fetch or eviction of an offloaded layer; */
eo_stream_id eo_list_copy_stream(const struct eo_plan *plan, eo_operation_kind kind);
void eo_list_add_copy(struct list_builder *b, eo_operation_kind kind, uint32_t layer);
/* of what a position saves from forward to backward: after its forward pass, and ahead of its backward pass; in `pass`'s
 * micro-batch. Nothing of a position whose buffers stay, or of EO_NONE. */
void eo_list_add_saved(struct list_builder *b, eo_operation_kind kind, const struct list_pass *pass, uint32_t position);
/* Fetches for the first updates, as many as there are buffers: they have the whole step. */
void eo_list_add_first_fetches(struct list_builder *b);

/* matrix_operations.c: before the update of a layer with matrices for Muon */
void eo_list_add_direction(struct list_builder *b, uint32_t layer); /* and all ranks' */
void eo_list_add_orthogonalization(struct list_builder *b, uint32_t layer); /* and the rank's part of the results */

/* late_updates.c: updates that steady steps leave to the next one's forward passes, each with its eviction and the fetch behind
 * it. All of a pass's weights, with those that its gather brings, get theirs; then all that are left. */
bool eo_list_is_late(const struct eo_plan *plan, const struct list_pass *pass);
void eo_list_add_late_updates(struct list_builder *b, const struct list_pass *pass);
void eo_list_finish_late_updates(struct list_builder *b);

/* step_end.c: the update of an offloaded layer or another; norm, clip, optimizer; each gather of the next step's first passes directly after the update of its layer. */
void eo_list_add_offloaded_update(struct list_builder *b, uint32_t update);
void eo_list_add_step_end(struct list_builder *b);

#endif
