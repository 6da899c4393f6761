/* SPDX-License-Identifier: MIT
 *
 * Attention's weights (attention_weights.h) with products in between: the AMX unit multiplies while the vectors compute. A
 * processor looks ahead only a few hundred instructions, so one instruction that multiplies stands before every few rows of
 * vectors' work, and what it needs is loaded two such places before.
 */
#ifndef EO_LAYERS_CPU_PRODUCTS_ATTENTION_AMX_H
#define EO_LAYERS_CPU_PRODUCTS_ATTENTION_AMX_H

#include "layers/cpu/levels/attention_weights.h"

/* Products in turn, by parts: four parts are a step of AMX_UNITS units. A product's sums leave their tiles when the next
 * product takes these. A streams by, B stays in the first-level cache. */
struct amx_line {
    const struct eo_tile_product *product, *end;
    float *sums_before;
    uint64_t unit;
    const char *a, *b, *a_next, *b_next;
    uint64_t row, row_next;
};

INLINE void amx_line_find(struct amx_line *l, const struct eo_tile_product *p, uint64_t unit)
{
    l->a_next = (const char *)p->a.values + unit * p->a.unit;
    l->b_next = (const char *)p->panel + unit * PANEL_STRIDE;
    l->row_next = p->a.row;
}

INLINE struct amx_line amx_line_open(const struct eo_tile_product *products, uint32_t count)
{
    struct amx_line l = {.product = products, .end = products + count};
    amx_stored(products); /* and the operands */
    if (count > 0) {
        amx_line_find(&l, products, 0);
        amx_load_once(4, l.a_next, l.row_next);
        amx_load(6, l.b_next, PANEL_STRIDE);
    }
    return l;
}

INLINE bool amx_line_ends(const struct amx_line *l)
{
    return l->product == l->end;
}

/* At a product's first step: the tile's sums of the product before go, its own come. A macro: see amx.h. */
#define AMX_SUMS(sums, tile) ((sums) + (tile) / 2 * AMX_ROWS * EO_PANEL + (tile) % 2 * AMX_ROWS)
#define AMX_TILE_OPEN(l, tile)                                                   \
    if ((l)->unit == 0) {                                                        \
        if ((l)->sums_before != NULL)                                            \
            amx_store(tile, AMX_SUMS((l)->sums_before, tile), SUMS_STRIDE);      \
        if ((l)->product->add)                                                   \
            amx_load(tile, AMX_SUMS((l)->product->sums, tile), SUMS_STRIDE);     \
        else                                                                     \
            amx_zero(tile);                                                      \
    }

INLINE void amx_line_part_0(struct amx_line *l)
{
    l->a = l->a_next;
    l->b = l->b_next;
    l->row = l->row_next;
    AMX_TILE_OPEN(l, 0)
    amx_dot_bf16(0, 4, 6);
    amx_load(7, l->b + AMX_ROW_BYTES, PANEL_STRIDE);
}

INLINE void amx_line_part_1(struct amx_line *l)
{
    AMX_TILE_OPEN(l, 1)
    amx_dot_bf16(1, 4, 7);
    amx_load_once(5, l->a + AMX_ROWS * l->row, l->row);
    if (l->unit + AMX_UNITS < l->product->units)
        amx_line_find(l, l->product, l->unit + AMX_UNITS);
    else if (l->product + 1 < l->end)
        amx_line_find(l, l->product + 1, 0);
}

INLINE void amx_line_part_2(struct amx_line *l)
{
    AMX_TILE_OPEN(l, 2)
    amx_dot_bf16(2, 5, 6);
    amx_load_once(4, l->a_next, l->row_next);
}

INLINE void amx_line_part_3(struct amx_line *l)
{
    AMX_TILE_OPEN(l, 3)
    amx_dot_bf16(3, 5, 7);
    amx_load(6, l->b_next, PANEL_STRIDE);
    l->unit += AMX_UNITS;
    if (l->unit == l->product->units) {
        l->sums_before = l->product->sums;
        l->product++;
        l->unit = 0;
    }
}

INLINE void amx_line_close(struct amx_line *l)
{
    while (!amx_line_ends(l)) {
        amx_line_part_0(l);
        amx_line_part_1(l);
        amx_line_part_2(l);
        amx_line_part_3(l);
    }
    if (l->sums_before != NULL)
        amx_close(l->sums_before);
}

/* keys are a multiple of 8 */
INLINE void weights_line(const struct eo_attention_weights *w, bool masked, struct amx_line *line)
{
    struct weights_state state = weights_open(w);
    uint64_t row = 0;
    for (; row < w->keys && !amx_line_ends(line); row += 8) {
        amx_line_part_0(line);
        weights_pair(w, masked, row, &state);
        amx_line_part_1(line);
        weights_pair(w, masked, row + 2, &state);
        amx_line_part_2(line);
        weights_pair(w, masked, row + 4, &state);
        amx_line_part_3(line);
        weights_pair(w, masked, row + 6, &state);
    }
    for (; row < w->keys; row += 2)
        weights_pair(w, masked, row, &state);
    weights_close(w, &state);
}

static void weights_beside(const struct eo_attention_weights *weights, const struct eo_tile_product *products, uint32_t count)
{
    const struct eo_attention_weights w = *weights; /* a copy: stores cannot change it */
    struct amx_line line = amx_line_open(products, count);
    if (weights_masked(&w))
        weights_line(&w, true, &line);
    else
        weights_line(&w, false, &line);
    amx_line_close(&line);
}

#endif
