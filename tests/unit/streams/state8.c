/* SPDX-License-Identifier: MIT
 *
 * Optimizer state in 8 bits: its map, and the kernels of every instruction set. The update as a whole is held against plain loops
 * in tests/conformance/device/kernels.c, and the losses against another implementation in torch_optimizers.c.
 */
#include "streams/state8.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "base/float_mode.h"
#include "streams/bf16.h"
#include "streams/cpu/kernels.h"

/* The construction of Dettmers et al., section 1.3 and figure 2, in double: with `signed` one bit less for the fraction. */
static uint32_t make_map(double values[256], bool is_signed)
{
    uint32_t count = 0;
    values[count++] = 0;
    values[count++] = 1;
    for (int exponent = 0; exponent < 7; exponent++) {
        const int cells = 1 << (is_signed ? exponent : exponent + 1);
        for (int k = 0; k < cells; k++) {
            const double begin = 0.1 + 0.9 * k / cells, end = 0.1 + 0.9 * (k + 1) / cells;
            values[count++] = pow(10, exponent - 6) * (begin + end) / 2;
            if (is_signed)
                values[count++] = -pow(10, exponent - 6) * (begin + end) / 2;
        }
    }
    return count;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Goal: the 256 values are those of the paper. Method: both sorted. */
Test(state8, the_map_is_the_papers)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        double wanted[256], values[256];
        cr_assert_eq(make_map(wanted, is_signed), 256);
        for (int c = 0; c < 256; c++)
            values[c] = (double)eo_state8_value((uint8_t)c, is_signed);
        qsort(wanted, 256, sizeof(double), compare_doubles);
        qsort(values, 256, sizeof(double), compare_doubles);
        for (int i = 0; i < 256; i++)
            cr_assert(fabs(values[i] - wanted[i]) <= 3e-7 * fabs(wanted[i]), "%d: %g, not %g", i, values[i], wanted[i]);
        cr_assert_eq(eo_state8_value(0, is_signed), 0.0f, "memory of zeros is zeros");
    }
}

/* The nearest value's distance; of second moments above 0 without 0. */
static double nearest(double x, bool is_signed)
{
    double best = 9;
    for (int c = 0; c < 256; c++)
        if (is_signed || c > 0 || x == 0)
            best = fmin(best, fabs(x - (double)eo_state8_value((uint8_t)c, is_signed)));
    return best;
}

/* Goal: a code is that of the nearest value, and only 0 becomes a second moment of 0. Method: all of them, and 20000 numbers. */
Test(state8, a_code_is_the_nearest)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        for (int c = 0; c < 256; c++)
            cr_assert_eq(eo_state8_code(eo_state8_value((uint8_t)c, is_signed), is_signed), c);
        for (int i = 0; i < 20000; i++) {
            const float size = powf(10, -9.0f * (float)i / 20000), x = is_signed && i % 2 ? -size : size;
            const uint8_t code = eo_state8_code(x, is_signed);
            const double distance = fabs((double)x - (double)eo_state8_value(code, is_signed));
            cr_assert(distance <= nearest((double)x, is_signed) + 1e-6 * (double)size, "%g: %d", (double)x, code);
            cr_assert(is_signed || code > 0);
        }
        cr_assert_eq(eo_state8_code(0, is_signed), 0);
        cr_assert_eq(eo_state8_value(eo_state8_code(INFINITY, is_signed), is_signed), 1.0f);
    }
}

enum { BLOCKS = 3, COUNT = BLOCKS * EO_STATE8_ELEMENTS };

struct arrays {
    float weights[COUNT], gradient[COUNT];
    uint16_t high[COUNT];
    int16_t low[COUNT];
    struct eo_state8 first[BLOCKS], second[BLOCKS];
};

/* Three steps of the last table (plain), or of another; the third gradient is so large that moments are infinite. */
static void run_steps(const struct eo_cpu_kernels *set, struct arrays *a, bool split)
{
    const struct eo_update_numbers numbers = {.learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                                              .weight_decay = 0.1f, .bias_correction1 = 0.19f, .bias_correction2 = 0.0975f,
                                              .scale = 0.5f};
    uint32_t seed = 7;
    *a = (struct arrays){0};
    for (int i = 0; i < COUNT; i++)
        eo_bf16_split(a->weights[i] = (float)(i % 97) / 64 - 0.7f, &a->high[i], &a->low[i]);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < COUNT; i++) {
            seed = seed * 1664525u + 1013904223u;
            a->gradient[i] = i % 11 ? (float)(int32_t)seed * powf(10, (float)(step == 2 ? 12 : -9 - i % 8)) : 0;
        }
        const struct eo_update_range range = {.weights = split ? NULL : a->weights, .high = a->high, .low = a->low,
                                              .first_blocks = a->first, .second_blocks = a->second, .gradient = a->gradient,
                                              .count = COUNT};
        set->update[EO_RULE_ADAMW8BIT](&range, &numbers, 0, EO_STATE8_ELEMENTS); /* in two pieces */
        set->update[EO_RULE_ADAMW8BIT](&range, &numbers, EO_STATE8_ELEMENTS, COUNT - EO_STATE8_ELEMENTS);
    }
    for (int i = 0; i < COUNT; i++)
        cr_assert(isfinite(split ? eo_bf16_join(a->high[i], a->low[i]) : a->weights[i]), "%s: weight %d", set->name, i);
}

/* Goal: every instruction set has the same bits, moments of 1e-30 and infinite ones included. */
Test(state8, every_instruction_set_has_the_same_bits)
{
    static struct arrays wanted, given;
    const uint32_t count = eo_cpu_kernels_count();
    for (int split = 0; split < 2; split++) {
        run_steps(eo_cpu_kernels_at(count - 1), &wanted, split);
        cr_assert(wanted.first[0].largest > 0 && isfinite(wanted.second[1].largest));
        for (uint32_t k = 0; k + 1 < count; k++) {
            if (!eo_cpu_kernels_at(k))
                continue;
            run_steps(eo_cpu_kernels_at(k), &given, split);
            cr_assert_eq(memcmp(&given, &wanted, sizeof(given)), 0, "%s differs", eo_cpu_kernels_at(k)->name);
        }
    }
}

/* Goal: a weight without any gradient so far stays as it is, whatever the first step's eps, and where denormals are zero. */
Test(state8, moments_of_zero_are_no_step)
{
    static struct arrays a;
    const struct eo_update_numbers numbers = {.learning_rate = 1,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.999f,
                                              .eps = 1.17549435e-38f,
                                              .bias_correction1 = 0.1f,
                                              .bias_correction2 = 0.001f,
                                              .scale = 1};
    const struct eo_update_range range = {
        .weights = a.weights, .first_blocks = a.first, .second_blocks = a.second, .gradient = a.gradient, .count = COUNT};
    const uint64_t mode = eo_float_mode_get();
    for (uint32_t k = 0; k < 2 * eo_cpu_kernels_count(); k++) {
        if (!eo_cpu_kernels_at(k / 2))
            continue;
        eo_float_mode_set(k % 2 ? mode | EO_FLOAT_MODE_FLUSH : mode);
        eo_cpu_kernels_at(k / 2)->update[EO_RULE_ADAMW8BIT](&range, &numbers, 0, COUNT);
        eo_float_mode_set(mode);
        for (int i = 0; i < COUNT; i++)
            cr_assert_eq(a.weights[i], 0.0f, "%s, flushed %u: %g", eo_cpu_kernels_at(k / 2)->name, k % 2, (double)a.weights[i]);
    }
}
