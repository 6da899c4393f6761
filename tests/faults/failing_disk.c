/* SPDX-License-Identifier: MIT
 *
 * Preloaded: a disk that fails. EO_FAIL_WRITE, EO_FAIL_READ: the how-manieth call of pwrite or pread is an error, with a "+"
 * behind the number all later ones too; EO_FLIP_READ: the how-manieth pread has a bit wrong; EO_INTERRUPT_FALLOCATE: the
 * how-manieth fallocate is ended by a signal;
 * EO_SHORT_MOVES: each moves so many bytes at most; EO_DIRECT_ALIGN: what past the page cache must be a multiple of, in memory
 * and in the file; EO_SLOW_WRITE_MS: what each pwrite takes at least; EO_DISK_FREE: bytes that statvfs calls free, less those
 * that fallocate has taken; all looks but the first come late. EO_NO_TMPFILE: no file is made without a name; and then the name
 * of an offload file is not taken away, with EO_KILL_AT_UNLINK for the process is killed, with EO_KEEP_NAMES for it is refused.
 * EO_NO_DIRECT: no file is opened past the page cache. EO_NO_SIZE: the disk does not know how large it is. EO_NO_SYNC: it cannot
 * be asked to write what it holds back. EO_FAIL_READ_OF: read fails for files with that in their paths.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static bool is_due(atomic_int *calls, const char *name)
{
    const char *at = getenv(name);
    const int more = at ? atomic_fetch_add(calls, 1) + 1 - atoi(at) : -1;
    return more == 0 || (more > 0 && strchr(at, '+'));
}

static bool fails(atomic_int *calls, const char *name)
{
    if (!is_due(calls, name))
        return false;
    errno = EIO;
    return true;
}

static bool is_refused(int fd, const void *memory, size_t bytes, off_t at)
{
    const char *align = getenv("EO_DIRECT_ALIGN");
    if (!align || !(fcntl(fd, F_GETFL) & O_DIRECT) || ((uintptr_t)memory | bytes | (uintptr_t)at) % strtoul(align, NULL, 10) == 0)
        return false;
    errno = EINVAL;
    return true;
}

static size_t at_most(size_t bytes)
{
    const char *most = getenv("EO_SHORT_MOVES");
    return most && strtoul(most, NULL, 10) < bytes ? strtoul(most, NULL, 10) : bytes;
}

/* Offsets of 64 bits: the system calls these functions pwrite64, pread64, statvfs64. */
EXPORT ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at)
{
    static atomic_int calls;
    ssize_t (*next)(int, const void *, size_t, off_t);
    *(void **)&next = dlsym(RTLD_NEXT, "pwrite64");
    const char *ms = getenv("EO_SLOW_WRITE_MS");
    if (ms)
        usleep((useconds_t)atoi(ms) * 1000);
    return is_refused(fd, from, bytes, at) || fails(&calls, "EO_FAIL_WRITE") ? -1 : next(fd, from, at_most(bytes), at);
}

EXPORT ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    static atomic_int calls, flips;
    ssize_t (*next)(int, void *, size_t, off_t);
    *(void **)&next = dlsym(RTLD_NEXT, "pread64");
    if (is_refused(fd, to, bytes, at) || fails(&calls, "EO_FAIL_READ"))
        return -1;
    const ssize_t moved = next(fd, to, at_most(bytes), at);
    if (moved > 0 && is_due(&flips, "EO_FLIP_READ"))
        ((unsigned char *)to)[moved / 2] ^= 16;
    return moved;
}

static atomic_ullong taken_bytes;

EXPORT int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    static atomic_int calls;
    int (*next)(int, int, off_t, off_t);
    *(void **)&next = dlsym(RTLD_NEXT, "fallocate64");
    if (is_due(&calls, "EO_INTERRUPT_FALLOCATE")) {
        errno = EINTR;
        return -1;
    }
    const int result = next(fd, mode, at, bytes);
    if (result == 0)
        atomic_fetch_add(&taken_bytes, (unsigned long long)bytes);
    return result;
}

EXPORT int statvfs(const char *path, struct statvfs *out)
{
    static atomic_int calls;
    int (*next)(const char *, struct statvfs *);
    *(void **)&next = dlsym(RTLD_NEXT, "statvfs64");
    const char *left = getenv("EO_DISK_FREE");
    if (left && atomic_fetch_add(&calls, 1) > 0)
        usleep(300000);
    const int result = next(path, out);
    if (result == 0 && getenv("EO_NO_SIZE"))
        *out = (struct statvfs){.f_bsize = 512, .f_namemax = 255};
    else if (result == 0 && left)
        out->f_bavail = (fsblkcnt_t)((strtoull(left, NULL, 10) - atomic_load(&taken_bytes)) / out->f_frsize);
    return result;
}

EXPORT int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...);
    *(void **)&next = dlsym(RTLD_NEXT, "open64");
    va_list more;
    va_start(more, flags);
    const bool has_mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    const mode_t mode = has_mode ? va_arg(more, mode_t) : 0;
    va_end(more);
    if ((flags & O_TMPFILE) == O_TMPFILE && getenv("EO_NO_TMPFILE")) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if ((flags & O_DIRECT) && getenv("EO_NO_DIRECT")) {
        errno = EINVAL;
        return -1;
    }
    return next(path, flags, mode);
}

EXPORT int unlink(const char *path)
{
    int (*next)(const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "unlink");
    const bool is_offloaded = strstr(path, "/evenodd-offload-") != NULL;
    if (is_offloaded && getenv("EO_KILL_AT_UNLINK"))
        raise(SIGKILL);
    if (is_offloaded && getenv("EO_KEEP_NAMES")) {
        errno = EBUSY;
        return -1;
    }
    return next(path);
}

EXPORT int fsync(int fd)
{
    int (*next)(int);
    *(void **)&next = dlsym(RTLD_NEXT, "fsync");
    const char *number = getenv("EO_NO_SYNC");
    if (!number)
        return next(fd);
    errno = atoi(number);
    return -1;
}

EXPORT ssize_t read(int fd, void *to, size_t bytes)
{
    ssize_t (*next)(int, void *, size_t);
    *(void **)&next = dlsym(RTLD_NEXT, "read");
    const char *failing = getenv("EO_FAIL_READ_OF");
    char link[40], path[256];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t used = failing ? readlink(link, path, sizeof(path) - 1) : 0;
    path[used > 0 ? used : 0] = '\0';
    if (!failing || !strstr(path, failing))
        return next(fd, to, bytes);
    errno = EIO;
    return -1;
}

/* What fortified programs call in its place. */
EXPORT ssize_t __read_chk(int fd, void *to, size_t bytes, size_t room);
ssize_t __read_chk(int fd, void *to, size_t bytes, size_t room)
{
    (void)room;
    return read(fd, to, bytes);
}
