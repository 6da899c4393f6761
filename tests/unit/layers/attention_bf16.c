/* SPDX-License-Identifier: MIT
 *
 * Attention of the CPU in bf16, forward and backward, against the definition in double, from the same bf16 operands.
 * Method: every level with every table of tiles, that of AMX by its emulation; lengths around the panel, the chunk and the
 * block; odd heads; grouped queries; rows with other things between them, which must stay; teams that must agree to the
 * bit; gradients over their operands. Scratch is full of NaN: what is read without having been written shows.
 *
 * Bounds: P and dS are rounded to bf16 (2^-8, relative to each), the result once more (2^-8); all else is in fp32. So a
 * result may be off by the sum of the absolute terms x (2^-8 + e) + |result| x 2^-8, where e bounds the fp32 steps.
 */
#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_fixture.h"
#include "layers/cpu/kernels.h"
#include "layers/cpu/products/tiles.h"

#define BF16 ((struct eo_types){EO_DTYPE_BF16, EO_DTYPE_FP32})
#define ROUNDING 0x1p-8

struct attention_case {
    uint32_t batch, seq, head_count, kv_head_count, head_size;
    bool together; /* q, k, v in one row, as GPT-2 has them */
    float size;
};

static const struct attention_case cases[] = {
    {1, 1, 1, 1, 1, true, 1},    {1, 2, 1, 1, 3, false, 2},   {2, 3, 2, 1, 2, false, 2},   {1, 7, 3, 3, 17, true, 2},
    {2, 33, 4, 2, 8, false, 2},  {1, 31, 2, 2, 16, true, 2},  {1, 95, 1, 1, 31, true, 2},  {1, 96, 2, 1, 64, false, 1},
    {1, 97, 2, 2, 48, true, 1},  {3, 65, 6, 2, 20, false, 2}, {1, 193, 3, 1, 33, true, 1}, {1, 225, 1, 1, 64, true, 1},
    {1, 130, 1, 1, 80, true, 8}, {1, 99, 2, 1, 255, true, 1}, {1, 70, 1, 1, 256, false, 1},
};

/* ---- ways: a level with tiles ---- */

extern const struct eo_tiles eo_tiles_amx_emulated; /* layers/cpu/products/amx.h */

struct way {
    const char *level;
    const struct eo_tiles *tiles;
};

static uint32_t ways_of_this_machine(struct way ways[8])
{
    uint32_t count = 0;
    ways[count++] = (struct way){"plain", &eo_tiles_bf16_plain};
#if defined(__x86_64__)
    if (eo_kernels_select("avx2") == EO_OK)
        ways[count++] = (struct way){"avx2", &eo_tiles_bf16_avx2};
    if (eo_kernels_select("avx512") == EO_OK) {
        ways[count++] = (struct way){"avx512", &eo_tiles_bf16_avx512};
        ways[count++] = (struct way){"avx512", &eo_tiles_amx_emulated};
        if (__builtin_cpu_supports("avx512bf16"))
            ways[count++] = (struct way){"avx512", &eo_tiles_avx512_bf16};
        if (eo_kernels_select("amx") == EO_OK)
            ways[count++] = (struct way){"amx", &eo_tiles_amx};
    }
#endif
    return count;
}

/* ---- operands ---- */

struct attention_data {
    struct eo_attention_shape shape;
    uint16_t *q, *k, *v, *out, *out_gradient;
    float *log_sum_exp;
    uint64_t q_count, kv_count, out_count, statistic_count; /* elements */
    bool together;
};

static uint16_t *bf16_random(uint64_t count, float size)
{
    const float *values = guarded_random(count, -size, size);
    uint16_t *to = guarded_bytes(count * sizeof(uint16_t));
    eo_elements_store(EO_DTYPE_BF16, to, 0, values, count);
    return to;
}

