/* SPDX-License-Identifier: MIT
 *
 * Optimizer state in 8 bits: the dynamic map of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2021). The
 * elements of a block share a scale, their largest absolute value, and have a byte each.
 *
 * The map has seven decades from 1e-6 on. Of the numbers from 2^b to 2^(b+1) - 1, each stands for a cell of a decade: its
 * [0.1, 1] is cut into 2^b equal ones, and the value is a cell's middle.
 *
 *     number      1   2   3   4 .. 7   8 .. 15   ...   64 .. 127    128      the signed map, of first moments; 0 is 0
 *     decade    1e-6   1e-5    1e-4     1e-3     ...       1         1.0     (there is no -1.0)
 *
 *     number      1   2   3   4 .. 7   8 .. 15   ...  128 .. 255    256      the unsigned map, of second moments
 *     value       0    1e-6    1e-5     1e-4     ...       1         1.0
 *
 * A byte is the number less 1, or, of the signed map, the number with the other sign, as int8_t: so a zero byte is 0. It is
 * that of the nearest value, but for this: no second moment above 0 becomes 0, since the first moment beside it would be
 * divided by eps alone.
 *
 * The CPU's vectors (streams/cpu/state8_body.h) and the GPU do the operations of the functions here, in their order.
 */
#ifndef EO_STREAMS_STATE8_H
#define EO_STREAMS_STATE8_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define EO_STATE8_FUNCTION __host__ __device__ static inline
#else
#define EO_STATE8_FUNCTION static inline
#endif

enum { EO_STATE8_ELEMENTS = 256 };

struct eo_state8 {
    float largest;
    uint8_t codes[EO_STATE8_ELEMENTS];
};

/*
 * To a value: low + slope (number / 2^b - 1), by (b - 1) modulo 8: b is 7 for the signed 1.0, and 8 for the unsigned one.
 * To a number: size x scale + shift, below `limit`, by the count of the bounds that the size reaches: where it is nearer to the
 * next decade's first cell than to its own last one. Below 1e-6 the cells are cut at the middle between two values, too.
 */
#define EO_STATE8_SIGNED_LOW {.325e-5f, .2125e-4f, .15625e-3f, .128125e-2f, .1140625e-1f, .10703125f, 1, .55e-6f}
#define EO_STATE8_SIGNED_SLOPE {.9e-5f, .9e-4f, .9e-3f, .9e-2f, .9e-1f, .9f, 0, .9e-6f}
#define EO_STATE8_SIGNED_SCALE {.6e6f, 2e5f / .9f, 4e4f / .9f, 8e3f / .9f, 16e2f / .9f, 32e1f / .9f, 64 / .9f, 0}
#define EO_STATE8_SIGNED_SHIFT {.835f, 16.f / 9, 32.f / 9, 64.f / 9, 128.f / 9, 256.f / 9, 512.f / 9, 128}
#define EO_STATE8_SIGNED_LIMIT {1, 3, 7, 15, 31, 63, 127, 128}
#define EO_STATE8_SIGNED_BOUNDS {.19e-5f, .145e-4f, .1225e-3f, .11125e-2f, .105625e-1f, .1028125f, .996484375f}
#define EO_STATE8_UNSIGNED_LOW {.325e-6f, .2125e-5f, .15625e-4f, .128125e-3f, .1140625e-2f, .10703125e-1f, .103515625f, 1}
#define EO_STATE8_UNSIGNED_SLOPE {.9e-6f, .9e-5f, .9e-4f, .9e-3f, .9e-2f, .9e-1f, .9f, 0}
#define EO_STATE8_UNSIGNED_SCALE {1e6f / .55f, 4e5f / .9f, 8e4f / .9f, 16e3f / .9f, 32e2f / .9f, 64e1f / .9f, 128 / .9f, 0}
#define EO_STATE8_UNSIGNED_SHIFT {2, 32.f / 9, 64.f / 9, 128.f / 9, 256.f / 9, 512.f / 9, 1024.f / 9, 256}
#define EO_STATE8_UNSIGNED_LIMIT {3, 7, 15, 31, 63, 127, 255, 256}
#define EO_STATE8_UNSIGNED_BOUNDS {.145e-5f, .1225e-4f, .11125e-3f, .105625e-2f, .1028125e-1f, .10140625f, .9982421875f}

