/* SPDX-License-Identifier: MIT
 *
 * The folder of a checkpoint: its manifest, how it gets its name, which ones there are, how one goes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hashing.h"
#include "runtime/checkpoint/files.h"

#ifndef RENAME_EXCHANGE /* musl's headers have neither it nor its call */
#define RENAME_EXCHANGE (1 << 1)
#endif

/* -- manifest ------------------------------------------------------------------------------------------------------*/

enum { MANIFEST_BYTES_MAX = 64 << 20, MANIFEST_LINE_MAX = 80, RANKS_MAX = 1 << 20 };

struct manifest_text {
    char *text;
    size_t used, room;
};

static void add_line(struct manifest_text *manifest, const char *format, ...) EO_PRINTF(2, 3);

/* Room was made for all lines. */
static void add_line(struct manifest_text *manifest, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int used = vsnprintf(manifest->text + manifest->used, manifest->room - manifest->used, format, arguments);
    va_end(arguments);
    EO_ASSERT(used >= 0 && (size_t)used < manifest->room - manifest->used);
    manifest->used += (size_t)used;
}

/* A rank's file as it lies there, and whether it is of this save. */
static eo_status look_at_file(const char *folder, const struct checkpoint_tables *mine, uint32_t rank,
                              struct manifest_text *manifest, uint64_t *bytes, struct checkpoint_error *error)
{
    char path[CHECKPOINT_PATH_MAX], name[EO_CHECKPOINT_FILE_MAX];
    char suffix[EO_CHECKPOINT_FILE_MAX + 8];
    struct checkpoint_tables other;
    eo_checkpoint_file_name(name, rank);
    snprintf(suffix, sizeof(suffix), ".new/%s", name);
    EO_TRY(eo_checkpoint_path(path, folder, mine->head->step, suffix, error));
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return eo_checkpoint_io_error(
            error, 0, "%s is missing, which rank %u wrote: all ranks must save to one folder that they share", path, rank);
    EO_TRY(eo_checkpoint_read_head(&other, path, error));
    const struct checkpoint_head *a = mine->head, *b = other.head;
    eo_status status = EO_OK;
    if (b->rank != rank || b->rank_count != a->rank_count || b->step != a->step || b->model_hash != a->model_hash)
        status = eo_checkpoint_io_error(error, 0, "%s belongs to another save; another run may be writing to the same folder",
                                        path);
    add_line(manifest, "file %s %" PRIu64 " %016" PRIx64 "\n", name, b->file_bytes, b->head_hash);
    *bytes += b->file_bytes;
    eo_checkpoint_free_tables(&other);
    return status;
}

static eo_status make_manifest(const char *folder, const struct checkpoint_tables *tables,
                               struct manifest_text *manifest, struct checkpoint_error *error)
{
    const struct checkpoint_head *head = tables->head;
    uint64_t bytes = 0;
    add_line(manifest, "evenodd-checkpoint %d\nstep %" PRIu64 "\nranks %u\n", CHECKPOINT_VERSION, head->step,
             head->rank_count);
    for (uint32_t r = 0; r < head->rank_count; r++)
        EO_TRY(look_at_file(folder, tables, r, manifest, &bytes, error));
    add_line(manifest, "model %s\nparameters %" PRIu64 "\nstrategy %s\nbytes %" PRIu64 "\n", head->model_name,
             head->element_count, head->strategy, bytes);
    add_line(manifest, "end %016" PRIx64 "\n", eo_hash64(manifest->text, manifest->used));
    return EO_OK;
}

