/* SPDX-License-Identifier: MIT
 *
 * How much memory this process may still take, asked before anything is reserved.
 */
#ifndef EO_TOOLS_MEMORY_CHECK_H
#define EO_TOOLS_MEMORY_CHECK_H

#include <stdint.h>

/* The smallest of the machine's available memory, the control groups' limits and the address space limit. */
uint64_t eo_process_memory_available(void);

/* The largest resident size so far, and page faults that were served without a disk. */
uint64_t eo_process_resident_peak(void);
uint64_t eo_process_fault_count(void);

#endif
