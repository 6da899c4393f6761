/* SPDX-License-Identifier: MIT
 *
 * The element-wise kernels of the CPU device, for every instruction set this machine has and any number of workers.
 */
#include "streams/cpu/device.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_mode.h"
#include "streams/bf16.h"

enum { GUARD = 16, SMALL_MAX = 300 };

static float random_float(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) / 2147483648.0f;
}

/* `count` random values between guards of a value that no kernel makes. */
static float *make_values(uint64_t count, uint64_t seed, float scale)
{
    float *memory = malloc((count + 2 * GUARD) * sizeof(float));
    for (uint64_t i = 0; i < count + 2 * GUARD; i++)
        memory[i] = -12345.0f;
    for (uint64_t i = 0; i < count; i++)
        memory[GUARD + i] = random_float(&seed) * scale;
    return memory + GUARD;
}

static void drop_values(float *values, uint64_t count)
{
    for (int i = 0; i < GUARD; i++) {
        cr_assert_eq(values[-1 - i], -12345.0f, "written before the array");
        cr_assert_eq(values[count + (uint64_t)i], -12345.0f, "written after the array");
    }
    free(values - GUARD);
}

static void assert_same_bits(const float *a, const float *b, uint64_t count, const char *what, const char *set)
{
    for (uint64_t i = 0; i < count; i++)
        cr_assert_eq(memcmp(&a[i], &b[i], 4), 0, "%s, %s: element %d of %d is %a, not %a", what, set, (int)i,
                     (int)count, (double)a[i], (double)b[i]);
}

static const struct eo_update_numbers numbers = {.learning_rate = 3e-4f,
                                                .beta1 = 0.9f,
                                                .beta2 = 0.95f,
                                                .eps = 1e-8f,
                                                .weight_decay = 0.1f,
                                                .bias_correction1 = 0.271f,
                                                .bias_correction2 = 0.142625f,
                                                .scale = 0.37f,
                                                .momentum = 0.96f};

/* The formulas of streams/cpu/update_body.h, element by element; volatile, so that nothing is fused or kept wider. */
static void update_ref(enum eo_rule rule, const struct eo_update_range *range)
{
    const float rest1 = 1.0f - numbers.beta1, rest2 = 1.0f - numbers.beta2;
    for (uint64_t i = 0; i < range->count; i++) {
        const float weight = range->weights ? range->weights[i] : eo_bf16_join(range->high[i], range->low[i]);
        const float before = range->first_moment[i];
        volatile float g = range->gradient[i] * numbers.scale, decay = numbers.weight_decay * weight;
        volatile float a = numbers.beta1 * before, b = rest1 * g, m = a + b, both;
        if (rule == EO_RULE_ADAMW) {
            volatile float c = numbers.beta2 * range->second_moment[i], d = rest2 * g, e = d * g, v = c + e;
            volatile float mean = m / numbers.bias_correction1, variance = v / numbers.bias_correction2;
            volatile float root = sqrtf(variance), sum = root + numbers.eps, step = mean / sum;
            both = step + decay;
            range->second_moment[i] = v;
        } else if (rule == EO_RULE_SGD) {
            volatile float sum = g + decay;
            both = m = a + sum;
        } else if (rule == EO_RULE_MUON) {
            volatile float c = numbers.momentum * before, d = (1.0f - numbers.momentum) * g;
            m = c + d;
            both = range->second_moment[i] + decay;
        } else if (rule == EO_RULE_DIRECTION) {
            volatile float c = numbers.momentum * before, d = (1.0f - numbers.momentum) * g, next = c + d;
            volatile float e = numbers.momentum * next;
            range->second_moment[i] = d + e;
            continue;
        } else {
            volatile float c = numbers.beta2 * before, d = rest2 * g, sign = m > 0 ? 1 : m < 0 ? -1 : 0;
            both = sign + decay;
            m = c + d;
        }
        volatile float change = numbers.learning_rate * both;
        range->first_moment[i] = m;
        if (range->weights)
            range->weights[i] = weight - change;
        else
            eo_bf16_split(weight - change, &range->high[i], &range->low[i]);
    }
}

