/* SPDX-License-Identifier: MIT
 *
 * MXFP8: blocks against the formula in double; every instruction set and any number of workers.
 */
#include "base/mxfp8.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "streams/bf16.h"
#include "streams/cpu/device.h"

enum { GUARD = 64 };

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Of either sign; blocks have sizes of their own, within one they differ by up to 2^spread. */
static float random_weight(uint64_t *state, int size, unsigned spread)
{
    const float part = (float)(next_random(state) % (1 << 24)) / (1 << 23) - 1;
    return ldexpf(part, size - (int)(next_random(state) % (spread + 1)));
}

/* The smallest power of two that brings the largest weight to 448, but no smaller one than 2^-100. */
static double scale_of(const float *weights, uint64_t count)
{
    double largest = 0, scale = ldexp(1, -100);
    for (uint64_t i = 0; i < count; i++)
        largest = isfinite(weights[i]) ? fmax(largest, fabs((double)weights[i])) : largest;
    while (largest / scale > 448)
        scale *= 2;
    return scale;
}

/* Four significant bits, ties to even, but no finer than 2^-9 of the scale. */
static double rounded(double weight, double scale)
{
    int exponent;
    (void)frexp(weight / scale, &exponent);
    const double unit = ldexp(scale, exponent - 4 > -9 ? exponent - 4 : -9);
    return nearbyint(weight / unit) * unit;
}

/* Goal: a weight comes back as the formula says, in bf16 too, and from then on as it is. Method: random blocks of every length, of
 * sizes from the smallest to the largest numbers, some with zeros. */
Test(mxfp8, blocks_round_by_the_formula)
{
    uint64_t state = 20230901;
    uint32_t small = 0, scales = 0;
    for (int round = 0; round < 40000; round++) {
        const uint64_t count = 1 + next_random(&state) % EO_MXFP8_BLOCK;
        const int size = (int)(next_random(&state) % 240) - 115;
        float weights[EO_MXFP8_BLOCK], wide[EO_MXFP8_BLOCK];
        uint8_t exponent, again, elements[EO_MXFP8_BLOCK], others[EO_MXFP8_BLOCK];
        for (uint64_t i = 0; i < count; i++)
            weights[i] = next_random(&state) % 16 ? random_weight(&state, size, 20) : 0;
        const double scale = scale_of(weights, count);
        eo_mxfp8_narrow_block(&exponent, elements, weights, count);
        cr_assert_eq((double)eo_mxfp8_scale(exponent), scale);
        for (uint64_t i = 0; i < count; i++) {
            wide[i] = eo_mxfp8_widen(elements[i], exponent);
            cr_assert_eq((double)wide[i], rounded((double)weights[i], scale), "%a with scale %a", (double)weights[i], scale);
            cr_assert_eq(signbit(wide[i]), signbit(weights[i]));
            cr_assert_eq(eo_bf16_to_float(eo_bf16_round(wide[i])), wide[i], "bf16 does not hold it");
            small += fabs((double)wide[i]) < scale / 64;
        }
        eo_mxfp8_narrow_block(&again, others, wide, count);
        for (uint64_t i = 0; i < count; i++)
            cr_assert_eq(eo_mxfp8_widen(others[i], again), wide[i], "%a does not stay", (double)wide[i]);
        scales += again != exponent;
    }
    cr_assert(small > 1000 && scales > 0, "the cases have no small elements, or no block whose scale shrinks");
}

/* Goal: nothing saturates, the largest weights not lost. Method: the weights around the bounds of scales, alone in a block. */
Test(mxfp8, the_largest_weight_decides_the_scale)
{
    for (int e = -90; e < 110; e++) {
        const float bound = ldexpf(448, e), above = nextafterf(bound, INFINITY);
        uint8_t exponents[2], elements[2];
        eo_mxfp8_narrow_block(&exponents[0], &elements[0], &bound, 1);
        eo_mxfp8_narrow_block(&exponents[1], &elements[1], &above, 1);
        cr_assert(exponents[0] == e + 127 && elements[0] == 0x7e);
        cr_assert(exponents[1] == e + 128 && elements[1] == 0x76, "224 of the next scale");
    }
}

/* Zeros, and weights that are not finite: NaN where they stand, and of no account beside. */
Test(mxfp8, weights_that_are_not_finite_become_nan_alone)
{
    float weights[EO_MXFP8_BLOCK] = {0};
    uint8_t exponent, elements[EO_MXFP8_BLOCK];
    eo_mxfp8_narrow_block(&exponent, elements, weights, EO_MXFP8_BLOCK);
    for (int i = 0; i < EO_MXFP8_BLOCK; i++)
        cr_assert_eq(eo_mxfp8_widen(elements[i], exponent), 0);
    for (int i = 0; i < EO_MXFP8_BLOCK; i++)
        weights[i] = i == 3 ? INFINITY : i == 17 ? -INFINITY : i == 30 ? NAN : (float)(i + 1);
    eo_mxfp8_narrow_block(&exponent, elements, weights, EO_MXFP8_BLOCK);
    cr_assert_eq(eo_mxfp8_scale(exponent), ldexpf(1, -3), "of 32, not of an infinity");
    for (int i = 0; i < EO_MXFP8_BLOCK; i++) {
        const float wide = eo_mxfp8_widen(elements[i], exponent);
        cr_assert(isfinite(weights[i]) ? (double)wide == rounded((double)weights[i], 0.125) : isnan(wide));
    }
    cr_assert_eq(eo_mxfp8_widen(0, 0), 0, "memory of zeros has weights of zero");
}

