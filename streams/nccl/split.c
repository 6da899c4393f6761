/* SPDX-License-Identifier: MIT
 *
 * Groups inside a group: ncclCommSplit makes the new group's parent, which is then split for its collectives like any.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "streams/nccl/internal.h"

/* The group's own from the first moment, so that who gives up finds it. */
static eo_status split_parent(struct eo_group *group, struct eo_group *parent, uint32_t color, uint32_t key)
{
    static const char label[] = "evenodd group";
    ncclConfig_t config = eo_nccl_config(parent, NULL, label);
    const uint64_t free_bytes = eo_nccl_free_bytes();
    const bool is_none = color == EO_GROUP_NO_COLOR;
    parent->is_splitting = true;
    const ncclResult_t result =
        ncclCommSplit(parent->parent, is_none ? NCCL_SPLIT_NOCOLOR : (int)color, (int)key, &group->parent, &config);
    EO_TRY(eo_nccl_settle_begun(parent, parent->parent, result, "ncclCommSplit", label));
    parent->is_splitting = false;
    if (is_none)
        return EO_OK;
    if (!group->parent)
        return eo_nccl_fail(parent, EO_ERR_COMM, "rank %u, '%s': ncclCommSplit gave no communicator", parent->rank, label);
    EO_TRY(eo_nccl_settle(parent, group->parent, ncclInProgress, "ncclCommSplit", label));
    eo_nccl_count_taken(parent, free_bytes, label);
    return EO_OK;
}

/* What a mode asks may depend on how many ranks there are: where the parent's cannot be, `registered` can. */
static eo_status choose_mode(struct eo_group *group)
{
    char why[600];
    group->facts.rank_count = group->params.rank_count;
    if (eo_nccl_choose(&group->mode, group->root->mode->name, &group->facts, why, sizeof(why)) >= 0)
        return EO_OK;
    eo_log_write(&group->log, EO_LOG_WARN, "a group of %u inside the world: %s; it runs as registered",
                 group->params.rank_count, why);
    return eo_nccl_choose(&group->mode, "registered", &group->facts, why, sizeof(why));
}

static eo_status find_place(struct eo_group *group, const struct eo_group *parent)
{
    int rank = 0, count = 0;
    ncclResult_t result = ncclCommUserRank(group->parent, &rank);
    if (result == ncclSuccess)
        result = ncclCommCount(group->parent, &count);
    if (result != ncclSuccess)
        return eo_nccl_fail_call(group, group->parent, result, "the place in a new group", "split");
    group->rank = (uint32_t)rank;
    group->params.rank_count = (uint32_t)count;
    const eo_status status = choose_mode(group);
    if (status >= 0)
        eo_nccl_tell_mode(group);
    return status < 0 ? eo_nccl_fail(group, status, "rank %u: no mode of NCCL for a group of %d ranks", parent->rank, count)
                      : EO_OK;
}

/* A member of the family that has no communicator yet. */
static struct eo_group *new_group(struct eo_group *parent)
{
    struct eo_group *group = calloc(1, sizeof(*group)), *root = parent->root;
    if (!group)
        return NULL;
    group->params = parent->params;
    group->params.log = &group->log;
    group->log = parent->log;
    group->rank = parent->rank;
    group->cuda_device = parent->cuda_device;
    group->cta_max = parent->cta_max;
    group->facts = parent->facts;
    group->owns_parent = true;
    group->root = root;
    atomic_fetch_add(&root->references, 1);
    group->next = root->next;
    root->next = group;
    return group;
}

static uint32_t family_size(const struct eo_group *root)
{
    uint32_t count = 0;
    for (; root; root = root->next)
        count++;
    return count;
}

eo_status eo_nccl_group_split(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                              uint32_t rank, uint32_t color, uint32_t key)
{
    *out = NULL;
    *place = (struct eo_group_place){0};
    EO_TRY(eo_nccl_failure(parent));
    EO_REQUIRE(&parent->log, rank == parent->rank, "split: rank %u splits for rank %u", parent->rank, rank);
    EO_REQUIRE(&parent->log, (color <= INT_MAX || color == EO_GROUP_NO_COLOR) && key <= INT_MAX,
               "split: color %u, key %u; NCCL takes 0 to %d", color, key, INT_MAX);
    EO_REQUIRE(&parent->log, family_size(parent->root) < EO_NCCL_FAMILY_MAX, "split: a world of NCCL can have %d groups",
               (int)EO_NCCL_FAMILY_MAX);
    struct eo_group *group = new_group(parent);
    if (!group)
        return eo_nccl_fail(parent, EO_ERR_NO_MEMORY, "rank %u: out of memory for a group inside the group", parent->rank);
    eo_status status = split_parent(group, parent, color, key);
    if (status >= 0 && group->parent)
        status = find_place(group, parent);
    if (status < 0 || !group->parent) {
        eo_nccl_group_release(group);
        return status;
    }
    *out = group;
    *place = (struct eo_group_place){group->rank, group->params.rank_count};
    return EO_OK;
}
