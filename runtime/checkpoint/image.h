/* SPDX-License-Identifier: MIT
 *
 * Where the bytes of a rank's file come from, section by section: a copy in host memory, made between two steps, or the place
 * where they lie, read while the file is written. All is copied where nothing is saved in place.
 *
 * In place: what is offloaded is read from the disk, or on a GPU from host memory. Of the rest there is a copy on a GPU; a
 * CPU's shards are read themselves. Nobody may write a layer's shard until its sections are read.
 */
#ifndef EO_RUNTIME_CHECKPOINT_IMAGE_H
#define EO_RUNTIME_CHECKPOINT_IMAGE_H

#include "runtime/checkpoint/files.h"
#include "runtime/internal.h"

struct checkpoint_image {
    struct eo_runtime *rt;
    const struct checkpoint_tables *tables;
    bool is_in_place;
    char *memory; /* host memory that the device copies to, in the order of the file */
    uint64_t bytes;
    uint64_t *rooms; /* of each section, in `memory`; UINT64_MAX: it has none */
    void *room;      /* in place: for a piece from where it lies */
};

/* Whether something of this runtime's state is offloaded, and so can be saved in place. */
bool eo_image_may_be_in_place(const struct eo_runtime *rt);

/* Reserves its memory. `tables` stay the caller's; their last section has room for `blob_bytes_max`. May be followed by fini
 * even where it fails. */
EO_NODISCARD eo_status eo_image_init(struct checkpoint_image *image, struct eo_runtime *rt,
                                     const struct checkpoint_tables *tables, uint32_t blob_bytes_max, bool in_place);
void eo_image_fini(struct checkpoint_image *image); /* of zeros, too */

/* Between steps: issues the copies on the compute queue, and settles what is offloaded. */
EO_NODISCARD eo_status eo_image_copy(struct checkpoint_image *image);
/* The trainer's bytes, and zeros up to `bytes_max`. */
void eo_image_set_blob(struct checkpoint_image *image, const void *blob, uint32_t bytes, uint32_t bytes_max);

/* As a checkpoint_source, of one thread. */
const void *eo_image_part(struct checkpoint_image *image, const struct checkpoint_section *section, uint64_t at, uint64_t bytes,
                          void *piece, struct checkpoint_error *error);

#endif
