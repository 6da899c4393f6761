/* SPDX-License-Identifier: MIT
 *
 * Kernels with a fault each, and beside them the same without: what the checker must find, and what it must not.
 */
#include <cuda_runtime_api.h>

namespace {

/* Every thread gives its number to the next. LACKS 1 has not the first barrier, 2 not the second. */
template <int LACKS> __global__ void rotate(float *out, const float *in, uint32_t rounds)
{
    __shared__ float tile[64];
    float mine = in[threadIdx.x];
    tile[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t i = 0; i < rounds; i++) {
        tile[threadIdx.x] = mine;
        if (LACKS != 1)
            __syncthreads();
        mine = tile[(threadIdx.x + 1) % 64];
        if (LACKS != 2)
            __syncthreads();
    }
    out[threadIdx.x] = mine;
}

__global__ void uneven_barrier(float *out)
{
    if (threadIdx.x < 40)
        __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void two_barriers(float *out)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

template <uint32_t MASK> __global__ void shuffle(float *out)
{
    if (MASK >> threadIdx.x % 32 & 1 || MASK == 0xfffffffeu)
        out[threadIdx.x] = __shfl_xor_sync(MASK, (float)threadIdx.x, 1);
}

__global__ void early_end_shuffle(float *out)
{
    if (threadIdx.x == 5)
        return;
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

__global__ void dynamic_shared(float *out, uint32_t at)
{
    extern __shared__ float cache[];
    cache[at] = 1;
    out[0] = cache[at];
}

__global__ void large_shared(float *out)
{
    __shared__ double tile[48 * 1024 / 8 + 1];
    tile[threadIdx.x] = 1;
    out[0] = (float)tile[threadIdx.x];
}

__global__ void unset_shared(float *out)
{
    __shared__ float tile[64];
    if (threadIdx.x > 0)
        tile[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void vector_load(float *out, const float *in)
{
    const float4 v = *(const float4 *)(in + threadIdx.x);
    out[threadIdx.x] = v.x + v.w;
}

__global__ void reach(float *out, const float *in, int64_t from, int64_t to)
{
    out[to] = in[from];
}

/* All blocks: the sum of everyone's number. */
template <bool ATOMIC> __global__ void total(unsigned *out)
{
    if (ATOMIC)
        atomicAdd(out, threadIdx.x + 1);
    else
        *out += threadIdx.x + 1;
}

__global__ void read_neighbour_block(float *data)
{
    if (threadIdx.x == 0)
        data[blockIdx.x] = data[(blockIdx.x + 1) % gridDim.x] + 1;
}

/* A warp alone needs no barrier of the block, but one of the warp. */
template <bool SYNCED> __global__ void within_warp(float *out)
{
    __shared__ float tile[64];
    tile[threadIdx.x] = 0;
    __syncthreads();
    tile[threadIdx.x] = (float)threadIdx.x;
    if (SYNCED)
        __syncwarp(0xffffffffu);
    out[threadIdx.x] = tile[threadIdx.x ^ 3];
}

enum { BOUNDED_ROWS = 2 };

__global__ void __launch_bounds__(32 * (BOUNDED_ROWS)) bounded(float *out)
{
    out[threadIdx.y * blockDim.x + threadIdx.x] = 1;
}

/* Depends on the order of atomics. */
__global__ void first_come(unsigned *counter, unsigned *out)
{
    out[threadIdx.x] = atomicAdd(counter, 1u);
}

} /* namespace */

extern "C" void broken_load(void)
{
    cudaFuncAttributes attributes;
    const void *const all[] = {
        (const void *)rotate<0>, (const void *)rotate<1>, (const void *)rotate<2>, (const void *)uneven_barrier,
        (const void *)two_barriers, (const void *)shuffle<0xffffffffu>, (const void *)shuffle<0xfu>,
        (const void *)shuffle<0xfffffffeu>, (const void *)early_end_shuffle, (const void *)dynamic_shared,
        (const void *)large_shared, (const void *)unset_shared, (const void *)vector_load, (const void *)reach,
        (const void *)total<true>, (const void *)total<false>, (const void *)read_neighbour_block,
        (const void *)within_warp<true>, (const void *)within_warp<false>, (const void *)first_come,
        (const void *)bounded,
    };
    for (const void *kernel : all)
        (void)cudaFuncGetAttributes(&attributes, kernel);
}

extern "C" void broken_opt_in(int bytes)
{
    (void)cudaFuncSetAttribute((const void *)dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

/* in and out: 256 floats each, aligned to 16 bytes. */
extern "C" void broken_run(int which, float *out, const float *in)
{
    switch (which) {
    case 0: rotate<0><<<1, 64>>>(out, in, 3); break;
    case 1: rotate<1><<<1, 64>>>(out, in, 3); break;
    case 2: rotate<2><<<1, 64>>>(out, in, 3); break;
    case 3: uneven_barrier<<<1, 64>>>(out); break;
    case 4: two_barriers<<<1, 64>>>(out); break;
    case 5: shuffle<0xffffffffu><<<1, 64>>>(out); break;
    case 6: shuffle<0xfu><<<1, 64>>>(out); break;
    case 7: shuffle<0xffffffffu><<<1, 40>>>(out); break;
    case 8: shuffle<0xfffffffeu><<<1, 32>>>(out); break;
    case 9: early_end_shuffle<<<1, 32>>>(out); break;
    case 10: dynamic_shared<<<1, 1, 64>>>(out, 15u); break;
    case 11: dynamic_shared<<<1, 1, 64>>>(out, 16u); break;
    case 12: dynamic_shared<<<1, 1, 49 * 1024>>>(out, 0u); break;
    case 13: large_shared<<<1, 1>>>(out); break;
    case 14: unset_shared<<<1, 64>>>(out); break;
    case 15: vector_load<<<1, 1>>>(out, in); break;
    case 16: vector_load<<<1, 2>>>(out, in); break;
    case 17: reach<<<1, 1>>>(out, in, 255, 255); break;
    case 18: reach<<<1, 1>>>(out, in, 256, 0); break;
    case 19: reach<<<1, 1>>>(out, in, 0, -1); break;
    case 20: total<true><<<3, 64>>>((unsigned *)out); break;
    case 21: total<false><<<1, 64>>>((unsigned *)out); break;
    case 22: total<false><<<2, 1>>>((unsigned *)out); break;
    case 23: read_neighbour_block<<<4, 64>>>(out); break;
    case 24: within_warp<true><<<1, 64>>>(out); break;
    case 25: within_warp<false><<<1, 64>>>(out); break;
    case 26: first_come<<<1, 64>>>((unsigned *)out, (unsigned *)out + 64); break;
    case 27: reach<<<dim3(1, 65536), 1>>>(out, in, 0, 0); break;
    case 28: reach<<<1, dim3(32, 33)>>>(out, in, 0, 0); break;
    case 29: reach<<<0, 32>>>(out, in, 0, 0); break;
    case 30: reach<<<1, 1>>>((float *)((char *)out + 2), in, 0, 0); break;
    case 31: bounded<<<1, dim3(32, 2)>>>(out); break;
    case 32: bounded<<<1, 65>>>(out); break;
    default: break;
    }
}
