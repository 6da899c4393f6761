/* SPDX-License-Identifier: MIT
 *
 * The inner part of products by packed operands: one table of functions for each way to multiply.
 *
 *     amx           bf16, tiles of the AMX unit
 *     avx512_bf16   bf16, dot products of pairs
 *     avx512, avx2, plain   fp32, multiply and add; bf16 is widened while it is packed
 *
 * Along k an operand goes in units of 4 bytes: one fp32, or two bf16 side by side. Units are padded with zeros to a multiple
 * of unit_block.
 *
 *     A   tiles of `rows` rows: packed [units][rows], or by rows [units / 16][rows][16]; row-major operands can be read where
 *         they are
 *     B   panels of EO_PANEL columns: [units][EO_PANEL]
 *     C   sums in fp32, [rows][EO_PANEL], which `finish` turns into elements
 */
#ifndef EO_LAYERS_CPU_PRODUCTS_TILES_H
#define EO_LAYERS_CPU_PRODUCTS_TILES_H

#include "layers/kernel_ops.h"

enum { EO_PANEL = 32, EO_TILE_ROWS_MAX = 32, EO_UNIT_BYTES = 4 };

/* What a unit holds. */
enum eo_units { EO_UNITS_FP32, EO_UNITS_PAIRS /* of bf16 */, EO_UNITS_WIDENED /* bf16 as fp32 */ };

/* A tile of A: bytes from row to row, and from unit to unit. */
struct eo_tile_a {
    const void *values;
    uint64_t row, unit;
};

/* Part of an operand to pack: `lines` rows of A, or columns of B, of k elements. `along`: k is contiguous. */
struct eo_pack {
    const void *from;
    uint64_t stride; /* elements from stored row to stored row */
    bool along;
    uint64_t lines, k;
    uint64_t units;      /* of the packed form, padded */
    uint64_t begin, end; /* the units to pack now: multiples of 4, by rows begin of EO_PACK_BLOCK */
    uint64_t row, block; /* by rows: units from row to row, and from each EO_PACK_BLOCK units of a row to the next */
};

enum { EO_PACK_BLOCK = 16 };

/* By rows: where a unit of a line goes. */
static inline uint64_t eo_pack_at(const struct eo_pack *pack, uint64_t line, uint64_t unit)
{
    return line * pack->row + unit / EO_PACK_BLOCK * pack->block + unit % EO_PACK_BLOCK;
}

/* To [units][width], or by rows; lines behind the last are zeros. width is a multiple of 4. */
typedef void eo_pack_function(enum eo_units kind, void *to, uint64_t width, bool by_rows, const struct eo_pack *pack);
eo_pack_function eo_pack;
#if defined(__x86_64__)
eo_pack_function eo_pack_avx2, eo_pack_avx512;

/* bf16 where k goes from stored row to stored row: all tiles of A (width EO_PACK_LINES), or panels of B (EO_PANEL),
 * [units][width] each, by one pass over the rows from their begin to their end, as the processor's own prefetching wants them.
 * Pairs, or widened. begin, end, row and block are not used; units are a multiple of 4. */
enum { EO_PACK_LINES = 12 };
void eo_pack_across_avx2(enum eo_units kind, void *to, uint64_t width, const struct eo_pack *pack); /* widened alone */
void eo_pack_across_avx512(enum eo_units kind, void *to, uint64_t width, const struct eo_pack *pack);
#endif

/* Of all tables, for the scratch that holds a block of B: the most columns and units, the fewest columns of a piece of k, and
 * the units of k that every table takes in one piece. */
enum { EO_B_COLUMNS_MAX = 768, EO_B_UNITS_MAX = EO_B_COLUMNS_MAX * 384, EO_B_COLUMNS_MIN = 192, EO_PIECE_UNITS_MIN = 1024 };

/* sums[rows][EO_PANEL] = (sums if add) + A B, in order of the units */
struct eo_tile_product {
    float *sums;
    struct eo_tile_a a;
    const void *panel;
    uint64_t units;
    bool add;
};

struct eo_attention_weights;

struct eo_tiles {
    const char *name;
    enum eo_units units;
    uint32_t rows, unit_block;
    uint32_t columns_min, columns_max, b_units; /* a block of B: its columns, and the most units of it in all */
    uint32_t chunk;                             /* units of k for which a tile of A stays in the first-level cache; 0: all */
    uint32_t group;                             /* panels whose sums stay there, too, unless k is long; 0: all */
    bool by_rows;
    bool streams; /* `finish` can write past the caches; `end` then makes it seen */
    eo_pack_function *pack;
    /* Of B, and of A where it is not by rows; or NULL. */
    void (*pack_across)(enum eo_units kind, void *to, uint64_t width, const struct eo_pack *pack);
    void (*begin)(void), (*end)(void); /* around the products of a thread; or NULL */
    /* sums[rows][EO_PANEL] = (sums if add) + A B, in order of the units */
    void (*multiply)(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add);
    /* The same of the first EO_PANEL / 2 columns alone, for a last panel that has no more. */
    void (*multiply_half)(float *sums, const struct eo_tile_a *a, const void *panel, uint64_t units, bool add);
    /* Weights of attention (layers/kernel_table.h) and products that do not depend on them, side by side: for a unit that
     * multiplies while the vectors compute. Or NULL. */
    void (*weights_beside)(const struct eo_attention_weights *w, const struct eo_tile_product *products, uint32_t count);
    /* Part of C that begins at (row, column), of at most EO_PANEL columns; sums' rows are EO_PANEL apart. stream: C's rows
     * begin at multiples of 64 bytes, and nothing is added to what is there: it may be written past the caches. */
    void (*finish)(const struct eo_multiply *p, uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                   const float *sums, bool stream);
};

extern const struct eo_tiles eo_tiles_fp32_plain, eo_tiles_bf16_plain;
#if defined(__x86_64__)
extern const struct eo_tiles eo_tiles_fp32_avx2, eo_tiles_bf16_avx2;
extern const struct eo_tiles eo_tiles_fp32_avx512, eo_tiles_bf16_avx512;
extern const struct eo_tiles eo_tiles_avx512_bf16;
extern const struct eo_tiles eo_tiles_amx;
#endif

/* Of the level in use (see kernel_table.h). Those of fp32 serve measurements: oneDNN multiplies there, and is faster. */
const struct eo_tiles *eo_tiles_of(eo_dtype dtype);

/* The elements of an operand that go into one unit. */
static inline uint32_t eo_tiles_unit_elements(const struct eo_tiles *tiles)
{
    return tiles->units == EO_UNITS_PAIRS ? 2 : 1;
}

static inline uint64_t eo_tiles_units(const struct eo_tiles *tiles, uint64_t k)
{
    const uint64_t per_unit = eo_tiles_unit_elements(tiles), block = tiles->unit_block;
    return ((k + per_unit - 1) / per_unit + block - 1) / block * block;
}

/* ---- products of any size ---- */

/* Scratch of a team's product with at most these sizes, in bytes: a pure function. */
uint64_t eo_product_scratch_bytes(uint64_t m, uint64_t n, uint64_t k, uint32_t thread_count);

/* p->scratch holds eo_product_scratch_bytes. Same bits for any number of threads. */
void eo_product_run(eo_team *team, const struct eo_tiles *tiles, const struct eo_multiply *p);

#endif
