/* SPDX-License-Identifier: MIT
 *
 * A plan as a picture, and as a page of one file that needs no network.
 */
#ifndef EO_TOOLS_MEMPLAN_PAGE_H
#define EO_TOOLS_MEMPLAN_PAGE_H

#include "tools/memplan/report.h"

/* The arena, offset by time through a step, coloured by category; above it the staircase of live bytes. */
void tool_page_svg(FILE *out, const struct tool_memplan_view *view);

/* One setting of the sliders, planned beforehand. */
struct tool_page_point {
    uint32_t world, batch, seq, recompute; /* recompute: an index into the names */
    bool planned;
    uint64_t arena_bytes, lower_bound_bytes, outside_bytes, total_bytes;
    uint64_t category_bytes_at_peak[EO_CATEGORY_COUNT];
};

/* Plans a grid around the view's settings. Progress on standard error after a second. NULL: no memory. */
struct tool_page_point *tool_page_points(const struct tool_memplan_view *view, uint32_t *count);

void tool_page_html(FILE *out, const struct tool_memplan_view *view, const struct tool_page_point *points, uint32_t count);

#endif
