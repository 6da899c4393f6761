/* SPDX-License-Identifier: MIT
 *
 * float8: against the formula of the format in double, and against PyTorch; every instruction set and any number of workers.
 */
#include "base/float8.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "base/float_mode.h"
#include "streams/bf16.h"
#include "streams/cpu/device.h"

enum { CODES = 128, LARGEST = CODES - 2, GUARD = 64 };

/* -1^s 2^(e - 7) 1.mmm, or 2^-6 0.mmm. */
static double value_of(int code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double magnitude = exponent ? ldexp(1 + mantissa / 8.0, exponent - 7) : ldexp(mantissa / 8.0, -6);
    return code & 0x80 ? -magnitude : magnitude;
}

/* The nearest of all codes; of two, the even one; none is larger than the largest. */
static int nearest_code(double value)
{
    int best = 0;
    for (int code = 1; code <= LARGEST; code++) {
        const double now = fabs(value_of(code) - fabs(value)), before = fabs(value_of(best) - fabs(value));
        if (now < before || (now == before && code % 2 == 0))
            best = code;
    }
    return signbit(value) ? best | 0x80 : best;
}

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

Test(float8, each_code_has_the_value_of_the_format)
{
    for (int code = 0; code < 256; code++) {
        const float value = eo_float8_to_float((uint8_t)code);
        if ((code & 0x7f) == EO_FLOAT8_NAN)
            cr_assert(isnan(value));
        else
            cr_assert(value == (float)value_of(code) && !signbit(value) == !(code & 0x80), "code %02x is %a", (unsigned)code,
                      value);
    }
    cr_assert_eq(value_of(LARGEST), 448);
    cr_assert_eq(value_of(1), ldexp(1, -9));
}

/* Goal: to nearest, ties to even; saturation; signed zeros; what is not finite is NaN. Method: the codes' neighbourhoods: each
 * value, each middle between two, and the floats beside both; then all bf16 numbers. */
Test(float8, rounds_to_the_nearest_and_ties_to_even)
{
    for (int code = 0; code < LARGEST; code++) {
        const float value = (float)value_of(code), middle = (float)((value_of(code) + value_of(code + 1)) / 2);
        const float near[] = {value, nextafterf(value, 1e9f), middle, nextafterf(middle, 0), nextafterf(middle, 1e9f)};
        for (int i = 0; i < 5; i++)
            for (int sign = 0; sign < 2; sign++) {
                const float x = sign ? -near[i] : near[i];
                cr_assert_eq(eo_float8_round(x), nearest_code((double)x), "%a: %02x", (double)x, (unsigned)eo_float8_round(x));
            }
        cr_assert_eq(eo_float8_round(middle), code + code % 2, "a tie goes to the even code");
    }
    for (uint32_t bits = 0; bits < 1 << 16; bits++) {
        const float x = eo_bf16_to_float((uint16_t)bits);
        if (isfinite(x))
            cr_assert_eq(eo_float8_round(x), nearest_code((double)x), "%a", (double)x);
        else
            cr_assert_eq(eo_float8_round(x), bits >> 15 << 7 | EO_FLOAT8_NAN);
    }
    cr_assert_eq(eo_float8_round(1e30f), LARGEST);
    cr_assert_eq(eo_float8_round(-465.0f), 0x80 | LARGEST);
}

/* Of each code the largest float that PyTorch 2.15 rounds to it (torch.float8_e4m3fn), found by bisection. Beyond the last, the
 * largest finite one, stands NaN. */
