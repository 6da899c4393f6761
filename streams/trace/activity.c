/* SPDX-License-Identifier: MIT */
#include "streams/trace/activity.h"

#include <stdlib.h>
#include <string.h>

#include "base/hashing.h"

enum { NAMES_MAX = 1 << 14, TEXT_BYTES = 2 << 20, NAME_BYTES_MAX = 400 };

eo_status eo_activities_init(struct eo_activities *log, uint32_t capacity)
{
    *log = (struct eo_activities){.capacity = capacity};
    pthread_mutex_init(&log->mutex, NULL);
    log->entries = calloc(capacity, sizeof(*log->entries));
    log->links = calloc(capacity, sizeof(*log->links));
    log->text = malloc(TEXT_BYTES);
    log->names = calloc(NAMES_MAX, sizeof(*log->names));
    return log->entries && log->links && log->text && log->names ? EO_OK : EO_ERR_NO_MEMORY;
}

void eo_activities_fini(struct eo_activities *log)
{
    pthread_mutex_destroy(&log->mutex);
    free(log->entries);
    free(log->links);
    free(log->text);
    free(log->names);
    *log = (struct eo_activities){0};
}

/* The log's own copy of a name; of those that find no room, one for all. */
static const char *keep_name(struct eo_activities *log, const char *name)
{
    const size_t length = strnlen(name, NAME_BYTES_MAX);
    const uint64_t hash = eo_hash64(name, length);
    for (uint32_t probe = 0; probe < NAMES_MAX / 2; probe++) {
        uint32_t *place = &log->names[(hash + probe) % NAMES_MAX];
        if (*place) {
            const char *kept = log->text + *place - 1;
            if (strncmp(kept, name, length) == 0 && kept[length] == '\0')
                return kept;
        } else if (log->text_used + length + 1 <= TEXT_BYTES) {
            char *kept = log->text + log->text_used;
            memcpy(kept, name, length);
            kept[length] = '\0';
            *place = log->text_used + 1;
            log->text_used += (uint32_t)length + 1;
            return kept;
        } else {
            break;
        }
    }
    return "one of too many names";
}

void eo_activities_add(struct eo_activities *log, const struct eo_activity *activity)
{
    pthread_mutex_lock(&log->mutex);
    struct eo_activity *entry = &log->entries[log->count++ % log->capacity];
    *entry = *activity;
    entry->name = keep_name(log, activity->name ? activity->name : "without a name");
    entry->operation = NULL;
    pthread_mutex_unlock(&log->mutex);
}

void eo_activities_add_link(struct eo_activities *log, uint32_t correlation, const char *operation)
{
    pthread_mutex_lock(&log->mutex);
    log->links[log->link_count++ % log->capacity] = (struct eo_activity_link){correlation, keep_name(log, operation)};
    pthread_mutex_unlock(&log->mutex);
}

void eo_activities_add_lost(struct eo_activities *log, uint64_t count)
{
    pthread_mutex_lock(&log->mutex);
    log->lost += count;
    pthread_mutex_unlock(&log->mutex);
}

static int by_correlation(const void *a, const void *b)
{
    const uint32_t x = ((const struct eo_activity_link *)a)->correlation;
    const uint32_t y = ((const struct eo_activity_link *)b)->correlation;
    return x < y ? -1 : x > y;
}

void eo_activities_link(struct eo_activities *log)
{
    const uint64_t entries = log->count < log->capacity ? log->count : log->capacity;
    const uint64_t links = log->link_count < log->capacity ? log->link_count : log->capacity;
    qsort(log->links, links, sizeof(*log->links), by_correlation);
    for (uint64_t i = 0; i < entries; i++) {
        const struct eo_activity_link wanted = {.correlation = log->entries[i].correlation};
        const struct eo_activity_link *found =
            log->entries[i].in_graph ? NULL : bsearch(&wanted, log->links, links, sizeof(wanted), by_correlation);
        log->entries[i].operation = found ? found->operation : NULL;
    }
}
