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

static eo_status compare(void *user, const eo_parameter_info *info, const float *values)
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
        return EO_OK;
    }
    return EO_OK;
}

struct refusing {
    uint32_t calls, refused;
};

static eo_status refuse_visit(void *user, const eo_parameter_info *info, const float *values)
{
    struct refusing *refusing = user;
    (void)info;
    (void)values;
    return ++refusing->calls == refusing->refused ? EO_ERR_IO : EO_OK;
}

static eo_status refuse_fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    memset(values, 0, count * sizeof(*values));
    (void)offset;
    return refuse_visit(user, NULL, NULL);
}

/* A callback of rank 1 alone fails: so does its call, nobody waits, and training goes on. */
static void play_refusing(const struct scene *scene, uint32_t rank, eo_runtime *rt)
{
    struct refusing visit = {0, rank == 1 ? 3 : 0}, produce = {0, 1};
    const uint32_t all = eo_model_parameter_count(scene->model);
    TEST_HOLDS(NULL, eo_weights_visit(rt, refuse_visit, &visit) == (rank == 1 ? EO_ERR_IO : EO_OK));
    TEST_EXPECT(NULL, visit.calls == (rank == 1 ? 3 : all), "%u calls", visit.calls);
    TEST_EXPECT(NULL, rank != 1 || strstr(eo_runtime_error(rt), "eo_weights_visit: the callback returned"), "'%s'",
                eo_runtime_error(rt));
    if (rank == 1) /* its shard has a part of it with every number of ranks, or it is a replica */
        TEST_HOLDS(NULL, eo_weights_fill(rt, 2, refuse_fill, &produce) == EO_ERR_IO && produce.calls == 1);
    TEST_EXPECT(NULL, rank != 1 || strstr(eo_runtime_error(rt), "eo_weights_fill: the callback returned"), "'%s'",
                eo_runtime_error(rt));
    fill_all(scene, rt);
    must(whole_step(scene, rt), "step");
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

    double sums[130]; /* as many as a layer has running means */
    for (uint32_t v = 0; v < 130; v++)
        sums[v] = (self->rank + 1.0) * (v + 1);
    must(eo_sum(rt, sums, 130), "sum");
    for (uint32_t v = 0; v < 130; v++)
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
    must(eo_forward_end(rt, 0), "forward");
    for (uint32_t p = 1; p < LAYERS; p++)
        must(forward_pass(rt, p), "forward");
    for (uint32_t p = LAYERS; p-- > 0;)
        must(backward_pass(scene, rt, p, 0), "backward");
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    play_refusing(scene, self->rank, rt);
    eo_runtime_destroy(&rt);
}

/* Calls on its own runtime, made in a callback of `caller`. */
struct comes_back {
    struct expected expected;
    eo_runtime *rt;
    const char *caller;
    uint32_t calls;
};

static void refuse_all(struct comes_back *back)
{
    eo_runtime *rt = back->rt, *destroyed = rt;
    static float values[20000];
    double sum = 1;
    eo_step_report report;
    const eo_status statuses[] = {eo_weights_read(rt, "matrix2", values), eo_weights_write(rt, "matrix2", values),
                                  eo_weights_fill(rt, 0, fill, &(uint32_t){0}), eo_weights_visit(rt, compare, &back->expected),
                                  eo_sum(rt, &sum, 1), eo_runtime_get_report(rt, 1, &report), eo_step_begin(rt),
                                  eo_evaluation_begin(rt)};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        TEST_EXPECT(NULL, statuses[i] == EO_ERR_INVALID, "call %zu is taken in %s", i, back->caller);
    TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), "the end of a callback of ") && strstr(eo_runtime_error(rt), back->caller) &&
                strstr(eo_runtime_error(rt), "was expected, got eo_evaluation_begin"), "'%s'", eo_runtime_error(rt));
    TEST_HOLDS(NULL, eo_sum(rt, &sum, 1) == EO_ERR_INVALID);
    TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), "eo_sum: not from a callback of ") && strstr(eo_runtime_error(rt), back->caller),
                "'%s'", eo_runtime_error(rt));
    eo_runtime_destroy(&destroyed);
    TEST_HOLDS(NULL, destroyed == rt);
    back->calls++;
}

static eo_status visit_and_come_back(void *user, const eo_parameter_info *info, const float *values)
{
    struct comes_back *back = user;
    refuse_all(back);
    return compare(&back->expected, info, values);
}

static eo_status fill_and_come_back(void *user, uint64_t offset, uint64_t count, float *values)
{
    struct comes_back *back = user;
    float byte = 0;
    refuse_all(back);
    TEST_HOLDS(NULL, eo_runtime_upload(back->rt, values, &byte, 1) == EO_ERR_INVALID);
    return fill(&(uint32_t){0}, offset, count, values);
}

static void play_comes_back(struct actor *self)
{
    eo_runtime *rt;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    struct comes_back back = {.expected = {.scene = self->scene}, .rt = rt, .caller = "eo_weights_fill"};
    fill_all(self->scene, rt);
    must(eo_weights_fill(rt, 0, fill_and_come_back, &back), "fill");
    TEST_HOLDS(NULL, back.calls > 0 || self->rank > 0);
    back.caller = "eo_weights_visit";
    must(eo_weights_visit(rt, visit_and_come_back, &back), "visit");
    TEST_HOLDS(NULL, back.expected.next == eo_model_parameter_count(self->scene->model));
    must(whole_step(self->scene, rt), "step");
    eo_runtime_destroy(&rt);
}

/*
 * A callback that calls its runtime is refused by name, and what is filled and visited stays as it is.
 */
void calls_from_callbacks(eo_memory memory)
{
    struct scene scene;
    open_scene(&scene, "edges", 2, 0);
    scene.memory = memory;
    run_ranks(&scene, play_comes_back);
    close_scene(&scene);
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
