/* SPDX-License-Identifier: MIT
 *
 * Room in the plan's memory that the host may use between steps.
 */
#include "runtime/static/internal.h"

#include <stdlib.h>

#include "base/arithmetic.h"

struct byte_range {
    uint64_t begin, end;
};

static int by_begin(const void *a, const void *b)
{
    const struct byte_range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The first gap of so many bytes among the rows that live between steps, or that layer_gather writes. */
static void *find_gap(const struct eo_runtime *rt, int space, const bool *kept, struct byte_range *ranges, uint64_t bytes)
{
    const struct eo_plan *plan = rt->plan;
    uint64_t count = 0, free_from = 0;
    char *base = eo_static_state(rt)->arena.base[space];
    for (uint32_t r = 0; r < plan->row_count; r++) {
        const struct plan_row *row = &plan->rows[r];
        if (row->space == (eo_space)space && kept[r])
            ranges[count++] = (struct byte_range){row->offset, row->offset + row->bytes};
    }
    ranges[count++] = (struct byte_range){plan->space_bytes[space], plan->space_bytes[space]};
    qsort(ranges, count, sizeof(*ranges), by_begin);
    for (uint64_t i = 0; base && i < count; i++) {
        if (ranges[i].begin >= free_from && ranges[i].begin - free_from >= bytes)
            return base + free_from;
        free_from = eo_max_u64(free_from, eo_align_up(ranges[i].end, 64));
    }
    return NULL;
}

void *eo_static_idle_memory(struct eo_runtime *rt, uint64_t bytes)
{
    const struct eo_plan *plan = rt->plan;
    if (!rt->device->ops->is_host_memory || rt->params.debug)
        return NULL;
    bool *kept = calloc(plan->row_count, sizeof(*kept));
    struct byte_range *ranges = calloc((uint64_t)plan->row_count + 1, sizeof(*ranges));
    void *found = NULL;
    if (kept && ranges) {
        for (uint32_t r = 0; r < plan->row_count; r++)
            kept[r] = plan->rows[r].always_live;
        for (uint32_t p = 0; p < plan->position_count; p++) {
            const struct plan_position *position = &plan->positions[p];
            const uint32_t rows[] = {position->gather_row, position->narrow_row, position->frozen_gather_row, position->frozen_narrow_row};
            const bool is_written = plan->layers[position->layer].first_position == p;
            for (int i = 0; i < 4; i++)
                if (rows[i] != EO_NONE && is_written)
                    kept[rows[i]] = true;
        }
        for (int space = 0; space < EO_SPACE_HOST && !found; space++)
            found = find_gap(rt, space, kept, ranges, bytes);
    }
    free(kept);
    free(ranges);
    return found;
}