static struct attention_data data_of(const struct attention_case *c)
{
    const uint64_t tokens = (uint64_t)c->batch * c->seq;
    const uint64_t q_width = (uint64_t)c->head_count * c->head_size, kv_width = (uint64_t)c->kv_head_count * c->head_size;
    struct attention_data d = {.together = c->together};
    d.shape = (struct eo_attention_shape){.batch = c->batch, .seq = c->seq, .head_count = c->head_count,
                                          .kv_head_count = c->kv_head_count, .head_size = c->head_size};
    d.shape.q_stride = c->together ? q_width + 2 * kv_width : q_width + 3; /* others between the rows */
    d.shape.kv_stride = c->together ? d.shape.q_stride : kv_width + 1;
    d.shape.out_stride = q_width + 5;
    d.q_count = tokens * d.shape.q_stride;
    d.kv_count = tokens * d.shape.kv_stride;
    d.out_count = tokens * d.shape.out_stride;
    d.statistic_count = tokens * c->head_count;
    d.q = bf16_random(d.q_count, c->size);
    d.k = c->together ? d.q + q_width : bf16_random(d.kv_count, c->size);
    d.v = c->together ? d.k + kv_width : bf16_random(d.kv_count, c->size);
    d.out = bf16_random(d.out_count, 1);
    d.out_gradient = bf16_random(d.out_count, 1);
    d.log_sum_exp = guarded(d.statistic_count);
    return d;
}

/* ---- the definition ---- */

/* A result, and how far off it may be, in the places of the results. */
struct expected {
    double *value, *bound;
};

static struct expected expected_of(uint64_t count)
{
    return (struct expected){calloc(count, sizeof(double)), calloc(count, sizeof(double))};
}

static void expected_free(struct expected *e)
{
    free(e->value);
    free(e->bound);
}

static double at(const uint16_t *values, uint64_t i)
{
    return eo_element_from_bf16(values[i]);
}

static void add_term(struct expected *e, uint64_t i, double factor, double error, double other)
{
    e->value[i] += factor * other;
    e->bound[i] += error * fabs(other);
}

/* The rounding of the store. */
static void stored(struct expected *e, uint64_t i)
{
    e->bound[i] += ROUNDING * (fabs(e->value[i]) + e->bound[i]) + 1e-30;
}

struct token_places {
    uint64_t q, kv, out, statistic;
};

static struct token_places places_of(const struct eo_attention_shape *s, uint32_t sequence, uint32_t head, uint32_t token)
{
    const uint64_t row = (uint64_t)sequence * s->seq + token;
    return (struct token_places){
        .q = row * s->q_stride + (uint64_t)head * s->head_size,
        .kv = row * s->kv_stride + (uint64_t)(head / (s->head_count / s->kv_head_count)) * s->head_size,
        .out = row * s->out_stride + (uint64_t)head * s->head_size,
        .statistic = ((uint64_t)sequence * s->head_count + head) * s->seq + token,
    };
}

/* A dot product, and the error of its sum in fp32. */
static double dot(const uint16_t *a, uint64_t a_at, const uint16_t *b, uint64_t b_at, uint64_t count, double *error)
{
    double sum = 0, absolute = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double term = at(a, a_at + i) * at(b, b_at + i);
        sum += term;
        absolute += fabs(term);
    }
    *error = (double)(count + 8) * 0x1p-24 * absolute;
    return sum;
}

/* Of sums of `terms` terms, of exponentials (an argument of 88 has an error of 88 x 2^-24), and of scores. */
static double fp32_error(uint64_t terms, double score_error)
{
    return (double)(terms + 32) * 0x1p-23 + 0x1p-17 + 2 * score_error;
}

/* Scores of a query, scaled, before `token`'s end, and the largest error among them. */
static double scores_of(const struct attention_data *d, uint32_t sequence, uint32_t head, uint32_t token, double *scores)
{
    const struct eo_attention_shape *s = &d->shape;
    const struct token_places query = places_of(s, sequence, head, token);
    const double scale = 1 / sqrt(s->head_size);
    double largest = 0;
    for (uint32_t j = 0; j <= token; j++) {
        double error;
        scores[j] = scale * dot(d->q, query.q, d->k, places_of(s, sequence, head, j).kv, s->head_size, &error);
        largest = fmax(largest, scale * error + 0x1p-22 * fabs(scores[j]));
    }
    return largest;
}

