/* SPDX-License-Identifier: MIT
 *
 * The models of layers/ alone, on the fake runtime: loss and gradients are right, and no way of arranging the work
 * (recompute, chunks, halves, threads) changes them.
 * Method: small models of odd sizes; a plain forward in double is the reference, its finite differences the gradients.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_runtime.h"
#include "layers/transformer.h"
#include "reference_model.h"

#define LOSS_SCALE 0.5F
enum { BATCH = 2, SEQ = 5, ROWS = BATCH * SEQ, VOCABULARY = 11 };

static const int32_t tokens[ROWS] = {3, 0, 10, 3, 7, 1, 1, 4, 9, 3};
static const int32_t targets[ROWS] = {0, 10, 3, 7, 2, 1, 4, 9, 3, 5};
static const eo_tokens batch = {.tokens = tokens, .targets = targets};

/* Heads of size 4; queries in groups of three; an MLP that no vector width divides; a context longer than seq. */
#define GPT2_CONFIG                                                                                                   \
    {.family = EO_FAMILY_GPT2, .layer_count = 2, .width = 12, .head_count = 3, .mlp_width = 19,                       \
     .vocabulary = VOCABULARY, .context = 7}
#define LLAMA_CONFIG                                                                                                  \
    {.family = EO_FAMILY_LLAMA, .layer_count = 2, .width = 12, .head_count = 3, .kv_head_count = 1, .mlp_width = 17,  \
     .vocabulary = VOCABULARY, .context = 7, .rope_theta = 100}

/* Qwen3's heads together are wider than the model; both: no published family, but a config may ask for it. */
enum kind { GPT2, LLAMA, QWEN2, QWEN3, BIAS_AND_NORM, KIND_COUNT };

static eo_transformer_params base_params(enum kind kind, bool tied)
{
    eo_transformer_params p = {.batch = BATCH, .seq = SEQ};
    p.config = kind == GPT2 ? (eo_transformer_config)GPT2_CONFIG : (eo_transformer_config)LLAMA_CONFIG;
    p.config.tied_head = tied;
    p.config.qkv_bias = kind == QWEN2 || kind == BIAS_AND_NORM;
    p.config.qk_norm = kind == QWEN3 || kind == BIAS_AND_NORM;
    p.config.head_size = kind == QWEN3 ? 6 : 0;
    return p;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A transformer on a fake runtime, with weights large enough for every term to count. */
struct bench {
    eo_transformer *transformer;
    eo_runtime *runtime;
    const eo_model *model;
    uint32_t parameter_count;
    double loss;
};

static uint64_t count_of(const struct bench *b, uint32_t parameter)
{
    eo_parameter_info info;
    cr_assert_eq(eo_model_parameter(b->model, parameter, &info), EO_OK);
    return info.element_count;
}

/* In [-1, 1], from the parameter's name and the element alone: equal for every arrangement of the same model. */
static float spread(const char *name, uint64_t i)
{
    uint64_t x = i + 1;
    for (; *name; name++)
        x = (x ^ (uint64_t)*name) * 0x100000001b3u;
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    return (float)(x >> 40) * 0x1p-23F - 1;
}

static void bench_open(struct bench *b, eo_transformer_params params)
{
    *b = (struct bench){0};
    cr_assert_eq(eo_transformer_create(&b->transformer, &params), EO_OK);
    b->model = eo_transformer_model(b->transformer);
    b->parameter_count = eo_model_parameter_count(b->model);
    b->runtime = fake_create(b->model, LOSS_SCALE);
    for (uint32_t k = 0; k < b->parameter_count; k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(b->model, k, &info), EO_OK);
        float *w = fake_weights(b->runtime, k);
        const bool norm = info.dim_count == 1 && strstr(info.name, "weight");
        for (uint64_t i = 0; i < info.element_count; i++)
            w[i] = (norm ? 1 : 0) + 0.5F * spread(info.name, i);
    }
}

static void bench_close(struct bench *b)
{
    fake_destroy(b->runtime);
    eo_transformer_destroy(&b->transformer);
}

static void bench_run(struct bench *b, eo_team *team)
{
    fake_clear_gradients(b->runtime);
    cr_assert_eq(eo_transformer_micro_batch(b->transformer, b->runtime, team, &batch, &b->loss),
                 EO_OK);
}

static double **double_weights(const struct bench *b)
{
    double **all = calloc(b->parameter_count, sizeof(*all));
    for (uint32_t k = 0; k < b->parameter_count; k++) {
        all[k] = calloc(count_of(b, k), sizeof(double));
        for (uint64_t i = 0; i < count_of(b, k); i++)
            all[k][i] = fake_weights(b->runtime, k)[i];
    }
    return all;
}

static void free_weights(const struct bench *b, double **all)
{
    for (uint32_t k = 0; k < b->parameter_count; k++)
        free(all[k]);
    free(all);
}

