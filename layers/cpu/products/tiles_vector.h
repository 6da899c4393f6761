/* SPDX-License-Identifier: MIT
 *
 * The inner part of products at one level (see tiles.h and levels/vector.h). Included by tiles_*.c, which set EO_LEVEL, the
 * target of the compiler, and the names of the tables.
 */
#ifndef EO_LAYERS_CPU_PRODUCTS_TILES_VECTOR_H
#define EO_LAYERS_CPU_PRODUCTS_TILES_VECTOR_H

#include "layers/cpu/products/tiles.h"
#include "layers/cpu/levels/vector.h"
#include "layers/cpu/levels/gelu.h"

/* Two vectors of each row at a time: the sums of SUM_ROWS rows fill the registers, less the operands. */
#if EO_LEVEL == 512
enum { SUM_ROWS = 12, TILE_ROWS = 12 };
#elif EO_LEVEL == 256
enum { SUM_ROWS = 6, TILE_ROWS = 12 };
#else
enum { SUM_ROWS = 4, TILE_ROWS = 4 };
#endif
enum { TILE_UNIT_BLOCK = 4, STRIP = 2 * V, AHEAD = 4 /* units */ };
_Static_assert(EO_PANEL % STRIP == 0 && TILE_ROWS % SUM_ROWS == 0 && TILE_ROWS % 4 == 0, "a tile has an edge");

INLINE void sums_open(vf sum[SUM_ROWS][2], const float *sums, bool add, uint64_t vectors)
{
    for (uint64_t r = 0; r < SUM_ROWS; r++)
        for (uint64_t v = 0; v < vectors; v++)
            sum[r][v] = add ? v_load(sums + r * EO_PANEL + v * V) : v_set(0);
}

INLINE void sums_close(float *sums, vf sum[SUM_ROWS][2], uint64_t vectors)
{
    for (uint64_t r = 0; r < SUM_ROWS; r++)
        for (uint64_t v = 0; v < vectors; v++)
            v_store(sums + r * EO_PANEL + v * V, sum[r][v]);
}

/* SUM_ROWS rows of A times a strip of B, or (vectors 1) its first half. */
INLINE void strip_fp32(float *sums, const struct eo_tile_a *a, const char *at, const float *b, uint64_t units, bool add,
                       const uint64_t vectors)
{
    vf sum[SUM_ROWS][2];
    sums_open(sum, sums, add, vectors);
#if EO_LEVEL == 256 /* not measured elsewhere */
#pragma GCC unroll 4
#endif
    for (uint64_t i = 0; i < units; i++, at += a->unit, b += EO_PANEL) {
#if EO_LEVEL == 512
        __builtin_prefetch(b + AHEAD * EO_PANEL); /* the panel comes from the second-level cache */
        __builtin_prefetch(b + AHEAD * EO_PANEL + V);
#endif
        const vf b0 = v_load(b), b1 = vectors > 1 ? v_load(b + V) : b0;
#pragma GCC unroll 12
        for (uint64_t r = 0; r < SUM_ROWS; r++) {
            float x;
            memcpy(&x, at + r * a->row, sizeof(x));
            sum[r][0] = v_fma(v_set(x), b0, sum[r][0]);
            if (vectors > 1)
                sum[r][1] = v_fma(v_set(x), b1, sum[r][1]);
        }
    }
    sums_close(sums, sum, vectors);
}

INLINE void tile_columns(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add,
                         const uint64_t columns)
{
    for (uint64_t column = 0; column < columns; column += STRIP) /* all rows, while the strip is at hand */
        for (uint64_t row = 0; row < TILE_ROWS; row += SUM_ROWS)
            strip_fp32(sums + row * EO_PANEL + column, a, (const char *)a->values + row * a->row, (const float *)panel + column,
                       units, add, columns < STRIP ? 1 : 2);
}

static inline void tile_fp32(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add)
{
    tile_columns(sums, a, panel, units, add, EO_PANEL);
}

static inline void tile_fp32_half(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add)
{
    tile_columns(sums, a, panel, units, add, EO_PANEL / 2);
}

/* ---- from sums to elements ---- */

/* Of the type that is known when compiled. */
INLINE vf elements_load(eo_dtype dtype, const void *values, uint64_t at, bool whole, uint64_t left)
{
    return dtype == EO_DTYPE_BF16 ? load_bf16_n((const uint16_t *)values + at, whole, left)
                                  : load_n((const float *)values + at, whole, left);
}