/* out and log_sum_exp, and into d what backward reads of them. */
static void define_forward(struct attention_data *d, struct expected *out, struct expected *log_sum_exp)
{
    const struct eo_attention_shape *s = &d->shape;
    double *scores = calloc(s->seq, sizeof(double));
    for (uint32_t item = 0; item < s->batch * s->head_count * s->seq; item++) {
        const uint32_t token = item % s->seq, head = item / s->seq % s->head_count, sequence = item / s->seq / s->head_count;
        const struct token_places query = places_of(s, sequence, head, token);
        const double error = fp32_error(token + 1, scores_of(d, sequence, head, token, scores));
        double max = -INFINITY, sum = 0;
        for (uint32_t j = 0; j <= token; j++)
            max = fmax(max, scores[j]);
        for (uint32_t j = 0; j <= token; j++)
            sum += exp(scores[j] - max);
        const double statistic = max + log(sum);
        log_sum_exp->value[query.statistic] = statistic;
        log_sum_exp->bound[query.statistic] = error + 0x1p-22 * fabs(statistic);
        d->log_sum_exp[query.statistic] = (float)statistic;
        for (uint32_t j = 0; j <= token; j++) {
            const double weight = exp(scores[j] - statistic);
            for (uint32_t i = 0; i < s->head_size; i++)
                add_term(out, query.out + i, weight, weight * (ROUNDING + error),
                         at(d->v, places_of(s, sequence, head, j).kv + i));
        }
        for (uint32_t i = 0; i < s->head_size; i++) {
            stored(out, query.out + i);
            d->out[query.out + i] = eo_element_to_bf16((float)out->value[query.out + i]);
        }
    }
    free(scores);
}

static void define_backward(const struct attention_data *d, struct expected *q, struct expected *k, struct expected *v)
{
    const struct eo_attention_shape *s = &d->shape;
    const double scale = 1 / sqrt(s->head_size);
    double *scores = calloc(s->seq, sizeof(double));
    for (uint32_t item = 0; item < s->batch * s->head_count * s->seq; item++) {
        const uint32_t token = item % s->seq, head = item / s->seq % s->head_count, sequence = item / s->seq / s->head_count;
        const struct token_places query = places_of(s, sequence, head, token);
        const double statistic = d->log_sum_exp[query.statistic];
        const double error = fp32_error((uint64_t)s->seq * s->head_count, scores_of(d, sequence, head, token, scores));
        double delta_error, dot_error;
        const double delta = dot(d->out_gradient, query.out, d->out, query.out, s->head_size, &delta_error);
        for (uint32_t j = 0; j <= token; j++) {
            const uint64_t key = places_of(s, sequence, head, j).kv;
            const double weight = exp(scores[j] - statistic);
            const double slope = weight * scale *
                                 (dot(d->out_gradient, query.out, d->v, key, s->head_size, &dot_error) - delta);
            const double slope_error = fabs(slope) * (ROUNDING + error) + 2 * weight * scale * (dot_error + delta_error);
            for (uint32_t i = 0; i < s->head_size; i++) {
                add_term(v, key + i, weight, weight * (ROUNDING + error), at(d->out_gradient, query.out + i));
                add_term(k, key + i, slope, slope_error, at(d->q, query.q + i));
                add_term(q, query.q + i, slope, slope_error, at(d->k, key + i));
            }
        }
    }
    free(scores);
}

/* ---- runs ---- */

static void check(const char *what, const struct way *way, uint32_t index, double result, double value, double bound)
{
    cr_assert(fabs(result - value) <= bound, "%s, %s with tiles %s, case %u: %.9g, should be %.9g to %.3g", what, way->level,
              way->tiles->name, index, result, value, bound);
}

static void run(const struct way *way, const struct attention_data *d, struct eo_attention *a, uint32_t threads, bool backward)
{
    eo_team *team = NULL;
    cr_assert_eq(eo_kernels_select(way->level), EO_OK);
    if (threads > 0)
        cr_assert_eq(eo_team_create(&team, threads), EO_OK);
    a->types = BF16;
    a->shape = d->shape;
    a->out_gradient = d->out_gradient;
    a->scratch = guarded_bytes(eo_cpu_attention_bf16_scratch_bytes(BF16, &d->shape, threads > 0 ? threads : 1));
    cr_assert_eq(eo_cpu_attention_bf16_by(team, a, way->tiles, backward), EO_OK);
    eo_team_destroy(&team);
}

