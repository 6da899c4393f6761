/* SPDX-License-Identifier: MIT
 *
 * Disks that fail: full at every write, read-only, unwritable; and processes that are killed while they write. The
 * checkpoint before is as it was, the error says what and where, and training goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "saved_training.h"

static const struct saved_settings small = {.ranks = 2, .body_rows = 3};
static char folder[256];

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
static ino_t left_below; /* a folder of an overlayfs' lower layer */
static bool has_no_fallocate, has_no_exchange, has_no_locks, has_layers, renames_slowly;

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
    return is_of_lower_layer(from) ? -1 : __real_renameat(from_folder, from, to_folder, to);
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
    return is_of_lower_layer(from) ? -1 : __real_rename(from, to);
}

int __wrap_flock(int file, int operation)
{
    if (!has_no_locks)
        return __real_flock(file, operation);
    errno = ENOLCK;
    return -1;
}

/* -- a file system of our own --------------------------------------------------------------------------------------*/

static bool write_text_to(const char *path, const char *text)
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

enum { CHILD_SKIPS = 77 };

/* Runs a case in a process of its own. False: there is no file system for it. */
static bool in_child(void (*body)(void), bool mounts)
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

static void report_or_skip(bool ran, const char *name)
{
    if (ran)
        tap_case(name);
    else
        tap_skip(name, "needs a tmpfs of its own: root, or namespaces of users");
}

/* -- one save after another ----------------------------------------------------------------------------------------*/

struct disk_story {
    void (*spoil)(void *user, uint32_t rank); /* before the second save, by rank 0 */
    void (*mend)(void *user);
    void *user;
    bool saved;          /* the second */
    char why[1024];
};

/* A good save, a spoilt one, steps in between, a good one again. */
static void three_saves(struct saved_rank *self)
{
    struct disk_story *story = self->shared;
    eo_saver *saver = NULL;
    eo_saver_report report;
    double meet = 0;
    saved_initialise(self);
    saved_steps(self, 1);
    CHECK_THAT(saved_save(self, folder, 0, NULL, 0) == EO_OK);
    CHECK_THAT(eo_saver_create(&saver, eo_saver_params(.runtime = self->runtime, .folder = folder, .log = self->log)) == EO_OK);
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK); /* a spoilt disk may refuse a saver */
    const uint64_t before = self->rank == 0 ? saved_folder_hash(folder) : 1;
    CHECK_THAT(before != 0);
    if (self->rank == 0) {
        saved_log_clear();
        story->spoil(story->user, self->rank);
    }
    saved_steps(self, 2);
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);

    CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_OK);
    saved_steps(self, 3);
    const eo_status status = eo_saver_wait(saver, &report);
    CHECK_THAT(status == EO_OK || status == EO_ERR_IO);
    if (self->rank == 0) {
        story->saved = status == EO_OK;
        snprintf(story->why, sizeof(story->why), "%s", saved_log_text());
        const uint64_t now = saved_folder_hash(folder);
        CHECK_THAT(status == EO_OK ? now != before && now != 0 : now == before);
        story->mend(story->user);
    }
    saved_steps(self, 4);
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
    CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_OK);
    CHECK_THAT(eo_saver_wait(saver, &report) == EO_OK);
    if (self->rank == 0) {
        const uint64_t now = saved_folder_hash(folder);
        CHECK_THAT(now != 0 && now != before);
    }
    eo_saver_destroy(&saver);
}

/* -- full ----------------------------------------------------------------------------------------------------------*/

/* Room for so many more pages, and for so many more files. */
struct room {
    unsigned pages, files;
};

static void leave_room(void *user, uint32_t rank)
{
    const struct room *room = user;
    struct statvfs info;
    char options[64];
    CHECK_THAT(statvfs(folder, &info) == 0);
    snprintf(options, sizeof(options), "size=%llu,nr_inodes=%llu",
             (unsigned long long)(info.f_blocks - info.f_bfree + room->pages) * info.f_frsize,
             (unsigned long long)(info.f_files - info.f_ffree + room->files));
    CHECK_THAT(mount("tmpfs", folder, "tmpfs", MS_REMOUNT, options) == 0);
}

