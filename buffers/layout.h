/* SPDX-License-Identifier: MIT
 *
 * Layout of a layer, the unit of sharding: parameters concatenated, each aligned, the whole padded so that shards are
 * equal and their size in bytes is a multiple of the alignment in every element type.
 *
 *     | p0 ... |pad| p1 ...... |pad| p2 .. | pad ..... |
 *     |<- shard 0 ->|<- shard 1 ->|   ...   |<- W-1 ->|
 *
 * Offsets and counts are in elements. Padding is zero everywhere and always.
 */
#ifndef EO_BUFFERS_LAYOUT_H
#define EO_BUFFERS_LAYOUT_H

#include <evenodd/common.h>
#include <evenodd/status.h>

enum { EO_LAYOUT_UNIT = 16 }; /* elements; a parameter begins at a multiple */

struct eo_layout {
    uint64_t element_count; /* without padding */
    uint64_t padded_count;  /* shard_count x ranks */
    uint64_t shard_count;
};

/*
 * `counts[k]` elements of parameter k; offsets[k] is written. No bound between shards cuts a parameter with whole[k] (NULL:
 * there is none), so a shard is at least as large, and may begin after a gap. A parameter begins at a multiple of EO_LAYOUT_UNIT (64 bytes
 * of fp32), a shard's size is a multiple of align_bytes / 2 elements, so that bf16 shards are aligned too.
 * EO_ERR_INVALID on overflow.
 */
EO_NODISCARD eo_status eo_layout_compute(struct eo_layout *out, uint64_t *offsets, const uint64_t *counts,
                                         const bool *whole, uint32_t parameter_count, uint32_t rank_count,
                                         uint32_t align_bytes);

#endif
