/* SPDX-License-Identifier: MIT
 *
 * Names for NVIDIA's profilers, where its header NVTX is there: streams, and ranges of the host's time in which an
 * operation was issued. Without a profiler a call is a test of a pointer. The same ranges name what CUPTI tells.
 */
#include "streams/cuda/device_cuda.h"

#include <stdio.h>

#include "streams/cuda/cupti_cuda.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExtCudaRt.h>)
#define EO_HAS_NVTX 1
#endif
#endif

#if defined(EO_HAS_NVTX)

/* The header would define its globals for everyone who is linked with us; this way they are this file's own. Should it
 * change how it does that, the test of symbols tells. */
#define __NVTX_LINKONCE_H__
#define NVTX_LINKONCE_DEFINE_GLOBAL    static
#define NVTX_LINKONCE_DEFINE_FUNCTION  static __attribute__((unused))
#define NVTX_LINKONCE_FWDDECL_GLOBAL   static
#define NVTX_LINKONCE_FWDDECL_FUNCTION static __attribute__((unused))
#define InitializeInjectionNvtx2_fnptr eo_cuda_linked_profiler /* weak, and nobody's */
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

void eo_cuda_name_streams(const struct eo_device *device)
{
    static const char *const names[EO_QUEUES_MAX] = {"compute", "collectives", "reductions"};
    for (uint32_t i = 0; i < device->params.queue_count; i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "evenodd rank %u %s", device->params.rank, names[i]);
        nvtxNameCudaStreamA(eo_cuda_of(device)->streams[i], text);
    }
}

void eo_cuda_range_begin(struct eo_device *device, const char *name)
{
    (void)nvtxRangePushA(name);
    eo_cuda_profiler_push(name);
}

void eo_cuda_range_end(struct eo_device *device)
{
    eo_cuda_profiler_pop();
    (void)nvtxRangePop();
}

#else

void eo_cuda_name_streams(const struct eo_device *device)
{
}

void eo_cuda_range_begin(struct eo_device *device, const char *name)
{
    eo_cuda_profiler_push(name);
}

void eo_cuda_range_end(struct eo_device *device)
{
    eo_cuda_profiler_pop();
}

#endif
