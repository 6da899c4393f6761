/* SPDX-License-Identifier: MIT
 *
 * Calls that are wrong, ranks that differ, fail or stay away: each is refused or reported by name, nothing hangs, and
 * what was refused changed nothing.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eo_config.h"
#include "tests/conformance/misuse/misuse.h"

#define REFUSED(rt, call, part)                                                                                       \
    do {                                                                                                              \
        eo_test_text[0] = '\0';                                                                                       \
        TEST_EXPECT(NULL, (call) == EO_ERR_INVALID, "%s is taken", #call);                                            \
        TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), part), "%s: '%s' does not say '%s'", #call,                    \
                    eo_runtime_error(rt), part);                                                                      \
        TEST_EXPECT(NULL, strcmp(eo_test_text, eo_runtime_error(rt)) == 0, "%s: not logged", #call);                  \
    } while (0)

/* -- numbers of the optimizer ------------------------------------------------------------------------------------- */

/* At eo_step_end. Whoever then gives good ones goes on as if nothing had been. */
static void refuse_step_params(eo_runtime *rt)
{
    static const struct {
        eo_step_params params;
        const char *says;
    } cases[] = {
        {{.learning_rate = -1}, "learning_rate is -1"},
        {{.learning_rate = NAN}, "learning_rate is"},
        {{.learning_rate = INFINITY}, "learning_rate is inf"},
        {{.learning_rate = 0}, "the optimizer needs a learning rate"},
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
        {{.learning_rate = 1, .ema_decay = 1}, "ema_decay is 1;"},
        {{.learning_rate = 1, .momentum = 1}, "momentum is 1;"},
        {{.learning_rate = 1, .clip = NAN}, "clip is"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        REFUSED(rt, eo_step_end(rt, &cases[i].params, NULL), cases[i].says);
}

/* The weight of layer 0 whose gradients are 0.25 and then -1, and one without any. */
static void weights_after(const eo_step_params *params, float weights[2])
{
    struct scene scene;
    eo_runtime *rt;
    static float matrix[20000];
    open_scene(&scene, "edges", 1, 0);
    must(open_runtime(&scene, 0, &rt), "runtime");
    for (int step = 0; step < 2; step++) {
        must(passes(&scene, rt, 0, step ? -1 : 0.25F), "passes");
        must(eo_step_end(rt, params, NULL), "end");
    }
    must(eo_weights_read(rt, "matrix0", matrix), "read");
    weights[0] = matrix[0];
    weights[1] = matrix[1];
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/*
 * With `exact` a 0 is a 0: AdamW without memory and eps goes a learning rate down, and one up again. Without it a 0 is the
 * default, to the bit. A learning rate of 0 changes nothing.
 */
static void exact_step_params(void)
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
    weights_after(eo_step_params(.learning_rate = 0.125F, .clip = INFINITY), given);
    TEST_EXPECT(NULL, given[0] == defaults[0], "%g and %g", (double)defaults[0], (double)given[0]);
}

static void count_updates(void *user, const eo_shard *shard)
{
    (void)shard;
    ++*(uint32_t *)user;
}

static void numbers_that_update_does_not_see(void)
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

/* -- the order of calls ------------------------------------------------------------------------------------------- */

/*
 * Every call that is not the planned one is refused, with the call that was expected and the one that came; and a step
 * with refused calls in it leaves the weights of one without.
 */
static void wrong_order(eo_memory memory)
{
    struct scene scene;
    uint64_t hashes[2];
    for (int disturbed = 0; disturbed < 2; disturbed++) {
        const eo_view *view;
        eo_runtime *rt;
        float values[3] = {0};
        double sums[1] = {0};
        open_scene(&scene, "edges", 1, 0);
        scene.memory = memory;
        must(open_runtime(&scene, 0, &rt), "runtime");
        fill_all(&scene, rt);
        if (!disturbed) {
            must(whole_step(&scene, rt), "step");
            must(whole_step(&scene, rt), "step");
        } else {
            REFUSED(rt, eo_forward_begin(rt, 0, &view), "eo_step_begin or eo_evaluation_begin was expected, got begin of forward of use0");
            REFUSED(rt, eo_step_end(rt, eo_step_params(.learning_rate = 1), NULL), "got eo_step_end");
            REFUSED(rt, eo_evaluation_end(rt), "got eo_evaluation_end");
            must(eo_step_begin(rt), "begin");
            REFUSED(rt, eo_step_begin(rt), "begin of forward of use0 was expected, got eo_step_begin");
            REFUSED(rt, eo_evaluation_begin(rt), "got eo_evaluation_begin");
            REFUSED(rt, eo_forward_begin(rt, 1, &view), "forward of use0 was expected, got begin of forward of use1");
            REFUSED(rt, eo_forward_begin(rt, 99, &view), "a position out of range");
            REFUSED(rt, eo_forward_begin(rt, 0, NULL), "eo_forward_begin: view is NULL");
            REFUSED(rt, eo_forward_end(rt, 0), "begin of forward of use0 was expected, got end of forward of use0");
            REFUSED(rt, eo_backward_begin(rt, 0, &view), "got begin of backward of use0");
            REFUSED(rt, eo_weights_write(rt, "bias0", values), "between steps");
            REFUSED(rt, eo_weights_read(rt, "bias0", values), "between steps");
            REFUSED(rt, eo_sum(rt, sums, 1), "between steps");
            for (uint32_t p = 0; p < LAYERS; p++)
                must(forward_pass(rt, p), "forward");
            REFUSED(rt, eo_forward_begin(rt, 0, &view), "begin of backward of use5 was expected, got begin of forward of use0");
            REFUSED(rt, eo_backward_begin(rt, 4, &view), "backward of use5 was expected, got begin of backward of use4");
            must(eo_backward_begin(rt, 5, &view), "backward");
            REFUSED(rt, eo_backward_end(rt, 5), "eo_gradients_begin in backward of use5 was expected, got end of backward");
            REFUSED(rt, eo_backward_begin(rt, 5, &view), "eo_gradients_begin in backward of use5 was expected");
            must(eo_gradients_begin(rt, 5, &view), "gradients");
            REFUSED(rt, eo_gradients_begin(rt, 5, &view), "end of backward of use5 was expected, got eo_gradients_begin");
            REFUSED(rt, eo_step_end(rt, eo_step_params(.learning_rate = 1), NULL), "got eo_step_end");
            clear_gradients(&scene, 5, view);
            write_gradients(view, 0.25F);
            must(eo_backward_end(rt, 5), "backward");
            for (uint32_t p = LAYERS - 1; p-- > 0;)
                must(backward_pass(&scene, rt, p, 0.25F), "backward");
            REFUSED(rt, eo_backward_begin(rt, 0, &view),
                    "eo_step_end (micro-batch 1 of 1 of the plan is over) was expected, got begin of backward of use0");
            REFUSED(rt, eo_step_end(rt, NULL, NULL), "learning rate");
            refuse_step_params(rt);
            must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
            must(eo_evaluation_begin(rt), "evaluation");
            REFUSED(rt, eo_step_begin(rt), "forward of use0 was expected, got eo_step_begin");
            REFUSED(rt, eo_evaluation_end(rt), "got eo_evaluation_end");
            for (uint32_t p = 0; p < LAYERS; p++)
                must(forward_pass(rt, p), "forward");
            REFUSED(rt, eo_backward_begin(rt, 5, &view), "eo_evaluation_end was expected");
            must(eo_evaluation_end(rt), "evaluation");
            REFUSED(rt, eo_weights_read(rt, "no such", values), "no parameter 'no such'");
            REFUSED(rt, eo_weights_write(rt, "bias0", NULL), "bias0");
            REFUSED(rt, eo_weights_visit(rt, NULL, NULL), "eo_weights_visit");
            REFUSED(rt, eo_weights_fill(rt, 1000, fill, NULL), "no parameter 1000");
            REFUSED(rt, eo_sum(rt, sums, 17), "at most 16");
            REFUSED(rt, eo_sum(rt, NULL, 1), "eo_sum: values is NULL");
            must(whole_step(&scene, rt), "step");
        }
        hashes[disturbed] = hash_of(rt);
        eo_runtime_destroy(&rt);
        close_scene(&scene);
    }
    TEST_HOLDS(NULL, hashes[0] == hashes[1]);
}

/*
 * A world is not destroyed under a runtime, which goes on.
 */
static void destroyed_too_early(void)
{
    struct scene scene;
    eo_runtime *rt;
    open_scene(&scene, "edges", 1, 0);
    must(open_runtime(&scene, 0, &rt), "runtime");
    eo_world_destroy(&scene.worlds[0]);
    TEST_EXPECT(NULL, scene.worlds[0] && strstr(eo_test_text, "rank 0: eo_world_destroy: runtimes are left on this world (1)"),
                "'%s'", eo_test_text);
    must(whole_step(&scene, rt), "step");
    eo_runtime_destroy(&rt);
    eo_world_destroy(&scene.worlds[0]);
    TEST_HOLDS(NULL, !scene.worlds[0]);
    close_scene(&scene);
}

/*
 * Positions without names of their own are told apart by their numbers.
 */
static void positions_of_one_name(void)
{
    eo_model *model = NULL;
    eo_plan *plan = NULL;
    eo_world *world = NULL;
    eo_runtime *rt = NULL;
    const eo_view *view;
    must(eo_model_create(&model, NULL), "model");
    must(eo_model_add_layer(model, eo_layer_params(.name = "gru"), NULL), "layer");
    must(eo_model_add_parameter(model, eo_parameter_params(.name = "w", .dim_count = 1, .dims = {64}), NULL), "parameter");
    for (int p = 0; p < 3; p++)
        must(eo_model_add_position(model, eo_position_params(.layer = 0), NULL), "position");
    must(eo_plan_create(&plan, model, eo_plan_params(.rank_count = 1)), "plan");
    must(eo_world_create_local(&world, eo_world_params(.rank_count = 1)), "world");
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = world, .log = &eo_test_log)), "runtime");
    must(eo_step_begin(rt), "begin");
    must(forward_pass(rt, 0), "forward");
    REFUSED(rt, eo_forward_begin(rt, 2, &view),
            "begin of forward of gru (position 1) was expected, got begin of forward of gru (position 2)");
    eo_runtime_destroy(&rt);
    eo_world_destroy(&world);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/*
 * A frozen layer has no gradients to begin; asking for them is refused.
 */
