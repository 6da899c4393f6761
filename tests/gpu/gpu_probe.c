/* SPDX-License-Identifier: MIT
 *
 * What this machine has: driver, GPUs, and the versions of the libraries that were found at run time. With --tokens it
 * writes a token file (llm.c's format) of random tokens instead, and needs no GPU.
 */
#include <cublasLt.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eo_config.h"
#include "gpu_program.h"
#if EO_HAVE_CUDNN
#include <cudnn.h>
#endif

static int write_tokens(const char *path, long long count, long long vocabulary)
{
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        return GPU_NOT_TRIED;
    }
    int32_t header[256] = {20240520, 1, (int32_t)count};
    bool good = fwrite(header, sizeof(header), 1, file) == 1;
    uint64_t state = 88172645463325252u;
    for (long long i = 0; good && i < count; i++) {
        (void)gpu_random(&state);
        const uint16_t token = (uint16_t)((state >> 16) % (uint64_t)vocabulary);
        good = fwrite(&token, sizeof(token), 1, file) == 1;
    }
    good = fclose(file) == 0 && good;
    if (!good)
        fprintf(stderr, "%s: could not be written\n", path);
    return good ? GPU_HELD : GPU_NOT_TRIED;
}

static void print_device(int device)
{
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    GPU_TRY(cudaSetDevice(device));
    GPU_TRY(cudaGetDeviceProperties(&properties, device));
    GPU_TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
    printf("GPU %d: %s, sm_%d%d, %d multiprocessors, %zu MiB, %zu MiB free\n", device, properties.name,
           properties.major, properties.minor, properties.multiProcessorCount, total_bytes >> 20, free_bytes >> 20);
    printf("{\"gpu\": %d, \"name\": \"%s\", \"sm\": %d, \"multiprocessors\": %d, \"total_bytes\": %zu, "
           "\"free_bytes\": %zu}\n",
           device, properties.name, properties.major * 10 + properties.minor, properties.multiProcessorCount,
           total_bytes, free_bytes);
}

int main(int argc, char **argv)
{
    const char *tokens = NULL;
    long long count = 1 << 20, vocabulary = 50257;
    const struct gpu_option options[] = {
        {.name = "tokens", .text = &tokens},
        {.name = "count", .least = 1, .most = 1 << 28, .value = &count},
        {.name = "vocabulary", .least = 1, .most = 65536, .value = &vocabulary},
    };
    gpu_options(argc, argv, options, sizeof(options) / sizeof(options[0]), "what this machine has");
    if (tokens)
        return write_tokens(tokens, count, vocabulary);

    char why[256];
    int driver = 0, runtime = 0, nccl = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)ncclGetVersion(&nccl);
    printf("built for: sm_%s\n", EO_GPU_ARCHS);
    printf("driver %d, CUDA %d, NCCL %d (built with %d), cuBLASLt %zu", driver, runtime, nccl, NCCL_VERSION_CODE,
           cublasLtGetVersion());
#if EO_HAVE_CUDNN
    printf(", cuDNN %zu\n", cudnnGetVersion());
#else
    printf(", no cuDNN\n");
#endif
    printf("{\"driver\": %d, \"cuda\": %d, \"nccl\": %d, \"cublaslt\": %zu, \"archs\": \"%s\"}\n", driver, runtime, nccl,
           cublasLtGetVersion(), EO_GPU_ARCHS);
    const int devices = gpu_device_count(why, sizeof(why));
    if (devices == 0) {
        fprintf(stderr, "%s\n", why);
        return GPU_NOT_TRIED;
    }
    for (int device = 0; device < devices; device++)
        print_device(device);
    return GPU_HELD;
}
