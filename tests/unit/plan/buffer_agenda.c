/* SPDX-License-Identifier: MIT
 *
 * The trainer's buffers by time: each is taken once and given back once, in a training step and in an evaluation.
 */
#include <criterion/criterion.h>

#include "runtime/plan/list/buffer_agenda.h"
#include "tests/unit/plan/models.h"

/* How often `buffer` stands in the agenda; *key: where. */
static uint32_t times(const struct buffer_agenda *agenda, uint32_t keys, uint32_t buffer, uint32_t *key)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < keys; k++) {
        for (uint32_t i = agenda->begin[k]; i < agenda->begin[k + 1]; i++) {
            if (agenda->buffers[i] != buffer)
                continue;
            *key = k;
            count++;
        }
    }
    return count;
}

/* As evenodd/model.h says: the forward pass of p, or, of a head, its backward pass. */
static bool may_use(const eo_plan *plan, const struct plan_buffer *buffer, uint32_t p)
{
    const eo_pass pass = plan->positions[p].forward_in_backward ? EO_PASS_BACKWARD : EO_PASS_FORWARD;
    const uint32_t now = eo_moment_order((eo_moment){pass, p}, plan->position_count);
    return !buffer->persistent && eo_moment_order(buffer->first, plan->position_count) <= now &&
           now <= eo_moment_order(buffer->last, plan->position_count);
}

/*
 * Method: all small models. In an evaluation a buffer is taken in the first pass that may use it, if any may, and goes
 * after the last one.
 */
Test(buffer_agenda, what_is_taken_is_given_back_when_its_life_ends)
{
    uint32_t evaluated = 0;
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        eo_model *model = eo_plan_model(m->name);
        eo_plan *plan;
        cr_assert_eq(eo_plan_create(&plan, model, eo_plan_params(.rank_count = 2, .log = &eo_test_log)), EO_OK);
        struct buffer_agenda first, last, begin, evaluation;
        cr_assert_eq(eo_buffer_agenda_make(&first, plan, AGENDA_FIRST), EO_OK);
        cr_assert_eq(eo_buffer_agenda_make(&last, plan, AGENDA_LAST), EO_OK);
        cr_assert_eq(eo_buffer_agenda_make(&begin, plan, AGENDA_EVALUATION_FIRST), EO_OK);
        cr_assert_eq(eo_buffer_agenda_make(&evaluation, plan, AGENDA_EVALUATION_LAST), EO_OK);
        const uint32_t positions = plan->position_count, moments = 3 * positions;
        for (uint32_t b = 0; b < plan->buffer_count; b++) {
            const struct plan_buffer *buffer = &plan->buffers[b];
            const uint32_t wanted = !buffer->persistent;
            uint32_t at = EO_NONE, start = EO_NONE, end = EO_NONE;
            cr_assert_eq(times(&first, moments, b, &at), wanted);
            cr_assert(!wanted || at == eo_moment_order(buffer->first, positions));
            cr_assert_eq(times(&last, moments, b, &at), wanted);
            cr_assert(!wanted || at == eo_moment_order(buffer->last, positions));
            for (uint32_t p = 0; p < positions; p++) {
                if (!may_use(plan, buffer, p))
                    continue;
                start = start == EO_NONE ? p : start;
                end = p;
            }
            const uint32_t uses = start != EO_NONE;
            cr_assert_eq(times(&begin, positions, b, &at), uses, "%s: buffer %u", m->name, b);
            cr_assert(!uses || at == start, "%s: buffer %u comes with %u, its life begins with %u", m->name, b, at, start);
            cr_assert_eq(times(&evaluation, positions, b, &at), uses, "%s: buffer %u", m->name, b);
            cr_assert(!uses || at == end, "%s: buffer %u goes after %u, its life ends with %u", m->name, b, at, end);
            evaluated += uses;
        }
        eo_buffer_agenda_free(&first);
        eo_buffer_agenda_free(&last);
        eo_buffer_agenda_free(&begin);
        eo_buffer_agenda_free(&evaluation);
        eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
    cr_assert_gt(evaluated, 0, "no buffer lives in an evaluation: this test saw nothing");
}