static eo_status write_text(const char *path, const char *text, size_t bytes, struct checkpoint_error *error)
{
    const int file = eo_checkpoint_create(path, 0);
    if (file < 0)
        return eo_checkpoint_io_error(error, errno, "checkpoint: cannot create %s", path);
    eo_status status = EO_OK;
    for (size_t done = 0; done < bytes && status >= 0;) {
        const ssize_t wrote = write(file, text + done, bytes - done);
        if (wrote < 0 && errno != EINTR)
            status = eo_checkpoint_io_error(error, errno, "checkpoint: cannot write %s", path);
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    if (status >= 0 && !eo_checkpoint_sync(file))
        status = eo_checkpoint_io_error(error, errno, "checkpoint: cannot sync %s to disk", path);
    if (close(file) != 0 && status >= 0)
        status = eo_checkpoint_io_error(error, errno, "checkpoint: cannot write %s", path);
    return status;
}

static eo_status write_manifest(const char *folder, const struct checkpoint_tables *tables,
                                struct checkpoint_error *error)
{
    const size_t room = 1024 + (size_t)tables->head->rank_count * 80;
    struct manifest_text manifest = {.text = malloc(room), .room = room};
    char path[CHECKPOINT_PATH_MAX];
    if (!manifest.text)
        return eo_checkpoint_io_error(error, ENOMEM, "checkpoint: the manifest");
    eo_status status = make_manifest(folder, tables, &manifest, error);
    if (status >= 0)
        status = eo_checkpoint_path(path, folder, tables->head->step, ".new/manifest", error);
    if (status >= 0)
        status = write_text(path, manifest.text, manifest.used, error);
    free(manifest.text);
    return status;
}

static eo_status bad_manifest(const char *path, const char *what, struct checkpoint_error *error)
{
    return eo_checkpoint_io_error(error, 0, "%s: the manifest is damaged: %s", path, what);
}

/* Text of known bytes: its checksum has been found good, so what is wrong here was written so. */
static eo_status parse_manifest(struct checkpoint_manifest *out, const char *text, const char *path,
                                struct checkpoint_error *error)
{
    int used = 0;
    unsigned version;
    if (sscanf(text, "evenodd-checkpoint %9u\n%n", &version, &used) != 1 || used == 0)
        return bad_manifest(path, "it begins with other words", error);
    if (version != CHECKPOINT_VERSION) {
        (void)eo_checkpoint_io_error(error, 0, "%s has version %u of the format, but this library reads version %d",
                                     path, version, CHECKPOINT_VERSION);
        return EO_ERR_UNSUPPORTED;
    }
    text += used;
    used = 0;
    if (sscanf(text, "step %19" SCNu64 "\nranks %7" SCNu32 "\n%n", &out->step, &out->rank_count, &used) != 2 || !used)
        return bad_manifest(path, "no step and ranks", error);
    if (out->rank_count == 0 || out->rank_count > RANKS_MAX)
        return bad_manifest(path, "the number of ranks", error);
    out->files = calloc(out->rank_count, sizeof(*out->files));
    if (!out->files)
        return EO_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < out->rank_count; r++) {
        struct checkpoint_manifest_file *file = &out->files[r];
        char expected[EO_CHECKPOINT_FILE_MAX];
        char line[MANIFEST_LINE_MAX + 1]; /* alone: sscanf measures all of the text that it is given */
        text += used;
        const size_t bytes = strcspn(text, "\n") + 1; /* a manifest ends with one */
        snprintf(line, sizeof(line), "%.*s", bytes <= MANIFEST_LINE_MAX ? (int)bytes : 0, text);
        used = 0;
        eo_checkpoint_file_name(expected, r);
        if (sscanf(line, "file %23s %19" SCNu64 " %16" SCNx64 "\n%n", file->name, &file->bytes, &file->head_hash, &used) != 3 ||
            (size_t)used != bytes || strcmp(file->name, expected) != 0)
            return bad_manifest(path, "its list of files", error);
    }
    return EO_OK;
}

static eo_status check_manifest_hash(const char *text, size_t bytes, const char *path, struct checkpoint_error *error)
{
    enum { END_BYTES = 21 }; /* "end ", 16 digits, newline */
    uint64_t hash;
    int used = 0;
    if (strlen(text) != bytes || bytes < END_BYTES ||
        sscanf(text + bytes - END_BYTES, "end %16" SCNx64 "\n%n", &hash, &used) != 1 || used != END_BYTES)
        return bad_manifest(path, "it was cut off", error);
    return hash == eo_hash64(text, bytes - END_BYTES) ? EO_OK
                                                      : bad_manifest(path, "its checksum does not match", error);
}

static eo_status read_text(char **out, size_t *bytes, const char *path, struct checkpoint_error *error)
{
    struct stat info;
    *out = NULL;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && errno == ENOENT)
        return eo_checkpoint_io_error(error, errno, "%s is missing: the folder holds no complete checkpoint", path);
    if (file < 0)
        return eo_checkpoint_unreadable(error, errno, path);
    eo_status status = EO_OK;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MANIFEST_BYTES_MAX)
        status = bad_manifest(path, "it is not a regular file, or too large", error);
    if (status >= 0) {
        *bytes = (size_t)info.st_size;
        *out = calloc(1, *bytes + 1);
        status = *out ? eo_checkpoint_read_at(file, *out, *bytes, 0, path, error) : EO_ERR_NO_MEMORY;
    }
    close(file);
    return status;
}

