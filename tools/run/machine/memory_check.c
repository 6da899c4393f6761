/* SPDX-License-Identifier: MIT */
#include "tools/run/machine/memory_check.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "tools/run/machine/control_groups.h"

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number after `key` in a file of lines "key number"; UINT64_MAX without one. With "" the first number. */
static uint64_t number_in(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    uint64_t found = UINT64_MAX;
    char line[512];
    while (found == UINT64_MAX && fgets(line, sizeof(line), file)) {
        unsigned long long value;
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%llu", &value) == 1)
            found = value;
    }
    fclose(file);
    return found;
}

/* What is left of one group's limit. File cache that can be dropped counts as free. */
static uint64_t group_available(const char *folder, bool is_second)
{
    char path[TOOL_GROUP_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, is_second ? "memory.max" : "memory.limit_in_bytes");
    uint64_t limit = number_in(path, "");
    snprintf(path, sizeof(path), "%s/memory.high", folder); /* beyond it processes hardly run any more */
    limit = is_second ? smaller(limit, number_in(path, "")) : limit;
    snprintf(path, sizeof(path), "%s/%s", folder, is_second ? "memory.current" : "memory.usage_in_bytes");
    uint64_t used = number_in(path, "");
    if (limit == UINT64_MAX || used == UINT64_MAX) /* "max", or no such file */
        return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    const uint64_t cache = number_in(path, is_second ? "inactive_file " : "total_inactive_file "); /* inner groups' too */
    if (cache != UINT64_MAX)
        used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

uint64_t tool_control_groups_available(const char *root)
{
    return tool_control_groups_least(root, "memory", group_available);
}

/* What the kernel holds back of its promises, so that an administrator or a user can still end what takes all. */
static uint64_t reserve_kib(const char *root, const char *whose)
{
    char path[TOOL_GROUP_PATH_MAX];
    snprintf(path, sizeof(path), "%s/proc/sys/vm/%s_reserve_kbytes", root, whose);
    const uint64_t kib = number_in(path, "");
    return kib == UINT64_MAX ? 0 : smaller(kib, UINT64_MAX / 4096);
}

uint64_t tool_commitment_available(const char *root)
{
    char path[TOOL_GROUP_PATH_MAX];
    snprintf(path, sizeof(path), "%s/proc/sys/vm/overcommit_memory", root);
    if (number_in(path, "") != 2)
        return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    const uint64_t limit_kib = number_in(path, "CommitLimit:"), used_kib = number_in(path, "Committed_AS:");
    if (limit_kib == UINT64_MAX || used_kib == UINT64_MAX)
        return UINT64_MAX;
    /* Of a process's own size the kernel holds a 32nd back: that of the limit at most. */
    const uint64_t held_kib = reserve_kib(root, "admin") + smaller(reserve_kib(root, "user"), limit_kib / 32);
    return (limit_kib - smaller(limit_kib, used_kib + held_kib)) * 1024;
}

static uint64_t stack_bytes(void)
{
    pthread_attr_t attributes;
    size_t bytes = 0;
    pthread_attr_init(&attributes);
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
    return bytes;
}

/* What a limit on each of these processes leaves of what `key` counts. */
static uint64_t limit_available(uint32_t processes, uint32_t threads, int resource, const char *key)
{
    struct rlimit limit;
    const uint64_t used_kib = number_in("/proc/self/status", key);
    if (used_kib == UINT64_MAX || getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    const uint64_t taken = used_kib * 1024 + threads * stack_bytes(), left = limit.rlim_cur - smaller(limit.rlim_cur, taken);
    return left > UINT64_MAX / processes ? UINT64_MAX : left * processes;
}

void tool_process_spare_addresses(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        (void)mallopt(M_ARENA_MAX, 1);
}

uint64_t tool_process_memory_available(uint32_t processes, uint32_t threads, const char **bound)
{
    const uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    const uint64_t machine = smaller(kib != UINT64_MAX ? kib * 1024 : UINT64_MAX, tool_control_groups_available(""));
    const uint64_t addresses = limit_available(processes, threads, RLIMIT_AS, "VmSize:");
    const uint64_t data = limit_available(processes, threads, RLIMIT_DATA, "VmData:");
    const uint64_t committed = tool_commitment_available(""), stacks = (uint64_t)processes * threads * stack_bytes();
    const uint64_t commitment = committed == UINT64_MAX ? UINT64_MAX : committed - smaller(committed, stacks);
    const uint64_t available = smaller(smaller(machine, commitment), smaller(addresses, data));
    *bound = available == machine      ? ""
             : available == commitment ? " under the limit on commitments (vm.overcommit_memory is 2)"
             : available == addresses  ? " under the limit on address space (ulimit -v)"
                                       : " under the limit on data (ulimit -d)";
    return available;
}

/* Not ru_maxrss: that one survives exec, so a child would begin with its parent's peak. */
uint64_t tool_process_resident_peak(void)
{
    const uint64_t kib = number_in("/proc/self/status", "VmHWM:");
    return kib != UINT64_MAX ? kib * 1024 : 0;
}

uint64_t tool_process_fault_count(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_minflt : 0;
}
