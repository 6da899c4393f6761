/* SPDX-License-Identifier: MIT
 *
 * Between a file's making and its lock another job may take the file for a left one: it holds the lock while it removes the
 * name, so the owner waits for the lock, finds the name gone, and makes another file. On local disks the file would serve as
 * well without a name, but NFS takes it away from whoever has it open on another host.
 */
#include "streams/cpu/storage_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/reserve.h"

static const char prefix[] = "evenodd-offload-", suffix[] = ".tmp";
enum { RANDOM = 6, SUFFIX = sizeof(suffix) - 1, PREFIX = sizeof(prefix) - 1 };

/* False where the file system has no locks, too. */
static bool take_lock(int fd, int way)
{
    int result;
    do
        result = flock(fd, LOCK_EX | way);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

/* Not by the count of its names: some file systems in user space say 0 of every file. */
static bool has_name(int fd, const char *path)
{
    struct stat named, open;
    return lstat(path, &named) == 0 && fstat(fd, &open) == 0 && named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

/* `path` ends in a place for a name. */
static int open_named(char *path, int flags, bool *was_taken)
{
    const int fd = mkostemps(path, SUFFIX, O_CLOEXEC | flags);
    const bool is_locked = fd >= 0 && take_lock(fd, 0);
    const int error = errno;
    *was_taken = is_locked && !has_name(fd, path);
    if (!*was_taken)
        (void)unlink(path); /* also where it was made and then refused, as O_DIRECT may be */
    errno = error;
    return fd;
}

static int open_unnamed(const char *folder, int flags)
{
    enum { TRIES = 16 };
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd;
    bool was_taken = true;
    for (int i = 0; i < TRIES && was_taken; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%sXXXXXX%s", folder, prefix, suffix) < 0)
            return -1;
        fd = open_named(path, flags, &was_taken);
        const int error = errno;
        free(path);
        if (was_taken)
            close(fd);
        errno = error;
    }
    if (was_taken) {
        errno = EBUSY;
        return -1;
    }
    return fd;
}

int eo_storage_file_open(const char *folder, int flags)
{
    const int fd = open_unnamed(folder, flags);
    if (fd >= 0)
        eo_reserve_rewritten(fd);
    return fd;
}

static bool is_ours(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return strncmp(name, prefix, PREFIX) == 0 && strspn(name + PREFIX, letters) == RANDOM &&
           strcmp(name + PREFIX + RANDOM, suffix) == 0;
}

/* The name still leads to the file, a plain one that only this user can read, as ours are made. */
static bool is_left(int parent, const char *name, int fd)
{
    struct stat file, named;
    return fstat(fd, &file) == 0 && fstatat(parent, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(file.st_mode) &&
           file.st_dev == named.st_dev && file.st_ino == named.st_ino && file.st_uid == geteuid() &&
           (file.st_mode & 07777) == 0600 && file.st_nlink == 1;
}

uint32_t eo_storage_file_remove_left(const char *folder)
{
    uint32_t count = 0;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        if (!is_ours(entry->d_name))
            continue;
        const int fd = openat(dirfd(entries), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (take_lock(fd, LOCK_NB) && is_left(dirfd(entries), entry->d_name, fd) &&
            unlinkat(dirfd(entries), entry->d_name, 0) == 0)
            count++;
        close(fd);
    }
    if (entries)
        closedir(entries);
    return count;
}
