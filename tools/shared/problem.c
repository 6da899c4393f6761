/* SPDX-License-Identifier: MIT */
#include "tools/shared/problem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/plain_text.h"
#include "tools/shared/patient_output.h"

eo_status tool_problem_set(struct tool_problem *problem, eo_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)eo_text_format(problem->text, sizeof(problem->text), format, arguments);
    va_end(arguments);
    /* Names come from files, and the text goes to a terminal. */
    eo_text_clean(problem->text);
    return status;
}

int tool_output_end(int status)
{
    const bool lost_before = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !lost_before && tool_patient_end(-1))
        return status;
    fprintf(stderr, "%s: standard output cannot be written%s%s: the output is incomplete\n",
            program_invocation_short_name, lost_before ? "" : ": ", lost_before ? "" : strerror(errno));
    return status == TOOL_EXIT_OK ? TOOL_EXIT_FAILED : status;
}
