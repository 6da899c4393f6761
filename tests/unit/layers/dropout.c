/* SPDX-License-Identifier: MIT
 *
 * Dropout of the CPU at every level, in both types.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "kernel_fixture.h"
#include "layers/reference/kernels.h"

/* The longest row is drawn in several pieces. */
enum { ROWS = 7, SEQ = 3, WIDTH_MAX = 301 };

struct drawn {
    eo_dtype dtype;
    uint64_t width;
    float probability;
    bool has_residual, has_bias, in_place;
};

static void *elements(eo_dtype dtype, uint64_t count)
{
    const float *values = guarded_random(count, -2, 2);
    void *stored = guarded_bytes(count * eo_dtype_bytes(dtype));
    eo_elements_store(dtype, stored, 0, values, count);
    return stored;
}

static void *copy_of(const void *values, uint64_t bytes)
{
    return memcpy(guarded_bytes(bytes), values, bytes);
}

static void check(const struct drawn *c)
{
    static const char *const levels[] = {"plain", "avx2", "avx512"};
    static const eo_random_place place = {.seed = 0x123456789abcdef0u, .step = 5, .sample = UINT32_MAX - 1, .position = 77};
    const uint64_t count = ROWS * c->width, bytes = count * eo_dtype_bytes(c->dtype);
    const struct eo_dropout of = {
        .types = {c->dtype, EO_DTYPE_FP32}, .in = elements(c->dtype, count), .place = &place, .rows = ROWS, .width = c->width,
        .residual = c->has_residual ? elements(c->dtype, count) : NULL, .seq = SEQ, .position = 9,
        .bias = c->has_bias ? elements(c->dtype, c->width) : NULL, .probability = c->probability};
    struct eo_dropout host = of;
    host.out = guarded_bytes(bytes);
    cr_assert_eq(eo_host_dropout(NULL, &host), EO_OK);
    for (size_t level = 0; level < sizeof(levels) / sizeof(levels[0]); level++) {
        if (eo_kernels_select(levels[level]) == EO_ERR_UNSUPPORTED)
            continue;
        for (uint32_t threads = 1; threads <= 3; threads++) {
            const struct eo_kernel_ops *ops = c->dtype == EO_DTYPE_BF16 ? &eo_kernels_cpu_bf16_ops : &eo_kernels_cpu_ops;
            struct eo_dropout again = of;
            eo_team *team = NULL;
            cr_assert_eq(eo_team_create(&team, threads), EO_OK);
            again.out = c->in_place ? copy_of(of.in, bytes) : guarded_bytes(bytes);
            again.in = c->in_place ? again.out : of.in;
            cr_assert_eq(ops->dropout(team, &again), EO_OK);
            eo_team_destroy(&team);
            cr_assert_eq(memcmp(again.out, host.out, bytes), 0, "%s, type %d, width %lu, probability %g, residual %d, bias %d",
                         levels[level], (int)c->dtype, (unsigned long)c->width, (double)c->probability, c->has_residual,
                         c->has_bias);
        }
    }
    guards_free();
}

/* Goal: a mask is the same everywhere, and so are the sums. Method: the bits of the plain one, whose words are known answers
 * (random.c); rows that begin within a block, and end anywhere; the sample's low 32 bits run over; operands end at a closed
 * page. */
Test(dropout, every_level_has_the_bits_of_the_plain_one)
{
    static const uint64_t widths[] = {1, 3, 4, 8, 30, 64, 130, 257, WIDTH_MAX};
    static const float probabilities[] = {0, 0.1F, 0.75F};
    for (eo_dtype dtype = EO_DTYPE_FP32; dtype <= EO_DTYPE_BF16; dtype++)
        for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++)
            for (size_t p = 0; p < sizeof(probabilities) / sizeof(probabilities[0]); p++)
                for (int which = 0; which < 8; which++)
                    check(&(struct drawn){dtype, widths[w], probabilities[p], which & 1, which & 2, which & 4});
}
