/* SPDX-License-Identifier: MIT
 *
 * The tables of all transports, for the list in streams/collective.c.
 */
#ifndef EO_STREAMS_TRANSPORTS_H
#define EO_STREAMS_TRANSPORTS_H

#include "streams/collective.h"

extern const struct eo_comm_ops eo_comm_local_ops;      /* ranks are threads of one process */
extern const struct eo_comm_ops eo_comm_shared_ops;     /* processes of one machine */
extern const struct eo_comm_ops eo_comm_mpi_ops;        /* processes of MPI */
extern const struct eo_comm_ops eo_comm_local_cuda_ops; /* threads of one process, on GPUs */
extern const struct eo_comm_ops eo_comm_nccl_ops;       /* a GPU for each rank */

#endif
