/* SPDX-License-Identifier: MIT */
#include "streams/cpu/available.h"

#include <sys/resource.h>

#include "base/arithmetic.h"
#include "base/kernel_files.h"
#include "base/memory_groups.h"

static void keep_least(void *user, const struct eo_memory_group *group)
{
    uint64_t *available = user;
    *available = eo_min_u64(*available, group->limit_bytes - eo_min_u64(group->limit_bytes, group->used_bytes));
}

/* What a limit on each of these processes leaves of what `key` counts. */
static uint64_t limit_available(uint32_t processes, int resource, const char *key)
{
    struct rlimit limit;
    uint64_t used_kib;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !eo_kernel_number("/proc/self", "status", key, &used_kib))
        return UINT64_MAX;
    const uint64_t count = eo_max_u64(processes, 1), left = limit.rlim_cur - eo_min_u64(limit.rlim_cur, used_kib * 1024);
    return left > UINT64_MAX / count ? UINT64_MAX : left * count;
}

uint64_t eo_memory_available(uint32_t processes, const char **bound)
{
    static const char *const names[] = {"", "", " under the limit on address space (ulimit -v)",
                                        " under the limit on data (ulimit -d)"};
    uint64_t machine = UINT64_MAX, groups = UINT64_MAX, kib;
    if (eo_kernel_number("/proc", "meminfo", "MemAvailable:", &kib))
        machine = kib * 1024;
    eo_memory_groups("", keep_least, &groups); /* the tightest counts */
    const uint64_t available[] = {machine, groups, limit_available(processes, RLIMIT_AS, "VmSize:"),
                                  limit_available(processes, RLIMIT_DATA, "VmData:")};
    size_t least = 0;
    for (size_t i = 1; i < sizeof(available) / sizeof(available[0]); i++)
        least = available[i] < available[least] ? i : least;
    *bound = names[least];
    return available[least];
}
