/* SPDX-License-Identifier: MIT */
#include "streams/nccl/library.h"

#include "base/library.h"
#include "eo_config.h"

struct eo_nccl_library eo_nccl_library;

eo_status eo_nccl_load(const eo_log *log)
{
    static const char *const functions[] = {
#define NAME(name) #name,
        EO_NCCL_FUNCTIONS(NAME)
#undef NAME
    };
    static struct eo_library library = {
        .title = "NCCL",
        .file = "libnccl.so.2",
        .folder = EO_CUDA_FOLDER,
        .remedy = "Worlds of NCCL need it, at the version of this build's header or newer: install it, or add its folder to "
                  "LD_LIBRARY_PATH",
        .functions = functions,
        .function_count = sizeof(functions) / sizeof(functions[0]),
        .is_shared = true, /* with who gives us an ncclComm_t */
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    char text[1000];
    if (eo_library_load(&library, &eo_nccl_library, text, sizeof(text)))
        return EO_OK;
    eo_log_write(log, EO_LOG_ERROR, "%s", text);
    return EO_ERR_UNSUPPORTED;
}
