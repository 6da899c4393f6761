/* SPDX-License-Identifier: MIT */
#include "layers/cpu/attention_pairs.h"

enum { ALIGNMENT = 64 };

static void *take(char *base, uint64_t *used, uint64_t bytes)
{
    void *at = base == NULL ? NULL : base + *used;
    *used += eo_pairs_round_up(bytes, ALIGNMENT);
    return at;
}

uint64_t eo_pairs_place(struct eo_pairs_lane *l, const struct eo_attention_shape *s, char *base)
{
    const uint64_t keys = eo_pairs_round_up(s->seq, EO_PAIRS_CHUNK), head = s->head_size;
    const uint64_t units = eo_pairs_round_up(head, 32) / 2 * EO_UNIT_BYTES, half = EO_UNIT_BYTES / 2, floats = sizeof(float);
    const uint64_t rows = head + EO_TILE_ROWS_MAX, columns = eo_pairs_round_up(head, EO_PANEL),
                   panel = EO_PANEL * sizeof(float);
    uint64_t used = 0;
    l->keys = take(base, &used, keys * units);
    l->values = take(base, &used, keys * units);
    l->across = take(base, &used, keys * rows * half);
    l->key_sums = take(base, &used, keys * columns * floats);
    l->value_sums = take(base, &used, keys * columns * floats);
    l->queries = take(base, &used, EO_PAIRS_BLOCK * units);
    l->out_gradients = take(base, &used, EO_PAIRS_BLOCK * units);
    l->queries_across = take(base, &used, columns * EO_PAIRS_BLOCK * half);
    l->out_gradients_across = take(base, &used, columns * EO_PAIRS_BLOCK * half);
    l->scores = take(base, &used, 2 * EO_PAIRS_CHUNK * panel);
    l->weight_gradients = take(base, &used, EO_TILE_ROWS_MAX * panel);
    l->weight_rows = take(base, &used, EO_TILE_ROWS_MAX * EO_PAIRS_BLOCK * half);
    l->slope_rows = take(base, &used, EO_TILE_ROWS_MAX * EO_PAIRS_BLOCK * half);
    l->panels = take(base, &used, EO_PAIRS_BLOCK * EO_PAIRS_CHUNK * half);
    l->sums = take(base, &used, EO_PAIRS_BLOCK * rows * floats);
    l->turned = take(base, &used, EO_PANEL * columns * floats);
    l->top = take(base, &used, panel);
    l->sum = take(base, &used, panel);
    l->correction = take(base, &used, panel);
    l->log_sum_exp = take(base, &used, EO_PAIRS_BLOCK * floats);
    l->delta = take(base, &used, EO_PAIRS_BLOCK * floats);
    return used;
}

struct eo_pairs_places eo_pairs_places_of(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member)
{
    const struct eo_attention_shape *s = &l->a->shape;
    const uint64_t sequence = pair / s->kv_head_count, kv_head = pair % s->kv_head_count, token = sequence * s->seq + l->first;
    const uint64_t head = kv_head * (s->head_count / s->kv_head_count) + member;
    return (struct eo_pairs_places){
        .q = token * s->q_stride + head * s->head_size,
        .kv = token * s->kv_stride + kv_head * s->head_size,
        .out = token * s->out_stride + head * s->head_size,
        .statistic = (sequence * s->head_count + head) * s->seq + l->first,
    };
}

struct eo_pairs_places eo_pairs_places_next(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member)
{
    const struct eo_attention_shape *s = &l->a->shape;
    return member + 1 < s->head_count / s->kv_head_count ? eo_pairs_places_of(l, pair, member + 1)
                                                         : eo_pairs_places_of(l, pair + l->lane_count, 0);
}

struct eo_pairs_rows eo_pairs_rows_of(const struct eo_pairs_lane *l, const void *values, uint64_t at, uint64_t stride)
{
    return (struct eo_pairs_rows){(const uint16_t *)values + at, stride, l->seq};
}

/* `lines` are rows of the head if `along`, else its elements. By rows these begin `units` apart. */
static void pack(const struct eo_pairs_lane *l, uint32_t *to, uint64_t width, bool by_rows, struct eo_pairs_rows h, bool along,
                 uint64_t lines, uint64_t k, uint64_t units)
{
    const uint64_t used = along ? units : eo_pairs_round_up(k, EO_PANEL) / 2; /* of tokens, products take whole panels */
    l->tiles->pack(EO_UNITS_PAIRS, to, width, by_rows,
                   &(struct eo_pack){.from = h.from,
                                     .stride = h.stride,
                                     .along = along,
                                     .lines = lines,
                                     .k = k,
                                     .units = units,
                                     .end = used,
                                     .row = units,
                                     .block = EO_PACK_BLOCK});
}

