/* SPDX-License-Identifier: MIT
 *
 * The first failure of a family of groups, and its end: what all of NCCL's files need of each other.
 */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/thread.h"
#include "streams/nccl/internal.h"

enum { GIVE_UP_MS = 10000, SPIN_NS = 200000 };

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
        if (group != root)
            eo_comm_say_split(root->text, sizeof(root->text));
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

eo_status eo_nccl_settle(struct eo_group *group, ncclComm_t comm, ncclResult_t result, const char *call,
                         const char *label)
{
    const uint64_t limit_ns = group->params.timeout_ms * UINT64_C(1000000);
    struct eo_stopwatch waited = eo_stopwatch_start();
    while (result == ncclInProgress) {
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
        if (asked != ncclSuccess)
            result = asked;
        if (result != ncclInProgress)
            break;
        EO_TRY(eo_nccl_failure(group)); /* an abort from another thread */
        if (eo_stopwatch_look(&waited, EO_LOOK_NS_MAX) > limit_ns)
            return eo_nccl_fail(group, EO_ERR_TIMEOUT,
                                "rank %u of %u, '%s': %s has been in progress for %u ms: a rank does not take part; find out "
                                "why, or raise the timeout",
                                group->rank, group->params.rank_count, label, call, group->params.timeout_ms);
        if (waited.counted_ns > SPIN_NS)
            eo_pause();
        else
            (void)sched_yield(); /* a thread of NCCL's is awaited, and may need this very core */
    }
    return result == ncclSuccess ? EO_OK : eo_nccl_fail_call(group, comm, result, call, label);
}

/* ncclCommSplit and ncclCommWindowRegister do (2.28 to 2.30): the communicator alone tells the end, and nothing is written
 * before it. */
eo_status eo_nccl_settle_begun(struct eo_group *group, ncclComm_t comm, ncclResult_t result, const char *call,
                               const char *label)
{
    return eo_nccl_settle(group, comm, result == ncclSuccess ? ncclInProgress : result, call, label);
}

enum { COMMS_MAX = 3 * EO_NCCL_FAMILY_MAX };

/* The thread that ends communicators outlives the wait for it where NCCL does not come back: what it works on is its own. */
struct ending {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool has_ended, is_left;
    int device;
    ncclComm_t comms[COMMS_MAX];
    uint32_t count;
    ncclResult_t (*end)(ncclComm_t comm);
    ncclResult_t result;
};

/* Who is at a call comes last: NCCL joins its thread there first, and that may wait for room behind the others' kernels. */
static void put_busy_last(struct ending *work)
{
    uint32_t idle_count = 0;
    for (uint32_t i = 0; i < work->count; i++) {
        ncclResult_t state = ncclSuccess;
        const ncclComm_t comm = work->comms[i];
        (void)ncclCommGetAsyncError(comm, &state);
        if (state == ncclInProgress)
            continue;
        work->comms[i] = work->comms[idle_count];
        work->comms[idle_count++] = comm;
    }
}

/* In one group, so that all have their flags before one is waited for: the kernels of the first may come after one of the
 * second, which looks at the flag of the second (NVIDIA/nccl#1013). */
static void *end_all(void *arg)
{
    struct ending *work = arg;
    (void)cudaSetDevice(work->device); /* NCCL sets back what it finds: GPU 0's context would be made here */
    put_busy_last(work);
    (void)ncclGroupStart();
    for (uint32_t i = 0; i < work->count; i++)
        (void)work->end(work->comms[i]);
    const ncclResult_t result = ncclGroupEnd();
    pthread_mutex_lock(&work->lock);
    work->result = result;
    work->has_ended = true;
    const bool is_left = work->is_left;
    pthread_cond_signal(&work->ended);
    pthread_mutex_unlock(&work->lock);
    if (is_left)
        free(work);
    return NULL;
}

static bool has_ended_within(struct ending *work, uint64_t limit_ns)
{
    struct eo_stopwatch waited = eo_stopwatch_start();
    pthread_mutex_lock(&work->lock);
    while (!work->has_ended && eo_stopwatch_look(&waited, EO_LOOK_NS_MAX) <= limit_ns) {
        const uint64_t until_ns = eo_now_ns() + EO_LOOK_NS_MAX / 2;
        const struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
        (void)pthread_cond_timedwait(&work->ended, &work->lock, &until);
    }
    const bool has_ended = work->has_ended;
    work->is_left = !has_ended;
    pthread_mutex_unlock(&work->lock);
    return has_ended;
}

