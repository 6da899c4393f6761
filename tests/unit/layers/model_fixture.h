/* SPDX-License-Identifier: MIT
 *
 * What the tests of models share: small models of odd sizes on the fake runtime, one micro-batch of tokens, and gradients
 * compared.
 */
#ifndef EO_TESTS_UNIT_LAYERS_MODEL_FIXTURE_H
#define EO_TESTS_UNIT_LAYERS_MODEL_FIXTURE_H

#include "fake_runtime.h"
#include "layers/transformer/internal.h"

#define LOSS_SCALE 0.5F
enum { BATCH = 2, SEQ = 5, ROWS = BATCH * SEQ, VOCABULARY = 11 };

extern const int32_t tokens[ROWS], targets[ROWS];
extern const eo_tokens batch;

/* Qwen3's heads together are wider than the model; both: no published family, but a config may ask for it. LINEAR and
 * LLAMA3 have rotary positions that are scaled; a head of LLAMA3 has a pair that is kept, one that is divided, and blends.
 * Every second block of SMOLLM3 has none. */
enum kind { GPT2, LLAMA, QWEN2, QWEN3, BIAS_AND_NORM, LINEAR, LLAMA3, SMOLLM3, KIND_COUNT };

eo_transformer_params base_params(enum kind kind, bool tied);

/* Each of them, whole or in halves. */
struct family_case {
    enum kind kind;
    bool tied, half_blocks;
    float dropout;
};
enum { FAMILY_CASES = 17 };
extern struct family_case family_cases[FAMILY_CASES];

eo_transformer_params case_params(const struct family_case *c, uint32_t threads);

/* A transformer on a fake runtime, with weights large enough for every term to count. */
struct bench {
    eo_transformer *transformer;
    eo_runtime *runtime;
    const eo_model *model;
    uint32_t parameter_count;
    double loss;
};

void bench_open(struct bench *b, eo_transformer_params params);
void bench_close(struct bench *b);
void bench_run(struct bench *b, eo_team *team); /* a micro-batch, from gradients of zero */
uint64_t count_of(const struct bench *b, uint32_t parameter);

/* All weights, by parameter. */
double **double_weights(const struct bench *b);
void free_weights(const struct bench *b, double **all);

/* Every parameter of `other` has the gradient that the one of the same name has in `b`, within `tolerance` of its largest. */
void assert_same_gradients(const struct bench *b, const struct bench *other, double tolerance);

/*
 * Scales of rounding, one a parameter, to be freed: a gradient is a sum over targets, which may cancel, while the rounding of
 * each term stays. So the terms count: their sizes added up, for the element where that is most.
 */
double *bench_scales(const struct bench *b);

/* The same within `tolerance` of scales. */
void assert_close_gradients(const struct bench *b, const struct bench *other, double tolerance, const double *scales);

#endif
