/* SPDX-License-Identifier: MIT
 *
 * A simulated link between the ranks: a collective takes at least the time the link would, without the processor.
 * The link is one: what two communicators send at the same time goes one after the other.
 */
#ifndef EO_STREAMS_FABRIC_H
#define EO_STREAMS_FABRIC_H

#include <stdint.h>

struct eo_fabric {
    double bytes_per_ns; /* 0: no link */
    uint64_t latency_ns;
    uint64_t free_ns; /* when the link has sent what it was given */
};

void eo_fabric_init(struct eo_fabric *fabric, double gigabytes_per_s, double latency_us);

/* Sends `bytes`, all there at start_ns; returns when the last has arrived. The caller holds the group's lock. */
uint64_t eo_fabric_send(struct eo_fabric *fabric, uint64_t start_ns, uint64_t bytes);

#endif
