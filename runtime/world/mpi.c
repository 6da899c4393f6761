/* SPDX-License-Identifier: MIT */
#include <evenodd/world_mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/machine.h"
#include "runtime/world/internal.h"
#include "streams/mpi/mpi.h"

static const struct eo_mpi_ops *find_mpi(const eo_log *log)
{
    const struct eo_mpi_ops *ops = eo_mpi_find();
    if (!ops)
        eo_log_write(log, EO_LOG_ERROR, "MPI is not built in; build it where Open MPI is found (libopenmpi-dev), with "
                     "-Dmpi=enabled");
    return ops;
}

eo_status eo_mpi_start(const eo_log *log)
{
    const struct eo_mpi_ops *ops = find_mpi(log);
    return ops ? ops->start(log) : EO_ERR_UNSUPPORTED;
}

void eo_mpi_stop(void)
{
    const struct eo_mpi_ops *ops = eo_mpi_find();
    if (ops)
        ops->stop();
}

void eo_mpi_abort(int exit_status)
{
    const struct eo_mpi_ops *ops = eo_mpi_find();
    if (ops)
        ops->end_all(exit_status);
}

/* All ranks find the same, for all see the same. */
static eo_status find_machine(const struct eo_exchange *exchange, uint32_t rank_count, bool *is_one)
{
    struct eo_machine mine, *all = calloc(rank_count, sizeof(*all));
    if (!all)
        return EO_ERR_NO_MEMORY;
    eo_machine_read(&mine);
    const eo_status status = exchange->all_gather(exchange->user, &mine, sizeof(mine), all);
    *is_one = true;
    for (uint32_t r = 0; r < rank_count; r++)
        *is_one = *is_one && eo_machine_visible(&all[r], &all[0]);
    free(all);
    return status;
}

static eo_status make_group(struct eo_world *world, const eo_world_mpi_params *params, const struct eo_exchange *exchange)
{
    const char *name = params->collectives;
    if (!name) {
        bool is_one;
        EO_TRY(find_machine(exchange, world->rank_count, &is_one));
        name = eo_world_cpu_collectives(is_one, world->rank_count);
    }
    world->ops = eo_comm_find(name);
    return world->ops->group_create(&world->group, &(const struct eo_group_params){
        .rank_count = world->rank_count,
        .timeout_ms = params->timeout_ms,
        .join = &(const struct eo_group_join){
            .rank = world->rank,
            .communicator = (void *)params->communicator,
            .exchange = exchange,
        },
        .log = params->log,
    });
}

eo_status eo_world_create_mpi(eo_world **out, const eo_world_mpi_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!params)
        return EO_ERR_INVALID;
    EO_REQUIRE(params->log, !params->collectives || strcmp(params->collectives, "shared") == 0 ||
               strcmp(params->collectives, "mpi") == 0,
               "a world of MPI's ranks uses collectives 'shared' or 'mpi', not '%s'", params->collectives);
    const struct eo_mpi_ops *mpi = find_mpi(params->log);
    if (!mpi)
        return EO_ERR_UNSUPPORTED;
    struct eo_group_place place;
    struct eo_mpi_exchange *outside;
    EO_TRY(mpi->place(params->communicator, &place, params->log));
    EO_TRY(mpi->exchange_open(&outside, params->communicator, params->timeout_ms, params->log));
    const struct eo_exchange exchange = mpi->exchange_of(outside);
    struct eo_world *world = calloc(1, sizeof(*world));
    eo_status status = EO_ERR_NO_MEMORY;
    if (world) {
        *world = (struct eo_world){.owner = getpid(),
                                   .rank = place.rank,
                                   .rank_count = place.rank_count,
                                   .log = params->log ? *params->log : (eo_log){0}};
        snprintf(world->device, sizeof(world->device), "cpu");
        status = eo_world_find_share(world, &exchange);
        if (status >= 0)
            status = make_group(world, params, &exchange);
    }
    mpi->exchange_close(outside);
    if (status < 0) {
        free(world);
        return status;
    }
    *out = world;
    return EO_OK;
}