static void make_room(void *user)
{
    CHECK_THAT(mount("tmpfs", folder, "tmpfs", MS_REMOUNT, "size=16m,nr_inodes=10000") == 0);
}

static void clear_folder(void)
{
    char command[300];
    snprintf(command, sizeof(command), "rm -rf '%s'/step-*", folder);
    CHECK_THAT(system(command) == 0);
}

static bool saves_with(struct room room)
{
    struct disk_story story = {.spoil = leave_room, .mend = make_room, .user = &room};
    clear_folder();
    saved_log_clear();
    (void)saved_run(&small, three_saves, &story);
    if (!story.saved && (!strstr(story.why, folder) || !strstr(story.why, "No space left") ||
                         !strstr(story.why, "free some space")))
        tap_note(__FILE__, __LINE__, "%u pages, %u files: not told well: %s", room.pages, room.files, story.why);
    return story.saved;
}

/* From no room at all, a page more each time, until there is enough. */
static void full_at_every_write(void)
{
    for (int without = 0; without < 2; without++) {
        unsigned failed = 0;
        has_no_fallocate = without;
        while (failed < 400 && !saves_with((struct room){failed, 100}))
            failed++;
        CHECK_THAT(failed > 10 && failed < 400);
        failed = 0;
        while (failed < 20 && !saves_with((struct room){1000, failed}))
            failed++;
        CHECK_THAT(failed >= 4 && failed < 20); /* a folder, two files, the manifest */
    }
}

/* -- read-only, unwritable, killed ---------------------------------------------------------------------------------*/

static void make_read_only(void *user, uint32_t rank)
{
    CHECK_THAT(mount("tmpfs", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=16m") == 0);
}

static void make_writable(void *user)
{
    CHECK_THAT(mount("tmpfs", folder, "tmpfs", MS_REMOUNT, "size=16m") == 0);
}

static void read_only(void)
{
    struct disk_story story = {.spoil = make_read_only, .mend = make_writable};
    (void)saved_run(&small, three_saves, &story);
    CHECK_THAT(!story.saved && strstr(story.why, folder) && strstr(story.why, "Read-only file system"));
}

/* A folder lies where rank 1's file is to go; of the other files of that save nothing stays. */
static void put_in_the_way(void *user, uint32_t rank)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/step-000000000002.new", folder);
    CHECK_THAT(mkdir(path, 0700) == 0);
    snprintf(path, sizeof(path), "%s/step-000000000002.new/rank-00001", folder);
    CHECK_THAT(mkdir(path, 0700) == 0);
}

static void take_away(void *user)
{
    char path[400];
    struct stat info;
    snprintf(path, sizeof(path), "%s/step-000000000002.new/rank-00000", folder);
    CHECK_THAT(stat(path, &info) != 0);
}

static void unwritable(void)
{
    struct disk_story story = {.spoil = put_in_the_way, .mend = take_away};
    (void)saved_run(&small, three_saves, &story);
    CHECK_THAT(!story.saved && strstr(story.why, "rank-00001") && strstr(story.why, "cannot create"));
}

/* -- a folder that cannot get its name -----------------------------------------------------------------------------*/

/* A save beside the steps that a trainer goes on with: its status, on all ranks the same. */
static eo_status save_beside(struct saved_rank *self, eo_saver *saver, eo_saver_report *report)
{
    eo_status status = EO_IN_PROGRESS;
    CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_OK);
    while (status == EO_IN_PROGRESS)
        status = saved_step_with(self, saver, report);
    return status;
}

static void step_path(char *path, size_t bytes, uint64_t step, const char *suffix)
{
    snprintf(path, bytes, "%s/step-%012llu%s", folder, (unsigned long long)step, suffix);
}

