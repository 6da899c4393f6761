/* SPDX-License-Identifier: MIT */
#include "streams/trace/nvtx.h"

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
#else
#define nvtxNameCudaStreamA(stream, name) ((void)0)
#define nvtxRangePushA(name) ((void)0)
#define nvtxRangePop() ((void)0)
#endif

void eo_nvtx_name_stream(void *stream, const char *name)
{
    nvtxNameCudaStreamA(stream, name);
}

void eo_nvtx_push(const char *name)
{
    (void)nvtxRangePushA(name);
}

void eo_nvtx_pop(void)
{
    (void)nvtxRangePop();
}
