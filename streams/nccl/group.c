/* SPDX-License-Identifier: MIT
 *
 * Joining a group: who is there, which NCCL, which mode. The table.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/machine.h"
#include "streams/nccl/internal.h"
#include "streams/transports.h"

enum { TIMEOUT_MS_DEFAULT = 60000 };

_Static_assert(sizeof(ncclUniqueId) == EO_GROUP_ID_BYTES, "an id of NCCL is what travels");
_Static_assert(sizeof(struct eo_nccl_member) <= EO_GROUP_PEER_BYTES, "so is a peer");

static eo_status nccl_group_id(void *id, const eo_log *log)
{
    EO_TRY(eo_nccl_load(log));
    const ncclResult_t result = ncclGetUniqueId(id);
    if (result == ncclSuccess)
        return EO_OK;
    eo_log_write(log, EO_LOG_ERROR, "ncclGetUniqueId: %s: %s", ncclGetErrorString(result), ncclGetLastError(NULL));
    return EO_ERR_COMM;
}

static eo_status no_device(const eo_log *log, cudaError_t error, const char *call)
{
    (void)cudaGetLastError();
    eo_log_write(log, EO_LOG_ERROR, "NCCL needs a GPU: %s: %s", call, cudaGetErrorString(error));
    return EO_ERR_UNSUPPORTED;
}

/* The number of the device with that index, counted around. */
static eo_status find_device(int *out, uint32_t index, const eo_log *log)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count < 1)
        return no_device(log, error == cudaSuccess ? cudaErrorNoDevice : error, "cudaGetDeviceCount");
    *out = (int)(index % (uint32_t)count);
    return EO_OK;
}

static eo_status nccl_group_peer(void *out, uint32_t device_index, const char *node, const eo_log *log)
{
    struct eo_nccl_member peer = {.layout = 2, .process = (uint32_t)getpid()};
    struct eo_machine machine;
    int device;
    EO_TRY(eo_nccl_load(log));
    EO_TRY(find_device(&device, device_index, log));
    (void)ncclGetVersion(&peer.nccl_version);
    eo_machine_read(&machine);
    peer.process_space = (uint32_t)machine.pid_space[1]; /* an inode of 32 bits */
    node = node && *node ? node : machine.boot;
    snprintf(peer.boot, sizeof(peer.boot), "%.*s", (int)strcspn(node, "\n"), node);
    if (!peer.boot[0]) /* then the host's name has to do */
        (void)gethostname(peer.boot, sizeof(peer.boot) - 1);
    (void)gethostname(peer.host, sizeof(peer.host) - 1);
    const cudaError_t error = cudaDeviceGetPCIBusId(peer.device, sizeof(peer.device), device);
    if (error != cudaSuccess)
        return no_device(log, error, "cudaDeviceGetPCIBusId");
    memset(out, 0, EO_GROUP_PEER_BYTES);
    memcpy(out, &peer, sizeof(peer));
    return EO_OK;
}

void eo_nccl_tell_mode(struct eo_group *group)
{
    const bool is_alone = group->facts.rank_count == 1;
    struct eo_group_info *info = &group->info;
    info->mode = group->mode->name;
    snprintf(info->gather, sizeof(info->gather), "%s", is_alone ? "a copy" : group->mode->gather.text);
    snprintf(info->reduce, sizeof(info->reduce), "%s", is_alone ? "a copy" : group->mode->reduce.text);
}

