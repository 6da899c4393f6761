/* SPDX-License-Identifier: MIT
 *
 * Random delays from a seed, which shake out orders that hold only by luck. One sequence a queue.
 */
#ifndef EO_STREAMS_CPU_DELAY_H
#define EO_STREAMS_CPU_DELAY_H

#include <stdint.h>
#include <time.h>

enum { EO_DELAY_US_MAX = 300 };

struct eo_delay {
    uint64_t state; /* 0: no delays */
};

/* Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (splitmix64). */
static inline uint64_t eo_delay_next(struct eo_delay *delay)
{
    uint64_t z = delay->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void eo_delay_init(struct eo_delay *delay, uint64_t seed, uint32_t rank, uint32_t queue)
{
    delay->state = seed == 0 ? 0 : seed * 1000003u + rank * 8191u + queue * 131u + 1;
}

/* Every other time not at all, so that what comes at once is tried as often as what comes late. */
static inline void eo_delay_sleep(struct eo_delay *delay)
{
    if (delay->state == 0)
        return;
    const uint64_t random = eo_delay_next(delay);
    if ((random & 1) == 0)
        return;
    const struct timespec time = {0, (long)((random >> 8) % ((EO_DELAY_US_MAX + 1) * 1000u))};
    nanosleep(&time, NULL);
}

#endif
