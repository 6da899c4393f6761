/* SPDX-License-Identifier: MIT
 *
 * Which known word is nearest to one that nobody knows.
 */
#ifndef EO_TOOLS_SHARED_WORD_DISTANCE_H
#define EO_TOOLS_SHARED_WORD_DISTANCE_H

#include <stddef.h>

enum { TOOL_WORD_BYTES_MAX = 64 }; /* of a name that counts */

/* How many letters of `wrong`, `length` long, must be changed, left out, put in or swapped with the next one to get `name`. */
size_t tool_word_distance(const char *wrong, size_t length, const char *name);

#endif
