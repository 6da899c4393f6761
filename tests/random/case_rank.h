/* SPDX-License-Identifier: MIT
 *
 * A rank of a random case's run, and what it does: passes (case_passes.c), what stands between two steps (case_between.c), and
 * going on as another number of ranks (case_resume.c). case_run.c has the steps.
 */
#ifndef EO_TESTS_RANDOM_CASE_RANK_H
#define EO_TESTS_RANDOM_CASE_RANK_H

#include "tests/random/case_calls.h"
#include "tests/random/case_runner.h"

/* What the ranks of a run share. */
struct case_world {
    const struct random_case *c;
    const struct case_ranks *ranks;
    eo_plan *plan;
    uint32_t first_step, end_step; /* of all that the case has: an end before the last is saved, a first behind 0 is loaded */
    eo_world *worlds[CASE_RANKS_MAX];
    struct integer_model *expected; /* of all steps */
    struct case_verdict *verdict;
};

struct case_rank {
    struct case_world *world;
    uint32_t rank;
    eo_runtime *rt;
    bool recorded;
    uint32_t version;                 /* of the weights, between steps */
    uint64_t holds[CASE_BUFFERS_MAX]; /* the content that was written last */
    /* Where views showed weights and gradients first, by position. */
    const void *weights_at[CASE_LAYERS_MAX][CASE_PARAMETERS_MAX], *gradients_at[CASE_LAYERS_MAX][CASE_PARAMETERS_MAX];
};

/* ---- case_passes.c ---- */

eo_status case_micro_batch(struct case_rank *self, uint32_t step, uint32_t b);
eo_status case_evaluation(struct case_rank *self, uint64_t content);
eo_status case_inputs_alone(struct case_rank *self, uint64_t content);
/* Of eo_runtime_params: the case's own optimizer; Muon's products. */
void case_update(void *user, const eo_shard *shard);
eo_status case_product(void *user, const eo_matrix_product *product);

/* ---- case_between.c ---- */

eo_status case_action(struct case_rank *self, uint32_t step, uint32_t index);
eo_status case_first_weights(struct case_rank *self);
/* All weights are what the integer model has in self->version. */
eo_status case_visit(struct case_rank *self);

/* ---- case_resume.c ---- */

/* The folder of a run's checkpoint: made by the first, gone after the second. */
void case_folder_make(void);
void case_folder_remove(void);
/* All ranks save, and are over; others take what they saved, and go on. */
eo_status case_save(struct case_rank *self);
eo_status case_load(struct case_rank *self);

#endif
