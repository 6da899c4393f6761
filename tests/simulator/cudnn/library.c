/* SPDX-License-Identifier: MIT
 *
 * The simulator's functions in place of the loaded library's (layers/cuda/attention/cudnn_library.c): there once they are asked for, so
 * that a call before that ends the program.
 */
#include "layers/cuda/attention/cudnn_library.h"

#include "tests/simulator/cuda/internal.h"

struct eo_cudnn_library eo_cudnn_library;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

eo_status eo_cudnn_load(const eo_log *log)
{
    static const struct eo_cudnn_library simulated = {
#define SET(name) .name = name,
        EO_CUDNN_FUNCTIONS(SET)
#undef SET
    };
    static bool is_loaded;
    const bool lacks = sim_lacks("cudnn");
    pthread_mutex_lock(&lock);
    if (is_loaded == lacks)
        eo_cudnn_library = lacks ? (struct eo_cudnn_library){0} : simulated;
    is_loaded = !lacks;
    pthread_mutex_unlock(&lock);
    if (lacks)
        eo_layers_log(log, EO_LOG_WARN, "cuDNN cannot be loaded: the simulated machine has none");
    return lacks ? EO_ERR_UNSUPPORTED : EO_OK;
}
