/* SPDX-License-Identifier: MIT
 *
 * The folder that checkpoints are written to: a step saved once more where names cannot be exchanged or renamed, a second run
 * in it, and folders that cannot be made, written to or locked.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/own_files.h"
#include "disk.h"
#include "runtime/checkpoint/files.h"

static const struct saved_settings small = {.ranks = 2, .body_rows = 3};

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

static void is_whole_with(const char *wanted)
{
    char blob[8] = "", path[400];
    uint32_t bytes = sizeof(blob);
    eo_checkpoint *checkpoint;
    snprintf(path, sizeof(path), "%s/step-000000000001", folder);
    if (eo_checkpoint_open(&checkpoint, path, &saved_log) < 0) {
        tap_note(__FILE__, __LINE__, "%s", saved_log_text());
        return;
    }
    CHECK_THAT(eo_checkpoint_verify(checkpoint) == EO_OK);
    CHECK_THAT(eo_checkpoint_blob(checkpoint, 1, blob, &bytes) == EO_OK && bytes == 3 && memcmp(blob, wanted, 3) == 0);
    eo_checkpoint_close(&checkpoint);
}

static void without_exchange(void)
{
    clear_folder();
    has_no_exchange = true;
    (void)saved_run(&small, saves_twice, NULL);
    has_no_exchange = false;
    is_whole_with("new");
}

static void fails_to_save_again(struct saved_rank *self)
{
    double meet = 0;
    saved_initialise(self);
    saved_steps(self, 1);
    CHECK_THAT(saved_save(self, folder, 0, "old", 3) == EO_OK);
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
    syncs_no_second_save = true;
    CHECK_THAT(saved_save(self, folder, 0, "new", 3) == EO_ERR_IO);
}

/* The disk fails when the new one has its name. */
static void late_failure(bool exchanges)
{
    char path[400];
    clear_folder();
    has_no_exchange = !exchanges;
    (void)saved_run(&small, fails_to_save_again, NULL);
    has_no_exchange = syncs_no_second_save = false;
    is_whole_with("old");
    step_path(path, sizeof(path), 1, ".new/manifest");
    CHECK_THAT(access(path, F_OK) != 0);
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

/* As in a folder of immutable ones. The save is done, and a warning names what --keep would have removed. */
static void saves_beside_what_stays(struct saved_rank *self)
{
    saved_initialise(self);
    for (uint64_t step = 1; step <= 2; step++) {
        saved_steps(self, step);
        CHECK_THAT(saved_save(self, folder, 1, NULL, 0) == EO_OK);
    }
}

static void old_names_stay(void)
{
    char path[400];
    clear_folder();
    saved_log_clear();
    keeps_old_names = true;
    CHECK_THAT(saved_run(&small, saves_beside_what_stays, NULL));
    keeps_old_names = false;
    for (uint64_t step = 1; step <= 2; step++) {
        step_path(path, sizeof(path), step, "/manifest");
        CHECK_THAT(access(path, F_OK) == 0);
    }
    CHECK_THAT(strstr(saved_log_text(), "/step-000000000001 is old and stays: cannot rename it: "));
    clear_folder();
}

static void saves_where_files_get_lost(struct saved_rank *self)
{
    double meet = 0;
    saved_initialise(self);
    saved_steps(self, 1);
    CHECK_THAT(saved_save(self, folder, 1, NULL, 0) == EO_OK);
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
    loses_files = true;
    saved_steps(self, 2);
    CHECK_THAT(saved_save(self, folder, 1, NULL, 0) == EO_ERR_IO);
}

/* As fusefat loses them. */
static void losing_files(void)
{
    char path[400];
    clear_folder();
    saved_log_clear();
    (void)saved_run(&small, saves_where_files_get_lost, NULL);
    loses_files = false;
    step_path(path, sizeof(path), 1, "/manifest");
    CHECK_THAT(access(path, F_OK) == 0 && strstr(saved_log_text(), "this file system cannot rename folders"));
    clear_folder();
}

/* Checkpoints as a run leaves them that kept all. */
static void saves_beside_many(struct saved_rank *self)
{
    enum { OLD = 200 };
    char path[400];
    struct stat info;
    double meet = 0;
    saved_initialise(self);
    saved_steps(self, OLD + 1);
    for (uint64_t step = 1; step <= OLD && self->rank == 0; step++) {
        step_path(path, sizeof(path), step, "");
        CHECK_THAT(mkdir(path, 0700) == 0);
        step_path(path, sizeof(path), step, "/manifest");
        CHECK_THAT(write_text_to(path, "old"));
    }
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
    atomic_store(&sync_count, 0);
    CHECK_THAT(saved_save(self, folder, 2, NULL, 0) == EO_OK);
    CHECK_THAT(atomic_load(&sync_count) <= 10);
    for (uint64_t step = 1; step <= OLD && self->rank == 0; step++) {
        step_path(path, sizeof(path), step, "");
        CHECK_THAT((stat(path, &info) == 0) == (step == OLD));
    }
}

static void among_many(void)
{
    clear_folder();
    (void)saved_run(&small, saves_beside_many, NULL);
    clear_folder();
}

static void saves_without_synced_renames(struct saved_rank *self)
{
    saved_initialise(self);
    for (uint64_t step = 1; step <= 2; step++) {
        saved_steps(self, step);
        syncs_no_renames = step == 2;
        CHECK_THAT(saved_save(self, folder, 1, NULL, 0) == EO_OK);
    }
}

static void saves_step_3(struct saved_rank *self)
{
    saved_initialise(self);
    saved_steps(self, 3);
    CHECK_THAT(saved_save(self, folder, 1, NULL, 0) == EO_OK);
}

/* After a loss of power the old folder may have its name back: then it must be whole. */
static void unsynced_renames(void)
{
    char path[400];
    clear_folder();
    (void)saved_run(&small, saves_without_synced_renames, NULL);
    syncs_no_renames = false;
    step_path(path, sizeof(path), 1, ".old/manifest");
    CHECK_THAT(access(path, F_OK) == 0);
    (void)saved_run(&small, saves_step_3, NULL);
    step_path(path, sizeof(path), 1, ".old");
    CHECK_THAT(access(path, F_OK) != 0 && saved_folder_hash(folder) != 0);
    clear_folder();
}

static atomic_bool is_interrupted;

static void do_nothing(int number)
{
    (void)number;
}

/* A trainer's timer, say. */
static void *interrupt_often(void *thread)
{
    while (atomic_load(&is_interrupted)) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        usleep(1000);
    }
    return NULL;
}

