/* SPDX-License-Identifier: MIT
 *
 * Room on a disk, or in a file of memory, taken before it is needed. And what a limit on the size of files (ulimit -f) does.
 */
#ifndef EO_BASE_RESERVE_H
#define EO_BASE_RESERVE_H

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <time.h>

/*
 * A call that would make a file larger than its limit fails with EFBIG, and raises a signal that ends the process. On a thread
 * that is not ours the calls stand between these two: only the error is left. They keep errno, and may stand in each other.
 */
static inline void eo_size_limit_begin(sigset_t *before)
{
    sigset_t limit;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &limit, before);
}

static inline void eo_size_limit_end(const sigset_t *before)
{
    const struct timespec at_once = {0};
    const int error = errno;
    sigset_t limit;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    while (!sigismember(before, SIGXFSZ) && sigtimedwait(&limit, NULL, &at_once) < 0 && errno == EINTR)
        ;
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
    errno = error;
}

/* Whether pages are not made beforehand (MADV_POPULATE_WRITE, Linux 5.14) for another reason than memory: an older kernel, one
 * without madvise, a filter. */
static inline bool eo_populate_is_refused(int error)
{
    return error == EINVAL || error == ENOSYS || error == EPERM || error == EACCES;
}

/* The first bytes of a file. false: errno. A signal ends a long call, whatever its handler asks for: then once more. */
static inline bool eo_reserve_bytes(int fd, uint64_t bytes)
{
    sigset_t before;
    int result;
    eo_size_limit_begin(&before);
    do
        result = fallocate(fd, 0, 0, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    eo_size_limit_end(&before);
    return result == 0;
}

/*
 * Of a file with nothing in it yet that is to be written again and again. btrfs writes to other blocks each time, so that a
 * disk that others have filled refuses what was reserved, and past the page cache nothing goes. Elsewhere refused, or as it is.
 */
static inline void eo_reserve_rewritten(int fd)
{
    int flags;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0)
        return;
    flags = (flags | FS_NOCOW_FL) & ~FS_COMPR_FL; /* it takes one of the two */
    (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

#endif
