/* SPDX-License-Identifier: MIT
 *
 * An opened checkpoint from inside.
 */
#ifndef EO_RUNTIME_CHECKPOINT_OPENED_H
#define EO_RUNTIME_CHECKPOINT_OPENED_H

#include "runtime/checkpoint/files.h"

/* Where a part of an array of a layer lies. */
struct checkpoint_part {
    uint32_t rank, section;
};

struct eo_checkpoint {
    char path[CHECKPOINT_PATH_MAX];
    eo_log log;
    struct checkpoint_manifest manifest;
    struct checkpoint_tables *files; /* heads, by rank */
    uint64_t bytes;

    struct checkpoint_part *parts; /* by layer, array, offset */
    uint64_t *part_begin;          /* by layer * (1 + states) + array, and one more */

    int file; /* of which was read last: -1 none */
    uint32_t file_rank;
    char *chunk; /* CHECKPOINT_CHUNK bytes: the one that was read last, found good */
    uint32_t chunk_rank;
    uint64_t chunk_index; /* in the file; UINT64_MAX: none */
};

/* One chunk of a section into checkpoint->chunk, padding included, checked. EO_ERR_IO: `error` names file and section. */
EO_NODISCARD eo_status eo_checkpoint_read_chunk(struct eo_checkpoint *checkpoint, uint32_t rank,
                                                const struct checkpoint_section *section, uint32_t chunk,
                                                struct checkpoint_error *error);

/* Of an array as it was saved, words of 4 bytes [offset, offset + count); zeros behind its end. Logged. */
EO_NODISCARD eo_status eo_checkpoint_read_words(struct eo_checkpoint *checkpoint, uint32_t layer, uint32_t array, uint64_t offset,
                                                uint64_t count, void *words);

#endif
