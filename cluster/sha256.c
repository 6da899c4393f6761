/* SPDX-License-Identifier: MIT */
#include "cluster/sha256.h"

#include <string.h>

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, unsigned bits)
{
    return x >> bits | x << (32 - bits);
}

static void compress(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++, block += 4)
        w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, state, sizeof(v));
    for (int i = 0; i < 64; i++) {
        const uint32_t t1 = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
                            ((v[4] & v[5]) ^ (~v[4] & v[6])) + round_constants[i] + w[i];
        const uint32_t t2 = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
                            ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void eo_sha256_init(struct eo_sha256 *hash)
{
    *hash = (struct eo_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                         0x1f83d9ab, 0x5be0cd19}};
}

void eo_sha256_add(struct eo_sha256 *hash, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    while (bytes > 0) {
        const size_t used = hash->total_bytes % EO_SHA256_BLOCK_BYTES;
        const size_t piece = bytes < EO_SHA256_BLOCK_BYTES - used ? bytes : EO_SHA256_BLOCK_BYTES - used;
        memcpy(hash->block + used, from, piece);
        hash->total_bytes += piece;
        from += piece;
        bytes -= piece;
        if (hash->total_bytes % EO_SHA256_BLOCK_BYTES == 0)
            compress(hash->state, hash->block);
    }
}

void eo_sha256_end(struct eo_sha256 *hash, unsigned char out[EO_SHA256_BYTES])
{
    static const unsigned char padding[EO_SHA256_BLOCK_BYTES] = {0x80};
    const uint64_t bits = hash->total_bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    const size_t used = hash->total_bytes % EO_SHA256_BLOCK_BYTES;
    eo_sha256_add(hash, padding, used < 56 ? 56 - used : 120 - used);
    eo_sha256_add(hash, length, sizeof(length));
    for (int i = 0; i < EO_SHA256_BYTES; i++)
        out[i] = (unsigned char)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void eo_hmac_init(struct eo_hmac *mac, const void *key, size_t key_bytes)
{
    unsigned char block[EO_SHA256_BLOCK_BYTES] = {0};
    if (key_bytes > sizeof(block)) {
        eo_sha256_init(&mac->inner);
        eo_sha256_add(&mac->inner, key, key_bytes);
        eo_sha256_end(&mac->inner, block);
    } else {
        memcpy(block, key, key_bytes);
    }
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36;
    eo_sha256_init(&mac->inner);
    eo_sha256_add(&mac->inner, block, sizeof(block));
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36 ^ 0x5c;
    eo_sha256_init(&mac->outer);
    eo_sha256_add(&mac->outer, block, sizeof(block));
}

void eo_hmac_add(struct eo_hmac *mac, const void *data, size_t bytes)
{
    eo_sha256_add(&mac->inner, data, bytes);
}

void eo_hmac_end(struct eo_hmac *mac, unsigned char out[EO_SHA256_BYTES])
{
    unsigned char inner[EO_SHA256_BYTES];
    eo_sha256_end(&mac->inner, inner);
    eo_sha256_add(&mac->outer, inner, sizeof(inner));
    eo_sha256_end(&mac->outer, out);
}

bool eo_equal_in_constant_time(const void *a, const void *b, size_t bytes)
{
    const volatile unsigned char *x = a, *y = b;
    unsigned char differs = 0;
    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned char)(x[i] ^ y[i]);
    return differs == 0;
}
