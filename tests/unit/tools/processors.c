/* SPDX-License-Identifier: MIT
 *
 * Goal: processors are counted on systems of more than 1024, too, and a rank gets no more threads than a team may have.
 * Method: a kernel in the place of the real one, which refuses who asks with less room than it has processors.
 */
#include <argp.h>
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/processors.h"
#include "tools/run/machine/quota.h"
#include "tools/run/options/options.h"

static int kernel_processors; /* 0: the call fails otherwise */
static int bound_to[3], bound_count;
static int all_bound; /* more than 0: the first ones, so many, instead */

int __wrap_sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set);
uint64_t __real_tool_quota_processors(const char *root);
uint64_t __wrap_tool_quota_processors(const char *root);
static uint64_t quota; /* in place of this machine's */

uint64_t __wrap_tool_quota_processors(const char *root)
{
    (void)root;
    return quota;
}

int __wrap_sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set)
{
    (void)process;
    if (kernel_processors == 0 || bytes * 8 < (size_t)kernel_processors) {
        errno = kernel_processors == 0 ? EPERM : EINVAL;
        return -1;
    }
    memset(set, 0, bytes);
    for (int i = 0; i < (all_bound ? all_bound : bound_count); i++)
        CPU_SET_S(all_bound ? i : bound_to[i], bytes, set);
    return 0;
}

static struct eo_processors bind_to(int kernel, int count, int first, int second, int third)
{
    kernel_processors = kernel;
    bound_count = count;
    bound_to[0] = first, bound_to[1] = second, bound_to[2] = third;
    return eo_processors_allowed();
}

Test(processors, a_system_of_any_size_says_how_many_and_which)
{
    const struct eo_processors few = bind_to(8, 3, 0, 3, 7), same = bind_to(8192, 3, 0, 3, 7), other = bind_to(8, 3, 0, 3, 6),
                               many = bind_to(8192, 3, 0, 3, 8191), fewer = bind_to(8, 2, 0, 3, 0);
    cr_assert(few.count == 3 && same.count == 3 && other.count == 3 && many.count == 3 && fewer.count == 2);
    cr_assert_eq(few.number, same.number);
    cr_assert(few.number != other.number && few.number != many.number && few.number != fewer.number);
}

Test(processors, programs_use_all_that_they_may)
{
    (void)bind_to(1025, 3, 0, 1, 1024);
    cr_assert_eq(tool_core_count(), 3);
    (void)bind_to(0, 0, 0, 0, 0);
    cr_assert_eq(tool_core_count(), 1);
    cr_assert_eq(eo_processors_allowed().count, 0);
}

static uint32_t threads_without_option(char *ranks)
{
    char *words[] = {"train", "--ranks", ranks, NULL};
    struct tool_options options;
    tool_options_init(&options);
    cr_assert_eq(argp_parse(&tool_options_argp, 3, words, 0, NULL, &options), 0);
    tool_options_fini(&options);
    return options.plan.threads;
}

Test(processors, a_rank_without_threads_gets_its_part_and_at_most_a_teams)
{
    kernel_processors = 4096;
    all_bound = 1376;
    cr_assert_eq(tool_core_count(), 1376);
    cr_assert_eq(threads_without_option("1"), EO_TEAM_THREADS_MAX);
    cr_assert_eq(threads_without_option("2"), 688);
    quota = 6; /* docker --cpus 6 */
    cr_assert_eq(threads_without_option("2"), 3);
    quota = 0;
    all_bound = 3;
    cr_assert_eq(threads_without_option("4"), 1);
}

Test(processors, a_quota_is_named_where_it_decides_over_threads, .init = cr_redirect_stdout)
{
    char *words[] = {"train", "--threads", "2", NULL};
    struct tool_options options;
    (void)bind_to(8, 3, 0, 3, 7);
    for (int i = 0; i < 3; i++) {
        quota = i == 0 ? 0 : 2;
        tool_options_init(&options);
        cr_assert_eq(argp_parse(&tool_options_argp, i < 2 ? 1 : 3, words, 0, NULL, &options), 0);
        tool_tell_quota(&options); /* in the second round alone */
        tool_options_fini(&options);
    }
    fflush(stdout);
    cr_assert_stdout_eq_str("threads: for 2 of 3 cores, by the quota of this container or control group\n");
}

/* What a process sees whose groups these are: `text` is its /proc/self/cgroup. */
static uint64_t quota_in(const char *root, const char *text)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
    return __real_tool_quota_processors(root);
}

Test(processors, the_tightest_control_group_limits_their_time)
{
    char root[] = "/tmp/quota-XXXXXX", command[900];
    cr_assert(mkdtemp(root));
    snprintf(
        command, sizeof(command),
        "cd %s && mkdir -p proc/self sys/fs/cgroup/slice/job sys/fs/cgroup/slice/wide sys/fs/cgroup/cpu/docker/7 && "
        "echo 'max 100000' >sys/fs/cgroup/cpu.max && echo '250000 100000' >sys/fs/cgroup/slice/cpu.max && "
        "echo '100000 50000' >sys/fs/cgroup/slice/job/cpu.max && echo '900000 100000' >sys/fs/cgroup/slice/wide/cpu.max && "
        "echo -1 >sys/fs/cgroup/cpu/cpu.cfs_quota_us && echo 100000 >sys/fs/cgroup/cpu/cpu.cfs_period_us && "
        "echo 150000 >sys/fs/cgroup/cpu/docker/7/cpu.cfs_quota_us && "
        "echo 100000 >sys/fs/cgroup/cpu/docker/7/cpu.cfs_period_us",
        root);
    cr_assert_eq(system(command), 0);
    cr_expect_eq(quota_in(root, "0::/\n"), 0);
    cr_expect_eq(quota_in(root, "0::/slice/job\n"), 2);
    cr_expect_eq(quota_in(root, "0::/slice/wide\n"), 3, "the group around it has less, rounded up");
    cr_expect_eq(quota_in(root, "0::/slice/not/seen/here\n"), 3);
    cr_expect_eq(quota_in(root, "3:cpuset:/slice/job\n2:cpuacct,cpu:/docker/7\n"), 2, "version 1");
    cr_expect_eq(quota_in(root, "2:cpu:/\n"), 0);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
    cr_expect_eq(__real_tool_quota_processors(root), 0, "no /proc");
}
