/* SPDX-License-Identifier: MIT
 *
 * A plan as a page of one file that needs no network.
 */
#ifndef EO_TOOLS_MEMPLAN_PAGE_H
#define EO_TOOLS_MEMPLAN_PAGE_H

#include "tools/memplan/reply.h"

/* The page of `tools/dev page`, with what was asked filled in: settings, and the texts of the files that were read. */
EO_NODISCARD eo_status tool_page_html(FILE *out, const struct tool_reply *reply, struct tool_problem *problem);

#endif