static void frozen_layer(void)
{
    struct scene scene;
    eo_runtime *rt;
    const eo_view *view;
    open_scene(&scene, "frozen", 1, 0);
    must(open_runtime(&scene, 0, &rt), "runtime");
    must(eo_step_begin(rt), "begin");
    for (uint32_t p = 0; p < LAYERS; p++)
        must(forward_pass(rt, p), "forward");
    for (uint32_t p = LAYERS; p-- > 0;) {
        if (p != 0 && p != 2 && p != 3) {
            must(backward_pass(&scene, rt, p, 0.25F), "backward");
            continue;
        }
        must(eo_backward_begin(rt, p, &view), "backward");
        REFUSED(rt, eo_gradients_begin(rt, p, &view), "(its layer is frozen) was expected, got eo_gradients_begin");
        must(eo_backward_end(rt, p), "backward");
    }
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/* -- debug mode --------------------------------------------------------------------------------------------------- */

/*
 * In debug mode a view whose pass has ended, and a buffer out of its lifetime, are refused by name.
 */
static void late_views_and_buffers(void)
{
    struct scene scene;
    eo_runtime *rt;
    const eo_view *first, *second;
    enum { KEPT0, AGAIN0, SCRATCH0, HANDED0, KEPT1, AGAIN1, SCRATCH1, HANDED1 }; /* as tests/unit/plan/models.c adds them */
    open_scene(&scene, "edges", 1, 0);
    scene.debug = true;
    must(open_runtime(&scene, 0, &rt), "runtime");
    TEST_HOLDS(NULL, eo_buffer(rt, KEPT0) == NULL);
    TEST_EXPECT(NULL, strstr(eo_test_text, "rank 0: buffer 'kept0' lives from forward of use0 to backward of use0; asked "
                "for outside a pass (next: eo_step_begin or eo_evaluation_begin)"), "'%s'", eo_test_text);
    must(eo_step_begin(rt), "begin");
    must(eo_forward_begin(rt, 0, &first), "forward");
    TEST_HOLDS(NULL, !eo_view_is_stale(rt, first) && eo_view_weight(rt, first, 1) == first->weights[1]);
    TEST_HOLDS(NULL, eo_view_weight(rt, first, 2) == NULL && eo_view_gradient(rt, first, 0) == NULL);
    TEST_HOLDS(NULL, eo_buffer(rt, KEPT0) && eo_buffer(rt, SCRATCH0) && eo_buffer(rt, HANDED0));
    TEST_HOLDS(NULL, !eo_buffer(rt, AGAIN0) && !eo_buffer(rt, KEPT1) && !eo_buffer(rt, 100000));
    must(eo_forward_end(rt, 0), "forward");
    eo_test_text[0] = '\0';
    TEST_HOLDS(NULL, eo_view_is_stale(rt, first) && eo_view_weight(rt, first, 0) == NULL);
    TEST_EXPECT(NULL, strstr(eo_test_text, "weights of use0 used after the end of its forward pass; asked for outside a pass "
                "(next: begin of forward of use1)"), "'%s'", eo_test_text);
    must(eo_forward_begin(rt, 1, &second), "forward");
    TEST_HOLDS(NULL, eo_view_is_stale(rt, first) && !eo_view_is_stale(rt, second));
    TEST_HOLDS(NULL, eo_buffer(rt, KEPT0) && eo_buffer(rt, HANDED0) && !eo_buffer(rt, SCRATCH0));
    must(eo_forward_end(rt, 1), "forward");
    for (uint32_t p = 2; p < LAYERS; p++)
        must(forward_pass(rt, p), "forward");
    for (uint32_t p = LAYERS; p-- > 2;)
        must(backward_pass(&scene, rt, p, 0), "backward");
    must(eo_backward_begin(rt, 1, &second), "backward");
    TEST_HOLDS(NULL, eo_buffer(rt, KEPT1) && eo_buffer(rt, AGAIN1) && !eo_buffer(rt, AGAIN0) && !eo_buffer(rt, SCRATCH1));
    TEST_EXPECT(NULL, strstr(eo_test_text, "buffer 'scratch1' lives from forward of use1 to forward of use1; asked for in "
                "recompute of use1 (before eo_gradients_begin)"), "'%s'", eo_test_text);
    must(eo_gradients_begin(rt, 1, &second), "backward");
    TEST_HOLDS(NULL, eo_view_gradient(rt, second, 0) == second->gradients[0] && second->gradients[0]);
    TEST_HOLDS(NULL, !eo_buffer(rt, HANDED0));
    TEST_EXPECT(NULL, strstr(eo_test_text, "buffer 'handed0' lives from forward of use0 to forward of use1; asked for in "
                "backward of use1"), "'%s'", eo_test_text);
    clear_gradients(&scene, 1, second);
    must(eo_backward_end(rt, 1), "backward");
    eo_test_text[0] = '\0';
    TEST_HOLDS(NULL, eo_view_gradient(rt, second, 0) == NULL && !eo_buffer(rt, KEPT1));
    must(backward_pass(&scene, rt, 0, 0), "backward");
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/*
 * In debug mode a gradient that was not written, or one beside which something was, is refused by its parameter's name; once
 * mended the pass goes on.
 */
static void gradients_beside(bool zero_gradients)
{
    struct scene scene;
    eo_runtime *rt;
    const eo_view *view;
    open_scene(&scene, "edges", 1, 0);
    scene.debug = true;
    scene.zero_gradients = zero_gradients;
    must(open_runtime(&scene, 0, &rt), "runtime");
    must(eo_step_begin(rt), "begin");
    for (uint32_t p = 0; p < LAYERS; p++)
        must(forward_pass(rt, p), "forward");
    must(eo_backward_begin(rt, 5, &view), "backward");
    must(eo_gradients_begin(rt, 5, &view), "gradients");
    clear_gradients(&scene, 5, view);
    ((float *)view->gradients[1])[3] = 1000;
    REFUSED(rt, eo_backward_end(rt, 5), "element 3 of the gradient of 'bias5' was written in backward of use5; it has 3");
    ((float *)view->gradients[1])[3] = 0;
    must(eo_backward_end(rt, 5), "mended");
    must(eo_backward_begin(rt, 4, &view), "backward");
    must(eo_gradients_begin(rt, 4, &view), "gradients");
    memset(view->gradients[0], 0, 2000 * sizeof(float));
    ((float *)view->gradients[1])[0] = ((float *)view->gradients[1])[2] = 0;
    if (!zero_gradients)
        REFUSED(rt, eo_backward_end(rt, 4),
                "the gradient of 'bias4' was not written in backward of use4 (element 1 of 3), or it is "
                "what a buffer held before its first write");
    ((float *)view->gradients[1])[1] = 0;
    must(eo_backward_end(rt, 4), "mended");
    for (uint32_t p = 4; p-- > 0;)
        must(backward_pass(&scene, rt, p, 0), "backward");
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/*
 * Kernels that add, without zero_gradients: debug mode says so, of fp32 and bf16; after a write the pass goes on.
 */
static void added_gradients(eo_dtype dtype)
{
    const uint64_t size = eo_dtype_bytes(dtype);
    struct scene scene;
    eo_plan *plan;
    eo_runtime *rt;
    const eo_view *view;
    open_scene(&scene, "edges", 1, 0);
    must(eo_plan_create(&plan, scene.model, eo_plan_params(.rank_count = 1, .reduce_dtype = dtype, .log = &eo_test_log)),
         "plan");
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = scene.worlds[0], .debug = true, .log = &eo_test_log)),
         "runtime");
    must(eo_step_begin(rt), "begin");
    for (uint32_t p = 0; p < LAYERS; p++)
        must(forward_pass(rt, p), "forward");
    must(eo_backward_begin(rt, 5, &view), "backward");
    must(eo_gradients_begin(rt, 5, &view), "gradients");
    for (uint32_t k = 0; k < 2; k++) {
        eo_parameter_info info;
        must(eo_model_parameter(scene.model, 10 + k, &info), "parameter");
        for (uint64_t i = 0; i < info.element_count; i++) {
            if (dtype == EO_DTYPE_FP32)
                ((volatile float *)view->gradients[k])[i] += 0.25F;
            else /* as a processor does it: exact but for the quiet bit */
                ((uint16_t *)view->gradients[k])[i] |= 0x40;
        }
    }
    REFUSED(rt, eo_backward_end(rt, 5), "was added to, not written, in backward of use5 (element 0 of ");
    TEST_HOLDS(NULL, strstr(eo_runtime_error(rt), "): set zero_gradients"));
    for (uint32_t k = 0; k < 2; k++) {
        eo_parameter_info info;
        must(eo_model_parameter(scene.model, 10 + k, &info), "parameter");
        memset(view->gradients[k], 0, info.element_count * size);
    }
    must(eo_backward_end(rt, 5), "mended");
    eo_runtime_destroy(&rt);
    eo_plan_destroy(&plan);
    close_scene(&scene);
}

