/* SPDX-License-Identifier: MIT
 *
 * Worlds whose ranks have a GPU each and reach each other through NCCL: a process for each rank, on one node or many.
 * How ranks find each other is the caller's: one makes an id, all get it, and each creates its own handle.
 *
 *     rank 0    eo_nccl_id_create(&id)  --> the caller sends it to all
 *     a rank    eo_nccl_peer_of(&peer)  --> the caller gathers them, in rank order (optional: clear errors before any hang)
 *     a rank    eo_world_create_nccl(&world, rank, rank_count, id, peers)
 *
 * Or from a communicator that is there already: it is split, and otherwise left alone.
 *
 * Before the first call of NCCL in a process the environment should have NCCL_LAUNCH_ORDER_IMPLICIT=1 (then say so in
 * launch_order_is_implicit) and NCCL_NVLS_ENABLE=1 or 0 (with its default of 2, a machine that can give its multicast
 * memory to some ranks only hangs). The library reads no environment: tools and launchers set it.
 */
#ifndef EVENODD_WORLD_NCCL_H
#define EVENODD_WORLD_NCCL_H

#include <evenodd/world.h>

/* Bytes to be sent as they are, between machines of one architecture. */
typedef struct eo_nccl_id {
    unsigned char bytes[128];
} eo_nccl_id;

typedef struct eo_nccl_peer {
    unsigned char bytes[128]; /* the node, the GPU, the process, the version of NCCL */
} eo_nccl_peer;

typedef struct eo_world_nccl_params {
    uint32_t rank, rank_count;  /* required */
    const eo_nccl_id *id;       /* of eo_nccl_id_create, the same on all ranks; or: */
    void *communicator;         /* an ncclComm_t of these ranks, not made with splitShare = 1. Left idle by its owner while
                                   world and runtime are created, and destroyed by it after the world. Made with blocking = 0,
                                   else no deadline ends its splits where a rank does not come */
    const eo_nccl_peer *peers;  /* [NULL: unknown] of all ranks: two ranks on one GPU or of different versions are named */
    uint32_t device_index;      /* [0] this rank's GPU, counted around */
    const char *mode;           /* ["registered"] "plain", "registered", "zero", "symmetric": see docs/gpu.md. A mode that
                                   this NCCL runs wrongly is refused */
    uint32_t cta_max;           /* [NCCL's choice] blocks that a collective may take */
    bool launch_order_is_implicit; /* [false] NCCL_LAUNCH_ORDER_IMPLICIT=1 is set; else gathers and reductions of one rank
                                   run one by one */
    uint32_t timeout_ms;        /* [60000] the longest that this rank waits for others, joining and in one collective; for a
                                   captured step by four times the longest one longer, closing by 10 s longer */
    const eo_log *log;          /* [silence] copied */
} eo_world_nccl_params;
#define eo_world_nccl_params(...) EO_PARAMS(eo_world_nccl_params, __VA_ARGS__)

/* What the world runs on, for who prints it. */
typedef struct eo_world_nccl_info {
    uint32_t built_version, run_version; /* of NCCL; 22809: 2.28.9 */
    const char *mode;                    /* static */
    char gather[96], reduce[96];         /* how all-gathers and reduce-scatters were set up to run */
    uint64_t communicator_bytes;         /* device memory that went away while communicators were made; it grows when
                                            collectives run first */
    uint64_t registered_bytes, register_ns;
    uint64_t outside_count; /* collectives on memory that is not registered: they run as plain kernels */
    bool must_exit;         /* after a failure: work is stuck on the GPU or in NCCL, and nothing can end it. Destroying runtime
                               and world does not hang, but leaves all of it; end the process without destructors (_exit) */
} eo_world_nccl_info;

#ifdef __cplusplus
extern "C" {
#endif

/* For one rank. Needs no GPU. EO_OK, EO_ERR_INVALID, EO_ERR_COMM, EO_ERR_UNSUPPORTED (not built in). */
#define eo_nccl_id_create EO_OF_API(eo_nccl_id_create)
EO_EXPORT EO_NODISCARD eo_status eo_nccl_id_create(eo_nccl_id *id, const eo_log *log);

/* What this rank has to tell the others. EO_OK, EO_ERR_INVALID, EO_ERR_UNSUPPORTED (not built in, or no GPU: logged). */
EO_EXPORT EO_NODISCARD eo_status eo_nccl_peer_of(eo_nccl_peer *peer, uint32_t device_index, const eo_log *log);

/*
 * Joins the world: waits for all ranks, or the deadline. The handle is for the calling thread's rank alone, and for one
 * runtime at a time. Allocates, on the GPU too.
 *
 * EO_OK
 * EO_ERR_INVALID      arguments, or ranks that cannot be together: two on one GPU, different versions
 * EO_ERR_UNSUPPORTED  not built in, no GPU, a library older than its header, a mode that it does not run rightly
 * EO_ERR_NO_MEMORY, EO_ERR_DEVICE
 * EO_ERR_COMM         NCCL failed; the log has its text
 * EO_ERR_TIMEOUT      a rank did not come
 *
 * eo_world_abort tells this process's rank alone: the others learn of it by their deadline, or from who started them.
 */
#define eo_world_create_nccl EO_OF_API(eo_world_create_nccl)
EO_EXPORT EO_NODISCARD eo_status eo_world_create_nccl(eo_world **out, const eo_world_nccl_params *params);

/* EO_ERR_INVALID for a world of another kind. Any time; the rank's thread. */
EO_EXPORT EO_NODISCARD eo_status eo_world_nccl_get_info(const eo_world *world, eo_world_nccl_info *out);

#ifdef __cplusplus
}
#endif

#endif
