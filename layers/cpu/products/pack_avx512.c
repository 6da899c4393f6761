/* SPDX-License-Identifier: MIT
 *
 * Packing by blocks of 16 x 16 units (tiles.h), for processors with avx512f, avx512bw, avx512dq, avx512vl, avx2; the
 * rest of the library keeps the baseline. Edges are masked.
 */
#include "layers/cpu/products/tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2")
#endif

#define INLINE static inline __attribute__((always_inline))

enum { SIDE = 16 };

/* In lanes of 16 bytes first, 4 x 4 in each; then the lanes. */
INLINE void transpose(__m512i q[SIDE])
{
    __m512i t[SIDE];
#pragma GCC unroll 4
    for (int i = 0; i < SIDE; i += 4) {
        const __m512i a = _mm512_unpacklo_epi32(q[i], q[i + 1]), b = _mm512_unpackhi_epi32(q[i], q[i + 1]);
        const __m512i c = _mm512_unpacklo_epi32(q[i + 2], q[i + 3]), d = _mm512_unpackhi_epi32(q[i + 2], q[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c);
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88), d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
        q[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        q[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        q[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        q[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

/* bf16 as the upper half of 32 bits, or as the lower. */
INLINE __m512i upper(__m256i halves)
{
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}

INLINE __m512i lower(__m256i halves)
{
    return _mm512_cvtepu16_epi32(halves);
}

static uint64_t count_of(uint64_t all, uint64_t begin)
{
    return all <= begin ? 0 : all - begin < SIDE ? all - begin : SIDE;
}

static __mmask16 first_lanes(uint64_t count)
{
    return (__mmask16)((1u << count) - 1);
}

/* Sixteen units of a line; `inside`: it has so many, else zeros stand for those behind its end. */
INLINE __m512i load_along(enum eo_units kind, const struct eo_pack *p, uint64_t line, uint64_t unit, bool inside)
{
    const char *at =
        (const char *)p->from + (line * p->stride + unit * (kind == EO_UNITS_PAIRS ? 2 : 1)) * (kind == EO_UNITS_FP32 ? 4 : 2);
    const uint64_t halves = 2 * unit >= p->k ? 0 : p->k - 2 * unit < 2 * SIDE ? p->k - 2 * unit : 2 * SIDE;
    if (inside && kind == EO_UNITS_WIDENED)
        return upper(_mm256_loadu_si256((const void *)at));
    if (inside)
        return _mm512_loadu_si512(at);
    if (kind == EO_UNITS_PAIRS) /* k may be odd */
        return _mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << halves) - 1), at);
    const __mmask16 lanes = first_lanes(count_of(p->k, unit));
    return kind == EO_UNITS_WIDENED ? upper(_mm256_maskz_loadu_epi16(lanes, at)) : _mm512_maskz_loadu_epi32(lanes, at);
}

/* A unit of the lines in the mask. */
INLINE __m512i load_across(enum eo_units kind, const struct eo_pack *p, uint64_t line, uint64_t unit, __mmask16 lines,
                           bool inside)
{
    const uint64_t row = kind == EO_UNITS_PAIRS ? 2 * unit : unit;
    if (!inside && row >= p->k)
        return _mm512_setzero_si512();
    if (kind == EO_UNITS_FP32)
        return _mm512_maskz_loadu_epi32(lines, (const float *)p->from + row * p->stride + line);
    const uint16_t *at = (const uint16_t *)p->from + row * p->stride + line;
    const __m256i first = _mm256_maskz_loadu_epi16(lines, at);
    if (kind == EO_UNITS_WIDENED)
        return upper(first);
    if (!inside && row + 1 == p->k)
        return lower(first);
    return _mm512_or_si512(lower(first), upper(_mm256_maskz_loadu_epi16(lines, at + p->stride)));
}

INLINE void pack_block(enum eo_units kind, uint32_t *to, uint64_t width, bool by_rows, const struct eo_pack *p, bool along,
                       uint64_t line, uint64_t unit, bool inside)
{
    const uint64_t lines = count_of(p->lines, line), stored = count_of(width, line);
    const uint64_t units = inside ? SIDE : count_of(p->end, unit);
    __m512i q[SIDE];
#pragma GCC unroll 16
    for (uint64_t i = 0; i < SIDE; i++) {
        if (along)
            q[i] = i < lines ? load_along(kind, p, line + i, unit, inside) : _mm512_setzero_si512();
        else
            q[i] = load_across(kind, p, line, unit + i, first_lanes(lines), inside);
    }
    if (along != by_rows)
        transpose(q);
#pragma GCC unroll 16
    for (uint64_t i = 0; i < SIDE; i++) {
        if (!by_rows && i < units)
            _mm512_mask_storeu_epi32(to + (unit + i) * width + line, first_lanes(stored), q[i]);
        else if (by_rows && i < stored && inside)
            _mm512_storeu_si512(to + eo_pack_at(p, line + i, unit), q[i]);
        else if (by_rows && i < stored)
            _mm512_mask_storeu_epi32(to + eo_pack_at(p, line + i, unit), first_lanes(units), q[i]);
    }
}

INLINE void pack_all(enum eo_units kind, uint32_t *to, uint64_t width, bool by_rows, const struct eo_pack *p, bool along)
{
    const uint64_t units = p->k / (kind == EO_UNITS_PAIRS ? 2 : 1);
    const uint64_t end = units < p->end ? units : p->end;
    const uint64_t whole = end > p->begin ? p->begin + (end - p->begin) / SIDE * SIDE : p->begin;
    for (uint64_t line = 0; along && line < width; line += SIDE) /* few rows at a time are read as streams */
        for (uint64_t unit = p->begin; unit < whole; unit += SIDE)
            pack_block(kind, to, width, by_rows, p, true, line, unit, true);
    for (uint64_t unit = p->begin; !along && unit < whole; unit += SIDE)
        for (uint64_t line = 0; line < width; line += SIDE)
            pack_block(kind, to, width, by_rows, p, false, line, unit, true);
    for (uint64_t unit = whole; unit < p->end; unit += SIDE)
        for (uint64_t line = 0; line < width; line += SIDE)
            pack_block(kind, to, width, by_rows, p, along, line, unit, false);
}

#define EO_PACK_NAME eo_pack_avx512
#include "layers/cpu/products/pack_kinds.h"

enum { UNITS_AT_ONCE = 4 }; /* few rows at a time are read as streams */

/* Sixteen lines of a unit: of one row widened, of two side by side; row[i] NULL: behind the last. */
INLINE __m512i unit_of(enum eo_units kind, const uint16_t *const row[2], uint64_t line, __mmask16 lines)
{
    const __m256i none = _mm256_setzero_si256();
    const __m256i first = row[0] ? _mm256_maskz_loadu_epi16(lines, row[0] + line) : none;
    if (kind == EO_UNITS_WIDENED)
        return upper(first);
    return _mm512_or_si512(lower(first), upper(row[1] ? _mm256_maskz_loadu_epi16(lines, row[1] + line) : none));
}

/* A unit of 32 lines: both rows' elements side by side. */
INLINE void pack_pairs(uint32_t *to, const uint16_t *const row[2], uint64_t line, uint64_t left)
{
    static const uint16_t low[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    static const uint16_t high[32] = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                      24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
    const __mmask32 lines = left < EO_PANEL ? (1u << left) - 1 : UINT32_MAX;
    const __m512i a = row[0] ? _mm512_maskz_loadu_epi16(lines, row[0] + line) : _mm512_setzero_si512();
    const __m512i b = row[1] ? _mm512_maskz_loadu_epi16(lines, row[1] + line) : _mm512_setzero_si512();
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, _mm512_loadu_si512(low), b));
    _mm512_storeu_si512(to + SIDE, _mm512_permutex2var_epi16(a, _mm512_loadu_si512(high), b));
}

/* A unit of a tile, or of a panel. Stores reach into the tile's next unit, which is packed later: all but its last's. */
INLINE void pack_unit(enum eo_units kind, uint32_t *to, uint64_t width, const uint16_t *const row[2], uint64_t line,
                      uint64_t lines, bool is_last)
{
    if (kind == EO_UNITS_PAIRS && width == EO_PANEL) {
        pack_pairs(to, row, line, lines - line);
        return;
    }
    for (uint64_t i = 0; i < width; i += SIDE) {
        const __m512i unit = unit_of(kind, row, line + i, first_lanes(count_of(lines, line + i)));
        if (i + SIDE <= width || !is_last)
            _mm512_storeu_si512(to + i, unit);
        else
            _mm512_mask_storeu_epi32(to + i, first_lanes(width - i), unit);
    }
}

INLINE void pack_across(enum eo_units kind, uint32_t *to, uint64_t width, const struct eo_pack *pack)
{
    const struct eo_pack p = *pack; /* a copy: stores to `to` cannot change it */
    const uint64_t per_unit = kind == EO_UNITS_PAIRS ? 2 : 1, tile = p.units * width;
    for (uint64_t begin = 0; begin < p.units; begin += UNITS_AT_ONCE) {
        const uint16_t *row[UNITS_AT_ONCE][2];
        for (uint64_t i = 0; i < UNITS_AT_ONCE; i++)
            for (uint64_t r = 0, k = (begin + i) * per_unit; r < 2; r++, k++)
                row[i][r] = k < p.k ? (const uint16_t *)p.from + k * p.stride : NULL;
        uint32_t *at = to + begin * width;
        for (uint64_t line = 0; line < p.lines; line += width, at += tile) {
#pragma GCC unroll 4
            for (uint64_t i = 0; i < UNITS_AT_ONCE; i++)
                pack_unit(kind, at + i * width, width, row[i], line, p.lines, begin + i + 1 == p.units);
        }
    }
}

void eo_pack_across_avx512(enum eo_units kind, void *to, uint64_t width, const struct eo_pack *pack)
{
    if (kind == EO_UNITS_PAIRS)
        width == EO_PANEL ? pack_across(EO_UNITS_PAIRS, to, EO_PANEL, pack)
                          : pack_across(EO_UNITS_PAIRS, to, EO_PACK_LINES, pack);
    else
        width == EO_PANEL ? pack_across(EO_UNITS_WIDENED, to, EO_PANEL, pack)
                          : pack_across(EO_UNITS_WIDENED, to, EO_PACK_LINES, pack);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
