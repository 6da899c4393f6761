/* SPDX-License-Identifier: MIT
 *
 * Numbers of the optimizer: those that are refused, and those that are taken as they are written.
 */
#include <math.h>

#include "tests/conformance/misuse/misuse.h"

/* At eo_step_end. Whoever then gives good ones goes on as if nothing had been. */
void refuse_step_params(eo_runtime *rt)
{
    static const struct {
        eo_step_params params;
        const char *says;
    } cases[] = {
        {{.learning_rate = -1}, "learning_rate is -1"},
        {{.learning_rate = NAN}, "learning_rate is"},
        {{.learning_rate = INFINITY}, "learning_rate is inf"},
        {{.learning_rate = 0}, "learning_rate is 0, which the optimizer takes for not given; if it is meant"},
        {{.learning_rate = 1, .beta1 = 2}, "beta1 is 2; it must be at least 0 and below 1"},
        {{.learning_rate = 1, .beta1 = 1}, "beta1 is 1;"},
        {{.learning_rate = 1, .beta1 = -0.5F}, "beta1 is -0.5"},
        {{.learning_rate = 1, .beta2 = 2}, "beta2 is 2;"},
        {{.learning_rate = 1, .beta2 = NAN, .exact = true}, "beta2 is"},
        {{.learning_rate = 1, .eps = -1}, "eps is -1; it must be finite and not negative"},
        {{.learning_rate = 1, .eps = INFINITY}, "eps is inf"},
        {{.learning_rate = 1, .weight_decay = NAN}, "weight_decay is"},
        {{.learning_rate = 1, .weight_decay = -1}, "weight_decay is -1"},
        {{.learning_rate = 1, .weight_decay = INFINITY}, "weight_decay is inf"},
        {{.learning_rate = 1, .clip = -1}, "clip is -1"},
        {{.learning_rate = 1, .ema_decay = 1.5f}, "ema_decay is 1.5; it must be from 0 to 1"},
        {{.learning_rate = 1, .momentum = 1}, "momentum is 1;"},
        {{.learning_rate = 1, .clip = NAN}, "clip is"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        REFUSED(rt, eo_step_end(rt, &cases[i].params, NULL), cases[i].says);
}

/* The weight of layer 0 whose gradients are 0.25 and then -1, and one without any; with other numbers in the first step. */
static void weights_after_two(const eo_step_params *first, const eo_step_params *second, float weights[2])
{
    struct scene scene;
    eo_runtime *rt;
    static float matrix[20000];
    open_scene(&scene, "edges", 1, 0);
    must(open_runtime(&scene, 0, &rt), "runtime");
    for (int step = 0; step < 2; step++) {
        must(passes(&scene, rt, 0, step ? -1 : 0.25F), "passes");
        must(eo_step_end(rt, step ? second : first, NULL), "end");
    }
    must(eo_weights_read(rt, "matrix0", matrix), "read");
    weights[0] = matrix[0];
    weights[1] = matrix[1];
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

static void weights_after(const eo_step_params *params, float weights[2])
{
    weights_after_two(params, params, weights);
}

/*
 * With `exact` a 0 is a 0: AdamW without memory and eps goes a learning rate down, and one up again. Without it a 0 is the
 * default, to the bit. A learning rate of 0 changes nothing.
 */
void exact_step_params(void)
{
    float zeros[2], defaults[2], given[2];
    weights_after(eo_step_params(.learning_rate = 0.125F, .exact = true), zeros);
    TEST_EXPECT(NULL, zeros[0] == 0 && zeros[1] == 0, "%g and %g", (double)zeros[0], (double)zeros[1]);
    weights_after(eo_step_params(.learning_rate = 0.125F), defaults);
    weights_after(eo_step_params(.learning_rate = 0.125F, .beta1 = 0.9F, .beta2 = 0.999F, .eps = 1e-8F, .exact = true), given);
    TEST_EXPECT(NULL, memcmp(defaults, given, sizeof(given)) == 0 && fabsf(defaults[0]) > 0.01F && defaults[1] == 0,
                "%g and %g", (double)defaults[0], (double)given[0]);
    weights_after(eo_step_params(.beta1 = 0.9F, .beta2 = 0.999F, .eps = 1e-8F, .exact = true), given);
    TEST_EXPECT(NULL, given[0] == 0 && given[1] == 0, "%g and %g", (double)given[0], (double)given[1]);
    /* A warmup's first step: the moments have its gradient. AdamW's formula for 0.25 and -1, in double. */
    weights_after_two(eo_step_params(.exact_rate = true), eo_step_params(.learning_rate = 0.125F), given);
    const double first = (0.9 * 0.1 * 0.25 - 0.1) / (1 - 0.81), second = (0.999 * 0.001 * 0.0625 + 0.001) / (1 - 0.999 * 0.999);
    const double wanted = -0.125 * first / (sqrt(second) + 1e-8);
    TEST_EXPECT(NULL, fabs(given[0] - wanted) < 1e-6 && given[1] == 0, "%g in place of %g", (double)given[0], wanted);
    weights_after(eo_step_params(.learning_rate = 0.125F, .clip = INFINITY), given);
    TEST_EXPECT(NULL, given[0] == defaults[0], "%g and %g", (double)defaults[0], (double)given[0]);
}

/* Most gradients are 0, of which an infinite factor would make NaN. */
void small_divisors(void)
{
    static const eo_step_params cases[] = {{.loss_scale = 1e-40F}, {.weight = 1e-50}, {.weight = 0.5, .loss_scale = 1e-38F}};
    static float matrix[20000];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;
        eo_runtime *rt;
        eo_step_params params = cases[i];
        open_scene(&scene, "edges", 1, 0);
        must(open_runtime(&scene, 0, &rt), "runtime");
        params.learning_rate = 1;
        params.on_not_finite = EO_SKIP;
        must(passes(&scene, rt, 0, i == 2 ? 8 : 0), "passes");
        must(eo_step_end(rt, &params, NULL), "end");
        must(eo_weights_read(rt, "matrix0", matrix), "read");
        TEST_EXPECT(NULL, matrix[0] == 0 && matrix[1] == 0, "%g and %g", (double)matrix[0], (double)matrix[1]);
        params.on_not_finite = EO_STOP;
        must(passes(&scene, rt, 0, i == 2 ? 8 : 0), "passes");
        TEST_HOLDS(NULL, eo_step_end(rt, &params, NULL) == EO_ERR_NOT_FINITE);
        TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), "(loss_scale or weight is so small that"), "'%s'", eo_runtime_error(rt));
        eo_runtime_destroy(&rt);
        close_scene(&scene);
    }
}

