/* SPDX-License-Identifier: MIT
 *
 * Pages of HTML from a text with places; it lies beside its program (page.html), and the build embeds it.
 */
#ifndef EO_TOOLS_SHARED_PAGE_H
#define EO_TOOLS_SHARED_PAGE_H

#include <stdio.h>

/* Writes the text up to a place, such as "{{css}}", and goes on behind it; a place of NULL is the end. */
void tool_page_to(FILE *out, const char **text, const char *place);

/* For HTML and SVG, attributes included: names come from models and command lines. NULL writes nothing. */
void tool_put_escaped(FILE *out, const char *text);

#endif