static struct eo_update_range make_range(uint64_t count)
{
    struct eo_update_range range = {.weights = make_values(count, 1, 2.0f),
                             .first_moment = make_values(count, 2, 0.1f),
                             .second_moment = make_values(count, 3, 0.01f),
                             .gradient = make_values(count, 4, 1.0f),
                             .count = count};
    for (uint64_t i = 0; i < count; i++)
        range.second_moment[i] = fabsf(range.second_moment[i]);
    return range;
}

/* The same range with its weights in the split form, in memory of its own. */
static struct eo_update_range make_split_range(uint64_t count)
{
    struct eo_update_range range = make_range(count);
    range.high = malloc((count + 1) * sizeof(uint16_t));
    range.low = malloc((count + 1) * sizeof(int16_t));
    for (uint64_t i = 0; i < count; i++)
        eo_bf16_split(range.weights[i], &range.high[i], &range.low[i]);
    range.high[count] = 0xabcd;
    range.low[count] = 0x1234;
    drop_values(range.weights, count);
    range.weights = NULL;
    return range;
}

static void drop_range(struct eo_update_range *range)
{
    if (range->weights) {
        drop_values(range->weights, range->count);
    } else {
        cr_assert_eq(range->high[range->count], 0xabcd, "written after the array");
        cr_assert_eq(range->low[range->count], 0x1234, "written after the array");
        free(range->high);
        free(range->low);
    }
    drop_values(range->first_moment, range->count);
    drop_values(range->second_moment, range->count);
    drop_values((float *)range->gradient, range->count);
}

static const struct eo_cpu_kernels *plain(void)
{
    return eo_cpu_kernels_at(eo_cpu_kernels_count() - 1);
}

/* Whole and split weights, in two pieces, the second not aligned. */
static void compare_update(const struct eo_cpu_kernels *set, enum eo_rule rule, uint64_t count)
{
    struct eo_update_range range = make_range(count), reference = make_range(count), split = make_split_range(count);
    set->update[rule](&range, &numbers, 0, count / 3);
    set->update[rule](&range, &numbers, count / 3, count - count / 3);
    set->update[rule](&split, &numbers, 0, count / 3);
    set->update[rule](&split, &numbers, count / 3, count - count / 3);
    update_ref(rule, &reference);
    static const char *const names[EO_RULE_COUNT] = {"AdamW", "SGD", "Lion", "", "Muon", "Muon's direction"};
    const char *name = names[rule];
    assert_same_bits(range.weights, reference.weights, count, name, set->name);
    assert_same_bits(range.first_moment, reference.first_moment, count, name, set->name);
    assert_same_bits(range.second_moment, reference.second_moment, count, name, set->name);
    for (uint64_t i = 0; i < count; i++) {
        const float joined = eo_bf16_join(split.high[i], split.low[i]);
        assert_same_bits(&joined, &reference.weights[i], 1, name, set->name);
    }
    drop_range(&range);
    drop_range(&reference);
    drop_range(&split);
}

/*
 * Goal: every instruction set gives the bits of the formula, at every length, and writes nothing beside the array.
 * Method: lengths 0 ... 300 between guards, against plain loops.
 */