/* Every parameter of `other` has the gradient that the one of the same name has in `b`, within `tolerance`. */
static void assert_same_gradients(const struct bench *b, const struct bench *other, double tolerance)
{
    cr_assert_eq(b->parameter_count, other->parameter_count);
    cr_assert_float_eq(b->loss, other->loss, tolerance * fabs(b->loss) + (tolerance > 0 ? 0 : 1e-300));
    for (uint32_t k = 0; k < b->parameter_count; k++) {
        eo_parameter_info info;
        uint32_t same;
        cr_assert_eq(eo_model_parameter(b->model, k, &info), EO_OK);
        cr_assert_eq(eo_model_find_parameter(other->model, info.name, &same), EO_OK);
        const float *g = fake_gradients(b->runtime, k), *h = fake_gradients(other->runtime, same);
        double largest = 0;
        for (uint64_t i = 0; i < info.element_count; i++)
            largest = fmax(largest, fabs((double)g[i]));
        cr_assert(largest > 0, "%s has no gradient", info.name);
        if (tolerance == 0)
            cr_assert_eq(memcmp(g, h, info.element_count * sizeof(float)), 0, "%s: other bits", info.name);
        for (uint64_t i = 0; i < info.element_count; i++)
            cr_assert(fabs((double)g[i] - (double)h[i]) <= tolerance * largest, "%s[%llu]: %g and %g", info.name,
                      (unsigned long long)i, (double)g[i], (double)h[i]);
    }
}

/* ---- against the reference ---- */

struct family_case {
    enum kind kind;
    bool tied, half_blocks;
};

static struct family_case family_cases[] = {
    {GPT2, true, false},  {GPT2, false, false}, {GPT2, true, true},   {LLAMA, false, false},
    {LLAMA, true, false}, {LLAMA, false, true}, {QWEN2, true, false}, {QWEN2, false, true},
    {QWEN3, true, false}, {QWEN3, false, true}, {BIAS_AND_NORM, false, false},
};

static struct bench open_case(const struct family_case *c)
{
    eo_transformer_params params = base_params(c->kind, c->tied);
    params.half_blocks = c->half_blocks;
    struct bench b;
    bench_open(&b, params);
    return b;
}

ParameterizedTestParameters(models, gradients_agree_with_finite_differences_in_double)
{
    return cr_make_param_array(struct family_case, family_cases, sizeof(family_cases) / sizeof(family_cases[0]));
}

/*
 * Goal: every element of every parameter has the right gradient, tied ones included.
 * Method: central differences of the reference's loss; its own error is about 1e-9, so what is left is fp32 rounding.
 */
ParameterizedTest(struct family_case *c, models, gradients_agree_with_finite_differences_in_double)
{
    struct bench b = open_case(c);
    bench_run(&b, NULL);
    double **w = double_weights(&b);
    const struct reference_model reference = {eo_transformer_get_params(b.transformer)->config, b.model, w};
    uint64_t checked = 0;
    for (uint32_t k = 0; k < b.parameter_count; k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(b.model, k, &info), EO_OK);
        double largest = 0;
        double *expected = calloc(info.element_count, sizeof(double));
        for (uint64_t i = 0; i < info.element_count; i++) {
            const double h = 1e-5, value = w[k][i];
            w[k][i] = value + h;
            const double above = reference_loss(&reference, tokens, targets, BATCH, SEQ, NULL);
            w[k][i] = value - h;
            const double below = reference_loss(&reference, tokens, targets, BATCH, SEQ, NULL);
            w[k][i] = value;
            expected[i] = (double)LOSS_SCALE * (above - below) / (2 * h);
            largest = fmax(largest, fabs(expected[i]));
        }
        cr_assert(largest > 1e-5, "%s has no gradient to compare", info.name);
        for (uint64_t i = 0; i < info.element_count; i++, checked++) {
            const double got = fake_gradients(b.runtime, k)[i];
            cr_assert(fabs(got - expected[i]) <= 1e-4 * largest, "%s[%llu]: %.8g instead of %.8g", info.name,
                      (unsigned long long)i, got, expected[i]);
        }
        free(expected);
    }
    cr_assert_eq(checked, eo_model_element_count(b.model));
    free_weights(&b, w);
    bench_close(&b);
}

ParameterizedTestParameters(models, losses_and_logits_are_those_of_the_reference)
{
    return cr_make_param_array(struct family_case, family_cases, sizeof(family_cases) / sizeof(family_cases[0]));
}

