/* SPDX-License-Identifier: MIT
 *
 * MPI as a process has it: loaded when somebody asks for it, and not before, so that what is linked with evenodd and
 * uses no MPI loads none. Its collectives are the table "mpi" of streams/collective.h.
 *
 * All calls of evenodd go one at a time, so MPI_THREAD_SERIALIZED is enough; a program that calls MPI itself while a
 * runtime works needs MPI_THREAD_MULTIPLE.
 */
#ifndef EO_STREAMS_MPI_MPI_H
#define EO_STREAMS_MPI_MPI_H

#include "streams/collective.h"

struct eo_mpi_exchange;

struct eo_mpi_ops {
    /* Loads the library, and starts MPI where the program has not. Again: does nothing. */
    eo_status (*start)(const eo_log *log);
    /* Ends MPI where `start` has started it. */
    void (*stop)(void);
    /* Ends all processes of MPI's world, this one among them, if it can. */
    void (*end_all)(int exit_status);
    /* `communicator`: where an MPI_Comm lies; NULL: MPI_COMM_WORLD. */
    eo_status (*place)(const void *communicator, struct eo_group_place *place, const eo_log *log);
    /* Collective over the communicator, which is duplicated. */
    eo_status (*exchange_open)(struct eo_mpi_exchange **out, const void *communicator, uint32_t timeout_ms,
                               const eo_log *log);
    struct eo_exchange (*exchange_of)(struct eo_mpi_exchange *exchange);
    void (*exchange_close)(struct eo_mpi_exchange *exchange);
};

extern const struct eo_mpi_ops eo_mpi_process_ops;

/* NULL where MPI is not built in (streams/collective.c). */
const struct eo_mpi_ops *eo_mpi_find(void);

#endif
