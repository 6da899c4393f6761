/* SPDX-License-Identifier: MIT
 *
 * In place of cudnn.h: calls of cuDNN go through the loaded library. One that is not listed here does not link.
 */
#ifndef EO_LAYERS_CUDA_ATTENTION_CUDNN_CALLS_H
#define EO_LAYERS_CUDA_ATTENTION_CUDNN_CALLS_H

#include "layers/cuda/attention/cudnn_library.h"

#define cudnnGetVersion               eo_cudnn_library.cudnnGetVersion
#define cudnnBackendCreateDescriptor  eo_cudnn_library.cudnnBackendCreateDescriptor
#define cudnnBackendDestroyDescriptor eo_cudnn_library.cudnnBackendDestroyDescriptor
#define cudnnBackendExecute           eo_cudnn_library.cudnnBackendExecute
#define cudnnBackendFinalize          eo_cudnn_library.cudnnBackendFinalize
#define cudnnBackendGetAttribute      eo_cudnn_library.cudnnBackendGetAttribute
#define cudnnBackendSetAttribute      eo_cudnn_library.cudnnBackendSetAttribute
#define cudnnCreate                   eo_cudnn_library.cudnnCreate
#define cudnnDestroy                  eo_cudnn_library.cudnnDestroy
#define cudnnGetErrorString           eo_cudnn_library.cudnnGetErrorString
#define cudnnGetLastErrorString       eo_cudnn_library.cudnnGetLastErrorString
#define cudnnSetStream                eo_cudnn_library.cudnnSetStream

#endif
