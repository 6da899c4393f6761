/* SPDX-License-Identifier: MIT
 *
 * What two ranks prove to each other, and the keys that come of it; all of it by libsodium.
 *
 *     proof      crypto_auth (HMAC-SHA-512-256) of the transcript and the side, under a key derived from the token
 *     transcript version and job, then of each side: rank, role, 32 random bytes, an X25519 key made for this link alone
 *     keys       crypto_kx of both keys, one a direction; each is mixed with the transcript and the token's key by keyed
 *                BLAKE2b. Who learns the token later cannot read what was said before
 *
 * Then each direction is a crypto_secretstream (XChaCha20-Poly1305): a message that was changed, dropped, repeated, moved or
 * made up does not open.
 */
#ifndef EO_CLUSTER_SEAL_H
#define EO_CLUSTER_SEAL_H

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    EO_KEY_BYTES = 32,
    EO_PROOF_BYTES = crypto_auth_BYTES,
    EO_STREAM_HEAD_BYTES = crypto_secretstream_xchacha20poly1305_HEADERBYTES,
    EO_SEAL_BYTES = crypto_secretstream_xchacha20poly1305_ABYTES, /* that a sealed message is longer */
    EO_TRANSCRIPT_BYTES = 512,
};

/* What all ranks of a job share, derived from the token; without one from nothing, and then it proves nothing. */
struct eo_secret {
    unsigned char proof_key[EO_KEY_BYTES], name_key[EO_KEY_BYTES];
    char job[256];
};

/* Filled in the same order on both sides. */
struct eo_transcript {
    unsigned char data[EO_TRANSCRIPT_BYTES];
    size_t bytes;
};

enum eo_side { EO_SIDE_WAS_DIALLED, EO_SIDE_DIALLED };

/* `token`: 32 bytes, or NULL. False: libsodium finds no source of random bytes. */
bool eo_secret_init(struct eo_secret *secret, const unsigned char *token, const char *job);

void eo_transcript_add(struct eo_transcript *t, const void *data, size_t bytes);
void eo_proof_make(unsigned char out[EO_PROOF_BYTES], const struct eo_secret *secret, const struct eo_transcript *t,
                   enum eo_side side);
/* In constant time. */
bool eo_proof_holds(const unsigned char proof[EO_PROOF_BYTES], const struct eo_secret *secret,
                    const struct eo_transcript *t, enum eo_side side);

struct eo_key_pair {
    unsigned char open[EO_KEY_BYTES], hidden[EO_KEY_BYTES];
};

/* The keys of both directions. False: the other side's key is none. */
bool eo_keys_derive(unsigned char send[EO_KEY_BYTES], unsigned char receive[EO_KEY_BYTES], const struct eo_secret *secret,
                    const struct eo_transcript *t, enum eo_side side, const struct eo_key_pair *own,
                    const unsigned char other[EO_KEY_BYTES]);

#endif
