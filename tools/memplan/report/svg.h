/* SPDX-License-Identifier: MIT
 *
 * A plan as a picture.
 */
#ifndef EO_TOOLS_MEMPLAN_REPORT_SVG_H
#define EO_TOOLS_MEMPLAN_REPORT_SVG_H

#include "tools/memplan/report/report.h"

/* A step of the arena, `width` pixels wide [1200]: live bytes, stacked by category, and the rows by offset; both over time, with
 * the phases, and with the capacity of the device where one is asked about. */
void tool_page_svg(FILE *out, const struct tool_memplan_view *view, uint32_t width);

const char *tool_page_colour(eo_category category); /* as in CSS */

#endif
