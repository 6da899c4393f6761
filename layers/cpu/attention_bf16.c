/* SPDX-License-Identifier: MIT
 *
 * Causal attention in bf16. With tiles of widened units it is that of fp32 (attention.c), of elements widened while they are
 * packed; with tiles of pairs it goes by packed products (product_tiles.h). There everything stands with keys in rows and
 * queries in columns:
 *
 *     forward    S = K Q^T,  P = exp(S - max),  O^T = V^T P          sums of the keys before are corrected to a new maximum
 *     backward   S = K Q^T,  dP = V dO^T,  dS = P (dP - delta),  dV += P dO,  dK += dS Q,  dQ^T = K^T dS
 *
 * so a query's maximum and sum run down a lane of a vector, P and dS are written as the products read them, and only dS
 * in two ways: rows of A, panels of B. Queries go by panels (forward) or blocks of panels (backward), keys by chunks;
 * panels behind the diagonal are left out. K, V, K^T and V^T are packed whole, as tiles of A.
 */
#include "layers/cpu/kernels.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "layers/cpu/attention_pairs.h"

uint64_t eo_cpu_attention_bf16_scratch_bytes(struct eo_types types, const struct eo_attention_shape *shape,
                                             uint32_t thread_count)
{
    struct eo_pairs_lane lane;
    const uint64_t by_pairs = thread_count * eo_pairs_place(&lane, shape, NULL);
    const uint64_t widened = eo_cpu_attention_scratch_bytes(types, shape, thread_count);
    return by_pairs > widened ? by_pairs : widened;
}

/* C (+)= A B of one tile; rows of A have row_units. */
static void multiply(const struct eo_pairs_lane *l, float *sums, const uint32_t *a, uint64_t row_units, const uint32_t *panel,
                     uint64_t units, bool add)
{
    l->tiles->multiply(sums, &(struct eo_tile_a){a, row_units * EO_UNIT_BYTES, EO_UNIT_BYTES}, panel, units, add);
}

/* sums[head_rows][EO_PANEL] (+)= across, of the chunk that begins at key `first`, times a panel of `keys` keys */
static void multiply_across(const struct eo_pairs_lane *l, float *sums, uint64_t first, const uint32_t *panel, uint64_t keys)
{
    const uint32_t *chunk = l->across + first / EO_PAIRS_CHUNK * l->head_rows * EO_PAIRS_CHUNK_UNITS;
    for (uint64_t row = 0; row < l->head_rows; row += l->tiles->rows)
        multiply(l, sums + row * EO_PANEL, chunk + row * EO_PAIRS_CHUNK_UNITS, EO_PAIRS_CHUNK_UNITS, panel, keys / 2,
                 first > 0);
}

/* ---- a head ---- */

/* Of a pair (sequence, key/value head), and of one of its query heads. */
struct places {
    uint64_t q, kv, out, statistic;
};

static struct places places_of(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member)
{
    const struct eo_attention_shape *s = &l->a->shape;
    const uint64_t sequence = pair / s->kv_head_count, kv_head = pair % s->kv_head_count, token = sequence * s->seq + l->first;
    const uint64_t head = kv_head * (s->head_count / s->kv_head_count) + member;
    return (struct places){
        .q = token * s->q_stride + head * s->head_size,
        .kv = token * s->kv_stride + kv_head * s->head_size,
        .out = token * s->out_stride + head * s->head_size,
        .statistic = (sequence * s->head_count + head) * s->seq + l->first,
    };
}

/* The head that this lane most likely takes after this one. */
static struct places places_next(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member)
{
    const struct eo_attention_shape *s = &l->a->shape;
    return member + 1 < s->head_count / s->kv_head_count ? places_of(l, pair, member + 1)
                                                         : places_of(l, pair + l->lane_count, 0);
}

static struct eo_pairs_rows head_rows_of(const struct eo_pairs_lane *l, const void *values, uint64_t at, uint64_t stride)
{
    return (struct eo_pairs_rows){(const uint16_t *)values + at, stride, l->seq};
}

static struct eo_pairs_fetch fetch_forward(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member, uint64_t first)
{
    const struct eo_attention *a = l->a;
    const struct eo_attention_shape *s = &a->shape;
    const struct places at = places_of(l, pair, member), next = places_next(l, pair, member);
    const uint64_t to_come = first + EO_PANEL;
    struct eo_pairs_fetch f = {.rows = EO_PANEL, .each = eo_split_up(EO_PANEL, to_come / l->tiles->rows)};
    eo_pairs_fetch_add(&f, a->q, to_come < l->seq ? at.q + to_come * s->q_stride : next.q, s->q_stride);
    eo_pairs_fetch_add(&f, a->out, at.out + first * s->out_stride, s->out_stride);
    if (next.kv != at.kv) {
        eo_pairs_fetch_add(&f, a->k, next.kv + first * s->kv_stride, s->kv_stride);
        eo_pairs_fetch_add(&f, a->v, next.kv + first * s->kv_stride, s->kv_stride);
    }
    return f;
}

