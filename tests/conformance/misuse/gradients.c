/* SPDX-License-Identifier: MIT
 *
 * Gradients that are not written as they should be: beside their buffer, added to, or of other micro-batches.
 */
#include <math.h>

#include "tests/conformance/misuse/misuse.h"

/*
 * In debug mode a gradient that was not written, or one beside which something was, is refused by its parameter's name; once
 * mended the pass goes on.
 */
void gradients_beside(bool zero_gradients)
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

/* A layer of two parameters of so many elements, for debug mode; its positions are the caller's, and then what runs them. */
static void describe_pair(struct scene *scene, const char *const names[2], uint64_t elements)
{
    *scene = (struct scene){.ranks = 1, .debug = true};
    must(eo_model_create(&scene->model, NULL), "model");
    must(eo_model_add_layer(scene->model, eo_layer_params(.name = "layer"), NULL), "layer");
    for (int k = 0; k < 2; k++)
        must(eo_model_add_parameter(scene->model, eo_parameter_params(.name = names[k], .dim_count = 1, .dims = {elements}),
                                    NULL),
             "parameter");
}

static void open_pair(struct scene *scene, eo_runtime **rt)
{
    must(eo_plan_create(&scene->plan, scene->model, eo_plan_params(.rank_count = 1, .log = &eo_test_log)), "plan");
    must(eo_world_create_local(scene->worlds, eo_world_params(.rank_count = 1, .log = &eo_test_log)), "world");
    must(open_runtime(scene, 0, rt), "runtime");
    must(eo_step_begin(*rt), "begin");
}

/*
 * The same of a parameter that a use of its layer was planned to give no gradient to: at its first element and its last.
 */
void gradients_of_no_use(void)
{
    enum { ELEMENTS = 64 };
    static const char *const names[] = {"used", "unused"};
    const uint32_t used = 0;
    struct scene scene;
    eo_runtime *rt;
    const eo_view *view;
    describe_pair(&scene, names, ELEMENTS);
    must(eo_model_add_position(scene.model, eo_position_params(.name = "first use", .parameters = &used, .parameter_count = 1),
                               NULL),
         "position");
    open_pair(&scene, &rt);
    must(forward_pass(rt, 0), "forward");
    must(eo_backward_begin(rt, 0, &view), "backward");
    must(eo_gradients_begin(rt, 0, &view), "gradients");
    float *gradients[2] = {view->gradients[0], view->gradients[1]};
    memset(gradients[0], 0, ELEMENTS * sizeof(float));
    for (int i = 0; i < ELEMENTS; i += ELEMENTS - 1) {
        gradients[1][i] = 1;
        REFUSED(rt, eo_backward_end(rt, 0),
                "a gradient of 'unused' was written in backward of first use, which was planned to have none");
        gradients[1][i] = 0;
    }
    must(eo_backward_end(rt, 0), "mended");
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/*
 * A use that is to add its gradients, but zeroes those that the next use left: debug mode names the parameter; what is added
 * goes on, however many elements it changes.
 */
void overwritten_sums(void)
{
    enum { ELEMENTS = 300 };
    static const char *const names[] = {"both", "the next's"};
    const uint32_t first = 0;
    struct scene scene;
    eo_runtime *rt;
    const eo_view *view;
    describe_pair(&scene, names, ELEMENTS);
    must(eo_model_add_position(
             scene.model,
             eo_position_params(.name = "first use", .parameters = &first, .parameter_count = 1, .adds_gradients = true), NULL),
         "position");
    must(eo_model_add_position(scene.model, eo_position_params(.name = "next use"), NULL), "position");
    open_pair(&scene, &rt);
    for (uint32_t p = 0; p < 2; p++)
        must(forward_pass(rt, p), "forward");
    for (uint32_t p = 2; p-- > 0;) {
        must(eo_backward_begin(rt, p, &view), "backward");
        must(eo_gradients_begin(rt, p, &view), "gradients");
        for (int k = 0; k < 2; k++) {
            float *gradient = view->gradients[k];
            for (int i = 0; i < ELEMENTS && p == 1; i++)
                gradient[i] = 1;
            memset(gradient, 0, p == 0 ? ELEMENTS * sizeof(float) : 0);
            for (int i = 0; i < ELEMENTS && p == 0 && k == 0; i += 3) /* as an embedding, of the tokens that are there */
                gradient[i] += 1;
            if (p == 0)
                REFUSED(rt, eo_backward_end(rt, 0),
                        k == 0 ? "the gradient of 'both' was overwritten in backward of first use, which "
                                 "adds to what next use left there: of 300 elements that were not 0, 200 are"
                               : "the gradient of 'the next's' was overwritten in backward of first use");
            for (int i = 0; i < ELEMENTS && p == 0; i++)
                gradient[i] = k == 0 ? 2 : 1;
        }
        must(eo_backward_end(rt, p), "mended");
    }
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/*
 * In debug mode a pass that writes into its weights is refused by the parameter's name; once they are as they were it goes on.
 */
void written_weights(eo_memory memory)
{
    struct scene scene;
    eo_runtime *rt;
    const eo_view *view;
    open_scene(&scene, "edges", 1, 0);
    scene.debug = true;
    scene.memory = memory;
    must(open_runtime(&scene, 0, &rt), "runtime");
    fill_all(&scene, rt);
    must(eo_step_begin(rt), "begin");
    must(eo_forward_begin(rt, 0, &view), "forward");
    float *weights = view->weights[1], before = weights[1];
    weights[1] += 1;
    REFUSED(rt, eo_forward_end(rt, 0), "weights of 'bias0' were written in forward of use0; they are read only");
    weights[1] = before;
    must(eo_forward_end(rt, 0), "mended");
    for (uint32_t p = 1; p < LAYERS; p++)
        must(forward_pass(rt, p), "forward");
    must(eo_backward_begin(rt, 5, &view), "backward");
    weights = view->weights[0], before = weights[7];
    must(eo_gradients_begin(rt, 5, &view), "gradients");
    clear_gradients(&scene, 5, view);
    weights[7] += 1;
    REFUSED(rt, eo_backward_end(rt, 5), "weights of 'matrix5' were written in backward of use5; they are read only");
    weights[7] = before;
    must(eo_backward_end(rt, 5), "mended");
    for (uint32_t p = 5; p-- > 0;)
        must(backward_pass(&scene, rt, p, 0), "backward");
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/*
 * Kernels that add, without zero_gradients: debug mode says so, of fp32 and bf16; after a write the pass goes on.
 */
void added_gradients(eo_dtype dtype)
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
void other_micro_batches(void)
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
void zeroed_gradients(void)
{
    for (int memory = EO_MEMORY_STATIC; memory <= EO_MEMORY_DYNAMIC_POOL; memory++) {
        const eo_memory m = (eo_memory)memory;
        TEST_HOLDS(NULL, step_of(m, "edges", LAYERS, true) == step_of(m, "edges", LAYERS, false));
        TEST_HOLDS(NULL, step_of(m, "bare", 5, true) == step_of(m, "bare", 5, false));
    }
}
