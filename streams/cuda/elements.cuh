/* SPDX-License-Identifier: MIT
 *
 * For the kernels of this folder: bf16 as streams/bf16.h has it, and loading.
 */
#ifndef EO_STREAMS_CUDA_ELEMENTS_CUH
#define EO_STREAMS_CUDA_ELEMENTS_CUH

#include <stdint.h>

#include <cuda_runtime_api.h>

__device__ static inline float bf16_to_float(uint16_t value)
{
    return __uint_as_float((uint32_t)value << 16);
}

/* To nearest, ties away from zero; NaN stays NaN. */
__device__ static inline uint16_t float_to_bf16(float value)
{
    const uint32_t bits = __float_as_uint(value);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)((is_nan ? bits | 0x400000u : bits + 0x8000u) >> 16);
}

/* The same, ties to even. */
__device__ static inline uint16_t sum_to_bf16(float value)
{
    const uint32_t bits = __float_as_uint(value);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)((is_nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* To the current device, now: a kernel comes to it when it is first asked about, or first launched. */
template <typename... Kernels> static cudaError_t load_kernels(Kernels... kernels)
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

#endif
