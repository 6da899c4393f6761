/* SPDX-License-Identifier: MIT */
#include "streams/cpu/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/float_mode.h"
#include "base/thread.h"

struct point {
    struct eo_cpu_queue *queue;
    uint64_t sequence;
};

static bool is_reached(void *arg)
{
    const struct point *point = arg;
    return atomic_load_explicit(&point->queue->completed, memory_order_acquire) >= point->sequence;
}

static bool has_work(void *arg)
{
    const struct point *point = arg;
    return atomic_load_explicit(&point->queue->issued, memory_order_acquire) > point->sequence ||
           atomic_load_explicit(&point->queue->stop, memory_order_acquire);
}

eo_status eo_cpu_queue_error(const struct eo_cpu_queue *queue)
{
    return (eo_status)atomic_load_explicit(&queue->error, memory_order_acquire);
}

eo_status eo_cpu_queue_await(struct eo_cpu_queue *queue, uint64_t sequence)
{
    struct point point = {queue, sequence};
    if (!is_reached(&point))
        (void)eo_gate_wait(&queue->done, is_reached, &point, 0);
    return eo_cpu_queue_error(queue);
}

static eo_status run_item(struct eo_cpu_queue *queue, struct eo_cpu_item *item)
{
    EO_TRY(eo_cpu_queue_error(queue));
    for (uint32_t other = 1; other < EO_QUEUES_MAX; other++) {
        if (item->wait[other] != 0)
            EO_TRY(eo_cpu_queue_await(&queue->queues[other], item->wait[other]));
    }
    eo_delay_sleep(&queue->delay);
    return item->run ? item->run(item->arguments) : EO_OK;
}

/* Setting it costs more than looking. */
static void take_float_mode(uint64_t *now, uint64_t wanted)
{
    if (*now != wanted)
        eo_float_mode_set(wanted);
    *now = wanted;
}

static void *worker(void *arg)
{
    struct eo_cpu_queue *queue = arg;
    uint64_t float_mode = eo_float_mode_get();
    if (queue->bind)
        queue->bind(queue->bind_arg);
    for (uint64_t completed = 0;; completed++) {
        struct point point = {queue, completed};
        (void)eo_gate_wait(&queue->work, has_work, &point, 0);
        if (atomic_load_explicit(&queue->issued, memory_order_acquire) == completed)
            return NULL; /* stopped, and nothing is left */
        struct eo_cpu_item *item = &queue->ring[completed % queue->ring_items];
        take_float_mode(&float_mode, item->float_mode);
        const eo_status status = run_item(queue, item);
        if (status < 0)
            atomic_store_explicit(&queue->error, status, memory_order_release);
        atomic_store_explicit(&queue->completed, completed + 1, memory_order_release);
        eo_gate_notify(&queue->done);
    }
}

int eo_cpu_queue_init(struct eo_cpu_queue *queue, uint32_t capacity)
{
    queue->ring_items = capacity + 1;
    queue->ring = calloc(queue->ring_items, sizeof(queue->ring[0]));
    if (!queue->ring)
        return ENOMEM;
    const int error = eo_thread_start(&queue->thread, worker, queue);
    queue->thread_started = error == 0;
    if (error != 0)
        return error;
    char name[16]; /* the kernel's limit */
    snprintf(name, sizeof(name), "eo-%s-%u", queue->index == EO_QUEUE_COMM ? "comm" : queue->index == EO_QUEUE_COPY ? "copy" : "reduce", queue->rank % 1000);
    pthread_setname_np(queue->thread, name);
    return 0;
}

void eo_cpu_queue_fini(struct eo_cpu_queue *queue)
{
    if (queue->thread_started) {
        atomic_store_explicit(&queue->stop, true, memory_order_release);
        eo_gate_notify(&queue->work);
        pthread_join(queue->thread, NULL);
        queue->thread_started = false;
    }
    free(queue->ring);
    queue->ring = NULL;
}

void eo_cpu_queue_issue(struct eo_cpu_queue *queue, eo_cpu_work_fn run, const void *arguments, size_t bytes)
{
    EO_ASSERT(bytes <= EO_CPU_ARGUMENT_BYTES);
    const uint64_t issued = atomic_load_explicit(&queue->issued, memory_order_relaxed);
    const uint64_t completed = atomic_load_explicit(&queue->completed, memory_order_acquire);
    if (issued - completed >= queue->ring_items)
        eo_fatal("rank %u, queue %u: its ring of %u items is full; wait for an event of the queue before you enqueue more, or "
                 "raise ring_capacity", queue->rank, queue->index, queue->ring_items - 1);
    struct eo_cpu_item *item = &queue->ring[issued % queue->ring_items];
    item->run = run;
    item->float_mode = eo_float_mode_get();
    if (bytes > 0)
        memcpy(item->arguments, arguments, bytes);
    memcpy(item->wait, queue->pending_wait, sizeof(item->wait));
    memset(queue->pending_wait, 0, sizeof(queue->pending_wait));
    atomic_store_explicit(&queue->issued, issued + 1, memory_order_release);
    eo_gate_notify(&queue->work);
}

uint64_t eo_cpu_queue_point(struct eo_cpu_queue *queue)
{
    /* Waits that no item carries yet belong to the point too. */
    for (uint32_t other = 1; other < EO_QUEUES_MAX; other++) {
        if (queue->pending_wait[other] != 0) {
            eo_cpu_queue_issue(queue, NULL, NULL, 0);
            break;
        }
    }
    return atomic_load_explicit(&queue->issued, memory_order_relaxed);
}

void eo_cpu_queue_order_after(struct eo_cpu_queue *queue, uint32_t other, uint64_t sequence)
{
    if (other == EO_QUEUE_COMPUTE || other == queue->index)
        return; /* done already on the calling thread; the queue's own order */
    if (atomic_load_explicit(&queue->queues[other].completed, memory_order_acquire) >= sequence &&
        eo_cpu_queue_error(&queue->queues[other]) == EO_OK)
        return;
    if (queue->pending_wait[other] < sequence)
        queue->pending_wait[other] = sequence;
}
