/* SPDX-License-Identifier: MIT */
#include "tools/run/machine/quota.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/run/machine/control_groups.h"

static bool read_us(const char *folder, const char *name, uint64_t *out)
{
    char path[TOOL_GROUP_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    const bool is_read = file && fscanf(file, "%" SCNu64, out) == 1;
    if (file)
        fclose(file);
    return is_read;
}

/* Where there is no limit "max" or -1 stands in the quota's place. */
static uint64_t quota_of(const char *folder, bool is_second)
{
    char path[TOOL_GROUP_PATH_MAX + 64];
    uint64_t quota = 0, period = 0;
    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    FILE *file = is_second ? fopen(path, "re") : NULL;
    const bool is_known = is_second
                              ? file && fscanf(file, "%" SCNu64 " %" SCNu64, &quota, &period) == 2
                              : read_us(folder, "cpu.cfs_quota_us", &quota) && read_us(folder, "cpu.cfs_period_us", &period);
    if (file)
        fclose(file);
    return !is_known || quota == 0 || period == 0 || quota > INT64_MAX ? UINT64_MAX : quota / period + (quota % period != 0);
}

uint64_t tool_quota_processors(const char *root)
{
    const uint64_t least = tool_control_groups_least(root, "cpu", quota_of);
    return least == UINT64_MAX ? 0 : least;
}
