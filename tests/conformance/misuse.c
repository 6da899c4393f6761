/* SPDX-License-Identifier: MIT
 *
 * Calls that are wrong, ranks that differ, fail or stay away: each is refused or reported by name, nothing hangs, and
 * what was refused changed nothing.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <evenodd/evenodd.h>

#include "eo_config.h"
#include "ranks.h"
#include "tests/unit/plan_models.h"

enum { LAYERS = 6, WORLD_MAX = 4 };

struct scene {
    const char *model_name;
    eo_model *model;
    eo_plan *plan;
    eo_world *worlds[WORLD_MAX];
    uint32_t ranks;
    eo_memory memory;
    bool debug;
    eo_status statuses[WORLD_MAX];
    char texts[WORLD_MAX][512];
    _Atomic uint32_t turn;
};

static void must(eo_status status, const char *what)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s\n", what, eo_test_text);
    exit(1);
}

/* Of the scenes that are opened next; hsdp in two groups. */
static eo_strategy strategy = EO_STRATEGY_ZERO3;

static void open_scene(struct scene *scene, const char *model, uint32_t ranks, uint32_t timeout_ms)
{
    *scene = (struct scene){.model_name = model, .ranks = ranks};
    scene->model = eo_plan_model(model);
    must(eo_plan_create(&scene->plan, scene->model, eo_plan_params(.rank_count = ranks, .strategy = strategy, .log = &eo_test_log,
                                                                       .shard_group = strategy == EO_STRATEGY_HSDP ? (ranks + 1) / 2 : 0)), "plan");
    must(eo_world_create_local(scene->worlds,
                               eo_world_params(.rank_count = ranks, .timeout_ms = timeout_ms, .log = &eo_test_log)),
         "world");
}

static void close_scene(struct scene *scene)
{
    for (uint32_t r = 0; r < scene->ranks; r++)
        eo_world_destroy(&scene->worlds[r]);
    eo_plan_destroy(&scene->plan);
    eo_model_destroy(&scene->model);
}

static eo_status open_runtime(struct scene *scene, uint32_t rank, eo_runtime **out)
{
    return eo_runtime_create(out, eo_runtime_params(.plan = scene->plan, .world = scene->worlds[rank],
                                                    .memory = scene->memory, .debug = scene->debug,
                                                    .log = &eo_test_log));
}

static void write_gradients(const eo_view *view, float value)
{
    ((float *)view->gradients[0])[0] = value;
}

/* The layers of the test models have a matrix and a bias; only the first element of the matrix gets a gradient. */
static void clear_gradients(const struct scene *scene, uint32_t position, const eo_view *view)
{
    eo_parameter_info info;
    for (uint32_t k = 0; k < view->parameter_count; k++) {
        must(eo_model_parameter(scene->model, 2 * position + k, &info), "parameter");
        memset(view->gradients[k], 0, info.element_count * sizeof(float));
    }
}

#define TRY(call)                                                                                                     \
    do {                                                                                                              \
        const eo_status try_status = (call);                                                                          \
        if (try_status < 0)                                                                                           \
            return try_status;                                                                                        \
    } while (0)

static eo_status forward_pass(eo_runtime *rt, uint32_t p)
{
    const eo_view *view;
    TRY(eo_forward_begin(rt, p, &view));
    return eo_forward_end(rt, p);
}

static eo_status backward_pass(const struct scene *scene, eo_runtime *rt, uint32_t p, float gradient)
{
    const eo_view *view;
    TRY(eo_backward_begin(rt, p, &view));
    TRY(eo_gradients_begin(rt, p, &view));
    clear_gradients(scene, p, view);
    write_gradients(view, gradient);
    return eo_backward_end(rt, p);
}

static eo_status passes(const struct scene *scene, eo_runtime *rt, uint32_t bad_position, float bad)
{
    TRY(eo_step_begin(rt));
    for (uint32_t p = 0; p < LAYERS; p++)
        TRY(forward_pass(rt, p));
    for (uint32_t p = LAYERS; p-- > 0;)
        TRY(backward_pass(scene, rt, p, p == bad_position ? bad : 0.25F));
    return EO_OK;
}

static eo_status whole_step(const struct scene *scene, eo_runtime *rt)
{
    TRY(passes(scene, rt, LAYERS, 0));
    return eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL);
}

static void fill(void *user, uint64_t offset, uint64_t count, float *values)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)(test_hash(9, *(const uint32_t *)user, offset + i) % 1000) / 500;
}

static void fill_all(const struct scene *scene, eo_runtime *rt)
{
    for (uint32_t k = 0; k < eo_model_parameter_count(scene->model); k++)
        must(eo_weights_fill(rt, k, fill, &k), "fill");
}

