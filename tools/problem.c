/* SPDX-License-Identifier: MIT */
#include "tools/problem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/patient_output.h"

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

int eo_output_end(int status)
{
    const bool lost_before = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !lost_before && eo_patient_end(-1))
        return status;
    fprintf(stderr, "%s: standard output cannot be written%s%s: what was printed is not whole\n",
            program_invocation_short_name, lost_before ? "" : ": ", lost_before ? "" : strerror(errno));
    return status == EO_EXIT_OK ? EO_EXIT_FAILED : status;
}
