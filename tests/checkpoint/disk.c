/* SPDX-License-Identifier: MIT */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

char folder[256];

/* The linker puts the second in fallocate's place: without it, writes are what fails. In the same way, file systems that
 * cannot exchange names, have no locks, or rename slowly. */
int __real_fallocate(int file, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int file, int mode, off_t offset, off_t bytes);
long __real_syscall(long number, ...); /* renameat2, which musl does not have */
long __wrap_syscall(long number, ...);
int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_flock(int file, int operation);
int __wrap_flock(int file, int operation);
int __real_fsync(int file);
int __wrap_fsync(int file);
atomic_int sync_count;
ino_t left_below;
bool has_no_fallocate, has_no_exchange, has_no_locks, has_layers, renames_slowly, loses_files, syncs_no_renames,
    syncs_no_second_save, keeps_old_names;

int __wrap_fallocate(int file, int mode, off_t offset, off_t bytes)
{
    if (!has_no_fallocate)
        return __real_fallocate(file, mode, offset, bytes);
    errno = EOPNOTSUPP;
    return -1;
}

/* On an overlayfs whose lower layer has the checkpoints: those that have their names keep them. */
static bool is_of_lower_layer(const char *from)
{
    if (has_layers && !strstr(from, ".new"))
        errno = EXDEV;
    return has_layers && !strstr(from, ".new");
}

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number != SYS_renameat2 || (!has_no_exchange && !has_layers))
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    errno = has_layers ? EXDEV : EINVAL;
    return -1;
}

int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    if (keeps_old_names)
        errno = EPERM;
    return keeps_old_names || is_of_lower_layer(from) ? -1 : __real_renameat(from_folder, from, to_folder, to);
}

int __wrap_rename(const char *from, const char *to)
{
    struct stat info;
    if (renames_slowly)
        usleep(30000);
    if (left_below && stat(from, &info) == 0 && info.st_ino == left_below) {
        errno = EXDEV;
        return -1;
    }
    if (is_of_lower_layer(from) || __real_rename(from, to) != 0)
        return -1;
    char manifest[400];
    snprintf(manifest, sizeof(manifest), "%s/manifest", to);
    return loses_files ? unlink(manifest) : 0;
}

int __wrap_flock(int file, int operation)
{
    if (!has_no_locks)
        return __real_flock(file, operation);
    errno = ENOLCK;
    return -1;
}

static bool has_manifest_of(const char *suffix)
{
    char path[400], behind[32];
    snprintf(behind, sizeof(behind), "%s/manifest", suffix);
    step_path(path, sizeof(path), 1, behind);
    return access(path, F_OK) == 0;
}

/* Of step 1: the folder, while it has both the earlier checkpoint and the new one. */
static bool ends_second_save(int file)
{
    struct stat info, of_folder;
    return fstat(file, &info) == 0 && stat(folder, &of_folder) == 0 && info.st_ino == of_folder.st_ino && has_manifest_of("") &&
           (has_manifest_of(".new") || has_manifest_of(".old"));
}

int __wrap_fsync(int file)
{
    char old[400];
    atomic_fetch_add(&sync_count, 1);
    step_path(old, sizeof(old), 1, ".old");
    if ((!syncs_no_renames || access(old, F_OK) != 0) && (!syncs_no_second_save || !ends_second_save(file)))
        return __real_fsync(file);
    errno = EIO;
    return -1;
}

bool write_text_to(const char *path, const char *text)
{
    const int file = open(path, O_WRONLY | O_CREAT, 0600);
    const bool good = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0)
        close(file);
    return good;
}

/* In a namespace of mounts of our own; who is not root is made so in a namespace of users. */
static bool enter_namespace(void)
{
    char map[64];
    const unsigned user = getuid(), group = getgid();
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return false;
        (void)write_text_to("/proc/self/setgroups", "deny");
        snprintf(map, sizeof(map), "0 %u 1", user);
        if (!write_text_to("/proc/self/uid_map", map))
            return false;
        snprintf(map, sizeof(map), "0 %u 1", group);
        if (!write_text_to("/proc/self/gid_map", map))
            return false;
    }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", folder, "tmpfs", 0, "size=16m") == 0;
}

bool in_child(void (*body)(void), bool mounts)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (mounts && !enter_namespace())
            _exit(CHILD_SKIPS);
        body();
        fflush(stdout);
        _exit(atomic_load(tap_notes()) > 0);
    }
    int status = 0;
    CHECK_THAT(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_SKIPS)
        return false;
    CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

void clear_folder(void)
{
    char command[300];
    snprintf(command, sizeof(command), "rm -rf '%s'/step-*", folder);
    CHECK_THAT(system(command) == 0);
}

void step_path(char *path, size_t bytes, uint64_t step, const char *suffix)
{
    snprintf(path, bytes, "%s/step-%012llu%s", folder, (unsigned long long)step, suffix);
}
