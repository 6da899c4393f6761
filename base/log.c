/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>

#include "base/plain_text.h"

enum { LINE_BYTES_MAX = 1000 };

void eo_log_write(const eo_log *log, eo_log_level level, const char *format, ...)
{
    if (!log || !log->write || level > log->level)
        return;
    char text[LINE_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)eo_text_format(text, sizeof(text), format, arguments);
    va_end(arguments);
    log->write(log->user, level, text);
}
