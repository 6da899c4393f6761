/* SPDX-License-Identifier: MIT
 *
 * Goal: a trainer that lays its ranks out by itself has a world of any of them, several in one process at one time, which may
 * share ranks and lie in each other; each trains as if it were alone, to the bit.
 * Method: 4 ranks train in five worlds in turn: all of them, rows and columns of a grid, three of them, and two of these
 * three; weights are compared with those of threads in a world of their own. Public headers only.
 *
 *     worlds_of_subsets threads | processes             mpirun -n 4 worlds_of_subsets mpi | shared
 */
#include <evenodd/evenodd.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap/tap.h"
#include "tests/tap/threads.h"

enum { RANKS = 4, STEPS = 4, LAYERS = 3, ELEMENTS_MAX = 1200, DEADLINE_MS = 60000 };

static const uint32_t elements[LAYERS] = {1200, 37, 500};

enum { WHOLE, ROW, COLUMN, THREE, TWO, WORLDS };
static const char *const world_names[WORLDS] = {"all ranks", "rows", "columns, the other way round", "ranks 0, 2 and 3",
                                                "ranks 3 and 0 of these"};
static const struct {
    int of, color[RANKS], key[RANKS];
} layout[WORLDS] = {
    [WHOLE] = {.of = EO_WORLD_NONE},
    [ROW] = {.of = WHOLE, .color = {0, 0, 1, 1}},
    [COLUMN] = {.of = WHOLE, .color = {5, 9, 5, 9}, .key = {3, 2, 1, 0}},
    [THREE] = {.of = WHOLE, .color = {1, EO_WORLD_NONE, 1, 1}},
    [TWO] = {.of = THREE, .color = {0, EO_WORLD_NONE, EO_WORLD_NONE, 0}, .key = {2, 0, 0, 1}},
};

static void write_error(void *user, eo_log_level level, const char *text)
{
    (void)user;
    (void)level;
    printf("# %s\n", text);
}
static const eo_log errors = {.write = write_error, .level = EO_LOG_ERROR};

static void must(eo_status status, const char *what)
{
    if (status >= 0)
        return;
    printf("Bail out! %s: %s\n", what, eo_status_text(status));
    fflush(stdout);
    exit(1);
}

/* ---- who is in a world, told by hand: the same color, in the order of keys, then of ranks ---- */

static bool comes_before(int w, uint32_t a, uint32_t b)
{
    return layout[w].key[a] != layout[w].key[b] ? layout[w].key[a] < layout[w].key[b] : a < b;
}

static uint32_t members_of(int w, uint32_t rank, uint32_t members[RANKS])
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        if (layout[w].color[r] != layout[w].color[rank])
            continue;
        uint32_t at = count++;
        for (; at > 0 && comes_before(w, r, members[at - 1]); at--)
            members[at] = members[at - 1];
        members[at] = r;
    }
    return layout[w].color[rank] == EO_WORLD_NONE ? 0 : count;
}

/* ---- a training ---- */

struct training {
    eo_model *model;
    eo_plan *plan;
    eo_runtime *rt;
    uint32_t who, salt; /* this rank's number in the whole: its data */
    float weights[LAYERS][ELEMENTS_MAX];
};

static float noise(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t z = a * 0x9e3779b97f4a7c15u + b * 0xd1b54a32d192ed03u + c * 0x8cb92ba72f3d8dd7u + 1;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    return (float)(int32_t)(z >> 24) / 2147483648.0f;
}

static void begin(struct training *t, eo_world *world, uint32_t who, uint32_t salt)
{
    static const char *const names[LAYERS] = {"first", "second", "third"};
    t->who = who;
    t->salt = salt;
    must(eo_model_create(&t->model, eo_model_params(.name = "three layers")), "model");
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t layer;
        must(eo_model_add_layer(t->model, eo_layer_params(.name = names[l]), &layer), "layer");
        must(eo_model_add_parameter(t->model, eo_parameter_params(.layer = layer, .name = names[l], .dim_count = 1,
                                                                  .dims = {elements[l]}), NULL), "parameter");
        must(eo_model_add_position(t->model, eo_position_params(.layer = layer, .name = names[l]), NULL), "position");
    }
    must(eo_plan_create(&t->plan, t->model, eo_plan_params(.rank_count = eo_world_rank_count(world), .micro_batches = 2)),
         "plan");
    must(eo_runtime_create(&t->rt, eo_runtime_params(.plan = t->plan, .world = world, .log = &errors)), "runtime");
}

