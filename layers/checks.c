/* SPDX-License-Identifier: MIT */
#include "layers/checks.h"

#include <stdarg.h>
#include <stdio.h>

void eo_layers_log(const eo_log *log, eo_log_level level, const char *format, ...)
{
    if (!log || !log->write || level > log->level)
        return;
    char text[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    log->write(log->user, level, text);
}
