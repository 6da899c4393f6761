/* SPDX-License-Identifier: MIT */
#ifndef EO_TESTS_DEVICE_PAIRS_H
#define EO_TESTS_DEVICE_PAIRS_H

#include "tests/conformance/device/table.h"

/* An array that the device and the plain loops have each. */
struct pair {
    unsigned char *plain; /* bytes, then the guard */
    unsigned char *device;
    uint64_t bytes;
};

/* Numbers of elements: around those of vectors and of blocks of threads. */
enum { PAIR_COUNTS = 12 };
extern const uint64_t pair_counts[PAIR_COUNTS];

/* Of all sizes and both signs. */
float pair_value(uint64_t salt, uint64_t index);

/* Such values, the same on both sides; the device's array is `skew` bytes past an alignment of 256. */
struct pair pair_make(struct test_bed *bed, uint64_t salt, uint64_t count, uint64_t element_bytes, uint64_t skew);

/* An array that the device gets as it is. */
void pair_put(struct test_bed *bed, struct pair *p, const void *bytes);

/* Both hold the same, up to the end of the guard. Gives the plain one back. */
void pair_same(struct test_bed *bed, struct pair *p, const char *what, uint64_t count);

/* The same of floats: where the plain loops have a NaN, the device has any, because sign and payload are the hardware's. */
void pair_same_floats(struct test_bed *bed, struct pair *p, const char *what, uint64_t count);

/* Weights that an update may have made NaN: whole, or in halves. What whole ones leave of `low` is untouched. */
void pair_same_weights(struct test_bed *bed, struct pair *weights, struct pair *low, bool is_split, const char *what,
                       uint64_t count);

/* Goal: the comparisons above take a NaN for any NaN, and nothing else for anything else. */
void pair_comparisons(void);

#endif
