/* SPDX-License-Identifier: MIT
 *
 * What every operation of the last steps did: a fixed ring made at start. One thread adds records (the compute
 * thread); spans of collectives are filled in by the communication thread before their event completes.
 */
#ifndef EO_STREAMS_TRACE_TIMELINE_H
#define EO_STREAMS_TRACE_TIMELINE_H

#include <evenodd/log.h>

#include "streams/device.h"

struct eo_timeline_entry {
    const char *name;      /* static: lives as long as the plan */
    const char *category;  /* "compute", "all-gather", ...: static */
    uint32_t operation, kind, queue, name_index; /* the last: of `name` among those of a flight recorder */
    uint64_t step;
    uint64_t live_bytes;
    struct eo_span span;
};

struct eo_timeline {
    struct eo_timeline_entry *entries;
    uint32_t capacity;
    bool borrowed; /* the entries: a flight recorder's */
    uint64_t count; /* ever added; entry i is entries[i % capacity] */
};

EO_NODISCARD eo_status eo_timeline_init(struct eo_timeline *timeline, uint32_t capacity);
void eo_timeline_fini(struct eo_timeline *timeline);

/* The next entry, to be filled in by the caller; the oldest is overwritten. Never allocates. */
struct eo_timeline_entry *eo_timeline_add(struct eo_timeline *timeline);

/* Chrome / Perfetto trace events: one process a rank, one thread a queue, a flow or gap for the wait before. */
void eo_timeline_write(const struct eo_timeline *timeline, uint32_t rank, eo_write_fn write, void *user);

#endif
