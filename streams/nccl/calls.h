/* SPDX-License-Identifier: MIT
 *
 * In place of nccl.h: calls of NCCL go through the loaded library. One that is not listed here does not link.
 */
#ifndef EO_STREAMS_NCCL_CALLS_H
#define EO_STREAMS_NCCL_CALLS_H

#include "streams/nccl/library.h"

#define ncclGetVersion             eo_nccl_library.ncclGetVersion
#define ncclAllGather              eo_nccl_library.ncclAllGather
#define ncclAllReduce              eo_nccl_library.ncclAllReduce
#define ncclCommAbort              eo_nccl_library.ncclCommAbort
#define ncclCommCount              eo_nccl_library.ncclCommCount
#define ncclCommCuDevice           eo_nccl_library.ncclCommCuDevice
#define ncclCommDeregister         eo_nccl_library.ncclCommDeregister
#define ncclCommDestroy            eo_nccl_library.ncclCommDestroy
#define ncclCommFinalize           eo_nccl_library.ncclCommFinalize
#define ncclCommGetAsyncError      eo_nccl_library.ncclCommGetAsyncError
#define ncclCommInitRankConfig     eo_nccl_library.ncclCommInitRankConfig
#define ncclCommRegister           eo_nccl_library.ncclCommRegister
#define ncclCommSplit              eo_nccl_library.ncclCommSplit
#define ncclCommUserRank           eo_nccl_library.ncclCommUserRank
#define ncclCommWindowDeregister   eo_nccl_library.ncclCommWindowDeregister
#define ncclCommWindowRegister     eo_nccl_library.ncclCommWindowRegister
#define ncclGroupEnd               eo_nccl_library.ncclGroupEnd
#define ncclGroupStart             eo_nccl_library.ncclGroupStart
#define ncclGetErrorString         eo_nccl_library.ncclGetErrorString
#define ncclGetLastError           eo_nccl_library.ncclGetLastError
#define ncclGetUniqueId            eo_nccl_library.ncclGetUniqueId
#define ncclMemAlloc               eo_nccl_library.ncclMemAlloc
#define ncclMemFree                eo_nccl_library.ncclMemFree
#define ncclReduceScatter          eo_nccl_library.ncclReduceScatter

#endif
