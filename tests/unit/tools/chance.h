/* SPDX-License-Identifier: MIT
 *
 * Numbers by chance from a seed, and texts changed by them.
 */
#ifndef EO_TESTS_UNIT_TOOLS_CHANCE_H
#define EO_TESTS_UNIT_TOOLS_CHANCE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* One to `changes` times a piece in place of fewer than `gone` bytes. Returns how many bytes there are then. */
static inline size_t mutate_text(char *text, size_t bytes, size_t capacity, const char *const *pieces, size_t piece_count,
                                 uint32_t changes, uint32_t gone, uint64_t *state)
{
    for (uint64_t c = 1 + next_random(state) % changes; c > 0; c--) {
        const char *piece = pieces[next_random(state) % piece_count];
        const size_t length = strlen(piece), at = next_random(state) % (bytes + 1), most = next_random(state) % gone;
        const size_t cut = most < bytes - at ? most : bytes - at;
        if (bytes + length >= capacity)
            continue;
        memmove(text + at + length, text + at + cut, bytes - at - cut);
        memcpy(text + at, piece, length);
        bytes += length - cut;
    }
    return bytes;
}

/* A piece of JSON, or not, in place of some bytes. */
static inline size_t mutate_json(char *text, size_t bytes, size_t capacity, uint64_t *state)
{
    static const char *const pieces[] = {"null", "-1", "1e999", "18446744073709551616", "{", "}", "[", "]", "\"", ",", ":",
                                         "0", "4096.5", "\"model_type\"", "true", "\\u0000", "\xff", "9223372036854775807"};
    return mutate_text(text, bytes, capacity, pieces, sizeof(pieces) / sizeof(pieces[0]), 4, 12, state);
}

#endif
