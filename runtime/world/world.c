/* SPDX-License-Identifier: MIT */
#include "runtime/world/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "eo_config.h"

enum { RANKS_MAX = 1 << 16, TIMEOUT_MS_DEFAULT = 60000 };

/* Ranks of one process: "local" reads the host's memory, others are named after their device. */
static const struct eo_comm_ops *find_local(const char *device)
{
    char name[32] = "local";
    if (strlen(device) >= sizeof(((struct eo_world *)NULL)->device) || !eo_device_is_known(device))
        return NULL;
    if (strcmp(device, "cpu") != 0)
        snprintf(name, sizeof(name), "local-%s", device);
    return eo_comm_find(name);
}

eo_status eo_world_check_fabric(const eo_log *log, double gigabytes_per_s, double latency_us)
{
    EO_REQUIRE(log, isfinite(gigabytes_per_s) && gigabytes_per_s >= 0 && isfinite(latency_us) && latency_us >= 0,
               "a fabric of %g GB/s and %g us; both must be finite and not negative", gigabytes_per_s, latency_us);
    /* So that ns fit 64 bits. */
    EO_REQUIRE(log, (gigabytes_per_s <= 0 || gigabytes_per_s >= 1e-6) && latency_us <= 1e9,
               "a fabric of %g GB/s and %g us; give at least 1e-6 GB/s and at most 1e9 us", gigabytes_per_s, latency_us);
    EO_REQUIRE(log, gigabytes_per_s > 0 || latency_us <= 0,
               "a fabric with a latency of %g us and no speed: give fabric_gigabytes_per_s too", latency_us);
    return EO_OK;
}

eo_status eo_world_create_local(eo_world *worlds[], const eo_world_params *params)
{
    if (!params)
        return EO_ERR_INVALID;
    EO_REQUIRE(params->log, worlds, "worlds is NULL; give an array with a handle for each rank");
    const uint32_t rank_count = params->rank_count ? params->rank_count : 1;
    EO_REQUIRE(params->log, rank_count <= RANKS_MAX, "%u ranks; at most %d are possible", rank_count, RANKS_MAX);
    EO_TRY(eo_world_check_fabric(params->log, params->fabric_gigabytes_per_s, params->fabric_latency_us));
    const char *device = params->device ? params->device : "cpu";
    const struct eo_comm_ops *ops = find_local(device);
    if (!ops) {
        eo_log_write(params->log, EO_LOG_ERROR, "device '%s' is not built in; this build has 'cpu'%s", device,
                     EO_HAVE_CUDA ? " and 'cuda'" : " alone");
        return EO_ERR_UNSUPPORTED;
    }
    for (uint32_t r = 0; r < rank_count && r < EO_LOCAL_RANKS_MAX; r++) /* more are refused: the array may be of the most */
        worlds[r] = NULL;
    struct eo_group *group;
    EO_TRY(ops->group_create(&group, &(struct eo_group_params){
                                         .rank_count = rank_count,
                                         .timeout_ms = params->timeout_ms ? params->timeout_ms : TIMEOUT_MS_DEFAULT,
                                         .fabric_gigabytes_per_s = params->fabric_gigabytes_per_s,
                                         .fabric_latency_us = params->fabric_latency_us,
                                         .log = params->log,
                                     }));
    for (uint32_t r = 0; r < rank_count; r++)
        worlds[r] = calloc(1, sizeof(**worlds));
    for (uint32_t r = 0; r < rank_count; r++) {
        if (!worlds[r]) { /* the group has a reference for each rank: all are dropped */
            for (uint32_t i = 0; i < rank_count; i++) {
                free(worlds[i]);
                worlds[i] = NULL;
                ops->group_release(group);
            }
            return EO_ERR_NO_MEMORY;
        }
        *worlds[r] = (struct eo_world){
            .owner = getpid(),
            .rank = r,
            .rank_count = rank_count,
            .ops = ops,
            .group = group,
            .log = params->log ? *params->log : (eo_log){0},
            .device_index = params->device_index + (params->share_device ? 0 : r),
            .memory_ranks = params->share_device || strcmp(device, "cpu") == 0 ? rank_count : 0,
            .host_ranks = rank_count,
        };
        snprintf(worlds[r]->device, sizeof(worlds[r]->device), "%s", device);
    }
    return EO_OK;
}

void eo_world_destroy(eo_world **world)
{
    if (!world || !*world)
        return;
    if ((*world)->owner != getpid()) { /* another process is in it */
        *world = NULL;
        return;
    }
    if ((*world)->runtime_count) {
        eo_log_write(&(*world)->log, EO_LOG_ERROR,
                     "rank %u: eo_world_destroy: runtimes are left on this world (%u); destroy them before it", (*world)->rank,
                     (*world)->runtime_count);
        return;
    }
    (*world)->ops->group_release((*world)->group);
    free(*world);
    *world = NULL;
}

uint32_t eo_world_rank(const eo_world *world)
{
    return world ? world->rank : 0;
}

uint32_t eo_world_rank_count(const eo_world *world)
{
    return world ? world->rank_count : 0;
}

void eo_world_abort(eo_world *world, const char *reason)
{
    if (world)
        world->ops->group_abort(world->group, world->is_split ? world->root_rank : world->rank,
                                reason && reason[0] ? reason : "no reason given");
}

void eo_world_failure(const eo_world *world, char *text, size_t bytes)
{
    if (!text || bytes == 0)
        return;
    text[0] = '\0';
    if (world)
        world->ops->group_failure(world->group, text, bytes);
}
