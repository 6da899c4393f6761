/* SPDX-License-Identifier: MIT
 *
 * The launches of a step as data, for the expected times of tools/dev gpu --expect. The functions of layers/cuda/kernels.h
 * and streams/cuda/kernels.h stand here a third time: each notes the kernels that the real one launches, with their
 * blocks and the bytes they touch, and runs nothing. tools/bench/expect.py makes times of them.
 *
 * Bytes: an address counts once a kernel if it is read, and once if it is written.
 */
#ifndef EO_TESTS_GPU_EXPECT_LAUNCH_LIST_H
#define EO_TESTS_GPU_EXPECT_LAUNCH_LIST_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include <evenodd/common.h>

struct launch {
    const char *group;   /* the line of the table */
    const char *kernel;  /* as a profiler names it, without template arguments */
    uint64_t read, written;
    uint64_t must;       /* bytes of the operands, what lies between launches apart; 0: noted with an earlier launch */
    uint64_t blocks;
    uint32_t threads, shared_bytes; /* of a block */
    /* Of a block, one after the other: from a load to its use, sums over the block, additions in double. */
    double round_trips, barriers, double_adds;
    /* A product C[m][n] = A[m][k] B[k][n], or attention: FLOPs, without the masked half. */
    uint64_t m, n, k;
    double flops;
    bool backward;      /* of attention */
    uint32_t head_size; /* of attention */
};

/* While the step runs that is looked at; otherwise nothing happens. */
cudaError_t launch_note(cudaStream_t stream, struct launch launch);

/* Groups of parameters, of the program that lists: it knows whether the step's memory holds anything. */
struct eo_step_memory;
uint32_t launch_group_count(const struct eo_step_memory *step);

static inline uint64_t launch_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint64_t launch_bytes(eo_dtype dtype, uint64_t elements)
{
    return elements * (dtype == EO_DTYPE_BF16 ? 2 : 4);
}

#endif
