/* SPDX-License-Identifier: MIT
 *
 * Streams, operations, and the executor SCHEDULED: which head of which stream runs next.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local const struct sim_op *current_op;

const struct sim_op *sim_current_op(void) { return current_op; }

/* --- points --- */

struct sim_point *sim_retain(struct sim_point *point)
{
    if (point)
        atomic_fetch_add(&point->references, 1);
    return point;
}

void sim_release(struct sim_point *point)
{
    if (point && atomic_fetch_sub(&point->references, 1) == 1)
        free(point);
}

/* --- work --- */

void sim_work_free(struct sim_work *work)
{
    free(work->arguments);
    free(work->ranges);
    if (work->event)
        sim_event_release(work->event);
    if (work->collective)
        sim_collective_free(work->collective);
}

void sim_work_copy(struct sim_work *to, const struct sim_work *from)
{
    *to = *from;
    to->arguments = NULL;
    to->ranges = NULL;
    if (from->argument_bytes > 0) {
        to->arguments = sim_alloc(from->argument_bytes);
        memcpy(to->arguments, from->arguments, from->argument_bytes);
    }
    if (from->range_count > 0) {
        to->ranges = sim_alloc(from->range_count * sizeof(*from->ranges));
        memcpy(to->ranges, from->ranges, from->range_count * sizeof(*from->ranges));
    }
    if (from->event)
        from->event->references++;
    if (from->collective)
        to->collective = sim_collective_copy(from->collective);
}

/* --- streams --- */

struct sim_stream *sim_stream_new(uint32_t device, uint64_t key, bool internal)
{
    struct sim_stream *stream = sim_alloc(sizeof(*stream));
    stream->magic = SIM_MAGIC_STREAM;
    stream->device = device;
    stream->label = ++sim.stream_label;
    stream->key = key;
    stream->rank = sim_self()->rank;
    stream->internal = internal;
    stream->component = sim_component_new();
    struct sim_stream **link = &sim.streams; /* at the end: in the order of creation */
    while (*link)
        link = &(*link)->next;
    *link = stream;
    return stream;
}

struct sim_stream *sim_stream_of(cudaStream_t handle)
{
    if (handle == NULL || handle == cudaStreamLegacy) {
        const uint32_t device = sim_self()->device;
        if (!sim.legacy[device]) {
            sim.legacy[device] = sim_stream_new(device, 1000000 + device, false);
            sim.legacy[device]->legacy = true;
        }
        return sim.legacy[device];
    }
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next)
        if (stream == (struct sim_stream *)handle && !stream->destroyed && !stream->internal)
            return stream;
    /* The header calls it undefined: a driver may follow the pointer. */
    sim_violate("a stream was never made, or is destroyed: %p", (void *)handle);
    return NULL;
}

void sim_stream_drop(struct sim_stream *stream)
{
    struct sim_stream **link = &sim.streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    sim_threads_stop(stream);
    while (stream->head) {
        struct sim_op *next = stream->head->next;
        sim_op_free(stream->head);
        stream->head = next;
    }
    sim_component_free(stream->component);
    sim_release(stream->last);
    free(stream->tips);
    free(stream);
}

void sim_streams_reset(void)
{
    while (sim.streams)
        sim_stream_drop(sim.streams);
    memset(sim.legacy, 0, sizeof(sim.legacy));
}

uint32_t sim_stream_leaks(void)
{
    uint32_t count = 0;
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next)
        if (!stream->legacy && !stream->internal && !stream->destroyed) {
            sim_violate("never destroyed: stream %u", stream->label);
            count++;
        }
    return count;
}

/* --- operations --- */

struct sim_op *sim_op_new(struct sim_stream *stream, const struct sim_work *work)
{
    struct sim_op *op = sim_alloc(sizeof(*op));
    op->stream = stream;
    op->work = *work;
    op->point = sim_alloc(sizeof(*op->point));
    atomic_init(&op->point->references, 1);
    op->point->stream = stream;
    op->point->name = work->name;
    op->point->stream_label = stream->label;
    return op;
}

