/* SPDX-License-Identifier: MIT
 *
 * cuDNN's functions, once loaded. Files that call them include layers/cuda/attention/cudnn_calls.h and write the calls as always.
 */
#ifndef EO_LAYERS_CUDA_ATTENTION_CUDNN_LIBRARY_H
#define EO_LAYERS_CUDA_ATTENTION_CUDNN_LIBRARY_H

#include <cudnn.h>

#include "layers/checks.h"

/* Each stands in cudnn_calls.h too. */
#define EO_CUDNN_FUNCTIONS(X)                                                                                         \
    X(cudnnGetVersion)                                                                                                \
    X(cudnnBackendCreateDescriptor)                                                                                   \
    X(cudnnBackendDestroyDescriptor)                                                                                  \
    X(cudnnBackendExecute)                                                                                            \
    X(cudnnBackendFinalize)                                                                                           \
    X(cudnnBackendGetAttribute)                                                                                       \
    X(cudnnBackendSetAttribute)                                                                                       \
    X(cudnnCreate)                                                                                                    \
    X(cudnnDestroy)                                                                                                   \
    X(cudnnGetErrorString)                                                                                            \
    X(cudnnGetLastErrorString)                                                                                        \
    X(cudnnSetStream)

struct eo_cudnn_library {
#define DECLARE(name) __typeof__(&name) name;
    EO_CUDNN_FUNCTIONS(DECLARE)
#undef DECLARE
};

/* NULL pointers until eo_cudnn_load has returned EO_OK. Whoever stands in for the library defines both (tests/simulator). */
extern struct eo_cudnn_library eo_cudnn_library;

/* From any thread, before the first call. EO_ERR_UNSUPPORTED: it cannot be loaded (a warning, with the remedy). */
eo_status eo_cudnn_load(const eo_log *log);

#endif
