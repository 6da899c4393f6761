/* SPDX-License-Identifier: MIT */
#include "sdpa_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Largest difference and largest value, of one tensor. */
struct spread {
    double difference, value;
};

static void spread_add(struct spread *spread, double is, double expected)
{
    const double difference = fabs(is - expected);
    /* A NaN anywhere must show. */
    spread->difference = difference > spread->difference || isnan(difference) ? difference : spread->difference;
    spread->value = fmax(spread->value, fabs(expected));
}

static double spread_share(const struct spread *spread)
{
    return isnan(spread->difference) ? INFINITY : spread->value > 0 ? spread->difference / spread->value : 0;
}

static double dot(const float *a, const float *b, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

struct comparison {
    const struct sdpa_host *host;
    double *weights, *sums; /* seq; 2 x head_size */
    struct spread out, log_sum_exp, q, k, v;
};

static const float *row_of(const float *matrix, uint64_t stride, uint64_t row, uint32_t head, uint32_t size)
{
    return matrix + row * stride + (uint64_t)head * size;
}

/* Forward, and the query's gradient, of token `at` of sequence b. */
static void compare_query(struct comparison *c, uint32_t b, uint32_t head, uint32_t at)
{
    const struct eo_attention_shape *s = &c->host->shape;
    const uint32_t d = s->head_size, kv = head / (s->head_count / s->kv_head_count);
    const uint64_t first = (uint64_t)b * s->seq, row = first + at;
    const double scale = 1 / sqrt((double)d);
    const float *q = row_of(c->host->q, s->q_stride, row, head, d);
    const float *gradient = row_of(c->host->out_gradient, s->out_stride, row, head, d);
    const float *out = row_of(c->host->out, s->out_stride, row, head, d);
    double highest = -INFINITY, total = 0;
    for (uint32_t j = 0; j <= at; j++) {
        c->weights[j] = scale * dot(q, row_of(c->host->k, s->kv_stride, first + j, kv, d), d);
        highest = fmax(highest, c->weights[j]);
    }
    for (uint32_t j = 0; j <= at; j++)
        total += c->weights[j] = exp(c->weights[j] - highest);
    spread_add(&c->log_sum_exp, (double)c->host->log_sum_exp[((uint64_t)b * s->head_count + head) * s->seq + at],
               highest + log(total));
    double *expected = c->sums, *q_expected = c->sums + d;
    memset(c->sums, 0, 2 * d * sizeof(double));
    for (uint32_t j = 0; j <= at; j++) {
        const float *v = row_of(c->host->v, s->kv_stride, first + j, kv, d);
        for (uint32_t i = 0; i < d; i++)
            expected[i] += c->weights[j] / total * (double)v[i];
    }
    double share = 0;
    for (uint32_t i = 0; i < d; i++) {
        spread_add(&c->out, (double)out[i], expected[i]);
        share += expected[i] * (double)gradient[i];
    }
    for (uint32_t j = 0; j <= at; j++) {
        const double towards = dot(gradient, row_of(c->host->v, s->kv_stride, first + j, kv, d), d);
        const double weight = scale * c->weights[j] / total * (towards - share);
        const float *k = row_of(c->host->k, s->kv_stride, first + j, kv, d);
        for (uint32_t i = 0; i < d; i++)
            q_expected[i] += weight * (double)k[i];
    }
    const float *q_gradient = row_of(c->host->q_gradient, s->q_stride, row, head, d);
    for (uint32_t i = 0; i < d; i++)
        spread_add(&c->q, (double)q_gradient[i], q_expected[i]);
}

/* The gradients of key and value `at`: over all queries after it, of all heads that share it. */
static void compare_key(struct comparison *c, uint32_t b, uint32_t kv, uint32_t at)
{
    const struct eo_attention_shape *s = &c->host->shape;
    const uint32_t d = s->head_size, group = s->head_count / s->kv_head_count;
    const uint64_t first = (uint64_t)b * s->seq;
    const double scale = 1 / sqrt((double)d);
    const float *k = row_of(c->host->k, s->kv_stride, first + at, kv, d);
    const float *v = row_of(c->host->v, s->kv_stride, first + at, kv, d);
    double *k_expected = c->sums, *v_expected = c->sums + d;
    memset(c->sums, 0, 2 * d * sizeof(double));
    for (uint32_t head = kv * group; head < (kv + 1) * group; head++) {
        for (uint32_t j = at; j < s->seq; j++) {
            const float *q = row_of(c->host->q, s->q_stride, first + j, head, d);
            const float *gradient = row_of(c->host->out_gradient, s->out_stride, first + j, head, d);
            const float *out = row_of(c->host->out, s->out_stride, first + j, head, d);
            const double lse = (double)c->host->log_sum_exp[((uint64_t)b * s->head_count + head) * s->seq + j];
            const double weight = exp(scale * dot(q, k, d) - lse);
            const double towards = dot(gradient, v, d) - dot(gradient, out, d);
            for (uint32_t i = 0; i < d; i++) {
                v_expected[i] += weight * (double)gradient[i];
                k_expected[i] += scale * weight * towards * (double)q[i];
            }
        }
    }
    const float *k_gradient = row_of(c->host->k_gradient, s->kv_stride, first + at, kv, d);
    const float *v_gradient = row_of(c->host->v_gradient, s->kv_stride, first + at, kv, d);
    for (uint32_t i = 0; i < d; i++) {
        spread_add(&c->k, (double)k_gradient[i], k_expected[i]);
        spread_add(&c->v, (double)v_gradient[i], v_expected[i]);
    }
}

struct sdpa_errors sdpa_compare(const struct sdpa_host *host, uint32_t rows)
{
    const struct eo_attention_shape *s = &host->shape;
    struct comparison c = {.host = host};
    struct sdpa_errors errors = {.out = INFINITY};
    c.weights = malloc(s->seq * sizeof(double));
    c.sums = malloc(2 * s->head_size * sizeof(double));
    if (c.weights && c.sums) {
        for (uint32_t i = 0; i < rows; i++, errors.row_count++) { /* the place slowest: it meets every head */
            const uint32_t at = (uint32_t)((((uint64_t)i + 1) * s->seq + rows - 1) / rows - 1);
            compare_query(&c, i % s->batch, i / s->batch % s->head_count, at);
            compare_key(&c, i % s->batch, i / s->batch % s->kv_head_count, at);
        }
        errors.out = spread_share(&c.out);
        errors.log_sum_exp = spread_share(&c.log_sum_exp);
        errors.q_gradient = spread_share(&c.q);
        errors.k_gradient = spread_share(&c.k);
        errors.v_gradient = spread_share(&c.v);
    }
    free(c.weights);
    free(c.sums);
    return errors;
}
