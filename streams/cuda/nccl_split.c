/* SPDX-License-Identifier: MIT
 *
 * Groups inside a group: ncclCommSplit makes the new group's parent, which is then split for its collectives like any.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "streams/cuda/nccl_internal.h"

static eo_status split_parent(struct eo_group *parent, uint32_t color, uint32_t key, ncclComm_t *out)
{
    static const char label[] = "evenodd group";
    ncclConfig_t config = eo_nccl_config(parent, NULL, label);
    const uint64_t free_bytes = eo_nccl_free_bytes();
    const bool is_none = color == EO_GROUP_NO_COLOR;
    *out = NULL;
    const ncclResult_t result =
        ncclCommSplit(parent->parent, is_none ? NCCL_SPLIT_NOCOLOR : (int)color, (int)key, out, &config);
    EO_TRY(eo_nccl_settle(parent, parent->parent, result, "ncclCommSplit", label));
    if (is_none)
        return EO_OK;
    if (!*out)
        return eo_nccl_fail(parent, EO_ERR_COMM, "rank %u, '%s': ncclCommSplit gave no communicator", parent->rank, label);
    EO_TRY(eo_nccl_settle(parent, *out, ncclInProgress, "ncclCommSplit", label));
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

static eo_status make_group(struct eo_group **out, struct eo_group *parent, ncclComm_t comm)
{
    int rank = 0, count = 0;
    ncclResult_t result = ncclCommUserRank(comm, &rank);
    if (result == ncclSuccess)
        result = ncclCommCount(comm, &count);
    if (result != ncclSuccess)
        return eo_nccl_fail_call(parent, comm, result, "the place in a new group", "split");
    struct eo_group *group = calloc(1, sizeof(*group)), *root = parent->root;
    if (!group)
        return eo_nccl_fail(parent, EO_ERR_NO_MEMORY, "rank %u: out of memory for a group inside the group", parent->rank);
    group->params = parent->params;
    group->params.rank_count = (uint32_t)count;
    group->params.log = &group->log;
    group->log = parent->log;
    group->rank = (uint32_t)rank;
    group->cuda_device = parent->cuda_device;
    group->cta_max = parent->cta_max;
    group->facts = parent->facts;
    group->parent = comm;
    group->owns_parent = true;
    group->root = root;
    const eo_status status = choose_mode(group);
    if (status < 0) {
        free(group);
        return eo_nccl_fail(parent, status, "rank %u: no mode of NCCL for a group of %d ranks", parent->rank, count);
    }
    atomic_fetch_add(&root->references, 1);
    group->next = root->next;
    root->next = group;
    *out = group;
    return EO_OK;
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
    ncclComm_t comm = NULL;
    *out = NULL;
    *place = (struct eo_group_place){0};
    EO_TRY(eo_nccl_failure(parent));
    EO_REQUIRE(&parent->log, rank == parent->rank, "split: rank %u splits for rank %u", parent->rank, rank);
    EO_REQUIRE(&parent->log, (color <= INT_MAX || color == EO_GROUP_NO_COLOR) && key <= INT_MAX,
               "split: color %u, key %u; NCCL takes 0 to %d", color, key, INT_MAX);
    EO_REQUIRE(&parent->log, family_size(parent->root) < EO_NCCL_FAMILY_MAX, "split: a world of NCCL can have %d groups",
               (int)EO_NCCL_FAMILY_MAX);
    EO_TRY(split_parent(parent, color, key, &comm));
    if (!comm)
        return EO_OK;
    const eo_status status = make_group(out, parent, comm);
    if (status < 0) {
        (void)ncclCommAbort(comm);
        return status;
    }
    *place = (struct eo_group_place){(*out)->rank, (*out)->params.rank_count};
    return EO_OK;
}