/* Scores of a tile of keys. */
static void multiply_scores(const struct eo_pairs_lane *l, float *scores, uint64_t key)
{
    multiply(l, scores, l->keys + key * l->head_units, l->head_units, l->queries, l->head_units, false);
}

/* The next chunk's scores are multiplied a tile at a time before this one's exponentials: both then run side by side. */
static void panel_sums(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member, uint64_t first)
{
    const uint64_t end = first + EO_PANEL, rows = l->tiles->rows;
    struct eo_pairs_fetch fetch = fetch_forward(l, pair, member, first);
    float *scores = l->scores, *scores_next = l->scores + EO_PAIRS_CHUNK * EO_PANEL;
    for (uint64_t key = 0; key < EO_PAIRS_CHUNK && key < end; key += rows)
        multiply_scores(l, scores + key * EO_PANEL, key);
    for (uint64_t key = 0; key < end; key += EO_PAIRS_CHUNK) {
        const uint64_t keys = eo_split_min(EO_PAIRS_CHUNK, end - key), next = key + EO_PAIRS_CHUNK;
        struct eo_attention_weights w = {.scores = scores, .keys = keys, .first_key = key, .first_query = first,
            .scale = l->scale, .top = l->top, .sum = l->sum, .correction = l->correction, .panel = l->panels};
        if (l->kernels->attention_top(&w) && key > 0)
            l->kernels->attention_scale(l->sums, l->head_rows, l->correction);
        for (uint64_t row = 0; row < keys; row += rows) {
            if (next + row < end)
                multiply_scores(l, scores_next + row * EO_PANEL, next + row);
            w.scores = scores + row * EO_PANEL;
            w.keys = eo_split_min(rows, keys - row);
            w.first_key = key + row;
            w.panel = l->panels + row / 2 * EO_PANEL;
            l->kernels->attention_weights(&w);
            eo_pairs_fetch_some(l, &fetch);
        }
        multiply_across(l, l->sums, key, l->panels, keys);
        float *const swap = scores;
        scores = scores_next;
        scores_next = swap;
    }
}

static void panel_forward(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member, uint64_t first)
{
    const struct eo_attention *a = l->a;
    const struct places at = places_of(l, pair, member);
    const uint64_t queries = eo_split_min(EO_PANEL, l->seq - first);
    eo_pairs_pack_columns(l, l->queries, eo_pairs_rows_from(head_rows_of(l, a->q, at.q, a->shape.q_stride), first, EO_PANEL));
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
    eo_pairs_store_columns(l, (uint16_t *)a->out + at.out + first * a->shape.out_stride, a->shape.out_stride, l->sums, queries, 1);
}

static void pair_forward(const struct eo_pairs_lane *l, uint64_t pair)
{
    const struct eo_attention_shape *s = &l->a->shape;
    const uint64_t kv = places_of(l, pair, 0).kv;
    eo_pairs_pack_along(l, l->keys, head_rows_of(l, l->a->k, kv, s->kv_stride));
    eo_pairs_pack_across(l, head_rows_of(l, l->a->v, kv, s->kv_stride));
    for (uint64_t member = 0; member < s->head_count / s->kv_head_count; member++)
        for (uint64_t first = 0; first < l->seq; first += EO_PANEL)
            panel_forward(l, pair, member, first);
}

/* A block of queries, `end` with its padding. */
struct block {
    uint64_t first, count, end;
};

/* The block's operands and statistics; zeros where it has no queries. */
static void block_pack(const struct eo_pairs_lane *l, struct places at, const struct block *b)
{
    const struct eo_attention *a = l->a;
    const struct eo_attention_shape *s = &a->shape;
    const struct eo_pairs_rows q = eo_pairs_rows_from(head_rows_of(l, a->q, at.q, s->q_stride), b->first, EO_PAIRS_BLOCK);
    const struct eo_pairs_rows gradient =
        eo_pairs_rows_from(head_rows_of(l, a->out_gradient, at.out, s->out_stride), b->first, EO_PAIRS_BLOCK);
    const struct eo_pairs_rows out =
        eo_pairs_rows_from(head_rows_of(l, a->out, at.out, s->out_stride), b->first, EO_PAIRS_BLOCK);
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
        multiply(l, l->scores, l->keys + key * l->head_units, l->head_units, l->queries + query * l->head_units, l->head_units,
                 false);
        multiply(l, l->weight_gradients, l->values + key * l->head_units, l->head_units,
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
        multiply(l, l->value_sums + sums, l->weight_rows + skip, EO_PAIRS_BLOCK_UNITS, l->out_gradients_across + panel, units,
                 true);
        multiply(l, l->key_sums + sums, l->slope_rows + skip, EO_PAIRS_BLOCK_UNITS, l->queries_across + panel, units, true);
    }
}

