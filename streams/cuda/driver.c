/* SPDX-License-Identifier: MIT
 *
 * Functions of CUDA's driver: the runtime library finds them at run time.
 */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "streams/cuda/parts.h"

bool eo_cuda_find_function(const char *name, void **function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, function, 10020, cudaEnableDefault, &found);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess && *function;
}

void *eo_cuda_context(void)
{
    PFN_cuCtxGetCurrent_v4000 get = NULL;
    CUcontext context = NULL;
    void *const function = &get;
    return eo_cuda_find_function("cuCtxGetCurrent", function) && get(&context) == CUDA_SUCCESS ? context : NULL;
}

void eo_cuda_context_give_back(void *context)
{
    PFN_cuCtxSetCurrent_v4000 set = NULL;
    void *const function = &set;
    if (context && eo_cuda_find_function("cuCtxSetCurrent", function))
        (void)set(context);
}
