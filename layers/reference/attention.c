/* SPDX-License-Identifier: MIT
 *
 * The reference attention: one query after the other, keys in order, all in fp32.
 */
#include <math.h>

#include "layers/reference/kernels.h"

/* A key/value head as fp32, both ways round, so that the loops below run along rows; and what one query needs. */
struct attention_lane {
    float *keys, *keys_transposed, *values, *values_transposed; /* [seq][head_size], [head_size][seq] */
    float *key_sums, *value_sums;                               /* [seq][head_size] */
    float *weights, *slopes;                                    /* [seq] */
    float *query, *out_gradient, *out;                          /* [head_size] */
};

static struct attention_lane lane_of(const struct eo_attention_shape *shape, void *scratch)
{
    const uint64_t seq = shape->seq, head = shape->head_size, all = seq * head;
    float *p = scratch;
    return (struct attention_lane){
        .keys = p, .keys_transposed = p + all, .values = p + 2 * all, .values_transposed = p + 3 * all,
        .key_sums = p + 4 * all, .value_sums = p + 5 * all,
        .weights = p + 6 * all, .slopes = p + 6 * all + seq,
        .query = p + 6 * all + 2 * seq, .out_gradient = p + 6 * all + 2 * seq + head,
        .out = p + 6 * all + 2 * seq + 2 * head,
    };
}

uint64_t eo_ref_attention_scratch_bytes(const struct eo_attention_shape *shape)
{
    const uint64_t seq = shape->seq, head = shape->head_size;
    const uint64_t bytes = (6 * seq * head + 2 * seq + 3 * head) * sizeof(float);
    return (bytes + 63) / 64 * 64;
}

static void head_load(eo_dtype dtype, float *rows, float *transposed, const void *from, uint64_t first, uint64_t stride,
                      const struct eo_attention_shape *s)
{
    for (uint64_t token = 0; token < s->seq; token++) {
        eo_elements_load(dtype, rows + token * s->head_size, from, first + token * stride, s->head_size);
        for (uint64_t i = 0; i < s->head_size; i++)
            transposed[i * s->seq + token] = rows[token * s->head_size + i];
    }
}

/* out[j] = row . column j of the transposed rows, for the keys up to the query's own */
static void dots(float *restrict out, const float *row, const float *transposed, uint64_t count,
                 const struct eo_attention_shape *s)
{
    memset(out, 0, count * sizeof(float));
    for (uint64_t i = 0; i < s->head_size; i++) {
        const float factor = row[i];
        const float *restrict column = transposed + i * s->seq;
        for (uint64_t j = 0; j < count; j++)
            out[j] += factor * column[j];
    }
}

