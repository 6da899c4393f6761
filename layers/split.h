/* SPDX-License-Identifier: MIT
 *
 * How the fronts cut their work. The parts depend on the shape alone, never on the number of threads.
 */
#ifndef EO_LAYERS_SPLIT_H
#define EO_LAYERS_SPLIT_H

#include <stddef.h>
#include <stdint.h>

enum { EO_SPLIT_FLOATS = 16384 }; /* a task's floats: a few microseconds, small beside the caches */

static inline uint64_t eo_split_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint64_t eo_split_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Rows of a task, at least one. */
static inline uint64_t eo_split_rows(uint64_t width)
{
    return width >= EO_SPLIT_FLOATS ? 1 : EO_SPLIT_FLOATS / (width == 0 ? 1 : width);
}

/* Row `row` of a matrix that may be missing. */
static inline const float *eo_row(const float *values, uint64_t row, uint64_t stride)
{
    return values == NULL ? NULL : values + row * stride;
}

static inline float *eo_row_mutable(float *values, uint64_t row, uint64_t stride)
{
    return values == NULL ? NULL : values + row * stride;
}

#endif
