/* SPDX-License-Identifier: MIT */
#include "streams/local/cuda_meet.h"

#include <string.h>

#include "base/check.h"

eo_status eo_local_cuda_fail(struct eo_comm *comm, cudaError_t error, const char *call, const char *label)
{
    const eo_status status = eo_cuda_status(NULL, comm->end.rank, error, call);
    return eo_local_fail(comm->end.group, status < 0 ? status : EO_ERR_DEVICE,
                         "rank %u, '%s', collective %llu: %.*s: %s (CUDA error %d)%s", comm->end.rank, label,
                         (unsigned long long)comm->end.sequence, (int)strcspn(call, "("), call, cudaGetErrorString(error),
                         (int)error, eo_cuda_consequence(error));
}

eo_status eo_local_cuda_barrier(struct eo_comm *comm, const char *label)
{
    EO_TRY(eo_local_failure(comm->end.group));
    eo_local_enter(&comm->end, &(const struct eo_local_post){.kind = EO_LOCAL_BARRIER, .label = label});
    const eo_status status = eo_local_meet(&comm->end, false, eo_now_ns());
    eo_local_leave(&comm->end);
    return status;
}
