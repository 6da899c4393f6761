/* SPDX-License-Identifier: MIT
 *
 * Goal: random cases end on a GPU in the same numbers, under any schedule of its streams, eager and as graphs.
 * Method: as tests/random/main.c, on the simulated GPU: ranks on one, on one each, and through NCCL, by seed.
 *
 *     random_sim                      what the short run takes
 *     random_sim few                  a tenth of it, for sanitizers
 *     random_sim runs FIRST COUNT     these seeds
 *     random_sim show SEED            prints a case, and what becomes of it
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/random/case_sim.h"
#include "tests/random/seeds.h"

enum { SHORT_RUNS = 100 };

static const struct case_trial simulated = {"run on the simulated GPU", random_case_make, case_run_simulated, 120};

static void show_simulated(uint64_t seed)
{
    static struct random_case c;
    struct case_outcome outcome;
    random_case_make(&c, seed);
    random_case_print(&c, stdout);
    const bool ran = case_run_simulated(&c, &outcome);
    printf("# run: %s\n", ran ? "ok" : outcome.text);
    tap(ran, "seed %llu", (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
    const uint64_t count = argc > 3 ? strtoull(argv[3], NULL, 10) : argc > 2 ? 1 : few ? SHORT_RUNS / 10 : SHORT_RUNS;
    if (argc > 1 && strcmp(argv[1], "show") == 0) {
        show_simulated(first);
        return tap_end();
    }
    if (argc > 1 && !few && strcmp(argv[1], "runs") != 0) {
        fprintf(stderr, "random_sim: '%s' is none of few, runs, show\n", argv[1]);
        return 2;
    }
    case_replays = mmap(NULL, sizeof(*case_replays), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (case_replays == MAP_FAILED)
        return 1;
    try_seeds(&simulated, "trainings on the simulated GPU end in the same numbers", first, count);
    const uint32_t replays = atomic_load(case_replays);
    tap(replays > 0 || count < SHORT_RUNS, "steps ran as graphs: %u", replays); /* a single seed may have no graph */
    return tap_end();
}