/* Goal: training, evaluation and sampling compute the same, right forward pass. Method: all three against double. */
ParameterizedTest(struct family_case *c, models, losses_and_logits_are_those_of_the_reference)
{
    struct bench b = open_case(c);
    double **w = double_weights(&b), expected_logits[VOCABULARY], evaluated;
    const struct reference_model reference = {eo_transformer_get_params(b.transformer)->config, b.model, w};
    const double expected = reference_loss(&reference, tokens, targets, BATCH, SEQ, expected_logits);
    bench_run(&b, NULL);
    cr_assert_float_eq(b.loss, expected, 1e-5);
    cr_assert_eq(eo_transformer_evaluate(b.transformer, b.runtime, NULL, &batch, &evaluated),
                 EO_OK);
    cr_assert_float_eq(evaluated, expected, 1e-5);

    float logits[VOCABULARY + 1] = {[VOCABULARY] = 77};
    cr_assert_eq(eo_transformer_logits(b.transformer, b.runtime, NULL, tokens, SEQ - 1, logits), EO_OK);
    for (uint32_t i = 0; i < VOCABULARY; i++)
        cr_assert_float_eq((double)logits[i], expected_logits[i], 1e-5);
    cr_assert_eq(logits[VOCABULARY], 77.0F);

    /* What comes after the position asked for does not matter. */
    int32_t others[ROWS];
    float shorter[VOCABULARY];
    memcpy(others, tokens, sizeof(others));
    others[3] = 5, others[4] = 6;
    cr_assert_eq(eo_transformer_logits(b.transformer, b.runtime, NULL, tokens, 2, shorter), EO_OK);
    cr_assert_eq(eo_transformer_logits(b.transformer, b.runtime, NULL, others, 2, logits), EO_OK);
    cr_assert_eq(memcmp(shorter, logits, sizeof(shorter)), 0);
    reference_loss(&reference, tokens, targets, 1, 3, expected_logits);
    for (uint32_t i = 0; i < VOCABULARY; i++)
        cr_assert_float_eq((double)shorter[i], expected_logits[i], 1e-5);
    free_weights(&b, w);
    bench_close(&b);
}

/* ---- ways to arrange the same work ---- */

ParameterizedTestParameters(models, recompute_changes_no_bit)
{
    return cr_make_param_array(struct family_case, family_cases, sizeof(family_cases) / sizeof(family_cases[0]));
}

/*
 * Goal: what is computed again is what was there. Method: the bits of the loss and of all gradients, for every mode; and
 * each mode must take less memory than the one before, or it would be no recompute.
 */
ParameterizedTest(struct family_case *c, models, recompute_changes_no_bit)
{
    struct bench none = open_case(c);
    bench_run(&none, NULL);
    static const struct {
        eo_recompute recompute;
        uint32_t blocks;
    } modes[] = {{EO_RECOMPUTE_CHEAP, 0}, {EO_RECOMPUTE_BLOCKS, 1}, {EO_RECOMPUTE_BLOCKS, 100}};
    for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        eo_transformer_params params = base_params(c->kind, c->tied);
        params.half_blocks = c->half_blocks;
        params.recompute = modes[m].recompute;
        params.recompute_blocks = modes[m].blocks;
        struct bench other;
        bench_open(&other, params);
        bench_run(&other, NULL);
        assert_same_gradients(&none, &other, 0);
        cr_assert_lt(fake_peak_bytes(other.runtime), fake_peak_bytes(none.runtime));
        double evaluated;
        cr_assert_eq(eo_transformer_evaluate(other.transformer, other.runtime, NULL, &batch,
                                             &evaluated), EO_OK);
        cr_assert_eq(evaluated, other.loss);
        bench_close(&other);
    }
    bench_close(&none);
}

/* Goal: neither chunks of the head (the last one shorter) nor halves as layers nor threads change the result. */
Test(models, chunks_halves_and_threads_agree_to_rounding)
{
    eo_team *team;
    cr_assert_eq(eo_team_create(&team, 3), EO_OK);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        struct bench one, other;
        bench_open(&one, base_params((enum kind)kind, true));
        bench_run(&one, NULL);
        static const uint32_t chunk_counts[] = {2, 3, 4, ROWS};
        for (size_t i = 0; i < sizeof(chunk_counts) / sizeof(chunk_counts[0]); i++) {
            eo_transformer_params params = base_params((enum kind)kind, true);
            params.head_chunks = chunk_counts[i];
            bench_open(&other, params);
            bench_run(&other, NULL);
            assert_same_gradients(&one, &other, 1e-6);
            bench_close(&other);
        }
        eo_transformer_params halves = base_params((enum kind)kind, true);
        halves.half_blocks = true;
        halves.thread_count = 3;
        bench_open(&other, halves);
        bench_run(&other, NULL);
        assert_same_gradients(&one, &other, 1e-6);
        bench_run(&other, team);
        assert_same_gradients(&one, &other, 1e-6);
        bench_close(&other);
        bench_close(&one);
    }
    eo_team_destroy(&team);
}