void sim_op_free(struct sim_op *op)
{
    for (uint32_t i = 0; i < op->dependency_count; i++)
        sim_release(op->dependencies[i]);
    free(op->dependencies);
    sim_work_free(&op->work);
    sim_release(op->point);
    free(op);
}

void sim_op_after(struct sim_op *op, struct sim_point *point)
{
    if (!point)
        return;
    op->dependencies = realloc(op->dependencies, (op->dependency_count + 1) * sizeof(struct sim_point *));
    if (!op->dependencies)
        abort();
    op->dependencies[op->dependency_count++] = sim_retain(point);
}

/* The default stream waits for all blocking streams of its device, and they for it. */
static void order_with_legacy(struct sim_op *op)
{
    struct sim_stream *stream = op->stream;
    if (stream->legacy) {
        for (struct sim_stream *other = sim.streams; other; other = other->next)
            if (other->blocking && other->device == stream->device)
                sim_op_after(op, other->last);
    } else if (stream->blocking && sim.legacy[stream->device]) {
        sim_op_after(op, sim.legacy[stream->device]->last);
    }
}

struct sim_point *sim_submit(struct sim_op *op)
{
    struct sim_stream *stream = op->stream;
    const struct sim_thread *self = sim_self();
    order_with_legacy(op);
    op->point->sequence = ++stream->sequence;
    op->host = self->clock;
    sim_clock_join(&stream->issued, &self->issued);
    for (uint32_t i = 0; i < op->dependency_count; i++)
        sim_clock_join(&stream->issued, &op->dependencies[i]->issued);
    stream->issued.at[stream->component] = (uint32_t)stream->sequence;
    op->point->component = stream->component;
    op->point->issued = stream->issued;
    op->host_ns = self->takes_turns && sim.host_ns > self->virtual_ns ? sim.host_ns : self->virtual_ns; /* as it sees time */
    if (op->work.kind != SIM_MARKER && op->work.kind != SIM_RECORD) {
        const uint32_t rank = stream->rank < SIM_RANKS_MAX ? stream->rank : SIM_RANKS_MAX;
        op->identity = sim_mix(stream->key, ++stream->operations);
        if (++sim.issued_of[rank] == sim.config.slow_operation && rank == sim.config.slow_rank)
            op->slow_until_ns = sim.host_ns + sim.config.slow_ns;
    }
    sim_release(stream->last);
    stream->last = sim_retain(op->point);
    if (op->work.kind == SIM_COLLECTIVE) {
        stream->has_collectives = true;
        sim_collective_launch(op);
    }
    sim_progress();
    if (sim.config.executor == SIM_THREADS) {
        sim_threads_submit(op);
        return stream->last;
    }
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    return stream->last;
}

void sim_op_body(struct sim_op *op)
{
    current_op = op;
    if (op->work.body)
        op->work.body(op->work.arguments);
    current_op = NULL;
}

/* --- the scheduler --- */

static bool can_run(const struct sim_op *op)
{
    if (op->slow_until_ns > sim.host_ns)
        return false;
    for (uint32_t i = 0; i < op->dependency_count; i++)
        if (!atomic_load(&op->dependencies[i]->done))
            return false;
    if (op->work.kind != SIM_COLLECTIVE)
        return true;
    return op->has_begun ? sim_collective_is_over(op) : sim_collective_may_begin(op);
}

static uint64_t cost_ns(const struct sim_op *op)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->work.range_count; i++)
        bytes += op->work.ranges[i].bytes;
    if (op->work.kind == SIM_MARKER || op->work.kind == SIM_RECORD)
        return 100;
    const uint64_t kernel_ns = op->work.kind == SIM_COLLECTIVE ? 0 : sim.config.kernel_ns;
    return 1000 + kernel_ns + bytes / 100 + sim_mix(sim.config.seed ^ op->stream->key, op->point->sequence) % 10000;
}

