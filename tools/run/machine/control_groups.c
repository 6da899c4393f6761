/* SPDX-License-Identifier: MIT */
#include "tools/run/machine/control_groups.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static bool names(char *controllers, const char *wanted)
{
    bool does = false;
    for (char *rest = controllers; rest && !does;)
        does = strcmp(strsep(&rest, ","), wanted) == 0;
    return does;
}

uint64_t tool_control_groups_least(const char *root, const char *controller,
                                   uint64_t (*of)(const char *folder, bool is_second))
{
    char path[PATH_MAX], line[PATH_MAX], folder[TOOL_GROUP_PATH_MAX];
    uint64_t least = UINT64_MAX;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) { /* number:controllers:group, of which the last may have colons */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        const bool is_second = *++controllers == '\0'; /* it has no list */
        if (!is_second && !names(controllers, controller))
            continue;
        const int mount =
            snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s%s", root, is_second ? "" : "/", is_second ? "" : controller);
        if (mount < 0 || strlen(group) >= sizeof(folder) - (size_t)mount)
            continue;
        strcpy(folder + mount, group);
        for (;;) {
            const uint64_t amount = of(folder, is_second);
            least = amount < least ? amount : least;
            if (strlen(folder) <= (size_t)mount)
                break;
            *strrchr(folder, '/') = '\0';
        }
    }
    if (file)
        fclose(file);
    return least;
}
