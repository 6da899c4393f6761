/* SPDX-License-Identifier: MIT
 *
 * JSON by templates: JSON with ' for its quotes, and printf's conversions for its values.
 *
 *     eo_json_write(&json, "{'name': %s, 'slots': [%u, %u], 'rows': [", name, 2, 2);
 *     for (...)
 *         eo_json_write(&json, "\n{'bytes': %" PRIu64 "}", bytes);
 *     eo_json_write(&json, "]}");
 *
 *     %s         a text, escaped; bytes that are no UTF-8 become U+FFFD; NULL: null
 *     %d %u %x   numbers, with l, ll or z before; %x and what fills it up are a text: "%016llx"
 *     %g %.3f    reals, %g as short as it reads back the same; null where JSON has none
 *     %i         a bool
 *
 * Any piece of JSON is a template. The writer sets commas and spaces, a template's own are for its reader; a line's end
 * is written. All of it is inline, for the programs too: a shared library hides nothing of it.
 */
#ifndef EO_BASE_JSON_WRITER_H
#define EO_BASE_JSON_WRITER_H

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <evenodd/common.h>
#include <evenodd/log.h>

#include "base/plain_text.h"

struct eo_json {
    eo_write_fn write;
    void *user;
    uint32_t indent; /* [0] spaces a level, each value on a line of its own; 0: as short as it can be */

    uint32_t depth;
    uint64_t filled; /* a bit for each level, the lowest for this one: there is a value already */
    bool after_key, line_ends;
};

static inline void eo_json_put(const struct eo_json *json, const char *text)
{
    json->write(json->user, text, strlen(text));
}

static inline void eo_json_end_line(struct eo_json *json)
{
    if (json->indent || json->line_ends)
        eo_json_put(json, "\n");
    static const char spaces[] = "                ";
    for (uint32_t left = json->indent * json->depth, now; left; left -= now) {
        now = left < sizeof(spaces) - 1 ? left : (uint32_t)sizeof(spaces) - 1;
        json->write(json->user, spaces, now);
    }
    json->line_ends = false;
}

/* Before each key and each value. */
static inline void eo_json_begin(struct eo_json *json)
{
    if (!json->after_key && json->filled & 1)
        eo_json_put(json, ",");
    if (!json->after_key && json->depth)
        eo_json_end_line(json);
    json->filled |= 1;
    json->after_key = false;
}

/* Length of the character, 0 where there is none that may stand in a JSON text (UTF-8 by RFC 3629). */
static inline size_t eo_json_plain(const unsigned char *text)
{
    const unsigned char c = text[0];
    return c < 0x20 || c == '"' || c == '\\' || c == 0x7f ? 0 : eo_text_character(text);
}

static inline void eo_json_put_string(const struct eo_json *json, const char *text)
{
    const unsigned char *at = (const unsigned char *)text, *plain = at;
    char escaped[8];
    eo_json_put(json, "\"");
    for (size_t length; *at; at += length) {
        if ((length = eo_json_plain(at)) != 0)
            continue;
        json->write(json->user, (const char *)plain, (size_t)(at - plain));
        snprintf(escaped, sizeof(escaped), *at == '"' || *at == '\\' ? "\\%c" : "\\u%04x", *at < 0x80 ? *at : 0xfffdu);
        eo_json_put(json, escaped);
        plain = at + (length = 1);
    }
    json->write(json->user, (const char *)plain, (size_t)(at - plain));
    eo_json_put(json, "\"");
}

