/* SPDX-License-Identifier: MIT
 *
 * Failed calls on a GPU: their texts and statuses.
 */
#include "layers/cuda/internal.h"

/* Libraries tell of a lost GPU by codes of their own, and each call after it fails as well: so the stream is asked. One that is
 * captured must not be. */
static const char *loss_of(const struct eo_cuda_team *team)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (!team->stream)
        return "";
    cudaError_t error = cudaStreamIsCapturing(team->stream, &capture);
    if (error == cudaSuccess && capture == cudaStreamCaptureStatusNone)
        error = cudaStreamQuery(team->stream);
    (void)cudaGetLastError();
    return error == cudaSuccess || error == cudaErrorNotReady
               ? ""
               : ". The GPU is lost to this process, through this call or earlier work; end it, and run again under "
                 "compute-sanitizer to find the place";
}

void eo_cuda_tell(const struct eo_cuda_team *team, const char *library, const char *what, const char *error)
{
    const struct eo_team *base = &team->base;
    if (base->layer)
        eo_layers_log(&team->log, EO_LOG_ERROR, "rank %u, %s, %s: %s: %s failed on device %d (%s): %s%s", base->rank,
                      base->layer, base->pass, library, what, team->device, team->device_name, error, loss_of(team));
    else
        eo_layers_log(&team->log, EO_LOG_ERROR, "%s: %s failed on device %d (%s): %s%s", library, what, team->device,
                      team->device_name, error, loss_of(team));
}

eo_status eo_cuda_check(const struct eo_cuda_team *team, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return EO_OK;
    (void)cudaGetLastError(); /* or the next, innocent call reports this one again */
    eo_cuda_tell(team, "cuda", what, cudaGetErrorString(error));
    return error == cudaErrorMemoryAllocation ? EO_ERR_NO_MEMORY : EO_ERR_DEVICE;
}

void eo_cuda_clear_unread_before(const struct eo_cuda_team *team)
{
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess && error != cudaErrorNotReady)
        eo_layers_log(&team->log, EO_LOG_WARN, "cuda: an earlier call of the program failed, and nobody has read its error: %s",
                      cudaGetErrorString(error));
}
