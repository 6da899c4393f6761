/* SPDX-License-Identifier: MIT
 *
 * Elements of either type: loads give fp32, stores round once, to the nearest bf16, ties to even: sums of two bf16 are
 * ties often, and away from zero they would grow layer by layer.
 */
#ifndef EO_LAYERS_ELEMENT_H
#define EO_LAYERS_ELEMENT_H

#include <evenodd/common.h>
#include <string.h>

static inline float eo_element_from_bf16(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

/* Infinity where the nearest is beyond the largest; a NaN stays one, made quiet. */
static inline uint16_t eo_element_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)((is_nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float eo_element_load(eo_dtype dtype, const void *values, uint64_t index)
{
    return dtype == EO_DTYPE_BF16 ? eo_element_from_bf16(((const uint16_t *)values)[index])
                                  : ((const float *)values)[index];
}

static inline void eo_element_store(eo_dtype dtype, void *values, uint64_t index, float value)
{
    if (dtype == EO_DTYPE_BF16)
        ((uint16_t *)values)[index] = eo_element_to_bf16(value);
    else
        ((float *)values)[index] = value;
}

/* Element `index` of an array that may be missing. */
static inline const void *eo_element_at(eo_dtype dtype, const void *values, uint64_t index)
{
    return values == NULL ? NULL : (const char *)values + index * eo_dtype_bytes(dtype);
}

static inline void *eo_element_at_mutable(eo_dtype dtype, void *values, uint64_t index)
{
    return values == NULL ? NULL : (char *)values + index * eo_dtype_bytes(dtype);
}

static inline void eo_elements_load(eo_dtype dtype, float *to, const void *values, uint64_t first, uint64_t count)
{
    if (dtype == EO_DTYPE_BF16)
        for (uint64_t i = 0; i < count; i++)
            to[i] = eo_element_from_bf16(((const uint16_t *)values)[first + i]);
    else
        memcpy(to, (const float *)values + first, count * sizeof(float));
}

static inline void eo_elements_store(eo_dtype dtype, void *values, uint64_t first, const float *from, uint64_t count)
{
    if (dtype == EO_DTYPE_BF16)
        for (uint64_t i = 0; i < count; i++)
            ((uint16_t *)values)[first + i] = eo_element_to_bf16(from[i]);
    else
        memcpy((float *)values + first, from, count * sizeof(float));
}

#endif
