/* SPDX-License-Identifier: MIT
 *
 * The kernels of kernels.h for one instruction set; included once for each, so without a guard. Before:
 *
 *     KERNEL(name)             the name of this set's version of a function or type
 *     KERNEL_TARGET            the attribute that lets the compiler use the set
 *     VECTOR_FLOATS            floats in a vector: 4, 8 or 16
 *     VECTOR_SQRT(v)           element-wise square root
 *     VECTOR_MIN(v, w), VECTOR_MAX(v, w)      element-wise; w where one of them is NaN
 *     VECTOR_UNLESS_0(i, v)    v, but 0 where the integer is 0; below, if it is not given
 *     VECTOR_LARGEST(v)        of values of which none is negative
 *     VECTOR_BYTES(p), VECTOR_SIGNED_BYTES(p) as integers of a vector: compilers convert them one by one
 *     VECTOR_LOOKUP(table, i)  of eight floats, by the integers of a vector modulo 8
 *     VECTOR_STEPS(v, steps)   how many of the bounds of struct state8_steps each element reaches; from 0 to 1
 *     VECTOR_STREAM(p, v)      stores a vector past the caches; p is aligned to it
 *     VECTOR_STREAM_END        makes such stores visible in order; nothing where there are none
 *     VECTOR_NAME              text
 *
 * Vectors are the compiler's own, so that a machine without any of the sets runs the same source. They are read
 * through types of the elements' alignment: buffers are aligned to their elements at least.
 */

enum { KERNEL(half_floats) = VECTOR_FLOATS / 2, KERNEL(sums) = EO_SUM_LANES / KERNEL(half_floats) };

typedef float KERNEL(f32) __attribute__((vector_size(VECTOR_FLOATS * 4), aligned(4), may_alias));
typedef uint32_t KERNEL(u32) __attribute__((vector_size(VECTOR_FLOATS * 4), aligned(4), may_alias));
typedef int32_t KERNEL(s32) __attribute__((vector_size(VECTOR_FLOATS * 4), aligned(4), may_alias));
typedef uint16_t KERNEL(u16) __attribute__((vector_size(VECTOR_FLOATS * 2), aligned(2), may_alias));
typedef int16_t KERNEL(s16) __attribute__((vector_size(VECTOR_FLOATS * 2), aligned(2), may_alias));
typedef uint8_t KERNEL(u8) __attribute__((vector_size(VECTOR_FLOATS), aligned(1), may_alias));
typedef int8_t KERNEL(s8) __attribute__((vector_size(VECTOR_FLOATS), aligned(1), may_alias));
/* Twice as many numbers of 16 bits fill a vector. */
typedef uint16_t KERNEL(wide16) __attribute__((vector_size(VECTOR_FLOATS * 4), aligned(2), may_alias));
typedef uint8_t KERNEL(wide8) __attribute__((vector_size(VECTOR_FLOATS * 2), aligned(1), may_alias));
typedef uint8_t KERNEL(bytes) __attribute__((vector_size(VECTOR_FLOATS * 4), aligned(1), may_alias));
/* Half as many floats fill a vector when they are widened. */
typedef float KERNEL(half) __attribute__((vector_size(VECTOR_FLOATS * 2), aligned(4), may_alias));
typedef double KERNEL(f64) __attribute__((vector_size(VECTOR_FLOATS * 4), aligned(8), may_alias));

KERNEL_TARGET static void KERNEL(accumulate)(float *to, const float *from, uint64_t count)
{
    uint64_t i = 0;
    for (; i + VECTOR_FLOATS <= count; i += VECTOR_FLOATS) {
        KERNEL(f32) *t = (KERNEL(f32) *)(to + i);
        *t = *t + *(const KERNEL(f32) *)(from + i);
    }
    for (; i < count; i++)
        to[i] = to[i] + from[i];
}

