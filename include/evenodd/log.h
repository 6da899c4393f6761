/* SPDX-License-Identifier: MIT
 *
 * The library prints nothing: it calls back. A NULL log, or one without a callback, is silence.
 */
#ifndef EVENODD_LOG_H
#define EVENODD_LOG_H

#include <evenodd/common.h>

typedef enum eo_log_level {
    EO_LOG_ERROR, /* the call that logs it fails */
    EO_LOG_WARN,  /* works, but not as you would want */
    EO_LOG_INFO,  /* once per object: plan, placement, topology */
    EO_LOG_DEBUG, /* which kernels evenodd_layers chose; of this library nothing yet */
    EO_LOG_TRACE, /* nothing yet */
} eo_log_level;

/* May be called from any thread of the library, the communication thread included. `text` lives during the call. */
typedef struct eo_log {
    void (*write)(void *user, eo_log_level level, const char *text);
    void *user;
    eo_log_level level; /* [EO_LOG_ERROR] the most detailed level that is passed on */
} eo_log;

/* Takes text piece by piece: what prints plans and reports. */
typedef void (*eo_write_fn)(void *user, const char *text, size_t text_bytes);

#endif
