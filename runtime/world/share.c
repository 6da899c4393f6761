/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/machine.h"
#include "base/processors.h"
#include "runtime/world/internal.h"

/* What processes compete for: launchers bind some to processors apart, and containers have memory apart. */
struct place {
    char boot[sizeof(((struct eo_machine *)0)->boot)];
    uint64_t processors, memory;
};

eo_status eo_world_find_share(struct eo_world *world, const struct eo_exchange *exchange)
{
    struct eo_machine machine;
    struct place mine = {.processors = eo_processors_allowed().number, .memory = eo_machine_memory("")};
    struct place *all = calloc(world->rank_count, sizeof(*all));
    if (!all)
        return EO_ERR_NO_MEMORY;
    eo_machine_read(&machine);
    memcpy(mine.boot, machine.boot, sizeof(mine.boot));
    const eo_status status = exchange->all_gather(exchange->user, &mine, sizeof(mine), all);
    world->share_rank = world->share_ranks = world->host_ranks = 0;
    for (uint32_t r = 0; status >= 0 && r < world->rank_count; r++) {
        const bool is_near = memcmp(all[r].boot, mine.boot, sizeof(mine.boot)) == 0;
        const bool competes = is_near && all[r].processors == mine.processors;
        world->share_rank += competes && r < world->rank;
        world->share_ranks += competes;
        world->host_ranks += is_near && all[r].memory == mine.memory;
    }
    world->processes = world->host_ranks;
    world->memory_ranks = strcmp(world->device, "cpu") == 0 ? world->host_ranks : 1; /* a GPU's is one rank's alone */
    free(all);
    return status;
}

uint32_t eo_world_host_ranks(const struct eo_world *world, uint32_t devices)
{
    const uint64_t guess = eo_max_u64(1, eo_min_u64(devices, world->rank_count));
    return world->host_ranks ? world->host_ranks : (uint32_t)guess;
}
