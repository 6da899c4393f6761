/* SPDX-License-Identifier: MIT
 *
 * Attention of the CPU, forward and backward, against the plain reference (tests/gpu/test_sdpa_reference.c: against the
 * definition in double).
 * Method: lengths around the tile, panel, query block and chunk of keys; heads that need padding; grouped queries; rows with
 * other things between them, which must stay; every level; teams that must agree to the bit.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "kernel_fixture.h"

struct attention_case {
    uint32_t batch, seq, head_count, kv_head_count, head_size;
    bool together; /* q, k, v in one row, as GPT-2 has them */
};

struct attention_data {
    struct eo_attention_shape shape;
    const float *q, *k, *v, *out_gradient;
    float *out; /* then the log-sum-exps */
    uint64_t q_floats, kv_floats, out_floats;
    bool in_place;
};

static const struct attention_case cases[] = {
    {1, 1, 1, 1, 1, true},     {1, 2, 1, 1, 3, false},   {2, 3, 2, 1, 2, false},   {1, 7, 3, 3, 17, true},
    {2, 17, 4, 2, 8, false},   {1, 33, 2, 2, 16, true},  {1, 63, 1, 1, 31, true},  {1, 64, 2, 1, 64, false},
    {1, 65, 2, 2, 48, true},   {3, 31, 6, 2, 20, false}, {1, 129, 2, 1, 33, true}, {1, 257, 1, 1, 64, true},
    {1, 519, 2, 1, 80, false}, {1, 320, 1, 1, 17, true},
};

static struct attention_data attention_data(const struct attention_case *c, float size)
{
    struct attention_data d = {0};
    const uint64_t tokens = (uint64_t)c->batch * c->seq;
    const uint64_t q_width = (uint64_t)c->head_count * c->head_size;
    const uint64_t kv_width = (uint64_t)c->kv_head_count * c->head_size;
    d.shape = (struct eo_attention_shape){.batch = c->batch,
                                          .seq = c->seq,
                                          .head_count = c->head_count,
                                          .kv_head_count = c->kv_head_count,
                                          .head_size = c->head_size};
    if (c->together) {
        d.shape.q_stride = d.shape.kv_stride = q_width + 2 * kv_width;
        float *qkv = guarded_random(tokens * d.shape.q_stride, -size, size);
        d.q = qkv;
        d.k = qkv + q_width;
        d.v = d.k + kv_width;
    } else {
        d.shape.q_stride = q_width + 1; /* an odd float between the rows */
        d.shape.kv_stride = kv_width;
        d.q = guarded_random(tokens * d.shape.q_stride, -size, size);
        d.k = guarded_random(tokens * kv_width, -size, size);
        d.v = guarded_random(tokens * kv_width, -size, size);
    }
    d.shape.out_stride = q_width;
    d.q_floats = tokens * d.shape.q_stride;
    d.kv_floats = tokens * d.shape.kv_stride;
    d.out_floats = tokens * q_width;
    d.out_gradient = guarded_random(d.out_floats, -1, 1);
    return d;
}

/* The scratch of this table and team, as large as it says. */
static void *scratch_of(const struct eo_kernel_ops *ops, const eo_team *team, const struct eo_attention_shape *shape)
{
    return guarded_bytes(ops->attention_scratch_bytes(FP32, shape, eo_team_thread_count(team)));
}

/* out: the heads, then the log-sum-exps. */
static void run_forward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct attention_data *d = arg;
    cr_assert_eq(ops->attention_forward(team, &(struct eo_attention){
        .types = FP32, .shape = d->shape, .q = d->q, .k = d->k, .v = d->v, .out = out,
        .log_sum_exp = out + d->out_floats, .scratch = scratch_of(ops, team, &d->shape)}), EO_OK);
}

/*
 * out: the gradients with what lies between their rows: q's and k's and v's arrays, or all in one. First filled with
 * a pattern (or q, k, v themselves) that must stay between the rows.
 */
static void run_backward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct attention_data *d = arg;
    const bool together = d->shape.q_stride == d->shape.kv_stride && d->k > d->q && d->k < d->q + d->q_floats;
    float *q = out;
    float *k = together ? out + (d->k - d->q) : out + d->q_floats;
    float *v = together ? out + (d->v - d->q) : out + d->q_floats + d->kv_floats;
    memcpy(out, d->q, d->q_floats * sizeof(float));
    if (!together) {
        memcpy(k, d->k, d->kv_floats * sizeof(float));
        memcpy(v, d->v, d->kv_floats * sizeof(float));
    }
    cr_assert_eq(ops->attention_backward(team, &(struct eo_attention){
        .types = FP32, .shape = d->shape, .q = d->in_place ? q : d->q, .k = d->in_place ? k : d->k,
        .v = d->in_place ? v : d->v, .out = d->out, .log_sum_exp = d->out + d->out_floats,
        .out_gradient = d->out_gradient, .q_gradient = q, .k_gradient = k, .v_gradient = v,
        .scratch = scratch_of(ops, team, &d->shape)}), EO_OK);
}

