/* SPDX-License-Identifier: MIT
 *
 * Ranks that differ, give up, stay away, or have a gradient that is not finite: told on all others, and none waits.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/misuse/misuse.h"

static void keep_text(struct actor *self, eo_status status, const eo_runtime *rt)
{
    self->scene->statuses[self->rank] = status;
    snprintf(self->scene->texts[self->rank], sizeof(self->scene->texts[0]), "%s", eo_runtime_error(rt));
}

/* A rank has ended with this status, and with both these words. */
static void ended(const struct scene *scene, uint32_t rank, eo_status status, const char *words, const char *others)
{
    TEST_EXPECT(NULL, scene->statuses[rank] == status, "rank %u: %s", rank, eo_status_text(scene->statuses[rank]));
    TEST_EXPECT(NULL, strstr(scene->texts[rank], words) && strstr(scene->texts[rank], others), "'%s'", scene->texts[rank]);
}

/* Of rank 1: another setting, a layer more, other buffers. */
static void play_other_plan(struct actor *self)
{
    const uint32_t turn = self->rank == 1 ? atomic_load(&self->scene->turn) : UINT32_MAX;
    eo_plan *plan = NULL;
    eo_runtime *rt = NULL;
    eo_model *model = eo_plan_model("edges");
    if (turn == 1) {
        must(eo_model_add_layer(model, eo_layer_params(.name = "more"), NULL), "layer");
        must(eo_model_add_parameter(model, eo_parameter_params(.layer = LAYERS, .name = "more", .dim_count = 1, .dims = {5}),
                                    NULL),
             "parameter");
        must(eo_model_add_position(model, eo_position_params(.layer = LAYERS), NULL), "position");
    }
    if (turn == 2)
        must(eo_model_add_buffer(
                 model, eo_buffer_params(.name = "more", .bytes = 64, .category = EO_CATEGORY_OTHER, .persistent = true), NULL),
             "buffer");
    must(eo_plan_create(&plan, model, eo_plan_params(.rank_count = self->scene->ranks, .gather_slots = 2 + (turn == 0))),
         "plan");
    const eo_status status = eo_runtime_create(&rt, eo_runtime_params(.plan = plan,
                                                                      .world = self->scene->worlds[self->rank],
                                                                      .log = &eo_test_log));
    keep_text(self, status, rt);
    eo_runtime_destroy(&rt);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/*
 * One of three ranks has another plan: all are told in what, none hangs.
 */
void different_plans(void)
{
    static const char *const parts[] = {"settings (eo_plan_params)", "layers or their parameters", "positions or buffers"};
    for (uint32_t turn = 0; turn < 3; turn++) {
        struct scene scene;
        open_scene(&scene, "edges", 3, 0);
        scene.turn = turn;
        eo_test_text[0] = '\0';
        run_ranks(&scene, play_other_plan);
        for (uint32_t r = 0; r < 3; r++)
            TEST_EXPECT(NULL, scene.statuses[r] == EO_ERR_COMM, "rank %u: %s", r, eo_status_text(scene.statuses[r]));
        TEST_EXPECT(NULL, strstr(eo_test_text, "has another plan (fingerprint") && strstr(eo_test_text, parts[turn]), "'%s'",
                    eo_test_text);
        close_scene(&scene);
    }
}

/*
 * A rank that never creates its runtime is named by the log of the other's, where the world has none.
 */
void one_never_creates(void)
{
    struct scene scene;
    eo_world *worlds[2];
    eo_runtime *rt = NULL;
    open_scene(&scene, "edges", 2, 0);
    must(eo_world_create_local(worlds, eo_world_params(.rank_count = 2, .timeout_ms = 300)), "world");
    eo_test_text[0] = '\0';
    const eo_status status =
        eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = worlds[0], .log = &eo_test_log));
    TEST_EXPECT(NULL, status == EO_ERR_TIMEOUT, "%s", eo_status_text(status));
    TEST_EXPECT(NULL, strstr(eo_test_text, "rank 0: waiting for all ranks in eo_runtime_create: rank 1 has not entered"),
                "'%s'", eo_test_text);
    eo_world_destroy(&worlds[0]);
    eo_world_destroy(&worlds[1]);
    close_scene(&scene);
}

