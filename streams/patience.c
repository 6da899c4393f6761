/* SPDX-License-Identifier: MIT */
#include "streams/patience.h"

#include <stdatomic.h>

static atomic_uint holders, longest_ms;

void eo_patience_begin(uint32_t ms)
{
    unsigned int before = atomic_load(&longest_ms);
    if (ms == 0)
        return;
    while (before < ms && !atomic_compare_exchange_weak(&longest_ms, &before, ms))
        ;
    atomic_fetch_add(&holders, 1);
}

/* The longest stays: those of one run have the same. */
void eo_patience_end(uint32_t ms)
{
    if (ms > 0)
        atomic_fetch_sub(&holders, 1);
}

uint32_t eo_patience_ms(const struct eo_group_params *params)
{
    const uint32_t more_ms = atomic_load(&holders) ? atomic_load(&longest_ms) : 0;
    return more_ms < UINT32_MAX - params->timeout_ms ? params->timeout_ms + more_ms : UINT32_MAX;
}