/*
 * A trainer with another number of micro-batches than its plan is told of it.
 */
static void other_micro_batches(void)
{
    struct scene scene;
    eo_plan *plan;
    eo_runtime *rt;
    const eo_view *view;
    open_scene(&scene, "edges", 1, 0);
    must(open_runtime(&scene, 0, &rt), "runtime");
    must(passes(&scene, rt, LAYERS, 0), "passes");
    REFUSED(rt, eo_forward_begin(rt, 0, &view),
            "eo_step_end (micro-batch 1 of 1 of the plan is over) was expected, got begin of forward of use0");
    eo_runtime_destroy(&rt);
    must(eo_plan_create(&plan, scene.model, eo_plan_params(.rank_count = 1, .micro_batches = 4)), "plan");
    must(eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = scene.worlds[0], .log = &eo_test_log)), "runtime");
    must(passes(&scene, rt, LAYERS, 0), "passes");
    REFUSED(rt, eo_step_end(rt, eo_step_params(.learning_rate = 1), NULL),
            "begin of forward of use0 (micro-batch 2 of 4 of the plan) was expected, got eo_step_end");
    eo_runtime_destroy(&rt);
    eo_plan_destroy(&plan);
    close_scene(&scene);
}

/* A step whose kernels add to what they find, or write. */
static uint64_t step_of(eo_memory memory, const char *model, uint32_t positions, bool adds)
{
    struct scene scene;
    eo_runtime *rt;
    eo_parameter_info info;
    open_scene(&scene, model, 1, 0);
    scene.memory = memory;
    scene.debug = true;
    scene.zero_gradients = adds;
    must(open_runtime(&scene, 0, &rt), "runtime");
    fill_all(&scene, rt);
    for (int step = 0; step < 2; step++) {
        must(eo_step_begin(rt), "begin");
        for (uint32_t p = 0; p < positions; p++)
            must(forward_pass(rt, p), "forward");
        for (uint32_t p = positions; p-- > 0;) {
            const eo_view *view;
            must(eo_backward_begin(rt, p, &view), "backward");
            must(eo_gradients_begin(rt, p, &view), "gradients");
            for (uint32_t k = 0; k < view->parameter_count; k++) {
                must(eo_model_parameter(scene.model, 2 * p + k, &info), "parameter");
                for (uint64_t i = 0; i < info.element_count; i++)
                    ((float *)view->gradients[k])[i] = (adds ? ((float *)view->gradients[k])[i] : 0) + (float)(i % 7) - 3;
            }
            must(eo_backward_end(rt, p), "backward");
        }
        must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    }
    const uint64_t hash = hash_of(rt);
    eo_runtime_destroy(&rt);
    close_scene(&scene);
    return hash;
}

