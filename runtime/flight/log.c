/* SPDX-License-Identifier: MIT
 *
 * A flight recorder's file, read by somebody else: nothing in it is believed that was not checked.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <evenodd/plan.h>

#include "base/check.h"
#include "base/plain_text.h"
#include "runtime/flight/recorder.h"

enum { FILE_BYTES_MAX = 1 << 30 };

struct eo_flight_log {
    unsigned char *data; /* a copy: the process may still write */
    uint64_t bytes, entries_offset, count;
    uint32_t name_count, capacity;
};

static const struct flight_head *head_of(const struct eo_flight_log *flight)
{
    return (const struct flight_head *)flight->data;
}

static eo_status refuse(struct eo_flight_log **flight, const eo_log *log, eo_status status, const char *path,
                        const char *why)
{
    eo_log_write(log, EO_LOG_ERROR, "%s: %s", path, why);
    eo_flight_log_close(flight);
    return status;
}

static bool read_all(int fd, unsigned char *data, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        const ssize_t got = read(fd, data + at, bytes - at);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        at += got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

/* A text that ends, and has nothing in it that a terminal would take for a command. */
static void clean_text(unsigned char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    eo_text_clean((char *)text);
}

eo_status eo_flight_log_open(eo_flight_log **out, const char *path, const eo_log *log)
{
    struct stat info;
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!path)
        return EO_ERR_INVALID;
    struct eo_flight_log *flight = calloc(1, sizeof(*flight));
    if (!flight)
        return EO_ERR_NO_MEMORY;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return refuse(&flight, log, EO_ERR_IO, path, strerror(errno));
    bool is_read = false;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= FLIGHT_PAGE && info.st_size <= FILE_BYTES_MAX) {
        flight->bytes = (uint64_t)info.st_size;
        flight->data = malloc(flight->bytes);
        is_read = flight->data && read_all(fd, flight->data, flight->bytes);
    }
    close(fd);
    if (!is_read)
        return refuse(&flight, log, EO_ERR_IO, path, "not a flight recorder's file");
    struct flight_head *head = (struct flight_head *)flight->data;
    if (head->magic != FLIGHT_MAGIC || head->version != FLIGHT_VERSION ||
        head->entry_bytes != sizeof(struct eo_timeline_entry))
        return refuse(&flight, log, EO_ERR_IO, path, "not a flight recorder's file, or one of another version");
    flight->name_count = head->name_count;
    flight->capacity = head->capacity;
    flight->count = atomic_load(&head->count);
    flight->entries_offset = FLIGHT_PAGE + ((uint64_t)(FLIGHT_NOTES + (uint64_t)head->name_count) * FLIGHT_NAME_BYTES + 63) / 64 * 64;
    if (flight->entries_offset > flight->bytes ||
        (flight->bytes - flight->entries_offset) / sizeof(struct eo_timeline_entry) < flight->capacity)
        return refuse(&flight, log, EO_ERR_IO, path, "a truncated flight recorder's file");
    if (flight->capacity == 0)
        flight->count = 0;
    clean_text((unsigned char *)head->host, sizeof(head->host));
    for (uint64_t i = 0; i < (uint64_t)FLIGHT_NOTES + flight->name_count; i++)
        clean_text(flight->data + FLIGHT_PAGE + i * FLIGHT_NAME_BYTES, FLIGHT_NAME_BYTES);
    *out = flight;
    return EO_OK;
}

void eo_flight_log_close(eo_flight_log **flight)
{
    if (!flight || !*flight)
        return;
    free((*flight)->data);
    free(*flight);
    *flight = NULL;
}

eo_flight_info eo_flight_log_info(const eo_flight_log *flight)
{
    if (!flight)
        return (eo_flight_info){0};
    const struct flight_head *head = head_of(flight);
    eo_flight_info info = {
        .rank = head->rank, .rank_count = head->rank_count, .process = head->process, .finished = head->finished == 1,
        .count = flight->count, .clock_ns = head->clock_ns, .run = head->run, .made_ns = head->made_ns, .steps = atomic_load(&head->step),
        .first = flight->count > flight->capacity ? flight->count - flight->capacity : 0,
    };
    const uint32_t note = atomic_load(&head->note);
    snprintf(info.host, sizeof(info.host), "%s", head->host);
    if (note < FLIGHT_NOTES)
        snprintf(info.note, sizeof(info.note), "%s", (const char *)flight->data + FLIGHT_PAGE + (size_t)note * FLIGHT_NAME_BYTES);
    return info;
}

/* Not by the queue: copies to and from disk have one too, and no other rank takes part in them. */
static bool is_of_ranks(eo_operation_kind kind)
{
    return kind == EO_OP_ALL_GATHER || kind == EO_OP_REDUCE_SCATTER || kind == EO_OP_ALL_REDUCE || kind == EO_OP_NORM_GATHER ||
           kind == EO_OP_MATRIX_GATHER || kind == EO_OP_MATRIX_SCATTER;
}

bool eo_flight_log_entry(const eo_flight_log *flight, uint64_t index, eo_flight_entry *out)
{
    if (!flight || !out || index >= flight->count || flight->count - index > flight->capacity)
        return false;
    struct eo_timeline_entry entry;
    memcpy(&entry, flight->data + flight->entries_offset + index % flight->capacity * sizeof(entry), sizeof(entry));
    if (entry.name_index >= flight->name_count || entry.kind >= EO_OP_KIND_COUNT)
        return false;
    *out = (eo_flight_entry){
        .step = entry.step + 1,
        .name = (const char *)flight->data + FLIGHT_PAGE + (size_t)(FLIGHT_NOTES + entry.name_index) * FLIGHT_NAME_BYTES,
        .kind = eo_operation_kind_name((eo_operation_kind)entry.kind),
        .collective = is_of_ranks((eo_operation_kind)entry.kind),
        .issued_ns = entry.span.ready_ns,
        .start_ns = entry.span.start_ns,
        .end_ns = entry.span.end_ns,
    };
    return true;
}
