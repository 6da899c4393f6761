/* SPDX-License-Identifier: MIT
 *
 * The simulator's functions in place of the loaded library's (streams/nccl/library.c): there once they are asked for, so that
 * a call before that ends the program.
 */
#include "streams/nccl/library.h"

#include "tests/simulator/cuda/internal.h"

struct eo_nccl_library eo_nccl_library;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

eo_status eo_nccl_load(const eo_log *log)
{
    static const struct eo_nccl_library simulated = {
#define SET(name) .name = name,
        EO_NCCL_FUNCTIONS(SET)
#undef SET
    };
    static bool is_loaded;
    const bool lacks = sim_lacks("nccl");
    pthread_mutex_lock(&lock);
    if (is_loaded == lacks)
        eo_nccl_library = lacks ? (struct eo_nccl_library){0} : simulated;
    is_loaded = !lacks;
    pthread_mutex_unlock(&lock);
    if (lacks)
        eo_log_write(log, EO_LOG_ERROR, "NCCL cannot be loaded: the simulated machine has none");
    return lacks ? EO_ERR_UNSUPPORTED : EO_OK;
}