/* False: not within the limit, and the thread goes on; or (*result then ncclSystemError) none could be started. */
static bool end_within(uint64_t limit_ms, const struct eo_group *root, ncclResult_t (*end)(ncclComm_t comm),
                       ncclComm_t *const *comms, uint32_t count, ncclResult_t *result)
{
    struct ending *work = calloc(1, sizeof(*work));
    pthread_t thread;
    *result = ncclSystemError;
    if (!work)
        return false;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    work->device = root->cuda_device;
    work->end = end;
    work->count = count;
    for (uint32_t i = 0; i < count; i++)
        work->comms[i] = *comms[i];
    if (eo_thread_start(&thread, end_all, work) != 0) {
        free(work);
        return false;
    }
    (void)pthread_detach(thread);
    *result = ncclInProgress;
    if (!has_ended_within(work, limit_ms * UINT64_C(1000000)))
        return false;
    *result = work->result;
    free(work);
    return true;
}

void eo_nccl_destroy(struct eo_group *group, ncclComm_t comm)
{
    static const char text[] = "rank %u of %u, 'close': ncclCommDestroy has not returned within %llu ms: a rank of this machine "
                               "has not closed its world; end the process at once, without its destructors";
    /* A rank that waits for this one in a collective gives up by its deadline, and closes then. */
    const uint64_t limit_ms = (uint64_t)group->params.timeout_ms + GIVE_UP_MS;
    ncclResult_t result;
    (void)end_within(limit_ms, group->root, ncclCommDestroy, &(ncclComm_t *){&comm}, 1, &result);
    if (result == ncclInProgress) {
        group->root->info.must_exit = true;
        (void)eo_nccl_fail(group, EO_ERR_TIMEOUT, text, group->rank, group->params.rank_count, (unsigned long long)limit_ms);
    } else if (result != ncclSuccess) {
        eo_log_write(&group->log, EO_LOG_WARN, "rank %u: ncclCommDestroy: %s", group->rank, ncclGetErrorString(result));
    }
}

/* Where all communicators of the family stand. */
static uint32_t list_comms(struct eo_group *root, ncclComm_t **out)
{
    uint32_t count = 0;
    for (struct eo_group *member = root; member; member = member->next)
        for (int i = 0; i < 2; i++)
            if (member->comms[i] && member->comms[i]->nccl)
                out[count++] = &member->comms[i]->nccl;
    for (struct eo_group *member = root; member; member = member->next)
        if (member->owns_parent && member->parent)
            out[count++] = &member->parent;
    return count;
}

/* True when all communicators have been aborted in time. A split that is under way ends with its parent, and the child that it
 * then gives is aborted after it. */
static bool try_abort(struct eo_group *root)
{
    ncclComm_t *comms[COMMS_MAX];
    ncclResult_t ignored;
    uint32_t count;
    while ((count = list_comms(root, comms)) > 0) {
        if (!end_within(GIVE_UP_MS, root, ncclCommAbort, comms, count, &ignored))
            return false;
        for (uint32_t i = 0; i < count; i++)
            *comms[i] = NULL;
    }
    return true;
}

void eo_nccl_give_up(struct eo_group *group)
{
    struct eo_group *root = group->root;
    if (root->gave_up)
        return;
    root->gave_up = true;
    ncclComm_t *all[COMMS_MAX];
    bool is_idle = list_comms(root, all) == 0;
    bool is_theirs = false; /* the caller's communicator is being split, and not ours to abort */
    for (const struct eo_group *member = root; member; member = member->next) {
        is_idle = is_idle && !member->comms[0] && !member->comms[1];
        is_theirs = is_theirs || (member->is_splitting && !member->owns_parent);
    }
    const bool may_abort = root->mode->aborts && !root->is_capturing && root->graph_count == 0 && !is_theirs;
    const bool is_free = !is_theirs && (is_idle || (may_abort && try_abort(root)));
    root->info.must_exit = root->info.must_exit || !is_free;
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
                     root->rank, may_abort             ? "ncclCommAbort did not return"
                                 : is_theirs          ? "the given communicator is still being split"
                                 : root->mode->aborts ? "NCCL cannot abort while captured steps exist"
                                                       : "NCCL cannot abort in this mode");
}
