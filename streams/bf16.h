/* SPDX-License-Identifier: MIT
 *
 * bf16 on the host: the high half of a float, and the split form of a master weight.
 *
 *     high = the bf16 nearest to the float, ties away from zero: what is gathered and computed with
 *     low  = bits of the float - (high << 16), as a signed 16-bit number
 *     join: (high << 16) + low, the float again to the bit
 *
 * Ties have to go away from zero: the remainder can be -32768, not +32768. A NaN stays a NaN, a quiet one, with low 0;
 * everything else is exact. The largest floats have an infinite high half and a low one that brings them back.
 *
 * Sums go to the nearest bf16, ties to even: of two bf16 numbers they are ties often, and would grow.
 */
#ifndef EO_STREAMS_BF16_H
#define EO_STREAMS_BF16_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline float eo_bf16_to_float(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

static inline uint16_t eo_bf16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits | 0x400000u) >> 16);
    return (uint16_t)((bits + 0x8000u) >> 16);
}

static inline uint16_t eo_bf16_of_sum(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)((is_nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline void eo_bf16_split(float value, uint16_t *high, int16_t *low)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    *high = eo_bf16_round(value);
    *low = is_nan ? 0 : (int16_t)(uint16_t)(bits & 0xffffu);
}

static inline float eo_bf16_join(uint16_t high, int16_t low)
{
    const uint32_t bits = ((uint32_t)high << 16) + (uint32_t)(int32_t)low;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

#endif