/* A copy to be written over; what is between the rows has to stay. */
static uint16_t *copy_of(const uint16_t *values, uint64_t count)
{
    uint16_t *copy = guarded_bytes(count * sizeof(uint16_t));
    memcpy(copy, values, count * sizeof(uint16_t));
    return copy;
}

static void check_forward(const struct way *way, uint32_t index, struct attention_data *d)
{
    uint16_t *first = NULL;
    for (uint32_t threads = 0; threads <= 3; threads++) {
        uint16_t *out = copy_of(d->out_gradient, d->out_count);
        float *statistics = guarded(d->statistic_count);
        run(way, d, &(struct eo_attention){.q = d->q, .k = d->k, .v = d->v, .out = out, .log_sum_exp = statistics}, threads,
            false);
        if (threads > 0) {
            cr_assert_eq(memcmp(out, first, d->out_count * sizeof(uint16_t)), 0, "%u threads give other bits", threads);
            continue;
        }
        first = out;
        struct expected e = expected_of(d->out_count), log_sum_exp = expected_of(d->statistic_count);
        define_forward(d, &e, &log_sum_exp);
        for (uint64_t i = 0; i < d->out_count; i++) {
            if (i % d->shape.out_stride < (uint64_t)d->shape.head_count * d->shape.head_size)
                check("out", way, index, at(out, i), e.value[i], e.bound[i]);
            else
                cr_assert_eq(out[i], d->out_gradient[i], "out: a gap was written");
        }
        for (uint64_t i = 0; i < d->statistic_count; i++)
            check("log_sum_exp", way, index, statistics[i], log_sum_exp.value[i], log_sum_exp.bound[i]);
        expected_free(&e);
        expected_free(&log_sum_exp);
    }
}

/* One operand's gradients: heads in the columns below `width`. */
static void check_gradient(const char *what, const struct way *way, uint32_t index, const uint16_t *result, struct expected *e,
                           uint64_t tokens, uint64_t stride, uint64_t width, const uint16_t *old)
{
    for (uint64_t i = 0; i < tokens * stride; i++) {
        if (i % stride < width) {
            stored(e, i);
            check(what, way, index, at(result, i), e->value[i], e->bound[i]);
        } else if (old != NULL) {
            cr_assert_eq(result[i], old[i], "%s: a gap was written", what);
        }
        if (i + 1 == (tokens - 1) * stride + width)
            break; /* of k and v in a common row, no more is theirs */
    }
}

struct gradients {
    uint16_t *q, *k, *v;
};

static struct gradients run_backward(const struct way *way, const struct attention_data *d, uint32_t threads, bool in_place)
{
    struct gradients g = {.q = copy_of(d->q, d->q_count)};
    g.k = d->together ? g.q + (d->k - d->q) : copy_of(d->k, d->kv_count);
    g.v = d->together ? g.q + (d->v - d->q) : copy_of(d->v, d->kv_count);
    run(way, d, &(struct eo_attention){
        .q = in_place ? g.q : d->q, .k = in_place ? g.k : d->k, .v = in_place ? g.v : d->v, .out = d->out,
        .log_sum_exp = d->log_sum_exp, .q_gradient = g.q, .k_gradient = g.k, .v_gradient = g.v}, threads, true);
    return g;
}