/* Goal: two micro-batches leave nothing behind in buffers. Method: the second's bits; dead buffers are freed between. */
Test(models, a_second_micro_batch_gives_the_same_bits)
{
    struct bench one, two;
    bench_open(&one, base_params(GPT2, true));
    bench_open(&two, base_params(GPT2, true));
    bench_run(&one, NULL);
    bench_run(&two, NULL);
    bench_run(&two, NULL);
    assert_same_gradients(&one, &two, 0);
    bench_close(&one);
    bench_close(&two);
}

/*
 * Goal: buffers live no longer than they must, and nothing is kept twice. Method: the peak of the fake, which frees what
 * is dead, against what has to be there when the last block's backward pass runs, added up by hand (in floats, and with
 * tokens and targets, which are as large).
 */
Test(models, no_more_memory_than_the_passes_need)
{
    enum { WIDTH = 12, MLP = 19, LAYERS = 2, HEADS = 3, STREAM = ROWS * WIDTH };
    enum { KEPT_INNER = ROWS * (3 * WIDTH + MLP), KEPT_MID = ROWS * WIDTH, ACTIVATION = ROWS * MLP };
    enum { STATS = 4 * ROWS + ROWS * HEADS, NORMS = 2 * STREAM };
    enum { INPUTS = 2 * ROWS };
    enum { BLOCK = 2 * STREAM + NORMS + STATS + KEPT_INNER + KEPT_MID + ACTIVATION };
    static const struct {
        eo_recompute recompute;
        uint64_t floats; /* all blocks as kept; one again in full; the stream's gradient */
    } cases[] = {
        {EO_RECOMPUTE_NONE, LAYERS * BLOCK + STREAM},
        {EO_RECOMPUTE_CHEAP, LAYERS * (BLOCK - NORMS - ACTIVATION) + NORMS + ACTIVATION + STREAM},
        {EO_RECOMPUTE_BLOCKS, LAYERS * STREAM + (BLOCK - STREAM) + STREAM},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eo_transformer_params params = base_params(GPT2, true);
        params.recompute = cases[i].recompute;
        params.recompute_blocks = LAYERS;
        params.head_chunks = ROWS;
        struct bench b;
        bench_open(&b, params);
        bench_run(&b, NULL);
        /* d_mid, the bias gradient (each rounded up to 64 bytes) and what the kernels ask for, in bytes */
        const struct half *half = &b.transformer->halves[2 * LAYERS - 1];
        const uint64_t scratch = max_u64(eo_half_scratch(b.transformer, half, ROWS).total,
                                         eo_half_scratch(b.transformer, half - 1, ROWS).total);
        const uint64_t expected = (cases[i].floats + INPUTS) * sizeof(float) + scratch;
        cr_assert_eq(fake_peak_bytes(b.runtime), expected, "%u: %llu, not %llu", (unsigned)i,
                     (unsigned long long)fake_peak_bytes(b.runtime), (unsigned long long)expected);
        cr_assert_leq(eo_half_scratch(b.transformer, half, ROWS).kernels, (ROWS * MLP + 16 + MLP + 16) * sizeof(float));
        bench_close(&b);
    }
}

/* ---- element types ---- */

/* Weights that bf16 holds as they are, so that models in both types have the same. */
static void bench_open_typed(struct bench *b, eo_transformer_params params, eo_dtype dtype, eo_dtype reduce_dtype)
{
    params.dtype = dtype;
    params.reduce_dtype = reduce_dtype;
    bench_open(b, params);
    fake_set_types(b->runtime, dtype, reduce_dtype);
    for (uint32_t k = 0; k < b->parameter_count; k++)
        for (uint64_t i = 0; i < count_of(b, k); i++)
            fake_weights(b->runtime, k)[i] =
                eo_element_from_bf16(eo_element_to_bf16(fake_weights(b->runtime, k)[i]));
}

/* The length of the difference of two gradients, of that of the first. */
static double gradient_distance(const struct bench *b, const struct bench *other, uint32_t parameter)
{
    const float *g = fake_gradients(b->runtime, parameter), *h = fake_gradients(other->runtime, parameter);
    double apart = 0, length = 0;
    for (uint64_t i = 0; i < count_of(b, parameter); i++) {
        apart += ((double)g[i] - h[i]) * ((double)g[i] - h[i]);
        length += (double)g[i] * g[i];
    }
    return sqrt(apart / length);
}

static eo_transformer_params case_params(const struct family_case *c, uint32_t threads)
{
    eo_transformer_params params = base_params(c->kind, c->tied);
    params.half_blocks = c->half_blocks;
    params.thread_count = threads;
    return params;
}

ParameterizedTestParameters(models, reference_kernels_agree_with_the_fast_ones_in_fp32)
{
    return cr_make_param_array(struct family_case, family_cases, sizeof(family_cases) / sizeof(family_cases[0]));
}

