/* SPDX-License-Identifier: MIT
 *
 * Goal: a training whose ranks are processes ends in the bits of one whose ranks are threads, and allocates no more.
 * Method: losses, norms and the hash of the weights, of both, over `shared` (processes that the test starts) or `mpi`
 * (this process is one of those that mpirun has started).
 *
 *     training_processes                    mpirun -n N training_processes mpi
 */
#include <stdio.h>
#include <string.h>

#include "tests/conformance/over_mpi.h"
#include "tests/conformance/ranks.h"
#include "tests/conformance/training/runs.h"

static const struct {
    const char *name;
    struct train_settings settings;
} cases[] = {
    {"GPT-2", {.steps = 5}},
    {"Llama, gradients reduced beside", {.family = EO_FAMILY_LLAMA, .separate_reduce_stream = true}},
    {"GPT-2 in bf16, 2 micro-batches", {.dtype = EO_DTYPE_BF16, .reduce_dtype = EO_DTYPE_BF16, .micro_batches = 2}},
    {"Llama, recompute, delays", {.family = EO_FAMILY_LLAMA, .recompute = EO_RECOMPUTE_BLOCKS,
                                  .recompute_blocks = UINT32_MAX, .delay_seed = 3, .steps = 2}},
    {"GPT-2, debug, evaluation between", {.debug = true, .evaluates = true}},
    {"GPT-2 by Muon", {.optimizer = EO_OPTIMIZER_MUON}},
    {"Llama in bf16 by Muon, debug, delays", {.family = EO_FAMILY_LLAMA, .dtype = EO_DTYPE_BF16, .optimizer = EO_OPTIMIZER_MUON,
                                              .debug = true, .delay_seed = 5}},
    {"GPT-2, dynamic:pool", {.memory = EO_MEMORY_DYNAMIC_POOL}},
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static struct train_result expected[CASES][TEST_RANKS_MAX + 1];

static void expect(uint32_t rank_count)
{
    for (size_t i = 0; i < CASES; i++) {
        struct train_settings settings = cases[i].settings;
        settings.ranks = rank_count;
        train_run(&settings, &expected[i][rank_count]);
    }
}

static void compare(uint32_t rank_count)
{
    for (size_t i = 0; i < CASES; i++) {
        struct train_settings settings = cases[i].settings;
        struct train_result result;
        char name[160];
        settings.ranks = rank_count;
        train_run(&settings, &result);
        train_expect_same(cases[i].name, &expected[i][rank_count], &result);
        TEST_HOLDS(NULL, result.losses[0] > 0 && result.weights_hash != 0);
        TEST_EXPECT(NULL, settings.memory != EO_MEMORY_STATIC || result.allocator_calls == 0, "%llu calls of allocators",
                    (unsigned long long)result.allocator_calls);
        snprintf(name, sizeof(name), "processes end in the bits of threads: %s", cases[i].name);
        test_report(name, rank_count);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "mpi") == 0)
        return test_over_mpi(argc > 2 ? argv[2] : NULL, expect, compare);
    expect(2);
    expect(3);
    test_use(TEST_SHARED_PROCESSES);
    compare(2);
    compare(3);
    return tap_end();
}
