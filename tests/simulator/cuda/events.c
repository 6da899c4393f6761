/* SPDX-License-Identifier: MIT
 *
 * Events and streams as the runtime's calls. An event is the point of its latest record; a wait binds to the point that
 * is current when it is called. The table of semantics is tested in tests/simulator/test_semantics.c.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what mutations are told about --- */

struct sim_note *sim_note_call(enum sim_mutation_kind kind, const void *place, const struct sim_stream *stream,
                               const char *format, ...)
{
    struct sim_thread *self = sim_self();
    if (sim.note_count == SIM_NOTES_MAX)
        return NULL;
    struct sim_note *note = &sim.notes[sim.note_count++];
    note->kind = kind;
    note->rank = self->rank;
    note->ordinal = self->noted[kind == SIM_DROP_RECORD]++;
    note->note.place = place;
    uint32_t p = 0;
    while (self->places[p].at && self->places[p].at != place)
        if (++p == SIM_PLACES_MAX)
            abort();
    self->places[p].at = place;
    note->note.place_ordinal = self->places[p].count++;
    note->note.capturing = stream->capture != NULL;
    note->note.issued = sim.issued_of[self->rank < SIM_RANKS_MAX ? self->rank : SIM_RANKS_MAX];
    for (uint32_t c = 0; c < SIM_NOTED_COMMS; c++)
        note->note.collectives[c] = sim_comm_issued(c, self->rank);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(note->note.text, sizeof(note->note.text), format, arguments);
    va_end(arguments);
    return note;
}

bool sim_call_note(enum sim_mutation_kind kind, uint32_t rank, uint32_t ordinal, struct sim_call_note *out)
{
    if (kind == SIM_STALE_WAIT)
        kind = SIM_DROP_WAIT;
    for (uint32_t i = 0; i < sim.note_count; i++) {
        const struct sim_note *note = &sim.notes[i];
        if (note->kind == kind && note->rank == rank && note->ordinal == ordinal) {
            *out = note->note;
            return true;
        }
    }
    return false;
}

/* Whether this very call is the one to be changed. */
bool sim_mutates(enum sim_mutation_kind kind, const struct sim_note *note)
{
    const struct sim_mutation *mutation = &sim.config.mutation;
    if (!note || mutation->kind != kind || note->rank != mutation->rank)
        return false;
    if (mutation->place ? note->note.place != mutation->place || note->note.place_ordinal != mutation->ordinal
                        : note->ordinal != mutation->ordinal)
        return false;
    sim.mutation_happened = true;
    return true;
}

/* --- streams --- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    CUDA_BEGIN();
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = -5;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
    CUDA_BEGIN();
    if (!pStream || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking))
        CUDA_END(cudaErrorInvalidValue);
    struct sim_thread *self = sim_self();
    const uint64_t key = ((uint64_t)(self->rank == SIM_ANY_RANK ? 99 : self->rank) << 32) + self->streams_made++;
    struct sim_stream *stream = sim_stream_new(self->device, key, false);
    stream->blocking = flags == cudaStreamDefault;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    *pStream = (cudaStream_t)stream;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(pStream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *pStream) { return cudaStreamCreateWithPriority(pStream, 0, 0); }

/* Returns at once; the stream goes when its work is done. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream || stream->legacy)
        CUDA_END(cudaErrorInvalidResourceHandle);
    if (stream->capture) {
        sim_capture_spoil(stream->capture);
        CUDA_END(cudaErrorStreamCaptureUnsupported);
    }
    stream->destroyed = true;
    if (!stream->last || atomic_load(&stream->last->done))
        sim_stream_drop(stream);
    CUDA_END(cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
    CUDA_BEGIN();
    const struct sim_stream *stream = sim_stream_of(handle);
    if (stream)
        *priority = stream->priority;
    CUDA_END(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream)
        CUDA_END(cudaErrorInvalidResourceHandle);
    const cudaError_t refused = sim_capture_refuses(stream, "cudaStreamSynchronize");
    CUDA_END(refused != cudaSuccess ? refused : sim_wait_for(stream->last, "cudaStreamSynchronize"));
}

static cudaError_t query(struct sim_point *point)
{
    if (!point)
        return sim.broken;
    if (!atomic_load(&point->done) && sim_next_random() % 2) /* a look may find it done, or not yet */
        sim_let_run(1 + (uint32_t)(sim_next_random() % 3));
    if (sim.broken != cudaSuccess)
        return sim.broken;
    if (!atomic_load(&point->done)) {
        struct sim_thread *self = sim_self();
        if (self->takes_turns && (!sim_can_run() || sim_next_random() % 8 == 0)) /* who polls lets others get on */
            (void)sim_pause(&(struct sim_patience){0});
        if (!sim_polls_in_vain())
            return cudaErrorNotReady;
        sim_violate("hang: a loop asks for %s (operation %llu of stream %u), nothing can run, and the loop does not end",
                    point->name, (unsigned long long)point->sequence, point->stream_label);
        sim_break(cudaErrorLaunchTimeout, point->name);
        return sim.broken;
    }
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    CUDA_BEGIN();
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream)
        CUDA_END(cudaErrorInvalidResourceHandle);
    const cudaError_t refused = sim_capture_refuses(stream, "cudaStreamQuery");
    if (refused != cudaSuccess)
        CUDA_END(refused);
    struct sim_point *last = sim_retain(stream->last);
    const cudaError_t error = query(last);
    if (error == cudaSuccess) /* asked in loops that wait */
        sim_know(last);
    sim_release(last);
    CUDA_END(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    CUDA_BEGIN();
    CUDA_UNSAFE();
    for (struct sim_capture *capture = sim.captures; capture; capture = capture->next) {
        if (capture->origin->device == sim_self()->device) {
            sim_capture_spoil(capture);
            CUDA_END(cudaErrorStreamCaptureUnsupported);
        }
    }
    CUDA_END(sim_wait_device(sim_self()->device, "cudaDeviceSynchronize"));
}

