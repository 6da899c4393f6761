/* SPDX-License-Identifier: MIT
 *
 * How much memory this process can still take: asked before it is reserved, because Linux gives addresses freely and
 * kills later.
 */
#ifndef EO_STREAMS_CPU_AVAILABLE_H
#define EO_STREAMS_CPU_AVAILABLE_H

#include <stdint.h>

/* The smallest of what the machine, the control groups and the limits of this process leave to so many processes with the same
 * limits (0: one); UINT64_MAX where nothing tells.
 * *bound: the words for a limit of this process, such as " under ... (ulimit -v)", where that is the smallest; else "". */
uint64_t eo_memory_available(uint32_t processes, const char **bound);

#endif
