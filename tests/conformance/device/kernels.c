/* SPDX-License-Identifier: MIT
 *
 * The kernels of a device against plain loops, bit by bit: every device has the same bits, so that a run on one can be
 * compared with a run on another. Guards behind each array; arrays that are aligned for vectors and such that are not.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mxfp8.h"
#include "tests/conformance/device/table.h"
#include "tests/conformance/ranks.h"
#include "streams/bf16.h"
#include "streams/state8.h"
#include "streams/sum_order.h"

enum { GUARD_BYTES = 64 };

static const uint64_t counts[] = {0, 1, 3, 4, 5, 127, 1000, 8191, 8192, 8193, 100003, 700001};
enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };

/* An array that the device and the plain loops have each. */
struct pair {
    unsigned char *plain;  /* bytes, then the guard */
    unsigned char *device;
    uint64_t bytes;
};

static float random_value(uint64_t salt, uint64_t index)
{
    const uint64_t h = test_hash(salt, 3, index);
    if (h % 1001 == 0)
        return (float[]){0.0f, -0.0f, 1e-42f, 3e38f}[h >> 40 & 3];
    return (float)((int64_t)(h >> 40) - (1 << 23)) * ((h & 7) ? 1e-6f : 1e-9f);
}

static struct pair make(struct test_bed *bed, uint64_t salt, uint64_t count, uint64_t element_bytes, uint64_t skew)
{
    struct pair p = {.bytes = count * element_bytes};
    p.plain = malloc(p.bytes + GUARD_BYTES);
    for (uint64_t i = 0; i < count; i++) {
        if (element_bytes == 8) {
            const double value = (double)random_value(salt, i);
            memcpy(p.plain + i * 8, &value, 8);
        } else {
            const float value = random_value(salt, i);
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
                      (unsigned long long)count, (unsigned long long)i, (unsigned long long)p->bytes, got[i],
                      p->plain[i]);
            break;
        }
    }
    free(got);
    free(p->plain);
}

/* Both hold the same, up to the end of the guard. */
static void same(struct test_bed *bed, struct pair *p, const char *what, uint64_t count)
{
    compare(p, get(bed, p), what, count);
}

/* Sign and payload of a NaN are the hardware's: where the plain loops have one, the device has any. All else to the bit. */
static void take_any_nan(const struct pair *p, unsigned char *got)
{
    const float *plain = (const float *)p->plain;
    float *device = (float *)got;
    for (uint64_t i = 0; i < p->bytes / 4; i++)
        if (isnan(plain[i]) && isnan(device[i]))
            memcpy(&device[i], &plain[i], 4);
}

static void same_floats(struct test_bed *bed, struct pair *p, const char *what, uint64_t count)
{
    unsigned char *got = get(bed, p);
    take_any_nan(p, got);
    compare(p, got, what, count);
}

/* Of split floats: a NaN is one of both halves together. */
static void take_any_split_nan(const struct pair *high, const struct pair *low, unsigned char *got_high,
                               unsigned char *got_low)
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