/* The square of a float is exact in double, so the order of the sums is all that matters. */
KERNEL_TARGET static double KERNEL(sum_squares_of)(float *to, const float *from, const float *values, uint64_t count)
{
    KERNEL(f64) sums[KERNEL(sums)];
    for (uint32_t k = 0; k < KERNEL(sums); k++)
        sums[k] = (KERNEL(f64)){0};
    uint64_t i = 0;
    for (; i + EO_SUM_LANES <= count; i += EO_SUM_LANES) {
        for (uint32_t k = 0; k < KERNEL(sums); k++) {
            const uint64_t at = i + k * KERNEL(half_floats);
            KERNEL(half) x;
            if (to) {
                x = *(const KERNEL(half) *)(to + at) + *(const KERNEL(half) *)(from + at);
                *(KERNEL(half) *)(to + at) = x;
            } else {
                x = *(const KERNEL(half) *)(values + at);
            }
            const KERNEL(f64) wide = __builtin_convertvector(x, KERNEL(f64));
            sums[k] = sums[k] + wide * wide;
        }
    }
    double lanes[EO_SUM_LANES];
    memcpy(lanes, sums, sizeof(lanes));
    for (uint32_t lane = 0; i < count; i++, lane++) {
        const float x = to ? to[i] + from[i] : values[i];
        if (to)
            to[i] = x;
        lanes[lane] += (double)x * (double)x;
    }
    return eo_sum_fold(lanes);
}

KERNEL_TARGET static double KERNEL(sum_squares)(const float *values, uint64_t count)
{
    return KERNEL(sum_squares_of)(NULL, NULL, values, count);
}

KERNEL_TARGET static double KERNEL(accumulate_sum_squares)(float *to, const float *from, uint64_t count)
{
    return KERNEL(sum_squares_of)(to, from, NULL, count);
}

KERNEL_TARGET static inline KERNEL(f32) KERNEL(widen)(const uint16_t *from)
{
    return (KERNEL(f32))(__builtin_convertvector(*(const KERNEL(u16) *)from, KERNEL(u32)) << 16);
}

/* The bits of the bf16 nearest, in the high half; what the low half holds is cut off by the caller. Ties as of eo_bf16_round, */
KERNEL_TARGET static inline KERNEL(u32) KERNEL(rounded_bits)(KERNEL(f32) value)
{
    const KERNEL(u32) bits = (KERNEL(u32))value;
    const KERNEL(u32) is_nan = (KERNEL(u32))((bits & 0x7fffffffu) > 0x7f800000u);
    return ((bits + 0x8000u) & ~is_nan) | ((bits | 0x400000u) & is_nan);
}

/* and as of eo_bf16_of_sum. */
KERNEL_TARGET static inline KERNEL(u32) KERNEL(rounded_sum_bits)(KERNEL(f32) value)
{
    const KERNEL(u32) bits = (KERNEL(u32))value;
    const KERNEL(u32) is_nan = (KERNEL(u32))((bits & 0x7fffffffu) > 0x7f800000u);
    return ((bits + 0x7fffu + (bits >> 16 & 1)) & ~is_nan) | ((bits | 0x400000u) & is_nan);
}

KERNEL_TARGET static void KERNEL(widen_bf16)(float *to, const uint16_t *from, bool add, uint64_t count)
{
    uint64_t i = 0;
    for (; i + VECTOR_FLOATS <= count; i += VECTOR_FLOATS) {
        KERNEL(f32) *t = (KERNEL(f32) *)(to + i);
        const KERNEL(f32) x = KERNEL(widen)(from + i);
        if (add)
            *t = *t + x;
        else
            *t = x;
    }
    for (; i < count; i++)
        to[i] = add ? to[i] + eo_bf16_to_float(from[i]) : eo_bf16_to_float(from[i]);
}

KERNEL_TARGET static void KERNEL(round_bf16)(uint16_t *to, const float *from, uint64_t count)
{
    uint64_t i = 0;
    for (; i + VECTOR_FLOATS <= count; i += VECTOR_FLOATS)
        *(KERNEL(u16) *)(to + i) = __builtin_convertvector(
            KERNEL(rounded_bits)(*(const KERNEL(f32) *)(from + i)) >> 16, KERNEL(u16));
    for (; i < count; i++)
        to[i] = eo_bf16_round(from[i]);
}

