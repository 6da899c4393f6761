/* SPDX-License-Identifier: MIT
 *
 * Four elements a thread, as one load where arrays are aligned to it: for kernels that wait for memory.
 */
#ifndef EO_STREAMS_CUDA_QUADS_CUH
#define EO_STREAMS_CUDA_QUADS_CUH

#include "streams/cuda/elements.cuh"

enum { QUAD = 4 };

struct alignas(16) quad {
    float x[QUAD];
};

__device__ static inline float element(const float *from, uint64_t i)
{
    return from[i];
}

__device__ static inline float element(const uint16_t *from, uint64_t i)
{
    return bf16_to_float(from[i]);
}

__device__ static inline quad load_whole(const float *from)
{
    const float4 v = *(const float4 *)from;
    return {v.x, v.y, v.z, v.w};
}

__device__ static inline quad load_whole(const uint16_t *from)
{
    const ushort4 v = *(const ushort4 *)from;
    return {bf16_to_float(v.x), bf16_to_float(v.y), bf16_to_float(v.z), bf16_to_float(v.w)};
}

/* Elements i ... i + 3, zero from `count` on. */
template <typename T> __device__ static inline quad load(const T *from, uint64_t i, uint64_t count)
{
    if (i + QUAD <= count && (uintptr_t)(from + i) % (QUAD * sizeof(T)) == 0)
        return load_whole(from + i);
    quad q = {};
    for (int k = 0; k < QUAD; k++)
        if (i + k < count)
            q.x[k] = element(from, i + k);
    return q;
}

__device__ static inline void store(float *to, uint64_t i, uint64_t count, const quad &q)
{
    if (i + QUAD <= count && (uintptr_t)(to + i) % (QUAD * sizeof(float)) == 0) {
        *(float4 *)(to + i) = make_float4(q.x[0], q.x[1], q.x[2], q.x[3]);
        return;
    }
    for (int k = 0; k < QUAD; k++)
        if (i + k < count)
            to[i + k] = q.x[k];
}

template <typename T> __device__ static inline void store_16(T *to, uint64_t i, uint64_t count, const T (&v)[QUAD])
{
    if (i + QUAD <= count && (uintptr_t)(to + i) % (QUAD * sizeof(T)) == 0) {
        *(ushort4 *)(to + i) = make_ushort4((uint16_t)v[0], (uint16_t)v[1], (uint16_t)v[2], (uint16_t)v[3]);
        return;
    }
    for (int k = 0; k < QUAD; k++)
        if (i + k < count)
            to[i + k] = v[k];
}

/* i < count */
__device__ static inline quad load_split(const uint16_t *high, const int16_t *low, uint64_t i, uint64_t count)
{
    quad q = load(high, i, count);
    ushort4 bits = {0, 0, 0, 0};
    if (i + QUAD <= count && (uintptr_t)(low + i) % sizeof(bits) == 0)
        bits = *(const ushort4 *)(low + i);
    else
        bits = {(uint16_t)low[i], (uint16_t)(i + 1 < count ? low[i + 1] : 0),
                (uint16_t)(i + 2 < count ? low[i + 2] : 0), (uint16_t)(i + 3 < count ? low[i + 3] : 0)};
    const int16_t remainder[QUAD] = {(int16_t)bits.x, (int16_t)bits.y, (int16_t)bits.z, (int16_t)bits.w};
    for (int k = 0; k < QUAD; k++)
        q.x[k] = __uint_as_float(__float_as_uint(q.x[k]) + (uint32_t)(int32_t)remainder[k]);
    return q;
}

__device__ static inline void store_split(uint16_t *high, int16_t *low, uint64_t i, uint64_t count, const quad &q)
{
    uint16_t h[QUAD];
    int16_t l[QUAD];
    for (int k = 0; k < QUAD; k++) {
        const uint32_t bits = __float_as_uint(q.x[k]);
        h[k] = float_to_bf16(q.x[k]);
        l[k] = (bits & 0x7fffffffu) > 0x7f800000u ? 0 : (int16_t)(uint16_t)(bits & 0xffffu);
    }
    store_16(high, i, count, h);
    store_16(low, i, count, l);
}

#endif
