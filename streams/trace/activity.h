/* SPDX-License-Identifier: MIT
 *
 * What a device ran, as its vendor's profiler tells it: see evenodd/gpu_profile.h. A fixed log of activities, filled by
 * the profiler's own thread, with the names that were met.
 */
#ifndef EO_STREAMS_TRACE_ACTIVITY_H
#define EO_STREAMS_TRACE_ACTIVITY_H

#include <pthread.h>

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/status.h>

enum eo_activity_kind { EO_ACTIVITY_KERNEL, EO_ACTIVITY_COPY, EO_ACTIVITY_PEER_COPY, EO_ACTIVITY_FILL };

struct eo_activity {
    enum eo_activity_kind kind;
    const char *name, *operation; /* of the log; operation: set by eo_activities_link, NULL: none */
    uint64_t start_ns, end_ns, bytes;
    uint32_t device, stream;
    uint32_t grid[3], block[3];
    uint32_t correlation; /* the call that issued it */
    bool in_graph;
};

/* A call was made while an operation was issued. */
struct eo_activity_link {
    uint32_t correlation;
    const char *operation;
};

struct eo_activities {
    pthread_mutex_t mutex;
    struct eo_activity *entries;   /* rings: the latest `capacity` */
    struct eo_activity_link *links;
    uint32_t capacity;
    uint64_t count, link_count;    /* ever added */
    uint64_t lost;                 /* that the profiler had no room for */
    char *text;                    /* names, one after the other */
    uint32_t text_used;
    uint32_t *names;               /* a hash table of places in `text`, plus 1 */
};

EO_NODISCARD eo_status eo_activities_init(struct eo_activities *log, uint32_t capacity);
void eo_activities_fini(struct eo_activities *log);
/* Names are copied. Any thread. */
void eo_activities_add(struct eo_activities *log, const struct eo_activity *activity);
void eo_activities_add_link(struct eo_activities *log, uint32_t correlation, const char *operation);
void eo_activities_add_lost(struct eo_activities *log, uint64_t count);
/* Finds each activity's operation; when all have been added. Sorts the links. */
void eo_activities_link(struct eo_activities *log);

/* A profiler: for the whole process, started and stopped by one thread. */
struct eo_profiler_ops {
    /* `library`: NULL for the usual name. EO_ERR_UNSUPPORTED, logged. `log` stays until stop has returned. */
    eo_status (*start)(struct eo_activities *activities, const char *library, const eo_log *log);
    eo_status (*stop)(void); /* all that has ended is added first */
};

#endif