/* --- events --- */

/* Live ones and destroyed ones that a graph still refers to, by address: programs make thousands. */
enum { EVENT_SLOTS = 1 << 17 };
static struct sim_event *event_slots[EVENT_SLOTS];
static char removed; /* marks a slot that searches go on from */
#define REMOVED ((struct sim_event *)(void *)&removed)

static uint32_t slot_of(const void *handle) { return (uint32_t)(sim_mix((uintptr_t)handle, 5) % EVENT_SLOTS); }

struct sim_event *sim_event_of(cudaEvent_t handle)
{
    for (uint32_t at = slot_of(handle); event_slots[at]; at = (at + 1) % EVENT_SLOTS)
        if (event_slots[at] == (struct sim_event *)handle && event_slots[at] != REMOVED && !event_slots[at]->destroyed)
            return event_slots[at];
    sim_violate("an event was never made, or is destroyed: %p", (void *)handle); /* as of streams */
    return NULL;
}

static void add_event(struct sim_event *event)
{
    uint32_t at = slot_of(event);
    if (++sim.event_count > EVENT_SLOTS / 2) {
        fprintf(stderr, "simulator: more than %d events at one time\n", EVENT_SLOTS / 2);
        abort();
    }
    while (event_slots[at] && event_slots[at] != REMOVED)
        at = (at + 1) % EVENT_SLOTS;
    event_slots[at] = event;
}

static void free_event(struct sim_event *event)
{
    sim_release(event->point);
    sim_release(event->older);
    free(event->tips);
    free(event->older_tips);
    free(event);
}

static void drop_event(struct sim_event *event)
{
    event->destroyed = true;
    if (atomic_load(&event->references) > 0)
        return; /* until the end: a graph records it */
    uint32_t at = slot_of(event);
    while (event_slots[at] != event)
        at = (at + 1) % EVENT_SLOTS;
    event_slots[at] = REMOVED;
    /* No search goes on from the last of a row: programs that make and destroy events would leave none but such marks. */
    if (!event_slots[(at + 1) % EVENT_SLOTS])
        for (; event_slots[at] == REMOVED; at = (at + EVENT_SLOTS - 1) % EVENT_SLOTS)
            event_slots[at] = NULL;
    sim.event_count--;
    free_event(event);
}

void sim_event_release(struct sim_event *event) { atomic_fetch_sub(&event->references, 1); }

void sim_events_reset(void)
{
    for (uint32_t at = 0; at < EVENT_SLOTS; at++) {
        if (event_slots[at] && event_slots[at] != REMOVED)
            free_event(event_slots[at]);
        event_slots[at] = NULL;
    }
}