enum { KERNEL(u16_count) = 2 * VECTOR_FLOATS }; /* numbers of 16 bits that fill a vector */

KERNEL_TARGET static uint16_t KERNEL(largest_bf16)(const uint16_t *from, uint64_t count)
{
    KERNEL(wide16) most = {0};
    uint16_t largest = 0;
    uint64_t i = 0;
    for (; i + KERNEL(u16_count) <= count; i += KERNEL(u16_count)) {
        const KERNEL(wide16) x = *(const KERNEL(wide16) *)(from + i) & 0x7fff;
        const KERNEL(wide16) larger = (KERNEL(wide16))(x > most);
        most = (x & larger) | (most & ~larger);
    }
    for (uint32_t k = 0; k < KERNEL(u16_count); k++)
        largest = most[k] > largest ? most[k] : largest;
    for (; i < count; i++)
        largest = (from[i] & 0x7fff) > largest ? from[i] & 0x7fff : largest;
    return largest;
}

/* eo_float8_round, both branches. */
KERNEL_TARGET static void KERNEL(narrow_float8)(uint8_t *to, const uint16_t *from, float inverse, uint64_t count)
{
    uint64_t i = 0;
    for (; i + VECTOR_FLOATS <= count; i += VECTOR_FLOATS) {
        const KERNEL(u32) value = (KERNEL(u32))(KERNEL(widen)(from + i) * inverse), all = value & 0x7fffffffu;
        const KERNEL(u32) is_large = (KERNEL(u32))(all > 0x43e00000u), is_small = (KERNEL(u32))(all < 0x3c800000u);
        const KERNEL(u32) not_finite = (KERNEL(u32))(all >= 0x7f800000u);
        const KERNEL(u32) bits = (all & ~is_large) | (0x43e00000u & is_large);
        const KERNEL(u32) small = (KERNEL(u32))((KERNEL(f32))bits + 16384.0f) - 0x46800000u;
        const KERNEL(u32) normal = ((bits + 0x7ffffu + (bits >> 20 & 1)) >> 20) - (120 << 3);
        const KERNEL(u32) rounded = (small & is_small) | (normal & ~is_small) | (EO_FLOAT8_NAN & not_finite);
        *(KERNEL(u8) *)(to + i) = __builtin_convertvector((value >> 24 & 0x80) | rounded, KERNEL(u8));
    }
    for (; i < count; i++)
        to[i] = eo_float8_narrow(from[i], inverse);
}

/*
 * In 16 bits, for the scale only adds to the exponent: of a code eeee mmm with e > 0 the result is its bits, four places up,
 * and the exponent of 2^-7 scale. A code below, m x 2^-9, has its first bit at place 0, 1 or 2.
 */
KERNEL_TARGET static void KERNEL(widen_float8)(uint16_t *to, const uint8_t *from, float scale, uint64_t count)
{
    const uint16_t unit = (uint16_t)(((eo_float8_bits(scale) >> 23) - 10) << 7); /* 2^-9 scale, less a leading 1 */
    uint64_t i = 0;
    for (; i + KERNEL(u16_count) <= count; i += KERNEL(u16_count)) {
        const KERNEL(wide16) value = __builtin_convertvector(*(const KERNEL(wide8) *)(from + i), KERNEL(wide16));
        const KERNEL(wide16) all = value & 0x7f, is_zero = (KERNEL(wide16))(all == 0);
        const KERNEL(wide16) first = (KERNEL(wide16))(all < 2), second = (KERNEL(wide16))(all < 4);
        const KERNEL(wide16) third = (KERNEL(wide16))(all < 8), is_nan = (KERNEL(wide16))(all == EO_FLOAT8_NAN);
        KERNEL(wide16) bits = (((all << 5) + 0x100) & third) | (((all << 4) + 0x180) & ~third);
        bits = (((all << 6) + 0x80) & second) | (bits & ~second);
        bits = ((all << 7) & first) | (bits & ~first);
        bits = (((bits + unit) & ~is_zero) & ~is_nan) | (0x7fc0 & is_nan);
        *(KERNEL(wide16) *)(to + i) = bits | (value & 0x80) << 8;
    }
    for (; i < count; i++)
        to[i] = eo_float8_widen(from[i], scale);
}