static void add_scaled(float *restrict to, float factor, const float *restrict from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

/* Where things of a pair (sequence, key/value head) and of one of its query heads begin, in elements. */
struct places {
    uint64_t q, kv, out, statistic, token;
};

static struct places places_of(const struct eo_attention_shape *s, uint64_t pair, uint32_t member)
{
    const uint64_t sequence = pair / s->kv_head_count, kv_head = pair % s->kv_head_count;
    const uint64_t head = kv_head * (s->head_count / s->kv_head_count) + member;
    const uint64_t token = sequence * s->seq;
    return (struct places){
        .q = token * s->q_stride + head * s->head_size,
        .kv = token * s->kv_stride + kv_head * s->head_size,
        .out = token * s->out_stride + head * s->head_size,
        .statistic = (sequence * s->head_count + head) * s->seq,
        .token = token,
    };
}

/* The first key that a query sees. */
static uint64_t first_key_of(const struct eo_attention *a, struct places at, uint64_t token)
{
    return a->positions ? token - (uint64_t)a->positions[at.token + token] : 0;
}

static void query_forward(const struct eo_attention *a, const struct attention_lane *lane, struct places at,
                          uint64_t token)
{
    const struct eo_attention_shape *s = &a->shape;
    const eo_dtype dtype = a->types.compute;
    const float scale = (float)(1 / sqrt(s->head_size));
    const uint64_t first = first_key_of(a, at, token), count = token + 1;
    eo_elements_load(dtype, lane->query, a->q, at.q + token * s->q_stride, s->head_size);
    dots(lane->weights, lane->query, lane->keys_transposed, count, s);
    float max = -INFINITY, sum = 0;
    for (uint64_t j = first; j < count; j++) {
        lane->weights[j] *= scale;
        max = lane->weights[j] > max ? lane->weights[j] : max;
    }
    memset(lane->out, 0, s->head_size * sizeof(float));
    for (uint64_t j = first; j < count; j++) {
        const float weight = expf(lane->weights[j] - max);
        sum += weight;
        add_scaled(lane->out, weight, lane->values + j * s->head_size, s->head_size);
    }
    for (uint64_t i = 0; i < s->head_size; i++)
        lane->out[i] /= sum;
    eo_elements_store(dtype, a->out, at.out + token * s->out_stride, lane->out, s->head_size);
    a->log_sum_exp[at.statistic + token] = max + logf(sum);
}

void eo_ref_attention_forward(const struct eo_attention *a, uint64_t first, uint64_t count, void *scratch)
{
    const struct eo_attention_shape *s = &a->shape;
    const struct attention_lane lane = lane_of(s, scratch);
    for (uint64_t pair = first; pair < first + count; pair++) {
        const uint64_t kv = places_of(s, pair, 0).kv;
        head_load(a->types.compute, lane.keys, lane.keys_transposed, a->k, kv, s->kv_stride, s);
        head_load(a->types.compute, lane.values, lane.values_transposed, a->v, kv, s->kv_stride, s);
        for (uint32_t member = 0; member < s->head_count / s->kv_head_count; member++)
            for (uint64_t token = 0; token < s->seq; token++)
                query_forward(a, &lane, places_of(s, pair, member), token);
    }
}

static void query_backward(const struct eo_attention *a, const struct attention_lane *lane, struct places at,
                           uint64_t token)
{
    const struct eo_attention_shape *s = &a->shape;
    const eo_dtype dtype = a->types.compute;
    const float scale = (float)(1 / sqrt(s->head_size));
    const float log_sum = a->log_sum_exp[at.statistic + token];
    const uint64_t first = first_key_of(a, at, token), count = token + 1, head = s->head_size;
    eo_elements_load(dtype, lane->query, a->q, at.q + token * s->q_stride, head);
    eo_elements_load(dtype, lane->out_gradient, a->out_gradient, at.out + token * s->out_stride, head);
    eo_elements_load(dtype, lane->out, a->out, at.out + token * s->out_stride, head);
    dots(lane->weights, lane->query, lane->keys_transposed, count, s);
    dots(lane->slopes, lane->out_gradient, lane->values_transposed, count, s);
    float delta = 0;
    for (uint64_t i = 0; i < head; i++)
        delta += lane->out_gradient[i] * lane->out[i];
    memset(lane->out, 0, head * sizeof(float)); /* from here on the query's gradient */
    for (uint64_t j = first; j < count; j++) {
        const float weight = expf(lane->weights[j] * scale - log_sum);
        const float slope = weight * (lane->slopes[j] - delta) * scale;
        add_scaled(lane->value_sums + j * head, weight, lane->out_gradient, head);
        add_scaled(lane->key_sums + j * head, slope, lane->query, head);
        add_scaled(lane->out, slope, lane->keys + j * head, head);
    }
    eo_elements_store(dtype, a->q_gradient, at.q + token * s->q_stride, lane->out, head);
}

void eo_ref_attention_backward(const struct eo_attention *a, uint64_t first, uint64_t count, void *scratch)
{
    const struct eo_attention_shape *s = &a->shape;
    const eo_dtype dtype = a->types.compute;
    const struct attention_lane lane = lane_of(s, scratch);
    const uint64_t all = (uint64_t)s->seq * s->head_size;
    for (uint64_t pair = first; pair < first + count; pair++) {
        const uint64_t kv = places_of(s, pair, 0).kv;
        head_load(dtype, lane.keys, lane.keys_transposed, a->k, kv, s->kv_stride, s);
        head_load(dtype, lane.values, lane.values_transposed, a->v, kv, s->kv_stride, s);
        memset(lane.key_sums, 0, all * sizeof(float));
        memset(lane.value_sums, 0, all * sizeof(float));
        for (uint32_t member = 0; member < s->head_count / s->kv_head_count; member++)
            for (uint64_t token = 0; token < s->seq; token++)
                query_backward(a, &lane, places_of(s, pair, member), token);
        for (uint64_t token = 0; token < s->seq; token++) {
            const uint64_t at = kv + token * s->kv_stride, row = token * s->head_size;
            eo_elements_store(dtype, a->k_gradient, at, lane.key_sums + row, s->head_size);
            eo_elements_store(dtype, a->v_gradient, at, lane.value_sums + row, s->head_size);
        }
    }
}
