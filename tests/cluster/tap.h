/* SPDX-License-Identifier: MIT
 *
 * A line a sentence that holds or not.
 */
#ifndef EO_TESTS_TAP_H
#define EO_TESTS_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int tap_count, tap_failures;

__attribute__((format(printf, 2, 3))) static inline bool tap(bool holds, const char *format, ...)
{
    va_list arguments;
    printf("%s %d - ", holds ? "ok" : "not ok", ++tap_count);
    tap_failures += !holds;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
    return holds;
}

static inline void skip(const char *name, const char *reason)
{
    printf("ok %d - %s # SKIP %s\n", ++tap_count, name, reason);
}

static inline int tap_end(void)
{
    printf("1..%d\n", tap_count);
    return tap_failures != 0;
}

#endif
