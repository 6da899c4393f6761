/* SPDX-License-Identifier: MIT
 *
 * Low-rank adapters of the models of layers/, on the fake runtime: their gradients are right, nothing else gets one, and no way of
 * arranging the work changes them.
 * Method: the reference model in double has W + alpha / rank B A in the place of W; its finite differences are the gradients.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "reference_model.h"

struct adapter_case {
    enum kind kind;
    bool half_blocks;
    float dropout;
    char targets[40], kernels[12];
};

static struct adapter_case adapter_cases[] = {
    {GPT2, false, 0, "c_attn", "plain"},
    {GPT2, false, 0, "all-linear", "plain"},
    {GPT2, true, 0, "c_fc", "reference"},
    {GPT2, false, 0.3F, "c_proj", "reference"},
    {GPT2, false, 0, "all-linear", "reference"},
    {GPT2, true, 0, "mlp.c_proj", "plain"},
    {LLAMA, false, 0, "q_proj+v_proj", "plain"},
    {LLAMA, false, 0, "k_proj+up_proj", "reference"},
    {LLAMA, true, 0, "all-linear", "reference"},
    {LLAMA, false, 0.25F, "gate_proj+o_proj", "plain"},
    {QWEN2, false, 0, "v_proj", "plain"},
    {QWEN3, false, 0, "q_proj+k_proj", "plain"},
    {QWEN3, false, 0, "all-linear", "reference"},
    {LLAMA, true, 0, "down_proj", "plain"},
    {GPT2, false, 0, "c_fc", "plain"},
    {LLAMA, false, 0, "up_proj+down_proj", "reference"},
};
enum { CASES = sizeof(adapter_cases) / sizeof(adapter_cases[0]), RANK = 3 };
static const float alpha = 4.5F;

static eo_transformer_params params_of(const struct adapter_case *c)
{
    if (eo_kernels_select(c->kernels) < 0)
        abort();
    eo_transformer_params params = base_params(c->kind, true);
    params.half_blocks = c->half_blocks;
    params.dropout = c->dropout;
    params.lora = (eo_lora){.rank = RANK, .alpha = alpha, .targets = c->targets};
    return params;
}

/* W + scale B A of the parameter, if it has an adapter: its own values else. */
static void merge(const struct bench *b, uint32_t parameter, double *const *values, double *out)
{
    eo_parameter_info info;
    uint32_t found[2];
    cr_assert_eq(eo_model_parameter(b->model, parameter, &info), EO_OK);
    memcpy(out, values[parameter], info.element_count * sizeof(double));
    for (int i = 0; i < 2; i++) {
        char name[EO_NAME_MAX];
        snprintf(name, sizeof(name), "%.*slora_%c.weight", (int)(strlen(info.name) - strlen("weight")), info.name, "AB"[i]);
        if (info.dim_count != 2 || eo_model_find_parameter(b->model, name, &found[i]) < 0)
            return;
    }
    const uint64_t in = info.dims[1];
    for (uint64_t o = 0; o < info.dims[0]; o++)
        for (uint64_t i = 0; i < in; i++)
            for (uint64_t r = 0; r < RANK; r++)
                out[o * in + i] += (double)alpha / RANK * values[found[1]][o * RANK + r] * values[found[0]][r * in + i];
}

static double merged_loss(const struct bench *b, double *const *values, double **merged, const struct adapter_case *c)
{
    const struct reference_model reference = {eo_transformer_get_params(b->transformer)->config, b->model, merged, c->dropout,
                                              batch.random};
    for (uint32_t k = 0; k < b->parameter_count; k++)
        merge(b, k, values, merged[k]);
    return reference_loss(&reference, tokens, targets, BATCH, SEQ, NULL);
}

ParameterizedTestParameters(models, adapters_get_the_gradients_of_finite_differences)
{
    return cr_make_param_array(struct adapter_case, adapter_cases, CASES);
}