/* Checks what it touches; false: the context is broken. */
static bool begin_op(struct sim_op *op, struct sim_clock *clock)
{
    struct sim_stream *stream = op->stream;
    *clock = stream->clock;
    sim_clock_join(clock, &op->host);
    for (uint32_t i = 0; i < op->dependency_count; i++)
        sim_clock_join(clock, &op->dependencies[i]->clock);
    clock->at[stream->component] = ++sim.component_tick[stream->component];
    uint64_t start_ns = stream->virtual_ns > op->host_ns ? stream->virtual_ns : op->host_ns;
    for (uint32_t i = 0; i < op->dependency_count; i++)
        if (op->dependencies[i]->end_ns > start_ns)
            start_ns = op->dependencies[i]->end_ns;
    op->point->end_ns = start_ns + cost_ns(op);
    for (uint32_t i = 0; i < op->work.range_count; i++) {
        char text[200];
        const char *fault = sim_range_fault(&op->work.ranges[i], stream->device, op->work.is_copy, text, sizeof(text));
        if (fault) {
            sim_violate("%s on stream %u: %s", op->work.name, stream->label, fault);
            sim_break(cudaErrorIllegalAddress, op->work.name);
            return false;
        }
        sim_deliver_to(&op->work.ranges[i]);
        sim_access(op, clock, &op->work.ranges[i]);
    }
    return true;
}

static bool is_to_fail(const struct sim_op *op)
{
    if (op->work.kind == SIM_MARKER || op->work.kind == SIM_RECORD)
        return false;
    const uint32_t rank = op->stream->rank < SIM_RANKS_MAX ? op->stream->rank : SIM_RANKS_MAX;
    return ++sim.operations_of[rank] >= sim.config.fail_operation && sim.config.fail_operation > 0 &&
           rank == sim.config.fail_rank;
}

static void finish_op(struct sim_op *op, const struct sim_clock *clock)
{
    struct sim_stream *stream = op->stream;
    stream->clock = *clock;
    stream->virtual_ns = op->point->end_ns;
    if (op->point->end_ns > sim.virtual_ns)
        sim.virtual_ns = op->point->end_ns;
    op->point->clock = *clock;
    atomic_store(&op->point->done, true);
    sim.order_hash = sim_mix(sim.order_hash, sim_mix(stream->key, op->point->sequence));
    stream->head = op->next;
    if (!stream->head)
        stream->tail = NULL;
    sim_op_free(op);
    sim_progress();
    if (stream->destroyed && !stream->head)
        sim_stream_drop(stream);
}

/* One step of an operation that can run: a collective takes two, to begin and to end. */
static void run_op(struct sim_op *op)
{
    struct sim_clock clock;
    if (!op->has_begun) {
        op->has_begun = true;
        if (is_to_fail(op)) {
            sim.fault_happened = true;
            sim_break(cudaErrorLaunchFailure, op->work.name);
            return;
        }
        if ((op->work.explores && !sim_explore(op)) || !begin_op(op, &clock))
            return;
        if (op->work.kind == SIM_COLLECTIVE) {
            sim_collective_begin(op, &clock);
            sim_progress();
            return;
        }
    }
    if (op->work.kind == SIM_COLLECTIVE)
        sim_collective_end(op, &clock);
    else if (!op->work.explores)
        sim_op_body(op);
    finish_op(op, &clock);
}

static bool is_starved(const struct sim_stream *stream)
{
    if (sim.config.seed % 2 && stream->has_collectives)
        return true;
    return sim_mix(sim.config.seed, stream->key) % 3 == 0;
}

