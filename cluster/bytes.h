/* SPDX-License-Identifier: MIT
 *
 * Numbers and texts of messages: little-endian, of fixed width, with the bounds checked here and nowhere else. A write
 * that does not fit and a read past the end change nothing and are remembered.
 */
#ifndef EO_CLUSTER_BYTES_H
#define EO_CLUSTER_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/plain_text.h"

struct eo_writer {
    unsigned char *at, *end;
    bool overran;
};

struct eo_reader {
    const unsigned char *at, *end;
    bool overran;
};

static inline void eo_put_bytes(struct eo_writer *w, const void *data, size_t bytes)
{
    if (w->overran || (size_t)(w->end - w->at) < bytes) {
        w->overran = true;
        return;
    }
    if (bytes)
        memcpy(w->at, data, bytes);
    w->at += bytes;
}

static inline void eo_put(struct eo_writer *w, uint64_t value, size_t bytes)
{
    unsigned char text[8];
    for (size_t i = 0; i < bytes; i++)
        text[i] = (unsigned char)(value >> (8 * i));
    eo_put_bytes(w, text, bytes);
}

/* Of a fixed number of bytes, cut and filled with zeros. */
static inline void eo_put_text(struct eo_writer *w, const char *text, size_t bytes)
{
    const size_t length = strnlen(text, bytes - 1);
    eo_put_bytes(w, text, length);
    for (size_t i = length; i < bytes; i++)
        eo_put(w, 0, 1);
}

/* NULL: there are not so many. */
static inline const unsigned char *eo_get_bytes(struct eo_reader *r, size_t bytes)
{
    if (r->overran || (size_t)(r->end - r->at) < bytes) {
        r->overran = true;
        return NULL;
    }
    const unsigned char *data = r->at;
    r->at += bytes;
    return data;
}

static inline uint64_t eo_get(struct eo_reader *r, size_t bytes)
{
    const unsigned char *text = eo_get_bytes(r, bytes);
    uint64_t value = 0;
    for (size_t i = 0; text && i < bytes; i++)
        value |= (uint64_t)text[i] << (8 * i);
    return value;
}

/* Ends with a zero, and has nothing in it that a terminal would take for a command. */
static inline void eo_get_text(struct eo_reader *r, char *out, size_t bytes)
{
    const unsigned char *text = eo_get_bytes(r, bytes);
    memset(out, 0, bytes);
    for (size_t i = 0; text && i + 1 < bytes && text[i]; i++)
        out[i] = (char)text[i];
    eo_text_clean(out);
}

#endif
