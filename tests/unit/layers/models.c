/* SPDX-License-Identifier: MIT
 *
 * The models of layers/ alone, on the fake runtime: loss and gradients are right, and no way of arranging the work
 * (recompute, chunks, halves, threads) changes them.
 * Method: small models of odd sizes; a plain forward in double is the reference, its finite differences the gradients.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "reference_model.h"

/* ---- against the reference ---- */

static struct bench open_case(const struct family_case *c)
{
    struct bench b;
    bench_open(&b, case_params(c, 0));
    return b;
}

ParameterizedTestParameters(models, gradients_agree_with_finite_differences_in_double)
{
    return cr_make_param_array(struct family_case, family_cases, FAMILY_CASES);
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
    const struct reference_model reference = {eo_transformer_get_params(b.transformer)->config, b.model, w, c->dropout,
                                              batch.random};
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
    return cr_make_param_array(struct family_case, family_cases, FAMILY_CASES);
}

/* Goal: training, evaluation and sampling compute the same, right forward pass. Method: all three against double. */
ParameterizedTest(struct family_case *c, models, losses_and_logits_are_those_of_the_reference)
{
    struct bench b = open_case(c);
    double **w = double_weights(&b), expected_logits[VOCABULARY], evaluated;
    struct reference_model reference = {eo_transformer_get_params(b.transformer)->config, b.model, w, c->dropout, batch.random};
    bench_run(&b, NULL);
    cr_assert_float_eq(b.loss, reference_loss(&reference, tokens, targets, BATCH, SEQ, NULL), 1e-5);
    reference.dropout = 0; /* of micro-batches alone */
    const double expected = reference_loss(&reference, tokens, targets, BATCH, SEQ, expected_logits);
    cr_assert_eq(eo_transformer_evaluate(b.transformer, b.runtime, NULL, &batch, &evaluated),
                 EO_OK);
    cr_assert_float_eq(evaluated, expected, 1e-5);
    double parts = 0;
    for (int half = 0; half < 2; half++) { /* an evaluation takes targets that do not count, and keeps its divisor */
        int32_t some[ROWS];
        for (int i = 0; i < ROWS; i++)
            some[i] = i % 2 == half ? targets[i] : -100;
        cr_assert_eq(eo_transformer_evaluate(b.transformer, b.runtime, NULL, &(eo_tokens){.tokens = tokens, .targets = some},
                                             &evaluated), EO_OK);
        parts += evaluated;
    }
    cr_assert_float_eq(parts, expected, 1e-5);

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

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

ParameterizedTestParameters(models, recompute_changes_no_bit)
{
    return cr_make_param_array(struct family_case, family_cases, FAMILY_CASES);
}

/*
 * Goal: what is computed again is what was there. Method: the bits of the loss and of all gradients, for every mode; and
 * each must take less memory than none, or it would be no recompute. Cheap ones do so with norms of heads alone: elsewhere all
 * that is cheap comes again from the kernels of gradients.
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
        params.dropout = c->dropout;
        params.recompute = modes[m].recompute;
        params.recompute_blocks = modes[m].blocks;
        struct bench other;
        bench_open(&other, params);
        bench_run(&other, NULL);
        assert_same_gradients(&none, &other, 0);
        const bool has_cheap = params.recompute != EO_RECOMPUTE_CHEAP || none.transformer->shape[true].head_norms;
        cr_assert(has_cheap ? fake_peak_bytes(other.runtime) < fake_peak_bytes(none.runtime)
                            : fake_peak_bytes(other.runtime) == fake_peak_bytes(none.runtime));
        double evaluated;
        cr_assert_eq(eo_transformer_evaluate(other.transformer, other.runtime, NULL, &batch,
                                             &evaluated), EO_OK);
        cr_assert_eq(evaluated == other.loss, !(c->dropout > 0));
        bench_close(&other);
    }
    bench_close(&none);
}

/* Up to 0.64e-6 was seen, on a level of kernels as on another. */
#define ROUNDING 1e-6

/*
 * Goal: neither chunks of the head (the last one shorter) nor halves as layers nor threads change the result, on any
 * processor. Method: kernels of each level that this one runs, each in a process of its own.
 */
static void agree_to_rounding(const char *level)
{
    eo_team *team;
    if (eo_kernels_select(level) == EO_ERR_UNSUPPORTED)
        return;
    cr_assert_str_eq(eo_kernels_name(), level);
    cr_assert_eq(eo_team_create(&team, 3), EO_OK);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        struct bench one, other;
        bench_open(&one, base_params((enum kind)kind, true));
        bench_run(&one, NULL);
        double *scales = bench_scales(&one);
        static const uint32_t chunk_counts[] = {2, 3, 4, ROWS};
        for (size_t i = 0; i < sizeof(chunk_counts) / sizeof(chunk_counts[0]); i++) {
            eo_transformer_params params = base_params((enum kind)kind, true);
            params.head_chunks = chunk_counts[i];
            bench_open(&other, params);
            bench_run(&other, NULL);
            assert_close_gradients(&one, &other, ROUNDING, scales);
            bench_close(&other);
        }
        eo_transformer_params halves = base_params((enum kind)kind, true);
        halves.half_blocks = true;
        halves.thread_count = 3;
        bench_open(&other, halves);
        bench_run(&other, NULL);
        assert_close_gradients(&one, &other, ROUNDING, scales);
        bench_run(&other, team);
        assert_close_gradients(&one, &other, ROUNDING, scales);
        bench_close(&other);
        eo_transformer_params together = base_params((enum kind)kind, true);
        together.unit_blocks = together.config.layer_count;
        bench_open(&other, together);
        bench_run(&other, NULL);
        assert_close_gradients(&one, &other, ROUNDING, scales);
        bench_close(&other);
        bench_close(&one);
        free(scales);
    }
    eo_team_destroy(&team);
}