static void check_backward(const struct way *way, uint32_t index, struct attention_data *d)
{
    const struct eo_attention_shape *s = &d->shape;
    const uint64_t tokens = (uint64_t)s->batch * s->seq, q_width = (uint64_t)s->head_count * s->head_size;
    const uint64_t kv_width = (uint64_t)s->kv_head_count * s->head_size;
    const struct gradients g = run_backward(way, d, 0, false);
    for (uint32_t threads = 0; threads <= 3; threads++)
        for (int in_place = 0; in_place < 2; in_place++) {
            const struct gradients other = run_backward(way, d, threads, in_place);
            cr_assert(memcmp(other.q, g.q, d->q_count * sizeof(uint16_t)) == 0 &&
                          (d->together || (memcmp(other.k, g.k, d->kv_count * sizeof(uint16_t)) == 0 &&
                                           memcmp(other.v, g.v, d->kv_count * sizeof(uint16_t)) == 0)),
                      "%u threads, in place %d: other bits", threads, in_place);
        }
    struct expected q = expected_of(d->q_count), k = expected_of(d->kv_count), v = expected_of(d->kv_count);
    define_backward(d, &q, &k, &v);
    check_gradient("q's gradient", way, index, g.q, &q, tokens, s->q_stride, q_width, d->together ? NULL : d->q);
    check_gradient("k's gradient", way, index, g.k, &k, tokens, s->kv_stride, kv_width, d->together ? NULL : d->k);
    check_gradient("v's gradient", way, index, g.v, &v, tokens, s->kv_stride, kv_width, d->together ? NULL : d->v);
    expected_free(&q);
    expected_free(&k);
    expected_free(&v);
}

Test(attention_bf16, every_level_and_tile_agrees_with_the_definition_and_between_teams)
{
    struct way ways[8];
    const uint32_t way_count = ways_of_this_machine(ways);
    for (uint32_t w = 0; w < way_count; w++)
        for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++, guards_free()) {
            struct attention_data d = data_of(&cases[i]);
            check_forward(&ways[w], i, &d);
            check_backward(&ways[w], i, &d);
        }
}

/* Scores of tens of thousands: all weight on one key, no overflow, and no NaN of what is masked. */
Test(attention_bf16, large_scores_do_not_overflow)
{
    struct way ways[8];
    const uint32_t way_count = ways_of_this_machine(ways);
    static const struct attention_case large = {1, 140, 2, 1, 16, false, 100};
    for (uint32_t w = 0; w < way_count; w++, guards_free()) {
        struct attention_data d = data_of(&large);
        check_forward(&ways[w], 0, &d);
    }
}

/* A score that overflows is a number to no token that sees it. */
Test(attention_bf16, scores_that_overflow_show)
{
    enum { SEQ = 100 };
    struct way ways[8];
    const uint32_t way_count = ways_of_this_machine(ways);
    for (uint32_t w = 0; w < way_count; w++, guards_free()) {
        struct attention_data d = data_of(&(struct attention_case){1, SEQ, 1, 1, 1, false, 1});
        uint16_t *out = copy_of(d.out, d.out_count);
        for (uint64_t i = 0; i < d.q_count; i++)
            d.q[i] = 0x69c6; /* 3e25 */
        for (uint64_t i = 0; i < d.kv_count; i++)
            d.k[i] = 0xe9c6;
        run(&ways[w], &d, &(struct eo_attention){.q = d.q, .k = d.k, .v = d.v, .out = out, .log_sum_exp = d.log_sum_exp}, 0,
            false);
        for (uint32_t token = 0; token < SEQ; token++)
            cr_assert(isnan(at(out, token * d.shape.out_stride)), "%s, tiles %s: token %u", ways[w].level,
                      ways[w].tiles->name, token);
    }
}

/* The first of two tokens sees itself alone, whatever the second holds. */
Test(attention_bf16, no_token_sees_the_next)
{
    enum { SEQ = 40, SIZE = 8 };
    struct way ways[8];
    const uint32_t way_count = ways_of_this_machine(ways);
    for (uint32_t w = 0; w < way_count; w++, guards_free()) {
        struct attention_data d = data_of(&(struct attention_case){1, SEQ, 1, 1, SIZE, false, 1});
        uint16_t *before = copy_of(d.out, d.out_count), *after = copy_of(d.out, d.out_count);
        run(&ways[w], &d, &(struct eo_attention){.q = d.q, .k = d.k, .v = d.v, .out = before, .log_sum_exp = d.log_sum_exp}, 0,
            false);
        for (uint64_t i = 20 * d.shape.kv_stride; i < d.kv_count; i++)
            d.k[i] = d.v[i] = 0x4700; /* 32768 */
        run(&ways[w], &d, &(struct eo_attention){.q = d.q, .k = d.k, .v = d.v, .out = after, .log_sum_exp = d.log_sum_exp}, 0,
            false);
        cr_assert_eq(memcmp(before, after, 20 * d.shape.out_stride * sizeof(uint16_t)), 0);
        cr_assert_neq(memcmp(before, after, d.out_count * sizeof(uint16_t)), 0);
    }
}