static const uint32_t last_of_code[LARGEST + 1] = {
    0x3a800000, 0x3b3fffff, 0x3ba00000, 0x3bdfffff, 0x3c100000, 0x3c2fffff, 0x3c500000, 0x3c6fffff,
    0x3c880000, 0x3c97ffff, 0x3ca80000, 0x3cb7ffff, 0x3cc80000, 0x3cd7ffff, 0x3ce80000, 0x3cf7ffff,
    0x3d080000, 0x3d17ffff, 0x3d280000, 0x3d37ffff, 0x3d480000, 0x3d57ffff, 0x3d680000, 0x3d77ffff,
    0x3d880000, 0x3d97ffff, 0x3da80000, 0x3db7ffff, 0x3dc80000, 0x3dd7ffff, 0x3de80000, 0x3df7ffff,
    0x3e080000, 0x3e17ffff, 0x3e280000, 0x3e37ffff, 0x3e480000, 0x3e57ffff, 0x3e680000, 0x3e77ffff,
    0x3e880000, 0x3e97ffff, 0x3ea80000, 0x3eb7ffff, 0x3ec80000, 0x3ed7ffff, 0x3ee80000, 0x3ef7ffff,
    0x3f080000, 0x3f17ffff, 0x3f280000, 0x3f37ffff, 0x3f480000, 0x3f57ffff, 0x3f680000, 0x3f77ffff,
    0x3f880000, 0x3f97ffff, 0x3fa80000, 0x3fb7ffff, 0x3fc80000, 0x3fd7ffff, 0x3fe80000, 0x3ff7ffff,
    0x40080000, 0x4017ffff, 0x40280000, 0x4037ffff, 0x40480000, 0x4057ffff, 0x40680000, 0x4077ffff,
    0x40880000, 0x4097ffff, 0x40a80000, 0x40b7ffff, 0x40c80000, 0x40d7ffff, 0x40e80000, 0x40f7ffff,
    0x41080000, 0x4117ffff, 0x41280000, 0x4137ffff, 0x41480000, 0x4157ffff, 0x41680000, 0x4177ffff,
    0x41880000, 0x4197ffff, 0x41a80000, 0x41b7ffff, 0x41c80000, 0x41d7ffff, 0x41e80000, 0x41f7ffff,
    0x42080000, 0x4217ffff, 0x42280000, 0x4237ffff, 0x42480000, 0x4257ffff, 0x42680000, 0x4277ffff,
    0x42880000, 0x4297ffff, 0x42a80000, 0x42b7ffff, 0x42c80000, 0x42d7ffff, 0x42e80000, 0x42f7ffff,
    0x43080000, 0x4317ffff, 0x43280000, 0x4337ffff, 0x43480000, 0x4357ffff, 0x43680000, 0x4377ffff,
    0x43880000, 0x4397ffff, 0x43a80000, 0x43b7ffff, 0x43c80000, 0x43d7ffff, 0x7f7fffff,
};

Test(float8, rounds_as_pytorch_does)
{
    for (int code = 0; code <= LARGEST; code++) {
        cr_assert_eq(eo_float8_round(of_bits(last_of_code[code])), code, "%02x", (unsigned)code);
        cr_assert_eq(eo_float8_round(of_bits(last_of_code[code] + 1)), code + 1, "%02x", (unsigned)code);
    }
}

/* Goal: the scale is the smallest power of two that brings the largest weight to 448, so nothing saturates; its inverse is
 * exact. Method: all finite bf16 numbers, by frexp. */
Test(float8, scales_are_the_smallest_powers_of_two)
{
    for (uint32_t bits = 0; bits < 0x7f80; bits++) {
        const double largest = (double)eo_bf16_to_float((uint16_t)bits), scale = (double)eo_float8_scale((uint16_t)bits);
        int exponent;
        cr_assert(frexp(scale, &exponent) == 0.5, "not a power of two");
        cr_assert_leq(largest / scale, 448);
        cr_assert(largest / scale * 2 > 448 || scale == ldexp(1, EO_FLOAT8_SCALE_MIN), "%a has scale %a", largest, scale);
        cr_assert_eq((double)eo_float8_inverse((float)scale), 1 / scale);
    }
    for (uint32_t bits = 0x7f80; bits < 0x8000; bits += 0x7f) /* a finite neighbour stays finite */
        cr_assert(isfinite(eo_float8_scale((uint16_t)bits)) && isfinite(1 / eo_float8_scale((uint16_t)bits)));
}

/* Goal: widened is float8 x scale to the bit, and within 1/16 of the weight, or half of 2^-9 scale. Method: every bf16 number
 * beside each of a few largest ones, in double. */
