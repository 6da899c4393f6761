/* SPDX-License-Identifier: MIT */
#include "streams/cpu/affinity.h"
#include "streams/cpu/hwloc_names.h"

#include <errno.h>
#include <hwloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/processors.h"

struct eo_affinity {
    hwloc_topology_t topology;
    bool has_topology;
    hwloc_cpuset_t share;  /* this rank's */
    hwloc_cpuset_t before; /* of the thread that called init */
    pthread_t owner;
    bool has_nodes; /* more than one of memory */
    bool has_told;  /* that memory cannot be bound */
    uint32_t rank;
    eo_log log;
};

/* What this process may run on: its own binding (taskset) counts, not the machine alone. All threads are asked, for trainers
 * may have bound this one; without /proc only this one can be. */
static bool get_allowed(const struct eo_affinity *affinity, hwloc_cpuset_t out)
{
    return (hwloc_get_cpubind(affinity->topology, out, HWLOC_CPUBIND_PROCESS) == 0 && !hwloc_bitmap_iszero(out)) ||
           hwloc_get_cpubind(affinity->topology, out, HWLOC_CPUBIND_THREAD) == 0;
}

static void restrict_to_process(struct eo_affinity *affinity)
{
    hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
    if (allowed && get_allowed(affinity, allowed) && !hwloc_bitmap_iszero(allowed))
        (void)hwloc_topology_restrict(affinity->topology, allowed, 0);
    hwloc_bitmap_free(allowed);
}

/* Fast cores and slow ones, say. The last kind is that of cores of which nothing is known. */
static int kind_count(const struct eo_affinity *affinity)
{
#if HWLOC_API_VERSION >= 0x00020400
    const int count = hwloc_cpukinds_get_nr(affinity->topology, 0);
    return count > 0 ? count + 1 : 1;
#else
    return 1;
#endif
}

static int kind_of(const struct eo_affinity *affinity, hwloc_const_cpuset_t core, int kinds, hwloc_cpuset_t scratch)
{
#if HWLOC_API_VERSION >= 0x00020400
    for (int kind = 0; kind + 1 < kinds; kind++) {
        if (hwloc_cpukinds_get_info(affinity->topology, (unsigned)kind, scratch, NULL, NULL, NULL, 0) == 0 &&
            hwloc_bitmap_and(scratch, scratch, core) == 0 && !hwloc_bitmap_iszero(scratch))
            return kind;
    }
#endif
    return kinds - 1;
}

struct placed_core {
    hwloc_const_cpuset_t processors;
    int kind;
    double place; /* in its kind, from 0 to 1 */
};

static int by_place(const void *a, const void *b)
{
    const struct placed_core *x = a, *y = b;
    return x->place != y->place ? (x->place < y->place ? -1 : 1) : x->kind - y->kind;
}

/* Each rank shall have as many of each kind as the others: all wait for the slowest. Neighbours stay neighbours. */
static struct placed_core *list_cores(struct eo_affinity *affinity, hwloc_obj_type_t type, uint64_t count)
{
    const int kinds = kind_count(affinity);
    struct placed_core *cores = calloc(count + 1, sizeof(*cores));
    uint64_t *of_kind = calloc((size_t)kinds, sizeof(*of_kind)), *seen = calloc((size_t)kinds, sizeof(*seen));
    hwloc_cpuset_t scratch = hwloc_bitmap_alloc();
    const bool has_room = cores && of_kind && seen && scratch;
    for (uint64_t i = 0; i < count && has_room; i++) {
        cores[i].processors = hwloc_get_obj_by_type(affinity->topology, type, (unsigned)i)->cpuset;
        cores[i].kind = kind_of(affinity, cores[i].processors, kinds, scratch);
        of_kind[cores[i].kind]++;
    }
    for (uint64_t i = 0; i < count && has_room; i++)
        cores[i].place = ((double)seen[cores[i].kind]++ + 0.5) / (double)of_kind[cores[i].kind];
    if (has_room)
        qsort(cores, count, sizeof(*cores), by_place);
    hwloc_bitmap_free(scratch);
    free(of_kind);
    free(seen);
    if (!has_room)
        free(cores);
    return has_room ? cores : NULL;
}

static eo_status choose_share(struct eo_affinity *affinity, const struct eo_affinity_share *share)
{
    const int found = hwloc_get_nbobjs_by_type(affinity->topology, HWLOC_OBJ_CORE);
    const hwloc_obj_type_t type = found > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    const uint64_t cores = (uint64_t)hwloc_get_nbobjs_by_type(affinity->topology, type);
    struct placed_core *list = list_cores(affinity, type, cores);
    if (!list)
        return EO_ERR_NO_MEMORY;
    uint64_t begin = share->index % cores, end = begin + 1;
    if (share->count <= cores) {
        begin = share->index * cores / share->count;
        end = (share->index + UINT64_C(1)) * cores / share->count;
    }
    for (uint64_t i = begin; i < end; i++)
        hwloc_bitmap_or(affinity->share, affinity->share, list[i].processors);
    free(list);
    char text[128];
    hwloc_bitmap_list_snprintf(text, sizeof(text), affinity->share);
    eo_log_write(&affinity->log, EO_LOG_INFO, "rank %u: threads and memory placed on processors %s", share->rank,
                 text);
    return EO_OK;
}