/* The end of the first one is waited for during seconds. */
static void refuse_second_run(struct saved_rank *self)
{
    pthread_t other = pthread_self(), own = other;
    eo_saver *second;
    const time_t begin = time(NULL);
    saved_log_clear();
    atomic_store(&is_interrupted, true);
    CHECK_THAT(signal(SIGUSR1, do_nothing) != SIG_ERR && pthread_create(&other, NULL, interrupt_often, &own) == 0);
    CHECK_THAT(eo_saver_create(&second, eo_saver_params(.runtime = self->runtime, .folder = folder)) == EO_ERR_INVALID &&
               !second);
    atomic_store(&is_interrupted, false);
    CHECK_THAT(pthread_join(other, NULL) == 0 && time(NULL) - begin >= 4);
    CHECK_THAT(strstr(saved_log_text(), "another run writes checkpoints there (process "));
}

/* The kernel keeps a lock until all have closed the file: a data loader may outlive a rank that is killed. */
static bool child_has_lock(void)
{
    int status = 1;
    const pid_t child = fork();
    if (child == 0) {
        char path[300], target[300] = "";
        bool has = false;
        for (int fd = 0; fd < 100; fd++) {
            snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
            const ssize_t bytes = readlink(path, target, sizeof(target));
            has = has || (bytes > 6 && memcmp(target + bytes - 6, "/.lock", 6) == 0);
        }
        _exit(has);
    }
    return waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* Rank 0's is the saver that locks; the other run's is one of a second saver here. */
static void second_run(struct saved_rank *self)
{
    eo_saver *first, *second;
    saved_initialise(self);
    CHECK_THAT(eo_saver_create(&first, eo_saver_params(.runtime = self->runtime, .folder = folder)) == EO_OK);
    if (self->rank == 0)
        refuse_second_run(self);
    CHECK_THAT(self->rank != 0 || !child_has_lock());
    const pid_t child = self->rank == 0 ? fork() : -1; /* a data loader, say */
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

/* A data loader that another thread forks just when the lock is opened. */
static int loader_told = -1;

void __real_eo_own_files_begin(void);
void __wrap_eo_own_files_begin(void);
void __wrap_eo_own_files_begin(void)
{
    const int tell = loader_told;
    const pid_t loader = tell >= 0 ? fork() : -1;
    if (loader == 0) {
        close(tell);
        alarm(60);
        for (;;)
            pause();
    }
    loader_told = -1;
    if (loader > 0 && write(tell, &loader, sizeof(loader)) != sizeof(loader))
        _exit(1);
    __real_eo_own_files_begin();
}

/* As another run has it, which began when this one's folder had been moved. */
static int lock_as_another(const char *path)
{
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0 ? file : -1;
}

static void folder_is_moved(void)
{
    struct checkpoint_error error = {""};
    char path[400], moved[400], moved_lock[408];
    int lock = -1;
    clear_folder();
    snprintf(path, sizeof(path), "%s/.lock", folder);
    snprintf(moved, sizeof(moved), "%s.moved", folder);
    snprintf(moved_lock, sizeof(moved_lock), "%s/.lock", moved);
    CHECK_THAT(eo_checkpoint_lock(&lock, folder, &saved_log, &error) == EO_OK && lock >= 0);
    CHECK_THAT(eo_checkpoint_keep_lock(&lock, folder, &error) == EO_OK && lock_as_another(path) < 0);
    CHECK_THAT(rename(folder, moved) == 0);
    CHECK(eo_checkpoint_keep_lock(&lock, folder, &error) == EO_OK && lock >= 0, "%s", error.text);
    CHECK_THAT(lock_as_another(path) < 0); /* locked where it saves, and no longer elsewhere */
    const int old = lock_as_another(moved_lock);
    CHECK_THAT(old >= 0 && close(old) == 0 && unlink(moved_lock) == 0 && rmdir(moved) == 0);
    CHECK_THAT(unlink(path) == 0);
    const int other = lock_as_another(path);
    for (int i = 0; i < 2; i++) /* as often as it is asked */
        CHECK_THAT(eo_checkpoint_keep_lock(&lock, folder, &error) == EO_ERR_IO && lock == CHECKPOINT_LOCK_LOST &&
                   strstr(error.text, "another run writes checkpoints there, since the folder of this one was moved"));
    CHECK_THAT(other >= 0 && close(other) == 0);
    CHECK(eo_checkpoint_keep_lock(&lock, folder, &error) == EO_OK && lock >= 0, "%s", error.text);
    eo_checkpoint_unlock(lock);
    lock = -1; /* it never could be locked */
    CHECK_THAT(eo_checkpoint_keep_lock(&lock, folder, &error) == EO_OK && lock == -1);
}

/* Of a rank that is killed then, the loader goes on. */
static void lock_beside_a_fork(void)
{
    struct checkpoint_error error = {""};
    int told[2], lock = -1;
    pid_t loader = -1;
    char locked = 0;
    CHECK_THAT(pipe(told) == 0);
    const pid_t rank = fork();
    if (rank == 0) {
        alarm(60);
        loader_told = told[1];
        if (eo_checkpoint_lock(&lock, folder, &saved_log, &error) < 0 || lock < 0 || write(told[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(told[1]);
    CHECK_THAT(read(told[0], &loader, sizeof(loader)) == sizeof(loader) && read(told[0], &locked, 1) == 1);
    CHECK_THAT(kill(rank, SIGKILL) == 0 && waitpid(rank, NULL, 0) == rank);
    CHECK(eo_checkpoint_lock(&lock, folder, &saved_log, &error) == EO_OK && lock >= 0, "%s", error.text);
    eo_checkpoint_unlock(lock);
    close(told[0]);
    if (loader > 0)
        (void)kill(loader, SIGKILL);
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
    CHECK_THAT(strstr(saved_log_text(), "cannot read and write the folder ") && strstr(saved_log_text(), "Permission denied"));
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

void checkpoint_folder_cases(void)
{
    saved_folder_make(folder, sizeof(folder));
    without_exchange();
    tap_case("where names cannot be exchanged, a step that is saved again replaces the old one all the same");
    late_failure(true);
    late_failure(false);
    tap_case("a save whose last wait for the disk fails leaves the earlier checkpoint of that step as it was");
    over_layers();
    tap_case("checkpoints of an overlayfs' lower layer, which cannot be renamed, are removed and replaced where they lie");
    left_in_a_layer();
    tap_case("what a killed save left in such a layer does not keep the next save of that step from its name");
    old_names_stay();
    tap_case("an old checkpoint that cannot be renamed stays, which a warning says");
    losing_files();
    tap_case("a checkpoint whose files are lost with its new name is a failed save, and the one before stays");
    among_many();
    tap_case("hundreds of checkpoints beyond those to be kept go by a few waits for the disk");
    unsynced_renames();
    tap_case("an old checkpoint whose new name may not be on the disk stays whole until the next save");
    (void)saved_run(&small, second_run, NULL);
    tap_case(
        "a second run that would write to the same folder is refused, until the first one has ended, whatever that has forked");
    lock_beside_a_fork();
    tap_case("a child forked while the folder is being locked does not keep it locked");
    folder_is_moved();
    tap_case("a folder that was moved, or lost its lock, is locked anew, and left alone where another run has it");
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
    saved_folder_remove(folder);
}