static void play_joins_nothing(struct actor *self)
{
    eo_rendezvous *rendezvous = NULL;
    eo_world *world = NULL;
    char job[32];
    snprintf(job, sizeof(job), "misuse %ld", (long)getpid());
    must(eo_rendezvous_create(&rendezvous, eo_rendezvous_params(.rank = self->rank, .rank_count = 2, .local_rank = self->rank,
                                                                .local_count = 2, .job = job, .log = &eo_test_log)),
         "rendezvous");
    if (self->rank == 1)
        eo_rendezvous_fail(rendezvous, EO_ERR_IO, "the cat is in the box");
    else
        self->scene->statuses[0] =
            eo_world_create_joined(&world, eo_world_join_params(.rendezvous = rendezvous, .log = &eo_test_log));
    eo_rendezvous_destroy(&rendezvous);
}

/*
 * A world of processes that cannot be made because another rank gave up says so where nothing else is told.
 */
void one_never_joins(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 2, 0);
    eo_test_text[0] = '\0';
    run_ranks(&scene, play_joins_nothing);
    TEST_EXPECT(NULL, scene.statuses[0] == EO_ERR_IO, "%s", eo_status_text(scene.statuses[0]));
    TEST_EXPECT(NULL, strstr(eo_test_text, "rank 0 cannot create its world: ") && strstr(eo_test_text, "the cat is in the box"),
                "'%s'", eo_test_text);
    close_scene(&scene);
}

static void play_recorder_in_use(struct actor *self)
{
    eo_flight_recorder *recorder = NULL;
    eo_plan *plan = NULL;
    eo_world *own = NULL;
    eo_runtime *first = NULL, *rt = NULL;
    if (self->rank == 1) {
        must(eo_flight_recorder_create(&recorder, eo_flight_recorder_params(.rank_count = 1, .log = &eo_test_log)), "recorder");
        must(eo_plan_create(&plan, self->scene->model, eo_plan_params(.rank_count = 1)), "plan");
        must(eo_world_create_local(&own, eo_world_params(.rank_count = 1)), "world");
        must(eo_runtime_create(&first, eo_runtime_params(.plan = plan, .world = own, .recorder = recorder)), "runtime");
    }
    self->scene->statuses[self->rank] =
        eo_runtime_create(&rt, eo_runtime_params(.plan = self->scene->plan, .world = self->scene->worlds[self->rank],
                                                 .recorder = recorder, .log = &eo_test_log));
    eo_world_failure(self->scene->worlds[self->rank], self->scene->texts[self->rank], sizeof(self->scene->texts[0]));
    TEST_HOLDS(NULL, rt == NULL);
    eo_runtime_destroy(&first);
    eo_world_destroy(&own);
    eo_plan_destroy(&plan);
    eo_flight_recorder_destroy(&recorder);
}

/*
 * What create finds wrong on one rank alone is EO_ERR_INVALID there, and the others are told at once.
 */
void one_cannot_begin(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 3, 0);
    run_ranks(&scene, play_recorder_in_use);
    for (uint32_t r = 0; r < 3; r++)
        ended(&scene, r, r == 1 ? EO_ERR_INVALID : EO_ERR_COMM, "rank 1 gave up: cannot create its runtime", "");
    close_scene(&scene);
}

/*
 * What fails in the world on a rank's own account is in its runtime's log too: the world may have no log, or another.
 * Here runtimes take all communicators there may be.
 */