enum { EO_STATE8_BOUNDS = 7 };

/* In units of the block's scale. */
EO_STATE8_FUNCTION float eo_state8_value(uint8_t code, bool is_signed)
{
    const float lows[2][8] = {EO_STATE8_UNSIGNED_LOW, EO_STATE8_SIGNED_LOW};
    const float slopes[2][8] = {EO_STATE8_UNSIGNED_SLOPE, EO_STATE8_SIGNED_SLOPE};
    const int32_t turned = (int8_t)code, number = !is_signed ? code + 1 : turned < 0 ? -turned : turned;
    uint32_t b = 0;
    if (code == 0)
        return 0;
    while (number >> (b + 1))
        b++;
    const float cell = (float)number / (float)(1 << b) - 1.0f;
    const float value = lows[is_signed][(b + 7) % 8] + slopes[is_signed][(b + 7) % 8] * cell;
    return is_signed && turned > 0 ? -value : value;
}

EO_STATE8_FUNCTION uint8_t eo_state8_code(float value, bool is_signed)
{
    const float scales[2][8] = {EO_STATE8_UNSIGNED_SCALE, EO_STATE8_SIGNED_SCALE};
    const float shifts[2][8] = {EO_STATE8_UNSIGNED_SHIFT, EO_STATE8_SIGNED_SHIFT};
    const float limits[2][8] = {EO_STATE8_UNSIGNED_LIMIT, EO_STATE8_SIGNED_LIMIT};
    const float bounds[2][EO_STATE8_BOUNDS] = {EO_STATE8_UNSIGNED_BOUNDS, EO_STATE8_SIGNED_BOUNDS};
    const float any = value < 0 ? -value : value, size = any < 1 ? any : 1;
    uint32_t n = 0;
    for (uint32_t k = 0; k < EO_STATE8_BOUNDS; k++)
        n += size >= bounds[is_signed][k];
    const float exact = size * scales[is_signed][n] + shifts[is_signed][n];
    const int32_t number = (int32_t)(exact < limits[is_signed][n] ? exact : limits[is_signed][n]);
    if (!is_signed)
        return (uint8_t)(size > 0 ? number - 1 : 0);
    return (uint8_t)(int8_t)(!(value < 0) ? -number : number < 127 ? number : 127);
}

/* A block's scale, and what its values are multiplied by before they become codes: of nothing but numbers too small for the
 * inverse 0, and so zeros. Infinite moments stay what they were in fp32: too large. */
EO_STATE8_FUNCTION float eo_state8_scale(float largest, float *inverse)
{
    const float most = 3.40282347e38f, least = 1.17549435e-38f, scale = largest < most ? largest : most;
    *inverse = scale < least ? 0 : 1.0f / scale;
    return scale < least ? 0 : scale;
}

/* w = kept w - rate m / (sqrt(v) + eps): AdamW's rule, with all that is the same for many weights drawn together. */
struct eo_state8_rule {
    float kept, rate, eps;
};

EO_STATE8_FUNCTION struct eo_state8_rule eo_state8_rule(float learning_rate, float weight_decay, float eps, float correction1,
                                                        float correction2)
{
    const float root = sqrtf(correction2), least = 1.17549435e-38f, scaled = eps * root;
    struct eo_state8_rule rule;
    rule.kept = 1.0f - learning_rate * weight_decay;
    rule.rate = learning_rate / correction1 * root;
    rule.eps = scaled > least ? scaled : least; /* moments of 0 are no step, where denormals are flushed, too */
    return rule;
}

#endif
