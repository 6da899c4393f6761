/* SPDX-License-Identifier: MIT
 *
 * The control groups that limit this process's memory, as far as they can be seen from where it is: in a container that is
 * up to the container's own.
 */
#ifndef EO_BASE_MEMORY_GROUPS_H
#define EO_BASE_MEMORY_GROUPS_H

#include <stdint.h>

struct eo_memory_group {
    uint64_t id[2]; /* device and inode of its folder: whoever sees the group, and under whatever name, sees these */
    uint64_t limit_bytes;
    uint64_t used_bytes; /* without pages of files that nobody uses: these make room when asked */
};

/* Calls `found` for each group with a limit, from the process's own to the outermost. `root`: "", or, for tests, the folder
 * of another /proc and /sys. */
void eo_memory_groups(const char *root, void (*found)(void *user, const struct eo_memory_group *group), void *user);

#endif
