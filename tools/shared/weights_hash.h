/* SPDX-License-Identifier: MIT
 *
 * One number for all weights: 64-bit FNV-1a over the fp32 bytes of the full parameters in model order. Shards and
 * padding do not enter, so it does not depend on how many ranks there are.
 */
#ifndef EO_TOOLS_SHARED_WEIGHTS_HASH_H
#define EO_TOOLS_SHARED_WEIGHTS_HASH_H

#include <evenodd/evenodd.h>

#define TOOL_HASH_START 0xcbf29ce484222325u

/* Collective, between steps. Every rank gets the same number. */
EO_NODISCARD eo_status tool_weights_hash(eo_runtime *runtime, uint64_t *out);

/* The hash of `bytes` more bytes. */
uint64_t tool_hash_more(uint64_t hash, const void *data, uint64_t bytes);

#endif
