/* SPDX-License-Identifier: MIT
 *
 * SHA-256 (FIPS 180-4) and HMAC over it (RFC 2104): how ranks show each other that they hold the same token without
 * sending it. Nothing here is fast; a handshake hashes a few hundred bytes.
 */
#ifndef EO_CLUSTER_SHA256_H
#define EO_CLUSTER_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EO_SHA256_BYTES = 32, EO_SHA256_BLOCK_BYTES = 64 };

struct eo_sha256 {
    uint32_t state[8];
    uint64_t total_bytes;
    unsigned char block[EO_SHA256_BLOCK_BYTES];
};

void eo_sha256_init(struct eo_sha256 *hash);
void eo_sha256_add(struct eo_sha256 *hash, const void *data, size_t bytes);
void eo_sha256_end(struct eo_sha256 *hash, unsigned char out[EO_SHA256_BYTES]);

struct eo_hmac {
    struct eo_sha256 inner, outer;
};

void eo_hmac_init(struct eo_hmac *mac, const void *key, size_t key_bytes);
void eo_hmac_add(struct eo_hmac *mac, const void *data, size_t bytes);
void eo_hmac_end(struct eo_hmac *mac, unsigned char out[EO_SHA256_BYTES]);

/* Takes the same time wherever the first difference is. */
bool eo_equal_in_constant_time(const void *a, const void *b, size_t bytes);

#endif