static void affinity_fini(struct eo_affinity *affinity)
{
    if (!affinity)
        return;
    if (affinity->before && affinity->share && pthread_equal(affinity->owner, pthread_self()))
        (void)hwloc_set_cpubind(affinity->topology, affinity->before, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(affinity->share);
    hwloc_bitmap_free(affinity->before);
    if (affinity->has_topology)
        hwloc_topology_destroy(affinity->topology);
    free(affinity);
}

/* hwloc moves the thread that loads to each processor in turn, those too that the process may not use: no other thread may ask
 * at this time where the process runs. */
static pthread_mutex_t topology_loading = PTHREAD_MUTEX_INITIALIZER;

/* The topology, and nothing chosen yet. NULL where hwloc cannot describe the machine. */
static eo_status load(struct eo_affinity **out, uint32_t rank, bool with_devices, const eo_log *log)
{
    *out = NULL;
    char why[1000];
    if (eo_processors_allowed().count == 0) { /* hwloc would ask again and again, for ever */
        eo_log_write(log, EO_LOG_WARN, "rank %u: threads are not placed: the system does not tell their processors", rank);
        return EO_OK;
    }
    if (eo_hwloc_load(why, sizeof(why)) < 0) {
        eo_log_write(log, EO_LOG_WARN, "rank %u: threads are not placed: %s", rank, why);
        return EO_OK;
    }
    struct eo_affinity *affinity = calloc(1, sizeof(*affinity));
    if (!affinity)
        return EO_ERR_NO_MEMORY;
    affinity->rank = rank;
    affinity->owner = pthread_self();
    if (log)
        affinity->log = *log;
    affinity->has_topology = hwloc_topology_init(&affinity->topology) == 0;
    if (affinity->has_topology && with_devices)
        (void)hwloc_topology_set_io_types_filter(affinity->topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (!affinity->has_topology || hwloc_topology_load(affinity->topology) != 0) {
        eo_log_write(log, EO_LOG_WARN, "rank %u: threads are not placed: hwloc cannot describe this machine", rank);
        affinity_fini(affinity);
        return EO_OK;
    }
    affinity->has_nodes = hwloc_get_nbobjs_by_type(affinity->topology, HWLOC_OBJ_NUMANODE) > 1;
    affinity->before = hwloc_bitmap_alloc();
    if (!affinity->before || hwloc_get_cpubind(affinity->topology, affinity->before, HWLOC_CPUBIND_THREAD) != 0) {
        hwloc_bitmap_free(affinity->before); /* unknown, so it cannot be given back */
        affinity->before = NULL;
    }
    affinity->share = hwloc_bitmap_alloc();
    if (!affinity->share) {
        affinity_fini(affinity);
        return EO_ERR_NO_MEMORY;
    }
    *out = affinity;
    return EO_OK;
}

static eo_status affinity_init(struct eo_affinity **out, const struct eo_affinity_share *share, const eo_log *log)
{
    pthread_mutex_lock(&topology_loading);
    eo_status status = load(out, share->rank, false, log);
    if (*out)
        restrict_to_process(*out);
    pthread_mutex_unlock(&topology_loading);
    if (*out)
        status = choose_share(*out, share);
    if (status < 0) {
        affinity_fini(*out);
        *out = NULL;
    }
    return status;
}

static bool choose_near(struct eo_affinity *affinity, const char *pci_bus_id)
{
    hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(affinity->topology, pci_bus_id);
    hwloc_obj_t place = device ? hwloc_get_non_io_ancestor_obj(affinity->topology, device) : NULL;
    hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
    if (place && place->cpuset && allowed && get_allowed(affinity, allowed))
        hwloc_bitmap_and(affinity->share, place->cpuset, allowed);
    hwloc_bitmap_free(allowed);
    return !hwloc_bitmap_iszero(affinity->share);
}

static eo_status affinity_init_near(struct eo_affinity **out, uint32_t rank, const char *pci_bus_id, const eo_log *log)
{
    pthread_mutex_lock(&topology_loading);
    const eo_status status = load(out, rank, true, log);
    const bool is_near = *out && choose_near(*out, pci_bus_id);
    pthread_mutex_unlock(&topology_loading);
    if (!*out)
        return status;
    if (is_near) {
        char text[128];
        hwloc_bitmap_list_snprintf(text, sizeof(text), (*out)->share);
        eo_log_write(log, EO_LOG_INFO, "rank %u: threads and memory placed on processors %s, near GPU %s", rank, text,
                     pci_bus_id);
        return EO_OK;
    }
    eo_log_write(log, EO_LOG_INFO, "rank %u: threads are not placed: this machine does not report the processors near GPU %s",
                 rank, pci_bus_id);
    affinity_fini(*out);
    *out = NULL;
    return EO_OK;
}

static void affinity_bind_thread(struct eo_affinity *affinity)
{
    if (affinity && hwloc_set_cpubind(affinity->topology, affinity->share, HWLOC_CPUBIND_THREAD) != 0)
        eo_log_write(&affinity->log, EO_LOG_WARN, "rank %u: cannot bind a thread to its cores: %s",
                     affinity->rank, strerror(errno));
}

/* Kernels without NUMA have no such call, and docker's filter refuses it. */
static void affinity_bind_memory(struct eo_affinity *affinity, void *memory, uint64_t bytes)
{
    if (!affinity || !affinity->has_nodes || affinity->has_told ||
        hwloc_set_area_membind(affinity->topology, memory, bytes, affinity->share, HWLOC_MEMBIND_BIND, 0) == 0)
        return;
    affinity->has_told = true;
    eo_log_write(&affinity->log, EO_LOG_WARN, "rank %u: cannot bind memory to its NUMA node: %s", affinity->rank,
                 strerror(errno));
}

const struct eo_affinity_ops eo_affinity_hwloc_ops = {
    .name = "hwloc",
    .init = affinity_init,
    .init_near = affinity_init_near,
    .bind_thread = affinity_bind_thread,
    .bind_memory = affinity_bind_memory,
    .fini = affinity_fini,
};
