/* SPDX-License-Identifier: MIT
 *
 * When the trainer's buffers begin and end, for the proof: by the moments that the trainer gave, and not by what the lists
 * say that passes read and write. In a step a buffer is the trainer's from the first to the last pass of a micro-batch that
 * its moments cover; in a forward-only run likewise, where a pass stands for the moment in which a step computes it: a
 * position without a forward pass in the steps' lists (a head) is computed in its backward pass.
 */
#ifndef EO_RUNTIME_PLAN_PROOF_LIVES_H
#define EO_RUNTIME_PLAN_PROOF_LIVES_H

#include "runtime/plan/schedule.h"

/* Rows by key: those of key k are rows[begin[k]] ... rows[begin[k + 1] - 1]. */
struct eo_proof_agenda {
    uint32_t *begin, *rows;
};

struct eo_proof_lives {
    uint32_t position_count;
    struct eo_proof_agenda step_begins, step_ends; /* by eo_proof_moment */
    struct eo_proof_agenda forward_begins, forward_ends; /* by position */
};

/* A moment's place in a micro-batch of a step: forward passes, then recompute and backward of each position, from the last. */
uint32_t eo_proof_moment(uint32_t position_count, eo_pass pass, uint32_t position);

EO_NODISCARD eo_status eo_proof_lives_make(struct eo_proof_lives *out, const struct eo_schedule *schedule);
void eo_proof_lives_free(struct eo_proof_lives *lives);

#endif
