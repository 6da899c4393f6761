/* SPDX-License-Identifier: MIT
 *
 * The layout of a layer: where parameters begin, and how large shards are.
 * Method: exact numbers on small layers, what must hold on random ones, sizes at the edge of 64 bits.
 */
#include "buffers/layout.h"

#include <criterion/criterion.h>

Test(layout, parameters_begin_at_multiples_of_16_and_shards_are_equal_and_aligned)
{
    /* 256 bytes of bf16 are 128 elements. 0..100 |pad 112..113 |pad 128..158: 158 elements over 2 ranks: 79 -> 128. */
    const uint64_t counts[] = {100, 1, 30};
    uint64_t offsets[3];
    struct eo_layout layout;
    cr_assert_eq(eo_layout_compute(&layout, offsets, counts, NULL, 3, 2, 256), EO_OK);
    cr_assert_eq(offsets[0], 0);
    cr_assert_eq(offsets[1], 112);
    cr_assert_eq(offsets[2], 128);
    cr_assert_eq(layout.element_count, 131);
    cr_assert_eq(layout.shard_count, 128);
    cr_assert_eq(layout.padded_count, 256);
}

Test(layout, what_fits_exactly_gets_no_padding)
{
    const uint64_t counts[] = {128, 256};
    uint64_t offsets[2];
    struct eo_layout layout;
    cr_assert_eq(eo_layout_compute(&layout, offsets, counts, NULL, 2, 3, 256), EO_OK);
    cr_assert_eq(offsets[1], 128);
    cr_assert_eq(layout.shard_count, 128);
    cr_assert_eq(layout.padded_count, 384);
    cr_assert_eq(layout.element_count, 384);
    const uint64_t one_more[] = {128, 257};
    cr_assert_eq(eo_layout_compute(&layout, offsets, one_more, NULL, 2, 3, 256), EO_OK);
    cr_assert_eq(layout.shard_count, 256, "one element more costs every rank a whole unit");
}

Test(layout, a_layer_without_parameters_is_empty)
{
    struct eo_layout layout;
    cr_assert_eq(eo_layout_compute(&layout, NULL, NULL, NULL, 0, 4, 256), EO_OK);
    cr_assert_eq(layout.element_count, 0);
    cr_assert_eq(layout.padded_count, 0);
    cr_assert_eq(layout.shard_count, 0);
}

Test(layout, random_layers_are_aligned_and_waste_little)
{
    uint64_t state = 1;
    for (int round = 0; round < 2000; round++) {
        uint64_t counts[12], offsets[12], sum = 0;
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint32_t parameter_count = 1 + (uint32_t)(state >> 33) % 12;
        const uint32_t rank_count = 1 + (uint32_t)(state >> 40) % 9, align_bytes = 32u << (state >> 50) % 5;
        for (uint32_t k = 0; k < parameter_count; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            counts[k] = (state >> 33) % 5000;
            sum += counts[k];
        }
        struct eo_layout layout;
        cr_assert_eq(eo_layout_compute(&layout, offsets, counts, NULL, parameter_count, rank_count, align_bytes), EO_OK);
        uint64_t end = 0;
        for (uint32_t k = 0; k < parameter_count; k++) {
            cr_assert_eq(offsets[k] % 16, 0);
            cr_assert(offsets[k] >= end && offsets[k] - end < 16, "parameters lie in order, with the least padding");
            end = offsets[k] + counts[k];
        }
        cr_assert_eq(layout.element_count, sum);
        cr_assert_eq(layout.padded_count, layout.shard_count * rank_count);
        cr_assert_eq(layout.shard_count * 2 % align_bytes, 0, "bf16 shards are aligned");
        cr_assert(layout.padded_count >= end);
        const uint64_t unit = align_bytes / 2;
        cr_assert(layout.shard_count == 0 || (layout.shard_count - unit) * rank_count < end,
                  "a smaller shard would do");
    }
}

/*
 * Goal: a bound between shards cuts no parameter that is to be whole, and shards are no larger than that takes.
 * Method: random layers; the bounds are looked for one by one, and a shard smaller by its unit must not do.
 */
Test(layout, bounds_between_shards_leave_whole_parameters_whole)
{
    uint64_t state = 3;
    uint32_t moved = 0, grown = 0;
    for (int round = 0; round < 2000; round++) {
        uint64_t counts[12], offsets[12], end = 0, largest = 0;
        bool whole[12];
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint32_t parameter_count = 1 + (uint32_t)(state >> 33) % 12, rank_count = 1 + (uint32_t)(state >> 40) % 9;
        for (uint32_t k = 0; k < parameter_count; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            counts[k] = 1 + (state >> 33) % (k % 3 ? 900 : 9000);
            whole[k] = state >> 60 & 1;
            largest = whole[k] && counts[k] > largest ? counts[k] : largest;
        }
        struct eo_layout layout, free_of_it;
        cr_assert_eq(eo_layout_compute(&free_of_it, offsets, counts, NULL, parameter_count, rank_count, 256), EO_OK);
        cr_assert_eq(eo_layout_compute(&layout, offsets, counts, whole, parameter_count, rank_count, 256), EO_OK);
        for (uint32_t k = 0; k < parameter_count; k++) {
            cr_assert(offsets[k] >= end && offsets[k] % 16 == 0);
            moved += offsets[k] - end >= 16;
            end = offsets[k] + counts[k];
            for (uint64_t bound = layout.shard_count; whole[k] && bound < layout.padded_count; bound += layout.shard_count)
                cr_assert(end <= bound || offsets[k] >= bound, "the bound at %d cuts [%d, %d)", (int)bound, (int)offsets[k], (int)end);
        }
        cr_assert(end <= layout.padded_count && layout.shard_count >= free_of_it.shard_count);
        cr_assert_leq(layout.shard_count, free_of_it.shard_count + largest + 128);
        grown += layout.shard_count > free_of_it.shard_count;
    }
    cr_assert(moved > 500 && grown > 500, "%u gaps, %u larger shards: this test saw nothing", moved, grown);
}

Test(layout, sizes_that_overflow_are_refused)
{
    struct eo_layout layout = {.shard_count = 7};
    uint64_t offsets[3];
    const uint64_t sums[] = {UINT64_MAX / 2, UINT64_MAX / 2, 100};
    cr_assert_eq(eo_layout_compute(&layout, offsets, sums, NULL, 3, 1, 256), EO_ERR_INVALID);
    const uint64_t halves[] = {(uint64_t)1 << 63, (uint64_t)1 << 63};
    cr_assert_eq(eo_layout_compute(&layout, offsets, halves, NULL, 2, 1, 256), EO_ERR_INVALID, "the sum wraps to 0");
    const uint64_t aligned[] = {UINT64_MAX, 0};
    cr_assert_eq(eo_layout_compute(&layout, offsets, aligned, NULL, 2, 1, 256), EO_ERR_INVALID);
    const uint64_t padded[] = {UINT64_MAX - 3};
    cr_assert_eq(eo_layout_compute(&layout, offsets, padded, NULL, 1, 1, 256), EO_ERR_INVALID);
    const uint64_t in_bytes[] = {UINT64_MAX / 4 + 1};
    cr_assert_eq(eo_layout_compute(&layout, offsets, in_bytes, NULL, 1, 1, 256), EO_ERR_INVALID,
                 "the elements can be counted, their bytes cannot");
    cr_assert_eq(layout.shard_count, 7, "a failed call changes nothing");
    const uint64_t large[] = {UINT64_MAX / 8};
    cr_assert_eq(eo_layout_compute(&layout, offsets, large, NULL, 1, 1, 256), EO_OK);
}