/* eo_float8_to_float of `all` without its sign, below 8 and from 8 on, and the scale's product. */
KERNEL_TARGET static inline KERNEL(f32) KERNEL(widened_to_fp32)(const uint8_t *from, float scale)
{
    const KERNEL(u32) value = __builtin_convertvector(*(const KERNEL(u8) *)from, KERNEL(u32)), all = value & 0x7f;
    const KERNEL(u32) is_small = (KERNEL(u32))(all < 8), is_nan = (KERNEL(u32))(all == EO_FLOAT8_NAN);
    const KERNEL(u32) small = (KERNEL(u32))((KERNEL(f32))((all << 20) + (121u << 23)) - 0.015625f);
    const KERNEL(u32) bits = (small & is_small) | (((all << 20) + (120u << 23)) & ~is_small);
    return (KERNEL(f32))((bits & ~is_nan) | (0x7fc00000u & is_nan) | (value & 0x80) << 24) * scale;
}

KERNEL_TARGET static void KERNEL(widen_mxfp8_to_fp32)(float *to, const uint8_t *exponents, const uint8_t *from, uint64_t count)
{
    uint64_t i = 0;
    for (; i + EO_MXFP8_BLOCK <= count; i += EO_MXFP8_BLOCK)
        for (uint64_t k = i; k < i + EO_MXFP8_BLOCK; k += VECTOR_FLOATS)
            *(KERNEL(f32) *)(to + k) = KERNEL(widened_to_fp32)(from + k, eo_mxfp8_scale(exponents[i / EO_MXFP8_BLOCK]));
    for (; i < count; i++)
        to[i] = eo_mxfp8_widen(from[i], exponents[i / EO_MXFP8_BLOCK]);
}

KERNEL_TARGET static void KERNEL(widen_mxfp8)(uint16_t *to, const uint8_t *exponents, const uint8_t *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += EO_MXFP8_BLOCK)
        KERNEL(widen_float8)(to + i, from + i, eo_mxfp8_scale(exponents[i / EO_MXFP8_BLOCK]),
                             count - i < EO_MXFP8_BLOCK ? count - i : EO_MXFP8_BLOCK);
}

/* The split form in registers: bits = (high << 16) + low, and back. */
KERNEL_TARGET static inline KERNEL(f32) KERNEL(join)(const uint16_t *high, const int16_t *low)
{
    const KERNEL(s32) remainder = __builtin_convertvector(*(const KERNEL(s16) *)low, KERNEL(s32));
    return (KERNEL(f32))((KERNEL(u32))KERNEL(widen)(high) + (KERNEL(u32))remainder);
}

KERNEL_TARGET static inline void KERNEL(split)(uint16_t *high, int16_t *low, KERNEL(f32) value)
{
    const KERNEL(u32) bits = (KERNEL(u32))value;
    const KERNEL(u32) is_nan = (KERNEL(u32))((bits & 0x7fffffffu) > 0x7f800000u);
    *(KERNEL(u16) *)high = __builtin_convertvector(KERNEL(rounded_bits)(value) >> 16, KERNEL(u16));
    *(KERNEL(u16) *)low = __builtin_convertvector(bits & 0xffffu & ~is_nan, KERNEL(u16));
}

#include "streams/cpu/update_body.h"
#ifndef VECTOR_UNLESS_0
#define VECTOR_UNLESS_0(code, v) (KERNEL(f32))((v) & (KERNEL(u32))((code) != 0))
#endif
#include "streams/cpu/state8_body.h"

