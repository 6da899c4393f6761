/* SPDX-License-Identifier: MIT
 *
 * The device's side of the conformance program: a team on a GPU, or on a simulated one.
 */
#include "tests/conformance/device/cuda_sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/team.h"

static void write_log(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    sides.no_float8 = sides.no_float8 || strstr(text, "products stay bf16");
    printf("# %s\n", text);
}

static const eo_log test_log = {.write = write_log, .level = EO_LOG_INFO};

bool sides_begin(uint32_t device_index, char *why, size_t why_bytes)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        snprintf(why, why_bytes, "no CUDA device: %s", error == cudaSuccess ? "none" : cudaGetErrorString(error));
        return false;
    }
    sides_must(cudaSetDevice((int)device_index), "cudaSetDevice");
    sides_must(cudaStreamCreateWithFlags(&sides.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const eo_status status = eo_team_create_on(&sides.team, eo_team_params(.device = "cuda", .device_index = device_index,
                                                                           .stream = sides.stream, .log = &test_log));
    if (status < 0) {
        printf("Bail out! no team: %s\n", eo_status_text(status));
        exit(1);
    }
    sides.ops[HOST] = &eo_kernels_reference_ops;
    sides.ops[DEVICE] = eo_team_backend_kernels(eo_team_backend_of(sides.team), EO_DTYPE_BF16, EO_DTYPE_FP32);
    sides.small = sides.few = getenv("EO_TEST_SHORT") != NULL;
    sides.memory_bytes = 384u << 20;
    sides_must(cudaMalloc((void **)&sides.memory, sides.memory_bytes), "cudaMalloc");
    sides_guard();
    return true;
}

void sides_end(void)
{
    eo_team_destroy(&sides.team);
    sides_must(cudaFree(sides.memory), "cudaFree");
    sides_must(cudaStreamDestroy(sides.stream), "cudaStreamDestroy");
}
