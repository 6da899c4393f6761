/* SPDX-License-Identifier: MIT
 *
 * A rank seen from outside: what it does now, read from its flight recorder while it writes it.
 */
#ifndef EO_TESTS_FAULTS_VICTIM_H
#define EO_TESTS_FAULTS_VICTIM_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/flight/recorder.h"

struct victim {
    const struct flight_head *head;
    size_t bytes;
};

/* The file appears with the rank, and grows when its runtime is made: it is mapped again until it is complete. False: the
 * launcher has ended, or a minute's patience has. */
static inline bool victim_open(struct victim *v, const char *flight_folder, uint32_t rank, pid_t launcher)
{
    char path[600];
    struct stat info;
    snprintf(path, sizeof(path), "%s/rank-%05u.flight", flight_folder, rank);
    for (int i = 0; i < 60000; i++) {
        const int fd = open(path, O_RDONLY);
        if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > FLIGHT_PAGE) {
            v->bytes = (size_t)info.st_size;
            v->head = mmap(NULL, v->bytes, PROT_READ, MAP_SHARED, fd, 0);
            close(fd);
            if (v->head == MAP_FAILED)
                return false;
            if (v->head->capacity > 0 &&
                v->bytes >= FLIGHT_PAGE + (size_t)(FLIGHT_NOTES + v->head->name_count) * FLIGHT_NAME_BYTES)
                return true;
            munmap((void *)v->head, v->bytes);
        } else if (fd >= 0) {
            close(fd);
        }
        if (kill(launcher, 0) != 0)
            return false;
        usleep(1000);
    }
    return false;
}

static inline void victim_close(struct victim *v)
{
    munmap((void *)v->head, v->bytes);
}

static inline pid_t victim_process(const struct victim *v)
{
    return (pid_t)v->head->process;
}

static inline uint64_t victim_step(const struct victim *v)
{
    return atomic_load(&v->head->step);
}

/* "forward of block.1"; "" when nothing is known. */
static inline const char *victim_operation(const struct victim *v)
{
    const char *names = (const char *)v->head + FLIGHT_PAGE + (size_t)FLIGHT_NOTES * FLIGHT_NAME_BYTES;
    const uint32_t name = atomic_load(&v->head->last_name);
    return name >= v->head->name_count ? "" : names + (size_t)name * FLIGHT_NAME_BYTES;
}

/* Between two steps: it saves, or the like. */
static inline bool victim_has_note(const struct victim *v)
{
    return atomic_load(&v->head->note) != FLIGHT_NO_NAME;
}

#endif
