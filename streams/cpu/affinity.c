/* SPDX-License-Identifier: MIT */
#include "streams/cpu/affinity.h"

#include "base/log.h"
#include "eo_config.h"

static eo_status none_init(struct eo_affinity **out, const struct eo_affinity_share *share, const eo_log *log)
{
    *out = NULL;
    eo_log_write(log, EO_LOG_WARN,
                 "rank %u: threads are not placed: this build has no hwloc; build with -Dhwloc=enabled", share->rank);
    return EO_OK;
}

static eo_status none_init_near(struct eo_affinity **out, uint32_t rank, const char *pci_bus_id, const eo_log *log)
{
    return none_init(out, &(const struct eo_affinity_share){.rank = rank, .count = 1}, log);
}

static void none_bind_thread(struct eo_affinity *affinity)
{
}

static void none_bind_memory(struct eo_affinity *affinity, void *memory, uint64_t bytes)
{
}

static void none_fini(struct eo_affinity *affinity)
{
}

static const struct eo_affinity_ops affinity_none_ops = {
    .name = "none",
    .init = none_init,
    .init_near = none_init_near,
    .bind_thread = none_bind_thread,
    .bind_memory = none_bind_memory,
    .fini = none_fini,
};

static const struct eo_affinity_ops *const affinity_table[] = { /* in order of preference */
#if EO_HAVE_HWLOC
    &eo_affinity_hwloc_ops,
#endif
    &affinity_none_ops,
};

const struct eo_affinity_ops *eo_affinity_best(void)
{
    return affinity_table[0];
}
