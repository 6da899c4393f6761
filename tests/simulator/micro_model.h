/* SPDX-License-Identifier: MIT
 *
 * A small network with kernels of its own, trained through the public API alone, on the CPU or on a (simulated) GPU. The
 * kernels are one source: called at once on the CPU, enqueued on eo_runtime_stream() elsewhere.
 *
 *     position   0       1         2         3         4
 *     layer      in      body.0    body.1    body.0    out     (body.0 is tied; the loss is in the backward pass of out)
 */
#ifndef EO_TESTS_SIMULATOR_MICRO_MODEL_H
#define EO_TESTS_SIMULATOR_MICRO_MODEL_H

#include <evenodd/evenodd.h>
#include <evenodd/world_nccl.h>

#include "tests/simulator/cuda/sim.h"

enum { MICRO_POSITIONS = 5, MICRO_LAYERS = 4, MICRO_SAMPLES = 3, MICRO_WIDTH = 24, MICRO_IN = 16, MICRO_OUT = 8,
       MICRO_GROUPS = 2, /* weights and biases */
       MICRO_RANKS_MAX = 6, MICRO_STEPS_MAX = 8, MICRO_WEIGHTS = 2 * (MICRO_WIDTH + 1) * MICRO_WIDTH +
                                                                 (MICRO_IN + 1) * MICRO_WIDTH +
                                                                 (MICRO_WIDTH + 1) * MICRO_OUT };
enum { MICRO_RANKS = 4 }; /* of families of tests: 1 to so many */

enum micro_world { MICRO_ONE_GPU, MICRO_GPU_EACH, MICRO_NCCL };

struct micro_settings {
    uint32_t ranks;
    eo_dtype dtype, reduce_dtype;
    bool float8_gather;
    bool float8_frozen; /* and the weights are frozen but for those of `out`; the biases are not */
    const char *device; /* "cpu" or "cuda" */
    enum micro_world world;
    const char *mode; /* of NCCL */
    eo_memory memory;
    bool own_communicator; /* NCCL: the world is made from a communicator that is there already, and stays */
    bool other_plan;     /* the last rank has a plan with a micro-batch more */
    bool explicit_order; /* NCCL: as if NCCL_LAUNCH_ORDER_IMPLICIT were not set */
    eo_strategy strategy;
    uint32_t shard_group; /* of hsdp */
    bool graph, graph_times, separate_reduce_stream, norms_beside, waits_each_step, debug, evaluates;
    bool norm_parts; /* biases are clipped apart, but in each third step */
    enum { MICRO_STAYS, MICRO_EVALUATES, MICRO_SUMS, MICRO_READS } leaves; /* the schedule between eo_step_capture and the
                                      step, which is then refused, run in the ordinary way, and the next one recorded */
    uint32_t ordinary_step; /* is no graph, though those before and behind it are; 0: none */
    uint32_t steps, micro_batches; /* [4, 2] */
    uint32_t timeout_ms;           /* [20000] */
    uint32_t implicit_prefetch, reduce_inputs, dynamic_offload;
    uint32_t offload_layers, offload_slots; /* the reference keeps all in memory */
    bool offload_gradients, late_updates, separate_evict_stream;
    bool no_product; /* Muon's */
    bool refuses_product;   /* the last rank's, while a step is recorded */
    eo_optimizer optimizer; /* with EO_OPTIMIZER_MUON the weights of `in` and the bodies are matrices */
    eo_flight_recorder *recorders[MICRO_RANKS_MAX]; /* NULL: without */
    void (*after_step)(void *user, uint32_t rank, uint32_t step, eo_runtime *runtime); /* NULL; on the rank's thread */
    void *user;
};

struct micro_result {
    float weights[MICRO_WEIGHTS];
    double losses[MICRO_STEPS_MAX], norms[MICRO_STEPS_MAX];
    double layer_norms[MICRO_STEPS_MAX][MICRO_LAYERS];
    eo_group_norm group_norms[MICRO_STEPS_MAX][MICRO_GROUPS];
    bool has_report[MICRO_STEPS_MAX];
    bool must_exit;        /* a world of NCCL said so */
    uint32_t graphs;       /* steps that ran as one */
    eo_status status[MICRO_RANKS_MAX]; /* the first that failed on each rank */
    char error[MICRO_RANKS_MAX][512];
    char log[1024];        /* the first error lines of all ranks */
    char timeline[200];    /* the first time of the timeline that cannot be; none: "" */
};

/* Trains; on "cuda" between sim_start, which is the caller's, and sim_finish. */
void micro_train(const struct micro_settings *settings, struct micro_result *out);

/* Whether weights, and losses and norms, those of parts too, where both have them, have the same bits. */
bool micro_same(const struct micro_result *a, const struct micro_result *b);
/* The first status that is a failure, EO_OK else. */
eo_status micro_status(const struct micro_result *result);
const char *micro_error(const struct micro_result *result);
/* The result of the CPU device for the same numbers; kept from one call to the next. */
const struct micro_result *micro_reference(const struct micro_settings *settings);

#endif
