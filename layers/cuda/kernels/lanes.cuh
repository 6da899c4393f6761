/* SPDX-License-Identifier: MIT
 *
 * What the kernels of this folder share: element types, loads and stores of 16 bytes, sums over a block.
 *
 * A kernel is written once for `T` (float or bf16) and `N` elements at a time (16 bytes, or 1 where an operand is not
 * aligned); sums and arithmetic are fp32. All sums are taken in an order that the shape alone fixes.
 */
#ifndef EO_LAYERS_CUDA_KERNELS_LANES_CUH
#define EO_LAYERS_CUDA_KERNELS_LANES_CUH

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "layers/cuda/kernels.h"

namespace {

struct bf16 {
    uint16_t bits;
};

__device__ __forceinline__ float widen(float value)
{
    return value;
}

__device__ __forceinline__ float widen(bf16 value)
{
    return __uint_as_float((uint32_t)value.bits << 16);
}

/* To the nearest bf16 in the upper half, ties to even. Of a NaN it may be none. */
__device__ __forceinline__ uint32_t rounded(uint32_t bits)
{
    return bits + 0x7fffu + (bits >> 16 & 1);
}

__device__ __forceinline__ uint16_t bf16_bits(float value)
{
    const uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); /* a NaN stays one */
    return (uint16_t)(rounded(bits) >> 16);
}

template <typename T> __device__ __forceinline__ T narrow(float value);
template <> __device__ __forceinline__ float narrow<float>(float value)
{
    return value;
}
template <> __device__ __forceinline__ bf16 narrow<bf16>(float value)
{
    return bf16{bf16_bits(value)};
}

template <typename T> __device__ __forceinline__ float rounded(float value)
{
    return widen(narrow<T>(value));
}

/* N elements to and from floats in registers. */
template <typename T, int N> struct lanes;

template <typename T> struct lanes<T, 1> {
    static __device__ __forceinline__ void load(float (&out)[1], const T *from)
    {
        out[0] = widen(*from);
    }
    static __device__ __forceinline__ void store(T *to, const float (&in)[1])
    {
        *to = narrow<T>(in[0]);
    }
};

template <> struct lanes<float, 4> {
    static __device__ __forceinline__ void load(float (&out)[4], const float *from)
    {
        const float4 all = *reinterpret_cast<const float4 *>(from);
        out[0] = all.x, out[1] = all.y, out[2] = all.z, out[3] = all.w;
    }
    static __device__ __forceinline__ void store(float *to, const float (&in)[4])
    {
        *reinterpret_cast<float4 *>(to) = make_float4(in[0], in[1], in[2], in[3]);
    }
};

template <> struct lanes<bf16, 8> {
    static __device__ __forceinline__ void load(float (&out)[8], const bf16 *from)
    {
        const uint4 all = *reinterpret_cast<const uint4 *>(from);
        const uint32_t pairs[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = __uint_as_float(pairs[i] << 16);
            out[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
        }
    }
    /* bf16_bits of each; a NaN is looked for once in all of them. */
    static __device__ __forceinline__ void store(bf16 *to, const float (&in)[8])
    {
        uint32_t pairs[4];
        bool has_nan = false;
#pragma unroll
        for (int i = 0; i < 8; i++)
            has_nan |= isnan(in[i]);
#pragma unroll
        for (int i = 0; i < 4; i++)
            pairs[i] = __byte_perm(rounded(__float_as_uint(in[2 * i])), rounded(__float_as_uint(in[2 * i + 1])), 0x7632);
        if (has_nan) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                pairs[i] = (uint32_t)bf16_bits(in[2 * i]) | (uint32_t)bf16_bits(in[2 * i + 1]) << 16;
        }
        *reinterpret_cast<uint4 *>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
};

/* N sums to `to`, which is aligned as theirs: by 16 bytes where they fill them. */
template <typename G, int N> __device__ __forceinline__ void store_sums(G *to, const float (&sums)[N])
{
    constexpr int LANES = 16 / sizeof(G), PART = N % LANES == 0 ? LANES : 1;
#pragma unroll
    for (int first = 0; first < N; first += PART) {
        float part[PART];
#pragma unroll
        for (int i = 0; i < PART; i++)
            part[i] = sums[first + i];
        lanes<G, PART>::store(to + first, part);
    }
}

/* Adds what lies at `from`, which is aligned likewise. */
template <typename G, int N> __device__ __forceinline__ void add_stored(float (&sums)[N], const G *from)
{
    constexpr int LANES = 16 / sizeof(G), PART = N % LANES == 0 ? LANES : 1;
#pragma unroll
    for (int first = 0; first < N; first += PART) {
        float part[PART];
        lanes<G, PART>::load(part, from + first);
#pragma unroll
        for (int i = 0; i < PART; i++)
            sums[first + i] += part[i];
    }
}

/* A norm's weights from element `at` on: T's, or fp32 beside it. */
template <typename T, int N>
__device__ __forceinline__ void load_weights(float (&out)[N], const void *weights, bool fp32, uint64_t at)
{
    constexpr int PART = N < 4 ? N : 4;
    if (!fp32) {
        lanes<T, N>::load(out, (const T *)weights + at);
        return;
    }
#pragma unroll
    for (int first = 0; first < N; first += PART) {
        float part[PART];
        lanes<float, PART>::load(part, (const float *)weights + at + first);
#pragma unroll
        for (int i = 0; i < PART; i++)
            out[first + i] = part[i];
    }
}

/* The same butterfly in every lane: all get the same bits. */
__device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, other);
    return value;
}

