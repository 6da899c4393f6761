/* SPDX-License-Identifier: MIT */
#include "gpu_program.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void explain(const char *program, const struct gpu_option *options, size_t count, const char *what)
{
    fprintf(stderr, "%s: %s\n", program, what);
    for (size_t i = 0; i < count; i++) {
        if (options[i].text)
            fprintf(stderr, "  --%s WORD [%s]\n", options[i].name, *options[i].text ? *options[i].text : "none");
        else
            fprintf(stderr, "  --%s N, %lld to %lld [%lld]\n", options[i].name, options[i].least, options[i].most,
                    *options[i].value);
    }
}

static bool take(const struct gpu_option *option, const char *text)
{
    if (option->text) {
        *option->text = text;
        return true;
    }
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (text[0] == '\0' || isspace((unsigned char)text[0]) || *end != '\0' || errno != 0 || value < option->least ||
        value > option->most)
        return false;
    *option->value = value;
    return true;
}

void gpu_options(int argc, char **argv, const struct gpu_option *options, size_t count, const char *what)
{
    for (int i = 1; i < argc; i += 2) {
        size_t o = 0;
        while (o < count && (strncmp(argv[i], "--", 2) != 0 || strcmp(argv[i] + 2, options[o].name) != 0))
            o++;
        if (o == count || i + 1 == argc || !take(&options[o], argv[i + 1])) {
            if (strcmp(argv[i], "--help") != 0)
                fprintf(stderr, "%s: '%s %s' is no option with a value it takes\n", argv[0], argv[i],
                        i + 1 < argc ? argv[i + 1] : "");
            explain(argv[0], options, count, what);
            exit(GPU_NOT_TRIED);
        }
    }
}

int gpu_device_count(char *why, size_t bytes)
{
    int driver = 0, runtime = 0, count = 0;
    (void)cudaDriverGetVersion(&driver); /* 0 where there is none */
    (void)cudaRuntimeGetVersion(&runtime);
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0)
        return count;
    (void)cudaGetLastError();
    if (driver == 0)
        snprintf(why, bytes, "no GPU: this machine has no NVIDIA driver (libcuda.so.1)");
    else if (error == cudaErrorInsufficientDriver)
        snprintf(why, bytes, "no usable GPU: the driver serves CUDA up to %d.%d, this program needs %d.%d",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else
        snprintf(why, bytes, "no GPU: %s", error == cudaSuccess ? "the driver finds none" : cudaGetErrorString(error));
    return 0;
}

void gpu_need_device(void)
{
    char why[256];
    if (gpu_device_count(why, sizeof(why)) == 0) {
        fprintf(stderr, "%s\n", why);
        exit(GPU_NOT_TRIED);
    }
    GPU_TRY(cudaSetDevice(0));
}

void gpu_check(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    exit(GPU_FAILED);
}

double gpu_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double gpu_quantile(double *values, size_t count, double share)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof(*values), by_value);
    const double place = share * (double)(count - 1);
    const size_t below = (size_t)place;
    const size_t above = below + 1 < count ? below + 1 : below;
    return values[below] + (place - (double)below) * (values[above] - values[below]);
}

float gpu_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (float)((double)(*state >> 11) * 0x1p-52 - 1.0);
}