void own_cause_is_told(void)
{
    enum { MANY = 16 };
    struct scene scene;
    eo_rendezvous *rendezvous = NULL;
    eo_world *world = NULL;
    eo_runtime *all[MANY] = {NULL};
    uint32_t count = 0;
    open_scene(&scene, "edges", 1, 0);
    must(eo_rendezvous_create(&rendezvous, eo_rendezvous_params(.rank = 0, .rank_count = 1)), "rendezvous");
    must(eo_world_create_joined(&world,
                                eo_world_join_params(.rendezvous = rendezvous, .collectives = "shared", .timeout_ms = 50)),
         "world");
    eo_test_text[0] = '\0';
    while (count < MANY &&
           eo_runtime_create(&all[count], eo_runtime_params(.plan = scene.plan, .world = world, .log = &eo_test_log)) >= 0)
        count++;
    TEST_EXPECT(NULL, strstr(eo_test_text, "rank 0 opens a communicator, but ") == eo_test_text, "%u: '%s'", count,
                eo_test_text);
    while (count > 0)
        eo_runtime_destroy(&all[--count]);
    eo_world_destroy(&world);
    eo_rendezvous_destroy(&rendezvous);
    close_scene(&scene);
}

static void play_memory_for_one(struct actor *self)
{
    eo_runtime *rt = NULL;
    self->scene->statuses[self->rank] = open_runtime(self->scene, self->rank, &rt);
    eo_runtime_destroy(&rt);
}

/*
 * Ranks that share a memory must have room together: each is told before any has taken what the others need.
 */
void memory_for_one(void)
{
    for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
        struct scene scene;
        eo_plan_summary summary;
        open_scene(&scene, "edges", ranks, 0);
        eo_plan_get_summary(scene.plan, &summary);
        memory_available = 2 * summary.arena_bytes;
        eo_test_text[0] = '\0';
        run_ranks(&scene, play_memory_for_one);
        memory_available = 0;
        uint32_t short_count = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            char text[512];
            eo_world_failure(scene.worlds[r], text, sizeof(text));
            TEST_EXPECT(NULL, ranks == 1 || strstr(text, "MiB needed by each of its 3 ranks"), "'%s'", text);
            short_count += scene.statuses[r] == EO_ERR_NO_MEMORY;
            TEST_EXPECT(NULL, ranks == 1 ? scene.statuses[r] == EO_OK : scene.statuses[r] == EO_ERR_NO_MEMORY ||
                        scene.statuses[r] == EO_ERR_COMM, "rank %u of %u: %s", r, ranks, eo_status_text(scene.statuses[r]));
        }
        TEST_HOLDS(NULL, (short_count > 0) == (ranks > 1));
        close_scene(&scene);
    }
}

static void play_no_folder(struct actor *self)
{
    eo_plan *plan = NULL;
    eo_runtime *rt = NULL;
    must(eo_plan_create(&plan, self->scene->model,
                        eo_plan_params(.rank_count = self->scene->ranks, .offload_layers = UINT32_MAX)),
         "plan");
    self->scene->statuses[self->rank] =
        eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = self->scene->worlds[self->rank], .log = &eo_test_log,
                                                 .offload_folder = self->rank == 1 ? "no/such/folder" : "."));
    eo_world_failure(self->scene->worlds[self->rank], self->scene->texts[self->rank], sizeof(self->scene->texts[0]));
    eo_runtime_destroy(&rt);
    eo_plan_destroy(&plan);
}

/*
 * The others learn which folder it was, and of which rank.
 */
void no_place_to_offload(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 3, 0);
    run_ranks(&scene, play_no_folder);
    for (uint32_t r = 0; r < 3; r++)
        ended(&scene, r, r == 1 ? EO_ERR_INVALID : EO_ERR_COMM, "rank 1 gave up: cannot create its runtime: no place for the",
              "that it offloads in the folder no/such/folder");
    close_scene(&scene);
}

static void play_refused_alone(struct actor *self)
{
    eo_runtime *rt;
    float value;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    must(whole_step(self->scene, rt), "step");
    if (self->rank == 1) {
        TEST_HOLDS(NULL, eo_weights_read(rt, "no such", &value) == EO_ERR_INVALID);
        TEST_HOLDS(NULL, eo_weights_write(rt, "no such", &value) == EO_ERR_INVALID);
        TEST_HOLDS(NULL, eo_weights_fill(rt, 1000, NULL, NULL) == EO_ERR_INVALID);
        TEST_HOLDS(NULL, eo_weights_visit(rt, NULL, NULL) == EO_ERR_INVALID);
        TEST_HOLDS(NULL, eo_sum(rt, NULL, 1) == EO_ERR_INVALID);
    }
    must(whole_step(self->scene, rt), "step");
    eo_runtime_destroy(&rt);
}