static void add_to_hash(void *user, const eo_parameter_info *parameter, const float *values)
{
    uint64_t *hash = user;
    for (uint64_t i = 0; i < parameter->element_count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        *hash = (*hash ^ bits) * 0x100000001b3u;
    }
}

static uint64_t hash_of(eo_runtime *rt)
{
    uint64_t hash = 1;
    must(eo_weights_visit(rt, add_to_hash, &hash), "visit");
    return hash;
}

#define REFUSED(rt, call, part)                                                                                       \
    do {                                                                                                              \
        eo_test_text[0] = '\0';                                                                                       \
        TEST_EXPECT(NULL, (call) == EO_ERR_INVALID, "%s is taken", #call);                                            \
        TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), part), "%s: '%s' does not say '%s'", #call,                    \
                    eo_runtime_error(rt), part);                                                                      \
        TEST_EXPECT(NULL, strcmp(eo_test_text, eo_runtime_error(rt)) == 0, "%s: not logged", #call);                  \
    } while (0)

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
            REFUSED(rt, eo_forward_begin(rt, 99, &view), "a position that does not exist");
            REFUSED(rt, eo_forward_begin(rt, 0, NULL), "begin of forward");
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
            REFUSED(rt, eo_backward_begin(rt, 0, &view), "eo_step_end was expected, got begin of backward of use0");
            REFUSED(rt, eo_step_end(rt, NULL, NULL), "learning rate");
            REFUSED(rt, eo_step_end(rt, eo_step_params(.learning_rate = -1), NULL), "learning rate");
            REFUSED(rt, eo_step_end(rt, eo_step_params(.learning_rate = NAN), NULL), "learning rate");
            REFUSED(rt, eo_step_end(rt, eo_step_params(.learning_rate = 1, .clip = -1), NULL), "clip");
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
            must(whole_step(&scene, rt), "step");
        }
        hashes[disturbed] = hash_of(rt);
        eo_runtime_destroy(&rt);
        close_scene(&scene);
    }
    TEST_HOLDS(NULL, hashes[0] == hashes[1]);
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
        REFUSED(rt, eo_gradients_begin(rt, p, &view), "end of backward of use");
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
    enum { KEPT0, AGAIN0, SCRATCH0, HANDED0, KEPT1, AGAIN1, SCRATCH1, HANDED1 }; /* as plan_models.c adds them */
    open_scene(&scene, "edges", 1, 0);
    scene.debug = true;
    must(open_runtime(&scene, 0, &rt), "runtime");
    TEST_HOLDS(NULL, eo_buffer(rt, KEPT0) == NULL);
    TEST_EXPECT(NULL, strstr(eo_test_text, "buffer 'kept0' is not live"), "'%s'", eo_test_text);
    must(eo_step_begin(rt), "begin");
    must(eo_forward_begin(rt, 0, &first), "forward");
    TEST_HOLDS(NULL, !eo_view_is_stale(rt, first) && eo_view_weight(rt, first, 1) == first->weights[1]);
    TEST_HOLDS(NULL, eo_view_weight(rt, first, 2) == NULL && eo_view_gradient(rt, first, 0) == NULL);
    TEST_HOLDS(NULL, eo_buffer(rt, KEPT0) && eo_buffer(rt, SCRATCH0) && eo_buffer(rt, HANDED0));
    TEST_HOLDS(NULL, !eo_buffer(rt, AGAIN0) && !eo_buffer(rt, KEPT1) && !eo_buffer(rt, 100000));
    must(eo_forward_end(rt, 0), "forward");
    eo_test_text[0] = '\0';
    TEST_HOLDS(NULL, eo_view_is_stale(rt, first) && eo_view_weight(rt, first, 0) == NULL);
    TEST_EXPECT(NULL, strstr(eo_test_text, "weights of use0 used after its forward pass has ended"), "'%s'",
                eo_test_text);
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
    must(eo_gradients_begin(rt, 1, &second), "backward");
    TEST_HOLDS(NULL, eo_view_gradient(rt, second, 0) == second->gradients[0] && second->gradients[0]);
    clear_gradients(&scene, 1, second);
    must(eo_backward_end(rt, 1), "backward");
    eo_test_text[0] = '\0';
    TEST_HOLDS(NULL, eo_view_gradient(rt, second, 0) == NULL && !eo_buffer(rt, KEPT1));
    must(backward_pass(&scene, rt, 0, 0), "backward");
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    eo_runtime_destroy(&rt);
    close_scene(&scene);
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
        {{.optimizer_states = EO_NO_STATE}, EO_ERR_INVALID, "AdamW needs 2"},
        {{.strategy = EO_STRATEGY_ZERO1}, EO_ERR_UNSUPPORTED, "strategy zero1 is planned memory's alone"},
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
    eo_runtime *rt = NULL;
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.world = scene.worlds[0])) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(NULL, eo_runtime_params(.plan = scene.plan)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0],
                                                              .memory = (eo_memory)9)) == EO_ERR_INVALID);
    close_scene(&scene);
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

