/* SPDX-License-Identifier: MIT */
#include "base/memory_groups.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arithmetic.h"
#include "base/kernel_files.h"

enum { CGROUP_BYTES = 8192, FOLDER_BYTES = 4096 };

/* Version 1 and 2 of control groups. */
static const struct version {
    const char *controllers, *folder, *limit, *used, *inactive;
} versions[] = {
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
};

static bool read_group(const struct version *version, const char *folder, struct eo_memory_group *out)
{
    struct stat place;
    uint64_t inactive;
    if (!eo_kernel_number(folder, version->limit, "", &out->limit_bytes) ||
        !eo_kernel_number(folder, version->used, "", &out->used_bytes) || stat(folder, &place) != 0)
        return false;
    out->id[0] = place.st_dev;
    out->id[1] = place.st_ino;
    if (eo_kernel_number(folder, "memory.stat", version->inactive, &inactive))
        out->used_bytes -= eo_min_u64(out->used_bytes, inactive);
    return true;
}

struct visitor {
    void (*found)(void *user, const struct eo_memory_group *group);
    void *user;
};

/* `folder` is cut shorter on the way up, down to the outermost. */
static void climb(const struct version *version, char *folder, size_t outermost_length, const struct visitor *visitor)
{
    for (;;) {
        struct eo_memory_group group;
        if (read_group(version, folder, &group))
            visitor->found(visitor->user, &group);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < outermost_length)
            return;
        *slash = '\0';
    }
}

void eo_memory_groups(const char *root, void (*found)(void *user, const struct eo_memory_group *group), void *user)
{
    char text[CGROUP_BYTES], folder[FOLDER_BYTES];
    snprintf(folder, sizeof(folder), "%s/proc/self/cgroup", root);
    if (!eo_kernel_text(folder, text, sizeof(text)))
        return;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) { /* number:controllers:path */
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++) {
            if (strcmp(controllers + 1, versions[v].controllers) != 0)
                continue;
            snprintf(folder, sizeof(folder), "%s%s%s", root, versions[v].folder, strcmp(path, "/") == 0 ? "" : path);
            climb(&versions[v], folder, strlen(root) + strlen(versions[v].folder), &(const struct visitor){found, user});
        }
    }
}