/* O(seq): twice the length takes at most twice the scratch, never four times. */
Test(attention_bf16, scratch_grows_with_the_length_not_its_square)
{
    struct eo_attention_shape shape = {1, 1024, 12, 12, 64, 2304, 2304, 768, false};
    const uint64_t one = eo_cpu_attention_bf16_scratch_bytes(BF16, &shape, 1);
    cr_assert_eq(eo_cpu_attention_bf16_scratch_bytes(BF16, &shape, 3), 3 * one);
    shape.seq = 2048;
    const uint64_t twice = eo_cpu_attention_bf16_scratch_bytes(BF16, &shape, 1);
    cr_assert(twice > one && twice <= 2 * one);
}

/* A key that is not a number reaches every query that sees it, and no other. */
Test(attention_bf16, a_key_that_is_no_number_reaches_those_who_see_it)
{
    enum { SEQ = 600, SIZE = 8 }; /* some chunks of keys */
    static const uint32_t bad[] = {100, 0, 300};
    static const uint16_t quiet[] = {0x7fff, 0xffff, 0x7fc0};
    struct way ways[8];
    const uint32_t way_count = ways_of_this_machine(ways);
    for (uint32_t w = 0; w < 3 * way_count; w++, guards_free()) {
        struct attention_data d = data_of(&(struct attention_case){1, SEQ, 1, 1, SIZE, false, 1});
        uint16_t *out = copy_of(d.out, d.out_count);
        d.k[bad[w % 3] * d.shape.kv_stride] = quiet[w % 3];
        run(&ways[w / 3], &d, &(struct eo_attention){.q = d.q, .k = d.k, .v = d.v, .out = out, .log_sum_exp = d.log_sum_exp}, 0,
            false);
        for (uint32_t token = 0; token < SEQ; token++)
            for (uint32_t i = 0; i < SIZE; i++)
                cr_assert_eq(isnan(at(out, token * d.shape.out_stride + i)) != 0, token >= bad[w % 3], "%s, tiles %s: token %u",
                             ways[w / 3].level, ways[w / 3].tiles->name, token);
    }
}

/* For programs that trap: not even of scratch without a number in it. Operands are positive, so no infinity meets another. */
Test(attention_bf16, finite_operands_raise_no_exception)
{
    struct way ways[8];
    const uint32_t way_count = ways_of_this_machine(ways), case_count = sizeof(cases) / sizeof(cases[0]);
    for (uint32_t w = 0; w < way_count * case_count; w++, guards_free()) {
        const struct way *way = &ways[w / case_count];
        struct attention_data d = data_of(&cases[w % case_count]);
        const uint64_t bytes = eo_cpu_attention_bf16_scratch_bytes(BF16, &d.shape, 1);
        struct eo_attention a = {.types = BF16, .shape = d.shape, .q = d.q, .k = d.k, .v = d.v, .out = d.out,
                                 .log_sum_exp = d.log_sum_exp, .out_gradient = d.out_gradient, .q_gradient = d.q,
                                 .k_gradient = d.k, .v_gradient = d.v, .scratch = guarded_bytes(bytes)};
        for (uint64_t i = 0; i < d.out_count; i++)
            d.out_gradient[i] &= 0x7fff;
        for (uint64_t i = 0; i < bytes / sizeof(uint16_t); i++)
            ((uint16_t *)a.scratch)[i] = 0x7f80; /* infinity */
        cr_assert_eq(eo_kernels_select(way->level), EO_OK);
        for (int backward = 0; backward < 2; backward++) {
            feclearexcept(FE_ALL_EXCEPT);
            cr_assert_eq(eo_cpu_attention_bf16_by(NULL, &a, way->tiles, backward), EO_OK);
            cr_assert_eq(fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW), 0, "%s, tiles %s, case %u, backward %d: %#x",
                         way->level, way->tiles->name, w % case_count, backward, fetestexcept(FE_ALL_EXCEPT));
        }
    }
}
