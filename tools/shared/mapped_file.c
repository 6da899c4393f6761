/* SPDX-License-Identifier: MIT */
#include "tools/shared/mapped_file.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/shared/end_signals.h"

enum { MAPS_MAX = 1024, WHAT_BYTES = 512 };

/* A row is free where begin is NULL. Written while there is one thread; the handler reads it in any. */
static struct map {
    const char *begin;
    uint64_t bytes;
    char what[WHAT_BYTES];
    atomic_bool is_lost;
} maps[MAPS_MAX];

/* From the page that is missing to the end of the file there are zeros from now on. A fault elsewhere is none of ours: it
 * comes again, and ends the process. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const char *address = info->si_addr;
    const int error = errno;
    (void)context;
    for (int m = 0; m < MAPS_MAX; m++) {
        struct map *map = &maps[m];
        if (!map->begin || address < map->begin || address >= map->begin + map->bytes)
            continue;
        const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        const uint64_t at = (uint64_t)(address - map->begin) / page * page;
        atomic_store(&map->is_lost, true);
        if (mmap((void *)(map->begin + at), map->bytes - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
            MAP_FAILED)
            break;
        errno = error;
        return;
    }
    signal(number, SIG_DFL);
}

static struct map *free_map(void)
{
    for (int m = 0; m < MAPS_MAX; m++)
        if (!maps[m].begin)
            return &maps[m];
    return NULL;
}

eo_status tool_map_file(const void **out, int file, uint64_t bytes, const char *what, struct tool_problem *problem)
{
    const struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct map *map = free_map();
    *out = NULL;
    if (!map)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: is one of more than %d files; give fewer", what,
                                MAPS_MAX);
    void *begin = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (begin == MAP_FAILED)
        return tool_problem_set(problem, EO_ERR_IO, "%s: cannot be mapped: %s", what, strerror(errno));
    map->bytes = bytes;
    snprintf(map->what, sizeof(map->what), "%s", what);
    atomic_store(&map->is_lost, false);
    map->begin = begin;
    sigaction(SIGBUS, &action, NULL);
    tool_unblock_signal(SIGBUS);
    *out = begin;
    return EO_OK;
}

void tool_unmap_file(const void *begin, uint64_t bytes)
{
    for (int m = 0; begin && m < MAPS_MAX; m++)
        if (maps[m].begin == begin)
            maps[m].begin = NULL;
    if (begin)
        munmap((void *)begin, bytes);
}

eo_status tool_map_check(struct tool_problem *problem)
{
    for (int m = 0; m < MAPS_MAX; m++)
        if (maps[m].begin && atomic_load(&maps[m].is_lost))
            return tool_problem_set(problem, EO_ERR_IO,
                                    "%s: a part of it is no longer readable: it was cut short during the run, or its disk "
                                    "fails; let nobody write to it, and resume from a checkpoint",
                                    maps[m].what);
    return EO_OK;
}
