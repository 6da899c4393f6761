/* SPDX-License-Identifier: MIT
 *
 * For the debug mode: rows that nothing reads again after an operation, to be poisoned when it has ended.
 */
#ifndef EO_RUNTIME_PLAN_LIST_DEAD_ROWS_H
#define EO_RUNTIME_PLAN_LIST_DEAD_ROWS_H

#include "runtime/plan/internal.h"

struct dead_rows {
    uint32_t *begin; /* by operation of the list, one more at the end */
    uint32_t *rows;
};

EO_NODISCARD eo_status eo_dead_rows_find(const struct eo_plan *plan, eo_list which, struct dead_rows *out);
void eo_dead_rows_free(struct dead_rows *dead);

#endif
