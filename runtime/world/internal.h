/* SPDX-License-Identifier: MIT
 *
 * A world from inside: a rank's end of a group of collectives.
 */
#ifndef EO_RUNTIME_WORLD_INTERNAL_H
#define EO_RUNTIME_WORLD_INTERNAL_H

#include <unistd.h>

#include <evenodd/world.h>

#include "streams/collective.h"
#include "streams/local/local.h"

struct eo_world {
    pid_t owner; /* the process that is in it */
    uint32_t rank, rank_count;
    uint32_t root_rank; /* of a world that was split from another: in the one that all came from. What fails, fails there */
    bool is_split;
    char device[16]; /* its name */
    uint32_t device_index;
    uint32_t share_rank, share_ranks; /* among the ranks that may run on the same processors; 0: all of the world's */
    uint32_t memory_ranks; /* that take from the same memory as this one, itself counted; 0: those with the same device,
                              which ranks were given in turn */
    uint32_t host_ranks; /* that take from the same memory of the host, itself and those of other worlds of a split counted; 0:
                            unknown */
    uint32_t processes;  /* that these are in; 0: one, or unknown */
    const struct eo_comm_ops *ops;
    struct eo_group *group;
    uint32_t runtime_count; /* on it, which read it */
    bool had_runtime;       /* since it was made */
    eo_log log;
};

/* EO_ERR_INVALID: logged. */
eo_status eo_world_check_fabric(const eo_log *log, double gigabytes_per_s, double latency_us);

/* Of ranks on CPUs, where nobody has chosen. Of too many ranks for it, "shared" says what to do where there is no "mpi". */
static inline const char *eo_world_cpu_collectives(bool is_one_machine, uint32_t rank_count)
{
    return is_one_machine && (rank_count <= EO_LOCAL_RANKS_MAX || !eo_comm_find("mpi")) ? "shared" : "mpi";
}

/* Fills the shares of a world of processes. Collective. */
eo_status eo_world_find_share(struct eo_world *world, const struct eo_exchange *exchange);

/* How many ranks take from the memory of this one's host: where that is unknown, one for each of its `devices`. */
uint32_t eo_world_host_ranks(const struct eo_world *world, uint32_t devices);

#endif