/* Goal: loss and gradients of A and B are right, and there are no others. Method: central differences. */
ParameterizedTest(struct adapter_case *c, models, adapters_get_the_gradients_of_finite_differences)
{
    struct bench b;
    bench_open(&b, params_of(c));
    bench_run(&b, NULL);
    double **w = double_weights(&b), **merged = double_weights(&b);
    cr_assert_float_eq(b.loss, merged_loss(&b, w, merged, c), 1e-5);
    uint32_t adapters = 0;
    for (uint32_t k = 0; k < b.parameter_count; k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(b.model, k, &info), EO_OK);
        cr_assert_eq(info.frozen, !eo_transformer_is_adapter(b.transformer, k));
        const float *got = fake_gradients(b.runtime, k);
        double largest = 0, *expected = calloc(info.element_count, sizeof(double));
        for (uint64_t i = 0; i < info.element_count && !info.frozen; i++) {
            const double h = 1e-5, value = w[k][i];
            w[k][i] = value + h;
            const double above = merged_loss(&b, w, merged, c);
            w[k][i] = value - h;
            const double below = merged_loss(&b, w, merged, c);
            w[k][i] = value;
            expected[i] = (double)LOSS_SCALE * (above - below) / (2 * h);
            largest = fmax(largest, fabs(expected[i]));
        }
        cr_assert(info.frozen || largest > 1e-5, "%s has no gradient to compare", info.name);
        for (uint64_t i = 0; i < info.element_count; i++)
            cr_assert(fabs((double)got[i] - expected[i]) <= 1e-4 * largest, "%s[%llu]: %.8g instead of %.8g", info.name,
                      (unsigned long long)i, (double)got[i], expected[i]);
        adapters += !info.frozen;
        free(expected);
    }
    cr_assert(adapters >= 4, "%u matrices of adapters", adapters);
    free_weights(&b, w);
    free_weights(&b, merged);
    bench_close(&b);
}

/* Every adapter of `b` has the same gradient in `other`. */
static void assert_same_adapters(const struct bench *b, const struct bench *other, double tolerance)
{
    cr_assert_float_eq(b->loss, other->loss, tolerance);
    for (uint32_t k = 0; k < b->parameter_count; k++) {
        eo_parameter_info info;
        uint32_t same;
        cr_assert_eq(eo_model_parameter(b->model, k, &info), EO_OK);
        cr_assert_eq(eo_model_find_parameter(other->model, info.name, &same), EO_OK);
        for (uint64_t i = 0; i < info.element_count; i++)
            cr_assert_float_eq((double)fake_gradients(b->runtime, k)[i], (double)fake_gradients(other->runtime, same)[i], tolerance,
                               "%s[%llu]", info.name, (unsigned long long)i);
    }
}

ParameterizedTestParameters(models, arrangements_change_nothing_of_adapters)
{
    return cr_make_param_array(struct adapter_case, adapter_cases, CASES);
}

/* Goal: recompute, halves, several blocks a unit, chunks of the head and threads change nothing. Method: each against the plain run. */
ParameterizedTest(struct adapter_case *c, models, arrangements_change_nothing_of_adapters)
{
    struct bench plain, other;
    eo_team *team;
    bench_open(&plain, params_of(c));
    bench_run(&plain, NULL);
    cr_assert_eq(eo_team_create(&team, 3), EO_OK);
    for (int way = 0; way < 7; way++) {
        eo_transformer_params params = params_of(c);
        params.recompute = way == 0 ? EO_RECOMPUTE_CHEAP : way <= 2 ? EO_RECOMPUTE_BLOCKS : EO_RECOMPUTE_NONE;
        params.recompute_blocks = way == 1 ? 1 : way == 2 ? 100 : 0;
        params.half_blocks = way == 3 ? !c->half_blocks : way == 4 ? false : c->half_blocks;
        params.unit_blocks = way == 4 ? 2 : 0;
        params.head_chunks = way == 5 ? 4 : 1;
        params.thread_count = way == 6 ? 3 : 1;
        bench_open(&other, params);
        bench_run(&other, way == 6 ? team : NULL);
        assert_same_adapters(&plain, &other, way < 3 ? 0 : 1e-6);
        bench_close(&other);
    }
    bench_close(&plain);
    eo_team_destroy(&team);
}

