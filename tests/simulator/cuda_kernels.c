/* SPDX-License-Identifier: MIT
 *
 * Runs the conformance program of the GPU's kernels on the simulator; EO_TEST_FULL=1: with the longest sequences too.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/device/cuda_sides.h"
#include "tests/simulator/cuda/sim.h"
#include "tests/simulator/cublaslt/cublaslt.h"

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

static void *run(void *failed)
{
    char name[] = "cuda_kernels", *words[] = {name, NULL};
    *(int *)failed = __real_main(1, words);
    return NULL;
}

int __wrap_main(int argc, char **argv)
{
    int failed = 1;
    void *argument = &failed;
    (void)argc, (void)argv;
    if (!getenv("EO_TEST_FULL"))
        setenv("EO_TEST_SHORT", "1", 1);
    sim_start(&(struct sim_config){.seed = 1, .device_bytes = 1u << 30, .pageable_copies = true});
    sim_run_ranks(1, run, &argument);
    const uint32_t violations = sim_finish();
    if (violations > 0)
        printf("# the simulator objects: %s\n", sim_violation(0));
    if (sim_cublaslt_counts().refused > 0)
        printf("# cuBLASLt would refuse: %s\n", sim_cublaslt_counts().first_refusal);
    return failed || violations > 0 || sim_cublaslt_counts().refused > 0;
}
