/* SPDX-License-Identifier: MIT
 *
 * How much memory this process can still take: asked before it is reserved, because Linux gives addresses freely and
 * kills later.
 */
#ifndef EO_STREAMS_CPU_AVAILABLE_H
#define EO_STREAMS_CPU_AVAILABLE_H

#include <stdint.h>

/* The smallest of what the machine and the control groups of this process leave; UINT64_MAX where nothing tells. */
uint64_t eo_memory_available(void);

#endif
