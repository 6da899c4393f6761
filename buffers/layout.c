/* SPDX-License-Identifier: MIT */
#include "buffers/layout.h"

#include "base/arithmetic.h"

enum { ELEMENT_BYTES_MIN = 2, ELEMENT_BYTES_MAX = 4 };

/* eo_align_up for a value that may be near the end of the range. */
static bool checked_align_up(uint64_t count, uint64_t align, uint64_t *out)
{
    const uint64_t rest = count % align;
    return eo_checked_add(count, rest ? align - rest : 0, out);
}

eo_status eo_layout_compute(struct eo_layout *out, uint64_t *offsets, const uint64_t *counts,
                            uint32_t parameter_count, uint32_t rank_count, uint32_t align_bytes)
{
    EO_ASSERT(rank_count > 0);
    EO_ASSERT(eo_is_power_of_two(align_bytes) && align_bytes >= ELEMENT_BYTES_MIN);
    struct eo_layout layout = {0};
    uint64_t end = 0;
    for (uint32_t k = 0; k < parameter_count; k++) {
        uint64_t begin;
        if (!checked_align_up(end, EO_LAYOUT_UNIT, &begin) || !eo_checked_add(begin, counts[k], &end))
            return EO_ERR_INVALID;
        offsets[k] = begin;
        layout.element_count += counts[k]; /* at most `end`, which did not wrap */
    }
    uint64_t padded_bytes;
    if (!checked_align_up(eo_div_up(end, rank_count), align_bytes / ELEMENT_BYTES_MIN, &layout.shard_count) ||
        !eo_checked_mul(layout.shard_count, rank_count, &layout.padded_count) ||
        !eo_checked_mul(layout.padded_count, ELEMENT_BYTES_MAX, &padded_bytes))
        return EO_ERR_INVALID;
    *out = layout;
    return EO_OK;
}
