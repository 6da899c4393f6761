/* SPDX-License-Identifier: MIT
 *
 * XXH64, Yann Collet's checksum of 64 bits, with seed 0: as fast as memory, and good enough that no flipped bit goes
 * unseen. Not for adversaries.
 */
#ifndef EO_BASE_HASH64_H
#define EO_BASE_HASH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t eo_hash64(const void *data, size_t bytes);

#endif
