/* SPDX-License-Identifier: MIT */
#include "streams/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"

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

struct writer {
    eo_write_fn write;
    void *user;
    bool has_events;
};

static void put(struct writer *writer, const char *text)
{
    writer->write(writer->user, text, strlen(text));
}

/* Length of the UTF-8 sequence at `text`, 0 where there is none (RFC 3629). */
static size_t utf8_length(const unsigned char *text)
{
    const unsigned char c = text[0];
    const size_t length = c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3
                        : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f) || (c == 0xf0 && text[1] < 0x90) ||
        (c == 0xf4 && text[1] > 0x8f))
        return 0; /* too long a form, a surrogate, beyond the last character */
    return length;
}

/* A JSON string. Bytes that are no UTF-8 become the replacement character: names come from users. */
static void put_string(struct writer *writer, const char *text)
{
    put(writer, "\"");
    for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c;) {
        const size_t length = utf8_length(c);
        if (*c == '"' || *c == '\\') {
            const char escaped[3] = {'\\', (char)*c, '\0'};
            put(writer, escaped);
        } else if (*c < 0x20 || *c == 0x7f) {
            char escaped[8];
            snprintf(escaped, sizeof(escaped), "\\u%04x", (unsigned)*c);
            put(writer, escaped);
        } else if (length == 0) {
            put(writer, "\\ufffd");
        } else {
            writer->write(writer->user, (const char *)c, length);
        }
        c += length == 0 ? 1 : length;
    }
    put(writer, "\"");
}

static void begin_event(struct writer *writer)
{
    put(writer, writer->has_events ? ",\n" : "\n");
    writer->has_events = true;
}

static void put_metadata(struct writer *writer, const char *what, uint32_t rank, uint32_t queue, const char *name)
{
    char text[160];
    begin_event(writer);
    snprintf(text, sizeof(text), "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":", what, rank,
             queue);
    put(writer, text);
    put_string(writer, name);
    put(writer, "}}");
}

/* Microseconds to the nanosecond, without a decimal point that depends on the locale. */
static void put_time(struct writer *writer, const char *key, uint64_t ns)
{
    char text[64];
    snprintf(text, sizeof(text), ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
    put(writer, text);
}

static void put_slice(struct writer *writer, const struct eo_timeline_entry *entry, uint32_t rank, bool is_wait)
{
    const struct eo_span *span = &entry->span;
    const uint64_t begin_ns = is_wait ? span->ready_ns : span->start_ns;
    const uint64_t end_ns = eo_max_u64(is_wait ? span->start_ns : span->end_ns, begin_ns);
    char text[200];
    begin_event(writer);
    put(writer, "{\"name\":");
    put_string(writer, is_wait ? "wait" : entry->name);
    put(writer, ",\"cat\":");
    put_string(writer, is_wait ? "wait" : entry->category);
    snprintf(text, sizeof(text), ",\"ph\":\"X\",\"pid\":%u,\"tid\":%u", rank, entry->queue);
    put(writer, text);
    put_time(writer, "ts", begin_ns);
    put_time(writer, "dur", end_ns - begin_ns);
    snprintf(text, sizeof(text), ",\"args\":{\"step\":%llu,\"operation\":%u,\"live_bytes\":%llu",
             (unsigned long long)entry->step, entry->operation, (unsigned long long)entry->live_bytes);
    put(writer, text);
    if (is_wait) {
        put(writer, ",\"before\":");
        put_string(writer, entry->name);
    } else {
        /* For a collective: enqueued, but behind others or before its peers. */
        put_time(writer, "waited_us", span->start_ns - eo_min_u64(span->ready_ns, span->start_ns));
    }
    put(writer, "}}");
}

void eo_timeline_write(const struct eo_timeline *timeline, uint32_t rank, eo_write_fn write, void *user)
{
    static const char *const queue_names[EO_QUEUES_MAX] = {"compute", "communication", "reduction"};
    struct writer writer = {write, user, false};
    char name[32];
    snprintf(name, sizeof(name), "rank %u", rank);
    put(&writer, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    put_metadata(&writer, "process_name", rank, 0, name);
    for (uint32_t queue = 0; queue < EO_QUEUES_MAX; queue++)
        put_metadata(&writer, "thread_name", rank, queue, queue_names[queue]);
    const uint64_t kept = eo_min_u64(timeline->count, timeline->capacity);
    for (uint64_t i = timeline->count - kept; i < timeline->count; i++) {
        const struct eo_timeline_entry *entry = &timeline->entries[i % timeline->capacity];
        if (entry->span.end_ns == 0)
            continue; /* not finished */
        if (entry->queue == EO_QUEUE_COMPUTE && entry->span.start_ns > entry->span.ready_ns)
            put_slice(&writer, entry, rank, true);
        put_slice(&writer, entry, rank, false);
    }
    put(&writer, "\n]}\n");
}
