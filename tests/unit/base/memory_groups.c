/* SPDX-License-Identifier: MIT
 *
 * Goal: processes are known to take from the same memory by the control group that limits them, wherever below it they are.
 * Method: folders of files as the kernel writes them, in the place of /proc and /sys: one for each process, with a link to
 * the groups that it sees.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/memory_groups.h"

enum { MACHINE_KIB = 1 << 20, PATH_ROOM = 512 };

static char work[] = "/tmp/memory_groups.XXXXXX";

static void begin(void)
{
    cr_assert(mkdtemp(work));
}

static void end(void)
{
    char command[PATH_ROOM];
    snprintf(command, sizeof(command), "rm -rf %s", work);
    cr_assert_eq(system(command), 0);
}

static void make_folders(const char *path)
{
    char command[PATH_ROOM];
    snprintf(command, sizeof(command), "mkdir -p %s/%s", work, path);
    cr_assert_eq(system(command), 0);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof(path), "%s/%s/%s", work, folder, name);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

/* Under the folder of a machine's groups. */
static void make_group(const char *folder, const char *limit, const char *used)
{
    make_folders(folder);
    write_file(folder, "memory.max", limit);
    write_file(folder, "memory.current", used);
}

/* A process that sees `groups` as all there are, and itself in them where `cgroup` says. */
static uint64_t memory_of(const char *groups, const char *cgroup)
{
    static int count;
    char process[32], folder[64], from[PATH_ROOM], to[PATH_ROOM], root[PATH_ROOM], total[64];
    snprintf(process, sizeof(process), "process-%d", count++);
    snprintf(folder, sizeof(folder), "%s/proc/self", process);
    make_folders(folder);
    write_file(folder, "cgroup", cgroup);
    snprintf(folder, sizeof(folder), "%s/proc", process);
    snprintf(total, sizeof(total), "MemTotal: %d kB\nMemFree: 1 kB\n", MACHINE_KIB);
    write_file(folder, "meminfo", total);
    snprintf(folder, sizeof(folder), "%s/sys/fs", process);
    make_folders(folder);
    snprintf(from, sizeof(from), "%s/%s", work, groups);
    snprintf(to, sizeof(to), "%s/%s/sys/fs/cgroup", work, process);
    cr_assert_eq(symlink(from, to), 0);
    snprintf(root, sizeof(root), "%s/%s", work, process);
    return eo_machine_memory(root);
}

Test(memory_groups, tasks_of_a_job_share_what_the_job_may_take, .init = begin, .fini = end)
{
    make_group("host/job_1", "536870912\n", "4096\n");
    make_group("host/job_1/step_0/user/task_0", "max\n", "0\n");
    make_group("host/job_1/step_0/user/task_1", "536870912\n", "0\n"); /* the job's own limit once more */
    make_group("host/job_1/step_0/user/task_2", "1073741824000\n", "0\n");
    make_group("host/job_2/step_0/user/task_0", "max\n", "0\n");
    make_group("host/job_2", "536870912\n", "4096\n");
    const uint64_t first = memory_of("host", "0::/job_1/step_0/user/task_0\n");
    cr_assert_eq(memory_of("host", "0::/job_1/step_0/user/task_1\n"), first);
    cr_assert_eq(memory_of("host", "0::/job_1/step_0/user/task_2\n"), first);
    cr_assert_eq(memory_of("host", "0::/job_1\n"), first);
    cr_assert_neq(memory_of("host", "0::/job_2/step_0/user/task_0\n"), first);
    make_group("host/job_1/step_0/user/task_3", "1048576\n", "0\n");
    cr_assert_neq(memory_of("host", "0::/job_1/step_0/user/task_3\n"), first, "a limit of its own");
}

Test(memory_groups, without_a_limit_below_the_machine_s_memory_all_share_that, .init = begin, .fini = end)
{
    make_group("host/a", "max\n", "0\n");
    make_group("host/b", "1073741824\n", "0\n"); /* as much as there is */
    const uint64_t first = memory_of("host", "0::/a\n");
    cr_assert_eq(memory_of("host", "0::/b\n"), first);
    cr_assert_eq(memory_of("host", "0::/\n"), first);
    cr_assert_eq(memory_of("host", ""), first);
    make_group("host/c", "1073741823\n", "0\n");
    cr_assert_neq(memory_of("host", "0::/c\n"), first);
}

Test(memory_groups, containers_are_told_apart_by_their_limits, .init = begin, .fini = end)
{
    make_group("host/one", "1048576\n", "0\n");
    make_group("host/two", "1048576\n", "0\n");
    make_group("host/three", "max\n", "0\n");
    const uint64_t one = memory_of("host/one", "0::/\n");
    cr_assert_eq(memory_of("host/one", "0::/\n"), one);
    cr_assert_eq(memory_of("host", "0::/one\n"), one, "the same group, seen from outside");
    cr_assert_neq(memory_of("host/two", "0::/\n"), one);
    cr_assert_eq(memory_of("host/three", "0::/\n"), memory_of("host", "0::/\n"));
}

Test(memory_groups, version_1_has_limits_too_and_its_root_has_none, .init = begin, .fini = end)
{
    static const char *const folders[] = {"host/memory", "host/memory/job", "host/memory/job/task_0", "host/memory/job/task_1"};
    for (size_t i = 0; i < 4; i++) {
        make_folders(folders[i]);
        write_file(folders[i], "memory.limit_in_bytes", i == 1 ? "1048576\n" : "9223372036854771712\n");
        write_file(folders[i], "memory.usage_in_bytes", "0\n");
    }
    const uint64_t first = memory_of("host", "5:cpu:/other\n4:memory:/job/task_0\n");
    cr_assert_eq(memory_of("host", "4:memory:/job/task_1\n0::/elsewhere\n"), first);
    cr_assert_neq(memory_of("host", "4:memory:/\n"), first);
}

static void add_left(void *user, const struct eo_memory_group *group)
{
    uint64_t *left = user;
    while (*left)
        left++;
    *left = group->limit_bytes - group->used_bytes;
}

/* From the process's own group upwards; pages of files that nobody uses are free. */
Test(memory_groups, groups_say_what_is_used, .init = begin, .fini = end)
{
    uint64_t left[4] = {0};
    char root[PATH_ROOM];
    make_group("host/job", "1000000\n", "400000\n");
    make_group("host/job/task", "500000\n", "400000\n");
    write_file("host/job", "memory.stat", "anon 1\ninactive_file 300000\n");
    (void)memory_of("host", "0::/job/task\n");
    snprintf(root, sizeof(root), "%s/process-0", work);
    eo_memory_groups(root, add_left, left);
    cr_assert(left[0] == 100000 && left[1] == 900000 && left[2] == 0, "%llu and %llu left", (unsigned long long)left[0],
              (unsigned long long)left[1]);
}
