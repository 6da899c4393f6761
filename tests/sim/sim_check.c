/* SPDX-License-Identifier: MIT */
#include "sim_check.h"

#include <stdarg.h>
#include <stdio.h>

static int failures, case_count, failed_cases;

void check_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    flockfile(stdout);
    if (__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 8) {
        printf("# %s:%d: ", file, line);
        vprintf(format, arguments);
        printf("\n");
    }
    funlockfile(stdout);
    va_end(arguments);
}

void check_case(const char *name)
{
    case_count++;
    failed_cases += failures > 0;
    printf("%s %d - %s\n", failures > 0 ? "not ok" : "ok", case_count, name);
    fflush(stdout);
    failures = 0;
}

int check_end(void)
{
    printf("1..%d\n", case_count);
    return failed_cases > 0;
}
