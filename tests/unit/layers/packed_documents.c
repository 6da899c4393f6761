/* SPDX-License-Identifier: MIT
 *
 * Documents packed into one sequence: none sees another, and each computes as if it were alone.
 * Method: kernels and whole models, packed, against the same with a sequence a document: attention and rotary positions to the
 * bit, at every level, AMX by its emulation too; losses and gradients of models to 1e-5. Then one document is changed: no bit
 * of the other moves.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_fixture.h"
#include "layers/cpu/kernels.h"
#include "layers/cpu/products/tiles.h"
#include "model_fixture.h"

enum { LENGTH = 150, SEQUENCES = 2, TOKENS = SEQUENCES * LENGTH, HEADS = 4, KV_HEADS = 2, SIZE = 20, DOCUMENTS = 6 };
enum { Q_STRIDE = HEADS * SIZE + 1, KV_STRIDE = KV_HEADS * SIZE, OUT_STRIDE = HEADS * SIZE };

/* Of both sequences, in order: one token, less than a panel, blocks of queries and chunks of keys and more. */
static const uint32_t lengths[DOCUMENTS] = {1, 37, 112, 65, 3, 82};

static void fill_positions(int32_t positions[TOKENS])
{
    for (uint32_t d = 0, at = 0; d < DOCUMENTS; at += lengths[d], d++)
        for (uint32_t i = 0; i < lengths[d]; i++)
            positions[at + i] = (int32_t)i;
}

/* ---- attention ---- */

struct operands {
    eo_dtype dtype;
    void *q, *k, *v, *out_gradient;
};

struct results {
    void *out, *q, *k, *v; /* the last three: gradients */
    float *log_sum_exp;    /* [sequences][HEADS][length] */
};

static void *random_elements(eo_dtype dtype, uint64_t count)
{
    const float *values = guarded_random(count, -2, 2);
    void *to = guarded_bytes(count * eo_dtype_bytes(dtype));
    eo_elements_store(dtype, to, 0, values, count);
    return to;
}

static struct operands operands_of(eo_dtype dtype)
{
    return (struct operands){dtype, random_elements(dtype, TOKENS * Q_STRIDE), random_elements(dtype, TOKENS * KV_STRIDE),
                             random_elements(dtype, TOKENS * KV_STRIDE), random_elements(dtype, TOKENS * OUT_STRIDE)};
}

static struct results results_of(eo_dtype dtype)
{
    const uint64_t element = eo_dtype_bytes(dtype);
    struct results r = {guarded_bytes(TOKENS * OUT_STRIDE * element), guarded_bytes(TOKENS * Q_STRIDE * element),
                        guarded_bytes(TOKENS * KV_STRIDE * element), guarded_bytes(TOKENS * KV_STRIDE * element),
                        guarded(TOKENS * HEADS)};
    memset(r.q, 0, TOKENS * Q_STRIDE * element); /* between the rows nothing is written */
    return r;
}

/* Forward and backward of `length` tokens from `token` on, `sequences` of them. */
static void attend(const struct eo_kernel_ops *ops, eo_team *team, const struct operands *o, struct results *r, uint64_t token,
                   uint32_t sequences, uint32_t length, const int32_t *positions)
{
    struct eo_attention a = {
        .types = {o->dtype, EO_DTYPE_FP32},
        .shape = {sequences, length, HEADS, KV_HEADS, SIZE, Q_STRIDE, KV_STRIDE, OUT_STRIDE, positions != NULL},
        .q = eo_element_at(o->dtype, o->q, token * Q_STRIDE),
        .k = eo_element_at(o->dtype, o->k, token * KV_STRIDE),
        .v = eo_element_at(o->dtype, o->v, token * KV_STRIDE),
        .out = eo_element_at_mutable(o->dtype, r->out, token * OUT_STRIDE),
        .log_sum_exp = r->log_sum_exp,
        .positions = positions,
        .out_gradient = eo_element_at(o->dtype, o->out_gradient, token * OUT_STRIDE),
        .q_gradient = eo_element_at_mutable(o->dtype, r->q, token * Q_STRIDE),
        .k_gradient = eo_element_at_mutable(o->dtype, r->k, token * KV_STRIDE),
        .v_gradient = eo_element_at_mutable(o->dtype, r->v, token * KV_STRIDE),
    };
    a.scratch = guarded_bytes(ops->attention_scratch_bytes(a.types, &a.shape, eo_team_thread_count(team)));
    cr_assert_eq(ops->attention_forward(team, &a), EO_OK);
    cr_assert_eq(ops->attention_backward(team, &a), EO_OK);
}

