/* SPDX-License-Identifier: MIT
 *
 * One run at a time writes checkpoints to a folder: two would put files of different trainings into one checkpoint. The
 * kernel gives the lock back when the process ends, however it ends; the file stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own_files.h"
#include "base/reserve.h"
#include "runtime/checkpoint/files.h"

enum { WAIT_S = 5 };
#define LOCK_LOOK_NS UINT64_C(100000000)

/* What others may have put there in its place is not waited for, and not followed. */
static int open_lock(const char *path, int way)
{
    struct stat info;
    const int file = open(path, way | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (file < 0)
        return -1;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode))
        return file;
    close(file);
    errno = ENXIO;
    return -1;
}

/* Open for reading, so that a file system can become read-only; NFS locks files alone that are open for writing. */
static int lock_file(const char *path)
{
    static const int ways[] = {O_RDONLY, O_RDWR};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        /* A file server may take its time, so forks wait for the second alone. A child may have the first, without a lock. */
        const int first = open_lock(path, ways[i]);
        if (first < 0)
            return -1;
        eo_own_files_begin();
        const int file = eo_own_files_end(open_lock(path, ways[i]));
        const bool is_locked = file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0;
        const int number = errno;
        close(first);
        if (is_locked)
            return file;
        if (file >= 0)
            eo_own_file_close(file);
        errno = number;
        if (number != EBADF)
            break;
    }
    return -1;
}

/* A job that was started again may find the lock in the hands of its former life, which is about to end. */
static int lock_file_soon(const char *path, const char *folder, const eo_log *log)
{
    const struct timespec pause = {0, LOCK_LOOK_NS};
    struct eo_stopwatch waited = eo_stopwatch_start(); /* a trainer's signals end a pause early */
    int file = lock_file(path);
    if (file < 0 && errno == EWOULDBLOCK)
        eo_log_write(log, EO_LOG_WARN, "%s: another run writes checkpoints there: waiting for its end, for at most %d seconds",
                     folder, WAIT_S);
    while (file < 0 && errno == EWOULDBLOCK && eo_stopwatch_look(&waited, 2 * LOCK_LOOK_NS) < WAIT_S * UINT64_C(1000000000)) {
        nanosleep(&pause, NULL);
        file = lock_file(path);
    }
    return file;
}

/* For the message of whom we keep out; without it the lock is as good. */
static void write_owner(const char *path)
{
    char host[64] = "?", text[CHECKPOINT_OWNER_BYTES];
    (void)gethostname(host, sizeof(host) - 1);
    const int used = snprintf(text, sizeof(text), "process %ld on %s", (long)getpid(), host);
    const int file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return;
    sigset_t before;
    eo_size_limit_begin(&before); /* this is the trainer's thread */
    (void)(write(file, text, (size_t)used) == used || ftruncate(file, 0) == 0);
    eo_size_limit_end(&before);
    close(file);
}

static void read_owner(const char *path, char owner[CHECKPOINT_OWNER_BYTES])
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t bytes = file >= 0 ? read(file, owner, CHECKPOINT_OWNER_BYTES - 1) : 0;
    if (file >= 0)
        close(file);
    owner[bytes > 0 ? bytes : 0] = '\0';
    for (char *c = owner; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static const char moved_since[] = ", since the folder of this one was moved or its .lock removed";

static eo_status tell_other_run(const char *folder, const char *path, const char *when, struct checkpoint_error *error)
{
    char owner[CHECKPOINT_OWNER_BYTES];
    read_owner(path, owner);
    (void)eo_checkpoint_io_error(error, 0,
                                 "%s: another run writes checkpoints there%s (%s); end it, or give this run a folder of "
                                 "its own",
                                 folder, when, owner[0] ? owner : "unknown process");
    return EO_ERR_INVALID;
}

eo_status eo_checkpoint_lock(int *out, const char *folder, const eo_log *log, struct checkpoint_error *error)
{
    char path[CHECKPOINT_PATH_MAX];
    *out = -1;
    if (eo_checkpoint_path(path, folder, UINT64_MAX, ".new/rank-00000000", error) < 0) /* the longest */
        return EO_ERR_INVALID;
    snprintf(path, sizeof(path), "%s/.lock", folder);
    if (eo_checkpoint_make_folder(folder, error) < 0) /* told now, and not by the first save, hours later */
        return EO_ERR_INVALID;
    EO_TRY(eo_checkpoint_check_writable(folder, error));
    *out = lock_file_soon(path, folder, log);
    if (*out >= 0) {
        write_owner(path);
        return EO_OK;
    }
    switch (errno) {
    case EWOULDBLOCK:
        return tell_other_run(folder, path, "", error);
    case ELOOP:
    case ENXIO:
    case EISDIR:
        (void)eo_checkpoint_io_error(error, 0, "%s: is not a regular file, so runs cannot lock the folder with it; remove it",
                                     path);
        return EO_ERR_INVALID;
    default:
        eo_log_write(log, EO_LOG_WARN, "cannot lock %s: %s; let no other run write there", path, strerror(errno));
        return EO_OK;
    }
}

/* The own lock goes first: some file systems give a file another number each time, and it would stand in our way. */
eo_status eo_checkpoint_keep_lock(int *lock, const char *folder, struct checkpoint_error *error)
{
    char path[CHECKPOINT_PATH_MAX];
    struct stat own, there;
    if (*lock == -1)
        return EO_OK;
    snprintf(path, sizeof(path), "%s/.lock", folder);
    const bool is_there = lstat(path, &there) == 0;
    if (!is_there && errno != ENOENT && errno != ENOTDIR)
        return eo_checkpoint_io_error(error, errno, "checkpoint: cannot look at %s", path);
    if (is_there && *lock >= 0 && fstat(*lock, &own) == 0 && own.st_dev == there.st_dev && own.st_ino == there.st_ino)
        return EO_OK;
    eo_checkpoint_unlock(*lock);
    *lock = CHECKPOINT_LOCK_LOST;
    EO_TRY(eo_checkpoint_make_folder(folder, error));
    const int file = lock_file(path);
    if (file < 0 && errno == EWOULDBLOCK) {
        (void)tell_other_run(folder, path, moved_since, error);
        return EO_ERR_IO;
    }
    if (file < 0)
        return eo_checkpoint_io_error(error, errno, "checkpoint: cannot lock %s again, which was moved or removed", path);
    *lock = file;
    write_owner(path);
    return EO_OK;
}

eo_status eo_checkpoint_same_owner(char owner[CHECKPOINT_OWNER_BYTES], const char *folder, struct checkpoint_error *error)
{
    char path[CHECKPOINT_PATH_MAX], now[CHECKPOINT_OWNER_BYTES];
    snprintf(path, sizeof(path), "%s/.lock", folder);
    read_owner(path, now);
    if (!owner[0])
        memcpy(owner, now, sizeof(now));
    if (!now[0] || strcmp(owner, now) == 0)
        return EO_OK;
    (void)tell_other_run(folder, path, moved_since, error);
    return EO_ERR_IO;
}

void eo_checkpoint_remove_made(const char *folder)
{
    char path[CHECKPOINT_PATH_MAX];
    const int used = snprintf(path, sizeof(path), "%s/.lock", folder);
    if (used > 0 && used < (int)sizeof(path))
        (void)unlink(path);
    (void)rmdir(folder);
}

/* What the trainer has cloned by other calls than fork has the file open too: closing ours alone would keep the lock. */
void eo_checkpoint_unlock(int file)
{
    if (file < 0)
        return;
    (void)flock(file, LOCK_UN);
    eo_own_file_close(file);
}
