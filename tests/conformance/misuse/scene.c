/* SPDX-License-Identifier: MIT */
#include "tests/conformance/misuse/misuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hashing.h"
#include "tests/tap/threads.h"

void must(eo_status status, const char *what)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s\n", what, eo_test_text);
    exit(1);
}

uint64_t memory_available;

uint64_t __real_eo_memory_available(uint32_t processes, const char **bound);
uint64_t __wrap_eo_memory_available(uint32_t processes, const char **bound);
uint64_t __wrap_eo_memory_available(uint32_t processes, const char **bound)
{
    if (memory_available == 0)
        return __real_eo_memory_available(processes, bound);
    *bound = "";
    return memory_available;
}

eo_strategy strategy = EO_STRATEGY_ZERO3;

void open_scene(struct scene *scene, const char *model, uint32_t ranks, uint32_t timeout_ms)
{
    *scene = (struct scene){.ranks = ranks};
    scene->model = eo_plan_model(model);
    must(eo_plan_create(&scene->plan, scene->model,
                        eo_plan_params(.rank_count = ranks, .strategy = strategy, .log = &eo_test_log,
                                       .shard_group = strategy == EO_STRATEGY_HSDP ? (ranks + 1) / 2 : 0)),
         "plan");
    must(eo_world_create_local(scene->worlds,
                               eo_world_params(.rank_count = ranks, .timeout_ms = timeout_ms, .log = &eo_test_log)),
         "world");
}

void close_scene(struct scene *scene)
{
    for (uint32_t r = 0; r < scene->ranks; r++)
        eo_world_destroy(&scene->worlds[r]);
    eo_plan_destroy(&scene->plan);
    eo_model_destroy(&scene->model);
}

eo_status open_runtime(struct scene *scene, uint32_t rank, eo_runtime **out)
{
    return eo_runtime_create(out, eo_runtime_params(.plan = scene->plan, .world = scene->worlds[rank],
                                                    .memory = scene->memory, .debug = scene->debug,
                                                    .zero_gradients = scene->zero_gradients, .log = &eo_test_log));
}

void write_gradients(const eo_view *view, float value)
{
    ((float *)view->gradients[0])[0] = value;
}

/* The layers of the test models have a matrix and a bias. */
void clear_gradients(const struct scene *scene, uint32_t position, const eo_view *view)
{
    eo_parameter_info info;
    for (uint32_t k = 0; k < view->parameter_count; k++) {
        must(eo_model_parameter(scene->model, 2 * position + k, &info), "parameter");
        memset(view->gradients[k], 0, info.element_count * sizeof(float));
    }
}

eo_status forward_pass(eo_runtime *rt, uint32_t p)
{
    const eo_view *view;
    EO_TRY(eo_forward_begin(rt, p, &view));
    return eo_forward_end(rt, p);
}

eo_status backward_pass(const struct scene *scene, eo_runtime *rt, uint32_t p, float gradient)
{
    const eo_view *view;
    EO_TRY(eo_backward_begin(rt, p, &view));
    EO_TRY(eo_gradients_begin(rt, p, &view));
    clear_gradients(scene, p, view);
    write_gradients(view, gradient);
    return eo_backward_end(rt, p);
}

eo_status passes(const struct scene *scene, eo_runtime *rt, uint32_t bad_position, float bad)
{
    EO_TRY(eo_step_begin(rt));
    for (uint32_t p = 0; p < LAYERS; p++)
        EO_TRY(forward_pass(rt, p));
    for (uint32_t p = LAYERS; p-- > 0;)
        EO_TRY(backward_pass(scene, rt, p, p == bad_position ? bad : 0.25F));
    return EO_OK;
}

eo_status whole_step(const struct scene *scene, eo_runtime *rt)
{
    EO_TRY(passes(scene, rt, LAYERS, 0));
    return eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL);
}

eo_status fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)(test_hash(9, *(const uint32_t *)user, offset + i) % 1000) / 500;
    return EO_OK;
}

void fill_all(const struct scene *scene, eo_runtime *rt)
{
    for (uint32_t k = 0; k < eo_model_parameter_count(scene->model); k++)
        must(eo_weights_fill(rt, k, fill, &k), "fill");
}

static eo_status add_to_hash(void *user, const eo_parameter_info *parameter, const float *values)
{
    uint64_t *hash = user;
    *hash = eo_hash64_more(*hash, values, parameter->element_count * sizeof(*values));
    return EO_OK;
}

uint64_t hash_of(eo_runtime *rt)
{
    uint64_t hash = 1;
    must(eo_weights_visit(rt, add_to_hash, &hash), "visit");
    return hash;
}

static void *act(void *arg)
{
    struct actor *self = arg;
    self->play(self);
    return NULL;
}

void run_ranks(struct scene *scene, void (*play)(struct actor *self))
{
    struct actor actors[WORLD_MAX];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint32_t r = 0; r < scene->ranks; r++)
        actors[r] = (struct actor){scene, r, play};
    run_as_threads(act, actors, scene->ranks, sizeof(actors[0]));
    clock_gettime(CLOCK_MONOTONIC, &end);
    TEST_EXPECT(NULL, end.tv_sec - begin.tv_sec < 20, "it took %lld s", (long long)(end.tv_sec - begin.tv_sec));
}
