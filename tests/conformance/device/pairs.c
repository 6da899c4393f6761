/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/device/pairs.h"
#include "tests/conformance/ranks.h"
#include "streams/bf16.h"

enum { GUARD_BYTES = 64 };

const uint64_t pair_counts[PAIR_COUNTS] = {0, 1, 3, 4, 5, 127, 1000, 8191, 8192, 8193, 100003, 700001};

float pair_value(uint64_t salt, uint64_t index)
{
    const uint64_t h = test_hash(salt, 3, index);
    if (h % 1001 == 0)
        return (float[]){0.0f, -0.0f, 1e-42f, 3e38f}[h >> 40 & 3];
    return (float)((int64_t)(h >> 40) - (1 << 23)) * ((h & 7) ? 1e-6f : 1e-9f);
}

struct pair pair_make(struct test_bed *bed, uint64_t salt, uint64_t count, uint64_t element_bytes, uint64_t skew)
{
    struct pair p = {.bytes = count * element_bytes};
    p.plain = malloc(p.bytes + GUARD_BYTES);
    for (uint64_t i = 0; i < count; i++) {
        if (element_bytes == 8) {
            const double value = (double)pair_value(salt, i);
            memcpy(p.plain + i * 8, &value, 8);
        } else {
            const float value = pair_value(salt, i);
            const uint16_t rounded = eo_bf16_round(value);
            memcpy(p.plain + i * element_bytes, element_bytes == 2 ? (const void *)&rounded : &value, element_bytes);
        }
    }
    memset(p.plain + p.bytes, 0x5a, GUARD_BYTES);
    p.device = test_bed_take_guarded(bed, p.bytes, GUARD_BYTES, skew);
    test_bed_put(bed, p.device, p.plain, p.bytes + GUARD_BYTES);
    return p;
}

static unsigned char *get(struct test_bed *bed, const struct pair *p)
{
    unsigned char *got = malloc(p->bytes + GUARD_BYTES);
    test_bed_get(bed, got, p->device, p->bytes + GUARD_BYTES);
    return got;
}

/* Gives the plain one back, and what was got. */
static void compare(struct pair *p, unsigned char *got, const char *what, uint64_t count)
{
    for (uint64_t i = 0; i < p->bytes + GUARD_BYTES; i++) {
        if (got[i] != p->plain[i]) {
            test_fail(NULL, __FILE__, __LINE__, "%s, %llu elements: byte %llu of %llu is %02x, not %02x", what,
                      (unsigned long long)count, (unsigned long long)i, (unsigned long long)p->bytes, got[i], p->plain[i]);
            break;
        }
    }
    free(got);
    free(p->plain);
}

void pair_same(struct test_bed *bed, struct pair *p, const char *what, uint64_t count)
{
    compare(p, get(bed, p), what, count);
}

static void take_any_nan(const struct pair *p, unsigned char *got)
{
    const float *plain = (const float *)p->plain;
    float *device = (float *)got;
    for (uint64_t i = 0; i < p->bytes / 4; i++)
        if (isnan(plain[i]) && isnan(device[i]))
            memcpy(&device[i], &plain[i], 4);
}

void pair_same_floats(struct test_bed *bed, struct pair *p, const char *what, uint64_t count)
{
    unsigned char *got = get(bed, p);
    take_any_nan(p, got);
    compare(p, got, what, count);
}

/* Of split floats: a NaN is one of both halves together. */
static void take_any_split_nan(const struct pair *high, const struct pair *low, unsigned char *got_high, unsigned char *got_low)
{
    for (uint64_t i = 0; i < high->bytes; i += 2) {
        uint16_t halves[2];
        int16_t rests[2];
        memcpy(&halves[0], high->plain + i, 2);
        memcpy(&halves[1], got_high + i, 2);
        memcpy(&rests[0], low->plain + i, 2);
        memcpy(&rests[1], got_low + i, 2);
        if (isnan(eo_bf16_join(halves[0], rests[0])) && isnan(eo_bf16_join(halves[1], rests[1]))) {
            memcpy(got_high + i, &halves[0], 2);
            memcpy(got_low + i, &rests[0], 2);
        }
    }
}

void pair_same_weights(struct test_bed *bed, struct pair *weights, struct pair *low, bool is_split, const char *what,
                       uint64_t count)
{
    unsigned char *got = get(bed, weights), *got_low = get(bed, low);
    if (is_split)
        take_any_split_nan(weights, low, got, got_low);
    else
        take_any_nan(weights, got);
    compare(weights, got, what, count);
    compare(low, got_low, what, count);
}

void pair_comparisons(void)
{
    static const struct {
        uint32_t plain, device;
        bool is_taken;
    } cases[] = {{0xffc00000u, 0x7fffffffu, true},  {0x7f801234u, 0xffd40000u, true},  {0x7f800000u, 0x7fffffffu, false},
                 {0xffc00000u, 0xff800000u, false}, {0x00000000u, 0x80000000u, false}, {0x3f800000u, 0x3f800001u, false}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        uint32_t plain = cases[c].plain, got = cases[c].device;
        uint16_t high[2];
        int16_t low[2];
        for (int i = 0; i < 2; i++) { /* halves of these very bits: eo_bf16_split would make NaNs quiet */
            low[i] = (int16_t)(uint16_t)((i ? got : plain) & 0xffffu);
            high[i] = (uint16_t)(((i ? got : plain) - (uint32_t)(int32_t)low[i]) >> 16);
        }
        take_any_nan(&(struct pair){.plain = (unsigned char *)&plain, .bytes = 4}, (unsigned char *)&got);
        take_any_split_nan(&(struct pair){.plain = (unsigned char *)&high[0], .bytes = 2},
                           &(struct pair){.plain = (unsigned char *)&low[0], .bytes = 2}, (unsigned char *)&high[1],
                           (unsigned char *)&low[1]);
        TEST_HOLDS(NULL, (got == plain) == cases[c].is_taken);
        TEST_HOLDS(NULL, (high[0] == high[1] && low[0] == low[1]) == cases[c].is_taken);
        TEST_HOLDS(NULL, cases[c].is_taken || got == cases[c].device);
    }
    test_report("any NaN is taken for a NaN, and all else to the bit", 1);
}

void pair_put(struct test_bed *bed, struct pair *p, const void *bytes)
{
    memcpy(p->plain, bytes, p->bytes);
    test_bed_put(bed, p->device, p->plain, p->bytes);
}

struct eo_step_memory test_bed_put_step(struct test_bed *bed, const struct eo_step_memory *from, uint32_t groups)
{
    const struct eo_step_memory step = {.scalars = test_bed_take(bed, sizeof(*step.scalars), 0),
                                        .groups = test_bed_take(bed, groups * sizeof(*step.groups), 0),
                                        .norm = test_bed_take(bed, sizeof(*step.norm), 0),
                                        .results = test_bed_take(bed, groups * sizeof(*step.results), 0)};
    test_bed_put(bed, step.scalars, from->scalars, sizeof(*step.scalars));
    test_bed_put(bed, step.groups, from->groups, groups * sizeof(*step.groups));
    if (from->norm)
        test_bed_put(bed, step.norm, from->norm, sizeof(*step.norm));
    test_bed_put(bed, step.results, from->results, groups * sizeof(*step.results));
    return step;
}
