/* SPDX-License-Identifier: MIT */
#include "streams/patience.h"

#include <stdatomic.h>

#include "base/arithmetic.h"

/* Who holds any in the upper half, the longest in the lower: both change at once. */
static _Atomic uint64_t held;

void eo_patience_begin(uint32_t ms)
{
    uint64_t before = atomic_load(&held), after;
    if (ms == 0)
        return;
    do
        after = ((before >> 32) + 1) << 32 | eo_max_u64((uint32_t)before, ms);
    while (!atomic_compare_exchange_weak(&held, &before, after));
}

/* The longest stays until the last has ended: those of one run have the same. */
void eo_patience_end(uint32_t ms)
{
    uint64_t before = atomic_load(&held), after;
    if (ms == 0)
        return;
    do
        after = before >> 32 > 1 ? before - (UINT64_C(1) << 32) : 0;
    while (!atomic_compare_exchange_weak(&held, &before, after));
}

uint32_t eo_patience_ms(const struct eo_group_params *params)
{
    const uint32_t more_ms = (uint32_t)atomic_load(&held);
    return more_ms < UINT32_MAX - params->timeout_ms ? params->timeout_ms + more_ms : UINT32_MAX;
}