static void saves_without_a_name(struct saved_rank *self)
{
    char path[400];
    eo_saver *saver = NULL;
    eo_saver_report report;
    saved_initialise(self);
    CHECK_THAT(eo_saver_create(&saver, eo_saver_params(.runtime = self->runtime, .folder = folder, .log = self->log)) == EO_OK);
    if (self->rank == 0) {
        step_path(path, sizeof(path), 2, "");
        const int file = open(path, O_WRONLY | O_CREAT, 0600);
        CHECK_THAT(file >= 0 && close(file) == 0);
        saved_log_clear();
    }
    saved_steps(self, 2);
    CHECK_THAT(save_beside(self, saver, &report) == EO_ERR_IO && report.step == 2 && !report.is_written);
    CHECK_THAT((self->rank == 0) == (strstr(eo_saver_error(saver), "cannot rename") != NULL));
    CHECK_THAT(save_beside(self, saver, &report) == EO_OK && report.step > 2 && report.is_written);
    step_path(path, sizeof(path), report.step, "/manifest");
    CHECK_THAT(access(path, F_OK) == 0); /* it has its name when it is said to be written */
    eo_saver_destroy(&saver);
}

static void nameless(void)
{
    char path[400];
    clear_folder();
    saved_log_clear();
    (void)saved_run(&small, saves_without_a_name, NULL);
    CHECK_THAT(strstr(saved_log_text(), "step-000000000002: Not a directory"));
    step_path(path, sizeof(path), 2, ".new");
    CHECK_THAT(access(path, F_OK) != 0 && saved_folder_hash(folder) != 0);
    clear_folder();
}

/* -- sums that are read late ---------------------------------------------------------------------------------------*/

enum { LATE_ROOM = 3 };

/* A save is over when its folder has its name, and the next one begins at once: sums of the last one are still to come. */
static void saves_by_late_sums(struct saved_rank *self)
{
    char path[400];
    eo_saver *saver = NULL;
    eo_saver_report report = {0};
    const uint64_t late = *(const uint64_t *)self->shared;
    saved_initialise(self);
    CHECK_THAT(eo_saver_create(&saver, eo_saver_params(.runtime = self->runtime, .folder = folder)) == EO_OK);
    saved_steps(self, LATE_ROOM);
    for (int save = 0; save < 6; save++) {
        eo_status status = EO_IN_PROGRESS;
        eo_runtime_stats stats;
        eo_runtime_get_stats(self->runtime, &stats);
        CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_OK);
        for (int steps = 0; status == EO_IN_PROGRESS; steps++) {
            if (save % 3 == 2 && steps == 1)
                usleep(20000); /* all have written: the sums of steps tell it, and outlive the wait */
            status = save % 3 == 2 && steps == 2 ? eo_saver_wait(saver, &report) : saved_step_late(self, saver, late, &report);
        }
        CHECK_THAT(status == EO_OK && report.step == stats.steps && report.is_written);
        step_path(path, sizeof(path), stats.steps, "/manifest");
        CHECK_THAT(access(path, F_OK) == 0);
    }
    eo_saver_destroy(&saver);
}

static void late_sums(void)
{
    renames_slowly = true;
    for (uint64_t late = 0; late <= LATE_ROOM; late++) {
        clear_folder();
        CHECK_THAT(saved_run(&small, saves_by_late_sums, &late));
    }
    renames_slowly = false;
}

static uint64_t hashes[64]; /* of what is saved after each step */
enum { STEPS_SAVED = 12 };

static void saves_each_step(struct saved_rank *self)
{
    const bool told = self->shared != NULL;
    saved_initialise(self);
    for (uint64_t step = 1; step <= STEPS_SAVED; step++) {
        saved_steps(self, step);
        CHECK_THAT(saved_save(self, folder, 2, NULL, 0) == EO_OK);
        if (told && self->rank == 0)
            hashes[step] = saved_folder_hash(folder);
    }
}

