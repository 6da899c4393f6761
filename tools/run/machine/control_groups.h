/* SPDX-License-Identifier: MIT
 *
 * Limits of the control groups that this process is in, of version 1 and 2.
 */
#ifndef EO_TOOLS_RUN_MACHINE_CONTROL_GROUPS_H
#define EO_TOOLS_RUN_MACHINE_CONTROL_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

enum { TOOL_GROUP_PATH_MAX = 8192 };

/*
 * The least that `of` says of a group of `controller` and of those around it: a group's limit binds all below it. UINT64_MAX: no
 * limit. `of` gets the group's folder and whether it is of version 2. `root`: "", or, for tests, the folder of another /proc and
 * /sys.
 */
uint64_t tool_control_groups_least(const char *root, const char *controller,
                                   uint64_t (*of)(const char *folder, bool is_second));

#endif