/*
 * Kernels that add find zeros where that is asked for, in memory that was full of NaN; the result is that of kernels that
 * write.
 */
static void zeroed_gradients(void)
{
    for (int memory = EO_MEMORY_STATIC; memory <= EO_MEMORY_DYNAMIC_POOL; memory++) {
        const eo_memory m = (eo_memory)memory;
        TEST_HOLDS(NULL, step_of(m, "edges", LAYERS, true) == step_of(m, "edges", LAYERS, false));
        TEST_HOLDS(NULL, step_of(m, "bare", 5, true) == step_of(m, "bare", 5, false));
    }
}

/* -- create ---------------------------------------------------------------------------------------------------------*/

/*
 * A plan for another number of ranks, one without the optimizer's state, no plan at all: refused.
 */
static void plans_that_do_not_fit(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 1, 0);
    const struct {
        eo_plan_params params;
        eo_status status;
        const char *text;
    } cases[] = {
        {{.rank_count = 2}, EO_ERR_INVALID, "the plan is for 2 ranks, the world has 1"},
        {{.draft = true}, EO_ERR_INVALID, "the plan is a draft, which is not proven; plan again without `draft`"},
        {{.optimizer_states = EO_NO_STATE},
         EO_ERR_INVALID,
         "optimizer adamw needs 2 optimizer states a parameter, the plan has 0; plan with those, or give an update"},
        {{.strategy = EO_STRATEGY_ZERO1}, EO_ERR_UNSUPPORTED, "strategy zero1 needs planned memory"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eo_plan *plan;
        eo_runtime *rt = (eo_runtime *)&scene;
        must(eo_plan_create(&plan, scene.model, &cases[i].params), "plan");
        eo_test_text[0] = '\0';
        const eo_memory memory = cases[i].params.strategy ? EO_MEMORY_DYNAMIC_POOL : EO_MEMORY_STATIC;
        const eo_status status = eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = scene.worlds[0],
                                                                          .memory = memory, .log = &eo_test_log));
        TEST_EXPECT(NULL, status == cases[i].status && rt == NULL, "case %zu: %s", i, eo_status_text(status));
        TEST_EXPECT(NULL, strstr(eo_test_text, cases[i].text), "'%s'", eo_test_text);
        eo_plan_destroy(&plan);
    }
    eo_model *parts = NULL; /* a layer of expert parallelism is planned, and not run */
    eo_plan *planned = NULL;
    uint32_t layer = 0;
    eo_runtime *rt = NULL;
    must(eo_model_create(&parts, &(eo_model_params){.name = "parts"}), "model");
    must(eo_model_add_layer(parts, &(eo_layer_params){.name = "experts", .parts = 2}, &layer), "layer");
    must(eo_model_add_parameter(parts, &(eo_parameter_params){.layer = layer, .name = "w", .dim_count = 1, .dims = {64}}, NULL), "w");
    must(eo_model_add_position(parts, &(eo_position_params){.layer = layer}, NULL), "position");
    must(eo_plan_create(&planned, parts, &(eo_plan_params){.rank_count = 1}), "plan");
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = planned, .world = scene.worlds[0], .log = &eo_test_log)) ==
                         EO_ERR_UNSUPPORTED);
    TEST_EXPECT(NULL, strstr(eo_test_text, "layer 'experts' is shared by a part of its group"), "'%s'", eo_test_text);
    eo_plan_destroy(&planned);
    eo_model_destroy(&parts);
    eo_model *frozen = eo_plan_model("frozen");
    must(eo_plan_create(&planned, frozen, &(eo_plan_params){.rank_count = 1, .float8_frozen = true}), "plan");
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = planned, .world = scene.worlds[0], .memory = EO_MEMORY_DYNAMIC_POOL,
                                                              .log = &eo_test_log)) == EO_ERR_UNSUPPORTED);
    TEST_EXPECT(NULL, strstr(eo_test_text, "float8_frozen) need planned memory"), "'%s'", eo_test_text);
    eo_plan_destroy(&planned);
    eo_model_destroy(&frozen);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.world = scene.worlds[0])) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(NULL, eo_runtime_params(.plan = scene.plan)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0],
                                                              .memory = (eo_memory)9)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0],
                                                              .dynamic_reduce_inputs = UINT32_MAX)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0],
                                                              .dynamic_offload = true)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0],
                                                              .parallel = {.thread_count = 4})) == EO_ERR_INVALID);
    close_scene(&scene);
}