/* -- ranks ----------------------------------------------------------------------------------------------------------*/

struct actor {
    struct scene *scene;
    uint32_t rank;
    void (*play)(struct actor *self);
};

static void *act(void *arg)
{
    struct actor *self = arg;
    self->play(self);
    return NULL;
}

/* Runs play on each rank. A minute is more than any of them may take. */
static void run_ranks(struct scene *scene, void (*play)(struct actor *self))
{
    struct actor actors[WORLD_MAX];
    pthread_t threads[WORLD_MAX];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint32_t r = 0; r < scene->ranks; r++) {
        actors[r] = (struct actor){scene, r, play};
        if (pthread_create(&threads[r], NULL, act, &actors[r]) != 0) {
            puts("Bail out! a thread cannot be made");
            exit(1);
        }
    }
    for (uint32_t r = 0; r < scene->ranks; r++)
        pthread_join(threads[r], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    TEST_EXPECT(NULL, end.tv_sec - begin.tv_sec < 20, "it took %lld s", (long long)(end.tv_sec - begin.tv_sec));
}

static void keep_text(struct actor *self, eo_status status, const eo_runtime *rt)
{
    self->scene->statuses[self->rank] = status;
    snprintf(self->scene->texts[self->rank], sizeof(self->scene->texts[0]), "%s", eo_runtime_error(rt));
}

static void play_other_plan(struct actor *self)
{
    eo_plan *plan = NULL;
    eo_runtime *rt = NULL;
    must(eo_plan_create(&plan, self->scene->model,
                        eo_plan_params(.rank_count = self->scene->ranks, .gather_slots = 2 + (self->rank == 1))),
         "plan");
    const eo_status status = eo_runtime_create(&rt, eo_runtime_params(.plan = plan,
                                                                      .world = self->scene->worlds[self->rank],
                                                                      .log = &eo_test_log));
    keep_text(self, status, rt);
    eo_runtime_destroy(&rt);
    eo_plan_destroy(&plan);
}

/*
 * One of three ranks has another plan: all are told, none hangs.
 */
static void different_plans(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 3, 0);
    eo_test_text[0] = '\0';
    run_ranks(&scene, play_other_plan);
    for (uint32_t r = 0; r < 3; r++)
        TEST_EXPECT(NULL, scene.statuses[r] == EO_ERR_COMM, "rank %u: %s", r, eo_status_text(scene.statuses[r]));
    TEST_EXPECT(NULL, strstr(eo_test_text, "has another plan (fingerprint"), "'%s'", eo_test_text);
    close_scene(&scene);
}

static void play_one_gives_up(struct actor *self)
{
    eo_runtime *rt;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    must(whole_step(self->scene, rt), "step");
    if (self->rank == 2) {
        must(eo_step_begin(rt), "begin");
        must(forward_pass(rt, 0), "forward");
        eo_world_abort(self->scene->worlds[2], "the cat is on the keyboard");
    } else {
        eo_status status = EO_OK;
        for (int step = 0; step < 5 && status >= 0; step++)
            status = whole_step(self->scene, rt);
        keep_text(self, status, rt);
        TEST_HOLDS(NULL, eo_step_begin(rt) == EO_ERR_INVALID);
        TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), "nothing but eo_runtime_destroy"), "'%s'", eo_runtime_error(rt));
    }
    eo_runtime_destroy(&rt);
}

/*
 * A rank that gives up ends the others with its reason; a runtime that failed takes nothing but destroy.
 */
static void one_gives_up(eo_memory memory)
{
    struct scene scene;
    char text[256];
    open_scene(&scene, "edges", 3, 0);
    scene.memory = memory;
    run_ranks(&scene, play_one_gives_up);
    for (uint32_t r = 0; r < 2; r++) {
        TEST_EXPECT(NULL, scene.statuses[r] == EO_ERR_COMM, "rank %u: %s", r, eo_status_text(scene.statuses[r]));
        TEST_EXPECT(NULL, strstr(scene.texts[r], "rank 2") && strstr(scene.texts[r], "the cat is on the keyboard"),
                    "'%s'", scene.texts[r]);
        eo_world_failure(scene.worlds[r], text, sizeof(text));
        TEST_EXPECT(NULL, strstr(text, "the cat"), "'%s'", text);
    }
    close_scene(&scene);
}