/* enum eo_average_mode; `rest` = 1 - decay. */
KERNEL_TARGET static void KERNEL(average)(const struct eo_average *all, enum eo_average_mode mode, float rest, uint64_t begin,
                                          uint64_t count)
{
    const bool split = !all->weights;
    float *w = split ? NULL : all->weights + begin, *average = all->average + begin;
    uint16_t *high = split ? all->high + begin : NULL;
    int16_t *low = split ? all->low + begin : NULL;
    uint64_t i = 0;
    for (; i + VECTOR_FLOATS <= count; i += VECTOR_FLOATS) {
        KERNEL(f32) *a = (KERNEL(f32) *)(average + i);
        const KERNEL(f32) weight = split ? KERNEL(join)(high + i, low + i) : *(const KERNEL(f32) *)(w + i), before = *a;
        *a = weight;
        if (mode == EO_AVERAGE_UPDATE)
            *a = before + rest * (weight - before);
        if (mode == EO_AVERAGE_SWAP && split)
            KERNEL(split)(high + i, low + i, before);
        else if (mode == EO_AVERAGE_SWAP)
            *(KERNEL(f32) *)(w + i) = before;
    }
    for (; i < count; i++) {
        const float weight = split ? eo_bf16_join(high[i], low[i]) : w[i], before = average[i];
        average[i] = mode == EO_AVERAGE_UPDATE ? before + rest * (weight - before) : weight;
        if (mode == EO_AVERAGE_SWAP && split)
            eo_bf16_split(before, &high[i], &low[i]);
        else if (mode == EO_AVERAGE_SWAP)
            w[i] = before;
    }
}

/* One by one, up to where whole vectors are aligned or to the end. */
KERNEL_TARGET static void KERNEL(sum_few)(float *out, const float *const *in, uint32_t in_count, uint64_t begin,
                                          uint64_t end)
{
    for (uint64_t i = begin; i < end; i++) {
        float sum = in[0][i];
        for (uint32_t r = 1; r < in_count; r++)
            sum = sum + in[r][i];
        out[i] = sum;
    }
}

/* Floats before `p` is aligned to a vector. */
static uint64_t KERNEL(floats_to_align)(const void *p)
{
    return (uint64_t)(-(uintptr_t)p % (VECTOR_FLOATS * 4)) / 4;
}

/* Four vectors at a time stay in registers while the inputs go by, so that each byte is read and written once. */
KERNEL_TARGET static void KERNEL(sum_fp32)(float *out, const float *const *in, uint32_t in_count, uint64_t count,
                                           bool stream)
{
    uint64_t i = stream ? KERNEL(floats_to_align)(out) : 0;
    i = i < count ? i : count;
    KERNEL(sum_few)(out, in, in_count, 0, i);
    for (; i + 4 * VECTOR_FLOATS <= count; i += 4 * VECTOR_FLOATS) {
        const KERNEL(f32) *x = (const KERNEL(f32) *)(in[0] + i);
        KERNEL(f32) a = x[0], b = x[1], c = x[2], d = x[3];
        for (uint32_t r = 1; r < in_count; r++) {
            x = (const KERNEL(f32) *)(in[r] + i);
            a = a + x[0];
            b = b + x[1];
            c = c + x[2];
            d = d + x[3];
        }
        KERNEL(f32) *y = (KERNEL(f32) *)(out + i);
        if (stream) {
            VECTOR_STREAM(y, a);
            VECTOR_STREAM(y + 1, b);
            VECTOR_STREAM(y + 2, c);
            VECTOR_STREAM(y + 3, d);
        } else {
            y[0] = a;
            y[1] = b;
            y[2] = c;
            y[3] = d;
        }
    }
    KERNEL(sum_few)(out, in, in_count, i, count);
    VECTOR_STREAM_END;
}

