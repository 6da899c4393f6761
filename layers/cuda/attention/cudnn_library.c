/* SPDX-License-Identifier: MIT */
#include "layers/cuda/attention/cudnn_library.h"

#include "base/library.h"

struct eo_cudnn_library eo_cudnn_library;

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

eo_status eo_cudnn_load(const eo_log *log)
{
    static const char *const functions[] = {
#define NAME(name) #name,
        EO_CUDNN_FUNCTIONS(NAME)
#undef NAME
    };
    static struct eo_library library = {
        .title = "cuDNN",
        .file = "libcudnn.so." TEXT(CUDNN_MAJOR),
        .folder = EO_LAYERS_CUDA_FOLDER,
        .remedy = "Attention runs as products instead, more slowly; install cuDNN, or add its folder to LD_LIBRARY_PATH",
        .functions = functions,
        .function_count = sizeof(functions) / sizeof(functions[0]),
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    char text[1000];
    if (eo_library_load(&library, &eo_cudnn_library, text, sizeof(text)))
        return EO_OK;
    eo_layers_log(log, EO_LOG_WARN, "%s", text);
    return EO_ERR_UNSUPPORTED;
}
