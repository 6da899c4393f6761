/* SPDX-License-Identifier: MIT
 *
 * The one list of status codes, with their texts. `status < 0` is the test for failure.
 */
#ifndef EVENODD_STATUS_H
#define EVENODD_STATUS_H

#include <evenodd/common.h>

#define EO_STATUS_MAP(X)                                                                                              \
    X(OK, 0, "success")                                                                                               \
    X(IN_PROGRESS, 1, "enqueued, not complete yet")                                                                   \
    X(ERR_INVALID, -1, "an argument or the order of calls is invalid")                                                \
    X(ERR_NO_MEMORY, -2, "not enough memory")                                                                         \
    X(ERR_UNSUPPORTED, -3, "not supported by this build or machine")                                                  \
    X(ERR_COMM, -4, "a collective failed or a rank is gone")                                                          \
    X(ERR_TIMEOUT, -5, "a rank did not arrive before the deadline")                                                   \
    X(ERR_DEVICE, -6, "the device failed")                                                                            \
    X(ERR_IO, -7, "a file could not be read or written")                                                              \
    X(ERR_SCHEDULE, -8, "the schedule has a hazard")                                                                  \
    X(ERR_NOT_FINITE, -9, "a value is not finite")

typedef enum eo_status {
#define X(name, code, text) EO_##name = code,
    EO_STATUS_MAP(X)
#undef X
} eo_status;

/* In a function of a status: a failure travels up unchanged. */
#define EO_TRY(expression)                                                                                            \
    do {                                                                                                              \
        const eo_status eo_try_status = (expression);                                                                 \
        if (eo_try_status < 0)                                                                                        \
            return eo_try_status;                                                                                     \
    } while (0)

#ifdef __cplusplus
extern "C" {
#endif

/* The text of a status, a static string; never NULL. */
EO_EXPORT const char *eo_status_text(eo_status status);

#ifdef __cplusplus
}
#endif

#endif
