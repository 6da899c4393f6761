/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "layers/cpu/attention_pairs.h"

/* A block of queries, `end` with its padding. */
struct block {
    uint64_t first, count, end;
};

/* The block's operands and statistics; zeros where it has no queries. */
static void block_pack(const struct eo_pairs_lane *l, struct eo_pairs_places at, const struct block *b)
{
    const struct eo_attention *a = l->a;
    const struct eo_attention_shape *s = &a->shape;
    const struct eo_pairs_rows q = eo_pairs_rows_from(eo_pairs_rows_of(l, a->q, at.q, s->q_stride), b->first, EO_PAIRS_BLOCK);
    const struct eo_pairs_rows gradient =
        eo_pairs_rows_from(eo_pairs_rows_of(l, a->out_gradient, at.out, s->out_stride), b->first, EO_PAIRS_BLOCK);
    const struct eo_pairs_rows out =
        eo_pairs_rows_from(eo_pairs_rows_of(l, a->out, at.out, s->out_stride), b->first, EO_PAIRS_BLOCK);
    eo_pairs_pack_columns(l, l->queries, q);
    eo_pairs_pack_columns(l, l->out_gradients, gradient);
    eo_pairs_pack_columns_across(l, l->queries_across, q);
    eo_pairs_pack_columns_across(l, l->out_gradients_across, gradient);
    memset(l->log_sum_exp, 0, EO_PAIRS_BLOCK * sizeof(float));
    memset(l->delta, 0, EO_PAIRS_BLOCK * sizeof(float));
    memcpy(l->log_sum_exp, a->log_sum_exp + at.statistic + b->first, b->count * sizeof(float));
    for (uint64_t i = 0; i < b->count; i++)
        l->delta[i] = l->kernels->attention_dot(gradient.from + i * s->out_stride, out.from + i * s->out_stride, l->head);
}

/* A tile of keys, `row` of the chunk at `first_key`: P and dS, and what they add to dV and dK. */
static void tile_backward(const struct eo_pairs_lane *l, const struct block *b, uint64_t first_key, uint64_t row)
{
    const struct eo_tiles *t = l->tiles;
    const uint64_t key = first_key + row, panels = (b->end - b->first) / EO_PANEL;
    const uint64_t before = key > b->first ? key - b->first : 0; /* queries that see none of these keys */
    const uint64_t skip = before / 2 / t->unit_block * t->unit_block, units = panels * EO_PAIRS_PANEL_UNITS - skip;
    for (uint64_t panel = before / EO_PANEL; panel < panels; panel++) {
        const uint64_t query = panel * EO_PANEL;
        eo_pairs_multiply(l, NULL, l->scores, l->keys + key * l->head_units, l->head_units, l->queries + query * l->head_units,
                          l->head_units, false);
        eo_pairs_multiply(l, NULL, l->weight_gradients, l->values + key * l->head_units, l->head_units,
                          l->out_gradients + query * l->head_units, l->head_units, false);
        l->kernels->attention_slopes(&(struct eo_attention_slopes){
            .scores = l->scores, .weight_gradients = l->weight_gradients, .keys = t->rows, .first_key = key,
            .first_query = b->first + query, .scale = l->scale, .log_sum_exp = l->log_sum_exp + query,
            .delta = l->delta + query, .weight_rows = (uint16_t *)l->weight_rows + query,
            .slope_rows = (uint16_t *)l->slope_rows + query, .row_stride = EO_PAIRS_BLOCK,
            .slope_panel = l->panels + (panel * EO_PAIRS_CHUNK_UNITS + row / 2) * EO_PANEL});
    }
    for (uint64_t column = 0; column < l->head; column += EO_PANEL) {
        const uint64_t sums = key * l->head_columns + column * t->rows, panel = column * EO_PAIRS_BLOCK_UNITS + skip * EO_PANEL;
        eo_pairs_multiply(l, NULL, l->value_sums + sums, l->weight_rows + skip, EO_PAIRS_BLOCK_UNITS,
                          l->out_gradients_across + panel, units, true);
        eo_pairs_multiply(l, NULL, l->key_sums + sums, l->slope_rows + skip, EO_PAIRS_BLOCK_UNITS, l->queries_across + panel,
                          units, true);
    }
}

