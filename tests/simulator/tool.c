/* SPDX-License-Identifier: MIT
 *
 * A program of tools/ on simulated GPUs, as its users meet it: linked with the simulator in place of CUDA, and otherwise
 * the same. What the machine is like stands in EO_SIM, words with commas between them:
 *
 *     seed=N gpus=N mib=N (a GPU's memory) architecture=NN no_driver no_gpu driver=NNNNN (the CUDA it is for, times 1000)
 *     nccl=NNNNN (its version) lacks=NAME (nccl, cublaslt or cudnn cannot be loaded)
 *     fail=FUNCTION:N[:ERROR] (its n-th call, from 0) lost=N (from the n-th that runs on, all operations of all ranks fail)
 *
 * Exit status 3: the simulator objects to something, whatever the program itself says.
 */
#include <evenodd/layers.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulator/cuda/sim.h"
#include "streams/cuda/kernels.h"

enum { SIM_OBJECTS = 3, BUILT_FOR = 90 };

/* The ranks are threads of the program, which the simulator counts as the one after its own ranks. */
static struct sim_config config = {.seed = 1, .device_bytes = (uint64_t)1 << 30, .quiet = true, .fail_rank = 16};
static int driver_version;
static char function[64], lacking[64];

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);
cudaError_t __real_cudaDriverGetVersion(int *version);
cudaError_t __wrap_cudaDriverGetVersion(int *version);
cudaError_t __real_eo_cuda_kernels_load(void);
cudaError_t __wrap_eo_cuda_kernels_load(void);

cudaError_t __wrap_cudaDriverGetVersion(int *version)
{
    const cudaError_t error = __real_cudaDriverGetVersion(version);
    if (driver_version)
        *version = driver_version;
    return error;
}

cudaError_t __wrap_eo_cuda_kernels_load(void)
{
    return config.architecture && config.architecture != BUILT_FOR ? cudaErrorNoKernelImageForDevice
                                                                     : __real_eo_cuda_kernels_load();
}

static bool read_word(const char *word)
{
    unsigned number = 0, ordinal = 0;
    int error = 0;
    if (sscanf(word, "seed=%u", &number) == 1)
        config.seed = number;
    else if (sscanf(word, "gpus=%u", &number) == 1)
        config.device_count = number;
    else if (sscanf(word, "mib=%u", &number) == 1)
        config.device_bytes = (uint64_t)number << 20;
    else if (sscanf(word, "architecture=%u", &number) == 1)
        config.architecture = (int)number;
    else if (sscanf(word, "driver=%u", &number) == 1)
        driver_version = (int)number;
    else if (sscanf(word, "nccl=%u", &number) == 1)
        config.nccl_version = (int)number;
    else if (sscanf(word, "lost=%u", &number) == 1)
        config.fail_operation = number;
    else if (sscanf(word, "fail=%63[^:]:%u:%d", function, &ordinal, &error) >= 2)
        config.fault = (struct sim_fault){function, SIM_ANY_RANK, ordinal, error};
    else if (sscanf(word, "lacks=%63s", lacking) == 1)
        config.lacks = lacking;
    else if (strcmp(word, "no_driver") == 0)
        config.no_driver = true;
    else if (strcmp(word, "no_gpu") == 0)
        config.no_device = true;
    else
        return false;
    return true;
}

static void read_settings(void)
{
    char words[1000];
    const char *given = getenv("EO_SIM");
    (void)snprintf(words, sizeof(words), "%s", given ? given : "");
    for (char *rest = words, *word; (word = strtok_r(rest, ",", &rest));)
        if (!read_word(word)) {
            fprintf(stderr, "EO_SIM: '%s' is not known\n", word);
            exit(SIM_OBJECTS);
        }
    if (driver_version && driver_version < CUDART_VERSION)
        config.fault = (struct sim_fault){"cudaGetDeviceCount", SIM_ANY_RANK, 0, cudaErrorInsufficientDriver};
}

/* At exit, because programs end in several ways. What was left behind after a failure is not looked at. */
static void look_at_violations(void)
{
    const bool was_faulted = config.fault.function || config.fail_operation;
    const uint32_t count = was_faulted ? sim_violation_count() : sim_finish();
    if (count == 0)
        return;
    fprintf(stderr, "simulator: %u objections, the first: %s\n", count, sim_violation(0));
    fflush(NULL);
    _Exit(SIM_OBJECTS);
}

int __wrap_main(int argc, char **argv)
{
    read_settings();
    sim_start(&config);
    atexit(look_at_violations);
    return __real_main(argc, argv);
}
