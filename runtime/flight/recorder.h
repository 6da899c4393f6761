/* SPDX-License-Identifier: MIT
 *
 * The flight recorder's file, and what the runtime does with it.
 *
 *     head      struct flight_head, a page
 *     names     FLIGHT_NAME_BYTES each: of operations, by eo_runtime's own numbering, then of notes
 *     entries   struct eo_timeline_entry each: the timeline's ring itself (its pointers mean nothing to a reader)
 */
#ifndef EO_RUNTIME_FLIGHT_RECORDER_H
#define EO_RUNTIME_FLIGHT_RECORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <evenodd/flight_recorder.h>

#include "streams/trace/timeline.h"

enum { FLIGHT_VERSION = 2, FLIGHT_NAME_BYTES = 128, FLIGHT_NOTES = 16, FLIGHT_PAGE = 4096 };
#define FLIGHT_MAGIC UINT64_C(0x316c662d646f6e65) /* "enod-fl1" */
#define FLIGHT_NO_NAME UINT32_MAX

struct flight_head {
    uint64_t magic;
    uint32_t version, entry_bytes;
    uint32_t rank, rank_count, process, finished;
    char host[64];
    int64_t clock_ns;
    uint32_t name_count, capacity; /* 0: no runtime has used it yet */
    _Atomic uint64_t count;        /* of entries ever added */
    _Atomic uint64_t step;         /* finished ones */
    _Atomic uint32_t last_name, note, note_count; /* note: FLIGHT_NO_NAME, or which of the notes */
    uint64_t run;
    int64_t made_ns;
    _Atomic uint64_t last_step; /* finished before the newest entry */
};
_Static_assert(sizeof(struct flight_head) <= FLIGHT_PAGE, "the head is a page");

struct eo_flight_recorder {
    struct flight_head *head;
    uint64_t mapped_bytes;
    int fd; /* -1: memory alone */
    pid_t owner;                     /* the process that writes */
    bool in_use, in_order;  /* a runtime writes; the last one ended without a failure */
    pthread_mutex_t mutex;  /* of who looks from outside, against a move of the memory */
    char path[4096];
    eo_log log;
};

/* Room for the timeline of a runtime, with the names of its operations: the file grows. The names are copied. */
EO_NODISCARD eo_status eo_flight_recorder_begin(struct eo_flight_recorder *recorder, struct eo_timeline *timeline,
                                                uint32_t capacity, const char *const *names, uint32_t name_count);
void eo_flight_recorder_end(struct eo_flight_recorder *recorder, bool in_order);

/* In the hot path: a few stores. */
static inline void eo_flight_recorder_mark(struct eo_flight_recorder *recorder, uint32_t name, uint64_t step,
                                           uint64_t count)
{
    struct flight_head *head = recorder->head;
    atomic_store_explicit(&head->last_name, name, memory_order_relaxed);
    atomic_store_explicit(&head->step, step, memory_order_relaxed);
    atomic_store_explicit(&head->last_step, step, memory_order_relaxed);
    atomic_store_explicit(&head->count, count, memory_order_release); /* after the entry itself */
}

/* Entries that were added afterwards: the times of a graph. */
static inline void eo_flight_recorder_count(struct eo_flight_recorder *recorder, uint64_t count)
{
    atomic_store_explicit(&recorder->head->count, count, memory_order_release);
}

static inline void eo_flight_recorder_finish(struct eo_flight_recorder *recorder, uint64_t steps)
{
    atomic_store_explicit(&recorder->head->step, steps, memory_order_release);
}

#endif
