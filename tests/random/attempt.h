/* SPDX-License-Identifier: MIT
 *
 * A case in a process of its own: one that crashes or hangs is a failure as any other, and can be made smaller.
 */
#ifndef EO_TESTS_RANDOM_ATTEMPT_H
#define EO_TESTS_RANDOM_ATTEMPT_H

#include "tests/random/case_runner.h"

/* What is asked of a case; false: `out` says what failed. */
struct case_trial {
    const char *name;
    void (*make)(struct random_case *c, uint64_t seed);
    bool (*holds)(const struct random_case *c, struct case_outcome *out);
    uint32_t seconds_max; /* a case; then it counts as one that hangs */
};

bool case_attempt(const struct case_trial *trial, const struct random_case *c, struct case_outcome *out);

/* Tries the seeds first ... first + count - 1, many in a process; returns how many held before the first that failed. */
uint64_t case_attempt_seeds(const struct case_trial *trial, uint64_t first, uint64_t count, struct case_outcome *out);

#endif
