/* SPDX-License-Identifier: MIT
 *
 * NCCL's communicators from beginning to end, and the end of a group with them.
 */
#include <stdlib.h>

#include "base/check.h"
#include "streams/nccl/internal.h"

uint64_t eo_nccl_free_bytes(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
        (void)cudaGetLastError();
    return free_bytes;
}

void eo_nccl_count_taken(struct eo_group *group, uint64_t before_bytes, const char *what)
{
    const uint64_t after_bytes = eo_nccl_free_bytes();
    const uint64_t taken_bytes = before_bytes > after_bytes ? before_bytes - after_bytes : 0;
    group->root->info.communicator_bytes += taken_bytes;
    eo_log_write(&group->log, EO_LOG_INFO, "NCCL: %s takes %.1f MiB of device memory", what,
                 (double)taken_bytes / (1 << 20));
}

ncclConfig_t eo_nccl_config(const struct eo_group *group, const struct eo_nccl_use *use, const char *name)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 0; /* 1 would share the resources, and the flag of ncclCommAbort, with its own children */
    config.commName = name;
    if (use && use->cta_policy != NCCL_CTA_POLICY_DEFAULT)
        config.CTAPolicy = use->cta_policy;
    if (use && group->cta_max)
        config.maxCTAs = (int)group->cta_max;
    return config;
}

eo_status eo_nccl_split(struct eo_group *group, bool reduces, ncclComm_t *out)
{
    const char *label = reduces ? "evenodd reduce-scatter" : "evenodd all-gather";
    ncclConfig_t config = eo_nccl_config(group, reduces ? &group->mode->reduce : &group->mode->gather, label);
    const uint64_t free_bytes = eo_nccl_free_bytes();
    *out = NULL;
    group->is_splitting = true;
    const ncclResult_t result = ncclCommSplit(group->parent, 0, (int)group->rank, out, &config);
    /* The child is written when the parent has settled, and settles itself after. */
    EO_TRY(eo_nccl_settle_begun(group, group->parent, result, "ncclCommSplit", label));
    group->is_splitting = false;
    if (!*out)
        return eo_nccl_fail(group, EO_ERR_COMM, "rank %u, '%s': ncclCommSplit gave no communicator", group->rank, label);
    EO_TRY(eo_nccl_settle(group, *out, ncclInProgress, "ncclCommSplit", label));
    eo_nccl_count_taken(group, free_bytes, label);
    return EO_OK;
}

void eo_nccl_end(struct eo_group *group, ncclComm_t *comm)
{
    const ncclComm_t ending = *comm;
    *comm = NULL;
    if (!ending || eo_nccl_failure(group) < 0)
        return;
    if (eo_nccl_settle(group, ending, ncclCommFinalize(ending), "ncclCommFinalize", "close") < 0)
        return;
    eo_nccl_destroy(group, ending);
}

/* The root stays until the last of its family has gone: failures and captures are told there. */
static void drop_reference(struct eo_group *root)
{
    if (atomic_fetch_sub(&root->references, 1) != 1)
        return;
    if (eo_nccl_failure(root) < 0 && root->mode)
        eo_nccl_give_up(root);
    if (root->owns_parent)
        eo_nccl_end(root, &root->parent);
    pthread_mutex_destroy(&root->lock);
    free(root);
}

void eo_nccl_group_release(struct eo_group *group)
{
    if (!group)
        return;
    struct eo_group *root = group->root;
    EO_ASSERT(!group->comms[0] && !group->comms[1]); /* every communicator is closed */
    if (root != group) {
        if (eo_nccl_failure(group) < 0 && root->mode)
            eo_nccl_give_up(root);
        eo_nccl_end(group, &group->parent);
        struct eo_group *before = root;
        while (before->next && before->next != group)
            before = before->next;
        if (before->next)
            before->next = group->next;
        if (!root->info.must_exit) /* a split that never ended may write into it */
            free(group);
    }
    drop_reference(root);
}
