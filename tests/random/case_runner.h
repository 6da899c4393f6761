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

/* An evaluation, steps, an evaluation, on ranks that are threads; weights and the contents of buffers are looked at. */
bool case_run(const struct random_case *c, struct case_outcome *out);

#endif
