/* SPDX-License-Identifier: MIT
 *
 * Published figures beside what formulae give for them, each with its metric. What is no model of evenodd says of whom.
 */
#ifndef EO_TOOLS_MEMPLAN_PUBLISHED_PUBLISHED_H
#define EO_TOOLS_MEMPLAN_PUBLISHED_PUBLISHED_H

#include <stdio.h>

#include <evenodd/common.h>

/* A table in Markdown. Returns how many rows that must agree do not. */
uint32_t tool_published_print(FILE *out);

#endif
