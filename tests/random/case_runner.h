/* SPDX-License-Identifier: MIT
 *
 * What is asked of a random case: that it is planned and proven, and that a training of it through the public API ends in
 * the numbers of the integer model.
 */
#ifndef EO_TESTS_RANDOM_CASE_RUNNER_H
#define EO_TESTS_RANDOM_CASE_RUNNER_H

#include "tests/random/generator.h"

/* What went wrong first; "" when nothing did. */
struct case_outcome {
    char text[1024];
};

/* The plan is made, which proves it; it is proven again over more steps, and with `closely` its map is held against its
 * lists in another way (quadratic). */
bool case_plan(const struct random_case *c, bool closely, struct case_outcome *out);

struct case_call;

/* What ranks are, and what they compute on. */
struct case_ranks {
    /* worlds[r] for all ranks before they run; NULL where each rank makes its own: */
    eo_status (*open)(const struct random_case *c, eo_world **worlds);
    /* on the rank's thread or in its process */
    eo_status (*join)(const struct random_case *c, uint32_t rank, eo_world **world);
    void (*leave)(const struct random_case *c, uint32_t rank, eo_world **world);
    /* runs main(arguments[r]) as rank r for all r */
    void (*run)(uint32_t count, void *(*main)(void *argument), void *const *arguments);
    eo_status (*launch)(const struct case_call *call, void *stream);
    bool has_graphs;
    bool resumes; /* others can take what they saved */
};
extern const struct case_ranks case_threads, case_processes;

/* Steps, and the case's actions between them; weights and the contents of buffers are looked at wherever they are seen. */
bool case_run(const struct random_case *c, const struct case_ranks *ranks, struct case_outcome *out);

/* Steps that ran as graphs, counted over processes. NULL: nobody counts. */
extern _Atomic uint32_t *case_replays;

#endif
