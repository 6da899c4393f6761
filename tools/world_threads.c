/* SPDX-License-Identifier: MIT */
#include "tools/world_threads.h"

#include <stdlib.h>
#include <string.h>

uint32_t eo_rank_threads(const struct eo_rank_processors *ranks, uint32_t count, uint32_t rank)
{
    const struct eo_rank_processors *mine = &ranks[rank];
    uint32_t sharing = 0;
    for (uint32_t r = 0; r < count; r++)
        sharing += ranks[r].machine == mine->machine && CPU_EQUAL(&ranks[r].allowed, &mine->allowed);
    const uint32_t processors = (uint32_t)CPU_COUNT(&mine->allowed);
    return processors > sharing ? processors / sharing : 1;
}

static eo_status ask_all(const struct eo_job_world *world, struct eo_rank_processors *ranks, uint32_t *threads, uint32_t *least)
{
    const struct eo_world_environment *e = &world->environment;
    struct eo_rank_processors mine;
    memset(&mine, 0, sizeof(mine));
    mine.machine = eo_rendezvous_rank_info(world->rendezvous, e->rank).machine;
    (void)sched_getaffinity(0, sizeof(mine.allowed), &mine.allowed);
    TOOLS_TRY(eo_rendezvous_all_gather(world->rendezvous, &mine, sizeof(mine), ranks));
    const uint32_t own = eo_rank_threads(ranks, e->rank_count, e->rank);
    TOOLS_TRY(eo_rendezvous_all_gather(world->rendezvous, &own, sizeof(own), threads));
    *least = own;
    for (uint32_t r = 0; r < e->rank_count; r++)
        *least = threads[r] < *least ? threads[r] : *least;
    return EO_OK;
}

eo_status eo_job_world_threads(struct eo_job_world *world, struct eo_options *options, struct eo_problem *problem)
{
    const uint32_t count = world->environment.rank_count;
    uint32_t least = 1;
    if (!world->rendezvous)
        return EO_OK;
    struct eo_rank_processors *ranks = calloc(count, sizeof(*ranks));
    uint32_t *threads = calloc(count, sizeof(*threads));
    const eo_status status = ranks && threads ? ask_all(world, ranks, threads, &least) : EO_ERR_NO_MEMORY;
    free(ranks);
    free(threads);
    if (status < 0)
        return eo_problem_set(problem, status, "the ranks could not tell each other where they run: %s",
                              eo_status_text(status));
    if (!eo_option_threads_given(options) && !eo_options_on_gpu(options))
        options->threads = least;
    return EO_OK;
}
