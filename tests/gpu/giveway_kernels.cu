/* SPDX-License-Identifier: MIT */
#include "tests/gpu/giveway_kernels.h"

static __device__ unsigned long long device_clock()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

static __global__ void communicate(uint64_t *starts, unsigned long long *moved, uint4 *memory, uint64_t half,
                                   unsigned long long nanoseconds)
{
    extern __shared__ uint4 staged[];
    const unsigned long long begin = device_clock();
    if (threadIdx.x == 0)
        starts[blockIdx.x] = begin;
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x, count = 0;
    while (device_clock() - begin < nanoseconds) {
        for (int i = 0; i < 8; i++, count++) {
            staged[threadIdx.x] = memory[at % half];
            memory[half + at % half] = staged[threadIdx.x];
            at += stride;
        }
    }
    atomicAdd(moved, (unsigned long long)(count * 2 * sizeof(uint4)));
}

static __global__ void small(float *value)
{
    float x = value[threadIdx.x];
    for (int i = 0; i < 512; i++)
        x = x * 0.999f + 0.001f;
    value[threadIdx.x] = x;
}

static __global__ void read_clock(uint64_t *at, uint64_t *step)
{
    const unsigned long long first = device_clock();
    unsigned long long before = first, least = ~0ull;
    for (int i = 0; i < 100000; i++) {
        const unsigned long long now = device_clock();
        if (now != before && now - before < least)
            least = now - before;
        before = now;
    }
    *at = first;
    *step = least;
}

extern "C" cudaError_t giveway_communicate(uint64_t *starts, unsigned long long *moved, void *memory, uint64_t bytes,
                                           int blocks, int cluster, uint64_t nanoseconds, cudaStream_t stream)
{
    int device, shared_bytes = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess && shared_bytes > GIVEWAY_SHARED_BYTES)
        shared_bytes = GIVEWAY_SHARED_BYTES;
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(communicate, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess)
        return error;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)cluster;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(GIVEWAY_THREADS);
    config.dynamicSmemBytes = (size_t)shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = cluster > 1 ? 1 : 0; /* devices before sm_90 have no clusters */
    return cudaLaunchKernelEx(&config, communicate, starts, moved, (uint4 *)memory, bytes / 2 / sizeof(uint4),
                              (unsigned long long)nanoseconds);
}

extern "C" cudaError_t giveway_small(float *value, cudaStream_t stream)
{
    small<<<1, 256, 0, stream>>>(value);
    return cudaGetLastError();
}

extern "C" cudaError_t giveway_clock(uint64_t *at, uint64_t *step, cudaStream_t stream)
{
    read_clock<<<1, 1, 0, stream>>>(at, step);
    return cudaGetLastError();
}
