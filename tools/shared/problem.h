/* SPDX-License-Identifier: MIT
 *
 * Why something was refused or failed: what, where, and what to do about it, as one text for people. Functions of the
 * tools fill it in where they return a status below 0; the program prints it and chooses its exit status.
 */
#ifndef EO_TOOLS_SHARED_PROBLEM_H
#define EO_TOOLS_SHARED_PROBLEM_H

#include <evenodd/common.h>
#include <evenodd/status.h>

/* Exit statuses of all tools. */
enum { TOOL_EXIT_OK = 0, TOOL_EXIT_FAILED = 1, TOOL_EXIT_BAD_INPUT = 2, TOOL_EXIT_RANK_LOST = 3 };

struct tool_problem {
    char text[2048];
};

/* Returns `status`, so that `return tool_problem_set(...)` reads as what it does. */
eo_status tool_problem_set(struct tool_problem *problem, eo_status status, const char *format, ...) EO_PRINTF(3, 4);

/* What was printed has to have arrived: at the end of a program, its exit status. A full disk makes it TOOL_EXIT_FAILED, where
 * it was TOOL_EXIT_OK, with a word on standard error. */
int tool_output_end(int status);

/* Behind a word that counts: "" of one, else "s". */
static inline const char *tool_plural(unsigned long long count)
{
    return count == 1 ? "" : "s";
}

#endif
