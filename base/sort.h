/* SPDX-License-Identifier: MIT
 *
 * Sorting numbers by what they stand for. qsort has no room for that, and qsort_r is not the same everywhere.
 */
#ifndef EO_BASE_SORT_H
#define EO_BASE_SORT_H

#include <stdint.h>

/* Below 0: a comes first. Never 0 for two numbers: the order is then the same everywhere. */
typedef int eo_compare_fn(uint32_t a, uint32_t b, const void *user);

/* Lets numbers[at] sink in a heap of `count`, whose first number is the last of the order. */
static inline void eo_sort_sink(uint32_t *numbers, uint32_t at, uint32_t count, eo_compare_fn *compare, const void *user)
{
    const uint32_t number = numbers[at];
    for (uint64_t below = 2 * (uint64_t)at + 1; below < count; below = 2 * (uint64_t)at + 1) {
        if (below + 1 < count && compare(numbers[below], numbers[below + 1], user) < 0)
            below++;
        if (compare(number, numbers[below], user) >= 0)
            break;
        numbers[at] = numbers[below];
        at = (uint32_t)below;
    }
    numbers[at] = number;
}

static inline void eo_sort(uint32_t *numbers, uint32_t count, eo_compare_fn *compare, const void *user)
{
    for (uint32_t i = count / 2; i-- > 0;)
        eo_sort_sink(numbers, i, count, compare, user);
    for (uint32_t end = count; end-- > 1;) {
        const uint32_t last = numbers[0];
        numbers[0] = numbers[end];
        numbers[end] = last;
        eo_sort_sink(numbers, 0, end, compare, user);
    }
}

#endif