static uint64_t forward_floats(const struct attention_data *d)
{
    return d->out_floats + (uint64_t)d->shape.batch * d->shape.seq * d->shape.head_count;
}

static void check_forward(struct attention_data *d, double tolerance)
{
    const float *expected = reference_result(run_forward, d, forward_floats(d));
    every_level_and_team(run_forward, d, forward_floats(d), expected, tolerance, tolerance, "attention forward");
}

Test(attention, forward_matches_the_reference)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++, guards_free()) {
        struct attention_data d = attention_data(&cases[i], 1.5f);
        check_forward(&d, 5e-6);
    }
}

/* Scores of tens of thousands: all weight on one key, no overflow. */
Test(attention, large_scores_do_not_overflow)
{
    static const struct attention_case large = {1, 40, 2, 1, 16, false};
    struct attention_data d = attention_data(&large, 100.0f);
    check_forward(&d, 2e-3);
    guards_free();
}

/* One head of one element: all queries are q, all keys k; the values count from 0. */
static struct attention_data equal_tokens(uint32_t seq, float q, float k)
{
    float *qs = guarded(seq), *ks = guarded(seq), *vs = guarded(seq), *gradients = guarded(seq);
    for (uint32_t i = 0; i < seq; i++)
        qs[i] = q, ks[i] = k, vs[i] = (float)i, gradients[i] = 1;
    return (struct attention_data){.shape = {1, seq, 1, 1, 1, 1, 1, 1, false}, .q = qs, .k = ks, .v = vs,
                                   .out_gradient = gradients, .q_floats = seq, .kv_floats = seq, .out_floats = seq};
}

/* Scores of -1e32 are the largest of their rows all the same: what lies behind the diagonal does not outweigh them. */
Test(attention, the_lowest_scores_outweigh_what_is_not_seen)
{
    for (uint32_t seq = 1; seq <= 40; seq++, guards_free()) {
        struct attention_data d = equal_tokens(seq, 1e16f, -1e16f);
        const float *expected = reference_result(run_forward, &d, forward_floats(&d));
        for (uint32_t i = 0; i < seq; i++)
            cr_assert_float_eq(expected[i], (float)i / 2, 1e-5);
        check_forward(&d, 5e-6);
    }
}

/* A score that overflows is a number to no token that sees it, at the end of a vector or within. */
Test(attention, scores_that_overflow_show)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};
    enum { SEQ = 40 };
    for (size_t level = 0; level < sizeof(names) / sizeof(names[0]); level++, guards_free()) {
        if (eo_kernels_select(names[level]) < 0)
            continue;
        struct attention_data d = equal_tokens(SEQ, 3e25f, -3e25f);
        float *out = guarded(forward_floats(&d));
        run_forward(&eo_kernels_cpu_ops, NULL, out, &d);
        for (int i = 0; i < SEQ; i++)
            cr_assert(isnan(out[i]), "%s: token %d is %g", names[level], i, out[i]);
    }
}

/* ... and takes no weight from keys of later chunks, whose scores are numbers. */
Test(attention, a_chunk_of_scores_that_overflow_leaves_the_others)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};
    enum { SEQ = 600, LOW = 300 };
    for (size_t level = 0; level < sizeof(names) / sizeof(names[0]); level++, guards_free()) {
        if (eo_kernels_select(names[level]) < 0)
            continue;
        struct attention_data d = equal_tokens(SEQ, 3e25f, 0);
        for (int i = 0; i < LOW; i++)
            ((float *)(uintptr_t)d.k)[i] = -3e25f;
        d.out = guarded(forward_floats(&d));
        run_forward(&eo_kernels_cpu_ops, NULL, d.out, &d);
        float *gradients = guarded(3 * SEQ);
        run_backward(&eo_kernels_cpu_ops, NULL, gradients, &d);
        for (int i = 0; i < SEQ; i++)
            cr_assert(i < LOW ? isnan(d.out[i]) : fabs((double)d.out[i] - (LOW + i) / 2.0) < 1e-3, "%s: token %d is %g",
                      names[level], i, (double)d.out[i]);
        double weight = 0; /* of this key and all queries from it on */
        for (int i = SEQ - 1; i >= LOW; i--) {
            weight += 1.0 / (i - LOW + 1);
            cr_assert(fabs((double)gradients[2 * SEQ + i] - weight) < 1e-4, "%s: weight %d is %g, not %g", names[level], i,
                      (double)gradients[2 * SEQ + i], weight);
        }
    }
}

