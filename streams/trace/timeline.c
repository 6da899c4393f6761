/* SPDX-License-Identifier: MIT */
#include "streams/trace/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/json_writer.h"

eo_status eo_timeline_init(struct eo_timeline *timeline, uint32_t capacity)
{
    *timeline = (struct eo_timeline){0};
    timeline->entries = calloc(eo_max_u64(capacity, 1), sizeof(timeline->entries[0]));
    if (!timeline->entries)
        return EO_ERR_NO_MEMORY;
    timeline->capacity = (uint32_t)eo_max_u64(capacity, 1);
    return EO_OK;
}

void eo_timeline_fini(struct eo_timeline *timeline)
{
    if (!timeline->borrowed)
        free(timeline->entries);
    *timeline = (struct eo_timeline){0};
}

struct eo_timeline_entry *eo_timeline_add(struct eo_timeline *timeline)
{
    EO_ASSERT(timeline->capacity > 0);
    struct eo_timeline_entry *entry = &timeline->entries[timeline->count++ % timeline->capacity];
    *entry = (struct eo_timeline_entry){0};
    return entry;
}

static void put_metadata(struct eo_json *json, const char *what, uint32_t rank, uint32_t queue, const char *name)
{
    eo_json_write(json, "\n{'name': %s, 'ph': 'M', 'pid': %u, 'tid': %u, 'args': {'name': %s}}", what, rank, queue, name);
}

/* Microseconds to the nanosecond. */
static double trace_us(uint64_t ns)
{
    return (double)ns / 1000;
}

static void put_slice(struct eo_json *json, const struct eo_timeline_entry *entry, uint32_t rank, bool is_wait)
{
    const struct eo_span *span = &entry->span;
    const uint64_t begin_ns = is_wait ? span->ready_ns : span->start_ns;
    const uint64_t end_ns = eo_max_u64(is_wait ? span->start_ns : span->end_ns, begin_ns);
    const char *name = entry->name ? entry->name : "";
    eo_json_write(json,
                  "\n{'name': %s, 'cat': %s, 'ph': 'X', 'pid': %u, 'tid': %u, 'ts': %.3f, 'dur': %.3f,"
                  "'args': {'step': %" PRIu64 ", 'operation': %u",
                  is_wait ? "wait" : name, is_wait ? "wait" : entry->category, rank, entry->queue, trace_us(begin_ns),
                  trace_us(end_ns - begin_ns), entry->step, entry->operation);
    if (entry->live_bytes) /* of dynamic mode alone: something always lives in it */
        eo_json_write(json, "'live_bytes': %" PRIu64, entry->live_bytes);
    if (is_wait)
        eo_json_write(json, "'before': %s}}", name);
    else /* For a collective: enqueued, but behind others or before its peers. */
        eo_json_write(json, "'waited_us': %.3f}}", trace_us(span->start_ns - eo_min_u64(span->ready_ns, span->start_ns)));
}

void eo_timeline_write(const struct eo_timeline *timeline, uint32_t rank, eo_write_fn write, void *user)
{
    static const char *const queue_names[EO_QUEUES_MAX] = {"compute", "communication", "reduction", "storage", "evictions"};
    struct eo_json json = {.write = write, .user = user};
    char name[32];
    snprintf(name, sizeof(name), "rank %u", rank);
    eo_json_write(&json, "{'displayTimeUnit': 'ms', 'traceEvents': [");
    put_metadata(&json, "process_name", rank, 0, name);
    for (uint32_t queue = 0; queue < EO_QUEUES_MAX; queue++)
        put_metadata(&json, "thread_name", rank, queue, queue_names[queue]);
    const uint64_t kept = eo_min_u64(timeline->count, timeline->capacity);
    for (uint64_t i = timeline->count - kept; i < timeline->count; i++) {
        const struct eo_timeline_entry *entry = &timeline->entries[i % timeline->capacity];
        if (entry->span.end_ns == 0)
            continue; /* not finished */
        if (entry->queue == EO_QUEUE_COMPUTE && entry->span.start_ns > entry->span.ready_ns)
            put_slice(&json, entry, rank, true);
        put_slice(&json, entry, rank, false);
    }
    eo_json_write(&json, "\n]}");
    write(user, "\n", 1);
}