/*
 * Calls outside the schedule that one rank alone makes wrongly are refused there, and nobody waits for anybody.
 */
void one_is_refused(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 3, 3000);
    run_ranks(&scene, play_refused_alone);
    close_scene(&scene);
}

static void play_evaluates_alone(struct actor *self)
{
    eo_runtime *rt;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    must(whole_step(self->scene, rt), "step");
    keep_text(self, self->rank == 0 ? eo_evaluation_begin(rt) : whole_step(self->scene, rt), rt);
    eo_runtime_destroy(&rt);
}

/*
 * "if (rank == 0) evaluate();": that rank's error names its call, the other's what it did not come to.
 */
void one_evaluates_alone(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 2, 300);
    run_ranks(&scene, play_evaluates_alone);
    for (uint32_t r = 0; r < 2; r++) {
        TEST_HOLDS(NULL, scene.statuses[r] == EO_ERR_COMM || scene.statuses[r] == EO_ERR_TIMEOUT);
        TEST_EXPECT(NULL,
                    strstr(scene.texts[r], r ? "step 2: " : "eo_evaluation_begin after step 1: ") &&
                        strstr(scene.texts[r], "barrier 'create, evaluation, sum, weights or checkpoint'"),
                    "'%s'", scene.texts[r]);
    }
    close_scene(&scene);
}

static void play_other_weights(struct actor *self)
{
    eo_runtime *rt;
    float values[2000];
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    atomic_fetch_add(&self->scene->turn, 1);
    while (atomic_load(&self->scene->turn) < self->scene->ranks) /* or the failure would end its create */
        test_pause_ms(1);
    keep_text(self, eo_weights_read(rt, self->rank == 1 ? "matrix2" : "matrix3", values), rt);
    eo_runtime_destroy(&rt);
}

/*
 * Ranks that read parameters of different layers, of one size, are told so; they would get parts of each.
 */
void different_weights(eo_memory memory)
{
    struct scene scene;
    open_scene(&scene, "edges", 3, 0);
    scene.memory = memory;
    run_ranks(&scene, play_other_weights);
    for (uint32_t r = 0; r < 3; r++)
        ended(&scene, r, EO_ERR_COMM, "all-gather 'weights of layer2'", "'weights of layer3'");
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
        TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), "only eo_runtime_destroy"), "'%s'", eo_runtime_error(rt));
    }
    eo_runtime_destroy(&rt);
}

/*
 * A rank that gives up ends the others with its reason; a runtime that failed takes nothing but destroy.
 */
void one_gives_up(eo_memory memory)
{
    struct scene scene;
    char text[256];
    open_scene(&scene, "edges", 3, 0);
    scene.memory = memory;
    run_ranks(&scene, play_one_gives_up);
    for (uint32_t r = 0; r < 2; r++) {
        ended(&scene, r, EO_ERR_COMM, "rank 2", "the cat is on the keyboard");
        eo_world_failure(scene.worlds[r], text, sizeof(text));
        TEST_EXPECT(NULL, strstr(text, "the cat"), "'%s'", text);
    }
    eo_runtime *again = NULL;
    TEST_EXPECT(NULL, open_runtime(&scene, 0, &again) == EO_ERR_COMM && !again && strstr(eo_test_text, "this world has failed before") &&
                          strstr(eo_test_text, "the cat"), "'%s'", eo_test_text);
    close_scene(&scene);
}

static void play_other_numbers(struct actor *self)
{
    const eo_parameter_group group = {.beta1 = self->rank == 1 && self->scene->turn > 1 ? 0.5F : 0.75F};
    eo_runtime *rt;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    must(whole_step(self->scene, rt), "step");
    must(passes(self->scene, rt, LAYERS, 0), "passes");
    keep_text(self,
              eo_step_end(rt,
                          eo_step_params(.learning_rate = self->rank == 1 && self->scene->turn == 1 ? 0.5F : 0.25F,
                                         .groups = &group, .group_count = 1, .values = {self->rank}, .weight = self->rank),
                          NULL),
              rt);
    eo_runtime_destroy(&rt);
}

