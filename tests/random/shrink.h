/* SPDX-License-Identifier: MIT
 *
 * A failing case is made smaller for as long as it fails in the same way: steps, positions, layers, ranks, buffers, elements
 * and settings go one at a time. What is left stays legal.
 */
#ifndef EO_TESTS_RANDOM_SHRINK_H
#define EO_TESTS_RANDOM_SHRINK_H

#include "tests/random/attempt.h"

/* `outcome` is that of *c, then that of what *c has become. Returns how many smaller cases were tried; ends after
 * seconds_max at the latest (and the attempt that is under way). */
uint32_t case_shrink(const struct case_trial *trial, struct random_case *c, struct case_outcome *outcome, double seconds_max);

#endif
