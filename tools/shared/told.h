/* SPDX-License-Identifier: MIT
 *
 * What ranks of one command line refuse alike is said once. launch gives its ranks a place where they see what others have
 * said (EVENODD_TOLD, a sealed file in memory); elsewhere, and where a rank's errors go to a file of their own, each process
 * sees what it said itself.
 */
#ifndef EO_TOOLS_SHARED_TOLD_H
#define EO_TOOLS_SHARED_TOLD_H

#include <stdbool.h>
#include <stdint.h>

/* Of launch, before it starts ranks: a new place, which they inherit. -1: there is none. The caller closes it. */
int tool_told_make(void);

/* Of a rank, before its program: the environment names the place, and the standard error that it counts for. */
void tool_told_name(int file);

/* Whether the rank is to say it: nobody else has, or it comes with the same again. Also where standard error takes nothing now,
 * so that another who is heard says it too. */
bool tool_told_first(uint32_t rank, const char *text);

/* Of this process, by launch: EVENODD_RANK; else 0. */
uint32_t tool_told_rank(void);

/* A warning is worth one line, however often it comes. */
bool tool_told_never(const char *text);

#endif
