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

/*
 * The tables of streams/state8.h, a word a lane, to be asked for by shuffles: an array with an index known only when the kernel
 * runs would lie in local memory. Of each map eight words a table: lows and slopes; scales, shifts and limits.
 */
struct tables {
    float values, codes[2]; /* the first of both maps; [is signed] */
};

static __device__ const float value_tables[4][8] = {EO_STATE8_UNSIGNED_LOW, EO_STATE8_UNSIGNED_SLOPE, EO_STATE8_SIGNED_LOW,
                                                    EO_STATE8_SIGNED_SLOPE};
static __device__ const float code_tables[2][4][8] = {
    {EO_STATE8_UNSIGNED_SCALE, EO_STATE8_UNSIGNED_SHIFT, EO_STATE8_UNSIGNED_LIMIT},
    {EO_STATE8_SIGNED_SCALE, EO_STATE8_SIGNED_SHIFT, EO_STATE8_SIGNED_LIMIT}};

__device__ static tables load_tables()
{
    const uint32_t lane = threadIdx.x % WARP;
    return {value_tables[lane / 8][lane % 8], {code_tables[0][lane / 8][lane % 8], code_tables[1][lane / 8][lane % 8]}};
}

__device__ static float look_up(float words, uint32_t table, uint32_t at)
{
    return __shfl_sync(0xffffffffu, words, table * 8 + at);
}

/* eo_state8_value: the exponent of the number is the table's place, its fraction the cell. By all of a warp. */
__device__ static float value_of(uint8_t code, bool is_signed, const tables &t)
{
    const uint32_t number = __float_as_uint((float)(is_signed ? -(int32_t)(int8_t)code : code + 1)), at = number >> 23 & 7;
    const float cell = __uint_as_float((number & 0x7fffffu) | 0x3f800000u) - 1.0f;
    const float low = look_up(t.values, 2 * is_signed, at), slope = look_up(t.values, 2 * is_signed + 1, at);
    const uint32_t value = __float_as_uint(low + slope * cell) | (number & 0x80000000u);
    return code ? __uint_as_float(value) : 0.0f;
}

/* eo_state8_code. */
__device__ static uint8_t code_of(float value, bool is_signed, const tables &t)
{
    const float bounds[2][EO_STATE8_BOUNDS] = {EO_STATE8_UNSIGNED_BOUNDS, EO_STATE8_SIGNED_BOUNDS};
    const float size = fminf(fabsf(value), 1.0f); /* of a NaN 1 */
    uint32_t n = 0;
#pragma unroll
    for (int k = 0; k < EO_STATE8_BOUNDS; k++)
        n += size >= bounds[is_signed][k];
    const float words = t.codes[is_signed], exact = size * look_up(words, 0, n) + look_up(words, 1, n);
    const int32_t number = (int32_t)fminf(exact, look_up(words, 2, n));
    if (!is_signed)
        return (uint8_t)(size > 0 ? number - 1 : 0);
    return (uint8_t)(int8_t)(!(value < 0) ? -number : number < 127 ? number : 127);
}

__device__ static quad load_codes(const uint8_t *codes, bool is_signed, float scale, const tables &t)
{
    const uchar4 four = *(const uchar4 *)codes;
    return {{scale * value_of(four.x, is_signed, t), scale * value_of(four.y, is_signed, t),
             scale * value_of(four.z, is_signed, t), scale * value_of(four.w, is_signed, t)}};
}

__device__ static void store_codes(uint8_t *codes, bool is_signed, const quad &q, float inverse, const tables &t)
{
    *(uchar4 *)codes = make_uchar4(code_of(q.x[0] * inverse, is_signed, t), code_of(q.x[1] * inverse, is_signed, t),
                                   code_of(q.x[2] * inverse, is_signed, t), code_of(q.x[3] * inverse, is_signed, t));
}

/* Over the warp, on all of its threads. */
__device__ static float largest_of(const quad (&q)[HALVES])
{
    float most = 0;
#pragma unroll
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
    const tables t = load_tables();
    eo_state8 &first = range.first_blocks[block], &second = range.second_blocks[block];
    const bool is_first = threadIdx.x % WARP == 0; /* it alone reads and writes the scales */
    const float kept1 = __shfl_sync(0xffffffffu, is_first ? group.beta1 * first.largest : 0.0f, 0);
    const float kept2 = __shfl_sync(0xffffffffu, is_first ? group.beta2 * second.largest : 0.0f, 0);
    quad m[HALVES], v[HALVES];
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        const uint32_t at = h * HALF + threadIdx.x % WARP * QUAD;
        const uint64_t i = block * EO_STATE8_ELEMENTS + at;
        quad w = is_split ? load_split(range.high, range.low, i, range.count) : load((const float *)range.weights, i, range.count);
        const quad gradient = load(range.gradient, i, range.count);
        m[h] = load_codes(first.codes + at, true, kept1, t);
        v[h] = load_codes(second.codes + at, false, kept2, t);
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
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        const uint32_t at = h * HALF + threadIdx.x % WARP * QUAD;
        store_codes(first.codes + at, true, m[h], inverse_first, t);
        store_codes(second.codes + at, false, v[h], inverse_second, t);
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
