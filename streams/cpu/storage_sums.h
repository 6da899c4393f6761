/* SPDX-License-Identifier: MIT
 *
 * Sums over the pieces of what lies on a disk: a block that was lost, is stale, or another's ends the rank. They take in the
 * first 64 bytes of each block of 4 KiB, for all of them would cost a tenth of the time of the copies; flipped bits within a
 * block are for the disk's own code to find. 0: the piece was not written yet, and is zeros.
 */
#ifndef EO_STREAMS_CPU_STORAGE_SUMS_H
#define EO_STREAMS_CPU_STORAGE_SUMS_H

#include <stdbool.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/hashing.h"
#include "streams/device.h"

static inline uint64_t eo_storage_sum(const char *memory, uint64_t bytes)
{
    enum { LINE = 64 };
    char lines[EO_STORAGE_PIECE / EO_STORAGE_ALIGN * LINE];
    char any = 0;
    for (uint64_t b = 0; b < bytes / EO_STORAGE_ALIGN; b++)
        memcpy(&lines[b * LINE], memory + b * EO_STORAGE_ALIGN, LINE);
    const uint64_t lines_bytes = bytes / EO_STORAGE_ALIGN * LINE;
    for (uint64_t i = 0; i < lines_bytes; i++)
        any |= lines[i];
    return any ? XXH3_64bits(lines, lines_bytes) | 1 : 0;
}

/* `memory` begins with a piece. `sums` NULL: nobody wants them. */
static inline void eo_storage_sums_set(const char *memory, uint64_t bytes, uint64_t *sums)
{
    for (uint64_t at = 0; sums && at < bytes; at += EO_STORAGE_PIECE)
        *sums++ = eo_storage_sum(memory + at, eo_min_u64(EO_STORAGE_PIECE, bytes - at));
}

static inline bool eo_storage_sums_hold(const char *memory, uint64_t bytes, const uint64_t *sums)
{
    bool hold = true;
    for (uint64_t at = 0; sums && at < bytes; at += EO_STORAGE_PIECE, sums++)
        hold = hold && *sums == eo_storage_sum(memory + at, eo_min_u64(EO_STORAGE_PIECE, bytes - at));
    return hold;
}

#endif
