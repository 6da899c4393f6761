/* SPDX-License-Identifier: MIT
 *
 * The processor time that this process's control groups allow, in processors: docker --cpus 2 is 2 on any machine. More
 * threads than that would be paused together, and spin for each other.
 */
#ifndef EO_TOOLS_RUN_MACHINE_QUOTA_H
#define EO_TOOLS_RUN_MACHINE_QUOTA_H

#include <stdint.h>

/* Rounded up; 0: no limit. `root`: "", or, for tests, the folder of another /proc and /sys. */
uint64_t tool_quota_processors(const char *root);

#endif