/* Goal: the passes are right for a table with epilogues and gradients apart from q, k and v. Method: both tables. */
ParameterizedTest(struct family_case *c, models, reference_kernels_agree_with_the_fast_ones_in_fp32)
{
    struct bench fast, plain, cheap, blocks;
    eo_team *team;
    cr_assert_eq(eo_team_create(&team, 3), EO_OK);
    bench_open(&fast, case_params(c, 1));
    bench_run(&fast, NULL);
    cr_assert_eq(eo_kernels_select("reference"), EO_OK);
    cr_assert_str_eq(eo_kernels_name(), "reference");
    bench_open(&plain, case_params(c, 1));
    cr_assert_str_eq(plain.transformer->kernels->name, "reference");
    bench_run(&plain, NULL);
    assert_same_gradients(&fast, &plain, 2e-5);

    eo_transformer_params params = case_params(c, 3);
    params.recompute = EO_RECOMPUTE_CHEAP;
    bench_open(&cheap, params);
    bench_run(&cheap, team);
    assert_same_gradients(&plain, &cheap, 0);
    params.recompute = EO_RECOMPUTE_BLOCKS;
    params.recompute_blocks = 1;
    params.head_chunks = 1;
    bench_open(&blocks, params);
    bench_run(&blocks, team);
    assert_same_gradients(&plain, &blocks, 0);
    eo_team_destroy(&team);
    bench_close(&fast), bench_close(&plain), bench_close(&cheap), bench_close(&blocks);
}

ParameterizedTestParameters(models, gradients_in_bf16_are_those_of_fp32_to_its_precision)
{
    return cr_make_param_array(struct family_case, family_cases, sizeof(family_cases) / sizeof(family_cases[0]));
}

/*
 * Goal: a model in bf16 computes the same function. Method: the same weights in fp32. bf16 has 8 bits: a value is off by up
 * to 2^-9, and what went through two blocks and back by some of these; of a gradient, the length of the difference
 * counts. Small models with large weights have the worst of it: 0.06 in the first block of Llama.
 */
ParameterizedTest(struct family_case *c, models, gradients_in_bf16_are_those_of_fp32_to_its_precision)
{
    struct bench exact;
    eo_team *team;
    cr_assert_eq(eo_team_create(&team, 3), EO_OK);
    bench_open_typed(&exact, case_params(c, 1), EO_DTYPE_FP32, EO_DTYPE_FP32);
    bench_run(&exact, NULL);
    for (int reduce = EO_DTYPE_FP32; reduce <= EO_DTYPE_BF16; reduce++) {
        struct bench half, threads, blocks, cheap;
        bench_open_typed(&half, case_params(c, 1), EO_DTYPE_BF16, (eo_dtype)reduce);
        bench_run(&half, NULL);
        cr_assert_float_eq(half.loss, exact.loss, 0.01 * exact.loss);
        cr_assert_neq(half.loss, exact.loss, "that was not bf16");
        for (uint32_t k = 0; k < exact.parameter_count; k++) {
            eo_parameter_info info;
            cr_assert_eq(eo_model_parameter(exact.model, k, &info), EO_OK);
            const double distance = gradient_distance(&exact, &half, k);
            /* A bias of k all but cancels in the softmax, and its gradient with it: rounding stays. */
            const double most = strstr(info.name, "k_proj.bias") ? 40 * 0x1p-8 : 20 * 0x1p-8;
            cr_assert(distance < most, "%s is %.3f away", info.name, distance);
        }

        bench_open_typed(&threads, case_params(c, 3), EO_DTYPE_BF16, (eo_dtype)reduce);
        bench_run(&threads, team);
        assert_same_gradients(&half, &threads, 0);
        eo_transformer_params params = case_params(c, 3);
        params.recompute = EO_RECOMPUTE_BLOCKS;
        params.recompute_blocks = 2;
        bench_open_typed(&blocks, params, EO_DTYPE_BF16, (eo_dtype)reduce);
        bench_run(&blocks, team);
        assert_same_gradients(&half, &blocks, 0);
        params.recompute = EO_RECOMPUTE_CHEAP;
        bench_open_typed(&cheap, params, EO_DTYPE_BF16, (eo_dtype)reduce);
        bench_run(&cheap, team);
        assert_same_gradients(&half, &cheap, 0);

        float logits[VOCABULARY], expected[VOCABULARY];
        cr_assert_eq(eo_transformer_logits(exact.transformer, exact.runtime, NULL, tokens, 3, expected), EO_OK);
        cr_assert_eq(eo_transformer_logits(half.transformer, half.runtime, NULL, tokens, 3, logits), EO_OK);
        for (uint32_t i = 0; i < VOCABULARY; i++)
            cr_assert_float_eq((double)logits[i], (double)expected[i], 0.05);
        bench_close(&half), bench_close(&threads), bench_close(&blocks), bench_close(&cheap);
    }
    eo_team_destroy(&team);
    bench_close(&exact);
}

