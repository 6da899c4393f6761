/* SPDX-License-Identifier: MIT */
#include <evenodd/world_nccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "runtime/world/internal.h"

_Static_assert(sizeof(eo_nccl_id) == EO_GROUP_ID_BYTES && sizeof(eo_nccl_peer) == EO_GROUP_PEER_BYTES,
               "what travels is what the backend reads");

static const struct eo_comm_ops *find_nccl(const eo_log *log)
{
    const struct eo_comm_ops *ops = eo_comm_find("nccl");
    if (!ops)
        eo_log_write(log, EO_LOG_ERROR, "NCCL is not built in; build it where CUDA and NCCL are found, with -Dcuda=enabled");
    return ops;
}

eo_status eo_nccl_id_create(eo_nccl_id *id, const eo_log *log)
{
    if (!id)
        return EO_ERR_INVALID;
    memset(id, 0, sizeof(*id));
    const struct eo_comm_ops *ops = find_nccl(log);
    return ops ? ops->group_id(id->bytes, log) : EO_ERR_UNSUPPORTED;
}

eo_status eo_nccl_peer_of(eo_nccl_peer *peer, uint32_t device_index, const eo_log *log)
{
    if (!peer)
        return EO_ERR_INVALID;
    memset(peer, 0, sizeof(*peer));
    const struct eo_comm_ops *ops = find_nccl(log);
    return ops ? ops->group_peer(peer->bytes, device_index, NULL, log) : EO_ERR_UNSUPPORTED;
}

eo_status eo_world_create_nccl(eo_world **out, const eo_world_nccl_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!params)
        return EO_ERR_INVALID;
    EO_REQUIRE(params->log, params->rank_count >= 1 && params->rank < params->rank_count, "rank %u of %u",
               params->rank, params->rank_count);
    EO_REQUIRE(params->log, !params->id != !params->communicator,
               "a world of NCCL needs an id or a communicator; give one of them");
    const struct eo_comm_ops *ops = find_nccl(params->log);
    if (!ops)
        return EO_ERR_UNSUPPORTED;
    struct eo_world *world = calloc(1, sizeof(*world));
    if (!world)
        return EO_ERR_NO_MEMORY;
    *world = (struct eo_world){
        .owner = getpid(),
        .rank = params->rank,
        .rank_count = params->rank_count,
        .device_index = params->device_index,
        .memory_ranks = 1, /* NCCL takes no two on one GPU */
        .ops = ops,
        .log = params->log ? *params->log : (eo_log){0},
    };
    snprintf(world->device, sizeof(world->device), "cuda");
    const eo_status status = ops->group_create(&world->group, &(const struct eo_group_params){
        .rank_count = params->rank_count,
        .timeout_ms = params->timeout_ms,
        .join = &(const struct eo_group_join){
            .rank = params->rank,
            .device_index = params->device_index,
            .id = params->id ? params->id->bytes : NULL,
            .communicator = params->communicator,
            .peers = params->peers,
            .mode = params->mode,
            .cta_max = params->cta_max,
            .ordered_launches = params->launch_order_is_implicit,
        },
        .log = params->log,
    });
    if (status < 0) {
        free(world);
        return status;
    }
    *out = world;
    return EO_OK;
}

eo_status eo_world_nccl_get_info(const eo_world *world, eo_world_nccl_info *out)
{
    struct eo_group_info info;
    if (!world || !out || !world->ops->group_info)
        return EO_ERR_INVALID;
    world->ops->group_info(world->group, &info);
    *out = (eo_world_nccl_info){
        .built_version = info.built_version,
        .run_version = info.run_version,
        .mode = info.mode,
        .communicator_bytes = info.communicator_bytes,
        .registered_bytes = info.registered_bytes,
        .register_ns = info.register_ns,
        .outside_count = info.outside_count,
        .must_exit = info.must_exit,
    };
    snprintf(out->gather, sizeof(out->gather), "%s", info.gather);
    snprintf(out->reduce, sizeof(out->reduce), "%s", info.reduce);
    return EO_OK;
}