Test(kernels, every_instruction_set_has_the_bits_of_the_formula)
{
    uint32_t tested = 0;
    for (uint32_t k = 0; k < eo_cpu_kernels_count(); k++) {
        const struct eo_cpu_kernels *set = eo_cpu_kernels_at(k);
        if (!set)
            continue;
        tested++;
        for (uint64_t count = 0; count < SMALL_MAX; count++) {
            float *to = make_values(count, 5, 1.0f), *from = make_values(count, 6, 1e-3f);
            float *want = make_values(count, 5, 1.0f);
            for (uint64_t i = 0; i < count; i++)
                want[i] = want[i] + from[i];
            set->accumulate(to, from, count);
            assert_same_bits(to, want, count, "accumulate", set->name);
            drop_values(to, count);
            drop_values(from, count);
            drop_values(want, count);
            for (int rule = 0; rule < EO_RULE_COUNT; rule++)
                if (rule != EO_RULE_ADAMW8BIT) /* that one: state8.c */
                    compare_update(set, (enum eo_rule)rule, count);
        }
    }
    cr_assert_geq(tested, 1);
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/*
 * Goal: the split form holds every float to the bit, its high half is the nearest bf16 with ties away from zero.
 * Method: all 2^16 high halves with the low halves where rounding turns; nearest is checked in double, by distance.
 */
Test(bf16, split_and_join_lose_no_bit_and_round_ties_away_from_zero)
{
    static const uint32_t lows[] = {0, 1, 2, 0x1234, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xabcd, 0xfffe, 0xffff};
    for (uint32_t top = 0; top < 0x10000; top++) {
        for (size_t k = 0; k < sizeof(lows) / sizeof(lows[0]); k++) {
            const uint32_t bits = top << 16 | lows[k];
            const float value = float_of(bits);
            uint16_t high;
            int16_t low;
            eo_bf16_split(value, &high, &low);
            cr_assert_eq(high, eo_bf16_round(value));
            if (isnan(value)) {
                cr_assert(isnan(eo_bf16_to_float(high)) && isnan(eo_bf16_join(high, low)), "%08x", bits);
                continue;
            }
            cr_assert_eq(bits_of(eo_bf16_join(high, low)), bits, "%08x", bits);
            const double rounded = (double)eo_bf16_to_float(high);
            if (!isfinite(rounded))
                continue;
            const double down = (double)float_of(top << 16), up = (double)float_of((top + 1) << 16);
            const double below = fabs((double)value - down), above = fabs(up - (double)value);
            if (isfinite(up))
                cr_assert_eq(rounded, above <= below ? up : down, "%08x", bits); /* `up` is away from zero */
        }
    }
}

/*
 * Goal: every instruction set rounds, widens and splits as the plain functions do, NaN and infinity included.
 * Method: 2^18 bit patterns spread over all floats, at lengths that are no multiple of a vector.
 */
Test(bf16, every_instruction_set_rounds_alike)
{
    enum { COUNT = (1 << 18) + 13 };
    float *values = malloc(COUNT * sizeof(float)), *wide = malloc(COUNT * sizeof(float));
    uint16_t *rounded = malloc(COUNT * sizeof(uint16_t));
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = float_of(i * 16381u + (i << 14));
    for (uint32_t k = 0; k < eo_cpu_kernels_count(); k++) {
        const struct eo_cpu_kernels *set = eo_cpu_kernels_at(k);
        if (!set)
            continue;
        set->round_bf16(rounded, values, COUNT);
        set->widen_bf16(wide, rounded, false, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) {
            cr_assert_eq(rounded[i], eo_bf16_round(values[i]), "%s: %08x", set->name, bits_of(values[i]));
            cr_assert_eq(bits_of(wide[i]), (uint32_t)rounded[i] << 16);
        }
        for (uint32_t i = 0; i < COUNT; i++)
            wide[i] = (float)i;
        set->widen_bf16(wide, rounded, true, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) {
            const float sum = (float)i + eo_bf16_to_float(rounded[i]);
            cr_assert(isnan(sum) ? isnan(wide[i]) : wide[i] == sum, "%s: element %u", set->name, i);
        }
    }
    free(values);
    free(wide);
    free(rounded);
}

/*
 * Goal: a sum of squares is right, has the same bits in every instruction set, and the fused one those of two passes.
 * Method: lengths 0 ... 300 against long double; bits against the plain set.
 */
Test(kernels, sums_of_squares_are_right_and_the_same_everywhere)
{
    for (uint32_t k = 0; k < eo_cpu_kernels_count(); k++) {
        const struct eo_cpu_kernels *set = eo_cpu_kernels_at(k);
        for (uint64_t count = 0; set && count < SMALL_MAX; count++) {
            float *values = make_values(count, 7, 3.0f), *more = make_values(count, 8, 1.0f);
            long double want = 0;
            for (uint64_t i = 0; i < count; i++)
                want += (long double)values[i] * values[i];
            const double got = set->sum_squares(values, count);
            cr_assert_leq(fabsl(got - want), 1e-14L * want, "%s, %d values: %a", set->name, (int)count, got);
            const double other = plain()->sum_squares(values, count);
            cr_assert_eq(memcmp(&got, &other, 8), 0, "%s, %d values: other bits than plain", set->name, (int)count);
            float *twice = make_values(count, 7, 3.0f);
            set->accumulate(twice, more, count);
            const double second = set->sum_squares(twice, count);
            const double fused = set->accumulate_sum_squares(values, more, count);
            cr_assert_eq(memcmp(&second, &fused, 8), 0, "%s, %d values: fused differs", set->name, (int)count);
            assert_same_bits(values, twice, count, "fused", set->name);
            drop_values(values, count);
            drop_values(more, count);
            drop_values(twice, count);
        }
    }
}

/*
 * Goal: sums over ranks and copies past the caches are right at every alignment and length, and write nothing beside.
 * Method: odd beginnings and lengths between guards, streaming and not, 1 to 4 inputs, `out` one of the inputs.
 */
Test(kernels, streaming_changes_no_bit_and_writes_nothing_beside)
{
    for (uint32_t k = 0; k < eo_cpu_kernels_count(); k++) {
        const struct eo_cpu_kernels *set = eo_cpu_kernels_at(k);
        for (uint64_t count = 0; set && count < SMALL_MAX; count++) {
            for (uint32_t in_count = 1; in_count <= 4; in_count++) {
                float *memory[4];
                const float *in[4];
                const uint64_t shift = count % 5; /* not aligned to vectors */
                for (uint32_t r = 0; r < in_count; r++) {
                    memory[r] = make_values(count + shift, 10 + r, r == 1 ? 1e6f : 1.0f);
                    in[r] = memory[r] + shift;
                }
                float *want = make_values(count, 99, 1.0f);
                for (uint64_t i = 0; i < count; i++) {
                    want[i] = in[0][i];
                    for (uint32_t r = 1; r < in_count; r++)
                        want[i] = want[i] + in[r][i];
                }
                const uint32_t own = (uint32_t)count % in_count;
                set->sum_fp32(memory[own] + shift, in, in_count, count, count % 2 == 0);
                assert_same_bits(memory[own] + shift, want, count, "sum", set->name);
                for (uint32_t r = 0; r < in_count; r++)
                    drop_values(memory[r], count + shift);
                drop_values(want, count);
            }
            float *from = make_values(count, 20, 1.0f), *to = make_values(count, 21, 1.0f);
            const uint64_t odd = count > 0 ? count % 4 : 0;
            if (count > 0)
                set->stream_copy((char *)to + odd, (char *)from + odd, count * 4 - odd);
            cr_assert_eq(memcmp((char *)to + odd, (char *)from + odd, count * 4 - odd), 0);
            drop_values(from, count);
            drop_values(to, count);
        }
    }
}

/* A team that runs the tasks backwards, or the odd ones first: any order a trainer's threads could take. */
struct team {
    int order;
    uint32_t runs;
};

static void run_team(void *arg, uint32_t count, void (*task)(void *arg, uint32_t index), void *task_arg)
{
    struct team *team = arg;
    team->runs++;
    if (team->order == 0) {
        for (uint32_t i = count; i-- > 0;)
            task(task_arg, i);
        return;
    }
    for (uint32_t first = 2; first-- > 0;) {
        for (uint32_t i = first; i < count; i += 2)
            task(task_arg, i);
    }
}

struct results {
    float *accumulated;
    double sum, fused_sum;
    struct eo_update_range ranges[3];
};

static void compute(struct results *results, const struct eo_workers *workers, uint64_t count)
{
    struct eo_device *device;
    struct eo_device_params params = {.queue_count = 1, .rank_count = 1};
    if (workers)
        params.workers = *workers;
    cr_assert_eq(eo_device_create(&device, "cpu", &params), EO_OK);
    float *more = make_values(count, 31, 1.0f), *copied = make_values(count, 32, 1.0f);
    results->accumulated = make_values(count, 30, 1.0f);
    device->ops->accumulate(device, results->accumulated, more, EO_DTYPE_FP32, false, count);
    device->ops->sum_squares(device, EO_QUEUE_COMPUTE, &results->sum, results->accumulated, count, NULL);
    device->ops->accumulate_sum_squares(device, &results->fused_sum, results->accumulated, more, EO_DTYPE_FP32,
                                        false, count);
    results->ranges[0] = make_range(count);
    results->ranges[1] = make_range(0); /* a range may be empty, and shorter than a chunk */
    results->ranges[2] = make_range(77);
    struct eo_group_scalars group = {
        .learning_rate = numbers.learning_rate, .beta1 = numbers.beta1, .beta2 = numbers.beta2, .eps = numbers.eps,
        .weight_decay = numbers.weight_decay, .bias_correction1 = {numbers.bias_correction1},
        .bias_correction2 = {numbers.bias_correction2}};
    device->ops->update(device, EO_RULE_ADAMW, results->ranges, 3,
                       &(struct eo_step_memory){.scalars = &(struct eo_update_scalars){.group_count = 1}, .groups = &group,
                                                .norm = &(struct eo_norm_result){.gradient_scale = numbers.scale},
                                                .results = &(struct eo_group_result){.gradient_scale = numbers.scale}});
    device->ops->copy(device, EO_QUEUE_COMPUTE, copied, results->accumulated, count * 4);
    cr_assert_eq(memcmp(copied, results->accumulated, count * 4), 0);
    device->ops->zero(device, copied, count * 4);
    for (uint64_t i = 0; i < count; i++)
        cr_assert_eq(copied[i], 0.0f);
    drop_values(more, count);
    drop_values(copied, count);
    eo_device_destroy(&device);
}

/*
 * Goal: results depend on the sizes alone, not on who computes what when; many ranges are one after the other.
 * Method: arrays of one, a few and many chunks; alone, and by teams that take the tasks in other orders.
 */
Test(elementwise, results_do_not_depend_on_the_workers)
{
    static const uint64_t counts[] = {0, 1, 1000, 131072, 131073, 900001, 5000011};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        struct results alone, other;
        compute(&alone, NULL, counts[c]);
        struct eo_update_range reference = make_range(counts[c]);
        update_ref(EO_RULE_ADAMW, &reference);
        assert_same_bits(alone.ranges[0].weights, reference.weights, counts[c], "adamw", "alone");
        drop_range(&reference);
        for (int order = 0; order < 2; order++) {
            struct team team = {order, 0};
            const struct eo_workers workers = {run_team, &team, 2};
            compute(&other, &workers, counts[c]);
            cr_assert(counts[c] <= 131072 || team.runs >= 5, "the team was not used");
            assert_same_bits(other.accumulated, alone.accumulated, counts[c], "accumulate", "team");
            cr_assert_eq(memcmp(&other.sum, &alone.sum, 8), 0);
            cr_assert_eq(memcmp(&other.fused_sum, &alone.fused_sum, 8), 0);
            for (int i = 0; i < 3; i++) {
                assert_same_bits(other.ranges[i].weights, alone.ranges[i].weights, alone.ranges[i].count, "adamw",
                                 "team");
                drop_range(&other.ranges[i]);
            }
            drop_values(other.accumulated, counts[c]);
        }
        for (int i = 0; i < 3; i++)
            drop_range(&alone.ranges[i]);
        drop_values(alone.accumulated, counts[c]);
    }
}

/* The caller's rounding and denormal modes are its own. */
Test(elementwise, leaves_the_callers_floating_point_modes_alone)
{
    const uint64_t before = eo_float_mode_get();
    struct results results;
    compute(&results, NULL, 1000);
    cr_expect_eq(eo_float_mode_get(), before);
    for (int i = 0; i < 3; i++)
        drop_range(&results.ranges[i]);
    drop_values(results.accumulated, 1000);
}
