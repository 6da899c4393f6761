/* SPDX-License-Identifier: MIT */
#include "streams/cuda/collective_kernels.h"

#include "streams/cuda/elements.cuh"

/* By value: a launch takes nothing that has to stay, so it may be captured. */
struct inputs {
    const void *at[EO_CUDA_SUM_INPUTS_MAX];
};

enum { THREADS = 256, BLOCKS_MAX = 1024 };

/* 16 bytes a thread and input: `units` of them; every input is read before the output, which may be one of them, is
 * written. */
static __global__ void sum_fp32_units(float4 *out, inputs in, uint32_t in_count, uint64_t units)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < units; i += stride) {
        float4 sum = ((const float4 *)in.at[0])[i];
        for (uint32_t r = 1; r < in_count; r++) {
            const float4 x = ((const float4 *)in.at[r])[i];
            sum.x = __fadd_rn(sum.x, x.x);
            sum.y = __fadd_rn(sum.y, x.y);
            sum.z = __fadd_rn(sum.z, x.z);
            sum.w = __fadd_rn(sum.w, x.w);
        }
        out[i] = sum;
    }
}

static __global__ void sum_fp32_single(float *out, inputs in, uint32_t in_count, uint64_t begin, uint64_t count)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = begin + (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        float sum = ((const float *)in.at[0])[i];
        for (uint32_t r = 1; r < in_count; r++)
            sum = __fadd_rn(sum, ((const float *)in.at[r])[i]);
        out[i] = sum;
    }
}

static __device__ void add_pair(float *low, float *high, uint32_t pair)
{
    *low = __fadd_rn(*low, __uint_as_float(pair << 16));
    *high = __fadd_rn(*high, __uint_as_float(pair & 0xffff0000u));
}

static __device__ uint32_t narrow_pair(float low, float high)
{
    return (uint32_t)sum_to_bf16(low) | (uint32_t)sum_to_bf16(high) << 16;
}

/* The first input begins the sum: 0 + x would lose the sign of -0. */
static __global__ void sum_bf16_units(uint4 *out, inputs in, uint32_t in_count, uint64_t units)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < units; i += stride) {
        const uint4 first = ((const uint4 *)in.at[0])[i];
        const uint32_t pairs[4] = {first.x, first.y, first.z, first.w};
        float low[4], high[4];
        for (int k = 0; k < 4; k++) {
            low[k] = __uint_as_float(pairs[k] << 16);
            high[k] = __uint_as_float(pairs[k] & 0xffff0000u);
        }
        for (uint32_t r = 1; r < in_count; r++) {
            const uint4 x = ((const uint4 *)in.at[r])[i];
            add_pair(&low[0], &high[0], x.x);
            add_pair(&low[1], &high[1], x.y);
            add_pair(&low[2], &high[2], x.z);
            add_pair(&low[3], &high[3], x.w);
        }
        out[i] = make_uint4(narrow_pair(low[0], high[0]), narrow_pair(low[1], high[1]), narrow_pair(low[2], high[2]),
                            narrow_pair(low[3], high[3]));
    }
}

static __global__ void sum_bf16_single(uint16_t *out, inputs in, uint32_t in_count, uint64_t begin, uint64_t count)
{
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = begin + (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        float sum = bf16_to_float(((const uint16_t *)in.at[0])[i]);
        for (uint32_t r = 1; r < in_count; r++)
            sum = __fadd_rn(sum, bf16_to_float(((const uint16_t *)in.at[r])[i]));
        out[i] = sum_to_bf16(sum);
    }
}

static bool take_inputs(inputs *to, const void *const *in, uint32_t in_count, const void *out)
{
    uintptr_t all = (uintptr_t)out;
    for (uint32_t r = 0; r < in_count; r++) {
        to->at[r] = in[r];
        all |= (uintptr_t)in[r];
    }
    return all % 16 == 0;
}

static unsigned blocks_for(uint64_t threads)
{
    const uint64_t blocks = (threads + THREADS - 1) / THREADS;
    return (unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
}

extern "C" cudaError_t eo_cuda_sum_load(void)
{
    return load_kernels(sum_fp32_units, sum_fp32_single, sum_bf16_units, sum_bf16_single);
}

extern "C" cudaError_t eo_cuda_sum_fp32(float *out, const float *const *in, uint32_t in_count, uint64_t count,
                                        cudaStream_t stream)
{
    if (in_count == 0 || in_count > EO_CUDA_SUM_INPUTS_MAX)
        return cudaErrorInvalidValue;
    inputs pointers = {};
    const uint64_t units = take_inputs(&pointers, (const void *const *)in, in_count, out) ? count / 4 : 0;
    if (units)
        sum_fp32_units<<<blocks_for(units), THREADS, 0, stream>>>((float4 *)out, pointers, in_count, units);
    if (units * 4 < count)
        sum_fp32_single<<<blocks_for(count - units * 4), THREADS, 0, stream>>>(out, pointers, in_count, units * 4,
                                                                              count);
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_sum_bf16(uint16_t *out, const uint16_t *const *in, uint32_t in_count, uint64_t count,
                                        cudaStream_t stream)
{
    if (in_count == 0 || in_count > EO_CUDA_SUM_INPUTS_MAX)
        return cudaErrorInvalidValue;
    inputs pointers = {};
    const uint64_t units = take_inputs(&pointers, (const void *const *)in, in_count, out) ? count / 8 : 0;
    if (units)
        sum_bf16_units<<<blocks_for(units), THREADS, 0, stream>>>((uint4 *)out, pointers, in_count, units);
    if (units * 8 < count)
        sum_bf16_single<<<blocks_for(count - units * 8), THREADS, 0, stream>>>(out, pointers, in_count, units * 8,
                                                                              count);
    return cudaGetLastError();
}