/* Everything that can be refused before NCCL is asked. */
static eo_status check_join(struct eo_group *group, const struct eo_group_join *join)
{
    struct eo_nccl_facts facts = {.built_version = NCCL_VERSION_CODE, .rank_count = group->params.rank_count};
    struct eo_nccl_member *peers = NULL;
    char text[600];
    EO_TRY(eo_nccl_load(&group->log));
    (void)ncclGetVersion(&facts.run_version);
    group->info.built_version = NCCL_VERSION_CODE;
    group->info.run_version = (uint32_t)facts.run_version;
    eo_status status = eo_nccl_check_version(facts.built_version, facts.run_version, text, sizeof(text));
    eo_log_write(&group->log, status < 0 ? EO_LOG_ERROR : EO_LOG_INFO, "%s", text);
    EO_TRY(status);
    if (cudaDriverGetVersion(&facts.driver_version) != cudaSuccess)
        (void)cudaGetLastError();
    if (join->peers) {
        peers = calloc(facts.rank_count, sizeof(*peers));
        if (!peers)
            return EO_ERR_NO_MEMORY;
        for (uint32_t r = 0; r < facts.rank_count; r++)
            memcpy(&peers[r], (const char *)join->peers + (size_t)r * EO_GROUP_PEER_BYTES, sizeof(peers[r]));
        status = eo_nccl_check_peers(peers, facts.rank_count, &facts, text, sizeof(text));
        free(peers);
    }
    if (status >= 0)
        status = eo_nccl_choose(&group->mode, join->mode, &facts, text, sizeof(text));
    if (status < 0) {
        eo_log_write(&group->log, EO_LOG_ERROR, "%s", text);
        return status;
    }
    if (facts.shares_process)
        eo_log_write(&group->log, EO_LOG_WARN,
                     "several ranks are threads of one process: NCCL then does not use NVLink's multicast, and captured steps "
                     "can deadlock; start a process for each rank");
    group->facts = facts;
    eo_nccl_tell_mode(group);
    return EO_OK;
}

/* The caller's communicator: is it what the parameters say? */
static eo_status adopt(struct eo_group *group, ncclComm_t theirs)
{
    int count = 0, rank = 0, device = 0;
    EO_TRY(eo_nccl_settle(group, theirs, ncclInProgress, "the given communicator", "join")); /* it may still be made */
    ncclResult_t result = ncclCommCount(theirs, &count);
    if (result == ncclSuccess)
        result = ncclCommUserRank(theirs, &rank);
    if (result == ncclSuccess)
        result = ncclCommCuDevice(theirs, &device);
    if (result != ncclSuccess)
        return eo_nccl_fail_call(group, theirs, result, "the given communicator", "join");
    if ((uint32_t)count != group->params.rank_count || (uint32_t)rank != group->rank || device != group->cuda_device)
        return eo_nccl_fail(group, EO_ERR_INVALID,
                            "the given communicator is rank %d of %d on GPU %d, but rank %u of %u on GPU %d was expected; pass "
                            "it to its own world",
                            rank, count, device, group->rank, group->params.rank_count, group->cuda_device);
    group->parent = theirs;
    return EO_OK;
}

static eo_status init_parent(struct eo_group *group, const struct eo_group_join *join)
{
    ncclUniqueId id;
    ncclConfig_t config = eo_nccl_config(group, NULL, "evenodd");
    memcpy(&id, join->id, sizeof(id));
    group->owns_parent = true;
    const ncclResult_t result = ncclCommInitRankConfig(&group->parent, (int)group->params.rank_count, id,
                                                       (int)group->rank, &config);
    const eo_status status = eo_nccl_settle(group, group->parent, result, "ncclCommInitRankConfig", "join");
    if (status == EO_ERR_INVALID)
        eo_log_write(&group->log, EO_LOG_ERROR, "an invalid use while ranks join usually means two ranks on one GPU: give each "
                     "its own device index, or run them as threads of one process (a local world)");
    return status;
}

