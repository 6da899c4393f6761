/* SPDX-License-Identifier: MIT
 *
 * Writing and reading a checkpoint's files.
 */
#include "runtime/checkpoint/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hashing.h"
#include "base/plain_text.h"
#include "base/reserve.h"

static const char *advice_for(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT: return "; free some space, or keep fewer checkpoints";
    case EACCES:
    case EPERM: return "; check its permissions";
    case EROFS: return "; the file system is read-only: name another folder";
    case EFBIG: return "; raise the limit on file sizes";
    case ENOENT: return "; check the path";
    default: return "";
    }
}

eo_status eo_checkpoint_io_error(struct checkpoint_error *error, int number, const char *format, ...)
{
    enum { REASON_BYTES = 128 }; /* the system's, and advice */
    va_list arguments;
    va_start(arguments, format);
    const size_t used =
        eo_text_format(error->text, sizeof(error->text) - (number ? REASON_BYTES : 0), format, arguments);
    va_end(arguments);
    if (number)
        snprintf(error->text + used, sizeof(error->text) - used, ": %s%s", strerror(number), advice_for(number));
    return EO_ERR_IO;
}

/* A file that is not there or that the disk cannot give is damage; what this process may not, or cannot now, says nothing of
 * it. */
eo_status eo_checkpoint_unreadable(struct checkpoint_error *error, int number, const char *path)
{
    const eo_status damaged =
        number == ENOENT ? eo_checkpoint_io_error(error, 0, "%s is missing; use another checkpoint", path)
                         : eo_checkpoint_io_error(error, number, "cannot read %s", path);
    switch (number) {
    case EACCES:
    case EPERM:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ESTALE:
    case ETIMEDOUT:
        return EO_ERR_DEVICE;
    default:
        return damaged;
    }
}

eo_status eo_checkpoint_path(char path[CHECKPOINT_PATH_MAX], const char *folder, uint64_t step, const char *suffix,
                             struct checkpoint_error *error)
{
    const int used = snprintf(path, CHECKPOINT_PATH_MAX, "%s/step-%012" PRIu64 "%s", folder, step, suffix);
    return used >= 0 && used < CHECKPOINT_PATH_MAX
               ? EO_OK
               : eo_checkpoint_io_error(error, 0, "%.100s...: the path is too long", folder);
}

void eo_checkpoint_file_name(char name[EO_CHECKPOINT_FILE_MAX], uint32_t rank)
{
    snprintf(name, EO_CHECKPOINT_FILE_MAX, "rank-%05" PRIu32, rank);
}

/* -- writing -------------------------------------------------------------------------------------------------------*/

bool eo_checkpoint_sync(int file)
{
    return fsync(file) == 0 || errno == EINVAL || errno == EOPNOTSUPP;
}

eo_status eo_checkpoint_sync_folder(const char *path, struct checkpoint_error *error)
{
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = folder >= 0 && eo_checkpoint_sync(folder);
    const int number = errno;
    if (folder >= 0)
        close(folder);
    return done ? EO_OK : eo_checkpoint_io_error(error, number, "checkpoint: cannot sync %s to disk", path);
}

eo_status eo_checkpoint_make_folder(const char *path, struct checkpoint_error *error)
{
    char parent[CHECKPOINT_PATH_MAX + 4];
    if (mkdir(path, 0777) != 0) {
        struct stat info;
        const int number = errno;
        const bool is_there = number == EEXIST && stat(path, &info) == 0;
        if (is_there && S_ISDIR(info.st_mode))
            return EO_OK;
        const int reason = is_there ? ENOTDIR : errno; /* also of a dead disk, or a link to nowhere */
        return eo_checkpoint_io_error(error, reason, "checkpoint: cannot create the folder %s%s", path,
                                      number == ENOENT ? " (folders above it are not made)" : "");
    }
    snprintf(parent, sizeof(parent), "%s/..", path);
    return access(parent, R_OK) == 0 ? eo_checkpoint_sync_folder(parent, error) : EO_OK;
}

eo_status eo_checkpoint_check_writable(const char *path, struct checkpoint_error *error)
{
    struct stat info;
    const bool exists = stat(path, &info) == 0;
    if (!exists && errno == ENOENT)
        return EO_OK;
    if (exists && S_ISDIR(info.st_mode) && faccessat(AT_FDCWD, path, R_OK | W_OK | X_OK, AT_EACCESS) == 0)
        return EO_OK;
    (void)eo_checkpoint_io_error(error, exists && !S_ISDIR(info.st_mode) ? ENOTDIR : errno,
                                 "checkpoint: cannot read and write the folder %s", path);
    return EO_ERR_INVALID;
}

eo_status eo_checkpoint_check_free(const char *folder, uint64_t step, struct checkpoint_error *error)
{
    char path[CHECKPOINT_PATH_MAX];
    struct stat info;
    EO_TRY(eo_checkpoint_path(path, folder, step, "", error));
    return lstat(path, &info) != 0 ? EO_OK
                                   : eo_checkpoint_io_error(error, 0, "%s already exists: name another folder", path);
}

