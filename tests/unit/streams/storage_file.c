/* SPDX-License-Identifier: MIT
 *
 * Goal: a job that looks for left files between the making and the locking of another job's file takes only a name, and the
 *       other makes a new file; a file under a lock, or of another form, is never removed. Each is rewritten in place, where
 *       the file system would write elsewhere.
 * Method: the source, on a file system without unnamed files, with a lock of ours between it and the system.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    int thefts;  /* so many of the next locks come after another job's look */
    int refusal; /* errno of all locks; 0: none */
    bool counts_nothing; /* no file has a name, by its count of them */
    int flags;   /* of the last file, as btrfs keeps them */
    char folder[32];
} scene;

static int lock_with_thief(int fd, int way);

static int open_without_unnamed(const char *path, int flags, mode_t mode)
{
    (void)path, (void)flags, (void)mode;
    errno = EOPNOTSUPP;
    return -1;
}

/* btrfs takes the flag while nothing is in the file, and not beside that of compression. */
static int flags_of_btrfs(int fd, unsigned long request, int *flags)
{
    struct stat info;
    const bool takes = fstat(fd, &info) == 0 && info.st_size == 0 && !(*flags & FS_NOCOW_FL && *flags & FS_COMPR_FL);
    if (request == FS_IOC_GETFLAGS)
        *flags = scene.flags;
    else if (takes)
        scene.flags = *flags;
    return request == FS_IOC_GETFLAGS || takes ? 0 : -1;
}

static int look_without_count(int fd, struct stat *info)
{
    const int result = fstat(fd, info);
    if (scene.counts_nothing)
        info->st_nlink = 0;
    return result;
}

#define open open_without_unnamed
#define fstat(fd, info) look_without_count(fd, info)
#define ioctl(fd, request, flags)   flags_of_btrfs(fd, request, flags)
#define flock(fd, way) lock_with_thief(fd, way)
#define eo_storage_file_open file_open
#define eo_storage_file_remove_left remove_left
#include "streams/cpu/storage_file.c" /* NOLINT */
#undef open
#undef flock
#undef fstat
#undef ioctl

static int lock_with_thief(int fd, int way)
{
    if (scene.refusal) {
        errno = scene.refusal;
        return -1;
    }
    if (scene.thefts > 0 && !(way & LOCK_NB)) {
        scene.thefts--;
        cr_assert_eq(remove_left(scene.folder), 1, "before its lock it is like a left one");
    }
    return flock(fd, way);
}

static void scene_open(void)
{
    memset(&scene, 0, sizeof(scene));
    strcpy(scene.folder, "storage-file.XXXXXX");
    cr_assert_not_null(mkdtemp(scene.folder));
}

static uint32_t name_count(void)
{
    uint32_t count = 0;
    DIR *entries = opendir(scene.folder);
    while (readdir(entries))
        count++;
    closedir(entries);
    return count - 2; /* itself and its parent */
}

static void scene_close(void)
{
    cr_assert_eq(rmdir(scene.folder), 0, "%s is not empty", scene.folder);
}

/* A file as a killed job leaves it. */
static int make_left(const char *name, mode_t mode)
{
    char path[80];
    snprintf(path, sizeof(path), "%s/%s", scene.folder, name);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL, mode);
    cr_assert(fd >= 0 && fchmod(fd, mode) == 0);
    return fd;
}

static void remove_name(const char *name)
{
    char path[80];
    snprintf(path, sizeof(path), "%s/%s", scene.folder, name);
    cr_assert_eq(unlink(path), 0);
}

Test(storage_file, a_file_whose_name_was_taken_is_made_again)
{
    for (int thefts = 0; thefts < 16; thefts += 5) {
        scene_open();
        scene.thefts = thefts;
        const int fd = file_open(scene.folder, 0);
        cr_assert(fd >= 0 && scene.thefts == 0 && name_count() == 0, "%d thefts", thefts);
        cr_assert_eq(pwrite(fd, "byte", 4, 0), 4);
        close(fd);
        scene_close();
    }
    scene_open();
    scene.thefts = 1000;
    cr_assert(file_open(scene.folder, 0) < 0 && errno == EBUSY);
    scene_close();
}

Test(storage_file, a_left_file_is_removed_once_its_lock_is_free)
{
    scene_open();
    const int fd = make_left("evenodd-offload-aB3dE6.tmp", 0600);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    cr_assert(remove_left(scene.folder) == 0 && name_count() == 1, "its job lives");
    close(fd);
    scene.refusal = ENOLCK;
    cr_assert(remove_left(scene.folder) == 0 && name_count() == 1, "nobody knows whether its job lives");
    scene.refusal = 0;
    cr_assert(remove_left(scene.folder) == 1 && name_count() == 0);
    scene_close();
    cr_assert_eq(remove_left(scene.folder), 0, "no such folder");
}

Test(storage_file, what_is_not_of_its_form_stays)
{
    static const struct {
        const char *name;
        mode_t mode;
    } others[] = {
        {"evenodd-offload-aB3dE.tmp", 0600},   {"evenodd-offload-aB3dE67.tmp", 0600}, {"evenodd-offload-aB3dE6", 0600},
        {"evenodd-offload-aB3dE6.tmp2", 0600}, {"evenodd-offload-aB-dE6.tmp", 0600},  {".evenodd-offload-aB3dE6.tmp", 0600},
        {"evenodd-offload-aB3dE8.tmp", 0644},
    };
    enum { OTHERS = sizeof(others) / sizeof(others[0]) };
    scene_open();
    for (size_t i = 0; i < OTHERS; i++)
        close(make_left(others[i].name, others[i].mode));
    close(make_left("evenodd-offload-000000.tmp", 0600));
    cr_assert_eq(remove_left(scene.folder), 1);
    for (size_t i = 0; i < OTHERS; i++)
        remove_name(others[i].name);
    scene_close();
}

Test(storage_file, without_locks_a_file_is_made_all_the_same)
{
    scene_open();
    scene.refusal = ENOLCK;
    const int fd = file_open(scene.folder, 0);
    cr_assert(fd >= 0 && name_count() == 0);
    close(fd);
    scene_close();
}

Test(storage_file, a_file_is_rewritten_in_place)
{
    scene_open();
    scene.flags = FS_COMPR_FL | FS_NOATIME_FL; /* of a folder whose files are compressed */
    const int fd = file_open(scene.folder, 0);
    cr_assert(fd >= 0 && scene.flags == (FS_NOCOW_FL | FS_NOATIME_FL), "%x", (unsigned)scene.flags);
    close(fd);
    scene_close();
}

Test(storage_file, where_names_are_not_counted_a_file_is_made_all_the_same)
{
    scene_open();
    scene.counts_nothing = true;
    const int fd = file_open(scene.folder, 0);
    cr_assert(fd >= 0 && name_count() == 0);
    close(fd);
    scene_close();
}
