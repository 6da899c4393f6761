/* SPDX-License-Identifier: MIT
 *
 * Token after token. Goal: logits with the cache of keys and values are those of a forward run over all tokens. Method: every
 * small model of the fixture and presets of all families, tokens in pieces of several lengths, each against
 * eo_transformer_logits, to rounding.
 */
#include "model_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens come 1, 3, 1, 2, 70, ... at a time. */
static void compare(struct bench *b, eo_team *team, const int32_t *text, uint32_t count, double tolerance)
{
    static const uint32_t pieces[] = {1, 3, 1, 2, 70};
    const uint32_t vocabulary = eo_transformer_get_params(b->transformer)->config.vocabulary;
    float *expected = calloc(vocabulary, sizeof(float)), *got = calloc(vocabulary, sizeof(float));
    eo_decoder *decoder = NULL;
    cr_assert_eq(eo_decoder_create(&decoder, b->transformer, b->runtime, eo_team_thread_count(team)), EO_OK);
    for (uint32_t done = 0, p = 0; done < count; p++) {
        const uint32_t wanted = pieces[p % 5], piece = count - done < wanted ? count - done : wanted;
        cr_assert_eq(eo_decoder_run(decoder, team, text + done, piece, got), EO_OK);
        done += piece;
        cr_assert_eq(eo_decoder_count(decoder), done);
        cr_assert_eq(eo_transformer_logits(b->transformer, b->runtime, team, text, done - 1, expected), EO_OK);
        double largest = 0;
        for (uint32_t v = 0; v < vocabulary; v++)
            if (largest < fabs((double)expected[v])) /* by fmax, gcc 12 fails for ARM */
                largest = fabs((double)expected[v]);
        for (uint32_t v = 0; v < vocabulary; v++)
            cr_assert_float_eq(got[v], expected[v], tolerance * largest, "token %u, logit %u: %g and %g", done - 1, v,
                               (double)got[v], (double)expected[v]);
    }
    if (count < eo_transformer_get_params(b->transformer)->seq) /* again from the start */
        eo_decoder_forget(decoder);
    else
        cr_assert_eq(eo_decoder_run(decoder, team, text, 1, got), EO_ERR_INVALID);
    eo_decoder_destroy(&decoder);
    free(expected);
    free(got);
}

Test(decoder, has_the_logits_of_a_forward_run)
{
    eo_team *team;
    cr_assert_eq(eo_team_create(&team, 2), EO_OK);
    for (int i = 0; i < FAMILY_CASES; i++)
        for (int recompute = EO_RECOMPUTE_NONE; recompute <= EO_RECOMPUTE_BLOCKS; recompute++) {
            struct bench b;
            eo_transformer_params params = case_params(&family_cases[i], 2);
            params.recompute = (eo_recompute)recompute;
            params.recompute_blocks = 1;
            bench_open(&b, params);
            compare(&b, team, tokens, SEQ, 2e-6);
            bench_close(&b);
        }
    eo_team_destroy(&team);
}

/* As an initialisation has them: the fixture's are for small models, and would blow up rounding in these. */
static void make_matrices_small(struct bench *b)
{
    for (uint32_t k = 0; k < b->parameter_count; k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(b->model, k, &info), EO_OK);
        for (uint64_t i = 0; info.dim_count == 2 && i < info.element_count; i++)
            fake_weights(b->runtime, k)[i] *= 0.1F;
    }
}

/* Goal: scores whose exponentials are no floats. Method: the fixture's scores are a few units, and grow by 400 with q and k. */
Test(decoder, has_the_logits_of_a_forward_run_with_large_scores)
{
    eo_team *team;
    struct bench b;
    cr_assert_eq(eo_team_create(&team, 2), EO_OK);
    bench_open(&b, case_params(&family_cases[3], 2));
    for (uint32_t k = 0; k < b.parameter_count; k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(b.model, k, &info), EO_OK);
        for (uint64_t i = 0; (strstr(info.name, ".q_proj.") || strstr(info.name, ".k_proj.")) && i < info.element_count; i++)
            fake_weights(b.runtime, k)[i] *= 20;
    }
    compare(&b, team, tokens, SEQ, 1e-4);
    bench_close(&b);
    eo_team_destroy(&team);
}

