/* SPDX-License-Identifier: MIT
 *
 * What the proof says about a hazard: both operations, the rows, and the wait that is missing or what was found.
 * Each function fills hazard->text from its arguments and the other fields of the hazard.
 */
#ifndef EO_RUNTIME_PLAN_PROOF_TEXT_H
#define EO_RUNTIME_PLAN_PROOF_TEXT_H

#include "runtime/plan/proof/proof.h"

/* What a segment of memory holds. Content written as one row is not found when looked for as another. */
struct eo_content {
    uint32_t row, subject; /* EO_NONE in both: nothing yet */
    int64_t version;
};

/* An operation of the sequence. */
struct eo_place {
    uint32_t run, operation;
};

void eo_proof_text_race(const struct eo_proof_params *params, struct eo_place place, const struct eo_access *access,
                        struct eo_hazard *hazard, bool other_writes);
void eo_proof_text_stale(const struct eo_proof_params *params, struct eo_place place, const struct eo_access *access,
                         struct eo_hazard *hazard, const struct eo_content *expected, const struct eo_content *found);
void eo_proof_text_unknown_wait(const struct eo_proof_params *params, struct eo_place place, eo_stream_id stream,
                                struct eo_hazard *hazard);
void eo_proof_text_peer(const struct eo_proof_params *params, struct eo_place place, const struct eo_access *access,
                        struct eo_hazard *hazard);
void eo_proof_text_shared(const struct eo_proof_params *params, struct eo_hazard *hazard);
/* The other operation is the first pass of the buffer's life. */
void eo_proof_text_life(const struct eo_proof_params *params, struct eo_place place, struct eo_hazard *hazard,
                        struct eo_place writer);
/* `items` may be under way when the operation at `place` is issued. */
void eo_proof_text_queue(const struct eo_proof_params *params, struct eo_place place, uint32_t items,
                         struct eo_hazard *hazard);

#endif
