/* SPDX-License-Identifier: MIT */
#include "cluster/seal.h"

#include <string.h>

#include "base/check.h"

_Static_assert((int)EO_KEY_BYTES == (int)crypto_auth_KEYBYTES && (int)EO_KEY_BYTES == (int)crypto_kx_PUBLICKEYBYTES &&
               (int)EO_KEY_BYTES == (int)crypto_kx_SECRETKEYBYTES && (int)EO_KEY_BYTES == (int)crypto_kx_SESSIONKEYBYTES &&
               (int)EO_KEY_BYTES == (int)crypto_secretstream_xchacha20poly1305_KEYBYTES &&
               (int)EO_KEY_BYTES >= (int)crypto_generichash_KEYBYTES_MIN, "one size of keys");

static void hash(unsigned char out[EO_KEY_BYTES], const void *data, size_t bytes, const unsigned char key[EO_KEY_BYTES])
{
    const int result = crypto_generichash(out, EO_KEY_BYTES, data, bytes, key, EO_KEY_BYTES);
    EO_ASSERT(result == 0); /* sizes alone can be wrong */
}

bool eo_secret_init(struct eo_secret *secret, const unsigned char *token, const char *job)
{
    static const unsigned char nothing[EO_KEY_BYTES];
    static const char proof[] = "evenodd: proof of the token", name[] = "evenodd: name within a host";
    if (sodium_init() < 0)
        return false;
    memset(secret, 0, sizeof(*secret));
    hash(secret->proof_key, proof, sizeof(proof), token ? token : nothing);
    hash(secret->name_key, name, sizeof(name), token ? token : nothing);
    strncpy(secret->job, job, sizeof(secret->job) - 1);
    return true;
}

void eo_transcript_add(struct eo_transcript *t, const void *data, size_t bytes)
{
    EO_ASSERT(bytes <= sizeof(t->data) - t->bytes);
    memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
}

void eo_proof_make(unsigned char out[EO_PROOF_BYTES], const struct eo_secret *secret, const struct eo_transcript *t,
                   enum eo_side side)
{
    struct eo_transcript with_side = *t;
    eo_transcript_add(&with_side, side == EO_SIDE_DIALLED ? "D" : "W", 1);
    (void)crypto_auth(out, with_side.data, with_side.bytes, secret->proof_key); /* cannot fail */
}

bool eo_proof_holds(const unsigned char proof[EO_PROOF_BYTES], const struct eo_secret *secret,
                    const struct eo_transcript *t, enum eo_side side)
{
    struct eo_transcript with_side = *t;
    eo_transcript_add(&with_side, side == EO_SIDE_DIALLED ? "D" : "W", 1);
    return crypto_auth_verify(proof, with_side.data, with_side.bytes, secret->proof_key) == 0;
}

bool eo_keys_derive(unsigned char send[EO_KEY_BYTES], unsigned char receive[EO_KEY_BYTES], const struct eo_secret *secret,
                    const struct eo_transcript *t, enum eo_side side, const struct eo_key_pair *own,
                    const unsigned char other[EO_KEY_BYTES])
{
    struct eo_transcript mixed = *t;
    unsigned char shared_send[EO_KEY_BYTES], shared_receive[EO_KEY_BYTES];
    const int result = side == EO_SIDE_DIALLED
                           ? crypto_kx_client_session_keys(shared_receive, shared_send, own->open, own->hidden, other)
                           : crypto_kx_server_session_keys(shared_receive, shared_send, own->open, own->hidden, other);
    if (result != 0)
        return false;
    eo_transcript_add(&mixed, secret->proof_key, sizeof(secret->proof_key));
    hash(send, mixed.data, mixed.bytes, shared_send);
    hash(receive, mixed.data, mixed.bytes, shared_receive);
    sodium_memzero(&mixed, sizeof(mixed));
    sodium_memzero(shared_send, sizeof(shared_send));
    sodium_memzero(shared_receive, sizeof(shared_receive));
    return true;
}
