/* SPDX-License-Identifier: MIT
 *
 * A run of the small network, and a rank of it.
 */
#ifndef EO_TESTS_SIMULATOR_MICRO_RANK_H
#define EO_TESTS_SIMULATOR_MICRO_RANK_H

#include <nccl.h>
#include <pthread.h>

#include "micro_model.h"

enum { HEAD = MICRO_POSITIONS - 1, SAMPLE = MICRO_IN + MICRO_OUT };

extern const struct micro_layer {
    const char *name, *weight, *bias;
    uint32_t in, out, offset;
    bool matrix;
} micro_layers[MICRO_LAYERS];
extern const uint32_t micro_layer_of[MICRO_POSITIONS];

struct run {
    struct micro_settings settings;
    struct micro_result *result;
    eo_model *model;
    eo_plan *plan, *other_plan /* of the last rank, or NULL */;
    eo_nccl_id id;
    eo_world *worlds[MICRO_RANKS_MAX];
    uint32_t outputs[MICRO_POSITIONS], gradients[MICRO_POSITIONS], data;
    pthread_mutex_t lock;
    eo_log log;
};

struct rank {
    struct run *run;
    uint32_t rank;
    ncclComm_t communicator; /* of the caller's own making, or NULL */
    eo_world *world;
    eo_runtime *runtime;
    bool on_host, captures;
    void *stream;
};

/* All of a training. The first failure is noted in the run's result. */
eo_status micro_rank_train(struct rank *self);
void micro_rank_end(struct rank *self); /* of a communicator of its own */

#endif