uint32_t sim_event_leaks(void)
{
    uint32_t count = 0;
    for (uint32_t at = 0; at < EVENT_SLOTS; at++)
        count += event_slots[at] && event_slots[at] != REMOVED && !event_slots[at]->destroyed;
    if (count > 0)
        sim_violate("never destroyed: %u events", count);
    return count;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    CUDA_BEGIN();
    if (!out || (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess)))
        CUDA_END(cudaErrorInvalidValue);
    struct sim_event *event = sim_alloc(sizeof(*event));
    event->magic = SIM_MAGIC_EVENT;
    event->device = sim_self()->device;
    event->label = ++sim.event_label;
    event->no_timing = flags & cudaEventDisableTiming;
    add_event(event);
    *out = (cudaEvent_t)event;
    CUDA_END(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    CUDA_BEGIN();
    struct sim_event *event = sim_event_of(handle);
    if (!event)
        CUDA_END(cudaErrorInvalidResourceHandle);
    drop_event(event);
    CUDA_END(cudaSuccess);
}

void sim_event_set(struct sim_event *event, struct sim_point *point)
{
    sim_release(event->older);
    event->older = event->point;
    event->point = sim_retain(point);
    event->capture_id = event->older_capture_id = 0;
    event->tip_count = event->older_tip_count = 0;
}