static eo_status join_group(struct eo_group *group, const struct eo_group_join *join)
{
    EO_TRY(check_join(group, join));
    EO_TRY(find_device(&group->cuda_device, join->device_index, &group->log));
    void *const before = eo_cuda_context();
    const cudaError_t error = cudaSetDevice(group->cuda_device);
    if (error != cudaSuccess)
        return no_device(&group->log, error, "cudaSetDevice");
    const uint64_t free_bytes = eo_nccl_free_bytes(); /* after the context is there */
    const eo_status status = join->communicator ? adopt(group, join->communicator) : init_parent(group, join);
    if (status >= 0 && group->owns_parent)
        eo_nccl_count_taken(group, free_bytes, "the parent communicator");
    eo_cuda_context_give_back(before);
    return status;
}

static eo_status nccl_group_create(struct eo_group **out, const struct eo_group_params *params)
{
    const struct eo_group_join *join = params->join;
    *out = NULL;
    EO_REQUIRE(params->log, join && (join->id || join->communicator),
               "a world of NCCL needs the same id on all ranks, or a communicator");
    EO_REQUIRE(params->log, params->rank_count >= 1 && join->rank < params->rank_count, "rank %u of %u", join->rank,
               params->rank_count);
    EO_REQUIRE(params->log, !(params->fabric_gigabytes_per_s > 0), "a simulated link works only for ranks on the CPU");
    struct eo_group *group = calloc(1, sizeof(*group));
    if (!group)
        return EO_ERR_NO_MEMORY;
    group->params = *params;
    group->params.join = NULL; /* the caller's, for the time of the call */
    if (group->params.timeout_ms == 0)
        group->params.timeout_ms = TIMEOUT_MS_DEFAULT;
    if (params->log)
        group->log = *params->log;
    group->params.log = &group->log;
    group->rank = join->rank;
    group->ordered_launches = join->ordered_launches;
    group->cta_max = join->cta_max;
    group->root = group;
    atomic_init(&group->references, 1);
    pthread_mutex_init(&group->lock, NULL);
    const eo_status status = join_group(group, join);
    if (status < 0) {
        eo_nccl_group_release(group);
        return status;
    }
    *out = group;
    return EO_OK;
}

/* Ranks of other processes are not told: NCCL has no way to. They learn it by their deadline, or from who started them. */
static void nccl_group_abort(struct eo_group *group, uint32_t rank, const char *reason)
{
    (void)eo_nccl_fail(group->root, EO_ERR_COMM, "rank %u gave up: %s", rank, reason ? reason : "no reason given");
}

static void nccl_group_failure(struct eo_group *group, char *text, size_t bytes)
{
    pthread_mutex_lock(&group->root->lock);
    snprintf(text, bytes, "%s", group->root->text);
    pthread_mutex_unlock(&group->root->lock);
}

/* The figures are the family's. */
static void nccl_group_info(const struct eo_group *group, struct eo_group_info *out)
{
    *out = group->root->info;
    out->mode = group->info.mode;
    memcpy(out->gather, group->info.gather, sizeof(out->gather));
    memcpy(out->reduce, group->info.reduce, sizeof(out->reduce));
}

const struct eo_comm_ops eo_comm_nccl_ops = {
    .name = "nccl",
    .group_create = nccl_group_create,
    .group_release = eo_nccl_group_release,
    .group_abort = nccl_group_abort,
    .group_failure = nccl_group_failure,
    .group_split = eo_nccl_group_split,
    .open = eo_nccl_open,
    .close = eo_nccl_close,
    .all_gather = eo_nccl_all_gather,
    .reduce_scatter = eo_nccl_reduce_scatter,
    .all_reduce = eo_nccl_all_reduce,
    .join = eo_nccl_join,
    .quiesce = eo_nccl_quiesce,
    .group_id = nccl_group_id,
    .group_peer = nccl_group_peer,
    .group_info = nccl_group_info,
    .register_memory = eo_nccl_register,
    .poll = eo_nccl_poll,
    .warms_up = true,
    .capture_begin = eo_nccl_capture_begin,
    .capture_end = eo_nccl_capture_end,
    .graph_launch = eo_nccl_graph_launch,
    .graph_destroy = eo_nccl_graph_destroy,
};
