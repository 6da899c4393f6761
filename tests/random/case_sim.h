/* SPDX-License-Identifier: MIT */
#ifndef EO_TESTS_RANDOM_CASE_SIM_H
#define EO_TESTS_RANDOM_CASE_SIM_H

#include "tests/random/case_runner.h"

/* As case_run; and the simulator has nothing to object to. */
bool case_run_simulated(const struct random_case *c, struct case_outcome *out);

#endif