static void expect_same(const char *what, const char *level, eo_dtype dtype, const void *a, const void *b, uint64_t stride,
                        uint64_t width, uint64_t first)
{
    for (uint64_t token = first; token < TOKENS; token++)
        cr_assert_eq(memcmp(eo_element_at(dtype, a, token * stride), eo_element_at(dtype, b, token * stride),
                            width * eo_dtype_bytes(dtype)), 0, "%s, %s, %s: other bits at token %llu", what, level,
                     eo_dtype_name(dtype), (unsigned long long)token);
}

static void expect_same_results(const char *level, eo_dtype dtype, const struct results *a, const struct results *b, uint64_t first)
{
    expect_same("out", level, dtype, a->out, b->out, OUT_STRIDE, OUT_STRIDE, first);
    expect_same("q's gradient", level, dtype, a->q, b->q, Q_STRIDE, HEADS * SIZE, first);
    expect_same("k's gradient", level, dtype, a->k, b->k, KV_STRIDE, KV_STRIDE, first);
    expect_same("v's gradient", level, dtype, a->v, b->v, KV_STRIDE, KV_STRIDE, first);
}

static void check_attention(const struct eo_kernel_ops *ops, eo_dtype dtype, const char *level)
{
    int32_t positions[TOKENS];
    fill_positions(positions);
    const struct operands o = operands_of(dtype);
    struct results packed = results_of(dtype), alone = results_of(dtype), threads = results_of(dtype);
    attend(ops, NULL, &o, &packed, 0, SEQUENCES, LENGTH, positions);
    for (uint32_t d = 0, at = 0; d < DOCUMENTS; at += lengths[d], d++)
        attend(ops, NULL, &o, &alone, at, 1, lengths[d], NULL);
    expect_same_results(level, dtype, &packed, &alone, 0);
    eo_team *team;
    cr_assert_eq(eo_team_create(&team, 3), EO_OK);
    attend(ops, team, &o, &threads, 0, SEQUENCES, LENGTH, positions);
    eo_team_destroy(&team);
    expect_same_results(level, dtype, &packed, &threads, 0);

    /* Another first document, with larger numbers: no bit of the others. */
    for (uint64_t i = 0; i < (lengths[0] + lengths[1]) * (uint64_t)KV_STRIDE; i++) {
        eo_element_store(dtype, o.k, i, 100);
        eo_element_store(dtype, o.v, i, -1e30F);
    }
    attend(ops, NULL, &o, &threads, 0, SEQUENCES, LENGTH, positions);
    expect_same_results(level, dtype, &packed, &threads, lengths[0] + lengths[1]);
    cr_assert_neq(memcmp(packed.out, threads.out, lengths[0] * OUT_STRIDE), 0, "the first document changed nothing at all");
    guards_free();
}

#if defined(__x86_64__)
extern const struct eo_tiles eo_tiles_amx_emulated; /* layers/cpu/products/amx.h */

static eo_status emulated_forward(eo_team *team, const struct eo_attention *a)
{
    return eo_cpu_attention_bf16_by(team, a, &eo_tiles_amx_emulated, false);
}

static eo_status emulated_backward(eo_team *team, const struct eo_attention *a)
{
    return eo_cpu_attention_bf16_by(team, a, &eo_tiles_amx_emulated, true);
}

static void check_emulated(void)
{
    struct eo_kernel_ops ops = eo_kernels_cpu_bf16_ops;
    ops.attention_forward = emulated_forward;
    ops.attention_backward = emulated_backward;
    if (eo_kernels_select("avx512") == EO_OK)
        check_attention(&ops, EO_DTYPE_BF16, "amx, emulated");
}
#endif

Test(documents, attention_of_each_is_that_of_the_document_alone)
{
    const char *level;
    for (uint32_t i = 0; (level = eo_kernels_at(i)) != NULL; i++) {
        const bool is_reference = strcmp(level, "reference") == 0;
        cr_assert_eq(eo_kernels_select(level), EO_OK);
        check_attention(is_reference ? &eo_kernels_reference_ops : &eo_kernels_cpu_ops, EO_DTYPE_FP32, level);
        check_attention(is_reference ? &eo_kernels_reference_ops : &eo_kernels_cpu_bf16_ops, EO_DTYPE_BF16, level);
    }
#if defined(__x86_64__)
    check_emulated();
#endif
}

