/* SPDX-License-Identifier: MIT
 *
 * A plan's memory map held against its lists, by a way of its own: every order between two operations is found by
 * following stream order and waits (a closure over all pairs, no clocks), lives are cut from the accesses, and each
 * pair of rows that share addresses is looked at. Quadratic in the operations: for small plans.
 */
#ifndef EO_TESTS_UNIT_PLAN_CHECK_H
#define EO_TESTS_UNIT_PLAN_CHECK_H

#include "runtime/plan/internal.h"

struct plan_check {
    char text[512];               /* what was found first, or "" */
    uint32_t shared_pairs;        /* pairs of rows that share addresses: 0 means that nothing was tested */
    uint64_t lower_bound_bytes;   /* the largest sum of live bytes at or between two compute operations */
};

/* Whether rows lie in their reservations, aligned, and no two that live at one time share addresses. */
bool eo_plan_check(const struct eo_plan *plan, struct plan_check *out);

#endif
