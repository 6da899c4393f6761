/* SPDX-License-Identifier: MIT
 *
 * Joining a group: who is there, which NCCL, which mode; the communicators' beginning and end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "streams/cuda/nccl_internal.h"

enum { TIMEOUT_MS_DEFAULT = 60000, GIVE_UP_MS = 10000, SPIN_NS = 200000 };

_Static_assert(sizeof(ncclUniqueId) == EO_GROUP_ID_BYTES, "an id of NCCL is what travels");
_Static_assert(sizeof(struct eo_nccl_member) <= EO_GROUP_PEER_BYTES, "so is a peer");

/* -- failures ---------------------------------------------------------------------------------------------------- */

eo_status eo_nccl_fail(struct eo_group *group, eo_status status, const char *format, ...)
{
    struct eo_group *root = group->root;
    pthread_mutex_lock(&root->lock);
    const bool is_first = atomic_load(&root->failure) == EO_OK;
    if (is_first) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(root->text, sizeof(root->text), format, arguments);
        va_end(arguments);
        atomic_store(&root->failure, status);
    }
    pthread_mutex_unlock(&root->lock);
    if (is_first) /* not under the lock: the callback may ask for the text */
        eo_log_write(&group->log, EO_LOG_ERROR, "%s", root->text);
    return eo_nccl_failure(group);
}

eo_status eo_nccl_fail_call(struct eo_group *group, ncclComm_t comm, ncclResult_t result, const char *call,
                            const char *label)
{
    const eo_status status = result == ncclInvalidArgument || result == ncclInvalidUsage ? EO_ERR_INVALID
                             : result == ncclUnhandledCudaError                          ? EO_ERR_DEVICE
                                                                                         : EO_ERR_COMM;
    const char *last = ncclGetLastError(comm);
    return eo_nccl_fail(group, status, "rank %u of %u, '%s': %s: %s (NCCL result %d)%s%s", group->rank,
                        group->params.rank_count, label, call, ncclGetErrorString(result), (int)result,
                        last && *last ? ": " : "", last ? last : "");
}

eo_status eo_nccl_fail_cuda(struct eo_group *group, cudaError_t error, const char *call, const char *label)
{
    const eo_status status = eo_cuda_status(NULL, group->rank, error, call);
    return eo_nccl_fail(group, status < 0 ? status : EO_ERR_DEVICE, "rank %u of %u, '%s': %.*s: %s (CUDA error %d)%s",
                        group->rank, group->params.rank_count, label, (int)strcspn(call, "("), call,
                        cudaGetErrorString(error), (int)error, eo_cuda_consequence(error));
}

