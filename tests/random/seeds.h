/* SPDX-License-Identifier: MIT
 *
 * Seeds as TAP: a line for all, and for the first failures the smallest case that fails alike.
 */
#ifndef EO_TESTS_RANDOM_SEEDS_H
#define EO_TESTS_RANDOM_SEEDS_H

#include "tests/random/attempt.h"
#include "tests/tap/tap.h"

void try_seeds(const struct case_trial *trial, const char *what, uint64_t first, uint64_t count);

#endif
