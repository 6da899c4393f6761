/* SPDX-License-Identifier: MIT
 *
 * Rows of equal lifetime and space, gathered into bundles, and which bundles are alive together. What placement
 * works on: a block of a model gives many rows and few lifetimes.
 */
#ifndef EO_BUFFERS_BUNDLES_H
#define EO_BUFFERS_BUNDLES_H

#include "buffers/placement.h"

struct eo_bundle {
    uint64_t bytes;    /* the sum of its rows, each rounded up to the alignment */
    uint64_t duration; /* points of time it is live at */
    uint32_t first;    /* the earliest of them */
    uint32_t space;
    bool always;                             /* live at every point; left out of the conflicts */
    bool at_peak;                            /* live at the point where the most bytes are */
    uint32_t row_begin, row_count;           /* into row_order[] */
    uint32_t interval_begin, interval_count; /* into intervals[]: sorted, neither touching nor overlapping */
};

struct eo_bundles {
    struct eo_bundle *bundles;
    uint32_t bundle_count;
    uint32_t *row_order; /* rows bundle after bundle, the largest first; rows of 0 bytes are left out */
    uint32_t ordered_count;
    struct eo_interval *intervals;
    uint64_t *row_bytes;     /* by row: rounded up */
    uint64_t *conflicts;     /* a bit matrix: alive together. A bundle conflicts with itself */
    uint32_t conflict_words; /* of a line of it */
    uint64_t bound_bytes;    /* the most bytes live at one point */
    uint64_t space_bound_bytes[EO_PLACEMENT_SPACES_MAX]; /* the same within a space */
};

/* EO_ERR_NO_MEMORY, EO_ERR_INVALID where the bytes of all rows wrap. */
EO_NODISCARD eo_status eo_bundles_init(struct eo_bundles *bundles, const struct eo_placement *placement);
void eo_bundles_fini(struct eo_bundles *bundles); /* any half-built state */

/* The same points as few intervals, in order, none touching the next. Returns how many; `out` has room for `count`. */
uint32_t eo_intervals_normalize(struct eo_interval *out, const struct eo_interval *in, uint32_t count);

/* The bytes of each row rounded up to the alignment. EO_ERR_INVALID where their sum is not below 2^63. */
EO_NODISCARD eo_status eo_placement_row_bytes(const struct eo_placement *placement, uint64_t *row_bytes);

static inline const uint64_t *eo_bundles_conflicts(const struct eo_bundles *bundles, uint32_t bundle)
{
    return bundles->conflicts + (size_t)bundle * bundles->conflict_words;
}

#endif
