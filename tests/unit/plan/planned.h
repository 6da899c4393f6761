/* SPDX-License-Identifier: MIT
 *
 * A plan that must be made, and its operations counted.
 */
#ifndef EO_TESTS_UNIT_PLAN_PLANNED_H
#define EO_TESTS_UNIT_PLAN_PLANNED_H

#include <criterion/criterion.h>

#include "runtime/plan/internal.h"
#include "tests/unit/plan/models.h"

static inline eo_plan *plan_of(const eo_model *model, const eo_plan_params *params)
{
    eo_plan *plan;
    eo_plan_params logged = *params;
    logged.log = &eo_test_log;
    eo_test_text[0] = '\0';
    const eo_status status = eo_plan_create(&plan, model, &logged);
    cr_assert_eq(status, EO_OK, "%s", eo_test_text);
    return plan;
}

static inline uint32_t count_kind(const eo_plan *plan, eo_list list, eo_operation_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->schedule.lists[list].count; i++)
        count += plan->schedule.lists[list].operations[i].kind == kind;
    return count;
}

#endif