KERNEL_TARGET static void KERNEL(stream_copy)(void *to, const void *from, uint64_t bytes)
{
    enum { STEP = VECTOR_FLOATS * 4 * 4 };
    unsigned char *t = to;
    const unsigned char *f = from;
    const uint64_t before = (uint64_t)(-(uintptr_t)to % (VECTOR_FLOATS * 4));
    uint64_t i = before < bytes ? before : bytes;
    memcpy(t, f, i);
    for (; i + STEP <= bytes; i += STEP) {
        const KERNEL(bytes) *x = (const KERNEL(bytes) *)(f + i);
        const KERNEL(bytes) a = x[0], b = x[1], c = x[2], d = x[3];
        KERNEL(f32) *y = (KERNEL(f32) *)(t + i);
        VECTOR_STREAM(y, (KERNEL(f32))a);
        VECTOR_STREAM(y + 1, (KERNEL(f32))b);
        VECTOR_STREAM(y + 2, (KERNEL(f32))c);
        VECTOR_STREAM(y + 3, (KERNEL(f32))d);
    }
    memcpy(t + i, f + i, bytes - i);
    VECTOR_STREAM_END;
}

KERNEL_TARGET static void KERNEL(sum_bf16)(uint16_t *out, const uint16_t *const *in, uint32_t in_count,
                                           uint64_t count)
{
    uint64_t i = 0;
    for (; i + VECTOR_FLOATS <= count; i += VECTOR_FLOATS) {
        /* The first input begins the sum: 0 + x would lose the sign of -0. */
        KERNEL(f32) sum = KERNEL(widen)(in[0] + i);
        for (uint32_t r = 1; r < in_count; r++)
            sum = sum + KERNEL(widen)(in[r] + i);
        *(KERNEL(u16) *)(out + i) = __builtin_convertvector(KERNEL(rounded_sum_bits)(sum) >> 16, KERNEL(u16));
    }
    for (; i < count; i++) {
        float sum = eo_bf16_to_float(in[0][i]);
        for (uint32_t r = 1; r < in_count; r++)
            sum = sum + eo_bf16_to_float(in[r][i]);
        out[i] = eo_bf16_of_sum(sum);
    }
}

static const struct eo_cpu_kernels KERNEL(table) = {
    .name = VECTOR_NAME,
    .accumulate = KERNEL(accumulate),
    .sum_squares = KERNEL(sum_squares),
    .accumulate_sum_squares = KERNEL(accumulate_sum_squares),
    .widen_bf16 = KERNEL(widen_bf16),
    .round_bf16 = KERNEL(round_bf16),
    .largest_bf16 = KERNEL(largest_bf16),
    .narrow_float8 = KERNEL(narrow_float8),
    .widen_float8 = KERNEL(widen_float8),
    .widen_mxfp8 = KERNEL(widen_mxfp8),
    .widen_mxfp8_to_fp32 = KERNEL(widen_mxfp8_to_fp32),
    .update = {[EO_RULE_ADAMW] = KERNEL(adamw), [EO_RULE_SGD] = KERNEL(sgd), [EO_RULE_LION] = KERNEL(lion),
               [EO_RULE_ADAMW8BIT] = KERNEL(adamw8bit), [EO_RULE_MUON] = KERNEL(muon),
               [EO_RULE_DIRECTION] = KERNEL(direction)},
    .average = KERNEL(average),
    .sum_fp32 = KERNEL(sum_fp32),
    .sum_bf16 = KERNEL(sum_bf16),
    .stream_copy = KERNEL(stream_copy),
};

#undef KERNEL
#undef KERNEL_TARGET
#undef VECTOR_FLOATS
#undef VECTOR_SQRT
#undef VECTOR_LOOKUP
#undef VECTOR_MIN
#undef VECTOR_LARGEST
#undef VECTOR_UNLESS_0
#undef VECTOR_MAX
#undef VECTOR_BYTES
#undef VECTOR_SIGNED_BYTES
#undef VECTOR_STEPS
#undef VECTOR_STREAM
#undef VECTOR_STREAM_END
#undef VECTOR_NAME
