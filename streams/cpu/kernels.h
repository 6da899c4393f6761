/* SPDX-License-Identifier: MIT
 *
 * Element-wise kernels for one thread, one table per instruction set, picked at run time.
 *
 * All tables give the same bits: every element goes through the same IEEE operations in the same order, the build
 * forbids fusing a product with a sum, and sums are taken over EO_SUM_LANES lanes whatever the vectors' width is
 * (streams/sum_order.h).
 * The caller's rounding and denormal modes are used as they are.
 */
#ifndef EO_STREAMS_CPU_KERNELS_H
#define EO_STREAMS_CPU_KERNELS_H

#include "streams/device.h"
#include "streams/sum_order.h"

/*
 * From so many bytes on, what a copy or a collective writes goes past the caches ("streamed"): it would not stay in
 * them, and the line need not be read before it is written. Measured with two threads on a Sapphire Rapids server:
 * 28 MB 6.8 -> 9.0 GB/s, 8 MiB equal, 2 MiB slower, and slower to read afterwards.
 */
#define EO_STREAM_BYTES ((uint64_t)16 << 20)

/* Of a range's group in a step. */
struct eo_update_numbers {
    float learning_rate, beta1, beta2, eps, weight_decay;
    float bias_correction1, bias_correction2;
    float scale;
    float momentum;
};

struct eo_cpu_kernels {
    const char *name;

    /* to[i] += from[i] */
    void (*accumulate)(float *to, const float *from, uint64_t count);
    /* Of one chunk of streams/sum_order.h. */
    double (*sum_squares)(const float *values, uint64_t count);
    /* accumulate, and the sum of squares of the result */
    double (*accumulate_sum_squares)(float *to, const float *from, uint64_t count);
    /* to[i] = from[i], or += where `add` */
    void (*widen_bf16)(float *to, const uint16_t *from, bool add, uint64_t count);
    void (*round_bf16)(uint16_t *to, const float *from, uint64_t count);
    /* The bits of the largest absolute value, infinities and NaN included. */
    uint16_t (*largest_bf16)(const uint16_t *from, uint64_t count);
    /* As base/float8.h says. */
    void (*narrow_float8)(uint8_t *to, const uint16_t *from, float inverse, uint64_t count);
    void (*widen_float8)(uint16_t *to, const uint8_t *from, float scale, uint64_t count);
    /* As base/mxfp8.h says; from the begin of a block on. */
    void (*widen_mxfp8)(uint16_t *to, const uint8_t *exponents, const uint8_t *from, uint64_t count);
    void (*widen_mxfp8_to_fp32)(float *to, const uint8_t *exponents, const uint8_t *from, uint64_t count);
    /* Elements [begin, begin + count) of the range; g = gradient * numbers->scale. */
    void (*update[EO_RULE_COUNT])(const struct eo_update_range *range, const struct eo_update_numbers *numbers, uint64_t begin,
                                  uint64_t count);
    /* Elements [begin, begin + count); rest = 1 - decay. */
    void (*average)(const struct eo_average *all, enum eo_average_mode mode, float rest, uint64_t begin, uint64_t count);

    /*
     * out[i] = in[0][i] + in[1][i] + ... in this order, in fp32. `out` may be any of the inputs, but not shifted.
     * `stream`: past the caches. bf16: widened, summed in fp32, rounded once, to nearest with ties away from zero.
     */
    void (*sum_fp32)(float *out, const float *const *in, uint32_t in_count, uint64_t count, bool stream);
    void (*sum_bf16)(uint16_t *out, const uint16_t *const *in, uint32_t in_count, uint64_t count);

    /* memcpy past the caches. */
    void (*stream_copy)(void *to, const void *from, uint64_t bytes);
};

/* The fastest that this machine runs. */
const struct eo_cpu_kernels *eo_cpu_kernels_best(void);

/* For tests: the i-th table, fastest first; NULL where this machine cannot run it; i < eo_cpu_kernels_count(). */
const struct eo_cpu_kernels *eo_cpu_kernels_at(uint32_t index);
uint32_t eo_cpu_kernels_count(void);

#endif
