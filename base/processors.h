/* SPDX-License-Identifier: MIT
 *
 * Which processors the calling thread may run on. The kernel refuses whoever asks with less room than all that it may ever
 * have: a cpu_set_t, of 1024, is too small on large machines.
 *
 * All of it is inline: layers and programs count their threads by it, too.
 */
#ifndef EO_BASE_PROCESSORS_H
#define EO_BASE_PROCESSORS_H

#include <errno.h>
#include <sched.h>
#include <stdint.h>

struct eo_processors {
    uint64_t count;  /* 0: the system does not say */
    uint64_t number; /* the same for the same processors */
};

static inline struct eo_processors eo_processors_of(const cpu_set_t *allowed, int most)
{
    struct eo_processors out = {0, UINT64_C(0xcbf29ce484222325)};
    for (int p = 0; p < most; p++) {
        if (!CPU_ISSET_S(p, CPU_ALLOC_SIZE(most), allowed))
            continue;
        out.count++;
        out.number = (out.number ^ (uint64_t)p) * UINT64_C(0x100000001b3); /* FNV-1a */
    }
    return out;
}

static inline struct eo_processors eo_processors_allowed(void)
{
    enum { LEAST = 1024, MOST = 1 << 20 };
    struct eo_processors out = {0, 0};
    int error = EINVAL;
    for (int room = LEAST; room <= MOST && error == EINVAL; room *= 2) {
        cpu_set_t *allowed = CPU_ALLOC(room);
        if (!allowed)
            break;
        error = sched_getaffinity(0, CPU_ALLOC_SIZE(room), allowed) == 0 ? 0 : errno;
        if (error == 0)
            out = eo_processors_of(allowed, room);
        CPU_FREE(allowed);
    }
    return out;
}

#endif
