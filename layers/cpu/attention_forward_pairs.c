/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "layers/cpu/attention_pairs.h"

static struct eo_pairs_fetch fetch_forward(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member, uint64_t first)
{
    const struct eo_attention *a = l->a;
    const struct eo_attention_shape *s = &a->shape;
    const struct eo_pairs_places at = eo_pairs_places_of(l, pair, member), next = eo_pairs_places_next(l, pair, member);
    const uint64_t to_come = first + EO_PANEL;
    struct eo_pairs_fetch f = {.rows = EO_PANEL, .each = eo_split_up(EO_PANEL, eo_split_up(to_come, EO_PAIRS_CHUNK))};
    eo_pairs_fetch_add(&f, a->q, to_come < l->seq ? at.q + to_come * s->q_stride : next.q, s->q_stride);
    eo_pairs_fetch_add(&f, a->out, at.out + first * s->out_stride, s->out_stride);
    if (next.kv != at.kv) {
        eo_pairs_fetch_add(&f, a->k, next.kv + first * s->kv_stride, s->kv_stride);
        eo_pairs_fetch_add(&f, a->v, next.kv + first * s->kv_stride, s->kv_stride);
    }
    return f;
}

/* scores[keys][EO_PANEL] of a chunk's keys before `end` */
static void multiply_scores(const struct eo_pairs_lane *l, struct eo_pairs_products *list, float *scores, uint64_t first,
                            uint64_t end)
{
    for (uint64_t row = 0; row < EO_PAIRS_CHUNK && first + row < end; row += l->tiles->rows)
        eo_pairs_multiply(l, list, scores + row * EO_PANEL, l->keys + (first + row) * l->head_units, l->head_units, l->queries,
                          l->head_units, false);
}

/* Beside a chunk's weights run the products for the next one's scores, and those with the weights of the one before. */
static void panel_sums(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member, uint64_t first)
{
    const bool beside = l->tiles->weights_beside != NULL && first >= EO_PAIRS_CHUNK; /* there are products to compute beside */
    const uint64_t end = first + EO_PANEL, last = (end - 1) / EO_PAIRS_CHUNK * EO_PAIRS_CHUNK;
    struct eo_pairs_fetch fetch = fetch_forward(l, pair, member, first);
    uint32_t *panel = NULL;
    multiply_scores(l, NULL, l->scores, 0, end);
    for (uint64_t key = 0; key < end; key += EO_PAIRS_CHUNK) {
        const uint64_t turn = key / EO_PAIRS_CHUNK % 2;
        uint32_t *const panel_before = panel;
        panel = l->panels + turn * EO_PAIRS_CHUNK_UNITS * EO_PANEL;
        const struct eo_attention_weights w = {.scores = l->scores + turn * EO_PAIRS_CHUNK * EO_PANEL,
            .keys = eo_split_min(EO_PAIRS_CHUNK, end - key), .first_key = key, .first_query = first, .scale = l->scale,
            .top = l->top, .sum = l->sum, .correction = l->correction, .panel = panel};
        struct eo_pairs_products list;
        list.count = 0;
        const bool rises = l->kernels->attention_top(&w);
        multiply_scores(l, beside ? &list : NULL, l->scores + (1 - turn) * EO_PAIRS_CHUNK * EO_PANEL, key + EO_PAIRS_CHUNK,
                        end);
        if (key > 0)
            eo_pairs_multiply_across(l, beside ? &list : NULL, l->sums, key - EO_PAIRS_CHUNK, panel_before, EO_PAIRS_CHUNK);
        if (beside)
            l->tiles->weights_beside(&w, list.each, list.count);
        else
            l->kernels->attention_weights(&w);
        if (rises && key > 0)
            l->kernels->attention_scale(l->sums, l->head_rows, l->correction);
        eo_pairs_fetch_some(l, &fetch);
    }
    eo_pairs_multiply_across(l, NULL, l->sums, last, panel, end - last);
}

static void panel_forward(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member, uint64_t first)
{
    const struct eo_attention *a = l->a;
    const struct eo_pairs_places at = eo_pairs_places_of(l, pair, member);
    const uint64_t queries = eo_split_min(EO_PANEL, l->seq - first);
    eo_pairs_pack_columns(l, l->queries,
                          eo_pairs_rows_from(eo_pairs_rows_of(l, a->q, at.q, a->shape.q_stride), first, EO_PANEL));
    for (uint64_t i = 0; i < EO_PANEL; i++) {
        l->top[i] = -INFINITY;
        l->sum[i] = 0;
    }
    panel_sums(l, pair, member, first);
    for (uint64_t i = 0; i < queries; i++)
        a->log_sum_exp[at.statistic + first + i] = l->top[i] + logf(l->sum[i]);
    for (uint64_t i = 0; i < EO_PANEL; i++)
        l->correction[i] = 1 / l->sum[i];
    l->kernels->attention_scale(l->sums, l->head_rows, l->correction);
    eo_pairs_store_columns(l, (uint16_t *)a->out + at.out + first * a->shape.out_stride, a->shape.out_stride, l->sums, queries,
                           1);
}

void eo_pairs_forward(const struct eo_pairs_lane *l, uint64_t pair)
{
    const struct eo_attention_shape *s = &l->a->shape;
    const uint64_t kv = eo_pairs_places_of(l, pair, 0).kv;
    eo_pairs_pack_along(l, l->keys, eo_pairs_rows_of(l, l->a->k, kv, s->kv_stride));
    eo_pairs_pack_across(l, eo_pairs_rows_of(l, l->a->v, kv, s->kv_stride));
    for (uint64_t member = 0; member < s->head_count / s->kv_head_count; member++)
        for (uint64_t first = 0; first < l->seq; first += EO_PANEL)
            panel_forward(l, pair, member, first);
}
