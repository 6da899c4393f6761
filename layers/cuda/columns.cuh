/* SPDX-License-Identifier: MIT
 *
 * Sums over rows, for the gradients of biases and of norms' weights: blocks write partial sums, a second kernel adds
 * them up in their order.
 */
#ifndef EO_LAYERS_CUDA_COLUMNS_CUH
#define EO_LAYERS_CUDA_COLUMNS_CUH

#include "layers/cuda/lanes.cuh"

enum { FINISH_COLUMNS = 32, FINISH_PARTS = 8 };

/* out[column] (+)= the sum of partials[part][column]; a block's 8 rows of threads take every eighth part. */
static __global__ void __launch_bounds__(FINISH_COLUMNS *FINISH_PARTS)
    finish_columns_kernel(void *out, eo_dtype dtype, const float *partials, uint32_t parts, uint64_t stride,
                          uint64_t width, bool accumulate)
{
    __shared__ float sums[FINISH_PARTS][FINISH_COLUMNS];
    const uint64_t column = (uint64_t)blockIdx.x * FINISH_COLUMNS + threadIdx.x;
    float sum = 0;
    if (column < width) {
#pragma unroll 4
        for (uint32_t part = threadIdx.y; part < parts; part += FINISH_PARTS)
            sum += partials[part * stride + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= width)
        return;
    for (int part = 1; part < FINISH_PARTS; part++)
        sum += sums[part][threadIdx.x];
    if (dtype == EO_DTYPE_BF16) {
        bf16 *to = static_cast<bf16 *>(out) + column;
        *to = narrow<bf16>(accumulate ? widen(*to) + sum : sum);
    } else {
        float *to = static_cast<float *>(out) + column;
        *to = accumulate ? *to + sum : sum;
    }
}

static inline void finish_columns(void *out, eo_dtype dtype, const float *partials, uint32_t parts, uint64_t stride,
                           uint64_t width, bool accumulate, cudaStream_t stream)
{
    const dim3 block(FINISH_COLUMNS, FINISH_PARTS);
    finish_columns_kernel<<<(unsigned)divide_up(width, FINISH_COLUMNS), block, 0, stream>>>(
        out, dtype, partials, parts, stride, width, accumulate);
}

#endif
