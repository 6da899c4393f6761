/* SPDX-License-Identifier: MIT
 *
 * What stands in for communication in the give-way experiment, as launch functions for C.
 */
#ifndef EO_TESTS_GPU_GIVEWAY_KERNELS_H
#define EO_TESTS_GPU_GIVEWAY_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

enum { GIVEWAY_THREADS = 512, GIVEWAY_SHARED_BYTES = 100 << 10, GIVEWAY_BLOCKS_MAX = 128 };

#ifdef __cplusplus
extern "C" {
#endif

/*
 * As a collective does: `blocks` of 512 threads with 100 KiB of shared memory (or what there is), in clusters of `cluster`, that read one
 * half of `memory` and write the other until `nanoseconds` have passed for each. Block b stamps starts[b] with the
 * device's clock first of all. *moved gets the bytes that were read and written added.
 */
cudaError_t giveway_communicate(uint64_t *starts, unsigned long long *moved, void *memory, uint64_t bytes, int blocks,
                                int cluster, uint64_t nanoseconds, cudaStream_t stream);

/* A few microseconds of one block: a cast, a norm's last sum. */
cudaError_t giveway_small(float *value, cudaStream_t stream);

/* *step: the least difference that the device's clock shows, in ns; *at: the clock when the kernel began. */
cudaError_t giveway_clock(uint64_t *at, uint64_t *step, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
