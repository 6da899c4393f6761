/* SPDX-License-Identifier: MIT
 *
 * The lower bound: one walk over time. It shares no code with the search but for what a row's bytes and points are.
 */
#include "placement_instance.h"

#include <stdlib.h>

#include "base/check.h"
#include "buffers/bundles.h"

static eo_status find_peak(const struct eo_placement *placement, uint64_t *scratch_bytes, uint64_t *changes,
                           struct eo_interval *intervals, uint64_t *bytes, uint32_t *time)
{
    EO_TRY(eo_placement_row_bytes(placement, scratch_bytes));
    uint64_t live_bytes = 0;
    for (uint32_t row = 0; row < placement->row_count; row++) {
        const struct eo_placed_row *placed = &placement->rows[row];
        if (placed->always) {
            live_bytes += scratch_bytes[row];
            continue;
        }
        if (placed->interval_count == 0)
            continue;
        const uint32_t count =
            eo_intervals_normalize(intervals, placement->intervals + placed->interval_begin, placed->interval_count);
        for (uint32_t i = 0; i < count; i++) {
            EO_ASSERT(intervals[i].first <= intervals[i].last && intervals[i].last < placement->time_count);
            changes[intervals[i].first] += scratch_bytes[row];
            changes[intervals[i].last + 1] -= scratch_bytes[row]; /* modulo 2^64; the sums are right */
        }
    }
    *bytes = live_bytes;
    *time = 0;
    for (uint32_t t = 0; t < placement->time_count; t++) {
        live_bytes += changes[t];
        if (live_bytes > *bytes) {
            *bytes = live_bytes;
            *time = t;
        }
    }
    return EO_OK;
}

eo_status eo_placement_lower_bound(const struct eo_placement *placement, uint64_t *bytes, uint32_t *time)
{
    uint32_t interval_count_max = 0;
    for (uint32_t row = 0; row < placement->row_count; row++)
        if (!placement->rows[row].always && placement->rows[row].interval_count > interval_count_max)
            interval_count_max = placement->rows[row].interval_count;
    uint64_t *scratch_bytes = malloc(((size_t)placement->row_count + 1) * sizeof(*scratch_bytes));
    uint64_t *changes = calloc((size_t)placement->time_count + 1, sizeof(*changes));
    struct eo_interval *intervals = malloc(((size_t)interval_count_max + 1) * sizeof(*intervals));
    eo_status status = EO_ERR_NO_MEMORY;
    if (scratch_bytes && changes && intervals)
        status = find_peak(placement, scratch_bytes, changes, intervals, bytes, time);
    free(intervals);
    free(changes);
    free(scratch_bytes);
    return status;
}
