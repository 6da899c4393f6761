/* SPDX-License-Identifier: MIT
 *
 * Weights to float8 for a gather, and back, with the bits of base/float8.h. Eight elements a thread: 16 bytes of bf16, 8 of
 * float8. The largest weight of a run is that of its parts, each a block's, so no atomics are needed.
 *
 * And frozen weights from MXFP8, with the bits of base/mxfp8.h: four threads have a block's elements.
 */
#include "streams/cuda/kernels.h"

#include "base/mxfp8.h"
#include "streams/cuda/elements.cuh"

enum { THREADS = 256, OCTET = 8, TILE = THREADS * OCTET, WARPS = THREADS / 32 };

struct float8_runs {
    eo_float8_run at[EO_CUDA_FLOAT8_RUNS];
    uint32_t first_block[EO_CUDA_FLOAT8_RUNS + 1];
    uint32_t count;
};

struct mxfp8_runs {
    eo_mxfp8_run at[EO_CUDA_FLOAT8_RUNS];
    uint32_t first_block[EO_CUDA_FLOAT8_RUNS + 1];
    uint32_t count;
};

static_assert(sizeof(float8_runs) <= 4000 && sizeof(mxfp8_runs) <= 4000, "the arguments of a kernel are limited to 4 KiB");

struct alignas(16) octet {
    uint16_t x[OCTET];
};
struct alignas(8) octet_narrow {
    uint8_t x[OCTET];
};
struct alignas(16) quad_wide {
    float x[OCTET / 2];
};

/* --- eight elements ----------------------------------------------------------------------------------------------- */

/* Elements i ... i + 7, zero from `count` on. */
template <typename Octet, typename T> __device__ static Octet load(const T *from, uint64_t i, uint64_t count)
{
    if (i + OCTET <= count && (uintptr_t)(from + i) % sizeof(Octet) == 0)
        return *(const Octet *)(from + i);
    Octet o = {};
    for (int k = 0; k < OCTET; k++)
        if (i + k < count)
            o.x[k] = from[i + k];
    return o;
}

template <typename Octet, typename T> __device__ static void store(T *to, uint64_t i, uint64_t count, const Octet &o)
{
    if (i + OCTET <= count && (uintptr_t)(to + i) % sizeof(Octet) == 0) {
        *(Octet *)(to + i) = o;
        return;
    }
    for (int k = 0; k < OCTET; k++)
        if (i + k < count)
            to[i + k] = o.x[k];
}

/* Two halves, for no access is of more than 16 bytes. */
__device__ static void store_wide(float *to, uint64_t i, uint64_t count, const quad_wide halves[2])
{
    if (i + OCTET <= count && (uintptr_t)(to + i) % sizeof(quad_wide) == 0) {
        for (int h = 0; h < 2; h++)
            ((quad_wide *)(to + i))[h] = halves[h];
        return;
    }
    for (int k = 0; k < OCTET; k++)
        if (i + k < count)
            to[i + k] = halves[k / 4].x[k % 4];
}

template <typename Runs> __device__ static uint32_t find_run(const Runs &runs)
{
    uint32_t r = 0;
    while (blockIdx.x >= runs.first_block[r + 1]) /* the last run ends with the grid */
        r++;
    return r;
}

__device__ static uint32_t largest_of_warp(uint32_t largest)
{
    for (int width = 16; width > 0; width /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, largest, width);
        largest = other > largest ? other : largest;
    }
    return largest;
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* A block a part: the bits of its largest absolute value. */
__global__ static void largest_kernel(uint32_t *parts, const float8_runs runs)
{
    __shared__ uint32_t of_warp[WARPS];
    const eo_float8_run &run = runs.at[blockIdx.y];
    const uint64_t part = blockIdx.x, count = run.scale ? run.count : 0;
    uint32_t largest = 0;
    for (uint64_t i = (part * THREADS + threadIdx.x) * OCTET; i < count; i += (uint64_t)gridDim.x * TILE) {
        const octet o = load<octet>((const uint16_t *)run.wide, i, count);
        for (int k = 0; k < OCTET; k++) {
            const uint32_t value = o.x[k] & 0x7fffu;
            largest = value > largest ? value : largest;
        }
    }
    largest = largest_of_warp(largest);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = largest;
    __syncthreads();
    if (threadIdx.x < 32) {
        largest = largest_of_warp(threadIdx.x < WARPS ? of_warp[threadIdx.x] : 0);
        if (threadIdx.x == 0)
            parts[blockIdx.y * gridDim.x + blockIdx.x] = largest;
    }
}

/* A warp a run. */
__global__ static void scale_kernel(const uint32_t *parts, uint32_t part_count, const float8_runs runs)
{
    uint32_t largest = 0;
    for (uint32_t i = threadIdx.x; i < part_count; i += 32) {
        const uint32_t other = parts[blockIdx.x * part_count + i];
        largest = other > largest ? other : largest;
    }
    largest = largest_of_warp(largest);
    if (threadIdx.x == 0 && runs.at[blockIdx.x].scale)
        *runs.at[blockIdx.x].scale = eo_float8_scale((uint16_t)largest);
}

__global__ static void narrow_kernel(const float8_runs runs)
{
    const uint32_t r = find_run(runs);
    const eo_float8_run &run = runs.at[r];
    const uint64_t i = ((uint64_t)(blockIdx.x - runs.first_block[r]) * THREADS + threadIdx.x) * OCTET;
    const octet o = load<octet>((const uint16_t *)run.wide, i, run.count);
    if (!run.scale) {
        store((uint16_t *)run.narrow, i, run.count, o);
        return;
    }
    const float inverse = eo_float8_inverse(*run.scale);
    octet_narrow n;
    for (int k = 0; k < OCTET; k++)
        n.x[k] = eo_float8_narrow(o.x[k], inverse);
    store((uint8_t *)run.narrow, i, run.count, n);
}

