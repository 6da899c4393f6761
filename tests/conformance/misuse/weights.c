/* SPDX-License-Identifier: MIT
 *
 * Weights outside the schedule: filled, written, visited and read whole.
 */
#include <string.h>

#include "tests/conformance/misuse/misuse.h"

struct expected {
    const struct scene *scene;
    uint32_t next;
    bool written; /* matrix2 was overwritten */
};

static float expected_value(const struct expected *e, uint32_t parameter, const char *name, uint64_t i)
{
    float value;
    uint32_t k = parameter;
    if (e->written && strcmp(name, "matrix2") == 0)
        return (float)i / 7;
    fill(&k, i, 1, &value);
    return value;
}

static void compare(void *user, const eo_parameter_info *info, const float *values)
{
    struct expected *e = user;
    const uint32_t parameter = e->next++;
    eo_parameter_info own;
    must(eo_model_parameter(e->scene->model, parameter, &own), "parameter");
    TEST_EXPECT(NULL, strcmp(own.name, info->name) == 0, "'%s' was visited for '%s'", info->name, own.name);
    for (uint64_t i = 0; i < info->element_count; i++) {
        if (values[i] == expected_value(e, parameter, info->name, i))
            continue;
        TEST_EXPECT(NULL, false, "%s[%llu] is %g", info->name, (unsigned long long)i, (double)values[i]);
        return;
    }
}

static void play_weights(struct actor *self)
{
    const struct scene *scene = self->scene;
    eo_runtime *rt;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    struct expected expected = {.scene = scene};
    fill_all(scene, rt);
    must(eo_weights_visit(rt, compare, &expected), "visit");
    TEST_HOLDS(NULL, expected.next == eo_model_parameter_count(scene->model));

    float given[2000], back[2000];
    for (uint32_t i = 0; i < 2000; i++)
        given[i] = (float)i / 7;
    must(eo_weights_write(rt, "matrix2", given), "write");
    must(eo_weights_read(rt, "matrix2", self->rank == 0 ? back : NULL), "read");
    TEST_HOLDS(NULL, self->rank != 0 || memcmp(given, back, sizeof(given)) == 0);
    expected = (struct expected){.scene = scene, .written = true};
    must(eo_weights_visit(rt, compare, &expected), "visit");

    double sums[16];
    for (uint32_t v = 0; v < 16; v++)
        sums[v] = (self->rank + 1.0) * (v + 1);
    must(eo_sum(rt, sums, 16), "sum");
    for (uint32_t v = 0; v < 16; v++)
        TEST_HOLDS(NULL, sums[v] == scene->ranks * (scene->ranks + 1) / 2.0 * (v + 1));

    /* A step with learning rate 0 leaves them as they are, and comes back to the schedule and out of it. */
    must(passes(scene, rt, LAYERS, 0), "passes");
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0, .exact = true), NULL), "end");
    expected = (struct expected){.scene = scene, .written = true};
    must(eo_weights_visit(rt, compare, &expected), "visit");
    must(whole_step(scene, rt), "step");
    must(eo_weights_read(rt, "matrix2", back), "read");
    TEST_HOLDS(NULL, back[0] != given[0] && back[1] == given[1]);

    /* The first layer's gather was issued at the end of the step: it must not be what the next step sees. */
    const eo_view *view;
    must(eo_weights_write(rt, "bias0", given + 5), "write");
    must(eo_step_begin(rt), "begin");
    must(eo_forward_begin(rt, 0, &view), "forward");
    TEST_HOLDS(NULL, memcmp(view->weights[1], given + 5, 3 * sizeof(float)) == 0);
    eo_runtime_destroy(&rt);
}

/*
 * What is filled or written on shards is what is visited and read whole, in model order, before and after steps.
 */
void weights_round_trip(uint32_t ranks, eo_memory memory)
{
    struct scene scene;
    open_scene(&scene, "edges", ranks, 0);
    scene.memory = memory;
    run_ranks(&scene, play_weights);
    close_scene(&scene);
}
