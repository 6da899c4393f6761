/* SPDX-License-Identifier: MIT
 *
 * A plan as a picture, and as a page of one file that needs no network.
 */
#ifndef EO_TOOLS_MEMPLAN_PAGE_H
#define EO_TOOLS_MEMPLAN_PAGE_H

#include "tools/memplan/reply.h"

/* A step of the arena, `width` pixels wide [1200]: live bytes, stacked by category, and the rows by offset; both over time, with
 * the phases, and with the capacity of the device where one is asked about. */
void tool_page_svg(FILE *out, const struct tool_memplan_view *view, uint32_t width);

const char *tool_page_colour(eo_category category); /* as in CSS */

/* The page of `tools/dev page`, with what was asked filled in. config: the text of the config.json that was read, or NULL. */
void tool_page_html(FILE *out, const struct tool_reply *reply, const char *config);

#endif
