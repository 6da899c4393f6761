/* SPDX-License-Identifier: MIT
 *
 * Worlds of processes that a rendezvous has brought together, and worlds inside a world.
 */
#include <evenodd/cluster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "runtime/world/internal.h"

_Static_assert((int)EO_EXCHANGE_MAX == (int)EO_EXCHANGE_BYTES_MAX, "what a group exchanges the rendezvous carries");

static eo_status exchange(void *user, const void *send, uint32_t bytes, void *recv)
{
    return eo_rendezvous_all_gather(user, send, bytes, recv);
}

/* What a library needs to know of all ranks before it starts: rank 0's id, everyone's place. */
struct introduction {
    unsigned char id[EO_GROUP_ID_BYTES], peer[EO_GROUP_PEER_BYTES];
};

static eo_status introduce(const struct eo_comm_ops *ops, const eo_world_join_params *params, unsigned char id[EO_GROUP_ID_BYTES],
                           unsigned char **peers)
{
    eo_rendezvous *rendezvous = params->rendezvous;
    const uint32_t rank_count = eo_rendezvous_rank_count(rendezvous);
    struct introduction mine = {0};
    if (ops->group_id && eo_rendezvous_rank(rendezvous) == 0)
        EO_TRY(ops->group_id(mine.id, params->log));
    if (ops->group_peer)
        EO_TRY(ops->group_peer(mine.peer, params->device_index, params->node, params->log));
    struct introduction *all = calloc(rank_count, sizeof(*all));
    *peers = calloc(rank_count, EO_GROUP_PEER_BYTES);
    if (!all || !*peers) {
        free(all);
        return EO_ERR_NO_MEMORY;
    }
    const eo_status status = eo_rendezvous_all_gather(rendezvous, &mine, sizeof(mine), all);
    memcpy(id, all[0].id, EO_GROUP_ID_BYTES);
    for (uint32_t r = 0; r < rank_count; r++)
        memcpy(*peers + (size_t)r * EO_GROUP_PEER_BYTES, all[r].peer, EO_GROUP_PEER_BYTES);
    free(all);
    return status;
}

static eo_status join(struct eo_world *world, const eo_world_join_params *params)
{
    unsigned char id[EO_GROUP_ID_BYTES], *peers = NULL;
    const bool has_introduction = world->ops->group_id || world->ops->group_peer;
    eo_status status = EO_OK;
    if (has_introduction)
        status = introduce(world->ops, params, id, &peers);
    if (status >= 0)
        status = world->ops->group_create(&world->group, &(const struct eo_group_params){
            .rank_count = world->rank_count,
            .timeout_ms = params->timeout_ms,
            .join = &(const struct eo_group_join){
                .rank = world->rank,
                .device_index = params->device_index,
                .id = has_introduction ? id : NULL,
                .peers = world->ops->group_peer ? peers : NULL,
                .mode = params->mode,
                .ordered_launches = params->launch_order_is_implicit,
                .exchange = &(const struct eo_exchange){exchange, params->rendezvous},
            },
            .fabric_gigabytes_per_s = params->fabric_gigabytes_per_s,
            .fabric_latency_us = params->fabric_latency_us,
            .log = params->log,
        });
    free(peers);
    return status;
}

static bool is_one_machine(const eo_rendezvous *rendezvous)
{
    const uint64_t first = eo_rendezvous_rank_info(rendezvous, 0).machine;
    bool is_one = first != 0;
    for (uint32_t r = 1; r < eo_rendezvous_rank_count(rendezvous); r++)
        is_one = is_one && eo_rendezvous_rank_info(rendezvous, r).machine == first;
    return is_one;
}

eo_status eo_world_create_joined(eo_world **out, const eo_world_join_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!params)
        return EO_ERR_INVALID;
    EO_REQUIRE(params->log, params->rendezvous, "a world of processes needs the rendezvous of its ranks");
    EO_TRY(eo_world_check_fabric(params->log, params->fabric_gigabytes_per_s, params->fabric_latency_us));
    const char *device = params->device ? params->device : "cpu";
    const char *name = params->collectives           ? params->collectives
                       : strcmp(device, "cuda") == 0 ? "nccl"
                                                     : eo_world_cpu_collectives(is_one_machine(params->rendezvous),
                                                                                eo_rendezvous_rank_count(params->rendezvous));
    EO_REQUIRE(params->log, strncmp(name, "local", 5) != 0, "collectives '%s' need ranks as threads of one process", name);
    const struct eo_comm_ops *ops = eo_comm_find(name);
    if (!ops || !eo_device_is_known(device)) {
        eo_log_write(params->log, EO_LOG_ERROR, "%s '%s' %s not built in%s%s%s%s", ops ? "device" : "collectives",
                     ops ? device : name, ops ? "is" : "are",
                     ops ? "; this build has 'cpu'" : "; this build has 'shared'",
                     ops || !eo_comm_find("mpi") ? "" : ", 'mpi'",
                     (ops ? eo_device_is_known("cuda") : eo_comm_find("nccl") != NULL) ? ops ? ", 'cuda'" : ", 'nccl'" : "",
                     ops || strcmp(name, "mpi") != 0 ? "" : "; build it where Open MPI is found (libopenmpi-dev)");
        return EO_ERR_UNSUPPORTED;
    }
    struct eo_world *world = calloc(1, sizeof(*world));
    if (!world)
        return EO_ERR_NO_MEMORY;
    *world = (struct eo_world){
        .owner = getpid(),
        .rank = eo_rendezvous_rank(params->rendezvous),
        .rank_count = eo_rendezvous_rank_count(params->rendezvous),
        .device_index = params->device_index,
        .ops = ops,
        .log = params->log ? *params->log : (eo_log){0},
    };
    snprintf(world->device, sizeof(world->device), "%s", device);
    eo_status status = eo_world_find_share(world, &(const struct eo_exchange){exchange, params->rendezvous});
    if (status >= 0)
        status = join(world, params);
    eo_rank_failure failure;
    if (status < 0 && eo_rendezvous_failure(params->rendezvous, &failure)) /* told by `failed` alone, which may be left out */
        eo_log_write(params->log, EO_LOG_ERROR, "rank %u cannot create its world: %s", world->rank, failure.text);
    if (status < 0) {
        free(world);
        return status;
    }
    *out = world;
    return EO_OK;
}

eo_status eo_world_split(eo_world **out, eo_world *world, uint32_t color, uint32_t key)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!world)
        return EO_ERR_INVALID;
    if (!world->ops->group_split) {
        eo_log_write(&world->log, EO_LOG_ERROR, "collectives '%s' have no groups inside a world", world->ops->name);
        return EO_ERR_UNSUPPORTED;
    }
    struct eo_world *inner = calloc(1, sizeof(*inner));
    struct eo_group_place place = {0};
    if (!inner)
        return EO_ERR_NO_MEMORY; /* the others learn of it by their deadline, or from eo_world_abort */
    *inner = *world;
    inner->group = NULL;
    inner->runtime_count = 0;
    const eo_status status = world->ops->group_split(&inner->group, &place, world->group, world->rank, color, key);
    if (status < 0 || !inner->group) {
        free(inner);
        return status;
    }
    inner->root_rank = world->is_split ? world->root_rank : world->rank;
    inner->is_split = true;
    inner->rank = place.rank;
    inner->rank_count = place.rank_count;
    inner->memory_ranks = world->memory_ranks == world->rank_count ? place.rank_count : 1; /* at least */
    inner->processes = world->processes ? inner->memory_ranks : 0;
    *out = inner;
    return EO_OK;
}