INLINE void elements_store(eo_dtype dtype, void *values, uint64_t at, vf x, bool whole, uint64_t left)
{
    if (dtype == EO_DTYPE_BF16)
        store_bf16_n((uint16_t *)values + at, x, whole, left);
    else
        store_n((float *)values + at, x, whole, left);
}

#if EO_LEVEL == 512
/* 32 floats as bf16: halves_of of both, by fewer instructions. */
INLINE __m512i halves_of_two(vf first, vf second)
{
    static const uint16_t upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                       33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    vu low = rounded_number(first), high = rounded_number(second);
    if (__builtin_expect(_mm512_cmp_ps_mask((__m512)first, (__m512)second, _CMP_UNORD_Q) != 0, 0)) { /* a NaN in either */
        low = rounded_bits(first);
        high = rounded_bits(second);
    }
    return _mm512_permutex2var_epi16((__m512i)low, _mm512_loadu_si512(upper), (__m512i)high);
}
#endif

/* What becomes of sums of a row from element i of its panel on, and of aux, where it is written (writes_aux). The order of
 * roundings is that of the table "reference": GELU is taken of aux as stored. */
INLINE vf finish_vector(const struct eo_multiply *p, eo_dtype dtype, enum eo_epilogue epilogue, bool add, uint64_t row,
                        uint64_t column, const float *sums, bool whole, uint64_t left, vf *aux)
{
    vf x = v_load(sums);
    if (add)
        x = elements_load(dtype, p->c, row * p->c_stride + column, whole, left) + x;
    if (epilogue == EO_EPILOGUE_BIAS || epilogue == EO_EPILOGUE_BIAS_GELU)
        x = x + elements_load(dtype, p->bias, column, whole, left);
    if (epilogue == EO_EPILOGUE_BIAS_GELU) {
        *aux = x;
        x = dtype == EO_DTYPE_BF16 ? floats_of(halves_of(x)) : x;
        x = x * gelu_sigmoid(x);
    }
    if (epilogue == EO_EPILOGUE_GELU_GRADIENT) {
        const vf at = elements_load(dtype, p->aux, row * p->aux_stride + column, whole, left), sigmoid = gelu_sigmoid(at);
        x = x * gelu_slope(at, sigmoid);
        *aux = at * sigmoid;
    }
    return x;
}

INLINE bool writes_aux(const struct eo_multiply *p, enum eo_epilogue epilogue)
{
    return epilogue == EO_EPILOGUE_BIAS_GELU || (epilogue == EO_EPILOGUE_GELU_GRADIENT && p->remakes);
}

INLINE void finish_row(const struct eo_multiply *p, eo_dtype dtype, enum eo_epilogue epilogue, bool add, uint64_t row,
                       uint64_t column, uint64_t columns, const float *sums)
{
    FOR_VECTORS(i, columns, {
        vf aux = v_set(0);
        const vf x = finish_vector(p, dtype, epilogue, add, row, column + i, sums + i, whole, left, &aux);
        if (writes_aux(p, epilogue))
            elements_store(dtype, p->aux, row * p->aux_stride + column + i, aux, whole, left);
        elements_store(dtype, p->c, row * p->c_stride + column + i, x, whole, left);
    });
}

#if EO_LEVEL == 512
INLINE void store_two(eo_dtype dtype, void *to, vf first, vf second, bool stream)
{
    if (dtype == EO_DTYPE_BF16 && stream)
        _mm512_stream_si512(to, halves_of_two(first, second));
    else if (dtype == EO_DTYPE_BF16)
        _mm512_storeu_si512(to, halves_of_two(first, second));
    else if (stream) {
        _mm512_stream_ps(to, (__m512)first);
        _mm512_stream_ps((float *)to + V, (__m512)second);
    } else {
        v_store(to, first);
        v_store((float *)to + V, second);
    }
}
#endif

/* All columns of a panel. `stream`: past the caches, in whole lines of 64 bytes, which then nobody has to read first. */
INLINE void finish_whole_row(const struct eo_multiply *p, eo_dtype dtype, enum eo_epilogue epilogue, bool add, bool stream,
                             uint64_t row, uint64_t column, const float *sums)
{
#if EO_LEVEL == 512
    const uint64_t bytes = dtype == EO_DTYPE_BF16 ? 2 : 4;
    vf aux[2] = {v_set(0), v_set(0)};
    const vf first = finish_vector(p, dtype, epilogue, add, row, column, sums, true, V, &aux[0]);
    const vf second = finish_vector(p, dtype, epilogue, add, row, column + V, sums + V, true, V, &aux[1]);
    if (writes_aux(p, epilogue))
        store_two(dtype, (char *)p->aux + (row * p->aux_stride + column) * bytes, aux[0], aux[1], false);
    store_two(dtype, (char *)p->c + (row * p->c_stride + column) * bytes, first, second, stream);
#else
    (void)stream;
    finish_row(p, dtype, epilogue, add, row, column, EO_PANEL, sums);
#endif
}