Test(models, layers_of_several_blocks_are_named_by_them)
{
    eo_transformer_params params = base_params(GPT2, true);
    eo_transformer *transformer;
    params.config.layer_count = 5;
    params.unit_blocks = 2;
    cr_assert_eq(eo_transformer_create(&transformer, &params), EO_OK);
    const eo_model *model = eo_transformer_model(transformer);
    cr_assert_str_eq(eo_model_layer_name(model, 1), "block.0-1");
    cr_assert_str_eq(eo_model_layer_name(model, 2), "block.2-3");
    cr_assert_str_eq(eo_model_layer_name(model, 3), "block.4");
    eo_transformer_destroy(&transformer);
}

Test(models, chunks_halves_and_threads_agree_to_rounding)
{
    agree_to_rounding(eo_kernels_name());
}

Test(models, chunks_halves_and_threads_agree_to_rounding_on_avx2)
{
    agree_to_rounding("avx2");
}

Test(models, chunks_halves_and_threads_agree_to_rounding_without_vectors)
{
    agree_to_rounding("plain");
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
 * is dead, against what has to be there when the last block's passes run, added up by hand (in floats, and with
 * tokens and targets, which are as large).
 */
Test(models, no_more_memory_than_the_passes_need)
{
    enum { WIDTH = 12, MLP = 19, LAYERS = 2, HEADS = 3, STREAM = ROWS * WIDTH };
    enum { KEPT_INNER = ROWS * (3 * WIDTH + MLP), KEPT_MID = ROWS * WIDTH }; /* what GELU gave is in the scratch */
    enum { STATS = 4 * ROWS + ROWS * HEADS, NORMS = 2 * STREAM };
    enum { INPUTS = 2 * ROWS };
    enum { BLOCK = 2 * STREAM + STATS + KEPT_INNER + KEPT_MID }; /* norms come again in the scratch, but for a recompute */
    static const struct {
        eo_recompute recompute;
        uint64_t floats; /* all blocks as kept; one again in full; the stream's gradient */
    } cases[] = {
        {EO_RECOMPUTE_NONE, LAYERS * BLOCK + STREAM},
        {EO_RECOMPUTE_CHEAP, LAYERS * BLOCK + STREAM},
        {EO_RECOMPUTE_BLOCKS, LAYERS * STREAM + (BLOCK + NORMS - STREAM) + STREAM},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eo_transformer_params params = base_params(GPT2, true);
        params.recompute = cases[i].recompute;
        params.recompute_blocks = LAYERS;
        params.head_chunks = ROWS;
        struct bench b;
        bench_open(&b, params);
        bench_run(&b, NULL);
        /* d_mid, the norm's gradient, the bias gradient (each rounded up to 64 bytes) and what the kernels ask for, in bytes;
         * or in the forward pass a norm and what GELU gives, beside attention's scratch and the head's input, which is as
         * large as the gradient */
        const struct half *half = &b.transformer->halves[2 * LAYERS - 1];
        const struct half_scratch mlp = eo_half_scratch(b.transformer, half, ROWS);
        const struct half_scratch attention = eo_half_scratch(b.transformer, half - 1, ROWS);
        /* one norm for both halves: of the two among the floats where they are made again */
        const uint64_t passing = cases[i].recompute == EO_RECOMPUTE_BLOCKS ? ROWS * MLP - STREAM : ROWS * MLP + STREAM;
        const uint64_t forward = passing * sizeof(float) + attention.total - attention.kernels;
        const uint64_t most = max_u64(forward, max_u64(mlp.total, attention.total));
        const uint64_t expected = (cases[i].floats + INPUTS) * sizeof(float) + most;
        cr_assert_eq(fake_peak_bytes(b.runtime), expected, "%u: %llu, not %llu", (unsigned)i,
                     (unsigned long long)fake_peak_bytes(b.runtime), (unsigned long long)expected);
        cr_assert_leq(mlp.kernels, (ROWS * MLP + 16 + ROWS * WIDTH + 16 + MLP + 16) * sizeof(float));
        bench_close(&b);
    }
}
