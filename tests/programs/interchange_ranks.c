/* SPDX-License-Identifier: MIT */
#include "tests/programs/interchange_ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/tap/threads.h"

enum { RANKS_MAX = 64 };

static void must(eo_status status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, eo_status_text(status));
        exit(1);
    }
}

static void write_log(void *user, eo_log_level level, const char *text)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", text);
}

static const eo_log errors = {.write = write_log, .level = EO_LOG_ERROR};

void ranks_init(struct ranks *ranks, const eo_transformer_config *config, uint32_t rank_count, eo_dtype dtype,
                uint32_t seq)
{
    *ranks = (struct ranks){.rank_count = rank_count, .dtype = dtype, .seq = seq ? seq : 8};
    must(eo_transformer_create(&ranks->transformer, eo_transformer_params(
        .config = *config, .seq = ranks->seq, .dtype = dtype, .log = &errors)), "transformer");
    ranks->config = eo_transformer_get_params(ranks->transformer)->config;
    must(eo_plan_create(&ranks->plan, ranks_model(ranks), eo_plan_params(
        .rank_count = rank_count, .dtype = dtype, .log = &errors)), "plan");
}

void ranks_fini(struct ranks *ranks)
{
    eo_plan_destroy(&ranks->plan);
    eo_transformer_destroy(&ranks->transformer);
}

const eo_model *ranks_model(const struct ranks *ranks)
{
    return eo_transformer_model(ranks->transformer);
}

struct thread {
    struct ranks_rank rank;
    eo_world *world;
    void (*life)(void *user, struct ranks_rank *rank);
    void *user;
};

static void *thread_main(void *arg)
{
    struct thread *thread = arg;
    struct ranks_rank *rank = &thread->rank;
    must(eo_team_create(&rank->team, 1), "team");
    must(eo_runtime_create(&rank->runtime, eo_runtime_params(
        .plan = rank->ranks->plan, .world = thread->world, .log = &errors)), "runtime");
    thread->life(thread->user, rank);
    eo_runtime_destroy(&rank->runtime);
    eo_team_destroy(&rank->team);
    return NULL;
}

void ranks_run(const struct ranks *ranks, void (*life)(void *user, struct ranks_rank *rank), void *user)
{
    eo_world *worlds[RANKS_MAX];
    static struct thread threads[RANKS_MAX];
    must(eo_world_create_local(worlds, eo_world_params(.rank_count = ranks->rank_count, .log = &errors)), "world");
    for (uint32_t r = 0; r < ranks->rank_count; r++)
        threads[r] = (struct thread){.rank = {.ranks = ranks, .rank = r}, .world = worlds[r], .life = life, .user = user};
    run_as_threads(thread_main, threads, ranks->rank_count, sizeof(threads[0]));
    for (uint32_t r = 0; r < ranks->rank_count; r++)
        eo_world_destroy(&worlds[r]);
}
