/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <time.h>

uint64_t eo_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void eo_pause(void)
{
    const struct timespec pause = {0, 20000};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}
