/* SPDX-License-Identifier: MIT
 *
 * Groups, lines and communicators of the local collectives, and what enqueues them.
 */
#include "streams/local.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "streams/cpu/device_cpu.h"

enum { TIMEOUT_MS_DEFAULT = 60000 };

eo_status eo_local_fail(struct eo_group *group, eo_status status, const char *format, ...)
{
    pthread_mutex_lock(&group->lock);
    const bool is_first = atomic_load(&group->failure) == EO_OK;
    if (is_first) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(group->text, sizeof(group->text), format, arguments);
        va_end(arguments);
        atomic_store(&group->failure, status);
        for (struct eo_local_line *line = group->lines; line; line = line->next)
            eo_gate_notify(&line->gate);
    }
    pthread_mutex_unlock(&group->lock);
    if (is_first) /* not under the lock: the callback may ask for the text */
        eo_log_write(&group->log, EO_LOG_ERROR, "%s", group->text);
    return eo_local_failure(group);
}

static eo_status local_group_create(struct eo_group **out, const struct eo_group_params *params)
{
    *out = NULL;
    EO_REQUIRE(params->log, params->rank_count >= 1 && params->rank_count <= EO_LOCAL_RANKS_MAX,
               "local collectives: %u ranks; threads of one process can be 1 to %u", params->rank_count,
               (unsigned)EO_LOCAL_RANKS_MAX);
    struct eo_group *group = calloc(1, sizeof(*group) + params->rank_count * sizeof(group->opened[0]));
    if (!group)
        return EO_ERR_NO_MEMORY;
    group->params = *params;
    if (group->params.timeout_ms == 0)
        group->params.timeout_ms = TIMEOUT_MS_DEFAULT;
    if (params->log)
        group->log = *params->log;
    group->params.log = &group->log;
    atomic_init(&group->references, params->rank_count);
    pthread_mutex_init(&group->lock, NULL);
    eo_fabric_init(&group->fabric, params->fabric_gigabytes_per_s, params->fabric_latency_us);
    *out = group;
    return EO_OK;
}

static void local_group_release(struct eo_group *group)
{
    if (!group || atomic_fetch_sub(&group->references, 1) != 1)
        return;
    EO_ASSERT(!group->lines); /* every communicator is closed */
    pthread_mutex_destroy(&group->lock);
    free(group);
}

static void local_group_abort(struct eo_group *group, uint32_t rank, const char *reason)
{
    (void)eo_local_fail(group, EO_ERR_COMM, "rank %u gave up: %s", rank, reason ? reason : "no reason given");
}

static void local_group_failure(struct eo_group *group, char *text, size_t bytes)
{
    pthread_mutex_lock(&group->lock);
    snprintf(text, bytes, "%s", group->text);
    pthread_mutex_unlock(&group->lock);
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

static eo_status local_open(struct eo_comm **out, struct eo_group *group, uint32_t rank, struct eo_device *device,
                            uint32_t queue)
{
    *out = NULL;
    EO_REQUIRE(&group->log, rank < group->params.rank_count, "communicator: rank %u of %u", rank,
               group->params.rank_count);
    EO_REQUIRE(&group->log, queue != EO_QUEUE_COMPUTE && queue < device->params.queue_count,
               "communicator: queue %u; collectives run on queues 1 ... %u", queue, device->params.queue_count - 1);
    if (device->ops != &eo_device_cpu_ops) {
        eo_log_write(&group->log, EO_LOG_ERROR, "local collectives run on device cpu, not on %s", device->ops->name);
        return EO_ERR_UNSUPPORTED;
    }
    struct eo_comm *comm = calloc(1, sizeof(*comm));
    if (!comm)
        return EO_ERR_NO_MEMORY;
    pthread_mutex_lock(&group->lock);
    comm->line = take_line(group, rank);
    pthread_mutex_unlock(&group->lock);
    if (!comm->line) {
        free(comm);
        return EO_ERR_NO_MEMORY;
    }
    comm->group = group;
    comm->rank = rank;
    comm->device = device;
    comm->queue = queue;
    comm->kernels = eo_cpu_of(device)->kernels;
    *out = comm;
    return EO_OK;
}

static eo_status await_queue(struct eo_comm *comm)
{
    struct eo_cpu_queue *queue = &eo_cpu_of(comm->device)->queues[comm->queue];
    return eo_cpu_queue_await(queue, eo_cpu_queue_point(queue));
}

static void local_close(struct eo_comm *comm)
{
    if (!comm)
        return;
    struct eo_group *group = comm->group;
    struct eo_local_line *line = comm->line;
    (void)await_queue(comm);
    if (!eo_local_await_readers(comm))
        (void)eo_local_fail(group, EO_ERR_TIMEOUT, "rank %u closed a communicator, and after %u ms a rank still reads "
                            "its memory", comm->rank, group->params.timeout_ms);
    pthread_mutex_lock(&group->lock);
    atomic_store(&line->ranks[comm->rank].closed, true);
    eo_gate_notify(&line->gate);
    if (++line->closed_count == group->params.rank_count) {
        struct eo_local_line **link = &group->lines;
        while (*link != line)
            link = &(*link)->next;
        *link = line->next;
        free(line);
    }
    pthread_mutex_unlock(&group->lock);
    free(comm);
}

static eo_status enqueue_collective(struct eo_comm *comm, void *recv, struct eo_local_post post, struct eo_span *span)
{
    if (!post.label)
        post.label = "";
    const struct eo_local_work work = {comm, recv, post, span, eo_now_ns()};
    _Static_assert(sizeof(work) <= EO_CPU_ARGUMENT_BYTES, "a collective does not fit into an item of the ring");
    eo_cpu_enqueue(comm->device, comm->queue, eo_local_run, &work, sizeof(work));
    return EO_OK;
}

static eo_status local_all_gather(struct eo_comm *comm, void *recv, const void *send, uint64_t send_bytes,
                                  const char *label, struct eo_span *span)
{
    const struct eo_local_post post = {.kind = EO_LOCAL_ALL_GATHER, .count = send_bytes, .label = label, .send = send};
    return enqueue_collective(comm, recv, post, span);
}

static eo_status local_reduce_scatter(struct eo_comm *comm, void *recv, const void *send, uint64_t recv_count,
                                      eo_dtype dtype, const char *label, struct eo_span *span)
{
    const struct eo_local_post post = {
        .kind = EO_LOCAL_REDUCE_SCATTER, .dtype = dtype, .count = recv_count, .label = label, .send = send};
    return enqueue_collective(comm, recv, post, span);
}

/* Who is in the barrier has finished all collectives before it, so nobody reads anybody's memory after it. */
static eo_status local_quiesce(struct eo_comm *comm)
{
    EO_TRY(await_queue(comm)); /* first, or a full ring could not take the barrier */
    const struct eo_local_post post = {.kind = EO_LOCAL_BARRIER, .label = "quiesce"};
    EO_TRY(enqueue_collective(comm, NULL, post, NULL));
    return await_queue(comm);
}

const struct eo_comm_ops eo_comm_local_ops = {
    .name = "local",
    .group_create = local_group_create,
    .group_release = local_group_release,
    .group_abort = local_group_abort,
    .group_failure = local_group_failure,
    .open = local_open,
    .close = local_close,
    .all_gather = local_all_gather,
    .reduce_scatter = local_reduce_scatter,
    .quiesce = local_quiesce,
};
