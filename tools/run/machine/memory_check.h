/* SPDX-License-Identifier: MIT
 *
 * How much memory this process may still take, asked before anything is reserved.
 */
#ifndef EO_TOOLS_RUN_MACHINE_MEMORY_CHECK_H
#define EO_TOOLS_RUN_MACHINE_MEMORY_CHECK_H

#include <stdint.h>

/* The smallest of what the machine, the control groups and the limits of this process leave. *bound: the words for such a
 * limit, where it is the smallest; else "". */
uint64_t tool_process_memory_available(const char **bound);

/* The control groups' part of it; UINT64_MAX: no limit. `root`: "", or, for tests, the folder of another /proc and /sys. */
uint64_t tool_control_groups_available(const char *root);

/* The largest resident size so far, and page faults that were served without a disk. */
uint64_t tool_process_resident_peak(void);
uint64_t tool_process_fault_count(void);

#endif