static struct eo_pairs_fetch fetch_backward(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member,
                                            const struct block *b)
{
    const struct eo_attention *a = l->a;
    const struct eo_attention_shape *s = &a->shape;
    const struct eo_pairs_places at = eo_pairs_places_of(l, pair, member), next = eo_pairs_places_next(l, pair, member);
    const uint64_t to_come = b->first + EO_PAIRS_BLOCK, rows = b->end - b->first;
    const uint64_t q = to_come < l->seq ? at.q + to_come * s->q_stride : next.q;
    const uint64_t out = to_come < l->seq ? at.out + to_come * s->out_stride : next.out;
    struct eo_pairs_fetch f = {.rows = rows, .each = eo_split_up(rows, b->end / l->tiles->rows)};
    eo_pairs_fetch_add(&f, a->q, q, s->q_stride);
    eo_pairs_fetch_add(&f, a->out_gradient, out, s->out_stride);
    eo_pairs_fetch_add(&f, a->out, out, s->out_stride);
    eo_pairs_fetch_add(&f, a->q_gradient, at.q + b->first * s->q_stride, s->q_stride);
    if (next.kv != at.kv) {
        eo_pairs_fetch_add(&f, a->k, next.kv + b->first * s->kv_stride, s->kv_stride);
        eo_pairs_fetch_add(&f, a->v, next.kv + b->first * s->kv_stride, s->kv_stride);
        eo_pairs_fetch_add(&f, a->k_gradient, at.kv + b->first * s->kv_stride, s->kv_stride);
        eo_pairs_fetch_add(&f, a->v_gradient, at.kv + b->first * s->kv_stride, s->kv_stride);
    }
    return f;
}

/* The gradients may lie over q, k and v: a block of q is written after its last use, k and v were packed. */
static void block_backward(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member, uint64_t first)
{
    const struct eo_attention_shape *s = &l->a->shape;
    const struct eo_pairs_places at = eo_pairs_places_of(l, pair, member);
    const uint64_t count = eo_split_min(EO_PAIRS_BLOCK, l->seq - first);
    const struct block block = {first, count, first + eo_pairs_round_up(count, EO_PANEL)};
    struct eo_pairs_fetch fetch = fetch_backward(l, pair, member, &block);
    block_pack(l, at, &block);
    for (uint64_t key = 0; key < block.end; key += EO_PAIRS_CHUNK) {
        const uint64_t keys = eo_split_min(EO_PAIRS_CHUNK, block.end - key);
        for (uint64_t row = 0; row < keys; row += l->tiles->rows) {
            tile_backward(l, &block, key, row);
            eo_pairs_fetch_some(l, &fetch);
        }
        for (uint64_t query = 0; query < count; query += EO_PANEL)
            if (first + query + EO_PANEL > key)
                eo_pairs_multiply_across(l, NULL, l->sums + query * l->head_rows, key, l->panels + query * EO_PAIRS_CHUNK_UNITS,
                                eo_split_min(EO_PAIRS_CHUNK, first + query + EO_PANEL - key));
    }
    for (uint64_t query = 0; query < count; query += EO_PANEL)
        eo_pairs_store_columns(l, (uint16_t *)l->a->q_gradient + at.q + (first + query) * s->q_stride, s->q_stride,
                               l->sums + query * l->head_rows, eo_split_min(EO_PANEL, count - query), l->scale);
}

static void store_rows(const struct eo_pairs_lane *l, uint16_t *to, const float *sums, float factor)
{
    const struct eo_attention_shape *s = &l->a->shape;
    for (uint64_t key = 0; key < l->seq; key += l->tiles->rows)
        for (uint64_t column = 0; column < l->head; column += EO_PANEL)
            l->kernels->attention_store(to + key * s->kv_stride + column, s->kv_stride,
                                        sums + key * l->head_columns + column * l->tiles->rows, EO_PANEL,
                                        eo_split_min(l->tiles->rows, l->seq - key), eo_split_min(EO_PANEL, l->head - column),
                                        factor);
}

void eo_pairs_backward(const struct eo_pairs_lane *l, uint64_t pair)
{
    const struct eo_attention *a = l->a;
    const struct eo_attention_shape *s = &a->shape;
    const uint64_t kv = eo_pairs_places_of(l, pair, 0).kv;
    const struct eo_pairs_rows k = eo_pairs_rows_of(l, a->k, kv, s->kv_stride);
    eo_pairs_pack_along(l, l->keys, k);
    eo_pairs_pack_along(l, l->values, eo_pairs_rows_of(l, a->v, kv, s->kv_stride));
    eo_pairs_pack_across(l, k);
    const uint64_t keys = eo_pairs_round_up(eo_pairs_round_up(l->seq, EO_PANEL), l->tiles->rows);
    memset(l->key_sums, 0, keys * l->head_columns * sizeof(float));
    memset(l->value_sums, 0, keys * l->head_columns * sizeof(float));
    for (uint64_t member = 0; member < s->head_count / s->kv_head_count; member++)
        for (uint64_t first = 0; first < l->seq; first += EO_PAIRS_BLOCK)
            block_backward(l, pair, member, first);
    store_rows(l, (uint16_t *)a->k_gradient + kv, l->key_sums, l->scale);
    store_rows(l, (uint16_t *)a->v_gradient + kv, l->value_sums, 1);
}
