/* SPDX-License-Identifier: MIT
 *
 * The models of layers/: what is known of them without a pass.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "model_fixture.h"

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

/* Goal: initial weights have the config's deviation. Method: twice 0.02 gives twice the values, 0.02 those of before. */
Test(models, initial_deviation_scales_all_matrices)
{
    eo_transformer_params params = {.seq = 16};
    cr_assert_eq(eo_transformer_preset("llama-tiny", &params.config), EO_OK);
    struct bench before, same, twice;
    bench_open(&before, params);
    params.config.initial_deviation = 0.02F;
    bench_open(&same, params);
    params.config.initial_deviation = 0.04F;
    bench_open(&twice, params);
    cr_assert_eq(eo_transformer_initialise(before.transformer, before.runtime, 42), EO_OK);
    cr_assert_eq(eo_transformer_initialise(same.transformer, same.runtime, 42), EO_OK);
    cr_assert_eq(eo_transformer_initialise(twice.transformer, twice.runtime, 42), EO_OK);
    for (uint32_t k = 0; k < before.parameter_count; k++) {
        eo_parameter_info info;
        cr_assert_eq(eo_model_parameter(before.model, k, &info), EO_OK);
        const float *w = fake_weights(before.runtime, k), *v = fake_weights(twice.runtime, k);
        cr_assert_eq(memcmp(w, fake_weights(same.runtime, k), info.element_count * sizeof(float)), 0, "%s", info.name);
        for (uint64_t i = 0; i < info.element_count; i++)
            cr_assert_float_eq(v[i], info.dim_count == 1 ? w[i] : 2 * w[i], 1e-6, "%s", info.name);
    }
    bench_close(&before);
    bench_close(&same);
    bench_close(&twice);
}
