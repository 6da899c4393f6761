/* SPDX-License-Identifier: MIT
 *
 * Worlds whose ranks are processes that MPI has started, on the CPU: on one machine they read each other's memory, over
 * several they send messages.
 *
 *     a process   eo_mpi_start()                  or the program's own MPI_Init_thread
 *                 eo_world_create_mpi(&world)     of MPI_COMM_WORLD, or of any communicator: so also of some ranks alone
 *                 ... training ...
 *                 eo_world_destroy(&world)
 *                 eo_mpi_stop()                   or the program's own MPI_Finalize
 *
 * Open MPI is loaded by the first of these calls; who makes none loads nothing of it. All calls that evenodd makes go one
 * at a time, so MPI_THREAD_SERIALIZED is enough; a program that calls MPI itself while a runtime works, from any thread,
 * needs MPI_THREAD_MULTIPLE. A world uses duplicates of its communicator, and leaves that alone.
 *
 * eo_runtime_destroy waits for no other rank, and eo_world_destroy for a second at most: ranks may come there at any time.
 *
 * After a failure (a rank that is lost, late, or gives up) messages may be under way that nothing can call back: end the
 * process, and all others, with eo_mpi_abort or a status of its own. eo_mpi_stop could wait for them for ever.
 */
#ifndef EVENODD_WORLD_MPI_H
#define EVENODD_WORLD_MPI_H

#include <evenodd/world.h>

typedef struct eo_world_mpi_params {
    const void *communicator; /* [MPI_COMM_WORLD] where an MPI_Comm lies: of these ranks, one process each */
    const char *collectives;  /* [shared where possible] "shared": up to 64, all on one machine; "mpi": anywhere */
    uint32_t timeout_ms;      /* [60000] the longest wait for another rank, joining and in one collective */
    const eo_log *log;        /* [silence] copied */
} eo_world_mpi_params;
#define eo_world_mpi_params(...) EO_PARAMS(eo_world_mpi_params, __VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Loads Open MPI and starts it, with MPI_THREAD_MULTIPLE, where the program has not. Again: does nothing. EO_OK,
 * EO_ERR_INVALID (started for one thread alone, or ended already), EO_ERR_UNSUPPORTED (not built in, or not there),
 * EO_ERR_COMM.
 */
EO_EXPORT EO_NODISCARD eo_status eo_mpi_start(const eo_log *log);

/* Ends MPI where eo_mpi_start has started it; else does nothing. Worlds over it must be destroyed before. */
EO_EXPORT void eo_mpi_stop(void);

/* MPI_Abort: ends all processes of MPI's world with this status, where MPI can. Does not come back; does nothing where MPI
 * is not loaded. */
EO_EXPORT void eo_mpi_abort(int exit_status);

/*
 * This process's end of a world of the communicator's ranks. Collective over these; allocates. For the calling thread's
 * rank alone, and for one runtime at a time. Several worlds may be there, of the same or of other communicators.
 *
 * EO_OK
 * EO_ERR_INVALID      arguments; MPI was started for one thread
 * EO_ERR_UNSUPPORTED  not built in, no library, or "shared" and ranks are on several machines: logged
 * EO_ERR_NO_MEMORY
 * EO_ERR_COMM, EO_ERR_TIMEOUT
 */
#define eo_world_create_mpi EO_OF_API(eo_world_create_mpi)
EO_EXPORT EO_NODISCARD eo_status eo_world_create_mpi(eo_world **out, const eo_world_mpi_params *params);

#ifdef __cplusplus
}
#endif

#endif
