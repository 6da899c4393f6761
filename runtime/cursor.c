/* SPDX-License-Identifier: MIT */
#include "runtime/cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

eo_status eo_cursor_init(struct runtime_cursor *cursor, const struct eo_plan *plan)
{
    *cursor =
        (struct runtime_cursor){.plan = plan, .passes = calloc(2 * (size_t)plan->position_count, sizeof(struct api_pass))};
    if (!cursor->passes)
        return EO_ERR_NO_MEMORY;
    for (uint32_t p = 0; p < plan->position_count; p++)
        if (!plan->positions[p].forward_in_backward)
            cursor->passes[cursor->pass_count++] = (struct api_pass){false, p};
    for (uint32_t p = plan->position_count; p-- > 0;)
        cursor->passes[cursor->pass_count++] = (struct api_pass){true, p};
    return EO_OK;
}

void eo_cursor_fini(struct runtime_cursor *cursor)
{
    free(cursor->passes);
}

void eo_cursor_start(struct runtime_cursor *cursor, enum runtime_phase phase)
{
    cursor->phase = phase;
    cursor->pass = cursor->micro_batch = 0;
    cursor->progress = PASS_NEXT;
}

void eo_cursor_next(struct runtime_cursor *cursor)
{
    cursor->progress = PASS_NEXT;
    cursor->pass++;
    if (cursor->phase == PHASE_STEP && cursor->pass == cursor->pass_count) {
        cursor->pass = 0;
        cursor->micro_batch++;
    }
}

bool eo_cursor_is_past(const struct runtime_cursor *cursor, enum runtime_phase phase)
{
    if (cursor->phase != phase || cursor->progress != PASS_NEXT)
        return false;
    return phase == PHASE_STEP     ? cursor->micro_batch == cursor->plan->params.micro_batches
           : phase == PHASE_INPUTS ? cursor->pass == cursor->pass_count
                                   : cursor->pass == cursor->plan->position_count;
}

/* Of a step, an evaluation or a run for inputs that is not past. */
static struct api_pass current(const struct runtime_cursor *cursor)
{
    return cursor->phase == PHASE_EVALUATION ? (struct api_pass){false, cursor->pass} : cursor->passes[cursor->pass];
}

static bool is_at_pass(const struct runtime_cursor *cursor)
{
    const enum runtime_phase phase = cursor->phase;
    return (phase == PHASE_STEP || phase == PHASE_EVALUATION || phase == PHASE_INPUTS) && !eo_cursor_is_past(cursor, phase);
}

bool eo_cursor_is_at(const struct runtime_cursor *cursor, bool backward, uint32_t position, enum pass_progress progress)
{
    return is_at_pass(cursor) && cursor->progress == progress && current(cursor).backward == backward &&
           current(cursor).position == position;
}

bool eo_cursor_moment(const struct runtime_cursor *cursor, eo_moment *now)
{
    if (!is_at_pass(cursor) || cursor->progress == PASS_NEXT)
        return false;
    const struct api_pass pass = current(cursor);
    *now = (eo_moment){EO_PASS_FORWARD, pass.position};
    if (pass.backward)
        now->pass = cursor->progress == PASS_GRADIENTS ? EO_PASS_BACKWARD : EO_PASS_RECOMPUTE;
    else if (cursor->plan->positions[pass.position].forward_in_backward) /* of an evaluation: a step has no such pass */
        now->pass = EO_PASS_BACKWARD;
    return true;
}

void eo_cursor_position_text(const struct eo_plan *plan, uint32_t position, char text[EO_POSITION_TEXT_BYTES])
{
    const char *name = plan->positions[position].name;
    bool is_shared = false; /* a layer's, used several times */
    for (uint32_t p = 0; p < plan->position_count; p++)
        is_shared = is_shared || (p != position && strcmp(plan->positions[p].name, name) == 0);
    if (is_shared)
        snprintf(text, EO_POSITION_TEXT_BYTES, "%s (position %" PRIu32 ")", name, position);
    else
        snprintf(text, EO_POSITION_TEXT_BYTES, "%s", name);
}

const char *eo_cursor_caller(const struct runtime_cursor *cursor)
{
    return cursor->phase == PHASE_VISIT ? "eo_weights_visit" : cursor->phase == PHASE_FILL ? "eo_weights_fill" : NULL;
}

void eo_cursor_expected_text(const struct runtime_cursor *cursor, char *text, size_t bytes)
{
    const uint32_t micro_batches = cursor->plan->params.micro_batches;
    if (cursor->phase == PHASE_FAILED) {
        snprintf(text, bytes, "only eo_runtime_destroy (after an error)");
    } else if (cursor->phase == PHASE_IDLE) {
        snprintf(text, bytes, "eo_step_begin or eo_evaluation_begin");
    } else if (eo_cursor_caller(cursor)) {
        snprintf(text, bytes, "the end of a callback of %s", eo_cursor_caller(cursor));
    } else if (eo_cursor_is_past(cursor, PHASE_EVALUATION)) {
        snprintf(text, bytes, "eo_evaluation_end");
    } else if (eo_cursor_is_past(cursor, PHASE_INPUTS)) {
        snprintf(text, bytes, "eo_input_gradients_end");
    } else if (eo_cursor_is_past(cursor, PHASE_STEP)) {
        snprintf(text, bytes, "eo_step_end (micro-batch %" PRIu32 " of %" PRIu32 " of the plan is over)", cursor->micro_batch,
                 micro_batches);
    } else {
        const struct api_pass pass = current(cursor);
        const struct plan_position *position = &cursor->plan->positions[pass.position];
        const bool frozen = position->buffer_row == EO_NONE;
        const char *what = cursor->progress == PASS_NEXT                                ? "begin of"
                           : pass.backward && cursor->progress == PASS_BEGUN && !frozen ? "eo_gradients_begin in"
                                                                                        : "end of";
        char name[EO_POSITION_TEXT_BYTES], batch[64] = "";
        eo_cursor_position_text(cursor->plan, pass.position, name);
        if (cursor->phase == PHASE_STEP && micro_batches > 1)
            snprintf(batch, sizeof(batch), " (micro-batch %" PRIu32 " of %" PRIu32 " of the plan)", cursor->micro_batch + 1,
                     micro_batches);
        snprintf(text, bytes, "%s %s of %s%s%s", what, pass.backward ? "backward" : "forward", name,
                 frozen && pass.backward && cursor->progress == PASS_BEGUN ? " (its layer is frozen)" : "", batch);
    }
}
