/* SPDX-License-Identifier: MIT
 *
 * A world: who the ranks are and how they reach each other.
 */
#ifndef EVENODD_WORLD_H
#define EVENODD_WORLD_H

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/status.h>

typedef struct eo_world eo_world;

typedef struct eo_world_params {
    uint32_t rank_count;          /* [1] at most 64 */
    uint32_t timeout_ms;          /* [60000] the longest wait for another rank in one collective */
    double fabric_gigabytes_per_s;/* [0: none] simulated link: a collective takes at least bytes / this ... */
    double fabric_latency_us;     /* [0] ... plus this, without using the processor */
    const char *device;           /* ["cpu"] what the ranks compute on: "cpu", or "cuda" where it is built in */
    uint32_t device_index;        /* [0] the first device of that name: rank r has number (device_index + r), counted
                                     around; several ranks may share one */
    bool share_device;            /* [false] all ranks have number device_index */
    const eo_log *log;            /* [silence] copied */
} eo_world_params;
#define eo_world_params(...) EO_PARAMS(eo_world_params, __VA_ARGS__)

/* What a device says of itself before anything is reserved. */
typedef struct eo_device_facts {
    uint64_t free_bytes, total_bytes; /* of its memory */
    uint32_t device_count;            /* devices of this name on the machine, at least 1 */
} eo_device_facts;

/* How fast a device copies, in bytes a second. */
typedef struct eo_device_rates {
    double memory_bytes_per_s; /* within its memory: bytes read and bytes written */
    double host_bytes_per_s;   /* from pinned host memory, while as much goes there */
} eo_device_rates;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Asks a device ("cpu", "cuda") for its memory. It is started for the time of the call; what CUDA keeps for the process
 * from then on is already taken from free_bytes. EO_OK, EO_ERR_UNSUPPORTED (not built in, no driver, no GPU, none that
 * this build is for: logged with what to do), EO_ERR_DEVICE.
 */
EO_EXPORT EO_NODISCARD eo_status eo_device_ask(eo_device_facts *out, const char *device, uint32_t device_index,
                                               const eo_log *log);

/*
 * Times copies on a device with memory of its own ("cuda"), for some tenths of a second. For the time of the call it takes up to
 * 512 MiB there and 256 MiB of the host. EO_OK, EO_ERR_INVALID, EO_ERR_UNSUPPORTED (as eo_device_ask; and a device that computes
 * in the host's memory), EO_ERR_NO_MEMORY, EO_ERR_DEVICE: logged.
 */
EO_EXPORT EO_NODISCARD eo_status eo_device_measure(eo_device_rates *out, const char *device, uint32_t device_index,
                                                   const eo_log *log);

/*
 * A world whose ranks are threads of this process: worlds[r] is rank r's handle, to be used by that rank's thread.
 * `worlds` has room for rank_count handles, 64 at most: more are EO_ERR_INVALID, and 64 are written (NULL). Allocates. EO_OK,
 * EO_ERR_INVALID, EO_ERR_NO_MEMORY, EO_ERR_UNSUPPORTED (the device is not built in: logged).
 */
#define eo_world_create_local EO_OF_API(eo_world_create_local)
EO_EXPORT EO_NODISCARD eo_status eo_world_create_local(eo_world *worlds[], const eo_world_params *params);

enum { EO_WORLD_NONE = -1 }; /* as a color: in no group */

/*
 * Worlds inside a world, for a trainer's own layout of its ranks: ranks that give the same color form one, ordered by key
 * and then by their rank in `world`; *out is NULL for a rank whose color is (uint32_t)EO_WORLD_NONE. Collective over the
 * ranks of `world`, which must outlive it. A rank that is lost to one of them is lost to all; texts say so where they number
 * ranks as in a world inside.
 * EO_OK, EO_ERR_INVALID, EO_ERR_NO_MEMORY, EO_ERR_UNSUPPORTED (these collectives have none: logged), EO_ERR_COMM,
 * EO_ERR_TIMEOUT.
 */
EO_EXPORT EO_NODISCARD eo_status eo_world_split(eo_world **out, eo_world *world, uint32_t color, uint32_t key);

/* Runtimes on it must be destroyed before: else it is logged, and nothing done. Writes NULL. The last rank's call frees what
 * the ranks share. */
EO_EXPORT void eo_world_destroy(eo_world **world);

EO_EXPORT uint32_t eo_world_rank(const eo_world *world);
EO_EXPORT uint32_t eo_world_rank_count(const eo_world *world);

/*
 * Tells all ranks that this one gives up: their collectives end with EO_ERR_COMM and a text that names this rank and
 * the reason, instead of waiting for it. In worlds that were split its number is the one in the world that all came from. Any
 * thread; waits for nothing.
 */
EO_EXPORT void eo_world_abort(eo_world *world, const char *reason);

/* The reason of the first failure or abort in this world as text, or "" while there is none. Copies at most `bytes`. */
EO_EXPORT void eo_world_failure(const eo_world *world, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
