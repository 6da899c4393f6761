/* SPDX-License-Identifier: MIT */
#include "streams/fabric.h"

#include "base/arithmetic.h"

void eo_fabric_init(struct eo_fabric *fabric, double gigabytes_per_s, double latency_us)
{
    *fabric = (struct eo_fabric){0};
    if (!(gigabytes_per_s > 0))
        return;
    fabric->bytes_per_ns = gigabytes_per_s; /* 1e9 bytes in 1e9 ns */
    fabric->latency_ns = latency_us > 0 ? (uint64_t)(latency_us * 1e3) : 0;
}

uint64_t eo_fabric_send(struct eo_fabric *fabric, uint64_t start_ns, uint64_t bytes)
{
    if (!(fabric->bytes_per_ns > 0))
        return start_ns;
    const uint64_t begin_ns = eo_max_u64(start_ns, fabric->free_ns);
    fabric->free_ns = begin_ns + (uint64_t)((double)bytes / fabric->bytes_per_ns + 0.5);
    return fabric->free_ns + fabric->latency_ns;
}