static void trains_for_ever(void)
{
    while (true)
        (void)saved_run(&small, saves_each_step, NULL);
}

/* Whatever has a manifest must be what was saved after that step. */
static uint32_t count_whole(void)
{
    char path[400], manifest[420];
    struct stat info;
    uint32_t count = 0;
    for (int step = 1; step <= STEPS_SAVED; step++) {
        snprintf(path, sizeof(path), "%s/step-%012d", folder, step);
        snprintf(manifest, sizeof(manifest), "%s/manifest", path);
        if (stat(manifest, &info) != 0)
            continue;
        CHECK_THAT(saved_folder_hash(path) == hashes[step]);
        count++;
    }
    return count;
}

/*
 * Goal: whenever a process is killed while it writes, every checkpoint that has its name is whole.
 * Method: killed at a time of chance, many times, in one folder; what is found must be what an undisturbed run saved
 *         after that step.
 */
static void killed(void)
{
    int told = 1;
    (void)saved_run(&small, saves_each_step, &told);
    for (int round = 0; round < 20; round++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            trains_for_ever();
            _exit(1);
        }
        usleep((useconds_t)(1000 + round * 7919 % 60000));
        CHECK_THAT(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        CHECK_THAT(count_whole() >= 1);
    }
}

/* -- the same step, the same folder --------------------------------------------------------------------------------*/

static void saves_twice(struct saved_rank *self)
{
    char old[400];
    struct stat info;
    saved_initialise(self);
    saved_steps(self, 1);
    CHECK_THAT(saved_save(self, folder, 0, "old", 3) == EO_OK);
    CHECK_THAT(saved_save(self, folder, 0, "new", 3) == EO_OK);
    snprintf(old, sizeof(old), "%s/step-000000000001.old", folder);
    CHECK_THAT(self->rank != 0 || stat(old, &info) != 0);
}

static void without_exchange(void)
{
    char blob[8] = "", path[400];
    uint32_t bytes = sizeof(blob);
    eo_checkpoint *checkpoint;
    clear_folder();
    has_no_exchange = true;
    (void)saved_run(&small, saves_twice, NULL);
    has_no_exchange = false;
    snprintf(path, sizeof(path), "%s/step-000000000001", folder);
    if (eo_checkpoint_open(&checkpoint, path, &saved_log) < 0) {
        tap_note(__FILE__, __LINE__, "%s", saved_log_text());
        return;
    }
    CHECK_THAT(eo_checkpoint_verify(checkpoint) == EO_OK);
    CHECK_THAT(eo_checkpoint_blob(checkpoint, 1, blob, &bytes) == EO_OK && bytes == 3 && memcmp(blob, "new", 3) == 0);
    eo_checkpoint_close(&checkpoint);
}

static void saves_over_layers(struct saved_rank *self)
{
    saved_initialise(self);
    for (uint64_t step = 1; step <= 2; step++) {
        saved_steps(self, step);
        CHECK_THAT(saved_save(self, folder, 0, NULL, 0) == EO_OK);
    }
    CHECK_THAT(saved_save(self, folder, 1, "new", 3) == EO_OK); /* step 2 again */
}

static void saves_step_twice(struct saved_rank *self)
{
    saved_initialise(self);
    saved_steps(self, 2);
    CHECK_THAT(saved_save(self, folder, 0, NULL, 0) == EO_OK);
    CHECK_THAT(saved_save(self, folder, 0, "again", 5) == EO_OK);
}

static void fails_to_save_step(struct saved_rank *self)
{
    saved_initialise(self);
    saved_steps(self, 2);
    CHECK_THAT(saved_save(self, folder, 0, NULL, 0) == EO_ERR_IO);
}

static void leave_below(const char *name)
{
    char path[400], file[420];
    struct stat info;
    step_path(path, sizeof(path), 2, ".new");
    snprintf(file, sizeof(file), "%s/%s", path, name);
    CHECK_THAT(mkdir(path, 0700) == 0 && write_text_to(file, "left") && stat(path, &info) == 0);
    left_below = info.st_ino;
}