static void backward(struct training *t, uint32_t step, uint32_t batch, uint32_t l)
{
    const eo_view *view;
    must(eo_backward_begin(t->rt, l, &view), "backward");
    must(eo_gradients_begin(t->rt, l, &view), "gradients");
    const float *weights = view->weights[0];
    float *gradients = view->gradients[0];
    for (uint32_t i = 0; i < elements[l]; i++)
        gradients[i] = 0.125f * weights[i] + noise(t->who * 64 + t->salt, step * 2 + batch, l * ELEMENTS_MAX + i);
    must(eo_backward_end(t->rt, l), "backward");
}

static void run_step(struct training *t, uint32_t step)
{
    const eo_view *view;
    must(eo_step_begin(t->rt), "step");
    for (uint32_t batch = 0; batch < 2; batch++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            must(eo_forward_begin(t->rt, l, &view), "forward");
            must(eo_forward_end(t->rt, l), "forward");
        }
        for (uint32_t l = LAYERS; l-- > 0;)
            backward(t, step, batch, l);
    }
    must(eo_step_end(t->rt, eo_step_params(.learning_rate = 0.01f, .clip = 1), NULL), "step");
}

static eo_status keep(void *user, const eo_parameter_info *info, const float *values)
{
    float(**at)[ELEMENTS_MAX] = user;
    memcpy(**at, values, info->element_count * sizeof(float));
    (*at)++;
    return EO_OK;
}

static void end(struct training *t)
{
    float(*at)[ELEMENTS_MAX] = t->weights;
    must(eo_weights_visit(t->rt, keep, &at), "weights");
    eo_runtime_destroy(&t->rt);
    eo_plan_destroy(&t->plan);
    eo_model_destroy(&t->model);
}

/* ---- the same in a world that is alone ---- */

struct alone {
    eo_world *world;
    struct training training;
    uint32_t who, salt;
};

static void *train_alone(void *arg)
{
    struct alone *a = arg;
    begin(&a->training, a->world, a->who, a->salt);
    for (uint32_t step = 0; step < STEPS; step++)
        run_step(&a->training, step);
    end(&a->training);
    return NULL;
}

static bool is_as_alone(const struct training *t, int w, uint32_t rank)
{
    uint32_t members[RANKS];
    const uint32_t count = members_of(w, rank, members);
    struct alone *ranks = calloc(count, sizeof(*ranks));
    eo_world *worlds[RANKS];
    must(eo_world_create_local(worlds, eo_world_params(.rank_count = count, .log = &errors)), "world");
    for (uint32_t r = 0; r < count; r++)
        ranks[r] = (struct alone){.world = worlds[r], .who = members[r], .salt = (uint32_t)w};
    run_as_threads(train_alone, ranks, count, sizeof(*ranks));
    bool same = t->weights[0][0] != 0;
    for (uint32_t l = 0; l < LAYERS; l++)
        same = same && memcmp(t->weights[l], ranks[0].training.weights[l], elements[l] * sizeof(float)) == 0;
    for (uint32_t r = 0; r < count; r++)
        eo_world_destroy(&worlds[r]);
    free(ranks);
    return same;
}

/* ---- a rank ---- */

/* What holds for this rank: a bit for each world's place, and one for its weights. */
static uint32_t rank_life(eo_world *whole)
{
    const uint32_t rank = eo_world_rank(whole);
    static _Thread_local struct training trainings[WORLDS];
    eo_world *worlds[WORLDS] = {whole};
    uint32_t good = 0, members[RANKS];
    for (int w = ROW; w < WORLDS; w++)
        if (worlds[layout[w].of])
            must(eo_world_split(&worlds[w], worlds[layout[w].of], (uint32_t)layout[w].color[rank], (uint32_t)layout[w].key[rank]),
                 "split");
    for (int w = 0; w < WORLDS; w++) {
        const uint32_t count = members_of(w, rank, members);
        const bool is_in = worlds[w] && eo_world_rank_count(worlds[w]) == count && members[eo_world_rank(worlds[w])] == rank;
        good |= (uint32_t)(count ? is_in : !worlds[w]) << w;
        if (worlds[w])
            begin(&trainings[w], worlds[w], rank, (uint32_t)w);
    }
    for (uint32_t step = 0; step < STEPS; step++) /* the same order on all ranks */
        for (int w = 0; w < WORLDS; w++)
            if (worlds[w])
                run_step(&trainings[w], step);
    for (int w = 0; w < WORLDS; w++)
        if (worlds[w])
            end(&trainings[w]);
    for (int w = 0; w < WORLDS; w++)
        good |= (uint32_t)(!worlds[w] || is_as_alone(&trainings[w], w, rank)) << (WORLDS + w);
    for (int w = WORLDS; w-- > ROW;)
        eo_world_destroy(&worlds[w]);
    return good;
}