/* ---- positions ---- */

static void turn(const struct eo_kernel_ops *ops, float *values, uint64_t rows, const float *table, const int32_t *positions)
{
    cr_assert_eq(ops->rotate(NULL, &(struct eo_rotation){
        .types = FP32, .values = values, .stride = Q_STRIDE, .table = table, .rows = rows, .seq = LENGTH, .head_count = HEADS,
        .head_size = SIZE, .positions = positions}), EO_OK);
}

static void check_positions(const struct eo_kernel_ops *ops)
{
    int32_t positions[TOKENS];
    fill_positions(positions);
    const float *values = guarded_random(TOKENS * Q_STRIDE, -1, 1), *table = guarded_random(LENGTH * SIZE, -1, 1);
    float *packed = guarded_copy(values, TOKENS * Q_STRIDE), *alone = guarded_copy(values, TOKENS * Q_STRIDE);
    turn(ops, packed, TOKENS, table, positions);
    for (uint32_t d = 0, at = 0; d < DOCUMENTS; at += lengths[d], d++)
        turn(ops, alone + (uint64_t)at * Q_STRIDE, lengths[d], table, NULL);
    cr_assert_eq(memcmp(packed, alone, TOKENS * Q_STRIDE * sizeof(float)), 0, "rotation");

    const int32_t *words = guarded_tokens(TOKENS, 9);
    const float *table_of_words = guarded_random(9 * SIZE, -1, 1);
    struct eo_embedding e = {.types = FP32, .out = packed, .tokens = words, .token_table = table_of_words,
                             .position_table = table, .rows = TOKENS, .width = SIZE, .seq = LENGTH, .positions = positions};
    cr_assert_eq(ops->embedding_forward(NULL, &e), EO_OK);
    e.positions = NULL;
    for (uint32_t d = 0, at = 0; d < DOCUMENTS; at += lengths[d], d++) {
        e.out = alone + (uint64_t)at * SIZE;
        e.tokens = words + at;
        e.rows = lengths[d];
        cr_assert_eq(ops->embedding_forward(NULL, &e), EO_OK);
    }
    cr_assert_eq(memcmp(packed, alone, (uint64_t)TOKENS * SIZE * sizeof(float)), 0, "embedding");
    guards_free();
}

Test(documents, positions_begin_anew_with_each)
{
    static const char *const levels[] = {"plain", "avx2", "avx512"};
    check_positions(&eo_kernels_reference_ops);
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        if (eo_kernels_select(levels[i]) == EO_OK)
            check_positions(&eo_kernels_cpu_ops);
}

/* ---- models ---- */

enum { PACKED = 7, PACKED_DOCUMENTS = 3 };
static const uint32_t packed_lengths[PACKED_DOCUMENTS] = {3, 1, 3};
static const int32_t packed_tokens[PACKED] = {3, 0, 10, 3, 7, 1, 1};
static const int32_t packed_targets[PACKED] = {0, 10, -100, -100, 1, -1, 4};
static const int32_t packed_positions[PACKED] = {0, 1, 2, 0, 0, 1, 2};

static void run_on(struct bench *b, const eo_tokens *on)
{
    fake_clear_gradients(b->runtime);
    cr_assert_eq(eo_transformer_micro_batch(b->transformer, b->runtime, NULL, on, &b->loss), EO_OK);
}

static struct bench packed_bench(const struct family_case *c, const int32_t *of_tokens)
{
    struct bench b;
    eo_transformer_params params = case_params(c, 0);
    params.batch = 1;
    params.seq = PACKED;
    params.packed = params.summed_loss = true;
    params.dropout = 0; /* masks are drawn by places in the sequence */
    bench_open(&b, params);
    run_on(&b, &(eo_tokens){.tokens = of_tokens, .targets = packed_targets, .positions = packed_positions});
    return b;
}

/* The sums over the documents, each in a sequence of its own. */
static double add_documents(const struct family_case *c, struct bench *sum)
{
    double loss = 0;
    for (uint32_t d = 0, at = 0; d < PACKED_DOCUMENTS; at += packed_lengths[d], d++) {
        struct bench b;
        eo_transformer_params params = case_params(c, 0);
        params.batch = 1;
        params.seq = packed_lengths[d];
        params.summed_loss = true;
        params.dropout = 0;
        bench_open(&b, params);
        run_on(&b, &(eo_tokens){.tokens = packed_tokens + at, .targets = packed_targets + at});
        for (uint32_t k = 0; k < b.parameter_count; k++)
            for (uint64_t i = 0; i < count_of(&b, k); i++)
                fake_gradients(sum->runtime, k)[i] += fake_gradients(b.runtime, k)[i];
        loss += b.loss;
        bench_close(&b);
    }
    return loss;
}

