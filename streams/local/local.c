/* SPDX-License-Identifier: MIT
 *
 * Groups and lines of the local collectives: who is there, and the first failure.
 */
#include "streams/local/local.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

enum { TIMEOUT_MS_DEFAULT = 60000, STOPPED_NS = 1000000000 };

void eo_local_lock(struct eo_group *group)
{
    pthread_mutex_t *lock = &group->common->lock;
    if (!group->shared) {
        pthread_mutex_lock(lock);
        return;
    }
    /* Held for microseconds, unless its owner's process was stopped: then nobody is to wait for that, and what is done
     * under it is done without it (unlock then refuses). Where all were stopped, the owner goes on too: that counts as half of
     * the wait. pthread_mutex_timedlock goes by the wall clock, and ThreadSanitizer does not know pthread_mutex_clocklock. */
    enum { YIELDS = 64 }; /* first: as a rule that is enough */
    struct eo_stopwatch waited = eo_stopwatch_start();
    int result;
    for (uint32_t look = 0;
         (result = pthread_mutex_trylock(lock)) == EBUSY && eo_stopwatch_look(&waited, STOPPED_NS / 2) < STOPPED_NS; look++)
        if (look < YIELDS)
            sched_yield();
        else
            eo_pause();
    if (result == EOWNERDEAD)
        pthread_mutex_consistent(lock);
}

void eo_local_unlock(struct eo_group *group)
{
    pthread_mutex_unlock(&group->common->lock);
}

eo_status eo_local_fail(struct eo_group *group, eo_status status, const char *format, ...)
{
    struct eo_local_common *common = group->common;
    eo_local_lock(group);
    const bool is_first = atomic_load(&common->failure) == EO_OK;
    if (is_first) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(common->text, sizeof(common->text), format, arguments);
        va_end(arguments);
        if (group != group->root)
            eo_comm_say_split(common->text, sizeof(common->text));
        atomic_store(&common->failure, status);
        for (struct eo_group *member = group->root; member; member = member->next) {
            eo_gate_notify(&member->split_gate);
            for (struct eo_local_line *line = member->lines; line; line = line->next)
                eo_gate_notify(&line->gate);
            if (member->wake)
                member->wake(member);
        }
    }
    eo_local_unlock(group);
    if (is_first) /* not under the lock: the callback may ask for the text */
        eo_log_write(&group->log, EO_LOG_ERROR, "%s", common->text);
    return eo_local_failure(group);
}

eo_status eo_local_group_make(struct eo_group **out, const struct eo_group_params *params, struct eo_group *root)
{
    struct eo_group *group = calloc(1, sizeof(*group) + params->rank_count * sizeof(group->opened[0]));
    struct eo_local_splitter *splitters = calloc(params->rank_count, sizeof(*splitters));
    if (!group || !splitters) {
        free(group);
        free(splitters);
        return EO_ERR_NO_MEMORY;
    }
    group->params = *params;
    if (params->log)
        group->log = *params->log;
    group->params.log = &group->log;
    atomic_init(&group->references, params->rank_count);
    group->splitters = splitters;
    group->root = root ? root : group;
    group->common = root ? root->common : &group->own;
    pthread_mutex_init(&group->own.lock, NULL);
    *out = group;
    return EO_OK;
}

eo_status eo_local_group_create(struct eo_group **out, const struct eo_group_params *params)
{
    *out = NULL;
    EO_REQUIRE(params->log, params->rank_count >= 1 && params->rank_count <= EO_LOCAL_RANKS_MAX,
               "local collectives: %u ranks; one process can have 1 to %u", params->rank_count,
               (unsigned)EO_LOCAL_RANKS_MAX);
    EO_TRY(eo_local_group_make(out, params, NULL));
    if ((*out)->params.timeout_ms == 0)
        (*out)->params.timeout_ms = TIMEOUT_MS_DEFAULT;
    eo_fabric_init(&(*out)->own.fabric, params->fabric_gigabytes_per_s, params->fabric_latency_us);
    return EO_OK;
}