static cudaError_t capture_record(struct sim_event *event, struct sim_stream *stream, unsigned int flags)
{
    if (stream->capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (flags & cudaEventRecordExternal) {
        struct sim_work work = {.kind = SIM_RECORD, .name = "external record", .event = event};
        atomic_fetch_add(&event->references, 1);
        return sim_capture_add(stream, &work);
    }
    uint32_t *const freed = event->older_tips;
    event->older_capture_id = event->capture_id;
    event->older_tip_count = event->tip_count;
    event->older_tips = event->tips;
    event->capture_id = stream->capture->id;
    event->tip_count = stream->tip_count;
    event->tips = realloc(freed, (stream->tip_count + 1) * sizeof(*event->tips));
    if (!event->tips)
        abort();
    if (stream->tip_count > 0)
        memcpy(event->tips, stream->tips, stream->tip_count * sizeof(*event->tips));
    return cudaSuccess;
}

static cudaError_t record(cudaEvent_t handle, cudaStream_t stream_handle, unsigned int flags)
{
    struct sim_event *event = sim_event_of(handle);
    struct sim_stream *stream = sim_stream_of(stream_handle);
    if (!event || !stream || event->device != stream->device)
        return cudaErrorInvalidResourceHandle;
    if (flags & ~(unsigned)cudaEventRecordExternal)
        return cudaErrorInvalidValue;
    if (stream->capture)
        return capture_record(event, stream, flags);
    struct sim_work work = {.kind = SIM_MARKER, .name = stream->last ? stream->last->name : "nothing"};
    sim_event_set(event, sim_submit(sim_op_new(stream, &work)));
    sim_policy_step();
    return sim.broken;
}

static cudaError_t noted_record(cudaEvent_t handle, cudaStream_t stream_handle, unsigned int flags, const void *place)
{
    struct sim_event *event = sim_event_of(handle);
    const struct sim_stream *stream = sim_stream_of(stream_handle);
    if (!event || !stream)
        return cudaErrorInvalidResourceHandle;
    const struct sim_note *note =
        sim_note_call(SIM_DROP_RECORD, place, stream, "record of event %u on stream %u after %s", event->label,
                      stream->label, stream->last ? stream->last->name : "nothing");
    return sim_mutates(SIM_DROP_RECORD, note) ? cudaSuccess : record(handle, stream_handle, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CUDA_BEGIN();
    CUDA_END(noted_record(event, stream, 0, __builtin_return_address(0)));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    CUDA_BEGIN();
    CUDA_END(noted_record(event, stream, flags, __builtin_return_address(0)));
}

/* Whether the stream is after the point anyway, by streams, events and what the host has waited for. */
static bool is_implied(const struct sim_stream *stream, const struct sim_point *point)
{
    return !point || stream->issued.at[point->component] >= point->sequence ||
           sim_self()->issued.at[point->component] >= point->sequence;
}

/* As if the event's latest record, in a capture, had not come yet. */
static cudaError_t join_older(struct sim_stream *stream, const struct sim_event *event, unsigned int flags)
{
    struct sim_event older = *event;
    older.capture_id = event->older_capture_id;
    older.tip_count = event->older_tip_count;
    older.tips = event->older_tips;
    return sim_capture_join(stream, &older, flags);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned int flags)
{
    CUDA_BEGIN();
    struct sim_event *event = sim_event_of(handle);
    struct sim_stream *stream = sim_stream_of(stream_handle);
    if (!event || !stream)
        CUDA_END(cudaErrorInvalidResourceHandle);
    if (flags & ~(unsigned)cudaEventWaitExternal)
        CUDA_END(cudaErrorInvalidValue);
    const bool in_capture = stream->capture || event->capture_id != 0;
    struct sim_note *note =
        sim_note_call(SIM_DROP_WAIT, __builtin_return_address(0), stream,
                      "stream %u (last %s) waits for event %u (after %s of stream %u)", stream->label,
                      stream->last ? stream->last->name : "nothing", event->label,
                      event->point ? event->point->name : "nothing", event->point ? event->point->stream_label : 0);
    if (note) {
        note->note.redundant = in_capture ? sim_capture_implies(stream, event) : is_implied(stream, event->point);
        note->note.capturing = in_capture;
    }
    if (sim_mutates(SIM_DROP_WAIT, note))
        CUDA_END(cudaSuccess);
    const bool is_stale = sim_mutates(SIM_STALE_WAIT, note);
    const bool leaves_capture = is_stale && !stream->capture && event->capture_id != 0 && event->older_capture_id == 0;
    if (in_capture && !leaves_capture)
        CUDA_END(is_stale ? join_older(stream, event, flags) : sim_capture_join(stream, event, flags));
    struct sim_point *point = is_stale && !leaves_capture ? event->older : event->point;
    if (point) {
        struct sim_work work = {.kind = SIM_MARKER, .name = stream->last ? stream->last->name : "nothing"};
        struct sim_op *op = sim_op_new(stream, &work);
        sim_op_after(op, point);
        (void)sim_submit(op);
        sim_policy_step();
    }
    CUDA_END(sim.broken);
}

/* An event that was last recorded while capturing has no state to ask for. */
static cudaError_t captured(const struct sim_event *event)
{
    if (event->capture_id == 0)
        return cudaSuccess;
    struct sim_capture *capture = sim_capture_by_id(event->capture_id);
    if (capture)
        sim_capture_spoil(capture);
    return cudaErrorCapturedEvent;
}

/* What a query and a wait of the host begin with. */
static cudaError_t host_asks(const char *call, cudaEvent_t handle, struct sim_event **out)
{
    struct sim_event *event = *out = sim_event_of(handle);
    if (!event)
        return cudaErrorInvalidResourceHandle;
    const cudaError_t refused = captured(event);
    return refused == cudaSuccess ? sim_unsafe_call(call) : refused;
}

cudaError_t cudaEventQuery(cudaEvent_t handle)
{
    CUDA_BEGIN();
    struct sim_event *event;
    const cudaError_t refused = host_asks(__func__, handle, &event);
    if (refused != cudaSuccess)
        CUDA_END(refused);
    struct sim_point *point = sim_retain(event->point);
    const cudaError_t error = query(point);
    if (error == cudaSuccess)
        sim_look(point);
    sim_release(point);
    CUDA_END(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    CUDA_BEGIN();
    struct sim_event *event;
    const cudaError_t refused = host_asks(__func__, handle, &event);
    if (refused != cudaSuccess)
        CUDA_END(refused);
    CUDA_END(sim_wait_for(event->point, "cudaEventSynchronize"));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start_handle, cudaEvent_t end_handle)
{
    CUDA_BEGIN();
    struct sim_event *start = sim_event_of(start_handle), *end = sim_event_of(end_handle);
    if (!ms || !start || !end)
        CUDA_END(ms ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue);
    if (start->no_timing || end->no_timing || !start->point || !end->point || start->device != end->device)
        CUDA_END(cudaErrorInvalidResourceHandle);
    if (!atomic_load(&start->point->done) || !atomic_load(&end->point->done))
        CUDA_END(cudaErrorNotReady);
    const int64_t half_us = ((int64_t)end->point->end_ns - (int64_t)start->point->end_ns) / 500;
    *ms = (float)((double)half_us * 0.0005);
    CUDA_END(cudaSuccess);
}