/* Sums of two values over the block, in every thread. The block is a multiple of 32, at most 1024. */
__device__ __forceinline__ float2 block_sum(float2 value)
{
    __shared__ float2 parts[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    value.x = warp_sum(value.x);
    value.y = warp_sum(value.y);
    if (warps == 1)
        return value;
    __syncthreads(); /* `parts` may still be read, from the last call */
    if (lane == 0)
        parts[warp] = value;
    __syncthreads();
    value = lane < warps ? parts[lane] : make_float2(0, 0);
    return make_float2(warp_sum(value.x), warp_sum(value.y));
}

/* ---- on the host ---- */

template <typename Element, int N> struct variant {
    using T = Element;
    static constexpr int lanes_count = N;
};

/* Calls launch(variant): by 16 bytes where `wide`, else element by element. */
template <typename Launch> cudaError_t dispatch(eo_dtype dtype, bool wide, Launch launch)
{
    if (dtype == EO_DTYPE_BF16) {
        if (wide)
            launch(variant<bf16, 8>());
        else
            launch(variant<bf16, 1>());
    } else {
        if (wide)
            launch(variant<float, 4>());
        else
            launch(variant<float, 1>());
    }
    return cudaPeekAtLastError();
}

/* What dispatch may choose: body(variant) returns a cudaError_t. */
template <typename Body> cudaError_t for_all_variants(Body body)
{
    const cudaError_t errors[] = {body(variant<bf16, 8>()), body(variant<bf16, 1>()), body(variant<float, 4>()),
                                  body(variant<float, 1>())};
    for (const cudaError_t error : errors)
        if (error != cudaSuccess)
            return error;
    return cudaSuccess;
}

/* A kernel comes to the device when it is first asked about, or first launched: too late within a capture, or between two
 * collectives that wait for each other. Those without variants may stand among the others: to be asked again is cheap. */
template <typename... Kernels> cudaError_t load_kernels(Kernels... kernels)
{
    cudaFuncAttributes attributes;
    const void *const all[] = {(const void *)kernels...};
    for (const void *kernel : all) {
        const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

inline uint64_t lanes_of(eo_dtype dtype)
{
    return dtype == EO_DTYPE_BF16 ? 8 : 4;
}

inline bool aligned(const void *pointer) /* NULL is */
{
    return (uintptr_t)pointer % 16 == 0;
}

template <typename... Pointers> bool aligned(const void *first, Pointers... others)
{
    return aligned(first) && aligned(others...);
}

inline uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Threads for a row of `packs`: whole warps, at most `most`. */
inline unsigned row_threads(uint64_t packs, unsigned most)
{
    const uint64_t whole = divide_up(packs, 32) * 32;
    return whole < most ? (unsigned)whole : most;
}

} /* namespace */

#endif
