/* SPDX-License-Identifier: MIT
 *
 * Happens-before. An operation's clock is its stream's, joined with those of the events it waits for and with what the
 * host thread knew when it issued it, plus a tick of its own stream. Two accesses to the same bytes, one of them a
 * write, must be ordered: the later one's clock has reached the earlier one's tick.
 *
 * Each piece of memory keeps, for stretches of bytes, its last writer and the readers since that no later reader covers.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_clock_join(struct sim_clock *clock, const struct sim_clock *other)
{
    const uint32_t count = sim.component_next;
    for (uint32_t c = 0; c < count; c++)
        if (other->at[c] > clock->at[c])
            clock->at[c] = other->at[c];
}

uint32_t sim_component_new(void)
{
    for (uint32_t c = 0; c < SIM_COMPONENTS; c++) {
        /* A number that was used before goes on from its last tick; fresh ones first, so that this is rare. */
        const uint32_t at = (sim.component_next + c) % SIM_COMPONENTS;
        if (sim.component_used[at])
            continue;
        sim.component_used[at] = true;
        if (at >= sim.component_next)
            sim.component_next = at + 1;
        return at;
    }
    fprintf(stderr, "simulator: more than %d streams and chains of graphs at one time\n", SIM_COMPONENTS);
    abort();
}

void sim_component_free(uint32_t component) { sim.component_used[component] = false; }

/* --- stretches --- */

static struct sim_stretch *insert_stretch(struct sim_memory *memory, uint32_t at)
{
    if (memory->stretch_count == memory->stretch_capacity) {
        memory->stretch_capacity = memory->stretch_capacity ? 2 * memory->stretch_capacity : 16;
        memory->stretches = realloc(memory->stretches, memory->stretch_capacity * sizeof(*memory->stretches));
        if (!memory->stretches)
            abort();
    }
    struct sim_stretch *stretch = &memory->stretches[at];
    memmove(stretch + 1, stretch, (memory->stretch_count - at) * sizeof(*stretch));
    memory->stretch_count++;
    return stretch;
}

/* The first stretch that ends after `from`. */
static uint32_t find_stretch(const struct sim_memory *memory, uintptr_t from)
{
    uint32_t low = 0, high = memory->stretch_count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (memory->stretches[middle].to > from)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Makes the stretches of [from, to) begin and end there, and fills gaps with untouched ones. Returns the first. */
static uint32_t cut_stretches(struct sim_memory *memory, uintptr_t from, uintptr_t to)
{
    uint32_t first = find_stretch(memory, from);
    if (first < memory->stretch_count && memory->stretches[first].from < from) {
        struct sim_stretch *right = insert_stretch(memory, first + 1);
        *right = memory->stretches[first];
        right->from = memory->stretches[first].to = from;
        first++;
    }
    uintptr_t at = from;
    for (uint32_t i = first; at < to; i++) {
        struct sim_stretch *stretch = i < memory->stretch_count ? &memory->stretches[i] : NULL;
        if (!stretch || stretch->from > at) {
            const uintptr_t end = stretch && stretch->from < to ? stretch->from : to;
            stretch = insert_stretch(memory, i);
            memset(stretch, 0, sizeof(*stretch));
            stretch->from = at;
            stretch->to = end;
        } else if (stretch->to > to) {
            struct sim_stretch *right = insert_stretch(memory, i + 1);
            stretch = &memory->stretches[i];
            *right = *stretch;
            right->from = stretch->to = to;
        }
        at = memory->stretches[i].to;
    }
    return first;
}

static bool covers(const struct sim_clock *clock, const struct sim_mark *mark)
{
    return clock->at[mark->component] >= mark->tick;
}

static void report(const struct sim_memory *memory, const struct sim_stretch *stretch, const struct sim_op *op,
                   bool writes, const struct sim_mark *other, bool other_writes)
{
    sim_violate_race("not ordered: %s (operation %llu of stream %u, %s) and %s (operation %llu of stream %u, %s): bytes "
                     "%llu to %llu of the memory at %#llx",
                     op->work.name, (unsigned long long)op->point->sequence, op->stream->label,
                     writes ? "writes" : "reads", other->name, (unsigned long long)other->sequence, other->stream_label,
                     other_writes ? "wrote" : "read", (unsigned long long)(stretch->from - memory->at),
                     (unsigned long long)(stretch->to - memory->at), (unsigned long long)memory->at);
}

static void add_reader(struct sim_stretch *stretch, const struct sim_clock *clock, const struct sim_mark *mark)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < stretch->reader_count; i++)
        if (!covers(clock, &stretch->readers[i]))
            stretch->readers[kept++] = stretch->readers[i];
    if (kept == SIM_READERS) {
        fprintf(stderr, "simulator: more than %d unordered readers\n", SIM_READERS);
        abort();
    }
    stretch->readers[kept] = *mark;
    stretch->reader_count = kept + 1;
}

/* Summed over all bytes: how they are cut into stretches makes no difference. */
static void note_conflict(struct sim_stretch *stretch, uint64_t identity, bool writes)
{
    const uint64_t bytes = stretch->to - stretch->from;
    if (writes) {
        sim.conflict_hash += bytes * sim_mix(sim_mix(stretch->written_by, stretch->read_by), identity);
    } else {
        sim.conflict_hash += bytes * sim_mix(stretch->written_by + 1, identity);
        stretch->read_by += sim_mix(identity, 11);
    }
}