static void play_one_stays_away(struct actor *self)
{
    eo_runtime *rt;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    must(whole_step(self->scene, rt), "step");
    if (self->rank == 1) { /* stays until the others have given up */
        while (atomic_load(&self->scene->turn) < 2)
            test_pause_ms(10);
    } else {
        eo_status status = EO_OK;
        for (int step = 0; step < 5 && status >= 0; step++)
            status = whole_step(self->scene, rt);
        keep_text(self, status, rt);
        atomic_fetch_add(&self->scene->turn, 1);
    }
    eo_runtime_destroy(&rt);
}

/*
 * A rank that does not come: the others wait until the deadline, and say who is missing and for what.
 */
static void one_stays_away(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 3, 700);
    run_ranks(&scene, play_one_stays_away);
    for (uint32_t r = 0; r < 3; r += 2) {
        TEST_EXPECT(NULL, scene.statuses[r] == EO_ERR_TIMEOUT || scene.statuses[r] == EO_ERR_COMM, "rank %u: %s", r,
                    eo_status_text(scene.statuses[r]));
        TEST_EXPECT(NULL, strstr(scene.texts[r], "rank 1") && strstr(scene.texts[r], "use"), "'%s'", scene.texts[r]);
    }
    close_scene(&scene);
}

static void play_not_finite(struct actor *self)
{
    eo_runtime *rt;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    fill_all(self->scene, rt);
    must(whole_step(self->scene, rt), "step");
    /* The first element of a layer lies in rank 0's shard. */
    must(passes(self->scene, rt, self->rank == 1 ? 3 : LAYERS, NAN), "passes");
    keep_text(self, eo_step_end(rt, eo_step_params(.learning_rate = 0.1F, .clip = 1), NULL), rt);
    eo_runtime_destroy(&rt);
}

/*
 * A gradient that is no number on one rank stops all of them in the same step; where its shard lies the layer is named.
 */
static void not_finite(eo_memory memory)
{
    struct scene scene;
    open_scene(&scene, "edges", 2, 0);
    scene.memory = memory;
    run_ranks(&scene, play_not_finite);
    for (uint32_t r = 0; r < 2; r++) {
        TEST_EXPECT(NULL, scene.statuses[r] == EO_ERR_NOT_FINITE, "rank %u: %s", r, eo_status_text(scene.statuses[r]));
        const bool names = strstr(scene.texts[r], "layer3"); /* whoever has a part of it that is not finite */
        TEST_EXPECT(NULL, strstr(scene.texts[r], "step 2") && (names || (r && strstr(scene.texts[r], "another rank"))),
                    "'%s'", scene.texts[r]);
    }
    close_scene(&scene);
}

/* -- weights outside the schedule --------------------------------------------------------------------------------- */

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
    must(eo_step_end(rt, eo_step_params(.learning_rate = 0), NULL), "end");
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
static void weights_round_trip(uint32_t ranks, eo_memory memory)
{
    struct scene scene;
    open_scene(&scene, "edges", ranks, 0);
    scene.memory = memory;
    run_ranks(&scene, play_weights);
    close_scene(&scene);
}

int main(void)
{
    if (EO_DEBUG_ABORT) {
        puts("1..0 # SKIP refusals abort in this build");
        return 0;
    }
    wrong_order(EO_MEMORY_STATIC);
    wrong_order(EO_MEMORY_DYNAMIC_POOL);
    test_report("calls out of planned order are refused by name and change nothing", 1);
    frozen_layer();
    test_report("a frozen layer has no gradients to begin", 1);
    late_views_and_buffers();
    test_report("views and buffers used outside their time are refused by name", 1);
    plans_that_do_not_fit();
    test_report("plans that do not fit are refused", 1);
    what_this_device_has_not();
    test_report("what this device has not is refused by name, and ordinary steps go on", 1);
    different_plans();
    test_report("ranks with different plans are told so", 3);
    one_gives_up(EO_MEMORY_STATIC);
    one_gives_up(EO_MEMORY_DYNAMIC_MALLOC);
    test_report("a rank that gives up ends the others with its reason", 3);
    one_stays_away();
    test_report("a rank that stays away is named when the deadline is over", 3);
    not_finite(EO_MEMORY_STATIC);
    not_finite(EO_MEMORY_DYNAMIC_POOL);
    test_report("a gradient that is not finite stops all ranks, layer named", 2);
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
    return test_finish();
}
