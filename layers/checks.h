/* SPDX-License-Identifier: MIT
 *
 * The layers' own log and checks: like any trainer, this library cannot see the runtime's.
 *
 * LAYERS_REQUIRE  the caller's bug. Logged, returned as EO_ERR_INVALID.
 */
#ifndef EO_LAYERS_CHECKS_H
#define EO_LAYERS_CHECKS_H

#include <evenodd/log.h>
#include <evenodd/status.h>

/* printf to the log's callback; texts longer than 1000 bytes are cut. */
void eo_layers_log(const eo_log *log, eo_log_level level, const char *format, ...) EO_PRINTF(3, 4);

/* The format says the fault, the place and the remedy. */
#define LAYERS_REQUIRE(log, condition, ...)                                                                           \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            eo_layers_log(log, EO_LOG_ERROR, __VA_ARGS__);                                                            \
            return EO_ERR_INVALID;                                                                                    \
        }                                                                                                             \
    } while (0)

#endif
