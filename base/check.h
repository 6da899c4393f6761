/* SPDX-License-Identifier: MIT
 *
 * Three checks, told apart by whose fault it is:
 *
 * EO_ASSERT    our bug. Always on, always fatal, no side effects.
 * EO_REQUIRE   the caller's bug. Logged, returned as EO_ERR_INVALID.
 * EO_TRY       the world's fault. The status travels up unchanged (evenodd/status.h).
 */
#ifndef EO_BASE_CHECK_H
#define EO_BASE_CHECK_H

#include <evenodd/log.h>
#include <evenodd/status.h>

#include "base/log.h"

_Noreturn void eo_assert_failed(const char *condition, const char *file, int line);
_Noreturn void eo_fatal(const char *format, ...) EO_PRINTF(1, 2);

#define EO_ASSERT(condition)                                                                                          \
    do {                                                                                                              \
        if (!(condition))                                                                                             \
            eo_assert_failed(#condition, __FILE__, __LINE__);                                                         \
    } while (0)

/* The format says what was wrong, where, and what to do. */
#define EO_REQUIRE(log, condition, ...)                                                                               \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            eo_log_write(log, EO_LOG_ERROR, __VA_ARGS__);                                                             \
            return EO_ERR_INVALID;                                                                                    \
        }                                                                                                             \
    } while (0)

#endif