struct finished {
    uint64_t row, rows, column, columns;
    const float *sums;
};

/* What is done to a row is known when compiled, and so is the number of its columns, but at C's edge. */
INLINE void finish_rows(const struct eo_multiply *p, eo_dtype dtype, enum eo_epilogue epilogue, bool add, bool stream,
                        struct finished f)
{
    if (f.columns == EO_PANEL)
        for (uint64_t r = 0; r < f.rows; r++)
            finish_whole_row(p, dtype, epilogue, add, stream, f.row + r, f.column, f.sums + r * EO_PANEL);
    else
        for (uint64_t r = 0; r < f.rows; r++)
            finish_row(p, dtype, epilogue, add, f.row + r, f.column, f.columns, f.sums + r * EO_PANEL);
}

INLINE void finish_as(const struct eo_multiply *p, eo_dtype dtype, bool stream, struct finished f)
{
    switch (p->epilogue) {
    case EO_EPILOGUE_NONE:
    case EO_EPILOGUE_BIAS_GRADIENT: /* not of this table */
        if (p->accumulate)
            finish_rows(p, dtype, EO_EPILOGUE_NONE, true, false, f);
        else
            finish_rows(p, dtype, EO_EPILOGUE_NONE, false, stream, f);
        break;
    case EO_EPILOGUE_BIAS:
        finish_rows(p, dtype, EO_EPILOGUE_BIAS, false, stream, f);
        break;
    case EO_EPILOGUE_BIAS_GELU:
        finish_rows(p, dtype, EO_EPILOGUE_BIAS_GELU, false, stream, f);
        break;
    case EO_EPILOGUE_GELU_GRADIENT:
        finish_rows(p, dtype, EO_EPILOGUE_GELU_GRADIENT, false, stream, f);
        break;
    }
}

static void finish(const struct eo_multiply *product, uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                   const float *sums, bool stream)
{
    const struct eo_multiply p = *product; /* a copy: stores to C cannot change it */
    const struct finished f = {row, rows, column, columns, sums};
    stream = EO_LEVEL == 512 && stream;
    if ((p.weight_gradient ? p.types.gradient : p.types.compute) == EO_DTYPE_FP32)
        stream ? finish_as(&p, EO_DTYPE_FP32, true, f) : finish_as(&p, EO_DTYPE_FP32, false, f);
    else
        stream ? finish_as(&p, EO_DTYPE_BF16, true, f) : finish_as(&p, EO_DTYPE_BF16, false, f);
}

#if EO_LEVEL == 512
_Static_assert(TILE_ROWS == (int)EO_PACK_LINES, "tiles are packed across in their own height");
#define PACK eo_pack_avx512
#elif EO_LEVEL == 256
#define PACK eo_pack_avx2
#else
#define PACK eo_pack
#endif

/* What of B stays in the second-level cache: 1 MiB of processors with AVX-512, 384 of the 512 KiB of others. */
#if EO_LEVEL == 256
enum { B_COLUMNS_LEAST = 96, B_COLUMNS_MOST = 256 };
#else
enum { B_COLUMNS_LEAST = 256, B_COLUMNS_MOST = 256 };
#endif
enum { B_UNITS = B_COLUMNS_LEAST * EO_PIECE_UNITS_MIN };
_Static_assert((int)B_UNITS / B_COLUMNS_LEAST <= (int)EO_B_UNITS_MAX / EO_B_COLUMNS_MIN && (int)B_UNITS <= (int)EO_B_UNITS_MAX &&
                   B_COLUMNS_LEAST % EO_PANEL == 0,
               "scratch has room for a block of B");
#define BLOCK_OF_B .columns_min = B_COLUMNS_LEAST, .columns_max = B_COLUMNS_MOST, .b_units = B_UNITS

#define TILES_FP32(level, kind, across)                                                                               \
    {                                                                                                                 \
        .name = (level), .units = (kind), .rows = TILE_ROWS, .unit_block = TILE_UNIT_BLOCK, BLOCK_OF_B, .pack = PACK, \
        .pack_across = (across), .multiply = tile_fp32, .multiply_half = tile_fp32_half, .finish = finish,            \
    }

#endif
