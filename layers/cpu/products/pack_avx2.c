/* SPDX-License-Identifier: MIT
 *
 * Packing (tiles.h) for processors with avx2; the rest of the library keeps the baseline. Whole panels of B go by blocks
 * of 8 x 8 units; tiles of A, of as many rows as there are blocks of four in the width, by 4 x 8; widened operands whose rows
 * lie across tiles by one pass over the rows. All else is left to eo_pack.
 */
#include "layers/cpu/products/tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define INLINE static inline __attribute__((always_inline))

enum { SIDE = 8 };

/* In lanes of 16 bytes first, 4 x 4 in each; then the lanes. */
INLINE void transpose(__m256i q[SIDE])
{
    __m256i t[SIDE];
#pragma GCC unroll 2
    for (int i = 0; i < SIDE; i += 4) {
        const __m256i a = _mm256_unpacklo_epi32(q[i], q[i + 1]), b = _mm256_unpackhi_epi32(q[i], q[i + 1]);
        const __m256i c = _mm256_unpacklo_epi32(q[i + 2], q[i + 3]), d = _mm256_unpackhi_epi32(q[i + 2], q[i + 3]);
        t[i] = _mm256_unpacklo_epi64(a, c);
        t[i + 1] = _mm256_unpackhi_epi64(a, c);
        t[i + 2] = _mm256_unpacklo_epi64(b, d);
        t[i + 3] = _mm256_unpackhi_epi64(b, d);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
        q[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
    }
}

/* Eight elements of fp32, or of bf16 as fp32. */
INLINE __m256i load(bool widened, const struct eo_pack *p, uint64_t at)
{
    if (widened)
        return _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)((const uint16_t *)p->from + at))), 16);
    return _mm256_loadu_si256((const void *)((const float *)p->from + at));
}

INLINE void pack_panel(bool widened, bool along, uint32_t *to, const struct eo_pack *pack)
{
    struct eo_pack rest = *pack;
    const uint64_t end = pack->k < pack->end ? pack->k : pack->end, stride = pack->stride;
    for (; rest.begin + SIDE <= end; rest.begin += SIDE) {
        for (uint64_t line = 0; line < EO_PANEL; line += SIDE) {
            __m256i q[SIDE];
#pragma GCC unroll 8
            for (uint64_t i = 0; i < SIDE; i++)
                q[i] = load(widened, &rest, along ? (line + i) * stride + rest.begin : (rest.begin + i) * stride + line);
            if (along)
                transpose(q);
#pragma GCC unroll 8
            for (uint64_t i = 0; i < SIDE; i++)
                _mm256_storeu_si256((void *)(to + (rest.begin + i) * EO_PANEL + line), q[i]);
        }
    }
    eo_pack(widened ? EO_UNITS_WIDENED : EO_UNITS_FP32, to, EO_PANEL, false, &rest);
}

/* Four lines, a unit of all of them after the other. */
INLINE void store_fours(uint32_t *to, uint64_t width, __m256i q[4])
{
    const __m256i a = _mm256_unpacklo_epi32(q[0], q[1]), b = _mm256_unpackhi_epi32(q[0], q[1]);
    const __m256i c = _mm256_unpacklo_epi32(q[2], q[3]), d = _mm256_unpackhi_epi32(q[2], q[3]);
    const __m256i units[4] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c), _mm256_unpacklo_epi64(b, d),
                              _mm256_unpackhi_epi64(b, d)};
#pragma GCC unroll 4
    for (uint64_t i = 0; i < 4; i++) {
        _mm_storeu_si128((void *)(to + i * width), _mm256_castsi256_si128(units[i]));
        _mm_storeu_si128((void *)(to + (i + 4) * width), _mm256_extracti128_si256(units[i], 1));
    }
}

/* A whole tile of widened bf16 whose rows are contiguous. */
static void pack_tile(uint32_t *to, uint64_t width, const struct eo_pack *pack)
{
    struct eo_pack rest = *pack;
    const uint64_t end = pack->k < pack->end ? pack->k : pack->end, stride = pack->stride;
    for (; rest.begin + SIDE <= end; rest.begin += SIDE) {
        for (uint64_t line = 0; line < width; line += 4) {
            __m256i q[4];
#pragma GCC unroll 4
            for (uint64_t i = 0; i < 4; i++)
                q[i] = load(true, &rest, (line + i) * stride + rest.begin);
            store_fours(to + rest.begin * width + line, width, q);
        }
    }
    eo_pack(EO_UNITS_WIDENED, to, width, false, &rest);
}

/* A unit of a whole tile, widened: eight lines at a time, then four. `from` NULL: behind k. */
INLINE void widen_unit(uint32_t *to, uint64_t width, const uint16_t *from)
{
    if (from == NULL) {
        memset(to, 0, width * EO_UNIT_BYTES);
        return;
    }
    uint64_t line = 0;
    for (; line + SIDE <= width; line += SIDE)
        _mm256_storeu_si256((void *)(to + line), load(true, &(struct eo_pack){.from = from}, line));
    for (; line < width; line += 4)
        _mm_storeu_si128((void *)(to + line),
                         _mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64((const void *)(from + line))), 16));
}

enum { UNITS_AT_ONCE = 4 }; /* few rows at a time are read as streams */

INLINE void pack_across(uint32_t *to, uint64_t width, const struct eo_pack *pack)
{
    const struct eo_pack p = *pack; /* a copy: stores to `to` cannot change it */
    const uint64_t whole = p.lines / width * width;
    for (uint64_t unit = 0; unit < p.units; unit += UNITS_AT_ONCE) {
        const uint16_t *row[UNITS_AT_ONCE];
        for (uint64_t i = 0; i < UNITS_AT_ONCE; i++)
            row[i] = unit + i < p.k ? (const uint16_t *)p.from + (unit + i) * p.stride : NULL;
        for (uint64_t line = 0; line < whole; line += width)
#pragma GCC unroll 4
            for (uint64_t i = 0; i < UNITS_AT_ONCE; i++)
                widen_unit(to + line * p.units + (unit + i) * width, width, row[i] ? row[i] + line : NULL);
    }
    if (whole == p.lines)
        return;
    struct eo_pack last = p;
    last.from = (const uint16_t *)p.from + whole;
    last.lines = p.lines - whole;
    last.begin = 0;
    last.end = p.units;
    eo_pack(EO_UNITS_WIDENED, to + whole * p.units, width, false, &last);
}

void eo_pack_across_avx2(enum eo_units kind, void *to, uint64_t width, const struct eo_pack *pack)
{
    (void)kind; /* widened: tiles of avx2 have no pairs */
    width == EO_PANEL ? pack_across(to, EO_PANEL, pack) : pack_across(to, EO_PACK_LINES, pack);
}

void eo_pack_avx2(enum eo_units kind, void *to, uint64_t width, bool by_rows, const struct eo_pack *pack)
{
    const bool is_widened = kind == EO_UNITS_WIDENED;
    if (pack->lines != width || by_rows || kind == EO_UNITS_PAIRS || (is_widened ? !pack->along : width != EO_PANEL))
        eo_pack(kind, to, width, by_rows, pack);
    else if (width != EO_PANEL)
        pack_tile(to, width, pack);
    else if (is_widened)
        pack_panel(true, true, to, pack);
    else
        pack->along ? pack_panel(false, true, to, pack) : pack_panel(false, false, to, pack);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
