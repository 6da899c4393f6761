/* SPDX-License-Identifier: MIT */
#include "base/own_files.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* The mutex is held during a fork. */
static struct {
    pthread_mutex_t mutex;
    int *all;
    uint32_t count, room;
} opened = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
    pthread_mutex_lock(&opened.mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&opened.mutex);
}

static void close_in_child(void)
{
    for (uint32_t i = 0; i < opened.count; i++)
        close(opened.all[i]);
    opened.count = 0;
    pthread_mutex_unlock(&opened.mutex);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, close_in_child);
}

void eo_own_files_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    pthread_mutex_lock(&opened.mutex);
}

int eo_own_files_end(int fd)
{
    if (fd >= 0 && opened.count == opened.room) {
        const uint32_t room = opened.room ? 2 * opened.room : 16;
        int *all = realloc(opened.all, room * sizeof(*all));
        if (all) {
            opened.all = all;
            opened.room = room;
        } else {
            close(fd);
            fd = -1;
            errno = ENOMEM;
        }
    }
    if (fd >= 0)
        opened.all[opened.count++] = fd;
    pthread_mutex_unlock(&opened.mutex);
    return fd;
}

void eo_own_file_close(int fd)
{
    pthread_mutex_lock(&opened.mutex);
    for (uint32_t i = 0; i < opened.count; i++)
        if (opened.all[i] == fd) {
            opened.all[i] = opened.all[--opened.count];
            break;
        }
    close(fd);
    if (opened.count == 0) {
        free(opened.all);
        opened.all = NULL;
        opened.room = 0;
    }
    pthread_mutex_unlock(&opened.mutex);
}
