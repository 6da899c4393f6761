/* SPDX-License-Identifier: MIT */
#include "streams/cuda/errors.h"

#include "base/log.h"

static const cudaError_t sticky_errors[] = {
    cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorIllegalAddress,     cudaErrorLaunchTimeout,
    cudaErrorContextIsDestroyed, cudaErrorAssert,            cudaErrorHardwareStackError, cudaErrorIllegalInstruction,
    cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,         cudaErrorLaunchFailure,
    cudaErrorExternalDevice,
};

bool eo_cuda_is_sticky(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(sticky_errors) / sizeof(sticky_errors[0]); i++)
        if (sticky_errors[i] == error)
            return true;
    return false;
}

const char *eo_cuda_consequence(cudaError_t error)
{
    return eo_cuda_is_sticky(error) ? ". This call or earlier work caused it, and the GPU is lost to this process; end it, and "
                                      "run again under compute-sanitizer to find the place"
                                    : "";
}

eo_status eo_cuda_status(const eo_log *log, uint32_t rank, cudaError_t error, const char *operation)
{
    if (error == cudaSuccess)
        return EO_OK;
    (void)cudaGetLastError();
    if (error == cudaErrorNotReady)
        return EO_IN_PROGRESS;
    eo_log_write(log, EO_LOG_ERROR, "rank %u: %s: %s (CUDA error %d)%s", rank, operation, cudaGetErrorString(error),
                 (int)error, eo_cuda_consequence(error));
    return error == cudaErrorMemoryAllocation ? EO_ERR_NO_MEMORY : EO_ERR_DEVICE;
}

void eo_cuda_clear_unread(const eo_log *log, uint32_t rank)
{
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess && error != cudaErrorNotReady && !eo_cuda_is_sticky(error))
        eo_log_write(log, EO_LOG_WARN,
                     "rank %u: an earlier call of the program failed, and nobody has read its error: %s (CUDA "
                     "error %d)",
                     rank, cudaGetErrorString(error), (int)error);
}

static cudaError_t answer(cudaError_t error)
{
    if (error == cudaErrorNotReady)
        (void)cudaGetLastError();
    return error;
}

cudaError_t eo_cuda_query_event(cudaEvent_t event)
{
    return answer(cudaEventQuery(event));
}

cudaError_t eo_cuda_query_stream(cudaStream_t stream)
{
    return answer(cudaStreamQuery(stream));
}
