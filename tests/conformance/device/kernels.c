/* SPDX-License-Identifier: MIT
 *
 * The kernels of a device against plain loops, bit by bit: every device has the same bits, so that a run on one can be
 * compared with a run on another. Guards behind each array; arrays that are aligned for vectors and such that are not.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mxfp8.h"
#include "tests/conformance/device/pairs.h"
#include "tests/conformance/ranks.h"
#include "streams/bf16.h"
#include "streams/sum_order.h"

static void copies_and_fills(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    for (int c = 0; c < PAIR_COUNTS; c++) {
        for (uint64_t skew = 0; skew <= 4; skew += 4) {
            struct pair from = pair_make(bed, 1, pair_counts[c], 4, 0), to = pair_make(bed, 2, pair_counts[c], 4, skew);
            struct pair filled = pair_make(bed, 3, pair_counts[c], 4, skew),
                        zeroed = pair_make(bed, 4, pair_counts[c], 4, skew);
            struct pair rounded = pair_make(bed, 5, pair_counts[c], 2, skew / 2);
            ops->copy(bed->device, EO_QUEUE_COMPUTE, to.device, from.device, to.bytes);
            memcpy(to.plain, from.plain, to.bytes);
            ops->fill(bed->device, filled.device, 0x12345678u, filled.bytes);
            for (uint64_t i = 0; i < pair_counts[c]; i++)
                memcpy(filled.plain + 4 * i, &(uint32_t){0x12345678u}, 4);
            ops->zero(bed->device, zeroed.device, zeroed.bytes);
            memset(zeroed.plain, 0, zeroed.bytes);
            ops->cast_bf16(bed->device, EO_QUEUE_COMPUTE, (uint16_t *)rounded.device, (const float *)from.device,
                           pair_counts[c]);
            for (uint64_t i = 0; i < pair_counts[c]; i++)
                ((uint16_t *)rounded.plain)[i] = eo_bf16_round(((const float *)from.plain)[i]);
            pair_same(bed, &to, "copy", pair_counts[c]);
            pair_same(bed, &filled, "fill", pair_counts[c]);
            pair_same(bed, &zeroed, "zero", pair_counts[c]);
            pair_same(bed, &rounded, "cast_bf16", pair_counts[c]);
            pair_same(bed, &from, "what was read", pair_counts[c]);
            test_bed_reset(bed);
        }
    }
    test_report("copies, fills and casts have the bits of plain loops", 1);
}

/* Values of all kinds: zeros of both signs, subnormals of float8, large ones, one NaN or infinity now and then. */
static void make_weights(uint16_t *weights, uint64_t count, uint64_t salt)
{
    static const uint16_t rare[] = {0x7fc0, 0xff80, 0x0001, 0x8000, 0x7f80, 0x7f7f};
    const float size = ldexpf(1, (int)(salt % 5) * 50 - 100);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t h = test_hash(salt, 31, i);
        weights[i] = eo_bf16_round(pair_value(salt, i) * size * ldexpf(1, -(int)(h % 24)));
        if (salt % 3 == 0 && h % 997 == 0)
            weights[i] = rare[h / 997 % 6];
    }
}

