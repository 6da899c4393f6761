/* SPDX-License-Identifier: MIT */
#include "model_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const int32_t tokens[ROWS] = {3, 0, 10, 3, 7, 1, 1, 4, 9, 3};
const int32_t targets[ROWS] = {0, 10, 3, 7, 2, 1, 4, 9, 3, 5};
const eo_tokens batch = {.tokens = tokens, .targets = targets, .random = {.seed = 1, .step = 7, .sample = 4}};

/* Heads of size 4; queries in groups of three; an MLP that no vector width divides; a context longer than seq. */
#define GPT2_CONFIG                                                                                                   \
    {.family = EO_FAMILY_GPT2, .layer_count = 2, .width = 12, .head_count = 3, .mlp_width = 19,                       \
     .vocabulary = VOCABULARY, .context = 7}
#define LLAMA_CONFIG                                                                                                  \
    {.family = EO_FAMILY_LLAMA, .layer_count = 2, .width = 12, .head_count = 3, .kv_head_count = 1, .mlp_width = 17,  \
     .vocabulary = VOCABULARY, .context = 7, .rope_theta = 100}

struct family_case family_cases[FAMILY_CASES] = {
    {GPT2, true, false, 0},    {GPT2, false, false, 0},          {GPT2, true, true, 0},
    {LLAMA, false, false, 0},  {LLAMA, true, false, 0},          {LLAMA, false, true, 0},
    {QWEN2, true, false, 0},   {QWEN2, false, true, 0},          {QWEN3, true, false, 0},
    {QWEN3, false, true, 0},   {BIAS_AND_NORM, false, false, 0}, {LINEAR, false, false, 0},
    {LLAMA3, false, true, 0},  {SMOLLM3, true, false, 0},        {SMOLLM3, false, true, 0},
    {GPT2, true, false, 0.3F}, {LLAMA, false, true, 0.25F},
};

eo_transformer_params base_params(enum kind kind, bool tied)
{
    eo_transformer_params p = {.batch = BATCH, .seq = SEQ};
    p.config = kind == GPT2 ? (eo_transformer_config)GPT2_CONFIG : (eo_transformer_config)LLAMA_CONFIG;
    p.config.tied_head = tied;
    p.config.qkv_bias = kind == QWEN2 || kind == BIAS_AND_NORM;
    p.config.qk_norm = kind == QWEN3 || kind == BIAS_AND_NORM;
    p.config.head_size = kind == QWEN3 ? 6 : kind == LLAMA3 ? 8 : 0;
    p.config.unrotated_interval = kind == SMOLLM3 ? 2 : 0;
    if (kind == LINEAR)
        p.config.rope_scaling = (eo_rope_scaling){.kind = EO_ROPE_LINEAR, .factor = 2.5F};
    if (kind == LLAMA3)
        p.config.rope_scaling = (eo_rope_scaling){
            .kind = EO_ROPE_LLAMA3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 64};
    return p;
}

eo_transformer_params case_params(const struct family_case *c, uint32_t threads)
{
    eo_transformer_params params = base_params(c->kind, c->tied);
    params.half_blocks = c->half_blocks;
    params.dropout = c->dropout;
    params.thread_count = threads;
    return params;
}

uint64_t count_of(const struct bench *b, uint32_t parameter)
{
    eo_parameter_info info;
    cr_assert_eq(eo_model_parameter(b->model, parameter, &info), EO_OK);
    return info.element_count;
}

double **double_weights(const struct bench *b)
{
    double **all = calloc(b->parameter_count, sizeof(*all));
    for (uint32_t k = 0; k < b->parameter_count; k++) {
        all[k] = calloc(count_of(b, k), sizeof(double));
        for (uint64_t i = 0; i < count_of(b, k); i++)
            all[k][i] = fake_weights(b->runtime, k)[i];
    }
    return all;
}

void free_weights(const struct bench *b, double **all)
{
    for (uint32_t k = 0; k < b->parameter_count; k++)
        free(all[k]);
    free(all);
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

void bench_open(struct bench *b, eo_transformer_params params)
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

void bench_close(struct bench *b)
{
    fake_destroy(b->runtime);
    eo_transformer_destroy(&b->transformer);
}

void bench_run(struct bench *b, eo_team *team)
{
    fake_clear_gradients(b->runtime);
    cr_assert_eq(eo_transformer_micro_batch(b->transformer, b->runtime, team, &batch, &b->loss),
                 EO_OK);
}

/* What the first `seq` targets of a sequence give alone: a sum over them, of which the mean over all rows is one part. */
static void run_beginning(struct bench *b, eo_transformer_params params, uint32_t sequence, uint32_t seq)
{
    const uint32_t first = sequence * SEQ;
    params.batch = 1;
    params.seq = seq;
    bench_open(b, params);
    fake_clear_gradients(b->runtime);
    cr_assert_eq(eo_transformer_micro_batch(b->transformer, b->runtime, NULL,
                                            &(eo_tokens){.tokens = tokens + first, .targets = targets + first}, &b->loss),
                 EO_OK);
}

double *bench_scales(const struct bench *b)
{
    const eo_transformer_params params = *eo_transformer_get_params(b->transformer);
    double *scales = calloc(b->parameter_count, sizeof(*scales));
    struct bench beginnings[BATCH][SEQ + 1];
    for (uint32_t s = 0; s < BATCH; s++)
        for (uint32_t seq = 1; seq <= SEQ; seq++)
            run_beginning(&beginnings[s][seq], params, s, seq);
    for (uint32_t k = 0; k < b->parameter_count; k++) {
        for (uint64_t i = 0; i < count_of(b, k); i++) {
            double sum = 0;
            for (uint32_t s = 0; s < BATCH; s++) {
                double before = 0;
                for (uint32_t seq = 1; seq <= SEQ; seq++) {
                    const double all = (double)fake_gradients(beginnings[s][seq].runtime, k)[i] * seq / ROWS;
                    sum += fabs(all - before);
                    before = all;
                }
            }
            scales[k] = fmax(scales[k], sum);
        }
    }
    for (uint32_t s = 0; s < BATCH; s++)
        for (uint32_t seq = 1; seq <= SEQ; seq++)
            bench_close(&beginnings[s][seq]);
    return scales;
}

void assert_close_gradients(const struct bench *b, const struct bench *other, double tolerance, const double *scales)
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
            if (largest < fabs((double)g[i])) /* by fmax, gcc 12 fails for ARM */
                largest = fabs((double)g[i]);
        cr_assert(largest > 0, "%s has no gradient", info.name);
        if (tolerance == 0)
            cr_assert_eq(memcmp(g, h, info.element_count * sizeof(float)), 0, "%s: other bits", info.name);
        for (uint64_t i = 0; i < info.element_count; i++)
            cr_assert(fabs((double)g[i] - (double)h[i]) <= tolerance * (scales ? scales[k] : largest), "%s[%llu]: %g and %g",
                      info.name, (unsigned long long)i, (double)g[i], (double)h[i]);
    }
}

void assert_same_gradients(const struct bench *b, const struct bench *other, double tolerance)
{
    assert_close_gradients(b, other, tolerance, NULL);
}