/* Lower runs first. */
static uint64_t rank_of(const struct sim_stream *stream)
{
    const uint64_t seed = sim.config.seed, sequence = stream->head->point->sequence;
    const uint64_t by_operation = sim_mix(seed ^ stream->key, sequence) >> 1;
    switch (sim.config.policy) {
    case SIM_STARVE:
        return by_operation | (uint64_t)is_starved(stream) << 63;
    case SIM_RANKED:
        return sim_mix(seed ^ stream->key, sequence / 8) % 8 == 0 ? UINT64_MAX - sequence
                                                                  : sim_mix(seed, stream->key) >> 1;
    case SIM_BY_SEED:
    case SIM_RANDOM:
    case SIM_LAZY:
    case SIM_EAGER:
    case SIM_POLICIES:
    default:
        return by_operation;
    }
}

static struct sim_op *choose(bool starved_too)
{
    struct sim_stream *best = NULL;
    uint64_t best_rank = 0;
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (!stream->head || !can_run(stream->head) || (!starved_too && is_starved(stream)))
            continue;
        const uint64_t rank = rank_of(stream);
        if (!best || rank < best_rank) {
            best = stream;
            best_rank = rank;
        }
    }
    return best ? best->head : NULL;
}

/* An operation that `point` needs and that can run. */
static struct sim_op *choose_needed(const struct sim_point *point, uint32_t depth)
{
    if (!point || atomic_load(&point->done) || depth == 0)
        return NULL;
    struct sim_op *head = point->stream->head;
    if (!head)
        return NULL;
    if (can_run(head))
        return head;
    for (uint32_t i = 0; i < head->dependency_count; i++) {
        struct sim_op *op = choose_needed(head->dependencies[i], depth - 1);
        if (op)
            return op;
    }
    return NULL;
}

bool sim_can_run(void) { return sim.config.executor == SIM_SCHEDULED && choose(true) != NULL; }

void sim_let_run(uint32_t count)
{
    for (uint32_t i = 0; i < count && sim.broken == cudaSuccess && sim.config.executor == SIM_SCHEDULED; i++) {
        struct sim_op *op = choose(true);
        if (!op)
            return;
        run_op(op);
    }
}

void sim_policy_step(void)
{
    if (sim.config.executor != SIM_SCHEDULED)
        return;
    const uint64_t dice = sim_next_random();
    switch (sim.config.policy) {
    case SIM_EAGER:
        sim_let_run(UINT32_MAX);
        break;
    case SIM_RANDOM:
        sim_let_run(dice % 4 == 0 ? 1 + (uint32_t)(dice >> 8) % 3 : 0);
        break;
    case SIM_RANKED:
        sim_let_run(dice % 2);
        break;
    case SIM_STARVE:
        for (struct sim_op *op = choose(false); op && dice % 2 && sim.broken == cudaSuccess; op = choose(false))
            run_op(op);
        break;
    case SIM_LAZY:
    case SIM_BY_SEED:
    case SIM_POLICIES:
    default:
        break;
    }
}

/* --- host waits --- */

void sim_know(struct sim_point *point)
{
    struct sim_thread *self = sim_self();
    if (!point)
        return;
    sim_clock_join(&self->clock, &point->clock);
    sim_clock_join(&self->asked, &point->clock);
    sim_clock_join(&self->issued, &point->issued);
    if (point->end_ns > self->virtual_ns)
        self->virtual_ns = point->end_ns;
    sim_deliver();
}

void sim_look(struct sim_point *point)
{
    if (point && sim.config.knows_least)
        sim_clock_join(&sim_self()->asked, &point->clock);
    else
        sim_know(point);
}

static void tell_hang(const struct sim_point *point, const char *why)
{
    char heads[300] = "";
    size_t used = 0;
    for (const struct sim_stream *stream = sim.streams; stream; stream = stream->next)
        if (stream->head && used < sizeof(heads) - 1)
            used += (size_t)snprintf(heads + used, sizeof(heads) - used, " %s(stream %u, rank %d)",
                                     stream->head->work.name, stream->label, (int)stream->rank);
    sim_violate("hang: %s waits for %s (operation %llu of stream %u), and nothing can run; at the heads:%s", why,
                point->name, (unsigned long long)point->sequence, point->stream_label, heads);
}