/* 1e-05 becomes 1e-5, 1 becomes 1.0, and a locale's decimal sign, whatever it is, a point. */
static inline void eo_json_put_real(const struct eo_json *json, const char *format, double value)
{
    char text[352]; /* the largest double has 309 digits before the point */
    double back = 0;
    snprintf(text, sizeof(text) - 2, format, value);
    for (int digits = 15; !strchr(format, '.') && digits <= 17 && (digits == 15 || back != value); digits++) {
        snprintf(text, sizeof(text) - 2, "%.*g", digits, value);
        back = strtod(text, NULL);
    }
    const size_t whole = strspn(text, "-0123456789"), sign = strcspn(text + whole, "0123456789e");
    if (sign && isfinite(value)) {
        text[whole] = '.';
        memmove(text + whole + 1, text + whole + sign, strlen(text + whole + sign) + 1);
    }
    char *power = strchr(text, 'e');
    if (power) {
        const char *digits = power + 2 + strspn(power + 2, "0");
        power += power[1] == '-' ? 2 : 1;
        memmove(power, digits, strlen(digits) + 1);
    } else if (!strchr(text, '.')) {
        strcat(text, ".0");
    }
    eo_json_put(json, isfinite(value) ? text : "null");
}

/* Faster than snprintf: a plan has tens of thousands. */
static inline void eo_json_put_whole(const struct eo_json *json, uint64_t value)
{
    char text[24], *at = text + sizeof(text) - 1;
    *at = '\0';
    do
        *--at = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    eo_json_put(json, at);
}

/* A conversion; the character behind it. */
static inline const char *eo_json_convert(struct eo_json *json, const char *at, va_list *values)
{
    char format[16], text[64];
    const size_t length = strcspn(at, "sduxgfi") + 1;
    const char kind = at[length - 1];
    eo_json_begin(json);
    if (kind == 's') {
        const char *string = va_arg(*values, const char *);
        if (string)
            eo_json_put_string(json, string);
        else
            eo_json_put(json, "null");
    } else if (kind == 'i') {
        eo_json_put(json, va_arg(*values, int) ? "true" : "false");
    } else if (kind == 'u' && length == 2) {
        eo_json_put_whole(json, va_arg(*values, unsigned));
    } else if (kind == 'u' && (at[1] == 'l' || at[1] == 'z')) { /* all of them have 64 bits */
        eo_json_put_whole(json, va_arg(*values, unsigned long long));
    } else {
        snprintf(format, sizeof(format), kind == 'x' ? "\"%.*s\"" : "%.*s", (int)length, at);
        if (kind == 'g' || kind == 'f') {
            eo_json_put_real(json, format, va_arg(*values, double));
            return at + length;
        }
        if (strpbrk(format, "lz"))
            snprintf(text, sizeof(text), format, va_arg(*values, unsigned long long));
        else
            snprintf(text, sizeof(text), format, va_arg(*values, unsigned));
        eo_json_put(json, text);
    }
    return at + length;
}

static inline void eo_json_write(struct eo_json *json, const char *format, ...) EO_PRINTF(2, 3);

static inline void eo_json_write(struct eo_json *json, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    for (const char *at = format; *at;) {
        size_t length = 1;
        if (*at == '%') {
            at = eo_json_convert(json, at, &values);
            continue;
        }
        if (*at == '\n') {
            json->line_ends = true;
        } else if (*at == ':') {
            eo_json_put(json, json->indent ? ": " : ":");
            json->after_key = true;
        } else if (*at == '}' || *at == ']') {
            json->depth--;
            if (json->filled & 1)
                eo_json_end_line(json);
            json->filled >>= 1;
            json->write(json->user, at, 1);
        } else if (*at == '{' || *at == '[') {
            eo_json_begin(json);
            json->depth++;
            json->filled <<= 1;
            json->write(json->user, at, 1);
        } else if (*at == '\'') {
            eo_json_begin(json);
            length = strcspn(at + 1, "'") + 2;
            eo_json_put(json, "\"");
            json->write(json->user, at + 1, length - 2);
            eo_json_put(json, "\"");
        } else if (*at != ' ' && *at != ',') {
            eo_json_begin(json);
            length = strcspn(at, " ,:\n}]");
            json->write(json->user, at, length);
        }
        at += length;
    }
    va_end(values);
}

#endif
