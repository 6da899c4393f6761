/* SPDX-License-Identifier: MIT
 *
 * What is saved of an offloaded run, from where it lies: shards in memory, and the disk. Piece by piece, so no copy of it is
 * ever in memory. Nobody may write a layer's shard meanwhile.
 */
#ifndef EO_RUNTIME_CHECKPOINT_IN_PLACE_H
#define EO_RUNTIME_CHECKPOINT_IN_PLACE_H

#include "runtime/checkpoint/files.h"
#include "runtime/internal.h"

/* Whether this runtime's state can be: something is on a disk that the saver's thread reads, too. */
bool eo_in_place_is_possible(const struct eo_runtime *rt);

/* Room for what is read from the disk. */
enum { EO_IN_PLACE_ROOM_BYTES = CHECKPOINT_PIECE + 2 * EO_STORAGE_PIECE };

/* As a checkpoint_source, of all sections but the trainer's bytes; `room`: aligned memory of EO_IN_PLACE_ROOM_BYTES. */
const void *eo_in_place_part(struct eo_runtime *rt, const struct checkpoint_section *section, uint64_t at, uint64_t bytes,
                             void *piece, void *room, struct checkpoint_error *error);

#endif