/* Worlds of threads, and of one process that meets itself. */
static void worlds_that_cannot_be(void)
{
    static const struct {
        double gigabytes_per_s, latency_us;
        const char *says;
    } fabrics[] = {{-1, 0, "finite and not negative"}, {NAN, 0, "finite"}, {INFINITY, 0, "finite"}, {1, NAN, "finite"},
                   {1, -1, "not negative"}, {0, 5, "no speed"}, {1, 1e17, "at most 1e9 us"}, {1e-300, 0, "at least 1e-6 GB/s"}};
    eo_rendezvous *rendezvous = NULL;
    eo_world *world = NULL, *many[65];
    must(eo_rendezvous_create(&rendezvous, eo_rendezvous_params(.rank = 0, .rank_count = 1)), "rendezvous");
    for (size_t i = 0; i < sizeof(fabrics) / sizeof(fabrics[0]); i++) {
        for (int joined = 0; joined < 2; joined++) {
            eo_test_text[0] = '\0';
            const eo_status status =
                joined ? eo_world_create_joined(&world, eo_world_join_params(.rendezvous = rendezvous, .log = &eo_test_log,
                             .fabric_gigabytes_per_s = fabrics[i].gigabytes_per_s, .fabric_latency_us = fabrics[i].latency_us))
                       : eo_world_create_local(&world, eo_world_params(.log = &eo_test_log,
                             .fabric_gigabytes_per_s = fabrics[i].gigabytes_per_s, .fabric_latency_us = fabrics[i].latency_us));
            TEST_EXPECT(NULL, status == EO_ERR_INVALID && !world && strstr(eo_test_text, fabrics[i].says),
                        "fabric %zu, joined %d: %s, '%s'", i, joined, eo_status_text(status), eo_test_text);
        }
    }
    TEST_HOLDS(NULL, eo_world_create_joined(&world, eo_world_join_params(.rendezvous = rendezvous, .collectives = "pigeons")) ==
                         EO_ERR_UNSUPPORTED);
    TEST_HOLDS(NULL, eo_world_create_joined(&world, eo_world_join_params(.rendezvous = rendezvous, .device = "abacus")) ==
                         EO_ERR_UNSUPPORTED);
    TEST_HOLDS(NULL, eo_world_create_mpi(&world, eo_world_mpi_params(.collectives = "pigeons")) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_world_create_nccl(&world, eo_world_nccl_params(.rank = 1, .rank_count = 1)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_world_create_nccl(&world, eo_world_nccl_params(.rank = 0, .rank_count = 1)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_world_create_local(many, eo_world_params(.rank_count = 65)) == EO_ERR_INVALID && !many[0]);
    eo_rendezvous_destroy(&rendezvous);
}

/* Steps cannot be recorded here, nor replayed; copies of nothing are refused; a world on a device that is not there too.
 * Ordinary steps go on. */
static void what_this_device_has_not(void)
{
    struct scene scene;
    open_scene(&scene, "bare", 1, 0);
    eo_runtime *rt;
    eo_world *world = NULL;
    char byte = 0;
    must(open_runtime(&scene, 0, &rt), "runtime");
    TEST_HOLDS(NULL, strcmp(eo_runtime_device(rt), "cpu") == 0 && !eo_runtime_stream(rt));
    for (int round = 0; round < 2; round++) {
        TEST_HOLDS(NULL, eo_step_capture(rt) == EO_ERR_UNSUPPORTED);
        TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), "eo_step_capture: this device has no graphs"), "%s",
                    eo_runtime_error(rt));
        TEST_HOLDS(NULL, eo_step_replay(rt, eo_step_params(.learning_rate = 0.1F), NULL) == EO_ERR_UNSUPPORTED);
        TEST_HOLDS(NULL, eo_runtime_upload(rt, NULL, &byte, 1) == EO_ERR_INVALID);
        TEST_HOLDS(NULL, eo_runtime_download(rt, &byte, NULL, 1) == EO_ERR_INVALID);
        must(eo_step_begin(rt), "begin");
        for (uint32_t p = 0; p < 5; p++)
            must(forward_pass(rt, p), "forward");
        for (uint32_t p = 5; p-- > 0;)
            must(backward_pass(&scene, rt, p, 0), "backward");
        must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    }
    eo_runtime_destroy(&rt);
    eo_test_text[0] = '\0';
    TEST_HOLDS(NULL, eo_world_create_local(&world, eo_world_params(.device = "abacus", .log = &eo_test_log)) ==
                         EO_ERR_UNSUPPORTED);
    TEST_EXPECT(NULL, !world && strstr(eo_test_text, "'abacus'"), "%s", eo_test_text);
    close_scene(&scene);
}

