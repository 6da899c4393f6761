/* SPDX-License-Identifier: MIT */
#include "tests/random/seeds.h"

#include "tests/random/shrink.h"

enum { TOLD_MAX = 3, SHRINK_SECONDS = 60 };

static void tell(const struct case_trial *trial, uint64_t seed, const struct case_outcome *found)
{
    static struct random_case c;
    struct case_outcome outcome = *found;
    trial->make(&c, seed);
    printf("# seed %llu, %s: %s\n", (unsigned long long)seed, trial->name, found->text);
    fflush(stdout);
    const uint32_t tried = case_shrink(trial, &c, &outcome, SHRINK_SECONDS);
    printf("# smallest after %u attempts: %s\n", tried, outcome.text);
    random_case_print(&c, stdout);
    fflush(stdout);
}

void try_seeds(const struct case_trial *trial, const char *what, uint64_t first, uint64_t count)
{
    struct case_outcome outcome;
    uint64_t failures = 0, next = first;
    while (next < first + count) {
        next += case_attempt_seeds(trial, next, first + count - next, &outcome);
        if (next == first + count)
            break;
        if (++failures <= TOLD_MAX)
            tell(trial, next, &outcome);
        next++;
    }
    tap(failures == 0 && count > 0, "%s: seeds %llu to %llu, %llu of %llu failed", what, (unsigned long long)first,
        (unsigned long long)(first + count - 1), (unsigned long long)failures, (unsigned long long)count);
}