ParameterizedTestParameters(documents, packed_models_are_those_of_documents_alone)
{
    return cr_make_param_array(struct family_case, family_cases, FAMILY_CASES);
}

ParameterizedTest(struct family_case *c, documents, packed_models_are_those_of_documents_alone)
{
    struct bench b = packed_bench(c, packed_tokens), sum = packed_bench(c, packed_tokens);
    fake_clear_gradients(sum.runtime);
    sum.loss = add_documents(c, &sum);
    assert_same_gradients(&sum, &b, 1e-5);
    double evaluated;
    cr_assert_eq(eo_transformer_evaluate(b.transformer, b.runtime, NULL, &(eo_tokens){
        .tokens = packed_tokens, .targets = packed_targets, .positions = packed_positions}, &evaluated), EO_OK);
    cr_assert_float_eq(evaluated, b.loss, 1e-6 * b.loss);
    bench_close(&b);
    bench_close(&sum);
}

/* Words of the last document alone: their rows of an embedding that is not the head's. */
Test(documents, another_first_document_changes_no_bit_of_the_last_ones_gradients)
{
    static const int32_t other[PACKED] = {5, 5, 9, 3, 7, 1, 1};
    for (int kind = GPT2; kind <= LLAMA; kind++) {
        const struct family_case c = {(enum kind)kind, false, false, 0};
        struct bench b = packed_bench(&c, packed_tokens), changed = packed_bench(&c, other);
        const uint64_t width = eo_transformer_get_params(b.transformer)->config.width;
        for (int32_t word = 1; word <= 7; word += 6)
            cr_assert_eq(memcmp(fake_gradients(b.runtime, 0) + (uint64_t)word * width,
                                fake_gradients(changed.runtime, 0) + (uint64_t)word * width, width * sizeof(float)), 0);
        cr_assert_neq(b.loss, changed.loss);
        bench_close(&b);
        bench_close(&changed);
    }
}

/* ---- targets that do not count ---- */

static struct bench summed_bench(const struct family_case *c, const int32_t *of_targets)
{
    struct bench b;
    eo_transformer_params params = case_params(c, 0);
    params.summed_loss = true;
    bench_open(&b, params);
    run_on(&b, &(eo_tokens){.tokens = tokens, .targets = of_targets, .random = batch.random});
    return b;
}

ParameterizedTestParameters(documents, targets_below_zero_do_not_count)
{
    return cr_make_param_array(struct family_case, family_cases, FAMILY_CASES);
}

/*
 * Goal: losses and gradients are sums over the targets that count. Method: a target counts in one of two runs, so both together
 * are the mean of all (held against double and finite differences in models.c) times their number.
 */
ParameterizedTest(struct family_case *c, documents, targets_below_zero_do_not_count)
{
    static const int32_t marks[] = {-100, -1, INT32_MIN};
    int32_t some[ROWS], others[ROWS], none[ROWS];
    for (int i = 0; i < ROWS; i++) {
        some[i] = i % 3 ? targets[i] : marks[i % 2];
        others[i] = i % 3 ? marks[2] : targets[i];
        none[i] = -100;
    }
    struct bench mean, a = summed_bench(c, some), b = summed_bench(c, others), zero = summed_bench(c, none);
    bench_open(&mean, case_params(c, 0));
    bench_run(&mean, NULL);
    mean.loss *= ROWS;
    a.loss += b.loss;
    for (uint32_t k = 0; k < mean.parameter_count; k++)
        for (uint64_t i = 0; i < count_of(&mean, k); i++) {
            fake_gradients(mean.runtime, k)[i] *= ROWS / LOSS_SCALE;
            fake_gradients(a.runtime, k)[i] += fake_gradients(b.runtime, k)[i];
            cr_assert_eq(fake_gradients(zero.runtime, k)[i], 0.0F, "no target counts, but there is a gradient");
        }
    cr_assert_eq(zero.loss, 0.0);
    assert_same_gradients(&mean, &a, 1e-5);
    struct bench *const all[] = {&mean, &a, &b, &zero};
    for (int i = 0; i < 4; i++)
        bench_close(all[i]);
}
