/* SPDX-License-Identifier: MIT
 *
 * The inner part of products at one level (see product_tiles.h and vector.h). Included by tiles_*.c, which set EO_LEVEL, the
 * target of the compiler, and the names of the tables.
 */
#ifndef EO_LAYERS_CPU_TILES_VECTOR_H
#define EO_LAYERS_CPU_TILES_VECTOR_H

#include "layers/cpu/product_tiles.h"
#include "layers/cpu/vector.h"
#include "layers/cpu/gelu_vector.h"

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

INLINE void sums_open(vf sum[SUM_ROWS][2], const float *sums, bool add)
{
    for (uint64_t r = 0; r < SUM_ROWS; r++)
        for (uint64_t v = 0; v < 2; v++)
            sum[r][v] = add ? v_load(sums + r * EO_PANEL + v * V) : v_set(0);
}

INLINE void sums_close(float *sums, vf sum[SUM_ROWS][2])
{
    for (uint64_t r = 0; r < SUM_ROWS; r++)
        for (uint64_t v = 0; v < 2; v++)
            v_store(sums + r * EO_PANEL + v * V, sum[r][v]);
}

/* SUM_ROWS rows of A times a strip of B. */
INLINE void strip_fp32(float *sums, const struct eo_tile_a *a, const char *at, const float *b, uint64_t units, bool add)
{
    vf sum[SUM_ROWS][2];
    sums_open(sum, sums, add);
    for (uint64_t i = 0; i < units; i++, at += a->unit, b += EO_PANEL) {
#if EO_LEVEL == 512
        __builtin_prefetch(b + AHEAD * EO_PANEL); /* the panel comes from the second-level cache */
        __builtin_prefetch(b + AHEAD * EO_PANEL + V);
#endif
        const vf b0 = v_load(b), b1 = v_load(b + V);
#pragma GCC unroll 12
        for (uint64_t r = 0; r < SUM_ROWS; r++) {
            float x;
            memcpy(&x, at + r * a->row, sizeof(x));
            sum[r][0] = v_fma(v_set(x), b0, sum[r][0]);
            sum[r][1] = v_fma(v_set(x), b1, sum[r][1]);
        }
    }
    sums_close(sums, sum);
}

static inline void tile_fp32(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add)
{
    for (uint64_t row = 0; row < TILE_ROWS; row += SUM_ROWS)
        for (uint64_t column = 0; column < EO_PANEL; column += STRIP)
            strip_fp32(sums + row * EO_PANEL + column, a, (const char *)a->values + row * a->row, (const float *)panel + column,
                       units, add);
}

/* ---- from sums to elements ---- */

/* A row of at most EO_PANEL elements as fp32, zeros behind them. */
INLINE void row_load(float *to, eo_dtype dtype, const void *values, uint64_t at, uint64_t columns)
{
    if (columns == EO_PANEL) {
        eo_elements_load(dtype, to, values, at, EO_PANEL);
        return;
    }
    memset(to, 0, EO_PANEL * sizeof(*to));
    eo_elements_load(dtype, to, values, at, columns);
}

INLINE void row_store(const float *from, eo_dtype dtype, void *values, uint64_t at, uint64_t columns)
{
    eo_elements_store(dtype, values, at, from, columns == EO_PANEL ? EO_PANEL : columns);
}

#define FOR_PANEL(i) for (uint64_t i = 0; i < EO_PANEL; i += V)

/* The order of roundings is that of the table "reference": GELU is taken of aux as stored. */
static void finish(const struct eo_multiply *p, uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                   const float *sums)
{
    const eo_dtype dtype = p->types.compute, c_dtype = p->weight_gradient ? p->types.gradient : dtype;
    float x[EO_PANEL], other[EO_PANEL], bias[EO_PANEL];
    if (p->epilogue == EO_EPILOGUE_BIAS || p->epilogue == EO_EPILOGUE_BIAS_GELU)
        row_load(bias, dtype, p->bias, column, columns);
    for (uint64_t r = 0; r < rows; r++, sums += EO_PANEL) {
        const uint64_t at = (row + r) * p->c_stride + column, aux_at = (row + r) * p->aux_stride + column;
        const float *result = x;
        switch (p->epilogue) {
        case EO_EPILOGUE_NONE:
        case EO_EPILOGUE_BIAS_GRADIENT: /* not of this table */
            result = sums;
            if (p->accumulate) {
                row_load(x, c_dtype, p->c, at, columns);
                FOR_PANEL(i) v_store(x + i, v_load(x + i) + v_load(sums + i));
                result = x;
            }
            break;
        case EO_EPILOGUE_BIAS:
            FOR_PANEL(i) v_store(x + i, v_load(sums + i) + v_load(bias + i));
            break;
        case EO_EPILOGUE_BIAS_GELU:
            FOR_PANEL(i) v_store(x + i, v_load(sums + i) + v_load(bias + i));
            row_store(x, dtype, p->aux, aux_at, columns);
            row_load(x, dtype, p->aux, aux_at, columns);
            FOR_PANEL(i) v_store(x + i, v_load(x + i) * gelu_sigmoid(v_load(x + i)));
            break;
        case EO_EPILOGUE_GELU_GRADIENT:
            row_load(other, dtype, p->aux, aux_at, columns);
            FOR_PANEL(i) v_store(x + i, v_load(sums + i) * gelu_slope(v_load(other + i)));
            break;
        }
        row_store(result, c_dtype, p->c, at, columns);
    }
}

#if EO_LEVEL == 512
#define PACK eo_pack_avx512
#elif EO_LEVEL == 256
#define PACK eo_pack_avx2
#else
#define PACK eo_pack
#endif

#define TILES_FP32(level, kind)                                                                        \
    {                                                                                                  \
        .name = (level), .units = (kind), .rows = TILE_ROWS, .unit_block = TILE_UNIT_BLOCK, .pack = PACK, \
        .multiply = tile_fp32, .finish = finish,                                                       \
    }

#endif
