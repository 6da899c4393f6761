/* SPDX-License-Identifier: MIT */
#include "tools/problem.h"

#include <stdarg.h>
#include <stdio.h>

eo_status eo_problem_set(struct eo_problem *problem, eo_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem->text, sizeof(problem->text), format, arguments);
    va_end(arguments);
    /* Names come from files, and the text goes to a terminal. */
    for (char *c = problem->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return status;
}
