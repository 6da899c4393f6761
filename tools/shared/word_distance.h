/* SPDX-License-Identifier: MIT
 *
 * Which known word is nearest to one that nobody knows.
 */
#ifndef EO_TOOLS_SHARED_WORD_DISTANCE_H
#define EO_TOOLS_SHARED_WORD_DISTANCE_H

#include <jansson.h>
#include <stddef.h>

#include "tools/shared/problem.h"

enum { TOOL_WORD_BYTES_MAX = 64 }; /* of a name that counts */

/* How many letters of `wrong`, `length` long, must be changed, left out, put in or swapped with the next one to get `name`. */
size_t tool_word_distance(const char *wrong, size_t length, const char *name);

/* EO_ERR_INVALID: the object has a key that is none of `known` (up to NULL), so somebody's figure would go unread. `what` names
 * the object in what is said. */
EO_NODISCARD eo_status tool_check_keys(const json_t *object, const char *const *known, const char *what,
                                       struct tool_problem *problem);

#endif
