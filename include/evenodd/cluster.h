/* SPDX-License-Identifier: MIT
 *
 * Ranks in processes of their own, on one host or many: how they find each other, and how they learn that one is lost.
 *
 *     a process   eo_rendezvous_create(&rendezvous, rank, rank_count, address of rank 0, token)    waits for all ranks
 *                 eo_world_create_joined(&world, rendezvous)                                       its end of the world
 *                 ... training ...
 *                 eo_world_destroy, eo_rendezvous_destroy                                          waits for all ranks
 *                 eo_mpi_stop()               of evenodd/world_mpi.h: ends MPI if the world started it; not after a failure
 *
 * The rendezvous stays open. A thread of its own in each process sends signs of life along a tree: the ranks of a host to
 * its first one, hosts to each other. A process that ends without having said so is told to all ranks at once, one that
 * does not answer when its time is over: `failed` is called in every process, with the rank's name, host and process.
 *
 * Who wants to join must know the token, 256 bits that whoever started the ranks has given to all of them; it is proven,
 * and never sent. What the ranks say to each other here is encrypted and authenticated; what collectives carry between hosts
 * (MPI, NCCL) is not. The library reads no environment: examples/processes.c
 * shows what can be found there under mpirun, Slurm, torchrun and tools/launch.
 *
 * The rendezvous knows nothing of worlds. A rank that fails calls eo_rendezvous_fail and eo_world_abort; `failed` of the others
 * calls eo_world_abort, or they wait in their collective until its timeout, and then ends the process.
 */
#ifndef EVENODD_CLUSTER_H
#define EVENODD_CLUSTER_H

#include <evenodd/world.h>

enum { EO_TOKEN_BYTES = 32, EO_EXCHANGE_MAX = 4096 };

typedef struct eo_rendezvous eo_rendezvous;

typedef struct eo_rank_failure {
    eo_status status; /* of a rank that is lost: EO_ERR_COMM, its process has ended; EO_ERR_TIMEOUT, it does not answer */
    uint32_t rank;    /* whose; UINT32_MAX: nobody's in particular */
    bool lost;        /* its process has ended, or does not answer; else it gave up by itself and the text says why */
    char text[1024];
} eo_rank_failure;

typedef struct eo_rendezvous_params {
    uint32_t rank, rank_count;        /* required */
    uint32_t local_rank, local_count; /* [0, 1] among the ranks of this host: these meet without a network. Rank 0 has
                                         local rank 0. All ranks on one host: local_rank is the rank, local_count rank_count */
    const char *address, *port;       /* of rank 0, for ranks of several hosts: a name or number that the others reach, of
                                         an interface of rank 0's host. Neither has a default. With more than 8 ranks elsewhere the first
                                         rank of another host listens too, at a free port of the address by which it reached
                                         rank 0: from 10 hosts on hosts connect to each other */
    const unsigned char *token;       /* [none: only on one host, or `insecure`] EO_TOKEN_BYTES */
    const char *job;                  /* [""] the same on all ranks of a job, another for every start: keeps jobs apart */
    const char *host;                 /* [its name] how this host is called in messages */
    uint32_t timeout_ms;              /* [60000] the longest wait for all ranks to join; in an exchange, for the last rank,
                                         counted from the first */
    uint32_t silence_ms;              /* [60000] a rank that gives no sign of life for so long is lost */
    /* Called once, by the rendezvous' own thread, when any rank is lost or gives up. May be NULL. Like `activity` it returns,
       or ends the process: no longjmp and no exception leaves it. */
    void (*failed)(void *user, const eo_rank_failure *failure);
    /* Called again and again by that thread: what this rank does, in a line for others to read. May be NULL. */
    void (*activity)(void *user, char *text, size_t bytes);
    void *user;
    const eo_log *log;                /* [silence] copied; also called by a thread of the rendezvous' own, which destroy
                                         waits for a second at most */
    bool insecure;                    /* ranks of several hosts may have no token: whoever reaches them is then believed, and
                                         the log says so */
} eo_rendezvous_params;
#define eo_rendezvous_params(...) EO_PARAMS(eo_rendezvous_params, __VA_ARGS__)

typedef struct eo_rank_info {
    uint32_t process;
    char host[64];
    uint64_t machine; /* ranks with the same one can read each other's memory; 0: it cannot be said */
} eo_rank_info;