Test(float8, a_weight_comes_back_within_the_stated_error)
{
    static const uint16_t all[] = {0, 1, 0x0080, 0x3f80, 0x3fe0, 0x3fe1, 0x0a00, 0x6123, 0x7f00};
    for (size_t a = 0; a < sizeof(all) / sizeof(all[0]); a++) {
        const float scale = eo_float8_scale(all[a]);
        for (uint32_t bits = 0; bits <= all[a]; bits++) {
            const double weight = (double)eo_bf16_to_float((uint16_t)bits);
            const uint8_t narrow = eo_float8_narrow((uint16_t)bits, eo_float8_inverse(scale));
            const double wide = (double)eo_bf16_to_float(eo_float8_widen(narrow, scale));
            cr_assert_eq(narrow, nearest_code(weight / (double)scale));
            cr_assert_eq(wide, value_of(narrow) * (double)scale);
            cr_assert_leq(fabs(wide - weight), fmax(weight / 16, (double)scale * ldexp(1, -10)), "%a came back as %a",
                          weight, wide);
            cr_assert_eq(eo_float8_widen(eo_float8_narrow((uint16_t)(bits | 0x8000), eo_float8_inverse(scale)), scale),
                         eo_float8_widen(narrow, scale) | 0x8000, "the sign is lost");
        }
    }
}

/* Not finite, they are seen in what is gathered; others beside them stay finite, but small ones are lost beside the scale. */
Test(float8, weights_that_are_not_finite_become_nan_alone)
{
    static const uint16_t bad[] = {0x7f80, 0xff80, 0x7fc0, 0xffff};
    for (size_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++) {
        const float scale = eo_float8_scale(bad[b] & 0x7fff), inverse = eo_float8_inverse(scale);
        cr_assert(isnan(eo_bf16_to_float(eo_float8_widen(eo_float8_narrow(bad[b], inverse), scale))));
        for (uint32_t bits = 0x7000; bits < 0x7f80; bits++)
            cr_assert(isfinite(eo_float8_to_float(eo_float8_narrow((uint16_t)bits, inverse))));
        cr_assert_eq(eo_float8_widen(eo_float8_narrow(0x3f80, inverse), scale), 0, "of 1 is left");
    }
}

/* Goal: every set of instructions has the bits of the functions above. Method: all bf16 numbers and all codes, in arrays of
 * every small length and at odd places, with guards. */
Test(float8, every_instruction_set_rounds_alike)
{
    static uint16_t weights[(1 << 16) + 2 * GUARD], wide[1 << 16];
    static uint8_t narrow[(1 << 16) + 2 * GUARD], codes[1 << 16];
    for (uint32_t i = 0; i < 1 << 16; i++) {
        weights[i] = (uint16_t)(i * 40503);
        codes[i] = (uint8_t)(i * 167 >> 3);
    }
    for (uint32_t k = 0; k < eo_cpu_kernels_count(); k++) {
        const struct eo_cpu_kernels *kernels = eo_cpu_kernels_at(k);
        for (uint64_t count = 0; kernels && count < (1 << 16); count = count < 100 ? count + 1 : count * 3 + 1) {
            for (uint64_t skew = 0; skew < 2; skew++) {
                const float scale = ldexpf(1, (int)(count % 60) - 40);
                uint16_t largest = 0;
                memset(narrow, 0xaa, sizeof(narrow));
                memset(wide, 0xaa, sizeof(wide));
                kernels->narrow_float8(narrow + GUARD + skew, weights + skew, eo_float8_inverse(scale), count);
                for (uint64_t i = 0; i < count; i++) {
                    largest = (weights[skew + i] & 0x7fff) > largest ? weights[skew + i] & 0x7fff : largest;
                    cr_assert_eq(narrow[GUARD + skew + i], eo_float8_narrow(weights[skew + i], eo_float8_inverse(scale)),
                                 "%s, %04x", kernels->name, weights[skew + i]);
                }
                cr_assert(narrow[GUARD + skew - 1] == 0xaa && narrow[GUARD + skew + count] == 0xaa, "%s writes beside",
                          kernels->name);
                cr_assert_eq(kernels->largest_bf16(weights + skew, count), largest, "%s", kernels->name);
                kernels->widen_float8(wide + skew, codes + skew, scale, count);
                for (uint64_t i = 0; i < count; i++)
                    cr_assert_eq(wide[skew + i], eo_float8_widen(codes[skew + i], scale), "%s, %02x", kernels->name,
                                 codes[skew + i]);
                cr_assert_eq(wide[skew + count], 0xaaaa, "%s writes beside", kernels->name);
            }
        }
    }
}

