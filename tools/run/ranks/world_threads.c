/* SPDX-License-Identifier: MIT */
#include "tools/run/ranks/world_threads.h"

#include <stdlib.h>

#include "tools/run/options/options.h"

uint32_t tool_rank_threads(const struct tool_rank_processors *ranks, uint32_t count, uint32_t rank)
{
    const struct tool_rank_processors *mine = &ranks[rank];
    uint32_t sharing = 0;
    for (uint32_t r = 0; r < count; r++)
        sharing += ranks[r].machine == mine->machine && ranks[r].allowed.number == mine->allowed.number;
    return tool_threads_of(mine->allowed.count, sharing);
}

static eo_status ask_all(const struct tool_job_world *world, struct tool_rank_processors *ranks, uint32_t *threads,
                         uint32_t *least)
{
    const struct tool_world_environment *e = &world->environment;
    const struct tool_rank_processors mine = {eo_rendezvous_rank_info(world->rendezvous, e->rank).machine, tool_processors()};
    EO_TRY(eo_rendezvous_all_gather(world->rendezvous, &mine, sizeof(mine), ranks));
    const uint32_t own = tool_rank_threads(ranks, e->rank_count, e->rank);
    EO_TRY(eo_rendezvous_all_gather(world->rendezvous, &own, sizeof(own), threads));
    *least = own;
    for (uint32_t r = 0; r < e->rank_count; r++)
        *least = threads[r] < *least ? threads[r] : *least;
    return EO_OK;
}

eo_status tool_job_world_threads(struct tool_job_world *world, struct tool_options *options, struct tool_problem *problem)
{
    const uint32_t count = world->environment.rank_count;
    uint32_t least = 1;
    if (!world->rendezvous)
        return EO_OK;
    struct tool_rank_processors *ranks = calloc(count, sizeof(*ranks));
    uint32_t *threads = calloc(count, sizeof(*threads));
    const eo_status status = ranks && threads ? ask_all(world, ranks, threads, &least) : EO_ERR_NO_MEMORY;
    free(ranks);
    free(threads);
    if (status < 0)
        return tool_problem_set(problem, status, "the ranks could not exchange their places: %s",
                                eo_status_text(status));
    if (!tool_option_given(options, "threads") && !tool_options_on_gpu(options))
        options->plan.threads = least;
    return EO_OK;
}