Test(decoder, has_the_logits_of_a_forward_run_in_presets)
{
    static const char *const names[] = {"tiny", "llama-tiny", "qwen2-tiny", "qwen3-tiny"};
    eo_team *team;
    int32_t text[150];
    cr_assert_eq(eo_team_create(&team, 2), EO_OK);
    for (int i = 0; i < 150; i++)
        text[i] = (i * 37 + i * i) % 256;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct bench b;
        eo_transformer_params params = {.batch = 1, .seq = 150, .thread_count = 2};
        cr_assert_eq(eo_transformer_preset(names[i], &params.config), EO_OK);
        bench_open(&b, params);
        make_matrices_small(&b);
        compare(&b, team, text, 150, 5e-6);
        bench_close(&b);
    }
    eo_team_destroy(&team);
}

static double largest_difference(const float *a, const float *b, uint32_t count)
{
    double largest = 0;
    for (uint32_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)a[i] - (double)b[i]));
    return largest;
}

/*
 * Decoder and forward run round to bf16 at the same places, but add up in other orders, and a model of these weights
 * multiplies what that changes. How much, the forward run's own distance from fp32 says: the decoder may have a few times that.
 */
Test(decoder, is_as_near_to_fp32_as_a_forward_run_in_bf16)
{
    eo_team *team;
    cr_assert_eq(eo_team_create(&team, 2), EO_OK);
    for (int i = 0; i < 2 * FAMILY_CASES; i++) {
        struct bench fp32, bf16;
        eo_transformer_params params = case_params(&family_cases[i / 2], 2);
        bench_open(&fp32, params);
        params.dtype = EO_DTYPE_BF16;
        params.fp32_norms = i % 2;
        bench_open(&bf16, params);
        fake_set_types(bf16.runtime, EO_DTYPE_BF16, EO_DTYPE_FP32);
        eo_decoder *decoder;
        cr_assert_eq(eo_decoder_create(&decoder, bf16.transformer, bf16.runtime, 2), EO_OK);
        double forward_error = 0, decoder_error = 0;
        for (uint32_t done = 0, piece = 1; done < SEQ; piece = done == 1 ? 3 : 1) {
            float exact[VOCABULARY], forward[VOCABULARY], decoded[VOCABULARY];
            cr_assert_eq(eo_decoder_run(decoder, team, tokens + done, piece, decoded), EO_OK);
            done += piece;
            cr_assert_eq(eo_transformer_logits(fp32.transformer, fp32.runtime, team, tokens, done - 1, exact), EO_OK);
            cr_assert_eq(eo_transformer_logits(bf16.transformer, bf16.runtime, team, tokens, done - 1, forward), EO_OK);
            forward_error = fmax(forward_error, largest_difference(forward, exact, VOCABULARY));
            decoder_error = fmax(decoder_error, largest_difference(decoded, exact, VOCABULARY));
        }
        cr_assert(decoder_error <= 3 * forward_error, "case %d: %g away from fp32, the forward run %g", i, decoder_error,
                  forward_error);
        eo_decoder_destroy(&decoder);
        bench_close(&bf16);
        bench_close(&fp32);
    }
    eo_team_destroy(&team);
}

Test(decoder, takes_a_team_as_large_as_it_was_made_for)
{
    eo_team *team;
    eo_decoder *decoder = NULL;
    struct bench b;
    cr_assert_eq(eo_team_create(&team, 3), EO_OK);
    bench_open(&b, case_params(&family_cases[0], 1));
    cr_assert_eq(eo_decoder_create(&decoder, b.transformer, b.runtime, 2), EO_OK);
    cr_assert_eq(eo_decoder_run(decoder, team, tokens, 1, NULL), EO_ERR_INVALID);
    eo_decoder_destroy(&decoder);
    cr_assert_eq(eo_decoder_create(&decoder, b.transformer, b.runtime, 3), EO_OK);
    cr_assert_eq(eo_decoder_run(decoder, team, tokens, 1, NULL), EO_OK);
    eo_decoder_destroy(&decoder);
    bench_close(&b);
    eo_team_destroy(&team);
}