/* Goal: a fresh adapter changes nothing, by numbers of the seed alone. Method: the loss of the model without; pieces of any size. */
Test(models, fresh_adapters_compute_what_the_model_does)
{
    struct bench with, without, pieces;
    eo_transformer_params params = base_params(LLAMA, true);
    bench_open(&without, params);
    bench_run(&without, NULL);
    params.lora = (eo_lora){.rank = RANK};
    bench_open(&with, params);
    bench_open(&pieces, params);
    fake_set_fill_piece(pieces.runtime, 7);
    cr_assert_eq(eo_transformer_initialise_adapters(with.transformer, with.runtime, 5), EO_OK);
    cr_assert_eq(eo_transformer_initialise_adapters(pieces.transformer, pieces.runtime, 5), EO_OK);
    bench_run(&with, NULL);
    cr_assert_eq(with.loss, without.loss);
    uint32_t adapters = 0;
    for (uint32_t k = 0; k < with.parameter_count; k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(with.model, k, &info), EO_OK);
        cr_assert_eq(memcmp(fake_weights(with.runtime, k), fake_weights(pieces.runtime, k), info.element_count * sizeof(float)), 0);
        const bool is_a = strstr(info.name, "lora_A") != NULL;
        double most = 0, sum = 0;
        for (uint64_t i = 0; i < info.element_count; i++) {
            most = fmax(most, fabs((double)fake_weights(with.runtime, k)[i]));
            sum += (double)fake_weights(with.runtime, k)[i];
        }
        const double bound = 1 / sqrt((double)info.dims[1]);
        cr_assert(!is_a || (most > 0.7 * bound && most <= bound && fabs(sum) < 0.4 * bound * (double)info.element_count), "%s",
                  info.name);
        adapters += is_a;
    }
    cr_assert_eq(adapters, 2 * 7);
    bench_close(&with);
    bench_close(&pieces);
    bench_close(&without);
}

/* Goal: what is frozen costs no product of its own, and keeps no input for one. Method: the list of products, and the fake's peak:
 * that of training all, whose inputs come again from the kernels of gradients. */
Test(models, frozen_weights_have_no_product_and_keep_no_input)
{
    struct bench with, without;
    eo_transformer_params params = base_params(GPT2, true);
    bench_open(&without, params);
    params.lora = (eo_lora){.rank = RANK, .targets = "c_attn"};
    bench_open(&with, params);
    eo_product products[32];
    const uint32_t count = eo_transformer_products(with.transformer, products, 32);
    for (uint32_t i = 0; i < count; i++)
        cr_assert(!strstr(products[i].name, "weight gradient") || strstr(products[i].name, "adapters"), "%s", products[i].name);
    enum { WIDTH = 12, MLP = 19, LAYERS = 2 };
    const double frozen = VOCABULARY * WIDTH + LAYERS * WIDTH * (4.0 * WIDTH + 2 * MLP), low = LAYERS * RANK * (WIDTH + 3 * WIDTH);
    cr_assert_float_eq(eo_transformer_flops(without.transformer) - eo_transformer_flops(with.transformer),
                       (2 * frozen - 6 * low) * ROWS, 0.5);
    bench_run(&with, NULL);
    bench_run(&without, NULL);
    /* the first norm, through which no gradient goes */
    cr_assert_leq(fake_peak_bytes(with.runtime), fake_peak_bytes(without.runtime) + ROWS * WIDTH * sizeof(float) +
                                                     LAYERS * eo_adapter_low_bytes(with.transformer, ROWS));
    bench_close(&with);
    bench_close(&without);
}

static char said[600];

static void listen(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    snprintf(said, sizeof(said), "%s", text);
}

/* Goal: what cannot be is refused by name. Method: each of them once. */
Test(models, wrong_adapters_are_refused)
{
    static const struct {
        enum kind kind;
        eo_lora lora;
        const char *text;
    } cases[] = {
        {GPT2, {.rank = 2, .targets = "q_proj"}, "'q_proj' for an adapter; they have c_attn, c_proj, c_fc"},
        {LLAMA, {.rank = 2, .targets = "q_proj+proj"}, "'proj' for an adapter; they have q_proj, k_proj, v_proj, o_proj, gate_proj"},
        {LLAMA, {.rank = 2, .targets = "q_proj+"}, "'' for an adapter"},
        {GPT2, {.rank = 13}, "lora.rank 13"},
        {LLAMA, {.rank = 5, .targets = "k_proj"}, "at most 4 is possible"},
        {GPT2, {.rank = 2, .alpha = -1}, "lora.alpha is -1"},
        {GPT2, {.rank = 2, .alpha = NAN}, "lora.alpha is nan"},
    };
    const eo_log log = {.write = listen, .level = EO_LOG_ERROR};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eo_transformer *transformer;
        eo_transformer_params params = base_params(cases[i].kind, true);
        params.lora = cases[i].lora;
        params.log = &log;
        said[0] = '\0';
        cr_assert_eq(eo_transformer_create(&transformer, &params), EO_ERR_INVALID);
        cr_assert(strstr(said, cases[i].text), "'%s' instead of '%s'", said, cases[i].text);
    }
}