/* Goal: threads that treat denormals as zero have the same bits. Method: all bf16 numbers with the smallest, a usual and the
 * largest scale, in the usual modes and in those of products. */
Test(float8, denormal_modes_change_no_bit)
{
    static const int exponents[] = {EO_FLOAT8_SCALE_MIN, 0, 120};
    static uint16_t weights[1 << 16], wide[2][1 << 16];
    static uint8_t narrow[2][1 << 16];
    const struct eo_cpu_kernels *kernels = eo_cpu_kernels_best();
    const uint64_t usual = eo_float_mode_get();
    for (uint32_t i = 0; i < 1 << 16; i++)
        weights[i] = (uint16_t)i;
    for (int e = 0; e < 3; e++) {
        for (int zero = 0; zero < 2; zero++) {
            const float scale = ldexpf(1, exponents[e]);
            eo_float_mode_set(zero ? usual | EO_FLOAT_MODE_FLUSH : usual);
            kernels->narrow_float8(narrow[zero], weights, eo_float8_inverse(scale), 1 << 16);
            kernels->widen_float8(wide[zero], narrow[zero], scale, 1 << 16);
            eo_float_mode_set(usual);
        }
        cr_assert_eq(memcmp(narrow[0], narrow[1], sizeof(narrow[0])), 0, "2^%d", exponents[e]);
        cr_assert_eq(memcmp(wide[0], wide[1], sizeof(wide[0])), 0, "2^%d", exponents[e]);
    }
}

/* A team that runs its tasks backwards. */
static void run_backwards(void *team, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    *(uint32_t *)team += count;
    while (count-- > 0)
        task(arg, count);
}

/* Goal: a run's scale is that of all its weights, whoever looks at which; what is no float8 run is copied.
 * Method: runs of many chunks, the largest weight of one in its last element; alone and with a team. */
Test(float8, results_do_not_depend_on_the_workers)
{
    enum { COUNT = 400001, SHORT = 100 };
    uint16_t *weights = malloc(COUNT * sizeof(*weights)), *wide = malloc(2 * COUNT * sizeof(*wide));
    uint8_t *narrow = malloc(2 * (COUNT + 2 * SHORT));
    uint32_t tasks = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        weights[i] = (uint16_t)(i * 40503 % 0x3f00);
    weights[COUNT - 1] = 0xc2c8; /* -100 */
    for (int with_team = 0; with_team < 2; with_team++) {
        struct eo_device_params params = {.queue_count = 1, .rank_count = 1};
        struct eo_device *device;
        uint8_t *to = narrow + with_team * (COUNT + 2 * SHORT);
        uint16_t *back = wide + with_team * COUNT;
        float scales[2];
        if (with_team)
            params.workers = (struct eo_workers){run_backwards, &tasks, 2};
        cr_assert_eq(eo_device_create(&device, "cpu", &params), EO_OK);
        device->ops->narrow(device, (struct eo_float8_run[]){{weights + SHORT, to, &scales[0], COUNT - SHORT},
                                                             {weights, to + COUNT, NULL, SHORT}}, 2);
        cr_assert_eq((double)scales[0], 0.25); /* 100 / 448 is more than an eighth */
        device->ops->widen(device, (struct eo_float8_run[]){{back + SHORT, to, &scales[0], COUNT - SHORT},
                                                            {back, to + COUNT, NULL, SHORT}}, 2);
        cr_assert_eq(memcmp(back, weights, SHORT * sizeof(*back)), 0);
        for (uint32_t i = SHORT; i < COUNT; i++)
            cr_assert_eq(back[i], eo_float8_widen(eo_float8_narrow(weights[i], 4), 0.25f));
        eo_device_destroy(&device);
    }
    cr_assert_eq(tasks, 3 * 5, "the team was not used");
    cr_assert_eq(memcmp(wide, wide + COUNT, COUNT * sizeof(*wide)), 0);
    free(weights);
    free(wide);
    free(narrow);
}
