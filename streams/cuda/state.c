/* SPDX-License-Identifier: MIT */
#include "streams/cuda/state.h"

/* Where CUDA does not say, what it said last. */
static cudaError_t ask_capture(const struct eo_cuda *cuda, uint32_t queue, bool *is_capturing)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(cuda->streams[queue], &status);
    *is_capturing = error == cudaSuccess ? status != cudaStreamCaptureStatusNone : cuda->is_capturing;
    return error;
}

eo_status eo_cuda_note(struct eo_device *device, cudaError_t error, const char *operation)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    if (error == cudaSuccess)
        return EO_OK;
    const bool is_again = cuda->error < 0; /* one failure, one line: all later calls fail as well */
    const eo_status status = eo_cuda_status(is_again ? NULL : &device->log, device->params.rank, error, operation);
    bool is_capturing = false;
    if (!eo_cuda_is_sticky(error) && cuda->streams[EO_QUEUE_COMPUTE] &&
        ask_capture(cuda, EO_QUEUE_COMPUTE, &is_capturing) != cudaSuccess)
        (void)cudaGetLastError();
    if (is_capturing) {
        if (cuda->capture_error == EO_OK)
            cuda->capture_error = status;
    } else if (!is_again) {
        cuda->error = status;
    }
    return status;
}

/* Captures may be begun by others, on a stream that ours join: asked for, and not assumed. */
bool eo_cuda_sees_capture(struct eo_device *device, uint32_t queue)
{
    struct eo_cuda *cuda = eo_cuda_of(device);
    bool sees;
    (void)eo_cuda_note(device, ask_capture(cuda, queue, &sees), "cudaStreamIsCapturing");
    if (sees && !cuda->is_capturing)
        cuda->capture_count++;
    cuda->is_capturing = sees;
    return sees;
}
