/* SPDX-License-Identifier: MIT
 *
 * A disk that is slow, to be preloaded: the first pwrite and the first fsync of a process take SLOW_DISK_MS (with SLOW_FILE the
 * first to a file with that in its path), each pread SLOW_READ_MS, and each fsync SLOW_SYNC_MS. The
 * file that MEMINFO names stands for /proc/meminfo. With SLOW_FINALIZE the process never comes to MPI_Finalize, and the
 * file that SLOW_OPEN names is never opened. With CLOCK_AHEAD_S the process sees a wall clock that is so far ahead of the
 * kernel's: as if it were set back after each look.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static atomic_bool has_written, has_synced;

static bool is_slow(int file)
{
    const char *part = getenv("SLOW_FILE");
    char link[64], path[4096] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
    return !part || (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, part));
}

static void wait_once(int file, atomic_bool *has, const char *call)
{
    const char *ms = getenv("SLOW_DISK_MS");
    if (!ms || !is_slow(file) || atomic_exchange(has, true))
        return;
    fprintf(stderr, "slow disk: %s\n", call);
    usleep((useconds_t)atoi(ms) * 1000);
}

__attribute__((visibility("default"))) ssize_t pwrite64(int file, const void *data, size_t bytes, off_t at)
{
    ssize_t (*next)(int, const void *, size_t, off_t);
    *(void **)&next = dlsym(RTLD_NEXT, "pwrite64");
    wait_once(file, &has_written, "pwrite");
    return next(file, data, bytes, at);
}

__attribute__((visibility("default"))) int fsync(int file)
{
    int (*next)(int);
    const char *ms = getenv("SLOW_SYNC_MS");
    *(void **)&next = dlsym(RTLD_NEXT, "fsync");
    wait_once(file, &has_synced, "fsync");
    if (ms)
        usleep((useconds_t)atoi(ms) * 1000);
    return next(file);
}

__attribute__((visibility("default"))) ssize_t pread64(int file, void *data, size_t bytes, off_t at)
{
    ssize_t (*next)(int, void *, size_t, off_t);
    const char *ms = getenv("SLOW_READ_MS");
    *(void **)&next = dlsym(RTLD_NEXT, "pread64");
    if (ms)
        usleep((useconds_t)atoi(ms) * 1000);
    return next(file, data, bytes, at);
}

__attribute__((visibility("default"))) int open64(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...);
    const char *never = getenv("SLOW_OPEN");
    va_list arguments;
    *(void **)&next = dlsym(RTLD_NEXT, "open64");
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    while (never && strcmp(path, never) == 0)
        pause();
    const char *meminfo = strcmp(path, "/proc/meminfo") == 0 ? getenv("MEMINFO") : NULL;
    return next(meminfo ? meminfo : path, flags, mode);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*next)(clockid_t, struct timespec *);
    const char *ahead = getenv("CLOCK_AHEAD_S");
    *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
    const int result = next(clock, now);
    if (ahead && clock == CLOCK_REALTIME)
        now->tv_sec += atoi(ahead);
    return result;
}

__attribute__((visibility("default"))) int MPI_Finalize(void);
__attribute__((visibility("default"))) int MPI_Finalize(void)
{
    int (*next)(void);
    *(void **)&next = dlsym(RTLD_NEXT, "MPI_Finalize");
    while (getenv("SLOW_FINALIZE"))
        pause();
    return next ? next() : 0;
}
