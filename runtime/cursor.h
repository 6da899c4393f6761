/* SPDX-License-Identifier: MIT
 *
 * The trainer's place in the order of its calls: between steps, or at a pass of a step, an evaluation or a run for inputs.
 *
 *     NEXT -- begin --> BEGUN -- gradients_begin --> GRADIENTS -- end --> NEXT, at the next pass
 *                         `------------ end, of a forward or a frozen backward ------------^
 */
#ifndef EO_RUNTIME_CURSOR_H
#define EO_RUNTIME_CURSOR_H

#include "runtime/plan/internal.h"

/* VISIT and FILL: between steps, in eo_weights_visit and eo_weights_fill, whose callbacks may not come back in. */
enum runtime_phase { PHASE_IDLE, PHASE_STEP, PHASE_EVALUATION, PHASE_INPUTS, PHASE_VISIT, PHASE_FILL, PHASE_FAILED };

enum pass_progress { PASS_NEXT, PASS_BEGUN, PASS_GRADIENTS };

struct api_pass {
    bool backward;
    uint32_t position;
};

struct runtime_cursor {
    const struct eo_plan *plan;
    struct api_pass *passes; /* of a micro-batch */
    uint32_t pass_count, pass, micro_batch;
    enum runtime_phase phase;
    enum pass_progress progress; /* of the pass at the cursor */
};

EO_NODISCARD eo_status eo_cursor_init(struct runtime_cursor *cursor, const struct eo_plan *plan);
void eo_cursor_fini(struct runtime_cursor *cursor);

void eo_cursor_start(struct runtime_cursor *cursor, enum runtime_phase phase); /* at the first pass */
void eo_cursor_next(struct runtime_cursor *cursor);                            /* pass */

bool eo_cursor_is_at(const struct runtime_cursor *cursor, bool backward, uint32_t position, enum pass_progress progress);
bool eo_cursor_is_past(const struct runtime_cursor *cursor, enum runtime_phase phase); /* all passes of this phase */

/* The pass under way; false: none. */
bool eo_cursor_moment(const struct runtime_cursor *cursor, eo_moment *now);

/* A position for messages: its name, and its number where the name is not its own. */
enum { EO_POSITION_TEXT_BYTES = EO_NAME_MAX + 32 };
void eo_cursor_position_text(const struct eo_plan *plan, uint32_t position, char text[EO_POSITION_TEXT_BYTES]);
/* The call whose callback is under way; NULL: none. */
const char *eo_cursor_caller(const struct runtime_cursor *cursor);
/* The calls that may come next. */
void eo_cursor_expected_text(const struct runtime_cursor *cursor, char *text, size_t bytes);

#endif