eo_status eo_checkpoint_read_manifest(struct checkpoint_manifest *out, const char *path,
                                      struct checkpoint_error *error)
{
    char *text;
    size_t bytes = 0;
    *out = (struct checkpoint_manifest){0};
    eo_status status = read_text(&text, &bytes, path, error);
    if (status >= 0)
        status = check_manifest_hash(text, bytes, path, error);
    if (status >= 0)
        status = parse_manifest(out, text, path, error);
    free(text);
    if (status < 0) {
        free(out->files);
        *out = (struct checkpoint_manifest){0};
    }
    return status;
}

/* -- which there are -----------------------------------------------------------------------------------------------*/

/* "step-" and twelve digits or more. */
static bool parse_name(const char *name, uint64_t *step, const char **rest)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") < 12)
        return false;
    errno = 0;
    *step = strtoull(name + 5, &end, 10);
    *rest = end;
    return errno == 0;
}

/* Whether this is there, of this type; -1: errno says why that cannot be told. */
static int is_there(int parent, const char *path, mode_t type)
{
    struct stat info;
    if (fstatat(parent, path, &info, 0) == 0)
        return (info.st_mode & S_IFMT) == type;
    return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -1;
}

static int has_manifest(int folder, const char *name)
{
    char path[CHECKPOINT_PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/manifest", name);
    return is_there(folder, path, S_IFREG);
}

/* A checkpoint that the disk does not show now is not one that is not there: a run would begin anew, or remove it. */
eo_status eo_checkpoint_list(const char *folder, void (*found)(void *user, uint64_t step, bool has_manifest),
                             void *user, struct checkpoint_error *error)
{
    DIR *list = opendir(folder);
    if (!list && errno == ENOENT)
        return EO_IN_PROGRESS;
    if (!list)
        return eo_checkpoint_io_error(error, errno, "cannot read %s", folder);
    eo_status status = EO_OK;
    const struct dirent *entry;
    errno = 0; /* before each entry, to tell an error from the end */
    for (; status >= 0 && (entry = readdir(list)); errno = 0) {
        const char *rest;
        uint64_t step;
        if (!parse_name(entry->d_name, &step, &rest) || *rest != '\0')
            continue;
        const int is_folder = is_there(dirfd(list), entry->d_name, S_IFDIR);
        const int is_whole = is_folder > 0 ? has_manifest(dirfd(list), entry->d_name) : 0;
        if (is_folder < 0 || is_whole < 0)
            status = eo_checkpoint_io_error(error, errno, "cannot read %s/%s", folder, entry->d_name);
        else if (is_folder)
            found(user, step, is_whole);
    }
    if (status >= 0 && errno)
        status = eo_checkpoint_io_error(error, errno, "cannot read %s", folder);
    closedir(list);
    return status;
}

/* -- the life of a folder ------------------------------------------------------------------------------------------*/

static bool is_ours(const char *name)
{
    return strcmp(name, "manifest") == 0 || (strncmp(name, "rank-", 5) == 0 && strspn(name + 5, "0123456789") >= 5);
}

/* Files of a save that was never ended, of more ranks. */
static void remove_strangers(const char *path, uint32_t rank_count)
{
    DIR *list = opendir(path);
    for (const struct dirent *entry = list ? readdir(list) : NULL; entry; entry = readdir(list))
        if (is_ours(entry->d_name) && entry->d_name[0] == 'r' && strtoull(entry->d_name + 5, NULL, 10) >= rank_count)
            (void)unlinkat(dirfd(list), entry->d_name, 0);
    if (list)
        closedir(list);
}

/* What has the name of a checkpoint loses its manifest first, on the disk too: what is left of it then is none any more.
 * Foreign files stay, and the folder. */
static void remove_folder(int parent, const char *name)
{
    const char *slash = strrchr(name, '/'), *rest = "";
    uint64_t step;
    const bool is_named = parse_name(slash ? slash + 1 : name, &step, &rest) && *rest == '\0';
    const int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    if (!list) {
        if (folder >= 0)
            close(folder);
        return;
    }
    if (unlinkat(folder, "manifest", 0) == 0 && is_named)
        (void)fsync(folder);
    for (const struct dirent *entry = readdir(list); entry; entry = readdir(list))
        if (is_ours(entry->d_name))
            (void)unlinkat(folder, entry->d_name, 0);
    closedir(list);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

void eo_checkpoint_discard(const char *folder, uint64_t step)
{
    char path[CHECKPOINT_PATH_MAX];
    struct checkpoint_error error;
    if (eo_checkpoint_path(path, folder, step, ".new", &error) >= 0)
        remove_folder(AT_FDCWD, path);
}

struct ordered_steps {
    uint64_t step;      /* of the new checkpoint */
    uint32_t keep;
    uint64_t *newest;   /* `keep` - 1 of the highest steps below it, in falling order */
    uint32_t count;
};

static void note_step(void *user, uint64_t step, bool has_manifest)
{
    struct ordered_steps *o = user;
    if (!has_manifest || step >= o->step)
        return;
    for (uint32_t i = 0; i < o->keep - 1; i++) {
        if (i < o->count && step <= o->newest[i])
            continue;
        const uint64_t next = o->newest[i];
        o->newest[i] = step;
        if (i == o->count) {
            o->count++;
            return;
        }
        step = next;
    }
}

static bool is_kept(const struct ordered_steps *o, uint64_t step)
{
    for (uint32_t i = 0; i < o->count; i++)
        if (o->newest[i] == step)
            return true;
    return step >= o->step;
}

static void note_latest(void *user, uint64_t step, bool has_manifest)
{
    uint64_t *latest = user;
    if (has_manifest && step > *latest)
        *latest = step;
}

uint64_t eo_checkpoint_latest(const char *folder)
{
    struct checkpoint_error error;
    uint64_t latest = 0;
    return eo_checkpoint_list(folder, note_latest, &latest, &error) == EO_OK ? latest : 0;
}

/* A folder with the name of a step is whole, so what goes has another name before its first file goes. */
static bool rename_old(int parent, const char *name)
{
    char old[NAME_MAX + 8];
    struct stat info;
    if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode))
        return true; /* a link, say: somebody else's */
    snprintf(old, sizeof(old), "%s.old", name);
    remove_folder(parent, old);
    if (renameat(parent, name, parent, old) == 0)
        return true;
    if (errno == EXDEV) { /* overlayfs: in a lower layer names stay */
        remove_folder(parent, name);
        return true;
    }
    return errno == ENOENT;
}