/* Goal: half the bytes. Method: what the passes keep, in both types. */
Test(models, activations_in_bf16_take_about_half)
{
    eo_transformer_params params = base_params(GPT2, true);
    struct bench full, half;
    cr_assert_eq(eo_kernels_select("reference"), EO_OK); /* the same scratch */
    bench_open_typed(&full, params, EO_DTYPE_FP32, EO_DTYPE_FP32);
    bench_run(&full, NULL);
    bench_open_typed(&half, params, EO_DTYPE_BF16, EO_DTYPE_FP32);
    bench_run(&half, NULL);
    const double share = (double)fake_peak_bytes(half.runtime) / (double)fake_peak_bytes(full.runtime);
    cr_assert(share > 0.5 && share < 0.65, "%.2f", share);
    bench_close(&full), bench_close(&half);
}

/* Goal: a step needs no wait for its loss. Method: tokens loaded beforehand, loss NULL; the step's values have it. */
Test(models, a_loss_nobody_asks_for_goes_to_the_steps_values)
{
    eo_transformer_params params = base_params(LLAMA, false);
    params.token_slots = 2;
    struct bench b;
    bench_open(&b, params);
    bench_run(&b, NULL);
    const eo_tokens second = {.tokens = tokens, .targets = targets, .slot = 1};
    cr_assert_eq(eo_transformer_prepare(b.transformer, b.runtime, NULL), EO_OK);
    cr_assert_eq(eo_transformer_load(b.transformer, b.runtime, &second), EO_OK);
    cr_assert_eq(eo_transformer_micro_batch(b.transformer, b.runtime, NULL, &(eo_tokens){.slot = 1}, NULL), EO_OK);
    cr_assert_float_eq(eo_step_values(b.runtime)[0], b.loss, 1e-12);
    cr_assert_eq(eo_transformer_micro_batch(b.transformer, b.runtime, NULL, &(eo_tokens){.slot = 0}, NULL), EO_OK);
    cr_assert_float_eq(eo_step_values(b.runtime)[0], 2 * b.loss, 1e-12);
    bench_close(&b);
}

/* ---- what goes wrong ---- */

static char said[1000];

static void listen(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    snprintf(said, sizeof(said), "%s", text);
}

static const eo_log listening = {.write = listen, .level = EO_LOG_INFO};

