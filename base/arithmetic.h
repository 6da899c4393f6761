/* SPDX-License-Identifier: MIT
 *
 * Sizes and counts that cannot wrap, and divisions that say how they round.
 */
#ifndef EO_BASE_ARITHMETIC_H
#define EO_BASE_ARITHMETIC_H

#include "base/check.h"

/* A bare `/` rounds down on purpose. */
static inline uint64_t eo_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* True when the result fits; *out is written only then. */
static inline bool eo_checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool eo_checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool eo_is_power_of_two(uint64_t a)
{
    return a != 0 && (a & (a - 1)) == 0;
}

/* `align` is a power of two; a + align must not wrap, which bounds on sizes guarantee. */
static inline uint64_t eo_align_up(uint64_t a, uint64_t align)
{
    return (a + align - 1) & ~(align - 1);
}

static inline uint64_t eo_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t eo_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