/*
 * Ranks that end a step with other numbers are told so, but for their own values and weights.
 */
void other_numbers(eo_memory memory)
{
    for (uint32_t turn = 0; turn < 3; turn++) { /* all the same, another learning rate, another group */
        struct scene scene;
        open_scene(&scene, "edges", 3, 0);
        scene.memory = memory;
        scene.turn = turn;
        run_ranks(&scene, play_other_numbers);
        for (uint32_t r = 0; r < 3; r++)
            ended(&scene, r, turn ? EO_ERR_COMM : EO_OK, turn ? "'norms of step 2, params " : "",
                  turn ? "step 2: the ranks gave eo_step_end different numbers (learning rate, " : "");
        close_scene(&scene);
    }
}

static void play_other_counts(struct actor *self)
{
    double values[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    eo_runtime *rt;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    must(eo_sum(rt, values, 9), "the same number");
    const uint32_t counts[2][2] = {{5, 2}, {9, 6}}; /* in one round, and in two and one */
    keep_text(self, eo_sum(rt, values, counts[self->scene->turn][self->rank]), rt);
    eo_runtime_destroy(&rt);
}

void other_counts(void)
{
    for (uint32_t turn = 0; turn < 2; turn++) {
        struct scene scene;
        open_scene(&scene, "edges", 2, 0);
        scene.turn = turn;
        run_ranks(&scene, play_other_counts);
        for (uint32_t r = 0; r < 2; r++)
            ended(&scene, r, EO_ERR_COMM, turn ? "'sum of 9 values'" : "'sum of 5 values'",
                  turn ? "'sum of 6 values'" : "'sum of 2 values'");
        close_scene(&scene);
    }
}

/* On rank 0 alone: before the first step, and after a step and what all have written. */
static void play_writes_alone(struct actor *self)
{
    static const float values[2000];
    eo_runtime *rt;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    if (self->scene->turn) {
        fill_all(self->scene, rt);
        must(whole_step(self->scene, rt), "step");
        must(eo_weights_write(rt, "bias0", values), "write");
        must(eo_weights_write(rt, "bias0", values), "again"); /* as often as it likes */
    }
    if (self->rank == 0)
        must(eo_weights_write(rt, "matrix2", values), "write");
    keep_text(self, whole_step(self->scene, rt), rt);
    eo_runtime_destroy(&rt);
}

/*
 * Weights that one rank alone writes go nowhere else: the next step tells all of them.
 */
void one_writes_alone(eo_memory memory)
{
    for (uint32_t turn = 0; turn < 2; turn++) {
        struct scene scene;
        open_scene(&scene, "edges", 2, 0);
        scene.memory = memory;
        scene.turn = turn;
        run_ranks(&scene, play_writes_alone);
        for (uint32_t r = 0; r < 2; r++)
            ended(&scene, r, EO_ERR_COMM, "before this step the ranks filled, wrote or loaded different weights", "");
        close_scene(&scene);
    }
}

static void play_gives_up_inside(struct actor *self)
{
    eo_world *world = self->scene->worlds[self->rank], *inner = NULL, *inmost = NULL;
    char text[256];
    must(eo_world_split(&inner, world, self->rank / 2, 9 - self->rank), "split");
    must(eo_world_split(&inmost, inner, self->rank, 0), "split again");
    atomic_fetch_add(&self->scene->turn, 1);
    while (atomic_load(&self->scene->turn) < self->scene->ranks)
        test_pause_ms(1);
    if (self->rank == 0)
        TEST_HOLDS(NULL, eo_world_rank(inner) == 1 && eo_world_rank(inmost) == 0);
    if (self->rank == 1)
        eo_world_abort(inmost, "enough");
    for (int i = 0; i < 1000 && (eo_world_failure(world, text, sizeof(text)), text[0] == '\0'); i++)
        test_pause_ms(10);
    TEST_EXPECT(NULL, strcmp(text, "rank 1 gave up: enough") == 0, "'%s'", text);
    eo_world_destroy(&inmost);
    eo_world_destroy(&inner);
}

/*
 * Who gives up in a world inside another has its number of the outermost one in all of them.
 */
void one_gives_up_inside(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 3, 0);
    run_ranks(&scene, play_gives_up_inside);
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

static void play_two_ways(struct actor *self)
{
    eo_runtime *rt;
    double value = 0;
    must(open_runtime(self->scene, self->rank, &rt), "runtime");
    must(whole_step(self->scene, rt), "step");
    keep_text(self, self->rank ? whole_step(self->scene, rt) : eo_sum(rt, &value, 1), rt);
    eo_runtime_destroy(&rt);
}

/*
 * One rank sums, the other goes on with a step, which begins with no gather: each waits for the other in another communicator.
 * At the deadline it is told where the missing one is.
 */
void two_ways(void)
{
    struct scene scene;
    strategy = EO_STRATEGY_DDP;
    open_scene(&scene, "edges", 2, 700);
    strategy = EO_STRATEGY_ZERO3;
    run_ranks(&scene, play_two_ways);
    for (uint32_t r = 0; r < 2; r++)
        TEST_EXPECT(NULL, strstr(scene.texts[r], "; it is in ") && strstr(scene.texts[r], " has not entered: do all ranks make the same calls?"),
                    "'%s'", scene.texts[r]);
    close_scene(&scene);
}

/*
 * A forked child is refused what its parent's threads would do.
 */
void forked_child(void)
{
    struct scene scene;
    eo_runtime *rt;
    double value = 0;
    int status = -1;
    open_scene(&scene, "edges", 1, 0);
    must(open_runtime(&scene, 0, &rt), "runtime");
    const pid_t child = fork();
    if (child == 0)
        _exit(eo_step_begin(rt) == EO_ERR_INVALID && eo_evaluation_begin(rt) == EO_ERR_INVALID && eo_sum(rt, &value, 1) == EO_ERR_INVALID &&
                      strstr(eo_runtime_error(rt), "eo_sum: not in a forked child")
                  ? 0
                  : 1);
    TEST_HOLDS(NULL, child > 0 && waitpid(child, &status, 0) == child && status == 0);
    must(whole_step(&scene, rt), "step");
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/*
 * A rank that does not come: the others wait until the deadline, and say who is missing and for what.
 */
void one_stays_away(void)
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
    TEST_HOLDS(NULL, eo_weights_read(rt, "matrix2", NULL) == EO_ERR_INVALID);
    TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), "eo_weights_read: after an error only eo_runtime_destroy is possible"),
                "'%s'", eo_runtime_error(rt));
    eo_runtime_destroy(&rt);
}

