/* SPDX-License-Identifier: MIT
 *
 * NCCL's functions, once loaded. Files that call them include streams/nccl/calls.h and write the calls as always.
 */
#ifndef EO_STREAMS_NCCL_LIBRARY_H
#define EO_STREAMS_NCCL_LIBRARY_H

#include <evenodd/status.h>
#include <nccl.h>

#include "base/log.h"

/* Each stands in calls.h too. */
#define EO_NCCL_FUNCTIONS(X)                                                                                          \
    X(ncclGetVersion)                                                                                                 \
    X(ncclAllGather)                                                                                                  \
    X(ncclAllReduce)                                                                                                  \
    X(ncclCommAbort)                                                                                                  \
    X(ncclCommCount)                                                                                                  \
    X(ncclCommCuDevice)                                                                                               \
    X(ncclCommDeregister)                                                                                             \
    X(ncclCommDestroy)                                                                                                \
    X(ncclCommFinalize)                                                                                               \
    X(ncclCommGetAsyncError)                                                                                          \
    X(ncclCommInitRankConfig)                                                                                         \
    X(ncclCommRegister)                                                                                               \
    X(ncclCommSplit)                                                                                                  \
    X(ncclCommUserRank)                                                                                               \
    X(ncclCommWindowDeregister)                                                                                       \
    X(ncclCommWindowRegister)                                                                                         \
    X(ncclGroupEnd)                                                                                                   \
    X(ncclGroupStart)                                                                                                 \
    X(ncclGetErrorString)                                                                                             \
    X(ncclGetLastError)                                                                                               \
    X(ncclGetUniqueId)                                                                                                \
    X(ncclMemAlloc)                                                                                                   \
    X(ncclMemFree)                                                                                                    \
    X(ncclReduceScatter)

struct eo_nccl_library {
#define DECLARE(name) __typeof__(&name) name;
    EO_NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
};

/* NULL pointers until eo_nccl_load has returned EO_OK. Whoever stands in for the library defines both (tests/simulator). */
extern struct eo_nccl_library eo_nccl_library;

/* From any thread, before the first call. EO_ERR_UNSUPPORTED: it cannot be loaded (logged, with the remedy). */
eo_status eo_nccl_load(const eo_log *log);

#endif
