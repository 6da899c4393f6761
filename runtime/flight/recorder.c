/* SPDX-License-Identifier: MIT */
#include "runtime/flight/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/reserve.h"

static char *names_of(const struct eo_flight_recorder *recorder)
{
    return (char *)recorder->head + FLIGHT_PAGE;
}

/* The notes stand before the operations' names, for they are there first. */
static char *name_of(const struct eo_flight_recorder *recorder, uint32_t name)
{
    return names_of(recorder) + (size_t)(FLIGHT_NOTES + name) * FLIGHT_NAME_BYTES;
}

static uint64_t entries_offset(uint32_t name_count)
{
    return FLIGHT_PAGE + ((uint64_t)(FLIGHT_NOTES + name_count) * FLIGHT_NAME_BYTES + 63) / 64 * 64;
}

static eo_status io_error(const struct eo_flight_recorder *recorder, const char *call)
{
    eo_log_write(&recorder->log, EO_LOG_ERROR, "flight recorder %s: %s: %s", recorder->path[0] ? recorder->path : "",
                 call, strerror(errno));
    return recorder->fd < 0 ? EO_ERR_NO_MEMORY : EO_ERR_IO;
}

/* Space is taken now: a full disk must not end a step with a SIGBUS. The C library's way is for file systems that have no
 * reservation; it does not go on after a signal. */
static bool reserve_file(int fd, uint64_t bytes)
{
    sigset_t before;
    if (eo_reserve_bytes(fd, bytes))
        return true;
    if (errno != EOPNOTSUPP)
        return false;
    eo_size_limit_begin(&before);
    errno = posix_fallocate(fd, 0, (off_t)bytes);
    eo_size_limit_end(&before);
    return errno == 0;
}

static eo_status map(struct eo_flight_recorder *recorder, uint64_t bytes)
{
    if (recorder->fd >= 0 && !reserve_file(recorder->fd, bytes))
        return io_error(recorder, "its room");
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, recorder->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED,
                        recorder->fd, 0);
    if (memory == MAP_FAILED)
        return io_error(recorder, errno == ENODEV ? "this file system maps no files; name a folder on another" : "mmap");
    pthread_mutex_lock(&recorder->mutex);
    if (recorder->head) {
        if (recorder->fd < 0)
            memcpy(memory, recorder->head, recorder->mapped_bytes < bytes ? recorder->mapped_bytes : bytes);
        munmap(recorder->head, recorder->mapped_bytes);
    }
    recorder->head = memory;
    recorder->mapped_bytes = bytes;
    pthread_mutex_unlock(&recorder->mutex);
    return EO_OK;
}

/* Nothing, or an old file of a recorder: one that was killed at its start has left nothing but zeros. */
static bool is_replaced(const char *path)
{
    struct stat info;
    uint64_t magic = 0;
    if (lstat(path, &info) != 0)
        return true; /* what else is wrong with it, open tells */
    const int file = S_ISREG(info.st_mode) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    const ssize_t got = file >= 0 ? read(file, &magic, sizeof(magic)) : -1;
    if (file >= 0)
        close(file);
    return got == 0 || (got == sizeof(magic) && (magic == 0 || magic == FLIGHT_MAGIC));
}

static int64_t clock_offset(void)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec - (int64_t)eo_now_ns();
}

