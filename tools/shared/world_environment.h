/* SPDX-License-Identifier: MIT
 *
 * Which rank of which world this process is, from what its launcher put into the environment:
 *
 *     tools/launch   EVENODD_RANK ...               mpirun   OMPI_COMM_WORLD_RANK ... (Open MPI), PMI_RANK ... (MPICH)
 *     torchrun       RANK, WORLD_SIZE ...           srun     SLURM_PROCID ...
 *
 * and where rank 0 is: EVENODD_ADDRESS, MASTER_ADDR, or the first of Slurm's hosts; EVENODD_PORT, MASTER_PORT (one more
 * under torchrun, which listens there itself), or one that follows from the job's number. The token stands in
 * EVENODD_TOKEN (64 hexadecimal digits) or in the file that EVENODD_TOKEN_FILE names.
 */
#ifndef EO_TOOLS_SHARED_WORLD_ENVIRONMENT_H
#define EO_TOOLS_SHARED_WORLD_ENVIRONMENT_H

#include <evenodd/evenodd.h>

#include "tools/shared/problem.h"

struct tool_world_environment {
    const char *launcher; /* its name; NULL: none, the process is alone */
    uint32_t rank, rank_count, local_rank, local_count;
    char address[256], port[16]; /* "": not told */
    bool has_mpi; /* an Open MPI, if loaded, finds the other ranks: PMIx of mpirun, or of srun --mpi=pmix, is there */
    bool has_token;
    unsigned char token[EO_TOKEN_BYTES];
    char job[200];
    uint32_t restart;     /* which start of the same job this is, from 0 */
    bool is_alone;        /* a launcher started this process, and no other */
};

/* A world of one process is none. EO_ERR_INVALID: what stands there makes no sense; EO_ERR_IO: the token's file. */
EO_NODISCARD eo_status tool_world_environment_read(struct tool_world_environment *out, struct tool_problem *problem);

#endif
