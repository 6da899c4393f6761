/* SPDX-License-Identifier: MIT
 *
 * The launcher's children beside the ranks. Those that it has from the start are kept: the guard, and, where a shell became the
 * launcher (`helper & exec launch ...`), what that had started. All others are what ranks have left behind, and are ended.
 */
#ifndef EO_TOOLS_LAUNCH_CHILDREN_H
#define EO_TOOLS_LAUNCH_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tool_launch_children {
    pid_t *kept;
    uint32_t kept_count;
};

/* Those that are there now. False: no memory. */
bool tool_launch_children_keep(struct tool_launch_children *children);
/* One that has been waited for: its number may soon be another process's. */
void tool_launch_children_forget(struct tool_launch_children *children, pid_t pid);
/* Kills all but those that are kept, and waits for their ends. */
void tool_launch_children_end(struct tool_launch_children *children);

#endif