/* 2^32 heads take minutes, if they are not counted as none: the alarm comes before their end. */
Test(attention, heads_are_counted_beyond_32_bits, .signal = SIGALRM)
{
    enum { HEADS = 64 };
    float *heads = guarded_random(HEADS, -1, 1), *out = guarded(HEADS);
    const struct eo_attention_shape shape = {1u << 26, 1, HEADS, HEADS, 1, 0, 0, 0, false}; /* all tokens are one */
    void *scratch = scratch_of(&eo_kernels_cpu_ops, NULL, &shape);
    alarm(1);
    (void)!eo_kernels_cpu_ops.attention_forward(NULL, &(struct eo_attention){
        .types = FP32, .shape = shape, .q = heads, .k = heads, .v = heads, .out = out, .scratch = scratch});
}

/* Ties: equal keys share the weight equally, so the output is the running mean of the values. */
Test(attention, equal_keys_share_the_weight)
{
    enum { SEQ = 70, SIZE = 4 };
    float *q = guarded_random(SEQ * SIZE, -1, 1);
    float *k = guarded(SEQ * SIZE);
    float *v = guarded(SEQ * SIZE);
    float *out = guarded(SEQ * SIZE);
    for (int i = 0; i < SEQ * SIZE; i++) {
        k[i] = 0.25f;
        v[i] = (float)(i / SIZE);
    }
    const struct eo_attention_shape shape = {1, SEQ, 1, 1, SIZE, SIZE, SIZE, SIZE, false};
    eo_kernels_cpu_ops.attention_forward(NULL, &(struct eo_attention){
        .types = FP32, .shape = shape, .q = q, .k = k, .v = v, .out = out, .log_sum_exp = guarded(SEQ),
        .scratch = scratch_of(&eo_kernels_cpu_ops, NULL, &shape)});
    for (int i = 0; i < SEQ * SIZE; i++)
        cr_assert_float_eq(out[i], (float)(i / SIZE) / 2, 1e-4);
    guards_free();
}

/* However large their score is, in both directions: 2^20 is the bound beyond that distances are taken otherwise. */
Test(attention, equal_keys_share_the_weight_of_any_score)
{
    enum { SEQ = 270, SIZE = 17, COUNT = SEQ * SIZE }; /* two chunks; a root that is no power of two: scores are rounded */
    static const char *const names[] = {"plain", "avx2", "avx512"};
    const struct eo_attention_shape shape = {1, SEQ, 1, 1, SIZE, SIZE, SIZE, SIZE, false};
    for (int turn = 0; turn < 3 * 5; turn++, guards_free()) {
        const float size = turn / 3 == 4 ? 1e15f : powf(10, (float)(turn / 3));
        float *q = guarded_random(COUNT, size, 2 * size), *k = guarded(COUNT), *v = guarded(COUNT), *ones = guarded(COUNT);
        float *out = guarded(COUNT), *of_q = guarded(COUNT), *of_k = guarded(COUNT), *of_v = guarded(COUNT);
        if (eo_kernels_select(names[turn % 3]) < 0)
            continue;
        for (int i = 0; i < COUNT; i++)
            k[i] = size * 0.7f, v[i] = (float)(i / SIZE) / 4, ones[i] = 1;
        const struct eo_attention a = {
            .types = FP32, .shape = shape, .q = q, .k = k, .v = v, .out = out, .log_sum_exp = guarded(SEQ), .out_gradient = ones,
            .q_gradient = of_q, .k_gradient = of_k, .v_gradient = of_v, .scratch = scratch_of(&eo_kernels_cpu_ops, NULL, &shape)};
        cr_assert_eq(eo_kernels_cpu_ops.attention_forward(NULL, &a), EO_OK);
        cr_assert_eq(eo_kernels_cpu_ops.attention_backward(NULL, &a), EO_OK);
        double weight = 0; /* of this key and of all queries from it on */
        for (int i = COUNT - 1; i >= 0; i--) {
            weight += i % SIZE == SIZE - 1 ? 1.0 / (i / SIZE + 1) : 0;
            cr_assert_float_eq(out[i], (float)(i / SIZE) / 8, i / SIZE < 70 ? 2.5e-5 : 1e-4, "%s, %g: out %g", names[turn % 3],
                               (double)size, (double)out[i]);
            cr_assert(fabs(of_v[i] - weight) < (turn / 3 < 3 ? 0.1 : 1e-4), "%s, %g: %g, not %g", names[turn % 3], (double)size,
                      (double)of_v[i], weight);
        }
    }
}

/* Chunks of keys of which each raises the maximum, or the first has it, below and beyond the bound for distances (2^20). Of a
 * head one element counts: the score of a key is that element, scaled by what is no power of two. */