/* More runs than a launch takes, empty ones and such of bf16 among them. */
static void float8(struct test_bed *bed)
{
    enum { RUNS = 67 };
    const struct eo_device_ops *ops = bed->device->ops;
    for (uint64_t skew = 0; skew <= 2; skew += 2) {
        struct pair wide[RUNS], narrow[RUNS], again[RUNS], scales = pair_make(bed, 40, RUNS, 4, 0);
        struct eo_float8_run runs[RUNS], back[RUNS];
        for (int r = 0; r < RUNS; r++) {
            const uint64_t count = r % 22 == 0 ? pair_counts[r % PAIR_COUNTS] + 200000 + (uint64_t)r : (uint64_t)r % 11 * 13;
            const bool is_float8 = r % 7 != 3;
            wide[r] = pair_make(bed, 41, count, 2, r % 2 ? skew : 0);
            make_weights((uint16_t *)wide[r].plain, count, (uint64_t)r);
            test_bed_put(bed, wide[r].device, wide[r].plain, wide[r].bytes);
            narrow[r] = pair_make(bed, 42, is_float8 ? (count + 3) / 4 : count, is_float8 ? 4 : 2, r % 4 < 2 ? skew : 0);
            again[r] = pair_make(bed, 43, count, 2, r % 5 ? skew : 0);
            uint16_t *weights = (uint16_t *)wide[r].plain, *widened = (uint16_t *)again[r].plain, largest = 0;
            for (uint64_t i = 0; i < count; i++)
                largest = (weights[i] & 0x7fff) > largest ? weights[i] & 0x7fff : largest;
            float *scale = (float *)scales.plain + r;
            *scale = is_float8 && count ? eo_float8_scale(largest) : *scale;
            for (uint64_t i = 0; i < count && is_float8; i++) {
                narrow[r].plain[i] = eo_float8_narrow(weights[i], eo_float8_inverse(*scale));
                widened[i] = eo_float8_widen(narrow[r].plain[i], *scale);
            }
            if (!is_float8 && count) {
                memcpy(narrow[r].plain, weights, wide[r].bytes);
                memcpy(widened, weights, wide[r].bytes);
            }
            runs[r] = (struct eo_float8_run){(uint16_t *)wide[r].device, narrow[r].device,
                                             is_float8 ? (float *)scales.device + r : NULL, count};
            back[r] = runs[r];
            back[r].wide = (uint16_t *)again[r].device;
        }
        ops->narrow(bed->device, runs, RUNS);
        memset(runs, 0, sizeof(runs)); /* valid during the call alone */
        ops->widen(bed->device, back, RUNS);
        memset(back, 0, sizeof(back));
        for (int r = 0; r < RUNS; r++) {
            const uint64_t count = wide[r].bytes / 2;
            pair_same(bed, &wide[r], "what was read", count);
            pair_same(bed, &narrow[r], "weights to float8", count);
            pair_same(bed, &again[r], "weights from float8", count);
        }
        pair_same(bed, &scales, "scales", RUNS);
        test_bed_reset(bed);
    }
    test_report("weights go to float8 and back with the bits of plain loops", 1);
}

/* More runs than a launch takes, with all codes and exponents, ends within a block, and such that are copied. */
static void mxfp8(struct test_bed *bed)
{
    enum { RUNS = 67 };
    const struct eo_device_ops *ops = bed->device->ops;
    for (int way = 0; way < 4; way++) {
        const eo_dtype dtype = way % 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
        const uint64_t skew = way / 2 ? 2 : 0, each = eo_dtype_bytes(dtype);
        struct pair wide[RUNS], narrow[RUNS];
        struct eo_mxfp8_run runs[RUNS];
        for (int r = 0; r < RUNS; r++) {
            const uint64_t count = r % 22 == 0 ? pair_counts[r % PAIR_COUNTS] + 200000 + (uint64_t)r : (uint64_t)r % 11 * 13;
            const uint64_t blocks = eo_mxfp8_blocks(count);
            const bool is_narrow = r % 7 != 3;
            wide[r] = pair_make(bed, 44, count, each, r % 2 ? skew * each / 2 : 0);
            narrow[r] = pair_make(bed, 45, is_narrow ? count : count * each, 1, r % 4 < 2 ? skew * each / 2 : 0);
            uint8_t *codes = malloc(count * each + 1), *exponents = malloc(blocks + 1);
            for (uint64_t i = 0; i < count * each; i++)
                codes[i] = (uint8_t)test_hash((uint64_t)r, 32, i);
            for (uint64_t i = 0; i < blocks; i++)
                exponents[i] = (uint8_t)(27 + test_hash((uint64_t)r, 33, i) % 215); /* of weights of all sizes */
            pair_put(bed, &narrow[r], codes);
            for (uint64_t i = 0; i < count && is_narrow; i++) {
                const float value = eo_mxfp8_widen(codes[i], exponents[i / EO_MXFP8_BLOCK]);
                const uint16_t half = (uint16_t)(eo_float8_bits(value) >> 16);
                memcpy(wide[r].plain + i * each, dtype == EO_DTYPE_BF16 ? (const void *)&half : &value, each);
            }
            if (!is_narrow)
                memcpy(wide[r].plain, codes, count * each);
            void *scales = test_bed_take(bed, blocks, 0);
            test_bed_put(bed, scales, exponents, blocks);
            runs[r] = (struct eo_mxfp8_run){wide[r].device, narrow[r].device, is_narrow ? scales : NULL, count, dtype};
            free(codes);
            free(exponents);
        }
        ops->widen_mxfp8(bed->device, runs, RUNS);
        memset(runs, 0, sizeof(runs)); /* valid during the call alone */
        for (int r = 0; r < RUNS; r++) {
            const uint64_t count = wide[r].bytes / each;
            pair_same(bed, &narrow[r], "what was read", count);
            pair_same(bed, &wide[r], "weights from MXFP8", count);
        }
        test_bed_reset(bed);
    }
    test_report("weights come from MXFP8 with the bits of plain loops, in fp32 and bf16", 1);
}

