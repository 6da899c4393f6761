/* SPDX-License-Identifier: MIT
 *
 * The inner part of bf16 products for processors with avx512_bf16, dot products of pairs. Denormals count as zero.
 */
#include "layers/cpu/products/tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif

#define EO_LEVEL 512
#include "layers/cpu/products/tiles_vector.h"

INLINE void tile_vectors(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add,
                         const uint64_t vectors)
{
    const char *at = a->values;
    const uint32_t *b = panel;
    vf sum[TILE_ROWS][2];
    sums_open(sum, sums, add, vectors);
    for (uint64_t i = 0; i < units; i++, at += a->unit, b += EO_PANEL) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = vectors > 1 ? (__m512bh)_mm512_loadu_si512(b + V) : b0;
#pragma GCC unroll 12
        for (uint64_t r = 0; r < TILE_ROWS; r++) {
            int32_t pair;
            memcpy(&pair, at + r * a->row, sizeof(pair));
            const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
            sum[r][0] = (vf)_mm512_dpbf16_ps((__m512)sum[r][0], x, b0);
            if (vectors > 1)
                sum[r][1] = (vf)_mm512_dpbf16_ps((__m512)sum[r][1], x, b1);
        }
    }
    sums_close(sums, sum, vectors);
}

static void tile_pairs(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add)
{
    tile_vectors(sums, a, panel, units, add, 2);
}

static void tile_pairs_half(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add)
{
    tile_vectors(sums, a, panel, units, add, 1);
}

const struct eo_tiles eo_tiles_avx512_bf16 = {
    .name = "avx512_bf16", .units = EO_UNITS_PAIRS, .rows = TILE_ROWS, .unit_block = TILE_UNIT_BLOCK,
    BLOCK_OF_B, .pack = PACK, .pack_across = eo_pack_across_avx512,
    .multiply = tile_pairs, .multiply_half = tile_pairs_half, .finish = finish,
};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