int main(void)
{
    if (EO_DEBUG_ABORT)
        return tap_skip_all("refusals abort in this build");
    wrong_order(EO_MEMORY_STATIC);
    wrong_order(EO_MEMORY_DYNAMIC_POOL);
    test_report("calls out of planned order are refused by name and change nothing", 1);
    numbers_that_update_does_not_see();
    test_report("with the trainer's own update, numbers of groups that it would not see are refused", 1);
    positions_of_one_name();
    test_report("positions of one name are told apart by their numbers", 1);
    destroyed_too_early();
    test_report("a world is not destroyed under a runtime", 1);
    exact_step_params();
    test_report("numbers of the optimizer are taken as written where that is asked for", 1);
    frozen_layer();
    test_report("a frozen layer has no gradients to begin", 1);
    late_views_and_buffers();
    test_report("views and buffers used outside their time are refused by name", 1);
    gradients_beside(false);
    gradients_beside(true);
    test_report("gradients not written, or written past their end, are refused by name in debug mode", 1);
    added_gradients(EO_DTYPE_FP32);
    added_gradients(EO_DTYPE_BF16);
    test_report("gradients added to, not written, are told as such in debug mode", 1);
    other_micro_batches();
    test_report("another number of micro-batches than the plan's is told", 1);
    zeroed_gradients();
    test_report("gradients are zeros to begin with, where that is asked for", 1);
    plans_that_do_not_fit();
    test_report("plans that do not fit are refused", 1);
    worlds_that_cannot_be();
    test_report("worlds that cannot be are refused", 1);
    what_this_device_has_not();
    test_report("what this device has not is refused by name, and ordinary steps go on", 1);
    calls_from_callbacks(EO_MEMORY_STATIC);
    calls_from_callbacks(EO_MEMORY_DYNAMIC_POOL);
    test_report("a callback of fill or visit that calls its runtime is refused, and changes nothing", 2);
    different_plans();
    test_report("ranks with different plans are told so", 3);
    one_cannot_begin();
    test_report("a rank that cannot begin says why to the others", 3);
    one_never_creates();
    one_never_joins();
    test_report("a rank that never comes is told by the log there is", 2);
    memory_for_one();
    test_report("ranks that share a memory must have room together, and learn why one gives up", 3);
    no_place_to_offload();
    test_report("a rank whose folder cannot be offloaded to says so to the others", 3);
    failing_product();
    test_report("whatever Muon's product fails with, it ends all ranks, and no step goes on from its middle", 2);
    one_is_refused();
    test_report("what one rank alone is refused keeps nobody waiting", 3);
    other_numbers(EO_MEMORY_STATIC);
    other_numbers(EO_MEMORY_DYNAMIC_POOL);
    test_report("ranks that end a step with other numbers are told so", 3);
    one_writes_alone(EO_MEMORY_STATIC);
    one_writes_alone(EO_MEMORY_DYNAMIC_POOL);
    test_report("weights that one rank alone has written end the next step of all", 2);
    different_weights(EO_MEMORY_STATIC);
    different_weights(EO_MEMORY_DYNAMIC_POOL);
    test_report("ranks that read different weights are told so", 3);
    one_gives_up(EO_MEMORY_STATIC);
    one_gives_up(EO_MEMORY_DYNAMIC_MALLOC);
    test_report("a rank that gives up ends the others with its reason", 3);
    one_gives_up_inside();
    test_report("a rank that gives up in a world inside another keeps its number", 3);
    one_stays_away();
    test_report("a rank that stays away is named when the deadline is over", 3);
    not_finite(EO_MEMORY_STATIC);
    not_finite(EO_MEMORY_DYNAMIC_POOL);
    test_report("a gradient that is not finite stops all ranks, layer named", 2);
    not_finite_from(false);
    not_finite_from(true);
    test_report("a NaN is told of the layer it came from, with what debug mode knows", 1);
    for (int s = EO_STRATEGY_ZERO3 + 1; s < EO_STRATEGY_COUNT; s++) {
        strategy = (eo_strategy)s;
        wrong_order(EO_MEMORY_STATIC);
        not_finite(EO_MEMORY_STATIC);
        weights_round_trip(2, EO_MEMORY_STATIC);
        weights_round_trip(4, EO_MEMORY_STATIC);
    }
    strategy = EO_STRATEGY_ZERO3;
    test_report("all of it with every other strategy", 4);
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        weights_round_trip(ranks, EO_MEMORY_STATIC);
        weights_round_trip(ranks, EO_MEMORY_DYNAMIC_MALLOC);
        test_report("weights come back as they were filled and written", ranks);
    }
    return tap_end();
}
