/* SPDX-License-Identifier: MIT
 *
 * What this machine has: driver, GPUs, and the versions of the libraries, which are loaded as our programs load them: the
 * rest is told where one is missing. With --tokens it writes a token file (llm.c's format) of random tokens instead, and needs
 * no GPU.
 */
#include <cublasLt.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "eo_config.h"
#include "gpu_program.h"
#if EO_HAVE_CUDNN
#include <cudnn.h>
#define CUDNN_FILE "libcudnn.so." TEXT(CUDNN_MAJOR)
#else
#define CUDNN_FILE "libcudnn.so.9"
#endif

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

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

/* A function of a library; NULL: it cannot be loaded, which is told. */
static void *find(const char *file, const char *name)
{
    char problem[1500] = "";
    void *library = eo_library_open(file, EO_CUDA_FOLDER, RTLD_NOW | RTLD_LOCAL, problem, sizeof(problem));
    void *function = library ? dlsym(library, name) : NULL;
    if (!function)
        printf("%s: %s\n", file, library ? "another library" : problem);
    return function;
}

static size_t version_of(const char *file, const char *name)
{
    void *found = find(file, name);
    size_t (*function)(void);
    memcpy(&function, &found, sizeof(function));
    return found ? function() : 0;
}

static int nccl_version(void)
{
    void *found = find("libnccl.so.2", "ncclGetVersion");
    ncclResult_t (*function)(int *);
    int version = 0;
    memcpy(&function, &found, sizeof(function));
    if (found)
        (void)function(&version);
    return version;
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
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    printf("built for: sm_%s\n", EO_GPU_ARCHS);
    const int nccl = nccl_version();
    const size_t cublaslt = version_of("libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), "cublasLtGetVersion");
    const size_t cudnn = version_of(CUDNN_FILE, "cudnnGetVersion");
    printf("driver %d, CUDA %d, NCCL %d (built with %d), cuBLASLt %zu, cuDNN %zu%s; 0: none\n", driver, runtime, nccl,
           NCCL_VERSION_CODE, cublaslt, cudnn, EO_HAVE_CUDNN ? "" : " (built without)");
    printf("{\"driver\": %d, \"cuda\": %d, \"nccl\": %d, \"cublaslt\": %zu, \"cudnn\": %zu, \"archs\": \"%s\"}\n", driver,
           runtime, nccl, cublaslt, cudnn, EO_GPU_ARCHS);
    const int devices = gpu_device_count(why, sizeof(why));
    if (devices == 0) {
        fprintf(stderr, "%s\n", why);
        return GPU_NOT_TRIED;
    }
    for (int device = 0; device < devices; device++)
        print_device(device);
    return GPU_HELD;
}
