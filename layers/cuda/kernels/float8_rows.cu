/* SPDX-License-Identifier: MIT
 *
 * Both operands of a float8 product in one launch: a block a row finds its largest element, then writes the row in float8 and
 * its scale. The second look at a row finds it in the caches.
 */
#include "layers/cuda/kernels/lanes.cuh"

#include "base/float8.h"

namespace {

constexpr int THREADS = 128, OCTET = 8, STEP = THREADS * OCTET;

struct operand_rows {
    const uint16_t *from;
    uint64_t stride;
    uint8_t *to; /* rows of k elements, one after the other */
    float *scales;
};

__device__ __forceinline__ uint32_t largest_of_pair(uint32_t largest, uint32_t pair)
{
    return max(max(largest, pair & 0x7fffu), pair >> 16 & 0x7fffu);
}

__device__ __forceinline__ uint32_t warp_largest(uint32_t largest)
{
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, other));
    return largest;
}

__device__ __forceinline__ uint32_t narrow_pairs(uint32_t first, uint32_t second, float inverse)
{
    return (uint32_t)eo_float8_narrow((uint16_t)first, inverse) | (uint32_t)eo_float8_narrow(first >> 16, inverse) << 8 |
           (uint32_t)eo_float8_narrow((uint16_t)second, inverse) << 16 |
           (uint32_t)eo_float8_narrow(second >> 16, inverse) << 24;
}

} /* namespace */

/* No template, so outside: in it nvcc would give its stub a name that others see. */
static __global__ void __launch_bounds__(THREADS) float8_rows_kernel(operand_rows a, operand_rows b, uint64_t m, uint64_t k)
{
    __shared__ uint32_t of_warp[THREADS / 32];
    const bool is_b = blockIdx.x >= m;
    const operand_rows rows = is_b ? b : a;
    const uint64_t row = is_b ? blockIdx.x - m : blockIdx.x;
    const uint16_t *from = rows.from + row * rows.stride;
    uint32_t largest = 0;
    for (uint64_t i = threadIdx.x * OCTET; i < k; i += STEP) {
        const uint4 all = *reinterpret_cast<const uint4 *>(from + i);
        largest = largest_of_pair(largest_of_pair(largest_of_pair(largest_of_pair(largest, all.x), all.y), all.z), all.w);
    }
    largest = warp_largest(largest);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; w++)
        largest = max(largest, of_warp[w]);
    const float scale = eo_float8_scale((uint16_t)largest), inverse = eo_float8_inverse(scale);
    if (threadIdx.x == 0)
        rows.scales[row] = scale;
    for (uint64_t i = threadIdx.x * OCTET; i < k; i += STEP) {
        const uint4 all = *reinterpret_cast<const uint4 *>(from + i);
        *reinterpret_cast<uint2 *>(rows.to + row * k + i) =
            make_uint2(narrow_pairs(all.x, all.y, inverse), narrow_pairs(all.z, all.w, inverse));
    }
}

cudaError_t eo_cuda_load_float8_rows(void)
{
    return load_kernels(float8_rows_kernel);
}

cudaError_t eo_cuda_float8_rows(const struct eo_multiply *p, cudaStream_t stream)
{
    const struct eo_float8_scratch at = eo_float8_scratch_of(p->m, p->n, p->k);
    char *scratch = static_cast<char *>(p->scratch);
    const operand_rows a = {static_cast<const uint16_t *>(p->a.values), p->a.stride, (uint8_t *)(scratch + at.a),
                            (float *)(scratch + at.a_scales)};
    const operand_rows b = {static_cast<const uint16_t *>(p->b.values), p->b.stride, (uint8_t *)(scratch + at.b),
                            (float *)(scratch + at.b_scales)};
    float8_rows_kernel<<<(unsigned)(p->m + p->n), THREADS, 0, stream>>>(a, b, p->m, p->k);
    return cudaPeekAtLastError();
}