/* Once beside no checkpoint of that step, once beside one; and with another's file in it, which stays. */
static void left_in_a_layer(void)
{
    char path[400];
    clear_folder();
    for (int i = 0; i < 2; i++) {
        leave_below("rank-00000");
        (void)saved_run(&small, saves_step_twice, NULL);
        left_below = 0;
        step_path(path, sizeof(path), 2, ".new");
        CHECK_THAT(access(path, F_OK) != 0 && saved_folder_hash(folder) != 0);
        step_path(path, sizeof(path), 2, ".old");
        CHECK_THAT(access(path, F_OK) != 0);
    }
    const uint64_t before = saved_folder_hash(folder);
    leave_below("notes");
    (void)saved_run(&small, fails_to_save_step, NULL);
    left_below = 0;
    step_path(path, sizeof(path), 2, ".new/notes");
    CHECK_THAT(saved_folder_hash(folder) == before && access(path, F_OK) == 0);
}

static void over_layers(void)
{
    char path[400];
    clear_folder();
    has_layers = true;
    (void)saved_run(&small, saves_over_layers, NULL);
    has_layers = false;
    step_path(path, sizeof(path), 1, "");
    CHECK_THAT(access(path, F_OK) != 0);
    step_path(path, sizeof(path), 2, ".new");
    CHECK_THAT(access(path, F_OK) != 0 && saved_folder_hash(folder) != 0);
}

/* Rank 0's is the saver that locks; the other run's is one of a second saver here. */
static void second_run(struct saved_rank *self)
{
    eo_saver *first, *second;
    saved_initialise(self);
    CHECK_THAT(eo_saver_create(&first, eo_saver_params(.runtime = self->runtime, .folder = folder)) == EO_OK);
    if (self->rank == 0) {
        saved_log_clear();
        CHECK_THAT(eo_saver_create(&second, eo_saver_params(.runtime = self->runtime, .folder = folder)) == EO_ERR_INVALID &&
                   !second);
        CHECK_THAT(strstr(saved_log_text(), "another run writes checkpoints there (process "));
    }
    const pid_t child = self->rank == 0 ? fork() : -1; /* a data loader, say, which has the lock's file open too */
    if (child == 0)
        for (;;)
            pause();
    eo_saver_destroy(&first);
    CHECK_THAT(eo_saver_create(&second, eo_saver_params(.runtime = self->runtime, .folder = folder)) == EO_OK);
    eo_saver_destroy(&second);
    if (child > 0) {
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
    }
}

/* Refused at once, and the runtime goes on. */
static void wants_no_folder(struct saved_rank *self)
{
    static const char *const ways[][2] = {
        {"not/there", "cannot create the folder "}, {"file", "Not a directory"}, {"loop", "Too many levels of symbolic links"}};
    char path[400];
    saved_initialise(self);
    for (size_t i = 0; i < 3 && self->rank == 0; i++) {
        eo_saver *saver;
        snprintf(path, sizeof(path), "%s/%s", folder, ways[i][0]);
        CHECK_THAT(i != 1 || write_text_to(path, "no folder"));
        CHECK_THAT(i != 2 || symlink("loop", path) == 0);
        saved_log_clear();
        CHECK_THAT(eo_saver_create(&saver, eo_saver_params(.runtime = self->runtime, .folder = path)) == EO_ERR_INVALID &&
                   !saver);
        CHECK_THAT(strstr(saved_log_text(), ways[i][1]) && strstr(saved_log_text(), path));
    }
    saved_steps(self, 1);
}

/* Relative to where the trainer was then, not to where it goes. */
static void saves_from_elsewhere(struct saved_rank *self)
{
    eo_saver *saver = NULL;
    double meet = 0;
    saved_initialise(self);
    saved_steps(self, 1);
    CHECK_THAT(eo_saver_create(&saver, eo_saver_params(.runtime = self->runtime, .folder = "relative")) == EO_OK);
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
    CHECK_THAT(self->rank != 0 || (mkdir("elsewhere", 0700) == 0 && chdir("elsewhere") == 0));
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
    CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_OK && eo_saver_wait(saver, NULL) == EO_OK);
    eo_saver_destroy(&saver);
}

