/* SPDX-License-Identifier: MIT
 *
 * Goal: random cases end on a GPU in the same numbers, under any schedule of its streams, eager and as graphs.
 * Method: as random_main.c, on the simulated GPU: ranks on one, on one each, and through NCCL, by seed.
 *
 *     random_sim                      what the short run takes
 *     random_sim few                  a tenth of it, for sanitizers
 *     random_sim runs FIRST COUNT     these seeds
 *     random_sim show SEED            prints a case, and what becomes of it
 */
#include <stdlib.h>
#include <string.h>

#include "tests/random/case_sim.h"
#include "tests/random/seeds.h"

enum { SHORT_RUNS = 100 };

static const struct case_trial simulated = {"run on the simulated GPU", random_case_make, case_run_simulated, 120};

static bool show_simulated(uint64_t seed)
{
    static struct random_case c;
    struct case_outcome outcome;
    random_case_make(&c, seed);
    random_case_print(&c, stdout);
    const bool ran = case_run_simulated(&c, &outcome);
    printf("# run: %s\n%s %u - seed %llu\n", ran ? "ok" : outcome.text, ran ? "ok" : "not ok", next_report(),
           (unsigned long long)seed);
    return ran;
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
    const uint64_t count = argc > 3 ? strtoull(argv[3], NULL, 10) : argc > 2 ? 1 : few ? SHORT_RUNS / 10 : SHORT_RUNS;
    if (argc > 1 && strcmp(argv[1], "show") == 0)
        return end_reports(show_simulated(first));
    if (argc > 1 && !few && strcmp(argv[1], "runs") != 0) {
        fprintf(stderr, "random_sim: '%s' is none of few, runs, show\n", argv[1]);
        return 2;
    }
    return end_reports(try_seeds(&simulated, "trainings on the simulated GPU end in the same numbers", first, count));
}