static void sums(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    for (int c = 0; c < PAIR_COUNTS; c++) {
        for (uint32_t way = 0; way < 8; way++) {
            const uint64_t count = pair_counts[c], skew = way & 1 ? 4 : 0;
            const bool overwrite = way & 2;
            const eo_dtype dtype = way & 4 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
            struct pair from = pair_make(bed, 6, count, dtype == EO_DTYPE_BF16 ? 2 : 4, 0);
            struct pair to = pair_make(bed, 7, count, 4, skew), fused = pair_make(bed, 7, count, 4, skew);
            struct pair squares = pair_make(bed, 8, 2, 8, 0);
            double *wants = (double *)squares.plain, *out = (double *)squares.device;
            ops->sum_squares(bed->device, EO_QUEUE_COMPUTE, out, (const float *)to.device, count, NULL);
            ops->accumulate(bed->device, (float *)to.device, from.device, dtype, overwrite, count);
            ops->accumulate_sum_squares(bed->device, out + 1, (float *)fused.device, from.device, dtype, overwrite,
                                        count);
            wants[0] = eo_sum_squares_plain((const float *)to.plain, count);
            for (uint64_t i = 0; i < count; i++) {
                const float x = dtype == EO_DTYPE_BF16 ? eo_bf16_to_float(((const uint16_t *)from.plain)[i])
                                                       : ((const float *)from.plain)[i];
                float *y = (float *)to.plain + i;
                *y = overwrite ? x : *y + x;
            }
            memcpy(fused.plain, to.plain, to.bytes);
            wants[1] = eo_sum_squares_plain((const float *)to.plain, count);
            pair_same(bed, &squares, "sums of squares", count);
            pair_same(bed, &to, "accumulate", count);
            pair_same(bed, &fused, "accumulate_sum_squares", count);
            pair_same(bed, &from, "what was read", count);
            test_bed_reset(bed);
        }
    }
    test_report("sums have the bits and the order of plain loops", 1);
}

/* Of one matrix and of two, into a third and into one of them; by the root of a sum of squares, by that of nearly nothing, and
 * without. */
static void combinations(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    static const double squares[] = {0, 7.3, 1e-20};
    for (int way = 0; way < PAIR_COUNTS * 12; way++) {
        const uint64_t count = pair_counts[way / 12], skew = way % 2 ? 4 : 0;
        const bool with_second = way / 2 % 2;
        const int scaled = way % 12 / 4;
        struct pair out = pair_make(bed, 61, count, 4, skew), a = pair_make(bed, 62, count, 4, skew),
                    b = pair_make(bed, 63, count, 4, 0);
        double *device_squares = test_bed_take(bed, sizeof(double), 0);
        test_bed_put(bed, device_squares, &squares[scaled], sizeof(double));
        struct pair *to = way % 5 == 1 ? &a : way % 5 == 2 ? &b : &out;
        const volatile float factor = scaled ? (float)(1 / fmax(sqrt(squares[scaled]), 1e-7)) : 1;
        const volatile float x = factor * -4.775f, y = factor * 2.0315f;
        ops->combine(bed->device, (float *)to->device, (const float *)a.device, -4.775f,
                     with_second ? (const float *)b.device : NULL, 2.0315f, scaled ? device_squares : NULL, count);
        for (uint64_t i = 0; i < count; i++) {
            const volatile float one = x * ((const float *)a.plain)[i], two = y * ((const float *)b.plain)[i];
            ((float *)to->plain)[i] = with_second ? one + two : one;
        }
        pair_same_floats(bed, &out, "sum of matrices", count);
        pair_same_floats(bed, &a, "the first of a sum of matrices", count);
        pair_same_floats(bed, &b, "the second of a sum of matrices", count);
        test_bed_reset(bed);
    }
    test_report("sums of matrices have the bits of plain loops, in place too", 1);
}

void test_device_kernels(struct test_bed *bed)
{
    pair_comparisons();
    copies_and_fills(bed);
    float8(bed);
    mxfp8(bed);
    sums(bed);
    combinations(bed);
    test_device_norms(bed);
    test_device_updates(bed);
}
