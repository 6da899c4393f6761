/* SPDX-License-Identifier: MIT
 *
 * The models of layers/: what is refused, by name and before anything is done.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model_fixture.h"

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
    cr_assert_eq(eo_transformer_micro_batch(b.transformer, b.runtime, NULL, &bad, &loss), EO_ERR_INVALID);
    cr_assert(strstr(said, "targets[6] is -1") && strstr(said, "summed_loss"), "%s", said);
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

/* Goal: a micro-batch in a run for gradients of inputs alone is refused. Method: both families; then a step works. */
Test(models, passes_without_gradients_of_weights_are_refused)
{
    for (int family = 0; family < 2; family++) {
        eo_transformer_params params = base_params(family ? LLAMA : GPT2, true);
        params.log = &listening;
        struct bench b;
        bench_open(&b, params);
        fake_set_inputs_alone(b.runtime, true);
        cr_assert_eq(eo_transformer_micro_batch(b.transformer, b.runtime, NULL, &batch, NULL), EO_ERR_INVALID);
        cr_assert(strstr(said, "behind eo_input_gradients_begin"), "%s", said);
        fake_restart(b.runtime);
        fake_set_inputs_alone(b.runtime, false);
        bench_run(&b, NULL);
        bench_close(&b);
    }
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
    REFUSED(good, dtype = (eo_dtype)7, "dtype 7 or reduce_dtype 0 is neither");
    REFUSED(good, reduce_dtype = (eo_dtype)7, "dtype 0 or reduce_dtype 7 is neither");
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
    REFUSED(good, config.initial_deviation = -1, "initial_deviation -1");
    REFUSED(good, config.initial_deviation = INFINITY, "initial_deviation inf");
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
    REFUSED(good, config.head_size = 6, "heads with the total width of the model");
    REFUSED(good, config.qk_norm = true, "neither qkv_bias nor qk_norm");
    REFUSED(llama, config.rope_theta = -3, "rope_theta -3");
    REFUSED(good, config.unrotated_interval = 4, "unrotated_interval 4 with GPT-2");
    REFUSED(llama, config.rope_scaling.kind = (eo_rope_kind)7, "rope_scaling.kind 7");
    REFUSED(llama, config.rope_scaling.factor = 2, "factor 2 belongs to a kind");
    REFUSED(llama, config.rope_scaling.original_context = 64, "belong to kind llama3");
    REFUSED(llama, config.rope_scaling.kind = EO_ROPE_LINEAR, "factor 0 must be at least 1");
    eo_transformer_params scaled = llama;
    scaled.config.rope_scaling = (eo_rope_scaling){
        .kind = EO_ROPE_LLAMA3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 64};
    REFUSED(scaled, config.rope_scaling.factor = 0.5F, "factor 0.5 must be at least 1");
    REFUSED(scaled, config.rope_scaling.factor = NAN, "must be at least 1");
    REFUSED(scaled, config.rope_scaling.low_freq_factor = 4, "low_freq_factor 4 must be above 0 and below");
    REFUSED(scaled, config.rope_scaling.high_freq_factor = INFINITY, "below high_freq_factor, inf");
    REFUSED(scaled, config.rope_scaling.original_context = 0, "original_context is 0");
    REFUSED(scaled, config.rope_scaling.kind = EO_ROPE_LINEAR, "belong to kind llama3");
    REFUSED(scaled, config.family = EO_FAMILY_GPT2, "no rotary positions to scale");
#undef REFUSED
}