/* Older ones than the kept, and what earlier runs left unfinished. What is of a later step is not ours to remove: other
 * ranks may have begun the next save already. Thousands take one wait for the disk: all have other names there first. What
 * stays costs no checkpoint, so `error` has a warning, or "". */
static void remove_old(const char *folder, uint64_t step, uint32_t keep, struct checkpoint_error *error)
{
    struct ordered_steps ordered = {.step = step, .keep = keep ? keep : 1, .newest = NULL};
    const char *rest;
    uint64_t at;
    error->text[0] = '\0';
    ordered.newest = calloc(ordered.keep, sizeof(*ordered.newest));
    DIR *list = opendir(folder);
    if (keep && (!ordered.newest || !list))
        (void)eo_checkpoint_io_error(error, errno, "checkpoint: old ones stay in %s: cannot list it", folder);
    else if (ordered.newest && list && eo_checkpoint_list(folder, note_step, &ordered, error) == EO_OK) {
        for (const struct dirent *entry = keep ? readdir(list) : NULL; entry; entry = readdir(list))
            if (parse_name(entry->d_name, &at, &rest) && *rest == '\0' && !is_kept(&ordered, at) &&
                !rename_old(dirfd(list), entry->d_name))
                (void)eo_checkpoint_io_error(error, errno, "checkpoint: %s/%s is old and stays: cannot rename it", folder,
                                             entry->d_name);
        const bool is_synced = eo_checkpoint_sync(dirfd(list)); /* else they go with the next save */
        rewinddir(list);
        for (const struct dirent *entry = is_synced ? readdir(list) : NULL; entry; entry = readdir(list))
            if (parse_name(entry->d_name, &at, &rest) && at <= step && (strcmp(rest, ".new") == 0 || strcmp(rest, ".old") == 0))
                remove_folder(dirfd(list), entry->d_name);
    }
    if (list)
        closedir(list);
    free(ordered.newest);
}

/* What a killed save has left in a lower layer of an overlayfs has no other name ever, but the files of this save can go into
 * a folder of the upper one, which then takes its place. */
