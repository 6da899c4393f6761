/* SPDX-License-Identifier: MIT
 *
 * AdamW with its moments in 8 bits, with the bits of streams/cpu/state8_body.h. A warp a block of state: its 256 elements are in
 * registers, eight a thread, from the load to the store, and the largest moments come by shuffles.
 */
#include "streams/cuda/kernels.h"

#include "streams/cuda/quads.cuh"
#include "streams/state8.h"

enum { THREADS = 256, WARP = 32, WARPS = THREADS / WARP, HALF = WARP * QUAD, HALVES = EO_STATE8_ELEMENTS / HALF };

static_assert(HALVES * HALF == EO_STATE8_ELEMENTS, "a warp's quads are a block");

struct block_ranges {
    eo_update_range at[EO_CUDA_UPDATE_RANGES];
    uint32_t first_block[EO_CUDA_UPDATE_RANGES + 1];
    uint32_t count;
};

static_assert(sizeof(block_ranges) + sizeof(eo_step_memory) <= 4000, "the arguments of a kernel are limited to 4 KiB");

__device__ static quad load_codes(const uint8_t *codes, bool is_signed, float scale)
{
    const uchar4 four = *(const uchar4 *)codes;
    return {{scale * eo_state8_value(four.x, is_signed), scale * eo_state8_value(four.y, is_signed),
             scale * eo_state8_value(four.z, is_signed), scale * eo_state8_value(four.w, is_signed)}};
}

__device__ static void store_codes(uint8_t *codes, bool is_signed, const quad &q, float inverse)
{
    *(uchar4 *)codes = make_uchar4(eo_state8_code(q.x[0] * inverse, is_signed), eo_state8_code(q.x[1] * inverse, is_signed),
                                   eo_state8_code(q.x[2] * inverse, is_signed), eo_state8_code(q.x[3] * inverse, is_signed));
}

/* Over the warp, on all of its threads. */
__device__ static float largest_of(const quad (&q)[HALVES])
{
    float most = 0;
    for (int h = 0; h < HALVES; h++)
        for (int k = 0; k < QUAD; k++)
            most = fmaxf(most, fabsf(q[h].x[k]));
    for (int width = WARP / 2; width > 0; width /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, width));
    return most;
}

__global__ static void state8_kernel(const block_ranges ranges, const eo_step_memory step)
{
    if (isnan(step.norm->gradient_scale))
        return;
    uint32_t index = 0;
    while (blockIdx.x >= ranges.first_block[index + 1]) /* the last range's next is the end of the grid */
        index++;
    const eo_update_range &range = ranges.at[index];
    const uint64_t block = (uint64_t)(blockIdx.x - ranges.first_block[index]) * WARPS + threadIdx.x / WARP;
    const eo_group_scalars &group = step.groups[range.group];
    if (block * EO_STATE8_ELEMENTS >= range.count || group.frozen) /* all of the warp */
        return;

    const float scale = step.results[range.group].gradient_scale;
    const uint64_t unknown = step.norm->skipped - step.scalars->skipped;
    const struct eo_state8_rule rule = eo_state8_rule(group.learning_rate, group.weight_decay, group.eps,
                                                      group.bias_correction1[unknown], group.bias_correction2[unknown]);
    const bool is_split = !range.weights;
    eo_state8 &first = range.first_blocks[block], &second = range.second_blocks[block];
    const bool is_first = threadIdx.x % WARP == 0; /* it alone reads and writes the scales */
    const float kept1 = __shfl_sync(0xffffffffu, is_first ? group.beta1 * first.largest : 0.0f, 0);
    const float kept2 = __shfl_sync(0xffffffffu, is_first ? group.beta2 * second.largest : 0.0f, 0);
    quad m[HALVES], v[HALVES];
    for (int h = 0; h < HALVES; h++) {
        const uint32_t at = h * HALF + threadIdx.x % WARP * QUAD;
        const uint64_t i = block * EO_STATE8_ELEMENTS + at;
        quad w = is_split ? load_split(range.high, range.low, i, range.count) : load((const float *)range.weights, i, range.count);
        const quad gradient = load(range.gradient, i, range.count);
        m[h] = load_codes(first.codes + at, true, kept1);
        v[h] = load_codes(second.codes + at, false, kept2);
        for (int k = 0; k < QUAD; k++) {
            const float g = gradient.x[k] * scale;
            m[h].x[k] = m[h].x[k] + (1.0f - group.beta1) * g;
            v[h].x[k] = v[h].x[k] + (1.0f - group.beta2) * g * g;
            w.x[k] = rule.kept * w.x[k] - rule.rate * m[h].x[k] / (sqrtf(v[h].x[k]) + rule.eps);
        }
        if (is_split)
            store_split(range.high, range.low, i, range.count, w);
        else
            store(range.weights, i, range.count, w);
    }
    float inverse_first, inverse_second;
    const float first_scale = eo_state8_scale(largest_of(m), &inverse_first);
    const float second_scale = eo_state8_scale(largest_of(v), &inverse_second);
    for (int h = 0; h < HALVES; h++) {
        const uint32_t at = h * HALF + threadIdx.x % WARP * QUAD;
        store_codes(first.codes + at, true, m[h], inverse_first);
        store_codes(second.codes + at, false, v[h], inverse_second);
    }
    if (is_first) {
        first.largest = first_scale;
        second.largest = second_scale;
    }
}

extern "C" cudaError_t eo_cuda_state8_load(void)
{
    return load_kernels(state8_kernel);
}

extern "C" cudaError_t eo_cuda_update_blocks(const struct eo_update_range *ranges, uint32_t range_count,
                                             const struct eo_step_memory *step, cudaStream_t stream)
{
    enum { TILE = WARPS * EO_STATE8_ELEMENTS };
    block_ranges all = {};
    for (uint32_t i = 0; i < range_count; i++) {
        if (ranges[i].count == 0)
            continue;
        all.at[all.count++] = ranges[i];
        all.first_block[all.count] = all.first_block[all.count - 1] + (uint32_t)((ranges[i].count + TILE - 1) / TILE);
    }
    if (all.count == 0)
        return cudaSuccess;
    state8_kernel<<<all.first_block[all.count], THREADS, 0, stream>>>(all, *step);
    return cudaGetLastError();
}