void eo_nccl_pause(void)
{
    const struct timespec pause = {0, 20000};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

eo_status eo_nccl_settle(struct eo_group *group, ncclComm_t comm, ncclResult_t result, const char *call,
                         const char *label)
{
    const uint64_t from_ns = eo_now_ns(), deadline_ns = from_ns + group->params.timeout_ms * UINT64_C(1000000);
    while (result == ncclInProgress) {
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
        if (asked != ncclSuccess)
            result = asked;
        if (result != ncclInProgress)
            break;
        EO_TRY(eo_nccl_failure(group)); /* an abort from another thread */
        const uint64_t now_ns = eo_now_ns();
        if (now_ns > deadline_ns)
            return eo_nccl_fail(group, EO_ERR_TIMEOUT,
                                "rank %u of %u, '%s': %s has been in progress for %u ms: a rank does not take part; find "
                                "out what stopped it, or raise the timeout",
                                group->rank, group->params.rank_count, label, call, group->params.timeout_ms);
        if (now_ns - from_ns > SPIN_NS)
            eo_nccl_pause();
    }
    return result == ncclSuccess ? EO_OK : eo_nccl_fail_call(group, comm, result, call, label);
}

/* The thread that aborts outlives the wait for it where NCCL does not come back: what it works on is its own. */
struct give_up {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool has_ended, is_left;
    ncclComm_t comms[3 * EO_NCCL_FAMILY_MAX];
    uint32_t count;
};

static void *abort_all(void *arg)
{
    struct give_up *work = arg;
    for (uint32_t i = 0; i < work->count; i++)
        (void)ncclCommAbort(work->comms[i]);
    pthread_mutex_lock(&work->lock);
    work->has_ended = true;
    const bool is_left = work->is_left;
    pthread_cond_signal(&work->ended);
    pthread_mutex_unlock(&work->lock);
    if (is_left)
        free(work);
    return NULL;
}

/* All communicators of the family, those with collectives first. */
static uint32_t list_comms(const struct eo_group *root, ncclComm_t *out)
{
    uint32_t count = 0;
    for (const struct eo_group *member = root; member; member = member->next)
        for (int i = 0; i < 2; i++)
            if (member->comms[i] && member->comms[i]->nccl)
                out[count++] = member->comms[i]->nccl;
    for (const struct eo_group *member = root; member; member = member->next)
        if (member->owns_parent && member->parent)
            out[count++] = member->parent;
    return count;
}

/* True when all communicators have been aborted in time. */
static bool try_abort(struct eo_group *root)
{
    struct give_up *work = calloc(1, sizeof(*work));
    pthread_t thread;
    if (!work)
        return false;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    work->count = list_comms(root, work->comms);
    if (pthread_create(&thread, NULL, abort_all, work) != 0) {
        free(work);
        return false;
    }
    (void)pthread_detach(thread);
    const uint64_t until_ns = eo_now_ns() + GIVE_UP_MS * UINT64_C(1000000);
    const struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    pthread_mutex_lock(&work->lock);
    while (!work->has_ended && pthread_cond_timedwait(&work->ended, &work->lock, &until) != ETIMEDOUT)
        ;
    const bool has_ended = work->has_ended;
    work->is_left = !has_ended;
    pthread_mutex_unlock(&work->lock);
    if (has_ended)
        free(work);
    return has_ended;
}

void eo_nccl_give_up(struct eo_group *group)
{
    struct eo_group *root = group->root;
    if (root->gave_up)
        return;
    root->gave_up = true;
    ncclComm_t all[3 * EO_NCCL_FAMILY_MAX];
    bool is_idle = list_comms(root, all) == 0;
    for (const struct eo_group *member = root; member; member = member->next)
        is_idle = is_idle && !member->comms[0] && !member->comms[1];
    const bool may_abort = root->mode->aborts && !root->is_capturing && root->graph_count == 0;
    const bool is_free = is_idle || (may_abort && try_abort(root));
    root->info.must_exit = !is_free;
    for (struct eo_group *member = root; member; member = member->next) {
        for (int i = 0; i < 2; i++) {
            if (!member->comms[i])
                continue;
            member->comms[i]->nccl = NULL;
            member->comms[i]->device->is_lost = !is_free;
        }
        member->parent = NULL;
    }
    if (!is_free)
        eo_log_write(&root->log, EO_LOG_ERROR,
                     "rank %u: %s; its work may stay on the device: end the process at once, without its destructors",
                     root->rank, may_abort             ? "NCCL did not come back from ncclCommAbort"
                                 : root->mode->aborts ? "NCCL cannot abort while there are captured steps"
                                                       : "NCCL cannot abort in this mode");
}

/* -- joining ----------------------------------------------------------------------------------------------------- */

static eo_status nccl_group_id(void *id, const eo_log *log)
{
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

static void read_boot(char *text, size_t bytes)
{
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t got = file < 0 ? -1 : read(file, text, bytes - 1);
    if (file >= 0)
        close(file);
    if (got <= 0) /* then the host's name has to do */
        (void)gethostname(text, bytes - 1);
    text[strcspn(text, "\n")] = '\0';
}

static eo_status nccl_group_peer(void *out, uint32_t device_index, const eo_log *log)
{
    struct eo_nccl_member peer = {.layout = 1, .process = (uint32_t)getpid()};
    int device, version = 0;
    EO_TRY(find_device(&device, device_index, log));
    (void)ncclGetVersion(&version);
    peer.nccl_version = version;
    read_boot(peer.boot, sizeof(peer.boot));
    (void)gethostname(peer.host, sizeof(peer.host) - 1);
    const cudaError_t error = cudaDeviceGetPCIBusId(peer.device, sizeof(peer.device), device);
    if (error != cudaSuccess)
        return no_device(log, error, "cudaDeviceGetPCIBusId");
    memset(out, 0, EO_GROUP_PEER_BYTES);
    memcpy(out, &peer, sizeof(peer));
    return EO_OK;
}

/* Everything that can be refused before NCCL is asked. */
static eo_status check_join(struct eo_group *group, const struct eo_group_join *join)
{
    struct eo_nccl_facts facts = {.built_version = NCCL_VERSION_CODE, .rank_count = group->params.rank_count};
    struct eo_nccl_member *peers = NULL;
    char text[600];
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
                     "several ranks are threads of one process: NCCL then leaves NVLink's multicast out, and captured "
                     "steps can deadlock; start a process for each rank");
    group->facts = facts;
    group->info.mode = group->mode->name;
    snprintf(group->info.gather, sizeof(group->info.gather), "%s",
             facts.rank_count == 1 ? "a copy" : group->mode->gather.text);
    snprintf(group->info.reduce, sizeof(group->info.reduce), "%s",
             facts.rank_count == 1 ? "a copy" : group->mode->reduce.text);
    return EO_OK;
}

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
    config.splitShare = 0; /* 1 would share the flag of ncclCommAbort, and the resources */
    config.commName = name;
    if (use && use->cta_policy != NCCL_CTA_POLICY_DEFAULT)
        config.CTAPolicy = use->cta_policy;
    if (use && group->cta_max)
        config.maxCTAs = (int)group->cta_max;
    return config;
}

