/* SPDX-License-Identifier: MIT
 *
 * Goal: ranks with GPUs know how many of them take from their host's memory, though each sees one GPU alone. Ranks of one
 * machine share memory where so many can.
 * Method: an exchange in which the others are on this host, or on another; places in memory are this process's.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/world/internal.h"

struct hosts {
    uint32_t rank_count, here; /* the first ranks */
};

static eo_status gather_hosts(void *user, const void *send, uint32_t bytes, void *recv)
{
    const struct hosts *hosts = user;
    memset(recv, 'x', (size_t)bytes * hosts->rank_count);
    for (uint32_t r = 0; r < hosts->here; r++)
        memcpy((char *)recv + (size_t)r * bytes, send, bytes);
    return EO_OK;
}

static struct eo_world shares_of(const char *device, struct hosts hosts)
{
    struct eo_world world = {.rank = 1, .rank_count = hosts.rank_count};
    const struct eo_exchange exchange = {gather_hosts, &hosts};
    strcpy(world.device, device);
    cr_assert_eq(eo_world_find_share(&world, &exchange), EO_OK);
    return world;
}

Test(share, a_gpu_s_memory_is_its_rank_s_and_the_host_s_is_of_all_ranks_there)
{
    const struct eo_world gpus = shares_of("cuda", (struct hosts){8, 8}), far = shares_of("cuda", (struct hosts){8, 3}),
                          cpus = shares_of("cpu", (struct hosts){8, 3});
    cr_assert(gpus.memory_ranks == 1 && far.memory_ranks == 1 && cpus.memory_ranks == 3);
    cr_assert_eq(eo_world_host_ranks(&gpus, 1), 8, "%u ranks where each sees one GPU", eo_world_host_ranks(&gpus, 1));
    cr_assert_eq(eo_world_host_ranks(&gpus, 4), 8);
    cr_assert_eq(eo_world_host_ranks(&far, 8), 3);
    cr_assert_eq(eo_world_host_ranks(&cpus, 0), 3);
}

Test(share, where_ranks_are_unknown_each_gpu_of_the_host_has_one)
{
    const struct eo_world world = {.rank_count = 4, .device = "cuda"};
    cr_assert_eq(eo_world_host_ranks(&world, 2), 2);
    cr_assert_eq(eo_world_host_ranks(&world, 8), 4);
    cr_assert_eq(eo_world_host_ranks(&world, 0), 1);
}

Test(share, threads_of_a_process_are_on_one_host)
{
    eo_world *worlds[3];
    cr_assert_eq(eo_world_create_local(worlds, eo_world_params(.rank_count = 3)), EO_OK);
    for (int r = 0; r < 3; r++) {
        cr_assert_eq(eo_world_host_ranks(worlds[r], 1), 3);
        eo_world_destroy(&worlds[r]);
    }
}

Test(share, ranks_of_one_machine_use_shared_while_it_takes_so_many)
{
    const char *instead = eo_comm_find("mpi") ? "mpi" : "shared"; /* whose refusal says what to do */
    cr_assert_str_eq(eo_world_cpu_collectives(true, EO_LOCAL_RANKS_MAX), "shared");
    cr_assert_str_eq(eo_world_cpu_collectives(true, EO_LOCAL_RANKS_MAX + 1), instead);
    cr_assert_str_eq(eo_world_cpu_collectives(false, 2), "mpi");
}
