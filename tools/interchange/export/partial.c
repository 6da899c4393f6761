/* SPDX-License-Identifier: MIT
 *
 * What an export is called until it is whole: PATH.evenodd-export- and the number of its process, under a lock for as long as
 * the process lives. One that nobody has locked was left by a process that was killed, on whichever host that was, and the
 * next export to the same path removes it. So no file of a user may have such a name: nobody types it by chance, and
 * --export refuses it. Where the file system has no locks, nothing is removed. Of a folder its first
 * file of weights is locked, and the folder itself until that is there: NFS tells other hosts of locks on files alone.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/interchange/export/export.h"

static const char suffix[] = ".evenodd-export-";

static bool ends_in(const char *name, const char *end)
{
    const size_t length = strlen(name), wanted = strlen(end);
    return length >= wanted && strcmp(name + length - wanted, end) == 0;
}

static bool is_number(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

void tool_export_name_partial(struct tool_export *export)
{
    snprintf(export->partial, sizeof(export->partial), "%s%s%ld", export->path, suffix, (long)getpid());
}

bool tool_export_is_partial(const char *path)
{
    const char *last = NULL;
    for (const char *at = path; (at = strstr(at, suffix)); at++)
        last = at;
    return last && is_number(last + sizeof(suffix) - 1);
}

/* A file for writing: some file systems lock no other. */
static int open_to_lock(int parent, const char *name)
{
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, file = openat(parent, name, O_RDWR | flags);
    return file >= 0 || errno != EISDIR ? file : openat(parent, name, O_RDONLY | O_DIRECTORY | flags);
}

eo_status tool_export_lock(struct tool_export *export, struct tool_problem *problem)
{
    export->lock = open_to_lock(AT_FDCWD, export->partial);
    if (export->lock >= 0 && (flock(export->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK))
        return EO_OK;
    return tool_problem_set(problem, EO_ERR_IO, "%s: cannot be locked: %s; is another run exporting to the same path?",
                            export->partial, strerror(errno));
}

/* After the first file of a folder is made: its lock is that of the folder from here on. */
eo_status tool_export_lock_file(struct tool_export *export, struct tool_problem *problem)
{
    const int of_folder = export->lock;
    export->lock = dup(export->files[0].file); /* it outlives the file, which is closed before the folder has its name */
    const bool locked = export->lock >= 0 && (flock(export->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
    close(of_folder);
    if (locked)
        return EO_OK;
    return tool_problem_set(problem, EO_ERR_IO, "%s: cannot be locked: %s", export->partial, strerror(errno));
}

/* Whether a file of weights in it is locked. */
static bool is_being_written(int partial)
{
    bool is_locked = false;
    DIR *folder = fdopendir(openat(partial, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (const struct dirent *entry; !is_locked && folder && (entry = readdir(folder));) {
        const int file = ends_in(entry->d_name, ".safetensors") ? open_to_lock(partial, entry->d_name) : -1;
        is_locked = file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0;
        if (file >= 0)
            close(file);
    }
    if (folder)
        closedir(folder);
    return is_locked;
}

static bool is_own_name(const char *name)
{
    const char *const *other = tool_export_other_names();
    while (*other && strcmp(name, *other) != 0)
        other++;
    return *other || ends_in(name, ".safetensors");
}

/* Files of ours; what else lies there keeps the folder. */
static bool remove_locked(int parent, const char *name, int partial)
{
    struct stat info;
    if (fstat(partial, &info) != 0 || !(S_ISDIR(info.st_mode) || S_ISREG(info.st_mode)))
        return false;
    if (S_ISREG(info.st_mode))
        return unlinkat(parent, name, 0) == 0;
    if (is_being_written(partial))
        return false;
    DIR *folder = fdopendir(dup(partial));
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (is_own_name(entry->d_name))
            unlinkat(partial, entry->d_name, 0);
    if (folder)
        closedir(folder);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

static bool is_partial_of(const char *name, const char *base)
{
    const size_t length = strlen(base), digits = length + sizeof(suffix) - 1;
    return strncmp(name, base, length) == 0 && strncmp(name + length, suffix, sizeof(suffix) - 1) == 0 &&
           is_number(name + digits);
}

void tool_export_remove_left(const char *parent, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    DIR *folder = opendir(parent);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!is_partial_of(entry->d_name, base))
            continue;
        const int partial = open_to_lock(dirfd(folder), entry->d_name);
        if (partial < 0)
            continue;
        if (flock(partial, LOCK_EX | LOCK_NB) == 0 && remove_locked(dirfd(folder), entry->d_name, partial))
            fprintf(stderr, "%s: removed %s/%s, left by an unfinished export\n",
                    program_invocation_short_name, parent, entry->d_name);
        close(partial);
    }
    if (folder)
        closedir(folder);
}