void sim_access(const struct sim_op *op, const struct sim_clock *clock, const struct sim_range *range)
{
    struct sim_memory *memory = sim_memory_find(range->at);
    if (!memory || range->bytes == 0)
        return;
    const uint32_t component = op->stream->component;
    const struct sim_mark mark = {component, clock->at[component], op->work.name, op->stream->label,
                                  op->point->sequence};
    const uintptr_t from = (uintptr_t)range->at, to = from + range->bytes;
    const uint32_t first = cut_stretches(memory, from, to);
    uint32_t end = first;
    bool told = false;
    for (; end < memory->stretch_count && memory->stretches[end].from < to; end++) {
        struct sim_stretch *stretch = &memory->stretches[end];
        note_conflict(stretch, op->identity, range->writes);
        if (!told && stretch->writer.tick > 0 && !covers(clock, &stretch->writer)) {
            report(memory, stretch, op, range->writes, &stretch->writer, true);
            told = true;
        }
        for (uint32_t r = 0; range->writes && !told && r < stretch->reader_count; r++) {
            if (!covers(clock, &stretch->readers[r])) {
                report(memory, stretch, op, true, &stretch->readers[r], false);
                told = true;
            }
        }
        if (!range->writes)
            add_reader(stretch, clock, &mark);
    }
    if (!range->writes)
        return;
    /* One stretch again. */
    memory->stretches[first] = (struct sim_stretch){.from = from, .to = to, .writer = mark, .written_by = op->identity};
    memmove(&memory->stretches[first + 1], &memory->stretches[end],
            (memory->stretch_count - end) * sizeof(*memory->stretches));
    memory->stretch_count -= end - first - 1;
}

static void host_access(const struct sim_memory *memory, uintptr_t from, uintptr_t to, const struct sim_clock *clock,
                        const char *call)
{
    if (sim.config.executor != SIM_SCHEDULED || sim.broken != cudaSuccess)
        return;
    for (uint32_t i = find_stretch(memory, from); i < memory->stretch_count && memory->stretches[i].from < to; i++) {
        const struct sim_stretch *stretch = &memory->stretches[i];
        const struct sim_mark *late = stretch->writer.tick > 0 && !covers(clock, &stretch->writer) ? &stretch->writer : NULL;
        for (uint32_t r = 0; !late && r < stretch->reader_count; r++)
            if (!covers(clock, &stretch->readers[r]))
                late = &stretch->readers[r];
        if (!late)
            continue;
        sim_violate_race("not ordered: %s by the host, and %s (operation %llu of stream %u) on bytes %llu to %llu of the "
                         "memory at %#llx, which the host has not waited for", call, late->name,
                         (unsigned long long)late->sequence, late->stream_label,
                         (unsigned long long)(stretch->from - memory->at),
                         (unsigned long long)(stretch->to - memory->at), (unsigned long long)memory->at);
        return;
    }
}

void sim_host_frees(const struct sim_memory *memory, const char *call)
{
    host_access(memory, memory->at, memory->at + memory->bytes, &sim_self()->asked, call);
}

void sim_host_writes(const struct sim_range *range)
{
    host_access(sim_memory_find(range->at), (uintptr_t)range->at, (uintptr_t)range->at + range->bytes, &sim_self()->clock,
                "a write to pinned memory");
}

/* --- host threads that wait for each other by a mutex or a gate: what one knew when it let go, the next one knows --- */

enum { HOST_OBJECTS = 8192 };
static struct {
    const void *object;
    struct sim_clock clock;
} host_objects[HOST_OBJECTS];
static uint32_t host_object_places[HOST_OBJECTS], host_object_count; /* those in use */

/* Where it is kept; NULL: too many, which only makes the checker stricter. */
static struct sim_clock *host_object(const void *object, bool adds)
{
    uint32_t at = (uint32_t)(sim_mix((uintptr_t)object, 3) % HOST_OBJECTS);
    for (uint32_t i = 0; i < HOST_OBJECTS && host_objects[at].object && host_objects[at].object != object; i++)
        at = (at + 1) % HOST_OBJECTS;
    if (host_objects[at].object == object)
        return &host_objects[at].clock;
    if (host_objects[at].object || !adds)
        return NULL;
    host_objects[at].object = object;
    host_object_places[host_object_count++] = at;
    return &host_objects[at].clock;
}

void sim_host_release(const void *object)
{
    sim.host_progress++;
    struct sim_clock *clock = host_object(object, true);
    if (clock)
        sim_clock_join(clock, &sim_self()->asked);
}

void sim_host_acquire(const void *object)
{
    const struct sim_clock *clock = host_object(object, false);
    if (!clock)
        return;
    sim_clock_join(&sim_self()->asked, clock);
    if (!sim.config.knows_least)
        sim_clock_join(&sim_self()->clock, clock);
}

void sim_meeting_enter(const void *post)
{
    struct sim_clock *clock = host_object(post, true);
    if (clock)
        *clock = sim_self()->clock;
}

void sim_meeting_join(const void *post)
{
    const struct sim_clock *clock = host_object(post, false);
    if (clock)
        sim_clock_join(&sim_self()->clock, clock);
}

void sim_host_forget(void)
{
    while (host_object_count > 0)
        memset(&host_objects[host_object_places[--host_object_count]], 0, sizeof(host_objects[0]));
}