int eo_checkpoint_create(const char *path, int more_flags)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | more_flags;
    const int file = open(path, flags, 0666);
    if (file >= 0 || errno != EEXIST)
        return file;
    return unlink(path) == 0 ? open(path, flags, 0666) : -1;
}

/* Around the page cache where the file system lets us: then writing takes hardly any of training's processor time. */
static int open_new(const char *path)
{
    const int file = eo_checkpoint_create(path, O_DIRECT);
    return file >= 0 || errno != EINVAL ? file : eo_checkpoint_create(path, 0);
}

static eo_status write_at(int file, const void *data, uint64_t bytes, uint64_t offset, const char *path,
                          struct checkpoint_error *error)
{
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t wrote = pwrite(file, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0 && errno == EINVAL && fcntl(file, F_GETFL) & O_DIRECT) { /* not here after all */
            if (fcntl(file, F_SETFL, 0) == 0)
                continue;
        }
        if (wrote <= 0)
            return eo_checkpoint_io_error(error, wrote < 0 ? errno : ENOSPC, "checkpoint: cannot write %s", path);
        done += (uint64_t)wrote;
    }
    return EO_OK;
}

static eo_status write_section(int file, const struct checkpoint_tables *tables,
                               const struct checkpoint_section *section, checkpoint_source source, void *user,
                               void *piece, const char *path, struct checkpoint_error *error)
{
    for (uint64_t at = 0; at < section->bytes; at += CHECKPOINT_PIECE) {
        const uint64_t bytes = eo_min_u64(CHECKPOINT_PIECE, section->bytes - at);
        const uint64_t padded = eo_align_up(bytes, CHECKPOINT_ALIGN);
        const char *data = source(user, section, at, bytes, piece, error);
        if (!data)
            return EO_ERR_IO;
        for (uint64_t c = 0; c < padded; c += CHECKPOINT_CHUNK)
            tables->chunk_hashes[section->chunk_begin + (at + c) / CHECKPOINT_CHUNK] =
                eo_hash64(data + c, eo_min_u64(CHECKPOINT_CHUNK, padded - c));
        EO_TRY(write_at(file, data, padded, section->file_offset + at, path, error));
    }
    return EO_OK;
}

/* The head comes last: it has the checksums of what went before. */
static eo_status write_all(int file, const struct checkpoint_tables *tables, checkpoint_source source, void *user,
                           void *piece, const char *path, struct checkpoint_error *error)
{
    struct checkpoint_head *head = tables->head;
    /* A disk without room says so now, not in the middle; some file systems cannot tell. */
    if (!eo_reserve_bytes(file, head->file_bytes) && errno != EOPNOTSUPP && errno != ENOSYS)
        return eo_checkpoint_io_error(error, errno, "checkpoint: cannot reserve %" PRIu64 " bytes for %s",
                                      head->file_bytes, path);
    for (uint32_t s = 0; s < head->section_count; s++)
        EO_TRY(write_section(file, tables, &tables->sections[s], source, user, piece, path, error));
    head->head_hash = 0;
    head->head_hash = eo_hash64(head, head->head_bytes);
    EO_TRY(write_at(file, head, head->head_bytes, 0, path, error));
    if (!eo_checkpoint_sync(file))
        return eo_checkpoint_io_error(error, errno, "checkpoint: cannot sync %s to disk", path);
    return EO_OK;
}

eo_status eo_checkpoint_write_file(const char *folder, const struct checkpoint_tables *tables,
                                   checkpoint_source source, void *user, void *piece, struct checkpoint_error *error)
{
    char path[CHECKPOINT_PATH_MAX], suffix[EO_CHECKPOINT_FILE_MAX + 8] = ".new/";
    EO_TRY(eo_checkpoint_make_folder(folder, error));
    EO_TRY(eo_checkpoint_path(path, folder, tables->head->step, ".new", error));
    EO_TRY(eo_checkpoint_make_folder(path, error));
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode)) /* a link leads out of the folder */
        return eo_checkpoint_io_error(error, ENOTDIR, "checkpoint: %s is a link; remove it", path);
    eo_checkpoint_file_name(suffix + strlen(suffix), tables->head->rank);
    EO_TRY(eo_checkpoint_path(path, folder, tables->head->step, suffix, error));
    const int file = open_new(path);
    if (file < 0)
        return eo_checkpoint_io_error(error, errno, "checkpoint: cannot create %s", path);
    eo_status status = write_all(file, tables, source, user, piece, path, error);
    if (close(file) != 0 && status >= 0)
        status = eo_checkpoint_io_error(error, errno, "checkpoint: cannot write %s", path);
    if (status < 0)
        (void)unlink(path);
    return status;
}

/* -- reading -------------------------------------------------------------------------------------------------------*/

eo_status eo_checkpoint_read_at(int file, void *data, uint64_t bytes, uint64_t offset, const char *path,
                                struct checkpoint_error *error)
{
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t got = pread(file, (char *)data + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return eo_checkpoint_unreadable(error, errno, path);
        if (got == 0)
            return eo_checkpoint_io_error(error, 0, "%s ends at byte %" PRIu64 ": it was cut off", path,
                                          offset + done);
        done += (uint64_t)got;
    }
    return EO_OK;
}
