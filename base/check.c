/* SPDX-License-Identifier: MIT */
#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A bug of ours has no caller to return to: these two are the only places of the library that print and abort. */
_Noreturn void eo_assert_failed(const char *condition, const char *file, int line)
{
    eo_fatal("%s:%d: assertion failed: %s", file, line, condition);
}

_Noreturn void eo_fatal(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("evenodd: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}
