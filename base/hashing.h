/* SPDX-License-Identifier: MIT
 *
 * XXH64 of libxxhash, its header alone: checkpoints hold these values. No flipped bit goes unseen. Not for adversaries.
 */
#ifndef EO_BASE_HASHING_H
#define EO_BASE_HASHING_H

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Goes on from the hash of earlier data. */
static inline uint64_t eo_hash64_more(uint64_t hash, const void *data, size_t bytes)
{
    return XXH64(data, bytes, hash);
}

static inline uint64_t eo_hash64(const void *data, size_t bytes)
{
    return eo_hash64_more(0, data, bytes);
}

#endif
