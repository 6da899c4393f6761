/* SPDX-License-Identifier: MIT
 *
 * Lifetimes to offsets. Time is a circle of `time_count` points (a step repeats); a row is live in a few closed
 * intervals of it, and two rows share addresses only if no point is in both. There are several spaces (reservations);
 * a row belongs to one, but rows of the last space may be placed in any.
 *
 *     offset ^  +----------+
 *            |  | logits   |   +------------+
 *            |  +--+-------+---+ gradients  |
 *            |  | activations of block 0    |
 *            +--+---------------------------+--> time
 */
#ifndef EO_BUFFERS_PLACEMENT_H
#define EO_BUFFERS_PLACEMENT_H

#include <stdbool.h>

#include <evenodd/common.h>
#include <evenodd/status.h>

enum { EO_PLACEMENT_SPACES_MAX = 5 };

struct eo_interval {
    uint32_t first, last; /* closed, first <= last < time_count; what wraps around is two intervals */
};

struct eo_placed_row {
    uint64_t bytes;
    uint32_t space;          /* in: where it belongs; the last space's rows may move */
    bool always;             /* live at all times; intervals are not read */
    uint32_t interval_begin; /* into intervals[] */
    uint32_t interval_count;
    uint32_t out_space;      /* out */
    uint64_t out_offset;     /* out: multiple of align_bytes, inside out_space */
};

struct eo_placement {
    struct eo_placed_row *rows;
    uint32_t row_count;
    const struct eo_interval *intervals;
    uint32_t time_count;
    uint32_t space_count;
    uint32_t align_bytes;
    bool draft;                                    /* one order, without a search */
    uint64_t space_bytes[EO_PLACEMENT_SPACES_MAX]; /* out */
    uint64_t total_bytes;                          /* out: their sum */
};

/*
 * Deterministic. Rows with the same lifetime are placed as one bundle; several orders are tried and the smallest
 * total wins. Allocates working memory during the call. EO_OK, EO_ERR_NO_MEMORY, EO_ERR_INVALID (overflow).
 */
EO_NODISCARD eo_status eo_placement_solve(struct eo_placement *placement);

#endif