eo_status eo_flight_recorder_create(eo_flight_recorder **out, const eo_flight_recorder_params *params)
{
    if (!out)
        return EO_ERR_INVALID;
    *out = NULL;
    if (!params)
        return EO_ERR_INVALID;
    EO_REQUIRE(params->log, params->rank_count >= 1 && params->rank < params->rank_count, "flight recorder: rank %u of %u",
               params->rank, params->rank_count);
    EO_REQUIRE(params->log, !params->path || is_replaced(params->path),
               "flight recorder: %s is no file of a flight recorder, and stays: give another path", params->path);
    struct eo_flight_recorder *recorder = calloc(1, sizeof(*recorder));
    if (!recorder)
        return EO_ERR_NO_MEMORY;
    recorder->log = params->log ? *params->log : (eo_log){0};
    recorder->fd = -1;
    recorder->owner = getpid();
    recorder->in_order = true;
    pthread_mutex_init(&recorder->mutex, NULL);
    eo_status status = EO_OK;
    if (params->path) {
        snprintf(recorder->path, sizeof(recorder->path), "%s", params->path);
        (void)unlink(params->path); /* who has the old one mapped keeps it */
        recorder->fd = open(params->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (recorder->fd < 0) {
            (void)io_error(recorder, "open");
            status = EO_ERR_IO;
        } else {
            eo_reserve_rewritten(recorder->fd);
        }
    }
    if (status >= 0)
        status = map(recorder, entries_offset(0));
    if (status < 0) {
        eo_flight_recorder_destroy(&recorder);
        return status;
    }
    struct flight_head *head = recorder->head;
    *head = (struct flight_head){
        .magic = FLIGHT_MAGIC, .version = FLIGHT_VERSION, .entry_bytes = sizeof(struct eo_timeline_entry),
        .rank = params->rank, .rank_count = params->rank_count, .process = (uint32_t)getpid(),
        .clock_ns = clock_offset(), .run = params->run,
    };
    head->made_ns = head->clock_ns + (int64_t)eo_now_ns();
    snprintf(head->host, sizeof(head->host), "%s", params->host ? params->host : "");
    atomic_init(&head->last_name, FLIGHT_NO_NAME);
    atomic_init(&head->note, FLIGHT_NO_NAME);
    *out = recorder;
    return EO_OK;
}

void eo_flight_recorder_destroy(eo_flight_recorder **recorder)
{
    if (!recorder || !*recorder)
        return;
    struct eo_flight_recorder *r = *recorder;
    *recorder = NULL;
    if (r->owner != getpid()) /* which goes on with the file */
        return;
    if (r->head) {
        r->head->finished = !r->in_use && r->in_order && atomic_load(&r->head->note) == FLIGHT_NO_NAME;
        munmap(r->head, r->mapped_bytes);
    }
    if (r->fd >= 0)
        close(r->fd);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

/* ---- the runtime's ---- */

eo_status eo_flight_recorder_begin(struct eo_flight_recorder *recorder, struct eo_timeline *timeline, uint32_t capacity,
                                   const char *const *names, uint32_t name_count)
{
    EO_REQUIRE(&recorder->log, !recorder->in_use, "a flight recorder serves one runtime at a time");
    EO_TRY(map(recorder, entries_offset(name_count) + (uint64_t)capacity * sizeof(struct eo_timeline_entry)));
    struct flight_head *head = recorder->head;
    atomic_store(&head->last_name, FLIGHT_NO_NAME); /* who looks now reads no name */
    atomic_store(&head->count, 0);
    atomic_store(&head->step, 0);
    atomic_store(&head->last_step, 0);
    for (uint32_t i = 0; i < name_count; i++)
        snprintf(name_of(recorder, i), FLIGHT_NAME_BYTES, "%s", names[i] ? names[i] : "");
    head->name_count = name_count;
    head->capacity = capacity;
    void *entries = (char *)head + entries_offset(name_count);
    memset(entries, 0, (size_t)capacity * sizeof(struct eo_timeline_entry)); /* also the page faults of the first step */
    *timeline = (struct eo_timeline){.entries = entries, .capacity = capacity, .borrowed = true};
    recorder->in_use = true;
    return EO_OK;
}

void eo_flight_recorder_end(struct eo_flight_recorder *recorder, bool in_order)
{
    recorder->in_use = false;
    recorder->in_order = in_order;
}

/* ---- what it does now ---- */

void eo_flight_recorder_note(eo_flight_recorder *recorder, const char *text)
{
    if (!recorder)
        return;
    struct flight_head *head = recorder->head;
    uint32_t note = FLIGHT_NO_NAME;
    char *name = names_of(recorder);
    for (uint32_t i = 0; text && note == FLIGHT_NO_NAME && i < FLIGHT_NOTES; i++, name += FLIGHT_NAME_BYTES) {
        if (i == atomic_load(&head->note_count)) {
            snprintf(name, FLIGHT_NAME_BYTES, "%s", text);
            atomic_store(&head->note_count, i + 1);
        }
        if (strncmp(name, text, FLIGHT_NAME_BYTES - 1) == 0)
            note = i;
    }
    atomic_store_explicit(&head->note, note, memory_order_release);
}

static void describe(const struct eo_flight_recorder *recorder, char *text, size_t bytes)
{
    const struct flight_head *head = recorder->head;
    const uint32_t note = atomic_load_explicit(&head->note, memory_order_acquire);
    const uint64_t count = atomic_load_explicit(&head->count, memory_order_acquire);
    const uint64_t steps = atomic_load_explicit(&head->step, memory_order_relaxed);
    const uint64_t last_step = atomic_load_explicit(&head->last_step, memory_order_relaxed);
    const uint32_t name = atomic_load_explicit(&head->last_name, memory_order_relaxed);
    if (note < FLIGHT_NOTES)
        snprintf(text, bytes, "%s, after step %llu", names_of(recorder) + (size_t)note * FLIGHT_NAME_BYTES,
                 (unsigned long long)steps);
    else if (count == 0 || name == FLIGHT_NO_NAME)
        snprintf(text, bytes, "its start");
    else
        snprintf(text, bytes, "step %llu, %s", (unsigned long long)last_step + 1, name_of(recorder, name));
}

void eo_flight_recorder_last(const eo_flight_recorder *recorder, char *text, size_t bytes)
{
    if (!text || bytes == 0)
        return;
    text[0] = '\0';
    if (!recorder)
        return;
    pthread_mutex_t *mutex = (pthread_mutex_t *)&recorder->mutex;
    pthread_mutex_lock(mutex);
    describe(recorder, text, bytes);
    pthread_mutex_unlock(mutex);
}
