/* SPDX-License-Identifier: MIT
 *
 * The tables of the collectives on CUDA, for the list of backends; without a header of CUDA.
 */
#ifndef EO_STREAMS_CUDA_COLLECTIVES_CUDA_H
#define EO_STREAMS_CUDA_COLLECTIVES_CUDA_H

#include "streams/collective.h"

extern const struct eo_comm_ops eo_comm_local_cuda_ops; /* ranks are threads of one process */
extern const struct eo_comm_ops eo_comm_nccl_ops;       /* a group is joined; a GPU for each rank */

#endif
