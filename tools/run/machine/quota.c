/* SPDX-License-Identifier: MIT */
#include "tools/run/machine/quota.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_us(const char *folder, const char *name, uint64_t *out)
{
    char path[2 * PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    const bool is_read = file && fscanf(file, "%" SCNu64, out) == 1;
    if (file)
        fclose(file);
    return is_read;
}

/* Of a control group of version 2 or 1; 0: none. Where there is no limit "max" or -1 stands in the quota's place. */
static uint64_t quota_of(const char *folder)
{
    char path[2 * PATH_MAX + 64];
    uint64_t quota = 0, period = 0;
    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    FILE *file = fopen(path, "re");
    bool is_known = file && fscanf(file, "%" SCNu64 " %" SCNu64, &quota, &period) == 2;
    if (file)
        fclose(file);
    if (!is_known)
        is_known = read_us(folder, "cpu.cfs_quota_us", &quota) && read_us(folder, "cpu.cfs_period_us", &period);
    return !is_known || period == 0 || quota > INT64_MAX ? 0 : quota / period + (quota % period != 0);
}

/* The least of the group's, and of those around it; in a container they end with its own. */
static void climb_quotas(char *folder, size_t outermost_length, uint64_t *least)
{
    for (;;) {
        const uint64_t quota = quota_of(folder);
        if (quota && (!*least || quota < *least))
            *least = quota;
        char *end = strrchr(folder, '/');
        if (!end || (size_t)(end - folder) < outermost_length)
            return;
        *end = '\0';
    }
}

/* Of version 2 there is no list. */
static bool has_cpu(char *controllers)
{
    bool has = controllers[0] == '\0';
    for (char *rest = controllers; rest && !has;)
        has = strcmp(strsep(&rest, ","), "cpu") == 0;
    return has;
}

uint64_t tool_quota_processors(const char *root)
{
    char path[PATH_MAX], line[PATH_MAX], folder[2 * PATH_MAX];
    uint64_t least = 0;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *groups = fopen(path, "re");
    while (groups && fgets(line, sizeof(line), groups)) { /* 4:cpu,cpuacct:/group */
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (!has_cpu(++controllers))
            continue;
        const int outermost = snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s", root, *controllers ? "/cpu" : "");
        if (outermost < 0 || strlen(group) >= sizeof(folder) - (size_t)outermost)
            continue;
        strcpy(folder + outermost, strcmp(group, "/") == 0 ? "" : group);
        climb_quotas(folder, (size_t)outermost, &least);
    }
    if (groups)
        fclose(groups);
    return least;
}
