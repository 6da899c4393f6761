/* SPDX-License-Identifier: MIT */
#include "streams/cpu/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/reserve.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

int eo_memory_file_make(const char *name, uint64_t bytes)
{
    sigset_t before;
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    eo_size_limit_begin(&before);
    const bool is_sized = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0;
    eo_size_limit_end(&before);
    if (is_sized && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        return fd;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

bool eo_memory_file_is(int fd, uint64_t bytes)
{
    struct stat info;
    const int seals = fcntl(fd, F_GET_SEALS); /* files of other kinds have none */
    return seals >= 0 && (seals & SEALS) == SEALS && !(seals & F_SEAL_WRITE) && fstat(fd, &info) == 0 &&
           (uint64_t)info.st_size == bytes;
}