/* Goal: every set of instructions has the bits of the functions above. Method: all codes with all scales that there are, and
 * memory of zeros; every small length, odd places, and guards. */
Test(mxfp8, every_instruction_set_widens_alike)
{
    enum { CODES = 256, SCALES = 222, COUNT = CODES * SCALES };
    static uint8_t codes[COUNT + 1], exponents[COUNT / EO_MXFP8_BLOCK + 1];
    static uint16_t halves[COUNT + GUARD];
    static float floats[COUNT + GUARD];
    for (uint32_t i = 0; i < COUNT; i++)
        codes[i] = (uint8_t)i;
    for (uint32_t i = 0; i < COUNT / EO_MXFP8_BLOCK; i++)
        exponents[i] = (uint8_t)(27 + i / 8 % SCALES);
    for (uint32_t k = 0; k < eo_cpu_kernels_count(); k++) {
        const struct eo_cpu_kernels *kernels = eo_cpu_kernels_at(k);
        for (uint64_t count = 0; kernels && count <= COUNT; count = count < 100 ? count + 1 : count == COUNT ? COUNT + 1 : COUNT) {
            const uint64_t skew = count % 2;
            memset(halves, 0xaa, sizeof(halves));
            memset(floats, 0xaa, sizeof(floats));
            kernels->widen_mxfp8(halves + skew, exponents, codes, count);
            kernels->widen_mxfp8_to_fp32(floats + skew, exponents, codes, count);
            for (uint64_t i = 0; i < count; i++) {
                const float want = eo_mxfp8_widen(codes[i], exponents[i / EO_MXFP8_BLOCK]);
                const bool is_nan = (codes[i] & 0x7f) == EO_FLOAT8_NAN;
                cr_assert(is_nan ? isnan(floats[skew + i]) : floats[skew + i] == want, "%s, %02x, %d", kernels->name, codes[i],
                          exponents[i / EO_MXFP8_BLOCK]);
                const float half = eo_bf16_to_float(halves[skew + i]);
                if (isfinite(want) || is_nan)
                    cr_assert(is_nan ? isnan(half) : half == want, "%s, %02x, %d", kernels->name, codes[i],
                              exponents[i / EO_MXFP8_BLOCK]);
            }
            cr_assert(halves[skew + count] == 0xaaaa && eo_float8_bits(floats[skew + count]) == 0xaaaaaaaa, "%s writes beside",
                      kernels->name);
        }
        static const uint8_t zeros[EO_MXFP8_BLOCK];
        if (!kernels)
            continue;
        kernels->widen_mxfp8(halves, zeros, zeros, EO_MXFP8_BLOCK);
        kernels->widen_mxfp8_to_fp32(floats, zeros, zeros, EO_MXFP8_BLOCK);
        for (int i = 0; i < EO_MXFP8_BLOCK; i++)
            cr_assert(halves[i] == 0 && floats[i] == 0, "memory of zeros");
    }
}

/* A team that runs its tasks backwards. */
static void run_backwards(void *team, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    *(uint32_t *)team += count;
    while (count-- > 0)
        task(arg, count);
}

/* Goal: whoever widens which chunk, and what has no exponents is copied. Method: runs of several chunks, one that ends within a
 * block; alone and with a team. */
Test(mxfp8, results_do_not_depend_on_the_workers)
{
    enum { COUNT = 400001, SHORT = 100 };
    uint8_t *codes = malloc(COUNT), *exponents = malloc(COUNT / EO_MXFP8_BLOCK + 1);
    float *wide = malloc((COUNT + SHORT) * sizeof(*wide)), plain[SHORT];
    uint16_t *half = malloc(COUNT * sizeof(*half));
    uint32_t tasks = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        codes[i] = (uint8_t)(i * 167 >> 3 & 0xfe); /* no NaN */
    for (uint32_t i = 0; i <= COUNT / EO_MXFP8_BLOCK; i++)
        exponents[i] = (uint8_t)(100 + i * 7 % 50);
    for (uint32_t i = 0; i < SHORT; i++)
        plain[i] = (float)i / 7;
    for (int with_team = 0; with_team < 2; with_team++) {
        struct eo_device_params params = {.queue_count = 1, .rank_count = 1};
        struct eo_device *device;
        if (with_team)
            params.workers = (struct eo_workers){run_backwards, &tasks, 2};
        cr_assert_eq(eo_device_create(&device, "cpu", &params), EO_OK);
        memset(wide, 0xaa, (COUNT + SHORT) * sizeof(*wide));
        memset(half, 0xaa, COUNT * sizeof(*half));
        device->ops->widen_mxfp8(device, (struct eo_mxfp8_run[]){{wide, codes, exponents, COUNT, EO_DTYPE_FP32},
                                                                 {wide + COUNT, (const uint8_t *)plain, NULL, SHORT, EO_DTYPE_FP32},
                                                                 {half, codes, exponents, COUNT, EO_DTYPE_BF16}}, 3);
        for (uint32_t i = 0; i < COUNT; i++) {
            const float want = eo_mxfp8_widen(codes[i], exponents[i / EO_MXFP8_BLOCK]);
            cr_assert(wide[i] == want && eo_bf16_to_float(half[i]) == want, "element %u", i);
        }
        cr_assert_eq(memcmp(wide + COUNT, plain, sizeof(plain)), 0);
        eo_device_destroy(&device);
    }
    cr_assert_eq(tasks, 4 + 1 + 4, "the team was not used");
    free(codes);
    free(exponents);
    free(wide);
    free(half);
}
