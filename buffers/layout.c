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

/* One after the other, with bounds at multiples of shard_count (0: there are none). False: they end beyond what can be counted. */
static bool place(uint64_t *offsets, const uint64_t *counts, const bool *whole, uint32_t parameter_count, uint64_t shard_count,
                  uint64_t *end)
{
    *end = 0;
    for (uint32_t k = 0; k < parameter_count; k++) {
        uint64_t begin;
        if (!checked_align_up(*end, EO_LAYOUT_UNIT, &begin) || !eo_checked_add(begin, counts[k], end))
            return false;
        const bool is_cut = shard_count && whole && whole[k] && begin / shard_count != (*end - 1) / shard_count;
        if (is_cut && (!checked_align_up(begin, shard_count, &begin) || !eo_checked_add(begin, counts[k], end)))
            return false;
        offsets[k] = begin;
    }
    return true;
}

eo_status eo_layout_compute(struct eo_layout *out, uint64_t *offsets, const uint64_t *counts, const bool *whole,
                            uint32_t parameter_count, uint32_t rank_count, uint32_t align_bytes)
{
    EO_ASSERT(rank_count > 0);
    EO_ASSERT(eo_is_power_of_two(align_bytes) && align_bytes >= ELEMENT_BYTES_MIN);
    struct eo_layout layout = {0};
    uint64_t end, padded_bytes, least = 0;
    if (!place(offsets, counts, whole, parameter_count, 0, &end))
        return EO_ERR_INVALID;
    for (uint32_t k = 0; k < parameter_count; k++) {
        layout.element_count += counts[k]; /* at most `end`, which did not wrap */
        least = whole && whole[k] ? eo_max_u64(least, counts[k]) : least;
    }
    do { /* gaps before whole ones may take more room than there is: then shards grow, to hold all in the end */
        least = eo_max_u64(least, eo_div_up(end, rank_count));
        if (!checked_align_up(least, align_bytes / ELEMENT_BYTES_MIN, &layout.shard_count) ||
            !eo_checked_mul(layout.shard_count, rank_count, &layout.padded_count) ||
            !eo_checked_mul(layout.padded_count, ELEMENT_BYTES_MAX, &padded_bytes) ||
            !place(offsets, counts, whole, parameter_count, layout.shard_count, &end))
            return EO_ERR_INVALID;
    } while (end > layout.padded_count);
    *out = layout;
    return EO_OK;
}
