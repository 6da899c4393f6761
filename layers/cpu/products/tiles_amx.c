/* SPDX-License-Identifier: MIT
 *
 * The inner part of bf16 products for processors with amx_tile, amx_bf16 and AVX-512: two by two tiles of sums. Denormals
 * count as zero.
 */
#include "layers/cpu/products/tiles.h"
#include "layers/kernel_table.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif

#define EO_LEVEL 512
#include "layers/cpu/products/tiles_vector.h"
#include "layers/cpu/products/amx.h"

enum { AMX_ROWS = 16, AMX_UNITS = 16, AMX_ROW_BYTES = 64 };
_Static_assert(EO_PANEL == 2 * AMX_ROWS && EO_TILE_ROWS_MAX == 2 * AMX_ROWS, "two by two tiles");

/* All eight tiles are whole. */
static void amx_begin(void)
{
    struct amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = AMX_ROW_BYTES;
        config.rows[i] = AMX_ROWS;
    }
    amx_load_config(&config);
}

static void amx_end(void)
{
    amx_release();
    _mm_sfence();
}

enum { SUMS_STRIDE = EO_PANEL * sizeof(float), PANEL_STRIDE = EO_PANEL * EO_UNIT_BYTES };

/* Tiles 0 to 3: sums; 4, 5: rows of A; 6, 7: columns of B. */
INLINE void amx_open(const float *sums, bool add)
{
    amx_stored(sums); /* and the operands */
    if (add) {
        amx_load(0, sums, SUMS_STRIDE);
        amx_load(1, sums + AMX_ROWS, SUMS_STRIDE);
        amx_load(2, sums + AMX_ROWS * EO_PANEL, SUMS_STRIDE);
        amx_load(3, sums + AMX_ROWS * EO_PANEL + AMX_ROWS, SUMS_STRIDE);
    } else {
        amx_zero(0);
        amx_zero(1);
        amx_zero(2);
        amx_zero(3);
    }
}

/* AMX_UNITS units from `unit` on. */
INLINE void amx_step(const struct eo_tile_a *a, const void *panel, uint64_t unit)
{
    const char *upper = (const char *)a->values + unit * a->unit, *lower = upper + AMX_ROWS * a->row;
    const char *b = (const char *)panel + unit * PANEL_STRIDE;
    amx_load(4, upper, a->row);
    amx_load_once(6, b, PANEL_STRIDE);
    amx_load_once(7, b + AMX_ROW_BYTES, PANEL_STRIDE);
    amx_load(5, lower, a->row);
    amx_dot_bf16(0, 4, 6);
    amx_dot_bf16(1, 4, 7);
    amx_dot_bf16(2, 5, 6);
    amx_dot_bf16(3, 5, 7);
}

INLINE void amx_close(float *sums)
{
    amx_store(0, sums, SUMS_STRIDE);
    amx_store(1, sums + AMX_ROWS, SUMS_STRIDE);
    amx_store(2, sums + AMX_ROWS * EO_PANEL, SUMS_STRIDE);
    amx_store(3, sums + AMX_ROWS * EO_PANEL + AMX_ROWS, SUMS_STRIDE);
}

static void tile_amx(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add)
{
    amx_open(sums, add);
    for (uint64_t unit = 0; unit < units; unit += AMX_UNITS)
        amx_step(a, panel, unit);
    amx_close(sums);
}

/* Tiles 0 and 2 of the sums alone. */
static void tile_amx_half(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add)
{
    amx_open(sums, add);
    for (uint64_t unit = 0; unit < units; unit += AMX_UNITS) {
        const char *upper = (const char *)a->values + unit * a->unit;
        amx_load(4, upper, a->row);
        amx_load_once(6, (const char *)panel + unit * PANEL_STRIDE, PANEL_STRIDE);
        amx_load(5, upper + AMX_ROWS * a->row, a->row);
        amx_dot_bf16(0, 4, 6);
        amx_dot_bf16(2, 5, 6);
    }
    amx_store(0, sums, SUMS_STRIDE);
    amx_store(2, sums + AMX_ROWS * EO_PANEL, SUMS_STRIDE);
}

#include "layers/cpu/products/attention_amx.h"

const struct eo_tiles EO_AMX_TABLE = {
    .name = "amx", .units = EO_UNITS_PAIRS, .rows = 2 * AMX_ROWS, .unit_block = AMX_UNITS,
    .columns_min = EO_B_COLUMNS_MIN, .columns_max = EO_B_COLUMNS_MAX, .b_units = EO_B_UNITS_MAX, .chunk = 256, .group = 3,
    .by_rows = true, .streams = true, .pack = PACK, .pack_across = eo_pack_across_avx512,
    .begin = amx_begin, .end = amx_end, .multiply = tile_amx, .multiply_half = tile_amx_half,
    .weights_beside = weights_beside, .finish = finish,
};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
