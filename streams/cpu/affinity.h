/* SPDX-License-Identifier: MIT
 *
 * Where a rank's threads run and its memory lies. The cores this process may use are split evenly over the ranks that may
 * use the same, each with its part of fast and slow ones; with more ranks than cores, the r-th has core r modulo their
 * number. A rank's calling thread and workers may run on all of its cores; its memory is bound to the NUMA nodes of these.
 */
#ifndef EO_STREAMS_CPU_AFFINITY_H
#define EO_STREAMS_CPU_AFFINITY_H

#include "streams/device.h"

struct eo_affinity;

/* The processors of this process are cut into `count` parts. */
struct eo_affinity_share {
    uint32_t rank; /* for the log */
    uint32_t index, count;
};

struct eo_affinity_ops {
    const char *name;
    /* *out may stay NULL: the others take it. A machine that cannot be described is no failure: logged, not placed. */
    eo_status (*init)(struct eo_affinity **out, const struct eo_affinity_share *share, const eo_log *log);
    /* The same for a rank whose GPU has this PCI bus id: its share is all processors near the GPU, of those that this
     * process may use. Quietly not placed where the machine does not tell what lies near what. */
    eo_status (*init_near)(struct eo_affinity **out, uint32_t rank, const char *pci_bus_id, const eo_log *log);
    void (*bind_thread)(struct eo_affinity *affinity); /* the thread that calls */
    void (*bind_memory)(struct eo_affinity *affinity, void *memory, uint64_t bytes); /* before its first touch */
    /* Gives the thread that called init its old places back, when it is the one that calls. */
    void (*fini)(struct eo_affinity *affinity);
};

const struct eo_affinity_ops *eo_affinity_best(void);

extern const struct eo_affinity_ops eo_affinity_hwloc_ops;

#endif