/* The caller's communicator: is it what the parameters say? */
static eo_status adopt(struct eo_group *group, ncclComm_t theirs)
{
    int count = 0, rank = 0, device = 0;
    ncclResult_t state = ncclSuccess, result = ncclCommGetAsyncError(theirs, &state);
    if (result == ncclSuccess)
        result = state;
    if (result == ncclSuccess)
        result = ncclCommCount(theirs, &count);
    if (result == ncclSuccess)
        result = ncclCommUserRank(theirs, &rank);
    if (result == ncclSuccess)
        result = ncclCommCuDevice(theirs, &device);
    if (result != ncclSuccess)
        return eo_nccl_fail_call(group, theirs, result, "the communicator that was given", "join");
    if ((uint32_t)count != group->params.rank_count || (uint32_t)rank != group->rank || device != group->cuda_device)
        return eo_nccl_fail(group, EO_ERR_INVALID,
                            "the communicator that was given is rank %d of %d on GPU %d, and rank %u of %u on GPU %d was "
                            "asked for: give it the world that it is of",
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
        eo_log_write(&group->log, EO_LOG_ERROR, "an invalid use while ranks join is most often two ranks on one GPU: give "
                     "each its own device index, or run them as threads of one process (a local world)");
    return status;
}

static eo_status join_group(struct eo_group *group, const struct eo_group_join *join)
{
    EO_TRY(check_join(group, join));
    EO_TRY(find_device(&group->cuda_device, join->device_index, &group->log));
    int before = -1;
    cudaError_t error = cudaGetDevice(&before);
    if (error == cudaSuccess)
        error = cudaSetDevice(group->cuda_device);
    if (error != cudaSuccess)
        return no_device(&group->log, error, "cudaSetDevice");
    const uint64_t free_bytes = eo_nccl_free_bytes(); /* after the context is there */
    const eo_status status = join->communicator ? adopt(group, join->communicator) : init_parent(group, join);
    if (status >= 0 && group->owns_parent)
        eo_nccl_count_taken(group, free_bytes, "the parent communicator");
    (void)cudaSetDevice(before);
    return status;
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
        free(group);
    }
    drop_reference(root);
}

static eo_status nccl_group_create(struct eo_group **out, const struct eo_group_params *params)
{
    const struct eo_group_join *join = params->join;
    *out = NULL;
    EO_REQUIRE(params->log, join && (join->id || join->communicator),
               "a world of NCCL needs an id that all ranks were given, or a communicator");
    EO_REQUIRE(params->log, params->rank_count >= 1 && join->rank < params->rank_count, "rank %u of %u", join->rank,
               params->rank_count);
    EO_REQUIRE(params->log, !(params->fabric_gigabytes_per_s > 0), "a simulated link is for ranks on the CPU");
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
    (void)eo_nccl_fail(group, EO_ERR_COMM, "rank %u gave up: %s", rank, reason ? reason : "no reason given");
}

static void nccl_group_failure(struct eo_group *group, char *text, size_t bytes)
{
    pthread_mutex_lock(&group->root->lock);
    snprintf(text, bytes, "%s", group->root->text);
    pthread_mutex_unlock(&group->root->lock);
}

static void nccl_group_info(const struct eo_group *group, struct eo_group_info *out)
{
    *out = group->info;
}

/* -- communicators ----------------------------------------------------------------------------------------------- */

eo_status eo_nccl_split(struct eo_group *group, bool reduces, ncclComm_t *out)
{
    const char *label = reduces ? "evenodd reduce-scatter" : "evenodd all-gather";
    ncclConfig_t config = eo_nccl_config(group, reduces ? &group->mode->reduce : &group->mode->gather, label);
    const uint64_t free_bytes = eo_nccl_free_bytes();
    *out = NULL;
    const ncclResult_t result = ncclCommSplit(group->parent, 0, (int)group->rank, out, &config);
    /* The child is written when the parent has settled, and settles itself after. */
    EO_TRY(eo_nccl_settle(group, group->parent, result, "ncclCommSplit", label));
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
    const ncclResult_t result = ncclCommDestroy(ending);
    if (result != ncclSuccess && result != ncclInProgress)
        eo_log_write(&group->log, EO_LOG_WARN, "rank %u: ncclCommDestroy: %s", group->rank, ncclGetErrorString(result));
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
