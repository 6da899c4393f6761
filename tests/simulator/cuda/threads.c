/* SPDX-License-Identifier: MIT
 *
 * The executor THREADS: a thread a stream. It learns of others only by the list of its operations, where each is published
 * by itself, and by the points it waits for: ThreadSanitizer sees the order that the program has asked for, and no other.
 */
#include "internal.h"

#include <stdlib.h>

/* Longer, the longer there was nothing to do: idle streams are many. */
static void doze(uint32_t *naps)
{
    const uint32_t doublings = *naps / 4 < 6 ? *naps / 4 : 6;
    (void)sim_sleep(&(struct timespec){.tv_nsec = 20000L << doublings}, NULL);
    ++*naps;
}

static bool is_stopped(struct sim_stream *stream)
{
    return atomic_load_explicit(&stream->stop, memory_order_relaxed);
}

static bool await_collective(struct sim_stream *stream, struct sim_op *op, bool (*ready)(const struct sim_op *op))
{
    uint32_t naps = 0;
    while (!ready(op)) {
        if (is_stopped(stream))
            return false;
        doze(&naps);
    }
    return true;
}

static bool run_one(struct sim_stream *stream, struct sim_op *op)
{
    uint32_t naps = 0;
    for (uint32_t i = 0; i < op->dependency_count; i++) {
        while (!atomic_load_explicit(&op->dependencies[i]->done, memory_order_acquire)) {
            if (is_stopped(stream))
                return false;
            doze(&naps);
        }
    }
    if (op->work.kind == SIM_COLLECTIVE) {
        if (!await_collective(stream, op, sim_collective_may_begin))
            return false;
        sim_collective_begin(op, NULL);
        if (!await_collective(stream, op, sim_collective_is_over))
            return false;
        sim_collective_end(op, NULL);
    } else {
        sim_op_body(op);
    }
    op->point->end_ns = sim_real_ns();
    atomic_store_explicit(&op->point->done, true, memory_order_release);
    return true;
}

static void *stream_main(void *argument)
{
    struct sim_stream *stream = argument;
    uint32_t naps = 0;
    while (!is_stopped(stream)) {
        struct sim_op *op = atomic_load_explicit(&stream->first->next, memory_order_acquire);
        if (!op) {
            doze(&naps);
            continue;
        }
        naps = 0;
        if (!run_one(stream, op))
            break;
        sim_op_free(stream->first);
        stream->first = op;
    }
    return NULL;
}

void sim_threads_submit(struct sim_op *op)
{
    struct sim_stream *stream = op->stream;
    if (!stream->has_thread) {
        stream->first = sim_op_new(stream, &(struct sim_work){.kind = SIM_MARKER, .name = "begin"});
        stream->tail = stream->first;
        if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0)
            abort();
        stream->has_thread = true;
    }
    atomic_store_explicit(&stream->tail->next, op, memory_order_release);
    stream->tail = op;
}

void sim_threads_stop(struct sim_stream *stream)
{
    if (!stream->has_thread)
        return;
    atomic_store(&stream->stop, true);
    pthread_join(stream->thread, NULL);
    stream->has_thread = false;
    while (stream->first) {
        struct sim_op *next = atomic_load(&stream->first->next);
        sim_op_free(stream->first);
        stream->first = next;
    }
    stream->tail = NULL;
}
