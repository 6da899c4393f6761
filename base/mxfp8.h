/* SPDX-License-Identifier: MIT
 *
 * MXFP8 (OCP Microscaling Formats 1.0, 2023): blocks of 32 elements in float8 e4m3 with a power of two each, which is kept as its
 * biased exponent in a byte (E8M0). 33 bytes a block, 8.25 bits an element.
 *
 *     | exponent of block 0 | block 1 | ... |      | 32 elements of block 0 | block 1 | ... |
 *
 * A block's scale is the smallest power of two that brings its largest finite element to 448 or below. (The specification
 * proposes another one, under which elements up to 512 would be cut to 448.)
 *
 *     narrow: float8 nearest to weight / scale, ties to even           widen: float8 x scale
 *
 * Division and product are exact (base/float8.h), and bf16 holds every result. What was widened narrows to the same values
 * again. Elements that are not finite become NaN, and do not count for the scale. The last block may be shorter.
 */
#ifndef EO_BASE_MXFP8_H
#define EO_BASE_MXFP8_H

#include "base/float8.h"

enum { EO_MXFP8_BLOCK = 32 };

EO_FLOAT8_FUNCTION uint64_t eo_mxfp8_blocks(uint64_t count)
{
    return count / EO_MXFP8_BLOCK + (count % EO_MXFP8_BLOCK != 0);
}

EO_FLOAT8_FUNCTION float eo_mxfp8_scale(uint8_t exponent)
{
    return eo_float8_of_bits((uint32_t)exponent << 23);
}

/* Of a block: `largest` has the bits of its largest finite absolute value. */
EO_FLOAT8_FUNCTION uint8_t eo_mxfp8_exponent(uint32_t largest)
{
    const int exponent = (int)(largest >> 23) - 8 + ((largest & 0x7fffff) > 0x600000); /* 448 is 2^8 x 1.75 */
    return (uint8_t)(exponent < EO_FLOAT8_SCALE_MIN + 127 ? EO_FLOAT8_SCALE_MIN + 127 : exponent);
}

/* One block, of at most 32. */
EO_FLOAT8_FUNCTION void eo_mxfp8_narrow_block(uint8_t *exponent, uint8_t *elements, const float *weights, uint64_t count)
{
    uint32_t largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t bits = eo_float8_bits(weights[i]) & 0x7fffffff;
        largest = bits < 0x7f800000 && bits > largest ? bits : largest;
    }
    *exponent = eo_mxfp8_exponent(largest);
    const float inverse = eo_float8_inverse(eo_mxfp8_scale(*exponent));
    for (uint64_t i = 0; i < count; i++)
        elements[i] = eo_float8_round(weights[i] * inverse);
}

EO_FLOAT8_FUNCTION float eo_mxfp8_widen(uint8_t element, uint8_t exponent)
{
    const float value = eo_float8_to_float(element);
    return (element & 0x7f) == EO_FLOAT8_NAN ? value : value * eo_mxfp8_scale(exponent); /* a GPU's products have a NaN of their own */
}

#endif