static void elsewhere(void)
{
    char path[400];
    CHECK_THAT(chdir(folder) == 0);
    (void)saved_run(&small, saves_from_elsewhere, NULL);
    snprintf(path, sizeof(path), "%s/relative", folder);
    CHECK_THAT(saved_folder_hash(path) != 0);
}

/* Nobody's, where this is root: permissions do not hold root up. */
static void wants_to_write(struct saved_rank *self)
{
    eo_saver *saver = NULL;
    saved_initialise(self);
    CHECK_THAT(eo_saver_create(&saver, eo_saver_params(.runtime = self->runtime, .folder = folder)) == EO_ERR_INVALID &&
               !saver);
    saved_steps(self, 1);
}

static void not_writable(void)
{
    enum { NOBODY = 65534 };
    CHECK_THAT(chmod(folder, 0555) == 0);
    if (getuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        _exit(CHILD_SKIPS);
    saved_log_clear();
    (void)saved_run(&small, wants_to_write, NULL);
    CHECK_THAT(strstr(saved_log_text(), "cannot write to the folder ") && strstr(saved_log_text(), "Permission denied"));
}

static void saves_unlocked(struct saved_rank *self)
{
    saved_initialise(self);
    saved_steps(self, 1);
    CHECK_THAT(saved_save(self, folder, 0, NULL, 0) == EO_OK);
}

static void without_locks(void)
{
    clear_folder();
    saved_log_clear();
    has_no_locks = true;
    (void)saved_run(&small, saves_unlocked, NULL);
    has_no_locks = false;
    CHECK_THAT(strstr(saved_log_text(), "cannot lock ") && saved_folder_hash(folder) != 0);
}

void checkpoint_disk_cases(void)
{
    saved_folder_make(folder, sizeof(folder));
    report_or_skip(in_child(full_at_every_write, true),
                   "a disk that is full at any write: told, the checkpoint before intact, the next one good");
    report_or_skip(in_child(read_only, true), "a file system that becomes read-only: told, and training goes on");
    unwritable();
    tap_case("a file that cannot be created: told with its name, and what others wrote is removed");
    nameless();
    tap_case("a folder that cannot get its name is a failed save on all ranks, and the next one is good");
    late_sums();
    tap_case("sums that are read some steps late end a save neither early nor in place of the next one");
    without_exchange();
    tap_case("where names cannot be exchanged, a step that is saved again replaces the old one all the same");
    over_layers();
    tap_case("checkpoints of an overlayfs' lower layer, which cannot be renamed, are removed and replaced where they lie");
    left_in_a_layer();
    tap_case("what a killed save left in such a layer does not keep the next save of that step from its name");
    (void)saved_run(&small, second_run, NULL);
    tap_case(
        "a second run that would write to the same folder is refused, until the first one has ended, whatever that has forked");
    clear_folder();
    (void)saved_run(&small, wants_no_folder, NULL);
    tap_case("a folder that cannot be made is refused when the saver is created, and training goes on");
    CHECK_THAT(in_child(elsewhere, false));
    tap_case("a relative folder is that of the saver's creation, whatever the current folder is later");
    if (in_child(not_writable, false))
        tap_case("a folder that cannot be written to is refused when the saver is created, on all ranks");
    else
        tap_skip("a folder that cannot be written to is refused when the saver is created", "root is the only user here");
    CHECK_THAT(chmod(folder, 0700) == 0);
    without_locks();
    tap_case("where there are no locks that is said, and checkpoints are written");
    clear_folder();
    killed();
    tap_case("killed while it writes: every checkpoint that has its name is whole");
    saved_folder_remove(folder);
}
