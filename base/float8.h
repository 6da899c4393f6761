/* SPDX-License-Identifier: MIT
 *
 * float8 (e4m3, as OCP and NVIDIA define it), on the host and in kernels: what a float8 gather carries in place of bf16, and
 * what float8 products multiply.
 *
 *     seeee mmm     2^(e - 7) x 1.mmm; e = 0: 2^-6 x 0.mmm, from 2^-9 on; the largest is 448
 *     s1111 111     NaN; there is no infinity
 *
 * A run of weights has one scale, the smallest power of two that brings its largest weight to 448 or below:
 *
 *     narrow: float8 nearest to weight / scale, ties to even           widen: float8 x scale, as bf16
 *
 * A power of two costs no precision, for the exponents just shift, and both the division and the product are exact: so
 * all devices have the same bits, and the one error is that of rounding to four significant bits: at most 1/16 of the weight,
 * or half of 2^-9 scale where that is more. Weights that are not finite become NaN, so that the loss shows them. The
 * scale of their run is 2^120: others there stay finite, and those of usual size become 0.
 */
#ifndef EO_BASE_FLOAT8_H
#define EO_BASE_FLOAT8_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define EO_FLOAT8_FUNCTION __host__ __device__ static inline
#else
#define EO_FLOAT8_FUNCTION static inline
#endif

enum { EO_FLOAT8_NAN = 0x7f, EO_FLOAT8_SCALE_MIN = -100 /* its exponent: for runs of zeros */ };

EO_FLOAT8_FUNCTION uint32_t eo_float8_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

EO_FLOAT8_FUNCTION float eo_float8_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To nearest, ties to even. What is finite and too large becomes 448; what is not finite, NaN. */
EO_FLOAT8_FUNCTION uint8_t eo_float8_round(float value)
{
    const uint32_t sign = eo_float8_bits(value) >> 24 & 0x80, all = eo_float8_bits(value) & 0x7fffffff;
    const uint32_t bits = all > 0x43e00000 ? 0x43e00000 : all; /* 448 */
    if (all >= 0x7f800000)
        return (uint8_t)(sign | EO_FLOAT8_NAN);
    if (bits < 0x3c800000) /* 2^-6: beside 2^14 the last bit of a float is 2^-9 */
        return (uint8_t)(sign | (eo_float8_bits(eo_float8_of_bits(bits) + 16384.0f) - 0x46800000));
    return (uint8_t)(sign | (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)));
}

/* Exact. */
EO_FLOAT8_FUNCTION float eo_float8_to_float(uint8_t value)
{
    const uint32_t sign = (uint32_t)(value & 0x80) << 24, magnitude = value & 0x7f;
    if (magnitude == EO_FLOAT8_NAN)
        return eo_float8_of_bits(sign | 0x7fc00000);
    if (magnitude >= 8)
        return eo_float8_of_bits(sign | ((magnitude << 20) + (120u << 23)));
    /* 2^-6 x (1 + mmm/8), less 2^-6 */
    const float below = eo_float8_of_bits((magnitude << 20) + (121u << 23)) - 0.015625f;
    return eo_float8_of_bits(sign | eo_float8_bits(below));
}

/* Of a run in bf16: `largest` has the bits of its largest absolute value, NaN and infinities included. */
EO_FLOAT8_FUNCTION float eo_float8_scale(uint16_t largest)
{
    const int exponent = (largest >> 7) - 127 - 8 + ((largest & 0x7f) > 0x60); /* 448 is 2^8 x 1.75 */
    return eo_float8_of_bits((uint32_t)((exponent < EO_FLOAT8_SCALE_MIN ? EO_FLOAT8_SCALE_MIN : exponent) + 127) << 23);
}

/* 1 / scale. */
EO_FLOAT8_FUNCTION float eo_float8_inverse(float scale)
{
    return eo_float8_of_bits((254u << 23) - eo_float8_bits(scale));
}

EO_FLOAT8_FUNCTION uint8_t eo_float8_narrow(uint16_t weight, float inverse)
{
    return eo_float8_round(eo_float8_of_bits((uint32_t)weight << 16) * inverse);
}

EO_FLOAT8_FUNCTION uint16_t eo_float8_widen(uint8_t value, float scale)
{
    if ((value & 0x7f) == EO_FLOAT8_NAN)
        return (uint16_t)((uint32_t)(value & 0x80) << 8 | 0x7fc0);
    return (uint16_t)(eo_float8_bits(eo_float8_to_float(value) * scale) >> 16);
}

#endif