void eo_pairs_pack_along(const struct eo_pairs_lane *l, uint32_t *to, struct eo_pairs_rows h)
{
    for (uint64_t first = 0; first < h.rows; first += EO_PANEL) {
        const struct eo_pairs_rows panel = eo_pairs_rows_from(h, first, EO_PANEL);
        const uint64_t end = first + EO_PANEL;
        const uint64_t rows = (end < h.rows ? end : eo_pairs_round_up(end, l->tiles->rows)) - first;
        pack(l, to + first * l->head_units, rows, true, panel, true, panel.rows, l->head, l->head_units);
    }
}

void eo_pairs_pack_across(const struct eo_pairs_lane *l, struct eo_pairs_rows h)
{
    for (uint64_t first = 0; first < h.rows; first += EO_PAIRS_CHUNK) {
        const struct eo_pairs_rows chunk = eo_pairs_rows_from(h, first, EO_PAIRS_CHUNK);
        pack(l, l->across + first / EO_PAIRS_CHUNK * l->head_rows * EO_PAIRS_CHUNK_UNITS, l->head_rows, true, chunk, false,
             l->head, chunk.rows, EO_PAIRS_CHUNK_UNITS);
    }
}

void eo_pairs_pack_columns(const struct eo_pairs_lane *l, uint32_t *to, struct eo_pairs_rows h)
{
    for (uint64_t first = 0; first < h.rows; first += EO_PANEL) {
        const struct eo_pairs_rows panel = eo_pairs_rows_from(h, first, EO_PANEL);
        pack(l, to + first * l->head_units, EO_PANEL, false, panel, true, panel.rows, l->head, l->head_units);
    }
}

void eo_pairs_pack_columns_across(const struct eo_pairs_lane *l, uint32_t *to, struct eo_pairs_rows h)
{
    for (uint64_t column = 0; column < l->head; column += EO_PANEL) {
        const struct eo_pairs_rows columns = {h.from + column, h.stride, h.rows};
        pack(l, to + column * EO_PAIRS_BLOCK_UNITS, EO_PANEL, false, columns, false, eo_split_min(EO_PANEL, l->head - column),
             h.rows, EO_PAIRS_BLOCK_UNITS);
    }
}

void eo_pairs_store_columns(const struct eo_pairs_lane *l, uint16_t *to, uint64_t stride, const float *sums, uint64_t queries,
                            float factor)
{
    l->tiles->pack(EO_UNITS_FP32, l->turned, EO_PANEL, true,
            &(struct eo_pack){.from = sums, .stride = EO_PANEL, .lines = EO_PANEL, .k = l->head, .units = l->head_columns,
                             .end = l->head_columns, .row = l->head_columns, .block = EO_PACK_BLOCK});
    l->kernels->attention_store(to, stride, l->turned, l->head_columns, queries, l->head, factor);
}

void eo_pairs_multiply(const struct eo_pairs_lane *l, struct eo_pairs_products *list, float *sums, const uint32_t *a,
                       uint64_t row_units, const uint32_t *panel, uint64_t units, bool add)
{
    const struct eo_tile_a tile = {a, row_units * EO_UNIT_BYTES, EO_UNIT_BYTES};
    if (list != NULL && list->count < EO_PAIRS_PRODUCTS)
        list->each[list->count++] = (struct eo_tile_product){sums, tile, panel, units, add};
    else
        l->tiles->multiply(sums, &tile, panel, units, add);
}

void eo_pairs_multiply_across(const struct eo_pairs_lane *l, struct eo_pairs_products *list, float *sums, uint64_t first,
                              const uint32_t *panel, uint64_t keys)
{
    const uint32_t *chunk = l->across + first / EO_PAIRS_CHUNK * l->head_rows * EO_PAIRS_CHUNK_UNITS;
    for (uint64_t row = 0; row < l->head_rows; row += l->tiles->rows)
        eo_pairs_multiply(l, list, sums + row * EO_PANEL, chunk + row * EO_PAIRS_CHUNK_UNITS, EO_PAIRS_CHUNK_UNITS, panel,
                          keys / 2, first > 0);
}

void eo_pairs_fetch_add(struct eo_pairs_fetch *f, const void *values, uint64_t first, uint64_t stride)
{
    f->operands[f->count].at = (uintptr_t)values + first * sizeof(uint16_t);
    f->operands[f->count++].stride = stride * sizeof(uint16_t);
}

void eo_pairs_fetch_some(const struct eo_pairs_lane *l, struct eo_pairs_fetch *f)
{
    const uint64_t last = eo_split_min(f->rows, f->done + f->each);
    for (; f->done < last; f->done++)
        for (uint32_t i = 0; i < f->count; i++)
            for (uint64_t at = 0; at < l->head * sizeof(uint16_t); at += 64)
                __builtin_prefetch((const void *)(f->operands[i].at + f->done * f->operands[i].stride + at), 0, 2);
}
