/* SPDX-License-Identifier: MIT
 *
 * What the environment makes of a world of processes. Method: the library's function that would make it stands here, and keeps
 * what it is given.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "cluster/rendezvous_internal.h"
#include "tools/run/job.h"
#include "tools/run/ranks/world.h"

static eo_world_join_params given;

eo_status eo_world_create_joined(eo_world **out, const eo_world_join_params *params)
{
    *out = NULL;
    given = *params;
    return EO_ERR_UNSUPPORTED;
}

/* Of the same file of the library. */
eo_status eo_world_split(eo_world **out, eo_world *world, uint32_t color, uint32_t key)
{
    return EO_ERR_UNSUPPORTED;
}

static bool launches_keep_their_order(const char *value)
{
    struct tool_options options;
    struct tool_job job = {.options = &options};
    struct tool_job_world world = {0};
    tool_options_init(&options);
    if (value)
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", value, 1);
    else
        unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    given = (eo_world_join_params){0};
    cr_assert(tool_job_world_create(&world, &job, NULL) == EO_ERR_UNSUPPORTED);
    cr_assert(given.timeout_ms == 61000);
    tool_options_fini(&options);
    return given.launch_order_is_implicit;
}

Test(run_world, nccl_keeps_the_order_of_launches_only_where_its_variable_is_1)
{
    cr_assert(launches_keep_their_order("1"));
    cr_assert_not(launches_keep_their_order("0"));
    cr_assert_not(launches_keep_their_order(""));
    cr_assert_not(launches_keep_their_order(NULL));
}

/* Machine 1 has the ranks before `on_first`, machine 2 the others. */
static const char *collectives_of(uint32_t rank_count, uint32_t on_first, bool has_mpi)
{
    struct eo_member members[80] = {0};
    struct eo_rendezvous rendezvous = {.params.rank_count = rank_count, .members = members};
    struct tool_job_world world = {.environment = {.rank = 1, .rank_count = rank_count, .launcher = "test", .has_mpi = has_mpi},
                                   .rendezvous = &rendezvous};
    struct tool_problem problem = {0};
    for (uint32_t r = 0; r < rank_count; r++)
        members[r].machine = r < on_first ? 1 : 2;
    return tool_job_world_choose(&world, "cpu", &problem) < 0 ? "none" : world.collectives;
}

Test(run_world, ranks_of_one_machine_use_shared_while_it_takes_so_many)
{
    cr_assert_str_eq(collectives_of(64, 64, true), "shared");
    cr_assert_str_eq(collectives_of(65, 65, true), "mpi");
    cr_assert_str_eq(collectives_of(65, 65, false), "shared", "it is the one that can say what to do");
    cr_assert_str_eq(collectives_of(2, 1, true), "mpi");
    cr_assert_str_eq(collectives_of(2, 1, false), "none");
}
