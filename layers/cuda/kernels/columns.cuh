/* SPDX-License-Identifier: MIT
 *
 * Sums over rows, for the gradients of biases and of norms' weights: blocks write partial sums, a second kernel adds
 * them up in their order.
 */
#ifndef EO_LAYERS_CUDA_KERNELS_COLUMNS_CUH
#define EO_LAYERS_CUDA_KERNELS_COLUMNS_CUH

#include "layers/cuda/kernels/lanes.cuh"

enum { FINISH_COLUMNS = 32, FINISH_PARTS = 16 };

/* The columns' sums go to `out`, those from first_width on to `second`. */
struct column_outputs {
    void *out, *second;
    uint64_t first_width, width;
};

/* out[column] (+)= the sum of partials[part][column]; a block's 16 rows of threads take every sixteenth part. */
static __global__ void __launch_bounds__(FINISH_COLUMNS *FINISH_PARTS)
    finish_columns_kernel(const column_outputs outputs, eo_dtype dtype, const float *partials, uint32_t parts,
                          uint64_t stride, bool accumulate)
{
    __shared__ float sums[FINISH_PARTS][FINISH_COLUMNS];
    const uint64_t column = (uint64_t)blockIdx.x * FINISH_COLUMNS + threadIdx.x;
    float sum = 0;
    if (column < outputs.width) {
#pragma unroll 8
        for (uint32_t part = threadIdx.y; part < parts; part += FINISH_PARTS)
            sum += partials[part * stride + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= outputs.width)
        return;
    for (int part = 1; part < FINISH_PARTS; part++)
        sum += sums[part][threadIdx.x];
    const bool is_second = column >= outputs.first_width;
    void *out = is_second ? outputs.second : outputs.out;
    const uint64_t at = is_second ? column - outputs.first_width : column;
    if (dtype == EO_DTYPE_BF16) {
        bf16 *to = static_cast<bf16 *>(out) + at;
        *to = narrow<bf16>(accumulate ? widen(*to) + sum : sum);
    } else {
        float *to = static_cast<float *>(out) + at;
        *to = accumulate ? *to + sum : sum;
    }
}

static inline void finish_columns(const column_outputs &outputs, eo_dtype dtype, const float *partials, uint32_t parts,
                                  uint64_t stride, bool accumulate, cudaStream_t stream)
{
    const dim3 block(FINISH_COLUMNS, FINISH_PARTS);
    finish_columns_kernel<<<(unsigned)divide_up(outputs.width, FINISH_COLUMNS), block, 0, stream>>>(
        outputs, dtype, partials, parts, stride, accumulate);
}

static inline void finish_columns(void *out, eo_dtype dtype, const float *partials, uint32_t parts, uint64_t stride,
                                  uint64_t width, bool accumulate, cudaStream_t stream)
{
    finish_columns({out, nullptr, width, width}, dtype, partials, parts, stride, accumulate, stream);
}

#endif