static void count_updates(void *user, const eo_shard *shard)
{
    (void)shard;
    ++*(uint32_t *)user;
}

void numbers_that_update_does_not_see(void)
{
    static const struct {
        eo_parameter_group group;
        const char *says;
    } cases[] = {
        {{.frozen = true}, "groups[0].frozen would have no effect: the optimizer is the trainer's own `update`"},
        {{.learning_rate_factor = 0.1F}, "groups[0].numbers of the optimizer would have no effect"},
        {{.weight_decay = 0.1F}, "would have no effect"},
        {{.beta1 = 0.1F}, "would have no effect"},
        {{.beta2 = 0.1F}, "would have no effect"},
        {{.eps = 0.1F}, "would have no effect"},
        {{.exact = true}, "would have no effect"},
    };
    struct scene scene;
    eo_runtime *rt;
    uint32_t calls = 0;
    open_scene(&scene, "edges", 1, 0);
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0], .update = count_updates,
                                                  .update_user = &calls, .log = &eo_test_log)),
         "runtime");
    must(passes(&scene, rt, 0, 0.25F), "passes");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        REFUSED(rt, eo_step_end(rt, eo_step_params(.groups = &cases[i].group, .group_count = 1), NULL), cases[i].says);
    TEST_HOLDS(NULL, calls == 0);
    must(eo_step_end(rt, eo_step_params(.groups = &(eo_parameter_group){0}, .group_count = 1), NULL), "end");
    TEST_HOLDS(NULL, calls == LAYERS);
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/* A step whose number would be lost is refused before its weights change, and can be given again. */
void numbers_that_nobody_reads(void)
{
    static const eo_parameter_group with_beta2 = {.beta2 = 0.5F};
    static const struct {
        eo_optimizer optimizer;
        eo_step_params lost, taken;
        const char *says;
    } cases[] = {
        {EO_OPTIMIZER_SGD, {.momentum = 0.5F}, {.beta1 = 0.5F}, "momentum would have no effect: it is that of Muon's matrices; SGD's is beta1"},
        {EO_OPTIMIZER_SGD, {.beta2 = 0.5F}, {.beta2 = 0.5F, .exact = true}, "beta2 would have no effect: SGD has none"},
        {EO_OPTIMIZER_SGD, {.eps = 1e-8F}, {.eps = 1e-8F, .exact = true}, "eps would have no effect: SGD has none"},
        {EO_OPTIMIZER_SGD, {.groups = &with_beta2, .group_count = 1}, {.beta1 = 0.5F}, "beta2 would have no effect: SGD has none"},
        {EO_OPTIMIZER_LION, {.eps = 1e-8F}, {.beta2 = 0.5F}, "eps would have no effect: Lion has none"},
        {EO_OPTIMIZER_ADAMW, {.momentum = 0.5F}, {.eps = 1e-8F}, "momentum would have no effect: it is that of Muon's matrices"},
        {EO_OPTIMIZER_ADAMW, {.ema_decay = 0.5F}, {.beta2 = 0.5F}, "ema_decay would have no effect: the plan has no average; plan with ema"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;
        eo_runtime *rt;
        eo_step_params lost = cases[i].lost, taken = cases[i].taken;
        open_scene(&scene, "edges", 1, 0);
        eo_plan_destroy(&scene.plan);
        must(eo_plan_create(&scene.plan, scene.model, eo_plan_params(.optimizer = cases[i].optimizer, .log = &eo_test_log)), "plan");
        must(open_runtime(&scene, 0, &rt), "runtime");
        must(passes(&scene, rt, 0, 0.25F), "passes");
        lost.learning_rate = taken.learning_rate = 1;
        REFUSED(rt, eo_step_end(rt, &lost, NULL), cases[i].says);
        must(eo_step_end(rt, &taken, NULL), "end");
        eo_runtime_destroy(&rt);
        close_scene(&scene);
    }
}
