/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "runtime/world_internal.h"

/* Equal where processes compete for processors: launchers bind some apart, and leave others alone. */
struct processors {
    char boot[sizeof(((struct eo_machine *)0)->boot)];
    uint64_t allowed;
};

eo_status eo_world_find_share(struct eo_world *world, const struct eo_exchange *exchange)
{
    struct eo_machine machine;
    struct processors mine = {.allowed = eo_machine_processors()}, *all = calloc(world->rank_count, sizeof(*all));
    if (!all)
        return EO_ERR_NO_MEMORY;
    eo_machine_read(&machine);
    memcpy(mine.boot, machine.boot, sizeof(mine.boot));
    const eo_status status = exchange->all_gather(exchange->user, &mine, sizeof(mine), all);
    world->share_rank = world->share_ranks = 0;
    for (uint32_t r = 0; status >= 0 && r < world->rank_count; r++) {
        const bool competes = memcmp(&all[r], &mine, sizeof(mine)) == 0;
        world->share_rank += competes && r < world->rank;
        world->share_ranks += competes;
    }
    free(all);
    return status;
}
