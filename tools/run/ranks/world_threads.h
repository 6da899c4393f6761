/* SPDX-License-Identifier: MIT
 *
 * How many threads a rank has that is a process, where nobody said so: a launcher may have bound each rank to processors of
 * its own, or some together, or none.
 */
#ifndef EO_TOOLS_RUN_RANKS_WORLD_THREADS_H
#define EO_TOOLS_RUN_RANKS_WORLD_THREADS_H

#include "base/processors.h"
#include "tools/run/ranks/world.h"

struct tool_rank_processors {
    uint64_t machine;
    struct eo_processors allowed;
};

/* A rank's part of the processors that it and others of its machine may run on; 1 at least. */
uint32_t tool_rank_threads(const struct tool_rank_processors *ranks, uint32_t count, uint32_t rank);

/* Sets options->threads, if they were not given: to the smallest of all ranks, for the plan is the same on all. Collective. */
EO_NODISCARD eo_status tool_job_world_threads(struct tool_job_world *world, struct tool_options *options,
                                              struct tool_problem *problem);

#endif
