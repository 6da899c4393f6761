/* SPDX-License-Identifier: MIT
 *
 * What the programs for a machine with a GPU share: options, the way out, and figures as lines of JSON.
 *
 * Each prints what a person reads, and for every figure one line that begins with {. Exit status: 0 all held, 1 something
 * did not, 2 nothing was tried (no driver, no GPU, a bad option).
 */
#ifndef EO_TESTS_GPU_PROGRAM_H
#define EO_TESTS_GPU_PROGRAM_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPU_HELD = 0, GPU_FAILED = 1, GPU_NOT_TRIED = 2 };

/* One option, `--name N`. The value is its default until it is given. */
struct gpu_option {
    const char *name;
    long long least, most;
    long long *value;
    const char **text; /* instead of value: a word */
};

/* Ends the program with GPU_NOT_TRIED and the list of options where one is wrong, or it is --help. */
void gpu_options(int argc, char **argv, const struct gpu_option *options, size_t count, const char *what);

/* The number of devices. 0: none, and `why` says what is missing. Makes no context. */
int gpu_device_count(char *why, size_t bytes);

/* Selects the first device, or ends the program with GPU_NOT_TRIED and says what is missing. */
void gpu_need_device(void);

/* A call that must succeed: ends the program with GPU_FAILED, call and text. */
void gpu_check(cudaError_t error, const char *call, const char *file, int line);
#define GPU_TRY(call) gpu_check((call), #call, __FILE__, __LINE__)

double gpu_now_s(void);

/* Sorts. `share` 0.5: the median. */
double gpu_quantile(double *values, size_t count, double share);

/* A random number in [-1, 1), from a state that is not 0. */
float gpu_random(uint64_t *state);

#endif