typedef struct eo_world_join_params {
    eo_rendezvous *rendezvous;  /* required; outlives the world */
    const char *device;         /* ["cpu"] "cuda" */
    uint32_t device_index;      /* [0] which GPU of this host: as a rule the local rank */
    const char *collectives;    /* [cuda: "nccl"; cpu: "shared" where all are on one machine, 64 at most, else
                                   "mpi": all started by Open MPI's mpirun or srun --mpi=pmix] how
                                   ranks reach each other's memory */
    const char *mode;           /* nccl: see evenodd/world_nccl.h */
    bool launch_order_is_implicit; /* nccl: the same */
    uint32_t timeout_ms;        /* [60000] the longest wait for another rank in one collective */
    double fabric_gigabytes_per_s, fabric_latency_us; /* [0] as in eo_world_params, where the collectives can */
    const eo_log *log;          /* [silence] copied */
    const char *node;           /* nccl: [the machine since its start] NCCL_HOSTID, which is what NCCL takes for a node, where
                                   it is set: ranks of different ones may share a GPU */
} eo_world_join_params;
#define eo_world_join_params(...) EO_PARAMS(eo_world_join_params, __VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Waits until all ranks have come. Starts a thread, which lives until destroy.
 *
 * EO_OK
 * EO_ERR_INVALID   arguments; this rank was refused, or does not hold rank 0's token (logged: why)
 * EO_ERR_TIMEOUT   not all came: the log names who is missing. Ranks of one host with different tokens do not meet, either
 * EO_ERR_COMM      one was lost while the others came
 * EO_ERR_IO        the address cannot be listened to, or a name was not known within timeout_ms
 * EO_ERR_NO_MEMORY
 */
#define eo_rendezvous_create EO_OF_API(eo_rendezvous_create)
EO_EXPORT EO_NODISCARD eo_status eo_rendezvous_create(eo_rendezvous **out, const eo_rendezvous_params *params);

/*
 * Where nothing has failed, waits for all ranks to come here, so that nobody takes the end of this process for a loss; but
 * timeout_ms at most: a rank that is later counts as lost, for one that hangs would hold all. So have long work at the end,
 * such as an export, behind a wait of your own. Else it waits for what is still to be sent, a second at most. Writes NULL.
 * Not within `failed`, `activity` or the log (then it is logged, and nothing is done): end the process there by _exit.
 */
EO_EXPORT void eo_rendezvous_destroy(eo_rendezvous **rendezvous);

/*
 * recv[r * bytes ...] = what rank r sends; bytes: 1 ... EO_EXCHANGE_MAX, the same on all ranks. Collective, blocks; also a
 * barrier. One thread at a time. `send` may be written again when it returns, whatever it returns. EO_OK, EO_ERR_INVALID,
 * EO_ERR_TIMEOUT, or the status of a failure: after one all exchanges end with it.
 */
EO_EXPORT EO_NODISCARD eo_status eo_rendezvous_all_gather(eo_rendezvous *rendezvous, const void *send, uint32_t bytes,
                                                          void *recv);

/* Tells all ranks that this one gives up, with `status` (< 0) and why: `failed` is called there. Any thread; waits for nothing.
 * Collectives of a world are not ended by it: see eo_world_abort. */
EO_EXPORT void eo_rendezvous_fail(eo_rendezvous *rendezvous, eo_status status, const char *text);

/* The first failure; false: there is none. Any thread. */
EO_EXPORT bool eo_rendezvous_failure(eo_rendezvous *rendezvous, eo_rank_failure *out);

EO_EXPORT uint32_t eo_rendezvous_rank(const eo_rendezvous *rendezvous);
EO_EXPORT uint32_t eo_rendezvous_rank_count(const eo_rendezvous *rendezvous);
/* Of any rank. */
EO_EXPORT eo_rank_info eo_rendezvous_rank_info(const eo_rendezvous *rendezvous, uint32_t rank);

/*
 * This rank's end of a world of all ranks. Collective. EO_OK, EO_ERR_INVALID, EO_ERR_UNSUPPORTED (collectives or device
 * are not built in: logged), EO_ERR_NO_MEMORY, EO_ERR_COMM, EO_ERR_TIMEOUT.
 */
#define eo_world_create_joined EO_OF_API(eo_world_create_joined)
EO_EXPORT EO_NODISCARD eo_status eo_world_create_joined(eo_world **out, const eo_world_join_params *params);

#ifdef __cplusplus
}
#endif

#endif
