/* SPDX-License-Identifier: MIT
 *
 * The communicators of a runtime: over which ranks parts are gathered and reduced, and over which they are replicas.
 *
 *     rank        0   1   2   3   4   5   6   7         8 ranks in groups of 4
 *     world       ---------------------------------     norms, sums of values, comparison of plans, captured steps
 *     shard       ---------------   ---------------     all-gathers of weights, reduce-scatters of gradients
 *     replicas    0 and 4, 1 and 5, 2 and 6, 3 and 7    all-reduces of gradient shards
 *
 * Where two of these are the same ranks they share communicators: a world in one group has two in all, for gathers and
 * for reductions, as has a world of replicas.
 */
#include "base/check.h"
#include "runtime/internal.h"

static eo_status open_one(struct eo_runtime *rt, struct eo_comm **out, struct eo_group *group, uint32_t rank,
                          bool reduces, const char *what)
{
    const bool apart = reduces && rt->plan->params.separate_reduce_stream;
    EO_TRY(rt->world->ops->open(out, group, rank, rt->device, apart ? EO_QUEUE_REDUCE : EO_QUEUE_COMM, reduces));
    rt->comms.all[rt->comms.count++] = *out;
    eo_runtime_log_outside(rt, what);
    return EO_OK;
}

static eo_status open_pair(struct eo_runtime *rt, struct eo_group *group, uint32_t rank)
{
    EO_TRY(open_one(rt, &rt->comms.gather, group, rank, false, "the communicator of gathers"));
    return open_one(rt, &rt->comms.reduce, group, rank, true, "the communicator of reductions");
}

static eo_status split(struct eo_runtime *rt, struct eo_group **out, struct eo_group_place *place, uint32_t color)
{
    const struct eo_comm_ops *ops = rt->world->ops;
    return ops->group_split(out, place, rt->world->group, rt->world->rank, color, rt->world->rank);
}

static eo_status open_groups(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    const uint32_t size = plan->params.shard_group, rank = rt->world->rank;
    struct eo_group_place shard, replica;
    EO_TRY(open_one(rt, &rt->comms.world, rt->world->group, rank, false, "the communicator of norms"));
    EO_TRY(split(rt, &rt->comms.shard_group, &shard, rank / size));
    EO_TRY(split(rt, &rt->comms.replica_group, &replica, rank % size));
    EO_ASSERT(shard.rank == rank % size && shard.rank_count == size);
    EO_ASSERT(replica.rank == rank / size && replica.rank_count == plan->replicas);
    EO_TRY(open_pair(rt, rt->comms.shard_group, shard.rank));
    return open_one(rt, &rt->comms.replica, rt->comms.replica_group, replica.rank, true, "the communicator of replicas");
}

eo_status eo_communicators_check(const eo_log *log, const struct eo_plan *plan, const struct eo_world *world)
{
    const bool splits = plan->replicas > 1 && plan->params.shard_group > 1;
    if ((plan->replicas > 1 && !world->ops->all_reduce) || (splits && !world->ops->group_split)) {
        eo_log_write(log, EO_LOG_ERROR, "strategy %s: the collectives '%s' have no all-reduce, or no groups inside a world; "
                     "use zero1, zero2 or zero3", eo_strategy_name(plan->params.strategy), world->ops->name);
        return EO_ERR_UNSUPPORTED;
    }
    return EO_OK;
}

eo_status eo_communicators_open(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    rt->shards.rank = rt->world->rank % plan->params.shard_group;
    eo_runtime_log_outside(rt, NULL);
    if (plan->replicas > 1 && plan->params.shard_group > 1) {
        EO_TRY(open_groups(rt));
    } else {
        EO_TRY(open_pair(rt, rt->world->group, rt->world->rank));
        rt->comms.world = rt->comms.gather;
        rt->comms.replica = plan->replicas > 1 ? rt->comms.reduce : NULL;
    }
    rt->comms.are_open = true;
    return EO_OK;
}

void eo_communicators_close(struct runtime_comms *comms, const struct eo_world *world)
{
    for (uint32_t c = 0; c < comms->count; c++)
        world->ops->close(comms->all[c]);
    if (comms->shard_group)
        world->ops->group_release(comms->shard_group);
    if (comms->replica_group)
        world->ops->group_release(comms->replica_group);
}