Test(attention, chunks_with_other_maxima_make_one_softmax)
{
    enum { SEQ = 700, EACH = 100, SIZE = 17, COUNT = SEQ * SIZE };
    static const char *const names[] = {"plain", "avx2", "avx512"};
    static const float bases[] = {0, 100, 4323376, 13e6f, -13e6f, -4323405};
    const struct eo_attention_shape shape = {1, SEQ, 1, 1, SIZE, SIZE, SIZE, SIZE, false};
    const double scale = (double)(float)(1 / sqrt(SIZE));
    for (int turn = 0; turn < 3 * 6 * 2; turn++, guards_free()) {
        const float base = bases[turn / 3 % 6], step = turn >= 18 ? -6 : 6;
        float *q = guarded(COUNT), *k = guarded(COUNT), *v = guarded(COUNT), *ones = guarded(COUNT), *sums = guarded(SEQ);
        float *out = guarded(COUNT), *of_q = guarded(COUNT), *of_k = guarded(COUNT), *of_v = guarded(COUNT);
        if (eo_kernels_select(names[turn % 3]) < 0)
            continue;
        for (int i = 0; i < COUNT; i++) {
            const bool counts = i % SIZE == 3;
            q[i] = counts, k[i] = counts ? base + step * (float)(i / SIZE / EACH) : 0, v[i] = (float)(i / SIZE % 7),
            ones[i] = 1;
        }
        const struct eo_attention a = {.types = FP32,
                                       .shape = shape,
                                       .q = q,
                                       .k = k,
                                       .v = v,
                                       .out = out,
                                       .log_sum_exp = sums,
                                       .out_gradient = ones,
                                       .q_gradient = of_q,
                                       .k_gradient = of_k,
                                       .v_gradient = of_v,
                                       .scratch = scratch_of(&eo_kernels_cpu_ops, NULL, &shape)};
        cr_assert_eq(eo_kernels_cpu_ops.attention_forward(NULL, &a), EO_OK);
        cr_assert_eq(eo_kernels_cpu_ops.attention_backward(NULL, &a), EO_OK);
        /* Of log_sum_exp below the bound, which weights are made of backward; "plain" rounds scaled scores, too. */
        const double rounding = fabsf(base) > 1e6f && fabsf(base) < 5e6f ? 0x1p-4 : 0,
                     in_out = turn % 3 == 0 ? 6 * rounding : 0;
        double weights[SEQ] = {0}, sum = 0, out_sum = 0;
        for (int i = 0; i < SEQ; i++) {
            const double log_sum = (double)sums[i], far = (double)base * scale;
            sum += exp(scale * step * (i / EACH));
            out_sum += exp(scale * step * (i / EACH)) * (i % 7);
            cr_assert_float_eq(out[i * SIZE], out_sum / sum, 2e-5 + in_out, "%s, %g: out %d", names[turn % 3], (double)base, i);
            cr_assert(fabs(log_sum - far - log(sum)) <= 1e-5 + 1.2e-7 * fabs(log_sum), "%s, %g: sum %d", names[turn % 3],
                      (double)base, i);
            for (int key = 0; key <= i; key++)
                weights[key] += exp(scale * step * (key / EACH)) / sum;
        }
        for (int i = 0; i < SEQ; i++)
            cr_assert(fabs((double)of_v[i * SIZE] - weights[i]) <= (2 * rounding + 1e-5) * weights[i] + 1e-6,
                      "%s, %g: weight %d: %g, not %g", names[turn % 3], (double)base, i, (double)of_v[i * SIZE], weights[i]);
    }
}

Test(attention, backward_matches_and_may_overwrite_its_input)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++, guards_free()) {
        struct attention_data d = attention_data(&cases[i], 1.0f);
        const uint64_t count = d.q_floats + (cases[i].together ? 0 : 2 * d.kv_floats);
        d.out = reference_result(run_forward, &d, forward_floats(&d));
        const float *expected = reference_result(run_backward, &d, count);
        every_level_and_team(run_backward, &d, count, expected, 1e-5, 2e-5, "attention backward");
        d.in_place = true;
        every_level_and_team(run_backward, &d, count, expected, 1e-5, 2e-5, "attention backward in place");
    }
}

/* O(seq): twice the length takes about twice the scratch, never four times. */
Test(attention, scratch_grows_with_the_length_not_its_square)
{
    struct eo_attention_shape shape = {1, 1024, 12, 12, 64, 2304, 2304, 768, false};
    const uint64_t one = eo_kernels_cpu_ops.attention_scratch_bytes(FP32, &shape, 1);
    cr_assert_eq(eo_kernels_cpu_ops.attention_scratch_bytes(FP32, &shape, 3), 3 * one);
    shape.seq = 2048;
    const uint64_t twice = eo_kernels_cpu_ops.attention_scratch_bytes(FP32, &shape, 1);
    cr_assert(twice > one && twice <= 2 * one);
}