/*
 * A NaN that backward gives on is told of the layer that it came from. Debug mode has another reason for it than training.
 */
void not_finite_from(bool debug)
{
    struct scene scene;
    eo_runtime *rt;
    open_scene(&scene, "edges", 1, 0);
    scene.debug = debug;
    must(open_runtime(&scene, 0, &rt), "runtime");
    must(eo_step_begin(rt), "begin");
    for (uint32_t p = 0; p < LAYERS; p++)
        must(forward_pass(rt, p), "forward");
    for (uint32_t p = LAYERS; p-- > 0;)
        must(backward_pass(&scene, rt, p, p <= 3 ? NAN : 0.25F), "backward");
    TEST_HOLDS(NULL, eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL) == EO_ERR_NOT_FINITE);
    TEST_EXPECT(
        NULL,
        strstr(eo_runtime_error(rt), "not finite (layer3, and 3 before it)") &&
            strstr(eo_runtime_error(rt), debug ? "debug mode fills dead memory with NaN" : "with on_not_finite EO_SKIP") &&
            !strstr(eo_runtime_error(rt), debug ? "EO_SKIP" : "debug"),
        "'%s'", eo_runtime_error(rt));
    eo_runtime_destroy(&rt);
    close_scene(&scene);
}

/*
 * A gradient that is no number on one rank stops all of them in the same step; where its shard lies the layer is named.
 */
void not_finite(eo_memory memory)
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