static void free_line(struct eo_local_line *line)
{
    for (uint32_t r = 0; line->drop && r < line->group->params.rank_count; r++)
        line->drop(line->ranks[r].shared);
    free(line);
}

void eo_local_group_release(struct eo_group *group)
{
    if (!group || atomic_fetch_sub(&group->references, 1) != 1)
        return;
    struct eo_group *root = group->root;
    if (root != group) { /* first: a failure elsewhere in the family wakes all that it finds there */
        eo_local_lock(root);
        struct eo_group *before = root;
        while (before->next != group)
            before = before->next;
        before->next = group->next;
        eo_local_unlock(root);
    }
    while (group->lines) { /* every communicator is closed; these lines a rank that failed has never opened */
        struct eo_local_line *line = group->lines;
        group->lines = line->next;
        EO_ASSERT(line->closed_count < group->params.rank_count);
        free_line(line);
    }
    if (group->drop)
        group->drop(group);
    pthread_mutex_destroy(&group->own.lock);
    free(group->splitters);
    free(group);
    if (root != group)
        eo_local_group_release(root);
}

void eo_local_group_abort(struct eo_group *group, uint32_t rank, const char *reason)
{
    (void)eo_local_fail(group->root, EO_ERR_COMM, "rank %u gave up: %s", rank, reason ? reason : "no reason given");
}

void eo_local_group_failure(struct eo_group *group, char *text, size_t bytes)
{
    eo_local_lock(group);
    snprintf(text, bytes, "%s", group->common->text);
    eo_local_unlock(group);
}

/* The rank's next line: found where another rank was first, else made. Under the lock. */
static struct eo_local_line *take_line(struct eo_group *group, uint32_t rank)
{
    const uint64_t index = group->opened[rank];
    struct eo_local_line *line = group->lines;
    while (line && line->index != index)
        line = line->next;
    if (!line) {
        const size_t bytes = sizeof(*line) + group->params.rank_count * sizeof(line->ranks[0]);
        line = aligned_alloc(_Alignof(struct eo_local_line), bytes);
        if (!line)
            return NULL;
        memset(line, 0, bytes);
        line->group = group;
        line->index = index;
        line->next = group->lines;
        group->lines = line;
    }
    group->opened[rank]++;
    return line;
}

eo_status eo_local_end_open(struct eo_local_end *end, struct eo_group *group, uint32_t rank,
                            const struct eo_device *device, uint32_t queue, void *shared)
{
    EO_REQUIRE(&group->log, rank < group->params.rank_count, "communicator: rank %u of %u", rank,
               group->params.rank_count);
    EO_REQUIRE(&group->log, queue != EO_QUEUE_COMPUTE && queue < device->params.queue_count,
               "communicator: queue %u; collectives run on queues 1 ... %u", queue, device->params.queue_count - 1);
    eo_local_lock(group);
    struct eo_local_line *line = take_line(group, rank);
    if (line)
        line->ranks[rank].shared = shared;
    eo_local_unlock(group);
    if (!line)
        return EO_ERR_NO_MEMORY;
    *end = (struct eo_local_end){.group = group, .line = line, .rank = rank};
    return EO_OK;
}

void eo_local_end_close(struct eo_local_end *end, void (*drop)(void *shared))
{
    struct eo_group *group = end->group;
    struct eo_local_line *line = end->line;
    eo_local_lock(group);
    atomic_store(&eo_local_self(end)->closed, true);
    eo_gate_notify(&line->gate);
    line->drop = drop;
    const bool is_last = ++line->closed_count == group->params.rank_count;
    if (is_last) {
        struct eo_local_line **link = &group->lines;
        while (*link != line)
            link = &(*link)->next;
        *link = line->next;
    }
    eo_local_unlock(group);
    if (is_last)
        free_line(line);
}