__global__ static void widen_kernel(const float8_runs runs)
{
    const uint32_t r = find_run(runs);
    const eo_float8_run &run = runs.at[r];
    const uint64_t i = ((uint64_t)(blockIdx.x - runs.first_block[r]) * THREADS + threadIdx.x) * OCTET;
    if (!run.scale) {
        store(run.wide, i, run.count, load<octet>((const uint16_t *)run.narrow, i, run.count));
        return;
    }
    const octet_narrow n = load<octet_narrow>((const uint8_t *)run.narrow, i, run.count);
    const float scale = *run.scale;
    octet o;
    for (int k = 0; k < OCTET; k++)
        o.x[k] = eo_float8_widen(n.x[k], scale);
    store(run.wide, i, run.count, o);
}

/* As it is, where it has no exponents. */
__device__ static void copy_frozen(const eo_mxfp8_run &run, uint64_t i)
{
    if (run.dtype == EO_DTYPE_BF16) {
        store((uint16_t *)run.wide, i, run.count, load<octet>((const uint16_t *)run.narrow, i, run.count));
        return;
    }
    for (int k = 0; k < OCTET; k++)
        if (i + k < run.count)
            ((float *)run.wide)[i + k] = ((const float *)run.narrow)[i + k];
}

__global__ static void widen_mxfp8_kernel(const mxfp8_runs runs)
{
    const uint32_t r = find_run(runs);
    const eo_mxfp8_run &run = runs.at[r];
    const uint64_t i = ((uint64_t)(blockIdx.x - runs.first_block[r]) * THREADS + threadIdx.x) * OCTET;
    if (!run.exponents) {
        copy_frozen(run, i);
        return;
    }
    if (i >= run.count)
        return;
    const octet_narrow n = load<octet_narrow>(run.narrow, i, run.count);
    const uint8_t exponent = run.exponents[i / EO_MXFP8_BLOCK];
    quad_wide halves[2];
    octet o;
    for (int k = 0; k < OCTET; k++) {
        halves[k / 4].x[k % 4] = eo_mxfp8_widen(n.x[k], exponent);
        o.x[k] = (uint16_t)(eo_float8_bits(halves[k / 4].x[k % 4]) >> 16); /* bf16 has all its bits */
    }
    if (run.dtype == EO_DTYPE_BF16)
        store((uint16_t *)run.wide, i, run.count, o);
    else
        store_wide((float *)run.wide, i, run.count, halves);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

extern "C" cudaError_t eo_cuda_float8_load(void)
{
    return load_kernels(largest_kernel, scale_kernel, narrow_kernel, widen_kernel, widen_mxfp8_kernel);
}

/* Those with elements, and where their blocks begin. */
template <typename Runs, typename Run> static Runs take_runs(const Run *runs, uint32_t run_count)
{
    Runs all = {};
    for (uint32_t r = 0; r < run_count; r++) {
        if (runs[r].count == 0)
            continue;
        all.at[all.count++] = runs[r];
        all.first_block[all.count] = all.first_block[all.count - 1] + (uint32_t)((runs[r].count + TILE - 1) / TILE);
    }
    return all;
}

/* As many as the longest run to be scaled has tiles. */
static uint32_t parts_of(const float8_runs &runs)
{
    uint64_t tiles = 1;
    for (uint32_t r = 0; r < runs.count; r++) {
        const uint64_t own = (runs.at[r].count + TILE - 1) / TILE;
        tiles = runs.at[r].scale && own > tiles ? own : tiles;
    }
    return tiles < EO_CUDA_FLOAT8_PARTS ? (uint32_t)tiles : EO_CUDA_FLOAT8_PARTS;
}

extern "C" cudaError_t eo_cuda_narrow(const struct eo_float8_run *runs, uint32_t run_count, uint32_t *parts,
                                      cudaStream_t stream)
{
    if (run_count > EO_CUDA_FLOAT8_RUNS)
        return cudaErrorInvalidValue;
    const float8_runs all = take_runs<float8_runs>(runs, run_count);
    if (all.count == 0)
        return cudaSuccess;
    const uint32_t part_count = parts_of(all);
    largest_kernel<<<dim3(part_count, all.count), THREADS, 0, stream>>>(parts, all);
    scale_kernel<<<all.count, 32, 0, stream>>>(parts, part_count, all);
    narrow_kernel<<<all.first_block[all.count], THREADS, 0, stream>>>(all);
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_widen(const struct eo_float8_run *runs, uint32_t run_count, cudaStream_t stream)
{
    if (run_count > EO_CUDA_FLOAT8_RUNS)
        return cudaErrorInvalidValue;
    const float8_runs all = take_runs<float8_runs>(runs, run_count);
    if (all.count == 0)
        return cudaSuccess;
    widen_kernel<<<all.first_block[all.count], THREADS, 0, stream>>>(all);
    return cudaGetLastError();
}

extern "C" cudaError_t eo_cuda_widen_mxfp8(const struct eo_mxfp8_run *runs, uint32_t run_count, cudaStream_t stream)
{
    if (run_count > EO_CUDA_FLOAT8_RUNS)
        return cudaErrorInvalidValue;
    const mxfp8_runs all = take_runs<mxfp8_runs>(runs, run_count);
    if (all.count == 0)
        return cudaSuccess;
    widen_mxfp8_kernel<<<all.first_block[all.count], THREADS, 0, stream>>>(all);
    return cudaGetLastError();
}
