/* SPDX-License-Identifier: MIT
 *
 * A training whose every number can be written out: a network without products. The gradient of an element is a number
 * made of its weight, as it was gathered, and of (rank, step, micro-batch, position, element); how these are added up,
 * over ranks and contributions, follows from the plan's strategy. The network sees device memory through
 * eo_runtime_upload and eo_runtime_download alone, so it runs on any device: EO_TEST_DEVICE names it.
 * Matrices and vectors are groups, whose numbers change with the step; one step freezes the vectors, and one is skipped,
 * because a rank's gradients are not finite. In another the ranks have weights, and losses are scaled. In the
 * last one the last rank skips a micro-batch.
 */
#ifndef EO_TESTS_WRITTEN_OUT_H
#define EO_TESTS_WRITTEN_OUT_H

#include <evenodd/evenodd.h>

enum { RANKS_MAX = 4, STEPS = 5, FREEZING_STEP = 1, SKIPPED_STEP = 2, WEIGHTED_STEP = 3, SHORT_STEP = 4, LAYER_ELEMENTS_MAX = 16384, PARAMETERS_MAX = 4 };

struct scene {
    const char *model_name;
    eo_plan_params settings;
    eo_memory memory;
    bool dynamic_offload;
    bool debug;
    bool own_update; /* which numbers of groups have no part in */
    eo_model *model;
    eo_plan *plan;
    eo_world *worlds[RANKS_MAX];
    float *reference; /* master weights by parameter of the plan, one after the other */
    float *averages;  /* and their moving averages */
};

extern const char *device_name; /* NULL: "cpu" */

/* Or the program ends. */
void must(eo_status status, const char *what, const eo_runtime *rt);

void plan_anew(struct scene *scene);
/* The training written out, without shards, buffers or streams. */
void make_reference(struct scene *scene);
/* The same through the runtime, a thread a rank; weights and reports are held against the reference. */
void run(struct scene *scene);

/* Parts of it. */
float first_weight(uint32_t parameter, uint64_t i);
void fill(eo_runtime *rt, const eo_plan *plan);
void run_step(eo_runtime *rt, const struct scene *scene, uint32_t rank, uint32_t step);

#endif
