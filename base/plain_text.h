/* SPDX-License-Identifier: MIT
 *
 * Texts of files, and of other processes, on their way to a terminal: what it would take for a command becomes '?'. Commands
 * are ASCII's control characters and U+0080 to U+009F, whose bytes alone are commands too where they are no UTF-8; and what
 * changes the direction of text (U+202A to U+202E, U+2066 to U+2069) shows another text than there is. And texts that are too
 * long for their place.
 */
#ifndef EO_BASE_PLAIN_TEXT_H
#define EO_BASE_PLAIN_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <evenodd/common.h>

/* Bytes of the character (UTF-8 by RFC 3629) that begins here; 0: none does. */
static inline size_t eo_text_character(const unsigned char *text)
{
    const unsigned char c = text[0];
    const size_t length = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f) || (c == 0xf0 && text[1] < 0x90) ||
        (c == 0xf4 && text[1] > 0x8f))
        return 0; /* too long a form, a surrogate, beyond the last character */
    return length;
}

static inline bool eo_text_is_control(const unsigned char *text)
{
    return text[0] < 0x20 || text[0] == 0x7f || (text[0] == 0xc2 && text[1] >= 0x80 && text[1] < 0xa0);
}

/* Bytes of the character here; 0: a terminal is not to get it. */
static inline size_t eo_text_plain(const unsigned char *text)
{
    const bool turns = text[0] == 0xe2 && ((text[1] == 0x80 && text[2] >= 0xaa && text[2] <= 0xae) ||
                                           (text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9));
    return turns || eo_text_is_control(text) ? 0 : eo_text_character(text);
}

static inline void eo_text_clean(char *text)
{
    for (size_t length; *text; text += length)
        if ((length = eo_text_plain((const unsigned char *)text)) == 0) {
            *text = '?';
            length = 1;
        }
}

/* As snprintf of "%s", but what is too long loses its middle: a path stands at the beginning, and what is wrong with it at the
 * end. Returns the length of what there is. */
static inline size_t eo_text_fit(char *text, size_t bytes, const char *whole)
{
    static const char gap[] = " ... ";
    const size_t length = strlen(whole);
    if (length < bytes) {
        memcpy(text, whole, length + 1);
        return length;
    }
    const size_t begin = bytes > sizeof(gap) ? (bytes - sizeof(gap)) / 2 : 0;
    snprintf(text, bytes, "%.*s%s", (int)begin, whole, gap);
    const size_t used = strlen(text), rest = bytes - 1 - used;
    memcpy(text + used, whole + length - rest, rest + 1);
    return bytes - 1;
}

EO_PRINTF(3, 0) static inline size_t eo_text_format(char *text, size_t bytes, const char *format, va_list arguments)
{
    char whole[3 * 4096]; /* two paths, and words */
    vsnprintf(whole, sizeof(whole), format, arguments);
    return eo_text_fit(text, bytes, whole);
}

#endif