cudaError_t sim_wait_for(struct sim_point *point, const char *why)
{
    if (!point)
        return sim.broken;
    struct sim_patience patience = {0};
    cudaError_t error = cudaSuccess;
    sim_retain(point);
    while (error == cudaSuccess && !atomic_load(&point->done)) {
        error = sim.broken;
        if (error != cudaSuccess)
            break;
        struct sim_op *op = NULL;
        if (sim.config.executor == SIM_SCHEDULED) {
            if (sim.config.policy == SIM_LAZY)
                op = choose_needed(point, 64);
            if (!op)
                op = choose(true);
        }
        if (op) {
            run_op(op);
        } else if (!sim_pause(&patience)) {
            if (sim.config.peer == SIM_PEER_GOOD)
                tell_hang(point, why);
            sim_break(cudaErrorLaunchTimeout, point->name);
        }
    }
    if (error == cudaSuccess)
        sim_know(point);
    sim_release(point);
    return error;
}

cudaError_t sim_wait_device(uint32_t device, const char *why)
{
    for (struct sim_stream *stream = sim.streams; stream;) {
        struct sim_point *last = stream->last;
        if (stream->device == device && last && !atomic_load(&last->done)) {
            const cudaError_t error = sim_wait_for(last, why);
            if (error != cudaSuccess)
                return error;
            stream = sim.streams; /* the list may be another one now */
            continue;
        }
        if (stream->device == device)
            sim_know(last);
        stream = stream->next;
    }
    return sim.broken;
}

/* --- issue --- */

cudaError_t sim_issue(struct sim_stream *stream, struct sim_work *work)
{
    for (uint32_t i = 0; i < work->range_count; i++) {
        char text[200];
        const char *fault = sim_range_fault(&work->ranges[i], stream->device, work->is_copy, text, sizeof(text));
        if (!fault)
            fault = sim_row_fault(&work->ranges[i], text, sizeof(text));
        if (fault) {
            sim_violate("%s on stream %u: %s", work->name, stream->label, fault);
            sim_work_free(work);
            return cudaErrorInvalidValue;
        }
    }
    if (stream->capture)
        return sim_capture_add(stream, work);
    const cudaError_t refused = stream->legacy ? sim_capture_refuses_default(stream) : cudaSuccess;
    if (refused != cudaSuccess) {
        sim_work_free(work);
        return refused;
    }
    (void)sim_submit(sim_op_new(stream, work));
    sim_policy_step();
    return sim.broken;
}

cudaError_t sim_kernel(const char *name, cudaStream_t handle, void (*body)(const void *arguments), const void *arguments,
                       size_t argument_bytes, const struct sim_range *ranges, uint32_t range_count)
{
    int fault;
    if (sim_enter("kernel launch", &fault))
        return sim_leave(fault == -1 ? cudaErrorLaunchOutOfResources : (cudaError_t)fault);
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream || stream->device != sim_self()->device)
        return sim_leave(cudaErrorInvalidResourceHandle);
    struct sim_work work = {.kind = SIM_KERNEL, .name = name, .body = body, .argument_bytes = argument_bytes};
    work.arguments = sim_alloc(argument_bytes);
    if (argument_bytes > 0)
        memcpy(work.arguments, arguments, argument_bytes);
    work.ranges = sim_alloc(range_count * sizeof(*ranges));
    for (uint32_t i = 0; i < range_count; i++)
        if (ranges[i].bytes > 0)
            work.ranges[work.range_count++] = ranges[i];
    cudaError_t error = sim_issue(stream, &work);
    /* As <<<>>> followed by cudaGetLastError(): an old error that nobody has taken is reported here. */
    if (error == cudaSuccess) {
        error = sim_self()->last_error;
        sim_self()->last_error = cudaSuccess;
    }
    sim_unlock();
    return error;
}
