/* SPDX-License-Identifier: MIT
 *
 * How much memory this process may still take, asked before anything is reserved.
 */
#ifndef EO_TOOLS_RUN_MACHINE_MEMORY_CHECK_H
#define EO_TOOLS_RUN_MACHINE_MEMORY_CHECK_H

#include <stdint.h>

/* The smallest of what the machine, the control groups and the limits of this process leave to so many processes with the same
 * limits, each of which will start so many threads: their stacks count for these limits, used or not. *bound: the words for such
 * a limit, where it is the smallest; else "". */
uint64_t tool_process_memory_available(uint32_t processes, uint32_t threads, const char **bound);
/* With a limit on addresses, one heap for all threads: glibc makes more, and takes 128 MiB of addresses for each. */
void tool_process_spare_addresses(void);

/* The control groups' part of it; UINT64_MAX: no limit. `root`: "", or, for tests, the folder of another /proc and /sys. */
uint64_t tool_control_groups_available(const char *root);

/* What the system still promises to a process without privileges where it promises no more than it has (vm.overcommit_memory
 * 2); UINT64_MAX elsewhere. */
uint64_t tool_commitment_available(const char *root);

/* The largest resident size so far, and page faults that were served without a disk. */
uint64_t tool_process_resident_peak(void);
uint64_t tool_process_fault_count(void);

#endif
