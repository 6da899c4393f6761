/* SPDX-License-Identifier: MIT
 *
 * A thread's operands of attention by products of pairs of bf16 (attention_bf16.c): where they lie in the scratch, how they
 * are packed, and fetched ahead.
 */
#ifndef EO_LAYERS_CPU_ATTENTION_PAIRS_H
#define EO_LAYERS_CPU_ATTENTION_PAIRS_H

#include "layers/cpu/products/tiles.h"
#include "layers/kernel_table.h"
#include "layers/split.h"

enum {
    EO_PAIRS_CHUNK = 96,  /* keys: a multiple of every tile's rows and of EO_PANEL */
    EO_PAIRS_BLOCK = 256, /* queries of backward */
    EO_PAIRS_PANEL_UNITS = EO_PANEL / 2,
    EO_PAIRS_CHUNK_UNITS = EO_PAIRS_CHUNK / 2,
    EO_PAIRS_BLOCK_UNITS = EO_PAIRS_BLOCK / 2,
    EO_PAIRS_PRODUCTS = 32, /* that wait at most */
};
_Static_assert(EO_PAIRS_CHUNK % 96 == 0 && EO_PAIRS_BLOCK % EO_PANEL == 0, "blocks of whole tiles and panels");
_Static_assert(EO_PAIRS_PANEL_UNITS % 16 == 0 && EO_PAIRS_CHUNK_UNITS % 16 == 0, "units need no padding but the head's");

/* A thread's part. Operands go in units: pairs of bf16. Sizes below without EO_PAIRS_. */
struct eo_pairs_lane {
    const struct eo_attention *a;
    const struct eo_tiles *tiles;
    const struct eo_kernel_table *kernels;
    float scale;
    uint32_t lane_count;
    uint64_t head, head_units, head_rows, head_columns; /* the head in units, in rows of tiles, in columns of panels */
    uint64_t first, seq; /* of the sequence: the document at hand */

    uint32_t *keys, *values;                         /* A: [keys][head_units] */
    uint32_t *across;                                /* A: V^T (forward), K^T (backward): [chunks][head_rows][CHUNK_UNITS] */
    float *key_sums, *value_sums;                    /* [tiles of keys][head panels][rows][EO_PANEL] */
    uint32_t *queries, *out_gradients;               /* B: [panels][head_units][EO_PANEL] */
    uint32_t *queries_across, *out_gradients_across; /* B: [head panels][BLOCK_UNITS][EO_PANEL] */
    float *scores, *weight_gradients;                /* two of [CHUNK][EO_PANEL]; backward: a tile's rows */
    uint32_t *weight_rows, *slope_rows;              /* A: a tile's rows, [BLOCK_UNITS] */
    uint32_t *panels;                                /* B: two of P (forward), dS (backward): [panels][CHUNK_UNITS][EO_PANEL] */
    float *sums;                                     /* O^T or dQ^T: [panels][head_rows][EO_PANEL] */
    float *turned;                                   /* [EO_PANEL][head_columns] */
    float *top, *sum, *correction;                   /* [EO_PANEL] */
    float *log_sum_exp, *delta;                      /* [BLOCK] */
};

static inline uint64_t eo_pairs_round_up(uint64_t value, uint64_t multiple)
{
    return eo_split_up(value, multiple) * multiple;
}

/* Places for the tiles that need most; returns the bytes. */
uint64_t eo_pairs_place(struct eo_pairs_lane *l, const struct eo_attention_shape *s, char *base);

/* ---- a head ---- */

/* Of a pair (sequence, key/value head), and of one of its query heads. */
struct eo_pairs_places {
    uint64_t q, kv, out, statistic;
};

struct eo_pairs_places eo_pairs_places_of(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member);

/* Of the head that this lane most likely takes after this one. */
struct eo_pairs_places eo_pairs_places_next(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member);

/* A head of some tokens: elements of a row `stride` apart. */
struct eo_pairs_rows {
    const uint16_t *from;
    uint64_t stride, rows;
};

struct eo_pairs_rows eo_pairs_rows_of(const struct eo_pairs_lane *l, const void *values, uint64_t at, uint64_t stride);

static inline struct eo_pairs_rows eo_pairs_rows_from(struct eo_pairs_rows h, uint64_t first, uint64_t rows)
{
    return (struct eo_pairs_rows){h.from + first * h.stride, h.stride, eo_split_min(rows, h.rows - first)};
}

/* ---- operands ---- */

/* A: a row for each token, zeros up to whole panels, and tiles. */
void eo_pairs_pack_along(const struct eo_pairs_lane *l, uint32_t *to, struct eo_pairs_rows h);

/* A: a row for each of the head's elements, chunk after chunk. Here and in columns_across: zeros up to whole panels of tokens;
 * what lies behind them, in a chunk or block, stays as it is. */
void eo_pairs_pack_across(const struct eo_pairs_lane *l, struct eo_pairs_rows h);

/* B: a column for each query. */
void eo_pairs_pack_columns(const struct eo_pairs_lane *l, uint32_t *to, struct eo_pairs_rows h);

/* B: a column for each of the head's elements. */
void eo_pairs_pack_columns_across(const struct eo_pairs_lane *l, uint32_t *to, struct eo_pairs_rows h);

/* Columns of a panel, a query each, to rows of elements. */
void eo_pairs_store_columns(const struct eo_pairs_lane *l, uint16_t *to, uint64_t stride, const float *sums, uint64_t queries,
                            float factor);

/* ---- products ---- */

/* Products to compute beside vectors' work. */
struct eo_pairs_products {
    uint32_t count;
    struct eo_tile_product each[EO_PAIRS_PRODUCTS];
};

/* sums (+)= A B of one tile; rows of A have row_units. Into the list, or at once without a list or room in it. */
void eo_pairs_multiply(const struct eo_pairs_lane *l, struct eo_pairs_products *list, float *sums, const uint32_t *a,
                       uint64_t row_units, const uint32_t *panel, uint64_t units, bool add);

/* sums[head_rows][EO_PANEL] (+)= across, of the chunk that begins at key `first`, times a panel of `keys` keys */
void eo_pairs_multiply_across(const struct eo_pairs_lane *l, struct eo_pairs_products *list, float *sums, uint64_t first,
                              const uint32_t *panel, uint64_t keys);

/* ---- rows to come ---- */

/* A head's rows lie a token apart, so the processor foresees none of them: while one panel or block computes, the rows of
 * the next are fetched into the second-level cache, and those to be written. An address beyond the operand is harmless. */
struct eo_pairs_fetch {
    uint32_t count;
    struct {
        uintptr_t at;
        uint64_t stride; /* bytes */
    } operands[8];
    uint64_t rows, each, done; /* of each operand: in all, at a time */
};

void eo_pairs_fetch_add(struct eo_pairs_fetch *f, const void *values, uint64_t first, uint64_t stride);
void eo_pairs_fetch_some(const struct eo_pairs_lane *l, struct eo_pairs_fetch *f);

/* ---- attention of a pair ---- */

void eo_pairs_forward(const struct eo_pairs_lane *l, uint64_t pair);  /* attention_forward_pairs.c */
void eo_pairs_backward(const struct eo_pairs_lane *l, uint64_t pair); /* attention_backward_pairs.c */

#endif