/* Weights that an update may have made NaN: whole, or in halves. What whole ones leave of `low` is untouched. */
static void same_weights(struct test_bed *bed, struct pair *weights, struct pair *low, bool is_split, const char *what,
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

/* Goal: the comparisons above take a NaN for any NaN, and nothing else for anything else. */
static void comparisons(void)
{
    static const struct {
        uint32_t plain, device;
        bool is_taken;
    } cases[] = {{0xffc00000u, 0x7fffffffu, true}, {0x7f801234u, 0xffd40000u, true}, {0x7f800000u, 0x7fffffffu, false},
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

static void copies_and_fills(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    for (int c = 0; c < COUNTS; c++) {
        for (uint64_t skew = 0; skew <= 4; skew += 4) {
            struct pair from = make(bed, 1, counts[c], 4, 0), to = make(bed, 2, counts[c], 4, skew);
            struct pair filled = make(bed, 3, counts[c], 4, skew), zeroed = make(bed, 4, counts[c], 4, skew);
            struct pair rounded = make(bed, 5, counts[c], 2, skew / 2);
            ops->copy(bed->device, EO_QUEUE_COMPUTE, to.device, from.device, to.bytes);
            memcpy(to.plain, from.plain, to.bytes);
            ops->fill(bed->device, filled.device, 0x12345678u, filled.bytes);
            for (uint64_t i = 0; i < counts[c]; i++)
                memcpy(filled.plain + 4 * i, &(uint32_t){0x12345678u}, 4);
            ops->zero(bed->device, zeroed.device, zeroed.bytes);
            memset(zeroed.plain, 0, zeroed.bytes);
            ops->cast_bf16(bed->device, EO_QUEUE_COMPUTE, (uint16_t *)rounded.device, (const float *)from.device,
                           counts[c]);
            for (uint64_t i = 0; i < counts[c]; i++)
                ((uint16_t *)rounded.plain)[i] = eo_bf16_round(((const float *)from.plain)[i]);
            same(bed, &to, "copy", counts[c]);
            same(bed, &filled, "fill", counts[c]);
            same(bed, &zeroed, "zero", counts[c]);
            same(bed, &rounded, "cast_bf16", counts[c]);
            same(bed, &from, "what was read", counts[c]);
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
        weights[i] = eo_bf16_round(random_value(salt, i) * size * ldexpf(1, -(int)(h % 24)));
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
        struct pair wide[RUNS], narrow[RUNS], again[RUNS], scales = make(bed, 40, RUNS, 4, 0);
        struct eo_float8_run runs[RUNS], back[RUNS];
        for (int r = 0; r < RUNS; r++) {
            const uint64_t count = r % 22 == 0 ? counts[r % COUNTS] + 200000 + (uint64_t)r : (uint64_t)r % 11 * 13;
            const bool is_float8 = r % 7 != 3;
            wide[r] = make(bed, 41, count, 2, r % 2 ? skew : 0);
            make_weights((uint16_t *)wide[r].plain, count, (uint64_t)r);
            test_bed_put(bed, wide[r].device, wide[r].plain, wide[r].bytes);
            narrow[r] = make(bed, 42, is_float8 ? (count + 3) / 4 : count, is_float8 ? 4 : 2, r % 4 < 2 ? skew : 0);
            again[r] = make(bed, 43, count, 2, r % 5 ? skew : 0);
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
            same(bed, &wide[r], "what was read", count);
            same(bed, &narrow[r], "weights to float8", count);
            same(bed, &again[r], "weights from float8", count);
        }
        same(bed, &scales, "scales", RUNS);
        test_bed_reset(bed);
    }
    test_report("weights go to float8 and back with the bits of plain loops", 1);
}

/* An array that the device gets as it is. */
static void put_bytes(struct test_bed *bed, struct pair *p, const void *bytes)
{
    memcpy(p->plain, bytes, p->bytes);
    test_bed_put(bed, p->device, p->plain, p->bytes);
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
            const uint64_t count = r % 22 == 0 ? counts[r % COUNTS] + 200000 + (uint64_t)r : (uint64_t)r % 11 * 13;
            const uint64_t blocks = eo_mxfp8_blocks(count);
            const bool is_narrow = r % 7 != 3;
            wide[r] = make(bed, 44, count, each, r % 2 ? skew * each / 2 : 0);
            narrow[r] = make(bed, 45, is_narrow ? count : count * each, 1, r % 4 < 2 ? skew * each / 2 : 0);
            uint8_t *codes = malloc(count * each + 1), *exponents = malloc(blocks + 1);
            for (uint64_t i = 0; i < count * each; i++)
                codes[i] = (uint8_t)test_hash((uint64_t)r, 32, i);
            for (uint64_t i = 0; i < blocks; i++)
                exponents[i] = (uint8_t)(27 + test_hash((uint64_t)r, 33, i) % 215); /* of weights of all sizes */
            put_bytes(bed, &narrow[r], codes);
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
            same(bed, &narrow[r], "what was read", count);
            same(bed, &wide[r], "weights from MXFP8", count);
        }
        test_bed_reset(bed);
    }
    test_report("weights come from MXFP8 with the bits of plain loops, in fp32 and bf16", 1);
}

static void sums(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    for (int c = 0; c < COUNTS; c++) {
        for (uint32_t way = 0; way < 8; way++) {
            const uint64_t count = counts[c], skew = way & 1 ? 4 : 0;
            const bool overwrite = way & 2;
            const eo_dtype dtype = way & 4 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
            struct pair from = make(bed, 6, count, dtype == EO_DTYPE_BF16 ? 2 : 4, 0);
            struct pair to = make(bed, 7, count, 4, skew), fused = make(bed, 7, count, 4, skew);
            struct pair squares = make(bed, 8, 2, 8, 0);
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
            same(bed, &squares, "sums of squares", count);
            same(bed, &to, "accumulate", count);
            same(bed, &fused, "accumulate_sum_squares", count);
            same(bed, &from, "what was read", count);
            test_bed_reset(bed);
        }
    }
    test_report("sums have the bits and the order of plain loops", 1);
}

/* gathered: ranks times EO_NORM_VALUES. As streams/device.h says. */
static void norm_plain(struct eo_norm_result *out, const double *gathered, uint32_t ranks, const struct eo_update_scalars *scalars)
{
    const double clip = (double)scalars->clip;
    double all[EO_NORM_VALUES] = {0};
    for (uint32_t r = 0; r < ranks; r++)
        for (int v = 0; v < EO_NORM_VALUES; v++)
            all[v] += gathered[r * EO_NORM_VALUES + (uint32_t)v];
    const double weight = all[EO_NORM_VALUES - 1], divisor = (weight > 0 ? weight : 1) * scalars->loss_scale;
    memset(out, 0, sizeof(*out));
    out->norm = sqrt(all[0]) / divisor;
    out->weight = weight;
    out->clip_factor = clip > 0 && out->norm > clip ? clip / (out->norm + 1e-6) : 1;
    out->gradient_scale = (float)(out->clip_factor / divisor);
    memcpy(out->values, all + 1, sizeof(out->values));
}

/* On the device; what stands in `from`, with `groups` groups. */
static struct eo_step_memory put_step(struct test_bed *bed, const struct eo_step_memory *from, uint32_t groups)
{
    const struct eo_step_memory step = {
        .scalars = test_bed_take(bed, sizeof(*step.scalars), 0), .groups = test_bed_take(bed, groups * sizeof(*step.groups), 0),
        .norm = test_bed_take(bed, sizeof(*step.norm), 0), .results = test_bed_take(bed, groups * sizeof(*step.results), 0)};
    test_bed_put(bed, step.scalars, from->scalars, sizeof(*step.scalars));
    test_bed_put(bed, step.groups, from->groups, groups * sizeof(*step.groups));
    if (from->norm)
        test_bed_put(bed, step.norm, from->norm, sizeof(*step.norm));
    test_bed_put(bed, step.results, from->results, groups * sizeof(*step.results));
    return step;
}

/* Terms of all parts, in an order that mixes them. */
static void local_norms(struct test_bed *bed)
{
    enum { LAYERS = 5, CLIPS = 300, COUNT = EO_NORM_VALUES + LAYERS + CLIPS, MOST = 1500 };
    static const uint32_t term_counts[] = {0, 1, 2, 319, 320, 321, MOST};
    const struct eo_device_ops *ops = bed->device->ops;
    struct eo_norm_term *terms = malloc(MOST * sizeof(*terms));
    struct eo_update_scalars scalars = {.values = {1, 2, 3, 4}, .weight = 5, .loss_scale = 1};
    const struct eo_step_memory from = {.scalars = &scalars};
    for (size_t c = 0; c < 2 * sizeof(term_counts) / sizeof(term_counts[0]); c++) {
        const uint32_t count = term_counts[c / 2], parts = c % 2 ? LAYERS + CLIPS : 0, numbers = EO_NORM_VALUES + parts;
        struct eo_step_memory step = put_step(bed, &from, 0);
        step.layer_count = parts ? LAYERS : 0;
        step.clip_count = parts ? CLIPS : 0;
        struct pair partials = make(bed, 9, count, 8, 0), values = make(bed, 10, EO_STEP_VALUES, 8, 0);
        struct pair out = make(bed, 11, 2 * COUNT, 8, 0);
        double *device_out = (double *)out.device, *want = (double *)out.plain;
        memset(want, 0, numbers * sizeof(*want));
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t part = parts ? i * 7 % (parts + 1) : 0, into = part ? EO_NORM_VALUES - 1 + part : 0;
            terms[i] = (struct eo_norm_term){(const double *)partials.device + i, into};
            want[into] += ((const double *)partials.plain)[i];
        }
        want[EO_NORM_VALUES - 1] = scalars.weight;
        memcpy(want + numbers, want, numbers * sizeof(*want));
        ops->norm_local(bed->device, device_out, terms, count, &step, (const double *)values.device);
        ops->norm_local(bed->device, device_out + numbers, terms, count, &step, NULL);
        memset(terms, 0, MOST * sizeof(*terms)); /* valid during the call alone */
        for (int v = 0; v < EO_STEP_VALUES; v++) {
            want[1 + v] = scalars.values[v] + ((const double *)values.plain)[v];
            want[numbers + 1 + (uint32_t)v] = scalars.values[v];
        }
        same(bed, &out, "norm_local", count);
        same(bed, &values, "what was read", count);
        same(bed, &partials, "what was read", count);
        test_bed_reset(bed);
    }
    free(terms);
}

static double plain_factor(double norm, double clip)
{
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
}

/* Norms by layer and by group of 3 ranks; groups 1 and 4 are clipped together, 3 for itself, the others with the step's. */
static void norms_in_parts(struct test_bed *bed, bool apart, double first)
{
    enum { LAYERS = 300, CLIPS = 5, GROUPS = 7, RANKS = 3, COUNT = EO_NORM_VALUES + LAYERS + CLIPS };
    static const uint32_t clip_groups[CLIPS] = {0, 9, 0, 255, 9};
    static const float clips[CLIPS] = {3, 2, 3, 0.25f, 2};
    struct eo_update_scalars scalars = {.clip = 3, .loss_scale = 1.5, .group_count = GROUPS, .clips_apart = apart};
    struct eo_group_scalars groups[GROUPS] = {0};
    struct eo_clip_scalars clip_scalars[CLIPS];
    struct eo_norm_result result = {0};
    struct eo_group_result results[GROUPS] = {0};
    double gathered[RANKS * COUNT], sums[COUNT] = {0}, layer_norms[LAYERS], got_layers[LAYERS];
    struct eo_clip_result want[CLIPS], got_clips[CLIPS];
    for (int i = 0; i < RANKS * COUNT; i++)
        gathered[i] = 0.3 + i % 1000 / 7.0;
    gathered[COUNT] = first;
    for (int i = 0; i < RANKS * COUNT; i++)
        sums[i % COUNT] += gathered[i];
    const double divisor = sums[EO_NORM_VALUES - 1] * scalars.loss_scale, *squares = sums + EO_NORM_VALUES + LAYERS;
    const double norm = sqrt(sums[0]) / divisor;
    double step_squares = 0;
    for (int g = 0; g < GROUPS; g++)
        groups[g].clip = (uint32_t)g % CLIPS;
    for (int l = 0; l < LAYERS; l++)
        layer_norms[l] = sqrt(sums[EO_NORM_VALUES + l]) / divisor;
    for (int c = 0; c < CLIPS; c++) {
        double together = 0;
        for (int d = 0; d < CLIPS; d++)
            together += clip_groups[d] == clip_groups[c] ? squares[d] : 0;
        clip_scalars[c] = (struct eo_clip_scalars){clip_groups[c], clips[c]};
        want[c].norm = sqrt(squares[c]) / divisor;
        want[c].clip_factor = apart ? plain_factor(sqrt(together) / divisor, clips[c]) : plain_factor(norm, scalars.clip);
        step_squares += clip_groups[c] == 0 ? squares[c] : 0;
    }
    struct eo_step_memory step = put_step(bed, &(struct eo_step_memory){.scalars = &scalars, .groups = groups, .norm = &result, .results = results}, GROUPS);
    step.layer_count = LAYERS;
    step.clip_count = CLIPS;
    step.clips = test_bed_take(bed, sizeof(clip_scalars), 0);
    step.layer_norms = test_bed_take(bed, sizeof(layer_norms), 0);
    step.clip_results = test_bed_take(bed, sizeof(want), 0);
    double *device_gathered = test_bed_take(bed, sizeof(gathered), 0);
    test_bed_put(bed, step.clips, clip_scalars, sizeof(clip_scalars));
    test_bed_put(bed, device_gathered, gathered, sizeof(gathered));
    bed->device->ops->norm_sum(bed->device, device_gathered, RANKS, &step);
    test_bed_get(bed, &result, step.norm, sizeof(result));
    test_bed_get(bed, results, step.results, sizeof(results));
    test_bed_get(bed, got_layers, step.layer_norms, sizeof(got_layers));
    test_bed_get(bed, got_clips, step.clip_results, sizeof(got_clips));
    const double factor = plain_factor(apart ? sqrt(step_squares) / divisor : norm, scalars.clip);
    TEST_HOLDS(NULL, memcmp(got_layers, layer_norms, sizeof(layer_norms)) == 0);
    for (int g = 0; g < GROUPS; g++)
        TEST_HOLDS(NULL, isfinite(first) ? results[g].gradient_scale == (float)(want[g % CLIPS].clip_factor / divisor)
                                         : isnan(results[g].gradient_scale));
    TEST_HOLDS(NULL, isfinite(first) ? result.gradient_scale == (float)(factor / divisor) : isnan(result.gradient_scale));
    TEST_HOLDS(NULL, !isfinite(first) || (result.norm == norm && result.clip_factor == factor));
    TEST_HOLDS(NULL, !isfinite(first) || memcmp(got_clips, want, sizeof(want)) == 0);
    test_bed_reset(bed);
}

static void norms(struct test_bed *bed)
{
    enum { GROUPS = 3 };
    const struct eo_device_ops *ops = bed->device->ops;
    struct eo_update_scalars scalars = {.clip = 0.5f, .values = {1, 2, 3, 4}, .weight = 5, .loss_scale = 1, .group_count = GROUPS};
    struct eo_group_scalars groups[GROUPS] = {0};
    struct eo_norm_result result = {.skipped = 7};
    struct eo_group_result results[GROUPS] = {0};
    const struct eo_step_memory from = {.scalars = &scalars, .groups = groups, .norm = &result, .results = results};
    local_norms(bed);
    for (int apart = 0; apart < 2; apart++) {
        norms_in_parts(bed, apart, 0.25);
        norms_in_parts(bed, apart, (double)NAN);
    }
    for (int round = 0; round < 6; round++) {
        double gathered[3 * EO_NORM_VALUES];
        for (int i = 0; i < 3 * EO_NORM_VALUES; i++)
            gathered[i] = 0.3 + i / 7.0;
        for (int r = 0; r < 3 && round != 4; r++) /* weights */
            gathered[r * EO_NORM_VALUES + EO_NORM_VALUES - 1] = 0;
        gathered[EO_NORM_VALUES] = round == 1 ? (double)NAN : round == 2 ? (double)INFINITY : gathered[EO_NORM_VALUES];
        scalars.loss_scale = round >= 4 ? 1.5 : 1;
        scalars.clip = round == 3 ? 0.0f : 0.5f;
        struct eo_norm_result got, want;
        const struct eo_step_memory step = put_step(bed, &from, GROUPS);
        double *device_gathered = test_bed_take(bed, sizeof(gathered), 0);
        test_bed_put(bed, device_gathered, gathered, sizeof(gathered));
        ops->norm_sum(bed->device, device_gathered, 3, &step);
        test_bed_get(bed, &got, step.norm, sizeof(got));
        test_bed_get(bed, results, step.results, sizeof(results));
        norm_plain(&want, gathered, 3, &scalars);
        TEST_HOLDS(NULL, memcmp(got.values, want.values, sizeof(got.values)) == 0);
        if (round == 1 || round == 2) {
            TEST_HOLDS(NULL, isnan(got.gradient_scale) && !isfinite(got.norm) && got.skipped == 8);
        } else {
            TEST_HOLDS(NULL, got.norm == want.norm && got.clip_factor == want.clip_factor && got.weight == want.weight);
            TEST_HOLDS(NULL, got.gradient_scale == want.gradient_scale && got.skipped == 7);
            for (int g = 0; g < GROUPS; g++)
                TEST_HOLDS(NULL, results[g].gradient_scale == want.gradient_scale);
        }
        test_bed_reset(bed);
    }
    test_report("norms have the bits of plain loops, and say when they are not finite", 1);
}

static void update_plain(enum eo_rule rule, const struct eo_update_range *r, const struct eo_group_scalars *s, float scale,
                         uint32_t unknown)
{
    const float decay = s->weight_decay, correction1 = s->bias_correction1[unknown], correction2 = s->bias_correction2[unknown];
    for (uint64_t i = 0; i < r->count; i++) {
        const volatile float w = r->weights ? r->weights[i] : eo_bf16_join(r->high[i], r->low[i]);
        const volatile float g = r->gradient[i] * scale, before = r->first_moment[i], decayed = decay * w;
        const volatile float m1 = s->beta1 * before, m2 = (1.0f - s->beta1) * g, first = m1 + m2;
        volatile float change, m = first;
        if (rule == EO_RULE_ADAMW) {
            const volatile float v1 = s->beta2 * r->second_moment[i], v2 = (1.0f - s->beta2) * g, v3 = v2 * g, v = v1 + v3;
            const volatile float root = sqrtf(v / correction2) + s->eps;
            change = m / correction1 / root + decayed;
            r->second_moment[i] = v;
        } else if (rule == EO_RULE_SGD) {
            const volatile float sum = g + decayed;
            change = m = m1 + sum;
        } else if (rule == EO_RULE_MUON) {
            const volatile float k1 = s->momentum * before, k2 = (1.0f - s->momentum) * g;
            m = k1 + k2;
            change = r->second_moment[i] + decayed;
        } else if (rule == EO_RULE_DIRECTION) {
            const volatile float k1 = s->momentum * before, k2 = (1.0f - s->momentum) * g, next = k1 + k2, more = s->momentum * next;
            r->second_moment[i] = k2 + more;
            continue;
        } else {
            const volatile float k1 = s->beta2 * before, k2 = (1.0f - s->beta2) * g, sign = first > 0 ? 1 : first < 0 ? -1 : 0;
            m = k1 + k2;
            change = sign + decayed;
        }
        const volatile float step = s->learning_rate * change;
        r->first_moment[i] = m;
        if (r->weights)
            r->weights[i] = w - step;
        else
            eo_bf16_split(w - step, &r->high[i], &r->low[i]);
    }
}

/* Many ranges in one call, empty, short and long, whole and split, of groups, one of them frozen; after a step whose skipping
 * the host knew of, and after one it did not; then once with a norm that is not finite. */
static void updates(struct test_bed *bed, enum eo_rule rule)
{
    enum { RANGES = 101, GROUPS = 4 };
    const struct eo_device_ops *ops = bed->device->ops;
    struct eo_update_scalars scalars = {.skipped = 5, .group_count = GROUPS};
    struct eo_group_scalars groups[GROUPS];
    struct eo_group_result results[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        groups[g] = (struct eo_group_scalars){
            .learning_rate = 3e-4f * (float)(g + 1), .beta1 = 0.9f, .beta2 = g % 2 ? 0.95f : 0.99f, .eps = 1e-8f,
            .weight_decay = g % 2 ? 0.1f : 0, .bias_correction1 = {0.271f, 0.19f}, .bias_correction2 = {0.142625f, 0.0975f},
            .frozen = g == 3, .momentum = 0.95f};
        results[g].gradient_scale = 0.37f / (float)(g + 1);
    }
    for (int round = 0; round < 3; round++) {
        const bool is_finite = round > 0;
        const uint32_t unknown = round == 2;
        struct eo_norm_result norm = {.gradient_scale = is_finite ? 0.37f : NAN, .skipped = scalars.skipped + unknown};
        const struct eo_step_memory step = put_step(bed, &(struct eo_step_memory){.scalars = &scalars, .groups = groups, .norm = &norm, .results = results}, GROUPS);
        struct eo_update_range plain[RANGES], device[RANGES];
        struct pair pairs[RANGES][4], lows[RANGES];
        for (int r = 0; r < RANGES; r++) {
            const uint64_t count = r % 25 == 0 ? 40000 + (uint64_t)r : (uint64_t)r % 10 * 3, skew = r % 3 ? 0 : 4;
            const bool is_split = r % 2;
            const uint64_t salt = 20 + 5 * (uint64_t)r;
            for (int a = 0; a < 4; a++) {
                pairs[r][a] = make(bed, salt + (uint64_t)a, count, a == 0 && is_split ? 2 : 4,
                                   a == 0 && is_split ? skew / 2 : skew);
                float *values = (float *)pairs[r][a].plain;
                for (uint64_t i = 0; a == 2 && i < count; i++)
                    values[i] = fabsf(values[i]); /* second moments are */
                test_bed_put(bed, pairs[r][a].device, pairs[r][a].plain, pairs[r][a].bytes);
            }
            lows[r] = make(bed, salt + 4, count, 2, skew / 2);
            device[r] = (struct eo_update_range){.first_moment = (float *)pairs[r][1].device,
                                          .second_moment = (float *)pairs[r][2].device,
                                          .gradient = (const float *)pairs[r][3].device,
                                          .count = count, .group = (uint32_t)r % 7 % GROUPS};
            plain[r] = (struct eo_update_range){.first_moment = (float *)pairs[r][1].plain,
                                         .second_moment = (float *)pairs[r][2].plain,
                                         .gradient = (const float *)pairs[r][3].plain,
                                         .count = count, .group = (uint32_t)r % 7 % GROUPS};
            if (is_split) {
                device[r].high = (uint16_t *)pairs[r][0].device;
                device[r].low = (int16_t *)lows[r].device;
                plain[r].high = (uint16_t *)pairs[r][0].plain;
                plain[r].low = (int16_t *)lows[r].plain;
            } else {
                device[r].weights = (float *)pairs[r][0].device;
                plain[r].weights = (float *)pairs[r][0].plain;
            }
        }
        ops->update(bed->device, rule, device, RANGES, &step);
        memset(device, 0, sizeof(device)); /* valid during the call alone */
        for (int r = 0; r < RANGES; r++) {
            const uint32_t g = plain[r].group;
            if (is_finite && !groups[g].frozen)
                update_plain(rule, &plain[r], &groups[g], results[g].gradient_scale, unknown);
            const char *what = is_finite ? "update" : "update without a norm";
            same_weights(bed, &pairs[r][0], &lows[r], r % 2, what, plain[r].count);
            for (int a = 1; a < 4; a++)
                same_floats(bed, &pairs[r][a], what, plain[r].count);
        }
        test_bed_reset(bed);
    }
    static const char *const names[EO_RULE_COUNT] = {"adamw", "sgd", "lion", "", "muon", "muon's direction"};
    char text[96];
    snprintf(text, sizeof(text), "%s has the bits of plain loops, and does nothing where the norm is not finite",
             names[rule]);
    test_report(text, 1);
}

static void moments_plain(struct eo_state8 *blocks, uint64_t at, bool is_signed, const float *moments)
{
    float largest = 0, inverse;
    for (uint64_t i = 0; i < EO_STATE8_ELEMENTS; i++)
        largest = fmaxf(largest, fabsf(moments[i]));
    struct eo_state8 *block = &blocks[at / EO_STATE8_ELEMENTS];
    block->largest = eo_state8_scale(largest, &inverse);
    for (uint64_t i = 0; i < EO_STATE8_ELEMENTS; i++)
        block->codes[i] = eo_state8_code(moments[i] * inverse, is_signed);
}

static void update8_plain(const struct eo_update_range *r, const struct eo_group_scalars *s, float scale)
{
    const volatile float both = sqrtf(s->bias_correction2[0]), lost = s->learning_rate * s->weight_decay, kept = 1.0f - lost;
    const volatile float corrected = s->learning_rate / s->bias_correction1[0], rate = corrected * both, eps = s->eps * both;
    for (uint64_t at = 0; at < r->count; at += EO_STATE8_ELEMENTS) {
        const struct eo_state8 *first = &r->first_blocks[at / EO_STATE8_ELEMENTS], *second = &r->second_blocks[at / EO_STATE8_ELEMENTS];
        float m[EO_STATE8_ELEMENTS], v[EO_STATE8_ELEMENTS];
        for (uint64_t i = 0; i < EO_STATE8_ELEMENTS; i++) {
            const volatile float w = r->weights ? r->weights[at + i] : eo_bf16_join(r->high[at + i], r->low[at + i]);
            const volatile float g = r->gradient[at + i] * scale, m0 = s->beta1 * first->largest, v0 = s->beta2 * second->largest;
            const volatile float m1 = m0 * eo_state8_value(first->codes[i], true), m2 = (1.0f - s->beta1) * g, mean = m1 + m2;
            const volatile float v1 = v0 * eo_state8_value(second->codes[i], false), v2 = (1.0f - s->beta2) * g, v3 = v2 * g;
            const volatile float variance = v1 + v3, root = sqrtf(variance) + eps, up = rate * mean, step = up / root;
            const volatile float less = kept * w;
            m[i] = mean;
            v[i] = variance;
            if (r->weights)
                r->weights[at + i] = less - step;
            else
                eo_bf16_split(less - step, &r->high[at + i], &r->low[at + i]);
        }
        moments_plain(r->first_blocks, at, true, m);
        moments_plain(r->second_blocks, at, false, v);
    }
}

/* Ranges of whole blocks, none, one and many, whole and split, one of a frozen group; three steps, the last not finite. Some
 * gradients are zeros, tiny or large. */
static void updates_in_8_bits(struct test_bed *bed)
{
    enum { RANGES = 9, GROUPS = 2 };
    struct eo_update_scalars scalars = {.group_count = GROUPS};
    struct eo_group_scalars groups[GROUPS] = {
        {.learning_rate = 3e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f,
         .bias_correction1 = {0.271f}, .bias_correction2 = {0.142625f}}, {.frozen = 1}};
    struct eo_group_result results[GROUPS] = {{0.37f}, {0.37f}};
    struct eo_update_range plain[RANGES], device[RANGES];
    struct pair weights[RANGES], lows[RANGES], gradients[RANGES], firsts[RANGES], seconds[RANGES];
    for (int r = 0; r < RANGES; r++) {
        const uint64_t count = (uint64_t)(r == 4 ? 100 : r % 4 * 3) * EO_STATE8_ELEMENTS, salt = 700 + 5 * (uint64_t)r;
        const uint64_t words = count / EO_STATE8_ELEMENTS * sizeof(struct eo_state8) / 4;
        weights[r] = make(bed, salt, count, r % 2 ? 2 : 4, 0);
        lows[r] = make(bed, salt + 1, count, 2, 0);
        gradients[r] = make(bed, salt + 2, count, 4, 0);
        firsts[r] = make(bed, salt + 3, words, 4, 0);
        seconds[r] = make(bed, salt + 4, words, 4, 0);
        memset(firsts[r].plain, 0, words * 4);
        memset(seconds[r].plain, 0, words * 4);
        float *g = (float *)gradients[r].plain;
        for (uint64_t i = 0; i < count; i++)
            g[i] *= i % 7 == 0 ? 0 : i / EO_STATE8_ELEMENTS % 5 == 1 ? 1e-25f : powf(10, -(float)(i % 9));
        test_bed_put(bed, gradients[r].device, gradients[r].plain, gradients[r].bytes);
        test_bed_put(bed, firsts[r].device, firsts[r].plain, firsts[r].bytes);
        test_bed_put(bed, seconds[r].device, seconds[r].plain, seconds[r].bytes);
        plain[r] = (struct eo_update_range){.first_moment = (float *)firsts[r].plain, .second_moment = (float *)seconds[r].plain,
                                            .gradient = g, .count = count, .group = r == 7};
        device[r] = (struct eo_update_range){.first_moment = (float *)firsts[r].device,
                                             .second_moment = (float *)seconds[r].device,
                                             .gradient = (const float *)gradients[r].device, .count = count, .group = r == 7};
        if (r % 2) {
            plain[r].high = (uint16_t *)weights[r].plain, plain[r].low = (int16_t *)lows[r].plain;
            device[r].high = (uint16_t *)weights[r].device, device[r].low = (int16_t *)lows[r].device;
        } else {
            plain[r].weights = (float *)weights[r].plain;
            device[r].weights = (float *)weights[r].device;
        }
    }
    for (int round = 0; round < 3; round++) {
        struct eo_norm_result norm = {.gradient_scale = round < 2 ? 0.37f : NAN};
        const struct eo_step_memory step = put_step(bed, &(struct eo_step_memory){.scalars = &scalars, .groups = groups, .norm = &norm, .results = results}, GROUPS);
        bed->device->ops->update(bed->device, EO_RULE_ADAMW8BIT, device, RANGES, &step);
        for (int r = 0; r < RANGES && round < 2; r++)
            if (plain[r].group == 0)
                update8_plain(&plain[r], &groups[0], 0.37f);
    }
    for (int r = 0; r < RANGES; r++) {
        same_weights(bed, &weights[r], &lows[r], r % 2, "weights", plain[r].count);
        same(bed, &gradients[r], "gradients", plain[r].count);
        same(bed, &firsts[r], "first moments in 8 bits", plain[r].count);
        same(bed, &seconds[r], "second moments in 8 bits", plain[r].count);
    }
    test_bed_reset(bed);
    test_report("adamw8bit has the bits of plain loops, and does nothing where the norm is not finite", 1);
}

/* In place of both: a copy, an update, a swap; whole and split, with a tail and askew. */
static void averages(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    const struct eo_update_scalars scalars = {.ema_decay = 0.9f};
    static const uint64_t sizes[] = {0, 1, 5, 64, 4099, 70001};
    for (uint32_t way = 0; way < 6 * 2 * 4; way++) {
        const uint64_t count = sizes[way / 8], skew = way % 3 ? 0 : 4;
        const bool is_split = way % 2, is_finite = way / 2 % 4 != 3;
        const enum eo_average_mode mode = (enum eo_average_mode)(is_finite ? way / 2 % 4 : EO_AVERAGE_UPDATE);
        const struct eo_norm_result norm = {.gradient_scale = is_finite ? 0.5f : NAN};
        struct eo_update_scalars *device_scalars = test_bed_take(bed, sizeof(scalars), 0);
        struct eo_norm_result *device_norm = test_bed_take(bed, sizeof(norm), 0);
        test_bed_put(bed, device_scalars, &scalars, sizeof(scalars));
        test_bed_put(bed, device_norm, &norm, sizeof(norm));
        struct pair weights = make(bed, 3 + way, count, is_split ? 2 : 4, is_split ? skew / 2 : skew);
        struct pair low = make(bed, 5 + way, count, 2, skew / 2), average = make(bed, 7 + way, count, 4, skew);
        test_bed_put(bed, weights.device, weights.plain, weights.bytes);
        test_bed_put(bed, low.device, low.plain, low.bytes);
        test_bed_put(bed, average.device, average.plain, average.bytes);
        struct eo_average all = {.average = (float *)average.device, .count = count};
        all.weights = is_split ? NULL : (float *)weights.device;
        all.high = is_split ? (uint16_t *)weights.device : NULL;
        all.low = is_split ? (int16_t *)low.device : NULL;
        ops->average(bed->device, &all, mode, device_scalars, device_norm);
        for (uint64_t i = 0; i < count && is_finite; i++) {
            uint16_t *high = (uint16_t *)weights.plain + i;
            int16_t *rest = (int16_t *)low.plain + i;
            float *w = (float *)weights.plain + i, *a = (float *)average.plain + i;
            const volatile float weight = is_split ? eo_bf16_join(*high, *rest) : *w, before = *a, apart = weight - before;
            const volatile float more = (1.0f - scalars.ema_decay) * apart;
            *a = mode == EO_AVERAGE_UPDATE ? before + more : weight;
            if (mode == EO_AVERAGE_SWAP && is_split)
                eo_bf16_split(before, high, rest);
            else if (mode == EO_AVERAGE_SWAP)
                *w = before;
        }
        same_floats(bed, &average, "average", count);
        same_weights(bed, &weights, &low, is_split, "weights beside the average", count);
        test_bed_reset(bed);
    }
    test_report("averages of weights begin, follow and change places as plain loops say", 1);
}

/* Of one matrix and of two, into a third and into one of them; by the root of a sum of squares, by that of nearly nothing, and
 * without. */
static void combinations(struct test_bed *bed)
{
    const struct eo_device_ops *ops = bed->device->ops;
    static const double squares[] = {0, 7.3, 1e-20};
    for (int way = 0; way < COUNTS * 12; way++) {
        const uint64_t count = counts[way / 12], skew = way % 2 ? 4 : 0;
        const bool with_second = way / 2 % 2;
        const int scaled = way % 12 / 4;
        struct pair out = make(bed, 61, count, 4, skew), a = make(bed, 62, count, 4, skew), b = make(bed, 63, count, 4, 0);
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
        same_floats(bed, &out, "sum of matrices", count);
        same_floats(bed, &a, "the first of a sum of matrices", count);
        same_floats(bed, &b, "the second of a sum of matrices", count);
        test_bed_reset(bed);
    }
    test_report("sums of matrices have the bits of plain loops, in place too", 1);
}

void test_device_kernels(struct test_bed *bed)
{
    comparisons();
    copies_and_fills(bed);
    float8(bed);
    mxfp8(bed);
    sums(bed);
    norms(bed);
    for (int rule = 0; rule < EO_RULE_COUNT; rule++)
        if (rule != EO_RULE_ADAMW8BIT)
            updates(bed, (enum eo_rule)rule);
    combinations(bed);
    updates_in_8_bits(bed);
    averages(bed);
}
