/* SPDX-License-Identifier: MIT */
#ifndef EO_TOOLS_SHARED_CLOCK_H
#define EO_TOOLS_SHARED_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Of a clock that nobody sets. */
static inline uint64_t tool_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
