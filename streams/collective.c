/* SPDX-License-Identifier: MIT */
#include "streams/collective.h"

#include <stdio.h>
#include <string.h>

#include "eo_config.h"
#include "streams/mpi/mpi.h"
#include "streams/transports.h"

static const struct eo_comm_ops *const comm_table[] = { /* in order of preference */
    &eo_comm_local_ops,
    &eo_comm_shared_ops,
#if EO_HAVE_MPI
    &eo_comm_mpi_ops,
#endif
#if EO_HAVE_CUDA
    &eo_comm_local_cuda_ops,
    &eo_comm_nccl_ops,
#endif
};

const struct eo_mpi_ops *eo_mpi_find(void)
{
#if EO_HAVE_MPI
    return &eo_mpi_process_ops;
#else
    return NULL;
#endif
}

const struct eo_comm_ops *eo_comm_find(const char *name)
{
    for (size_t i = 0; i < sizeof(comm_table) / sizeof(comm_table[0]); i++) {
        if (strcmp(comm_table[i]->name, name) == 0)
            return comm_table[i];
    }
    return NULL;
}

void eo_comm_say_split(char *text, size_t bytes)
{
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, " (ranks are numbered as in a split world)");
}
