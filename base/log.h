/* SPDX-License-Identifier: MIT
 *
 * printf to the caller's log callback. Texts longer than a line of 1000 bytes lose their middle.
 */
#ifndef EO_BASE_LOG_H
#define EO_BASE_LOG_H

#include <evenodd/log.h>

void eo_log_write(const eo_log *log, eo_log_level level, const char *format, ...) EO_PRINTF(3, 4);

#endif
