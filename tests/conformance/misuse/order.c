/* SPDX-License-Identifier: MIT
 *
 * Calls out of their planned order, and what is used outside its time.
 */
#include "tests/conformance/misuse/misuse.h"

/*
 * Every call that is not the planned one is refused, with the call that was expected and the one that came; and a step
 * with refused calls in it leaves the weights of one without.
 */
void wrong_order(eo_memory memory)
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
            REFUSED(rt, eo_input_gradients_begin(rt), "the plan has no list for it; set eo_plan_params.input_gradients");
            REFUSED(rt, eo_input_gradients_end(rt), "got eo_input_gradients_end");
            must(eo_step_begin(rt), "begin");
            REFUSED(rt, eo_input_gradients_begin(rt), "got eo_input_gradients_begin");
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
void destroyed_too_early(void)
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
void positions_of_one_name(void)
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
void frozen_layer(void)
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

static uint64_t bytes_of_row(const eo_plan *plan, const char *name)
{
    eo_plan_row row;
    for (uint32_t r = 0; eo_plan_get_row(plan, r, &row) == EO_OK; r++)
        if (strcmp(row.name, name) == 0)
            return row.bytes;
    return 0;
}

/*
 * In debug mode a pass that writes behind a buffer is refused by its name, forward and backward; one that fills it is not.
 */
void written_behind_buffers(void)
{
    struct scene scene;
    eo_runtime *rt;
    const eo_view *view;
    enum { KEPT0 = 0 };
    open_scene(&scene, "edges", 1, 0);
    scene.debug = true;
    must(open_runtime(&scene, 0, &rt), "runtime");
    const uint64_t bytes = bytes_of_row(scene.plan, "kept0");
    TEST_EXPECT(NULL, bytes > 0 && bytes % 256 != 0, "%llu bytes leave no room behind them", (unsigned long long)bytes);
    for (int step = 0; step < 2; step++) {
        must(eo_step_begin(rt), "begin");
        must(eo_forward_begin(rt, 0, &view), "forward");
        memset(eo_buffer(rt, KEPT0), 0xff, bytes + (step == 0));
        if (step == 0)
            REFUSED(rt, eo_forward_end(rt, 0), "forward of use0 has written behind buffer 'kept0'");
        must(eo_forward_end(rt, 0), "forward");
        for (uint32_t p = 1; p < LAYERS; p++)
            must(forward_pass(rt, p), "forward");
        for (uint32_t p = LAYERS; p-- > 1;)
            must(backward_pass(&scene, rt, p, 0), "backward");
        must(eo_backward_begin(rt, 0, &view), "backward");
        must(eo_gradients_begin(rt, 0, &view), "gradients");
        clear_gradients(&scene, 0, view);
        ((char *)eo_buffer(rt, KEPT0))[(bytes + 255) / 256 * 256 - 1] = 1;
        REFUSED(rt, eo_backward_end(rt, 0), "backward of use0 has written behind buffer 'kept0'");
        must(eo_backward_end(rt, 0), "backward");
        must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    }
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/*
 * In debug mode a view whose pass has ended, and a buffer out of its lifetime, are refused by name.
 */
void late_views_and_buffers(void)
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
