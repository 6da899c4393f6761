/* SPDX-License-Identifier: MIT */
#include "runtime/plan/list/dead_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Backwards through the list, twice for lists that repeat: a row is dead after an access if the next one writes. */
eo_status eo_dead_rows_find(const struct eo_plan *plan, eo_list which, struct dead_rows *out)
{
    const struct eo_operation_list *list = &plan->schedule.lists[which];
    uint64_t total = 0;
    for (uint32_t i = 0; i < list->count; i++)
        total += list->operations[i].access_count;
    bool *overwritten = malloc(plan->row_count);
    uint32_t *counts = calloc((size_t)list->count + 1, sizeof(*counts));
    out->begin = calloc((size_t)list->count + 1, sizeof(*out->begin));
    out->rows = calloc(total + 1, sizeof(*out->rows));
    if (!overwritten || !counts || !out->begin || !out->rows) {
        free(overwritten);
        free(counts);
        return EO_ERR_NO_MEMORY;
    }
    uint64_t base = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        out->begin[i] = (uint32_t)base;
        base += list->operations[i].access_count;
    }
    memset(overwritten, true, plan->row_count);
    for (int round = which == EO_LIST_STEADY ? 0 : 1; round < 2; round++) {
        for (uint32_t i = list->count; i-- > 0;) {
            const struct eo_operation *o = &list->operations[i];
            counts[i] = 0;
            for (uint32_t a = 0; a < o->access_count; a++) {
                const uint32_t row = plan->schedule.accesses[o->access_begin + a].row;
                if (overwritten[row] && !plan->rows[row].always_live && o->stream == EO_STREAM_COMPUTE)
                    out->rows[out->begin[i] + counts[i]++] = row;
            }
            for (uint32_t a = o->access_count; a-- > 0;) { /* backwards: a reduction in place reads, then writes */
                const struct eo_access *access = &plan->schedule.accesses[o->access_begin + a];
                overwritten[access->row] = access->mode == EO_WRITE;
            }
        }
    }
    /* The first list ends where the steady one begins: what it gathers at its end lives on. */
    for (uint32_t i = 0; i < list->count; i++) {
        const uint32_t begin = out->begin[i];
        uint32_t *end_mark = &out->rows[begin + counts[i]];
        if (counts[i] < list->operations[i].access_count)
            *end_mark = EO_NONE;
    }
    free(overwritten);
    free(counts);
    return EO_OK;
}

void eo_dead_rows_free(struct dead_rows *dead)
{
    free(dead->begin);
    free(dead->rows);
}
