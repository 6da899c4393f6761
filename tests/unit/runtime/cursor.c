/* SPDX-License-Identifier: MIT
 *
 * The trainer's place: the calls of a step and of an evaluation come in the order of the plan's lists.
 */
#include <criterion/criterion.h>

#include "runtime/cursor.h"
#include "tests/unit/plan/models.h"

static bool is_pass(eo_operation_kind kind)
{
    return kind == EO_OP_FORWARD || kind == EO_OP_RECOMPUTE || kind == EO_OP_BACKWARD;
}

/* At `position` and nowhere else. */
static void check_place(const struct runtime_cursor *cursor, bool backward, uint32_t position)
{
    cr_assert(eo_cursor_is_at(cursor, backward, position, cursor->progress));
    cr_assert_not(eo_cursor_is_at(cursor, !backward, position, cursor->progress));
    cr_assert_not(eo_cursor_is_at(cursor, backward, position + 1, cursor->progress));
    cr_assert_not(eo_cursor_is_past(cursor, cursor->phase));
}

/* Method: each pass of the list is begun and ended; in between the cursor names its moment. */
static void walk(struct runtime_cursor *cursor, enum runtime_phase phase, eo_list which)
{
    const struct eo_operation_list *list = &cursor->plan->schedule.lists[which];
    eo_moment now;
    eo_cursor_start(cursor, phase);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct eo_operation *o = &list->operations[i];
        if (!is_pass(o->kind))
            continue;
        const bool head = cursor->plan->positions[o->position].forward_in_backward;
        const eo_pass pass = o->kind == EO_OP_RECOMPUTE                                   ? EO_PASS_RECOMPUTE
                             : o->kind == EO_OP_BACKWARD || (phase != PHASE_STEP && head) ? EO_PASS_BACKWARD
                                                                                          : EO_PASS_FORWARD;
        if (o->kind != EO_OP_BACKWARD)
            cr_assert_not(eo_cursor_moment(cursor, &now), "between passes");
        check_place(cursor, o->kind != EO_OP_FORWARD, o->position);
        cursor->progress = o->kind == EO_OP_BACKWARD ? PASS_GRADIENTS : PASS_BEGUN;
        cr_assert(eo_cursor_moment(cursor, &now));
        cr_assert(now.pass == pass && now.position == o->position, "operation %u", i);
        check_place(cursor, o->kind != EO_OP_FORWARD, o->position);
        if (o->kind != EO_OP_RECOMPUTE)
            eo_cursor_next(cursor);
    }
    cr_assert(eo_cursor_is_past(cursor, phase));
    cr_assert_not(eo_cursor_is_at(cursor, false, 0, PASS_NEXT), "nothing comes after the last pass");
}

Test(cursor, calls_come_in_the_order_of_the_lists)
{
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        eo_model *model = eo_plan_model(m->name);
        struct runtime_cursor cursor;
        eo_plan *plan;
        cr_assert_eq(
            eo_plan_create(&plan, model,
                           eo_plan_params(.rank_count = 2, .micro_batches = 2, .input_gradients = true, .log = &eo_test_log)),
            EO_OK);
        cr_assert_eq(eo_cursor_init(&cursor, plan), EO_OK);
        cr_assert_not(eo_cursor_is_at(&cursor, false, 0, PASS_NEXT), "no pass between steps");
        walk(&cursor, PHASE_STEP, EO_LIST_STEADY);
        walk(&cursor, PHASE_EVALUATION, EO_LIST_FORWARD);
        walk(&cursor, PHASE_INPUTS, EO_LIST_INPUTS);
        walk(&cursor, PHASE_STEP, EO_LIST_FIRST);
        eo_cursor_fini(&cursor);
        eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
}
