/* SPDX-License-Identifier: MIT */
#include "streams/cpu/available.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/arithmetic.h"

/* The files of the kernel read here are short, but memory.stat and the longest cgroup paths. */
enum { TEXT_BYTES = 8192, PATH_BYTES = 4096 };

static bool read_text(const char *path, char *text, size_t bytes)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    size_t used = 0;
    for (;;) {
        const ssize_t got = read(file, text + used, bytes - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(file);
    text[used] = '\0';
    return used > 0;
}

/* The number behind `key` at the start of a line; "" is the start of the text. False for "max" and what is not there. */
static bool find_number(const char *text, const char *key, uint64_t *out)
{
    const size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) != 0)
            continue;
        char *end;
        *out = strtoull(line + length, &end, 10);
        return end != line + length;
    }
    return false;
}

static bool read_number(const char *folder, const char *name, const char *key, uint64_t *out)
{
    char path[PATH_BYTES + 64], text[TEXT_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return read_text(path, text, sizeof(text)) && find_number(text, key, out);
}

static uint64_t group_available(const char *folder, const char *limit_name, const char *used_name,
                                const char *inactive_key)
{
    uint64_t limit, used, inactive;
    if (!read_number(folder, limit_name, "", &limit) || !read_number(folder, used_name, "", &used))
        return UINT64_MAX;
    /* Pages of files that nobody uses count as used, but make room when asked. */
    if (read_number(folder, "memory.stat", inactive_key, &inactive))
        used -= eo_min_u64(used, inactive);
    return limit - eo_min_u64(limit, used);
}

/* This group and all above: the tightest counts. `folder` is cut shorter on the way up, down to `root`. */
static uint64_t groups_available(char *folder, size_t root_length, const char *limit_name, const char *used_name,
                                 const char *inactive_key)
{
    uint64_t available = UINT64_MAX;
    for (;;) {
        available = eo_min_u64(available, group_available(folder, limit_name, used_name, inactive_key));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < root_length)
            return available;
        *slash = '\0';
    }
}

static uint64_t cgroup_available(void)
{
    char text[TEXT_BYTES];
    if (!read_text("/proc/self/cgroup", text, sizeof(text)))
        return UINT64_MAX;
    uint64_t available = UINT64_MAX;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) { /* number:controllers:path */
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        controllers++;
        const bool is_v2 = *controllers == '\0', is_v1 = strcmp(controllers, "memory") == 0;
        if (!is_v2 && !is_v1)
            continue;
        const char *root = is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        char folder[PATH_BYTES];
        snprintf(folder, sizeof(folder), "%s%s", root, strcmp(path, "/") == 0 ? "" : path);
        available = eo_min_u64(available,
                               is_v2 ? groups_available(folder, strlen(root), "memory.max", "memory.current",
                                                        "inactive_file ")
                                     : groups_available(folder, strlen(root), "memory.limit_in_bytes",
                                                        "memory.usage_in_bytes", "total_inactive_file "));
    }
    return available;
}

/* What a limit of this process leaves of what `key` counts. */
static uint64_t limit_available(int resource, const char *key)
{
    struct rlimit limit;
    uint64_t used_kib;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !read_number("/proc/self", "status", key, &used_kib))
        return UINT64_MAX;
    return limit.rlim_cur - eo_min_u64(limit.rlim_cur, used_kib * 1024);
}

uint64_t eo_memory_available(const char **bound)
{
    static const char *const names[] = {"", "", " under the limit on address space (ulimit -v)",
                                        " under the limit on data (ulimit -d)"};
    uint64_t machine = UINT64_MAX, kib;
    if (read_number("/proc", "meminfo", "MemAvailable:", &kib))
        machine = kib * 1024;
    const uint64_t available[] = {machine, cgroup_available(), limit_available(RLIMIT_AS, "VmSize:"),
                                  limit_available(RLIMIT_DATA, "VmData:")};
    size_t least = 0;
    for (size_t i = 1; i < sizeof(available) / sizeof(available[0]); i++)
        least = available[i] < available[least] ? i : least;
    *bound = names[least];
    return available[least];
}