static int report(const uint32_t good[RANKS])
{
    uint32_t all = UINT32_MAX;
    for (uint32_t r = 0; r < RANKS; r++)
        all &= good[r];
    for (int w = 0; w < WORLDS; w++)
        tap(all >> w & all >> (WORLDS + w) & 1, "%s: everyone has its place, and trains as in a world that is alone",
            world_names[w]);
    return tap_end();
}

/* ---- how they are started ---- */

struct rank_thread {
    eo_world *world;
    uint32_t good;
};

static void *thread_main(void *arg)
{
    struct rank_thread *t = arg;
    t->good = rank_life(t->world);
    return NULL;
}

static int with_threads(void)
{
    eo_world *worlds[RANKS];
    struct rank_thread ranks[RANKS];
    uint32_t good[RANKS];
    must(eo_world_create_local(worlds, eo_world_params(.rank_count = RANKS, .log = &errors)), "world");
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r].world = worlds[r];
    run_as_threads(thread_main, ranks, RANKS, sizeof(ranks[0]));
    for (uint32_t r = 0; r < RANKS; r++) {
        good[r] = ranks[r].good;
        eo_world_destroy(&worlds[r]);
    }
    return report(good);
}

/* Rank 0's are the answers of all. */
static int joined(uint32_t rank, const char *job)
{
    eo_rendezvous *rendezvous;
    eo_world *world;
    uint32_t good[RANKS];
    must(eo_rendezvous_create(&rendezvous, eo_rendezvous_params(.rank = rank, .rank_count = RANKS, .local_rank = rank,
                                                               .local_count = RANKS, .job = job, .timeout_ms = DEADLINE_MS,
                                                               .log = &errors)), "rendezvous");
    must(eo_world_create_joined(&world, eo_world_join_params(.rendezvous = rendezvous, .log = &errors)), "world");
    const uint32_t mine = rank_life(world);
    must(eo_rendezvous_all_gather(rendezvous, &mine, sizeof(mine), good), "answers");
    eo_world_destroy(&world);
    eo_rendezvous_destroy(&rendezvous);
    return rank == 0 ? report(good) : 0;
}

static int with_processes(void)
{
    char job[64];
    bool good = true;
    snprintf(job, sizeof(job), "worlds of subsets %d", (int)getpid());
    for (uint32_t r = 0; r < RANKS; r++) {
        const pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid == 0)
            exit(joined(r, job));
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        int state = 1;
        good = wait(&state) > 0 && state == 0 && good;
    }
    return !good;
}

static int with_mpi(const char *collectives)
{
    eo_world *world;
    must(eo_world_create_mpi(&world, eo_world_mpi_params(.collectives = collectives, .log = &errors)), "world");
    const uint32_t rank = eo_world_rank(world);
    double answers[2 * WORLDS];
    const uint32_t mine = rank_life(world);
    for (int k = 0; k < 2 * WORLDS; k++)
        answers[k] = mine >> k & 1;
    static struct training t; /* the answers go the way of any trainer's small data */
    begin(&t, world, rank, 0);
    must(eo_sum(t.rt, answers, 2 * WORLDS), "answers");
    end(&t);
    eo_world_destroy(&world);
    eo_mpi_stop();
    uint32_t all = 0, good[RANKS];
    for (int k = 0; k < 2 * WORLDS; k++)
        all |= (uint32_t)(answers[k] == RANKS) << k;
    for (uint32_t r = 0; r < RANKS; r++)
        good[r] = all;
    return rank == 0 ? report(good) : 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "threads";
    if (strcmp(how, "threads") == 0)
        return with_threads();
    return strcmp(how, "processes") == 0 ? with_processes() : with_mpi(how);
}
