/* SPDX-License-Identifier: MIT */
#include "cluster/teller.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/thread.h"

enum { END_MS = 1000 };

struct said {
    eo_log_level level;
    char text[EO_TELLER_TEXT_BYTES];
};

struct eo_teller {
    eo_log log;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stop, has_ended, is_left; /* is_left: by its owner; the thread frees it */
    uint32_t first, count, left_out;
    struct said queue[EO_TELLER_QUEUE];
};

static void destroy(struct eo_teller *teller)
{
    pthread_mutex_destroy(&teller->mutex);
    pthread_cond_destroy(&teller->changed);
    free(teller);
}

static void *teller_main(void *user)
{
    struct eo_teller *teller = user;
    pthread_setname_np(pthread_self(), "eo-log");
    pthread_mutex_lock(&teller->mutex);
    for (;;) {
        while (teller->count == 0 && teller->left_out == 0 && !teller->stop)
            pthread_cond_wait(&teller->changed, &teller->mutex);
        if (teller->count == 0 && teller->left_out == 0)
            break;
        struct said next = {.level = EO_LOG_WARN};
        if (teller->count > 0) {
            next = teller->queue[teller->first];
            teller->first = (teller->first + 1) % EO_TELLER_QUEUE;
            teller->count--;
        } else {
            snprintf(next.text, sizeof(next.text), "%u more messages were dropped while the log was busy", teller->left_out);
            teller->left_out = 0;
        }
        pthread_mutex_unlock(&teller->mutex);
        eo_log_write(&teller->log, next.level, "%s", next.text);
        pthread_mutex_lock(&teller->mutex);
        if (teller->is_left)
            break;
    }
    teller->has_ended = true;
    pthread_cond_broadcast(&teller->changed);
    const bool is_left = teller->is_left;
    pthread_mutex_unlock(&teller->mutex);
    if (is_left)
        destroy(teller);
    return NULL;
}

struct eo_teller *eo_teller_new(const eo_log *log)
{
    struct eo_teller *teller = calloc(1, sizeof(*teller));
    pthread_t thread;
    pthread_condattr_t clock;
    if (!teller)
        return NULL;
    teller->log = *log;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&teller->mutex, NULL);
    pthread_cond_init(&teller->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (!log->write) {
        teller->has_ended = true;
        return teller;
    }
    const int error = eo_thread_start(&thread, teller_main, teller);
    if (error != 0) {
        eo_log_write(log, EO_LOG_ERROR, "rendezvous: cannot start a thread: %s; %s", strerror(error), eo_thread_remedy(error));
        destroy(teller);
        return NULL;
    }
    pthread_detach(thread);
    return teller;
}

void eo_teller_free(struct eo_teller *teller)
{
    struct timespec end;
    if (!teller)
        return;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += END_MS / 1000;
    pthread_mutex_lock(&teller->mutex);
    teller->stop = true;
    pthread_cond_broadcast(&teller->changed);
    for (int late = 0; !teller->has_ended && late != ETIMEDOUT;)
        late = pthread_cond_timedwait(&teller->changed, &teller->mutex, &end);
    const bool has_ended = teller->has_ended;
    teller->is_left = true;
    pthread_mutex_unlock(&teller->mutex);
    if (has_ended)
        destroy(teller);
}

void eo_teller_say(struct eo_teller *teller, eo_log_level level, const char *format, ...)
{
    struct said said = {.level = level};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said.text, sizeof(said.text), format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&teller->mutex);
    if (teller->count < EO_TELLER_QUEUE && !teller->has_ended) {
        teller->queue[(teller->first + teller->count) % EO_TELLER_QUEUE] = said;
        teller->count++;
    } else {
        teller->left_out += !teller->has_ended;
    }
    pthread_cond_broadcast(&teller->changed);
    pthread_mutex_unlock(&teller->mutex);
}

bool eo_teller_may_say(struct eo_teller_limit *limit, uint64_t now_ns, uint32_t *left_out)
{
    if (limit->begin_ns == 0 || now_ns - limit->begin_ns >= EO_TELLER_PAUSE_S * UINT64_C(1000000000)) {
        *left_out = limit->left_out;
        *limit = (struct eo_teller_limit){.begin_ns = now_ns, .said = 1};
        return true;
    }
    *left_out = 0;
    const bool may = limit->said < EO_TELLER_BURST;
    limit->said += may;
    limit->left_out += !may;
    return may;
}