static bool make_movable(const char *from, const char *aside)
{
    remove_folder(AT_FDCWD, aside);
    DIR *list = mkdir(aside, 0777) == 0 ? opendir(from) : NULL;
    const int folder = list ? open(aside, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool moved = folder >= 0;
    for (const struct dirent *entry = moved ? readdir(list) : NULL; moved && entry; entry = readdir(list))
        moved = !is_ours(entry->d_name) || renameat(dirfd(list), entry->d_name, folder, entry->d_name) == 0;
    moved = moved && eo_checkpoint_sync(folder);
    if (folder >= 0)
        close(folder);
    if (list)
        closedir(list);
    moved = moved && rmdir(from) == 0 && rename(aside, from) == 0;
    if (!moved)
        errno = EXDEV; /* as it was found */
    return moved;
}

/* Where a checkpoint of the same step, of an earlier run, is now that the new one has its name. */
enum earlier { EARLIER_NONE, EARLIER_EXCHANGED /* its name is the new one's before */, EARLIER_ASIDE /* ".old" */ };

static bool exchange(const char *from, const char *to)
{
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0;
}

static void make_aside_name(char old[CHECKPOINT_PATH_MAX + 8], const char *to)
{
    snprintf(old, CHECKPOINT_PATH_MAX + 8, "%s.old", to);
}

/* The earlier one goes only when the new one has its name. Where names cannot be exchanged it is called ".old" in between, and
 * goes with what is unfinished. */
static eo_status give_name(const char *from, const char *to, enum earlier *earlier, struct checkpoint_error *error)
{
    char old[CHECKPOINT_PATH_MAX + 8];
    make_aside_name(old, to);
    *earlier = EARLIER_NONE;
    if (rename(from, to) == 0 || (errno == EXDEV && make_movable(from, old) && rename(from, to) == 0))
        return EO_OK;
    if (errno == EEXIST || errno == ENOTEMPTY) {
        if (exchange(from, to)) {
            *earlier = EARLIER_EXCHANGED;
            return EO_OK;
        }
        if (errno == EXDEV) { /* overlayfs, as above; the new one is on the disk */
            remove_folder(AT_FDCWD, to);
            if (rename(from, to) == 0)
                return EO_OK;
        }
        if (errno == EINVAL || errno == ENOSYS) {
            remove_folder(AT_FDCWD, old);
            if (rename(to, old) == 0 && rename(from, to) == 0) {
                *earlier = EARLIER_ASIDE;
                return EO_OK;
            }
            const int reason = errno;
            (void)rename(old, to); /* if it has left its name */
            errno = reason;
        }
    }
    return eo_checkpoint_io_error(error, errno, "checkpoint: cannot rename %s to %s", from, to);
}

/* For a save that has failed late: the earlier one is what it was, and the new one what is to be discarded. */
static void take_name_back(const char *from, const char *to, enum earlier earlier)
{
    char old[CHECKPOINT_PATH_MAX + 8];
    make_aside_name(old, to);
    if (earlier == EARLIER_EXCHANGED)
        (void)exchange(from, to);
    if (earlier == EARLIER_ASIDE && rename(to, from) == 0)
        (void)rename(old, to);
}

eo_status eo_checkpoint_commit(const char *folder, const struct checkpoint_tables *tables, uint32_t keep,
                               struct checkpoint_error *error)
{
    const uint64_t step = tables->head->step;
    enum earlier earlier;
    char from[CHECKPOINT_PATH_MAX], to[CHECKPOINT_PATH_MAX];
    EO_TRY(eo_checkpoint_path(from, folder, step, ".new", error));
    EO_TRY(eo_checkpoint_path(to, folder, step, "", error));
    remove_strangers(from, tables->head->rank_count);
    EO_TRY(write_manifest(folder, tables, error));
    EO_TRY(eo_checkpoint_sync_folder(from, error));
    EO_TRY(give_name(from, to, &earlier, error));
    eo_status status = eo_checkpoint_sync_folder(folder, error);
    if (status >= 0 && has_manifest(AT_FDCWD, to) == 0) /* fusefat: older ones must stay then */
        status = eo_checkpoint_io_error(error, 0,
                                        "checkpoint: %s has lost its files with its new name: this file system cannot "
                                        "rename folders; choose another",
                                        to);
    if (status >= 0)
        remove_old(folder, step, keep, error);
    else
        take_name_back(from, to, earlier);
    return status;
}