static struct eo_pairs_fetch fetch_backward(const struct eo_pairs_lane *l, uint64_t pair, uint64_t member,
                                            const struct block *b)
{
    const struct eo_attention *a = l->a;
    const struct eo_attention_shape *s = &a->shape;
    const struct places at = places_of(l, pair, member), next = places_next(l, pair, member);
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
    const struct places at = places_of(l, pair, member);
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
                multiply_across(l, l->sums + query * l->head_rows, key, l->panels + query * EO_PAIRS_CHUNK_UNITS,
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

static void pair_backward(const struct eo_pairs_lane *l, uint64_t pair)
{
    const struct eo_attention *a = l->a;
    const struct eo_attention_shape *s = &a->shape;
    const uint64_t kv = places_of(l, pair, 0).kv;
    const struct eo_pairs_rows k = head_rows_of(l, a->k, kv, s->kv_stride);
    eo_pairs_pack_along(l, l->keys, k);
    eo_pairs_pack_along(l, l->values, head_rows_of(l, a->v, kv, s->kv_stride));
    eo_pairs_pack_across(l, k);
    memset(l->key_sums, 0, eo_pairs_round_up(l->seq, EO_PAIRS_CHUNK) * l->head_columns * sizeof(float));
    memset(l->value_sums, 0, eo_pairs_round_up(l->seq, EO_PAIRS_CHUNK) * l->head_columns * sizeof(float));
    for (uint64_t member = 0; member < s->head_count / s->kv_head_count; member++)
        for (uint64_t first = 0; first < l->seq; first += EO_PAIRS_BLOCK)
            block_backward(l, pair, member, first);
    store_rows(l, (uint16_t *)a->k_gradient + kv, l->key_sums, l->scale);
    store_rows(l, (uint16_t *)a->v_gradient + kv, l->value_sums, 1);
}

/* ---- a team ---- */

/* As many lanes as threads, each with a scratch of its own; a lane takes the next pair of a sequence and a key/value head
 * until none is left. */
struct attention_job {
    const struct eo_attention *a;
    const struct eo_tiles *tiles;
    const struct eo_kernel_table *kernels;
    void (*pair_run)(const struct eo_pairs_lane *lane, uint64_t pair);
    uint32_t lane_count;
    _Atomic uint64_t next;
};

/* Each document as if it were alone. */
static void run_pair(const struct attention_job *job, struct eo_pairs_lane *lane, uint64_t pair)
{
    const struct eo_attention *a = job->a;
    const uint32_t seq = a->shape.seq;
    const int32_t *positions = a->positions ? a->positions + pair / a->shape.kv_head_count * seq : NULL;
    for (uint32_t first = 0, end; first < seq; first = end) {
        end = eo_document_end(positions, first, seq);
        lane->first = first;
        lane->seq = end - first;
        job->pair_run(lane, pair);
    }
}

static void attention_task(void *arg, uint32_t index)
{
    struct attention_job *job = arg;
    const struct eo_attention_shape *s = &job->a->shape;
    const struct eo_tiles *t = job->tiles;
    struct eo_pairs_lane lane = {.a = job->a,
                                 .tiles = t,
                                 .kernels = job->kernels,
                                 .scale = (float)(1 / sqrt(s->head_size)),
                                 .lane_count = job->lane_count};
    const uint64_t bytes = eo_pairs_place(&lane, s, NULL);
    eo_pairs_place(&lane, s, (char *)job->a->scratch + index * bytes);
    lane.head = s->head_size;
    lane.head_units = eo_tiles_units(t, s->head_size);
    lane.head_rows = eo_pairs_round_up(s->head_size, t->rows);
    lane.head_columns = eo_pairs_round_up(s->head_size, EO_PANEL);
    if (t->begin)
        t->begin();
    uint64_t pair;
    while ((pair = atomic_fetch_add(&job->next, 1)) < (uint64_t)s->batch * s->kv_head_count)
        run_pair(job, &lane, pair);
    if (t->end)
        t->end();
}

eo_status eo_cpu_attention_bf16_by(eo_team *team, const struct eo_attention *a, const struct eo_tiles *tiles, bool backward)
{
    if (tiles->units != EO_UNITS_PAIRS)
        return backward ? eo_cpu_attention_backward(team, a) : eo_cpu_attention_forward(team, a);
    struct attention_job job = {.a = a,
                                .tiles = tiles,
                                .kernels = eo_kernels_of(EO_DTYPE_BF16),
                                .pair_run = backward ? pair_backward : pair_forward,
                                .lane_count = eo_team_thread_count(team)};
    eo_team_run(team, job.lane_count, attention_task, &job);
    return EO_OK;
}

eo_status eo_cpu_attention_bf16_forward(eo_team *team, const struct eo_attention *attention)
{
    return eo_cpu_attention_bf16_by(team, attention, eo_tiles_of(EO_DTYPE_BF16), false);
}

eo_status eo_cpu_attention_bf16_backward(eo_team *team, const struct eo_attention *attention)
{
    return eo_cpu_attention_bf16_by(team, attention, eo_tiles_of(EO_DTYPE_BF16), true);
}