/* Goal: a loss that is not finite is an error that names where it came from. Method: NaN put into one layer's weights. */
Test(models, a_loss_that_is_not_finite_names_the_position)
{
    static const struct {
        const char *parameter, *position;
    } cases[] = {
        {"wte.weight", "embedding"},
        {"h.0.mlp.c_fc.weight", "block.0"},
        {"h.1.attn.c_proj.bias", "block.1"},
        {"ln_f.bias", "head"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eo_transformer_params params = base_params(GPT2, true);
        params.log = &listening;
        struct bench b;
        bench_open(&b, params);
        uint32_t parameter;
        cr_assert_eq(eo_model_find_parameter(b.model, cases[i].parameter, &parameter), EO_OK);
        fake_weights(b.runtime, parameter)[0] = NAN;
        double loss = 5;
        /* the row of the token table that holds the NaN is that of token 0, which is among the tokens */
        cr_assert_eq(eo_transformer_micro_batch(b.transformer, b.runtime, NULL, &batch, &loss),
                     EO_ERR_NOT_FINITE);
        cr_assert(strstr(said, cases[i].position), "'%s' does not name %s", said, cases[i].position);
        cr_assert_eq(loss, 5.0);
        fake_restart(b.runtime);
        bench_close(&b);
    }
}

/* Goal: what is wrong in a call is refused before any pass. Method: each of them once; then the runtime still works. */
Test(models, wrong_tokens_and_teams_are_refused_and_change_nothing)
{
    eo_transformer_params params = base_params(LLAMA, false);
    params.log = &listening;
    struct bench b;
    bench_open(&b, params);
    int32_t wrong[ROWS];
    double loss = 5;
    float logits[VOCABULARY];
    memcpy(wrong, tokens, sizeof(wrong));
    wrong[6] = VOCABULARY;
    eo_tokens bad = {.tokens = wrong, .targets = targets};
    cr_assert_eq(eo_transformer_micro_batch(b.transformer, b.runtime, NULL, &bad, &loss), EO_ERR_INVALID);
    cr_assert(strstr(said, "tokens[6] is 11"), "%s", said);
    wrong[6] = -1;
    bad = (eo_tokens){.tokens = tokens, .targets = wrong};
    cr_assert_eq(eo_transformer_evaluate(b.transformer, b.runtime, NULL, &bad, &loss), EO_ERR_INVALID);
    cr_assert(strstr(said, "targets[6] is -1"), "%s", said);
    cr_assert_eq(eo_transformer_logits(b.transformer, b.runtime, NULL, tokens, SEQ, logits), EO_ERR_INVALID);
    cr_assert(strstr(said, "token 5 of a sequence of 5"), "%s", said);
    eo_team *team;
    cr_assert_eq(eo_team_create(&team, 2), EO_OK);
    cr_assert_eq(eo_transformer_micro_batch(b.transformer, b.runtime, team, &batch, &loss), EO_ERR_INVALID);
    cr_assert(strstr(said, "thread_count"), "%s", said);
    bad = (eo_tokens){.tokens = tokens, .targets = targets, .slot = 1};
    cr_assert_eq(eo_transformer_micro_batch(b.transformer, b.runtime, NULL, &bad, &loss), EO_ERR_INVALID);
    cr_assert(strstr(said, "token_slots"), "%s", said);
    eo_team_destroy(&team);
    fake_set_types(b.runtime, EO_DTYPE_BF16, EO_DTYPE_FP32);
    bad.slot = 0;
    cr_assert_eq(eo_transformer_micro_batch(b.transformer, b.runtime, NULL, &bad, &loss), EO_ERR_INVALID);
    cr_assert(strstr(said, "dtype fp32 and reduce_dtype fp32, but the plan was made with bf16 and fp32"), "%s", said);
    fake_set_types(b.runtime, EO_DTYPE_FP32, EO_DTYPE_FP32);
    cr_assert_eq(loss, 5.0);
    bench_run(&b, NULL);
    bench_close(&b);
}

static void refused(eo_transformer_params params, const char *reason)
{
    eo_transformer *transformer = (eo_transformer *)&params;
    params.log = &listening;
    said[0] = 0;
    cr_assert_eq(eo_transformer_create(&transformer, &params), EO_ERR_INVALID, "accepted, but: %s", reason);
    cr_assert_null(transformer);
    cr_assert(strstr(said, reason), "'%s' does not say '%s'", said, reason);
}

/* Goal: a config that cannot be had is refused with its reason. Method: a good one with one field spoiled at a time. */
Test(models, impossible_configs_are_refused_with_a_reason)
{
    const eo_transformer_params good = base_params(GPT2, true);
    const eo_transformer_params llama = base_params(LLAMA, true);
#define REFUSED(from, change, reason)                                                                                 \
    do {                                                                                                              \
        eo_transformer_params p = from;                                                                               \
        p.change;                                                                                                     \
        refused(p, reason);                                                                                           \
    } while (0)
    REFUSED(good, config.layer_count = 0, "layer_count is 0");
    REFUSED(good, config.layer_count = 5000, "layer_count is 5000; at most 4096");
    REFUSED(good, config.width = 0, "width is 0");
    REFUSED(good, config.width = UINT32_MAX, "width is 4294967295");
    REFUSED(good, config.head_count = 0, "head_count is 0");
    REFUSED(good, config.head_count = 5, "5 heads do not divide the width 12");
    REFUSED(good, config.kv_head_count = 1, "GPT-2 has as many key/value heads");
    REFUSED(good, config.vocabulary = 0, "vocabulary is 0");
    REFUSED(good, config.vocabulary = UINT32_MAX, "vocabulary is 4294967295");
    REFUSED(good, config.mlp_width = UINT32_MAX, "mlp_width is 4294967295");
    REFUSED(good, config.context = 0, "context is 0");
    REFUSED(good, config.norm_eps = -1, "norm_eps -1");
    REFUSED(good, config.norm_eps = NAN, "norm_eps");
    REFUSED(good, config.family = (eo_family)7, "family 7");
    REFUSED(good, seq = 8, "sequences of 8 tokens are longer than the context 7");
    REFUSED(good, batch = UINT32_MAX, "batch x seq is");
    REFUSED(good, head_chunks = 11, "11 head chunks");
    REFUSED(good, recompute = (eo_recompute)9, "recompute 9");
    REFUSED(good, recompute = EO_RECOMPUTE_BLOCKS, "recompute_blocks");
    REFUSED(good, thread_count = UINT32_MAX, "thread_count is");
    REFUSED(llama, config.kv_head_count = 2, "2 key/value heads do not divide the 3 heads");
    REFUSED(llama, config.kv_head_count = 6, "6 key/value heads do not divide the 3 heads");
    REFUSED(llama, config.head_count = 4, "even head size");
    REFUSED(llama, config.head_size = 3, "even head size");
    REFUSED(llama, config.head_size = 1 << 19, "head_count x head_size is 1572864");
    REFUSED(good, config.head_size = 6, "heads that make its width together");
    REFUSED(good, config.qk_norm = true, "neither qkv_bias nor qk_norm");
    REFUSED(llama, config.rope_theta = -3, "rope_theta -3");
#undef REFUSED
}

/* ---- what is known without running ---- */

/* Goal: presets are the published models. Method: their parameter counts, tied ones once. */
Test(models, presets_have_the_published_parameter_counts)
{
    static const struct {
        const char *name;
        uint64_t elements;
    } cases[] = {
        {"gpt2", 124439808},      {"gpt2-medium", 354823168}, {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},  {"llama-1b", 1235814400},   {"tiny", 858880},
        {"llama-tiny", 803968},   {"qwen2-tiny", 772224},     {"qwen3-tiny", 968320},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eo_transformer_params params = {.seq = 16};
        cr_assert_eq(eo_transformer_preset(cases[i].name, &params.config), EO_OK);
        eo_transformer *transformer;
        cr_assert_eq(eo_transformer_create(&transformer, &params), EO_OK);
        cr_expect_eq(eo_model_element_count(eo_transformer_model(transformer)), cases[i].elements, "%s: %llu",
                     cases[i].name, (unsigned long long)eo_model_element_count(eo_transformer_model(transformer)));
        eo_transformer_destroy(&transformer);
    }
    eo_transformer_config config;
    cr_assert_eq(eo_transformer_preset("gpt3", &config), EO_ERR_INVALID);
    uint32_t count = 0;
    while (eo_transformer_preset_name(count))
        cr_assert_eq(eo_transformer_preset(eo_transformer_preset_name(count++), &config), EO_OK);
    cr_assert_eq(count, 12);
}

/* Goal: the list of products is what the formula of the useful FLOPs counts. Method: their sum, attention added. */
Test(models, products_add_up_to_the_useful_flops)
{
    for (uint32_t preset = 0; eo_transformer_preset_name(preset); preset++) {
        eo_transformer_params params = {.batch = 2, .seq = 100, .head_chunks = 3};
        cr_assert_eq(eo_transformer_preset(eo_transformer_preset_name(preset), &params.config), EO_OK);
        eo_transformer *transformer;
        cr_assert_eq(eo_transformer_create(&transformer, &params), EO_OK);
        eo_product products[64];
        const uint32_t count = eo_transformer_products(transformer, products, 64);
        cr_assert(count > 12 && count < 64);
        const double heads_width = (double)params.config.head_count * params.config.head_size;
        double sum = 6.0 * params.config.layer_count * heads_width * 100 * 200;
        for (uint32_t i = 0; i < count; i++)
            sum += 2.0 * (double)products[i].m * (double)products[i].n * (double)products[i].k *
                   (double)products[i].per_micro_batch;
        cr_assert_float_eq(sum / eo_transformer_flops(transformer), 1, 1e-12);
        cr_assert_eq(eo_transformer_products(transformer, products, 3), 3);
        eo_transformer_destroy(&transformer);
    }
}

/*
 * Goal: initial weights do not depend on how a parameter is cut, and have the deviation they should.
 * Method: pieces of 7 elements against all at once; moments of the largest matrices; another seed gives other values.
 */
Test(models, initialisation_does_not_depend_on_the_shards)
{
    eo_transformer_params params = {.seq = 16};
    cr_assert_eq(eo_transformer_preset("tiny", &params.config), EO_OK);
    struct bench whole, pieces;
    bench_open(&whole, params);
    bench_open(&pieces, params);
    fake_set_fill_piece(pieces.runtime, 7);
    cr_assert_eq(eo_transformer_initialise(whole.transformer, whole.runtime, 42), EO_OK);
    cr_assert_eq(eo_transformer_initialise(pieces.transformer, pieces.runtime, 42), EO_OK);
    for (uint32_t k = 0; k < whole.parameter_count; k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(whole.model, k, &info), EO_OK);
        const float *w = fake_weights(whole.runtime, k);
        cr_assert_eq(memcmp(w, fake_weights(pieces.runtime, k), info.element_count * sizeof(float)), 0, "%s",
                     info.name);
        if (info.dim_count == 1) {
            cr_assert_eq(w[0], strstr(info.name, "bias") ? 0.0F : 1.0F);
            continue;
        }
        double mean = 0, square = 0;
        for (uint64_t i = 0; i < info.element_count; i++) {
            mean += (double)w[i] / (double)info.element_count;
            square += (double)w[i] * (double)w[i] / (double)info.element_count;
        }
        const double deviation = strstr(info.name, "c_proj") ? 0.02 / sqrt(2 * 4) : 0.02;
        cr_expect_float_eq(sqrt(square) / deviation, 1, 0.03, "%s: %g", info.name, sqrt(square));
        cr_expect(fabs(mean) < 5 * deviation / sqrt((double)info.element_count), "%s: mean %g", info.name, mean);
    }
    cr_assert_eq(eo_transformer_initialise(pieces.transformer, pieces.runtime, 43), EO_OK);
    cr_assert_neq(fake_weights(pieces.runtime, 0)[0], fake_weights(whole.runtime, 0)[0]);
    cr_assert_neq(fake_weights(whole.runtime, 0)[0], fake_weights(whole.runtime, 1)[0]);
    bench_close(&whole);
    bench_close(&pieces);
}
