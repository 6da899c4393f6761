/* SPDX-License-Identifier: MIT */
#include "tools/shared/patient_output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "tools/shared/end_signals.h"

enum { KEPT_MAX = 16 << 20, STREAMS = 3 };

/* Of a file descriptor. */
static struct patient {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool begun, has_thread, writes; /* the thread has taken something out, and not written it yet */
    int error; /* of a write by the thread */
    char *kept;
    size_t begin, end, capacity, left_out;
} patients[STREAMS];

/* ---- what is kept ---- */

static bool keep(struct patient *p, const char *data, size_t bytes)
{
    if (p->begin > 0 && p->end + bytes > p->capacity) {
        memmove(p->kept, p->kept + p->begin, p->end - p->begin); /* the thread has a copy of what it writes */
        p->end -= p->begin;
        p->begin = 0;
    }
    if (p->end + bytes > p->capacity) {
        const size_t capacity = 2 * (p->end + bytes);
        char *kept = p->end + bytes > KEPT_MAX ? NULL : realloc(p->kept, capacity);
        if (!kept)
            return false;
        p->kept = kept;
        p->capacity = capacity;
    }
    memcpy(p->kept + p->end, data, bytes);
    p->end += bytes;
    return true;
}

/* What could not be kept is said when the rest is out. */
static size_t next_piece(struct patient *p, char piece[PIPE_BUF])
{
    const size_t bytes = p->end - p->begin < PIPE_BUF ? p->end - p->begin : PIPE_BUF;
    if (bytes == 0 && p->left_out > 0) {
        const int used = snprintf(piece, PIPE_BUF, "[%zu bytes left out, not read in time]\n", p->left_out);
        p->left_out = 0;
        return (size_t)used;
    }
    if (bytes > 0) /* else there may be no memory yet */
        memcpy(piece, p->kept + p->begin, bytes);
    return bytes;
}

/* Waits until all is written; else an errno. */
static int write_patiently(int fd, const char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t written = write(fd, data + done, bytes - done);
        if (written < 0 && errno == EAGAIN) { /* whoever has the other end has made it so */
            struct pollfd file = {fd, POLLOUT, 0};
            (void)poll(&file, 1, -1);
        } else if (written < 0 && errno != EINTR) {
            return errno;
        }
        done += written > 0 ? (size_t)written : 0;
    }
    return 0;
}

static void *write_kept(void *patient)
{
    struct patient *p = patient;
    char piece[PIPE_BUF];
    pthread_mutex_lock(&p->mutex);
    for (;;) {
        while (p->begin == p->end && p->left_out == 0)
            pthread_cond_wait(&p->changed, &p->mutex);
        const size_t bytes = next_piece(p, piece), kept = p->end - p->begin;
        p->writes = true;
        pthread_mutex_unlock(&p->mutex);
        const int error = write_patiently((int)(p - patients), piece, bytes);
        pthread_mutex_lock(&p->mutex);
        p->writes = false;
        if (error)
            p->error = error;
        if (kept > 0)
            p->begin = error ? p->end : p->begin + bytes;
        pthread_cond_broadcast(&p->changed);
    }
    return NULL;
}

static bool start_thread(struct patient *p)
{
    pthread_t thread;
    sigset_t most, before;
    if (p->has_thread)
        return true;
    sigfillset(&most);
    sigdelset(&most, SIGPIPE); /* ends the process, as from any other thread */
    pthread_sigmask(SIG_BLOCK, &most, &before);
    p->has_thread = pthread_create(&thread, NULL, write_kept, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (p->has_thread)
        pthread_detach(thread);
    return p->has_thread;
}

static bool is_idle(const struct patient *p)
{
    return p->begin == p->end && p->left_out == 0 && !p->writes;
}

/* ---- the stream ---- */

/* As much as is taken at once: a pipe that can be written to takes PIPE_BUF bytes. */
static size_t write_now(struct patient *p, const char *data, size_t bytes, int *error)
{
    size_t done = 0;
    while (done < bytes) {
        const size_t piece = bytes - done < PIPE_BUF ? bytes - done : PIPE_BUF;
        struct pollfd file = {(int)(p - patients), POLLOUT, 0};
        if (poll(&file, 1, 0) != 1) /* a signal ends it too, and a write would wait */
            break;
        const ssize_t written = write((int)(p - patients), data + done, piece);
        if (written < 0 && errno == EAGAIN)
            break;
        if (written < 0 && errno != EINTR) {
            *error = errno;
            break;
        }
        done += written > 0 ? (size_t)written : 0;
    }
    return done;
}

static ssize_t write_stream(void *patient, const char *data, size_t bytes)
{
    struct patient *p = patient;
    size_t done = 0;
    pthread_mutex_lock(&p->mutex);
    int error = p->error;
    if (!error && is_idle(p))
        done = write_now(p, data, bytes, &error);
    if (!error && done < bytes) {
        if (!start_thread(p)) /* then as ever */
            error = write_patiently((int)(p - patients), data + done, bytes - done);
        else if (p->left_out > 0 || !keep(p, data + done, bytes - done))
            p->left_out += bytes - done;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->mutex);
    if (!error)
        return (ssize_t)bytes;
    errno = error;
    return 0;
}

void tool_patient_begin(FILE **stream, int fd, int mode)
{
    struct patient *p = &patients[fd];
    pthread_condattr_t clock;
    if (p->begun)
        return;
    fflush(*stream);
    FILE *made = fopencookie(p, "w", (cookie_io_functions_t){.write = write_stream});
    if (!made)
        return;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, &clock);
    pthread_condattr_destroy(&clock);
    setvbuf(made, NULL, mode, BUFSIZ);
    p->begun = true;
    *stream = made;
}

size_t tool_patient_kept(int fd)
{
    struct patient *p = &patients[fd];
    if (!p->begun)
        return 0;
    pthread_mutex_lock(&p->mutex);
    const size_t kept = p->end - p->begin;
    pthread_mutex_unlock(&p->mutex);
    return kept;
}

bool tool_patient_end(int ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += ms / 1000;
    int error = 0;
    for (struct patient *p = patients; p < patients + STREAMS; p++) {
        if (!p->begun)
            continue;
        int late = 0;
        pthread_mutex_lock(&p->mutex);
        if (ms < 0 && !is_idle(p)) { /* nothing else is left to be done in order */
            signal(SIGINT, tool_end_by_signal);
            signal(SIGTERM, tool_end_by_signal);
        }
        while (!is_idle(p) && !p->error && late != ETIMEDOUT)
            late = ms < 0 ? pthread_cond_wait(&p->changed, &p->mutex) : pthread_cond_timedwait(&p->changed, &p->mutex, &end);
        error = p->error ? p->error : late == ETIMEDOUT ? EAGAIN : error;
        pthread_mutex_unlock(&p->mutex);
    }
    errno = error;
    return error == 0;
}
