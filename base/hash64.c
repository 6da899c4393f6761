/* SPDX-License-Identifier: MIT */
#include "base/hash64.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read as they lie in memory, little end first"
#endif

static const uint64_t prime1 = 0x9E3779B185EBCA87u, prime2 = 0xC2B2AE3D27D4EB4Fu, prime3 = 0x165667B19E3779F9u,
                      prime4 = 0x85EBCA77C2B2AE63u, prime5 = 0x27D4EB2F165667C5u;

static uint64_t word64(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

static uint32_t word32(const unsigned char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

static uint64_t turn(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t mix(uint64_t lane, uint64_t word)
{
    return turn(lane + word * prime2, 31) * prime1;
}

/* Four lanes over blocks of 32 bytes, folded into one. */
static uint64_t hash_blocks(const unsigned char *at, size_t block_count)
{
    uint64_t a = prime1 + prime2, b = prime2, c = 0, d = 0 - prime1;
    for (size_t i = 0; i < block_count; i++, at += 32) {
        a = mix(a, word64(at));
        b = mix(b, word64(at + 8));
        c = mix(c, word64(at + 16));
        d = mix(d, word64(at + 24));
    }
    uint64_t hash = turn(a, 1) + turn(b, 7) + turn(c, 12) + turn(d, 18);
    const uint64_t lanes[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        hash = (hash ^ mix(0, lanes[i])) * prime1 + prime4;
    return hash;
}

uint64_t eo_hash64(const void *data, size_t bytes)
{
    const unsigned char *at = data, *const end = at + bytes;
    uint64_t hash = bytes >= 32 ? hash_blocks(at, bytes / 32) : prime5;
    at += bytes / 32 * 32;
    hash += bytes;
    for (; end - at >= 8; at += 8)
        hash = turn(hash ^ mix(0, word64(at)), 27) * prime1 + prime4;
    for (; end - at >= 4; at += 4)
        hash = turn(hash ^ word32(at) * prime1, 23) * prime2 + prime3;
    for (; at < end; at++)
        hash = turn(hash ^ *at * prime5, 11) * prime1;
    hash = (hash ^ hash >> 33) * prime2;
    hash = (hash ^ hash >> 29) * prime3;
    return hash ^ hash >> 32;
}
