/* SPDX-License-Identifier: MIT
 *
 * Element-wise kernels and norms of the CPU, each against its plain reference, or against a formula in double.
 * Method: sizes around every vector width, at every level, with teams of 1 to 3 threads that must agree to the bit;
 * operands end at a closed page. In-place forms run where the contract allows them.
 */
#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "kernel_fixture.h"

static const uint64_t row_counts[] = {1, 3, 17, 64};
static const uint64_t widths[] = {1, 3, 16, 17, 31, 33, 64, 127, 128, 257, 384};

#define FOR_SHAPES(rows, width)                                                                  \
    for (size_t r_ = 0; r_ < sizeof(row_counts) / sizeof(row_counts[0]); r_++)                   \
        for (size_t w_ = 0, once_ = 1; once_; once_ = 0)                                         \
            for (uint64_t rows = row_counts[r_], width; w_ < sizeof(widths) / sizeof(widths[0]); \
                 w_++, guards_free())                                                            \
                if ((width = widths[w_]) > 0)

/* Operands of a kernel of this file: a bag, each test fills its part. */
struct bag {
    uint64_t rows, width, stride;
    const float *a, *b, *c, *d, *e;
    float *scratch;
    bool flag, in_place;
};

/* ---- sums ---- */

static void run_residual_add(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    memcpy(out, bag->a, bag->rows * bag->width * sizeof(float));
    cr_assert_eq(ops->residual_add(team, &(struct eo_residual){
        .types = FP32, .output = out, .residual = bag->b, .bias = bag->c, .rows = bag->rows, .width = bag->width}), EO_OK);
}

Test(kernels, residual_add_is_exact)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        struct bag bag = {.rows = rows, .width = width, .a = guarded_random(count, -1, 1),
                          .b = guarded_random(count, -1, 1), .c = guarded_random(width, -1, 1)};
        const float *expected = reference_result(run_residual_add, &bag, count);
        every_level_and_team(run_residual_add, &bag, count, expected, 0, 0, "residual add");
        bag.c = NULL;
        expected = reference_result(run_residual_add, &bag, count);
        every_level_and_team(run_residual_add, &bag, count, expected, 0, 0, "residual add without bias");
    }
}

static void run_scale(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    memcpy(out, bag->a, bag->rows * bag->width * sizeof(float));
    cr_assert_eq(ops->scale(team, EO_DTYPE_FP32, out, bag->rows * bag->width, 1.7F), EO_OK);
}

Test(kernels, scale_is_exact)
{
    FOR_SHAPES(rows, width)
    {
        struct bag bag = {.rows = rows, .width = width, .a = guarded_random(rows * width, -1, 1)};
        float *expected = guarded(rows * width);
        for (uint64_t i = 0; i < rows * width; i++)
            expected[i] = bag.a[i] * 1.7F;
        every_level_and_team(run_scale, &bag, rows * width, expected, 0, 0, "scale");
    }
}

static void run_bias_add(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    memcpy(out, bag->a, bag->rows * bag->width * sizeof(float));
    cr_assert_eq(ops->bias_add(team, &(struct eo_bias){
        .types = FP32, .output = out, .bias = bag->b, .stride = bag->width, .rows = bag->rows, .width = bag->width}), EO_OK);
}

Test(kernels, bias_is_added_to_each_row)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        struct bag bag = {
            .rows = rows, .width = width, .a = guarded_random(count, -1, 1), .b = guarded_random(width, -1, 1)};
        float *expected = guarded_copy(bag.a, count);
        for (uint64_t i = 0; i < count; i++)
            expected[i] += bag.b[i % width];
        every_level_and_team(run_bias_add, &bag, count, expected, 0, 0, "bias add");
    }
}

static void run_column_sums(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    cr_assert_eq(ops->column_sums(team, &(struct eo_column_sums){
        .types = FP32, .bias_gradient = out, .gradient = bag->a, .stride = bag->stride, .rows = bag->rows,
        .width = bag->width}), EO_OK);
}

Test(kernels, column_sums_match_and_skip_what_lies_between_rows)
{
    FOR_SHAPES(rows, width)
    {
        struct bag bag = {.rows = rows, .width = width, .a = guarded_random(rows * (width + 2), -1, 1)};
        for (int gap = 0; gap < 2; gap++) {
            bag.stride = gap ? width + 2 : 0;
            const float *expected = reference_result(run_column_sums, &bag, width);
            every_level_and_team(run_column_sums, &bag, width, expected, 1e-6, 1e-5, "column sums");
        }
    }
}

/* ---- activation functions ---- */

static const double gelu_factor = 0.79788456080286535588; /* sqrt(2 / pi) */

static double gelu_in_double(double x)
{
    return 0.5 * x * (1 + tanh(gelu_factor * (x + 0.044715 * x * x * x)));
}

static double gelu_slope_in_double(double x)
{
    const double t = tanh(gelu_factor * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_factor * (1 + 3 * 0.044715 * x * x);
}

static void run_gelu_forward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    if (bag->in_place)
        memcpy(out, bag->a, bag->rows * bag->width * sizeof(float));
    cr_assert_eq(ops->gelu_forward(team, &(struct eo_gelu){
        .types = FP32, .out = out, .in = bag->in_place ? out : bag->a, .bias = bag->b, .rows = bag->rows,
        .width = bag->width}), EO_OK);
}

static void check_gelu(struct bag *bag, double absolute, const char *what)
{
    const uint64_t count = bag->rows * bag->width;
    float *expected = guarded(count);
    for (uint64_t i = 0; i < count; i++)
        expected[i] = (float)gelu_in_double((double)bag->a[i] + (bag->b ? bag->b[i % bag->width] : 0));
    every_level_and_team(run_gelu_forward, bag, count, expected, 1e-6, absolute, what);
}

Test(kernels, gelu_matches_the_formula_in_double)
{
    FOR_SHAPES(rows, width)
    {
        struct bag bag = {
            .rows = rows, .width = width, .a = guarded_random(rows * width, -6, 6), .b = guarded_random(width, -1, 1)};
        check_gelu(&bag, 2e-7, "gelu");
        bag.in_place = true;
        bag.b = NULL;
        check_gelu(&bag, 2e-7, "gelu in place without bias");
    }
}

/* Around the bounds of the exponential and far beyond. */
static const float extremes[] = {
    0.0f,   -0.0f,   1e-40f, -1e-40f, 1e-20f, -1e-3f, 1e-3f,  3.0f,   -3.0f,  9.6f,   -9.6f, 9.95f, -9.95f, 10.0f,  -10.0f,
    10.3f,  -10.3f,  50.0f,  -50.0f,  79.0f,  -79.0f, 86.9f,  -86.9f, 87.1f,  -87.1f, 88.3f, -88.3f, 88.5f, -88.5f, 90.0f,
    -90.0f, 1e4f,    -1e4f,  1e10f,   -1e10f, 1e13f,  -1e13f, 1e20f,  -1e20f, 1e35f,  -1e35f, 3e38f, -3e38f};
enum { EXTREMES = sizeof(extremes) / sizeof(extremes[0]) };

/* The vectorised exponential over its whole range: relative error, where the value is not lost in the sum. */
Test(kernels, gelu_holds_at_large_small_and_denormal_inputs)
{
    struct bag bag = {.rows = 1, .width = EXTREMES, .a = guarded_copy(extremes, EXTREMES)};
    check_gelu(&bag, 1e-12, "gelu of extremes");
    guards_free();
}

Test(kernels, gelu_is_within_a_millionth_where_it_counts)
{
    struct bag bag = {.rows = 100, .width = 1000, .a = guarded_random(100000, -2, 80)};
    check_gelu(&bag, 0, "gelu");
    guards_free();
}

/* Whatever its bits: a poisoned input must not come out as a number. */
Test(kernels, activation_functions_pass_nans_on)
{
    enum { COUNT = 33 };
    static const char *const names[] = {"plain", "avx2", "avx512"};
    const struct eo_kernel_ops *ops = &eo_kernels_cpu_ops;
    for (size_t level = 0; level < 3; level++) {
        if (eo_kernels_select(names[level]) < 0)
            continue;
        for (int kind = 0; kind < 2; kind++) {
            float in[COUNT], out[COUNT], up[COUNT];
            for (int i = 0; i < COUNT; i++)
                in[i] = NAN, up[i] = 1;
            if (kind == 1)
                memset(in, 0xff, sizeof(in));
            ops->gelu_forward(NULL, &(struct eo_gelu){.types = FP32, .out = out, .in = in, .rows = 1, .width = COUNT});
            for (int i = 0; i < COUNT; i++)
                cr_assert(isnan(out[i]), "gelu, %s: element %d", names[level], i);
            ops->gelu_backward(NULL, &(struct eo_gelu_gradient){
                .types = FP32, .in_gradient = out, .out_gradient = up, .in = in, .rows = 1, .width = COUNT});
            for (int i = 0; i < COUNT; i++)
                cr_assert(isnan(out[i]), "gelu backward, %s: element %d", names[level], i);
            ops->swiglu_forward(NULL, &(struct eo_swiglu){
                .types = FP32, .out = out, .gate = in, .up = up, .stride = COUNT, .rows = 1, .width = COUNT});
            for (int i = 0; i < COUNT; i++)
                cr_assert(isnan(out[i]), "swiglu, %s: element %d", names[level], i);
        }
    }
}

/* For programs that trap: what is masked counts, too. */
Test(kernels, activation_functions_of_usual_numbers_raise_no_exception)
{
    enum { COUNT = 4001 };
    static const char *const names[] = {"plain", "avx2", "avx512"};
    static float in[COUNT], up[COUNT], out[2][COUNT];
    const struct eo_kernel_ops *ops = &eo_kernels_cpu_ops;
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(i - COUNT / 2) * (i % 3 ? 0.01F : 10), up[i] = 1;
    for (size_t level = 0; level < 3; level++) {
        if (eo_kernels_select(names[level]) < 0)
            continue;
        feclearexcept(FE_ALL_EXCEPT);
        ops->gelu_forward(NULL, &(struct eo_gelu){.types = FP32, .out = out[0], .in = in, .rows = 1, .width = COUNT});
        ops->gelu_backward(NULL, &(struct eo_gelu_gradient){
            .types = FP32, .in_gradient = out[0], .out_gradient = up, .in = in, .rows = 1, .width = COUNT});
        ops->swiglu_forward(NULL, &(struct eo_swiglu){
            .types = FP32, .out = out[0], .gate = in, .up = up, .stride = COUNT, .rows = 1, .width = COUNT});
        ops->swiglu_backward(NULL, &(struct eo_swiglu){
            .types = FP32, .gate = in, .up = up, .out_gradient = up, .gate_gradient = out[0], .up_gradient = out[1],
            .stride = COUNT, .rows = 1, .width = COUNT});
        cr_assert_eq(fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW), 0, "%s: %#x", names[level],
                     (unsigned)fetestexcept(FE_ALL_EXCEPT));
    }
}

/* out: the gradient of the input, then that of the bias (flag: without). */
static void run_gelu_backward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const uint64_t count = bag->rows * bag->width;
    if (bag->in_place)
        memcpy(out, bag->a, count * sizeof(float));
    memset(out + count, 0, bag->width * sizeof(float));
    float *gelu = guarded(count), *again = guarded_copy(bag->c, count); /* over its gradient */
    cr_assert_eq(ops->gelu_backward(team, &(struct eo_gelu_gradient){.types = FP32,
                                                                     .in_gradient = out,
                                                                     .out_gradient = again,
                                                                     .in = bag->in_place ? out : bag->a,
                                                                     .bias = bag->b,
                                                                     .bias_gradient = bag->flag ? NULL : out + count,
                                                                     .again = again,
                                                                     .rows = bag->rows,
                                                                     .width = bag->width}),
                 EO_OK);
    cr_assert_eq(ops->gelu_forward(
                     team,
                     &(struct eo_gelu){
                         .types = FP32, .out = gelu, .in = bag->a, .bias = bag->b, .rows = bag->rows, .width = bag->width}),
                 EO_OK);
    cr_assert_eq(memcmp(gelu, again, count * sizeof(float)), 0, "%s: other bits of gelu in the backward pass",
                 eo_kernels_name());
}

static void check_gelu_backward(struct bag *bag)
{
    const uint64_t rows = bag->rows, width = bag->width, count = rows * width;
    float *expected = guarded(count + width);
    for (uint64_t column = 0; column < width; column++) {
        double sum = 0;
        for (uint64_t i = column; i < count; i += width) {
            const double gradient = bag->c[i] * gelu_slope_in_double((double)bag->a[i] + (bag->b ? bag->b[column] : 0));
            expected[i] = (float)gradient;
            sum += gradient;
        }
        expected[count + column] = bag->flag ? 0 : (float)sum;
    }
    every_level_and_team(run_gelu_backward, bag, count + width, expected, 2e-6, 1e-5, "gelu backward");
}

Test(kernels, gelu_backward_holds_at_extremes_as_the_reference_does)
{
    float *ones = guarded(EXTREMES), *slopes = guarded(EXTREMES);
    for (int i = 0; i < EXTREMES; i++) {
        ones[i] = 1;
        slopes[i] = (float)gelu_slope_in_double(extremes[i]);
    }
    struct bag bag = {.rows = 1, .width = EXTREMES, .flag = true, .a = guarded_copy(extremes, EXTREMES), .c = ones};
    check_gelu_backward(&bag);
    cr_assert_eq(eo_kernels_reference_ops.gelu_backward(NULL, &(struct eo_gelu_gradient){
        .types = FP32, .in_gradient = ones, .out_gradient = ones, .in = bag.a, .rows = 1, .width = EXTREMES}), EO_OK);
    expect_close("slopes of the reference", ones, slopes, EXTREMES, 2e-6, 1e-6);
    guards_free();
}

Test(kernels, gelu_backward_gives_both_gradients_in_one_pass)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        struct bag bag = {.rows = rows, .width = width, .a = guarded_random(count, -5, 5),
                          .b = guarded_random(width, -1, 1), .c = guarded_random(count, -1, 1)};
        check_gelu_backward(&bag);
        bag.in_place = true;
        bag.b = NULL;
        check_gelu_backward(&bag);
        bag.flag = true;
        check_gelu_backward(&bag);
    }
}

static void run_swiglu_forward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    cr_assert_eq(ops->swiglu_forward(team, &(struct eo_swiglu){
        .types = FP32, .out = out, .gate = bag->a, .up = bag->b, .stride = bag->stride, .rows = bag->rows,
        .width = bag->width}), EO_OK);
}

/* out: gate and up gradients, in rows as gate and up are: side by side. */
static void run_swiglu_backward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    if (bag->in_place)
        memcpy(out, bag->a, bag->rows * bag->stride * sizeof(float));
    const float *gate = bag->in_place ? out : bag->a;
    const uint64_t count = bag->rows * bag->width;
    float *swiglu = guarded(count), *again = guarded_copy(bag->c, count); /* over its gradient */
    cr_assert_eq(ops->swiglu_backward(team, &(struct eo_swiglu){.types = FP32,
                                                                .gate = gate,
                                                                .up = gate + bag->width,
                                                                .out_gradient = again,
                                                                .gate_gradient = out,
                                                                .out = again,
                                                                .up_gradient = out + bag->width,
                                                                .stride = bag->stride,
                                                                .rows = bag->rows,
                                                                .width = bag->width}),
                 EO_OK);
    run_swiglu_forward(ops, team, swiglu, arg);
    cr_assert_eq(memcmp(swiglu, again, count * sizeof(float)), 0, "%s: other bits of swiglu in the backward pass",
                 eo_kernels_name());
}

Test(kernels, swiglu_and_its_gradients_work_on_halves_of_a_row)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        float *both = guarded_random(2 * count, -8, 8);
        struct bag bag = {.rows = rows, .width = width, .stride = 2 * width, .a = both, .b = both + width,
                          .c = guarded_random(count, -1, 1)};
        const float *expected = reference_result(run_swiglu_forward, &bag, count);
        every_level_and_team(run_swiglu_forward, &bag, count, expected, 2e-6, 1e-7, "swiglu");
        expected = reference_result(run_swiglu_backward, &bag, 2 * count);
        every_level_and_team(run_swiglu_backward, &bag, 2 * count, expected, 2e-6, 1e-6, "swiglu backward");
        bag.in_place = true;
        every_level_and_team(run_swiglu_backward, &bag, 2 * count, expected, 2e-6, 1e-6, "swiglu backward in place");
    }
}

Test(kernels, swiglu_holds_at_extremes)
{
    float *both = guarded(2 * EXTREMES), *ones = guarded(EXTREMES);
    for (int i = 0; i < EXTREMES; i++) {
        both[i] = extremes[i];
        both[EXTREMES + i] = ones[i] = 1;
    }
    struct bag bag = {.rows = 1, .width = EXTREMES, .stride = 2 * EXTREMES, .a = both, .b = both + EXTREMES, .c = ones};
    const float *expected = reference_result(run_swiglu_forward, &bag, EXTREMES);
    every_level_and_team(run_swiglu_forward, &bag, EXTREMES, expected, 2e-6, 1e-12, "swiglu of extremes");
    expected = reference_result(run_swiglu_backward, &bag, 2 * EXTREMES);
    every_level_and_team(run_swiglu_backward, &bag, 2 * EXTREMES, expected, 2e-6, 1e-6, "swiglu backward of extremes");
    guards_free();
}

/* ---- norms of heads: `width` is that of a head, rows have a stride of three heads and a gap ---- */

enum { HEADS = 2, KV_HEADS = 1, GAP = 5 };

/* out: the normed, the gradient of a, the weights' gradients. a: in, b: gradient of the normed, d, e: weights. */
static void run_head_norm(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const uint64_t all = bag->rows * bag->stride;
    float *gradient = out + all, *weight_gradient = gradient + all;
    const uint32_t size = (uint32_t)bag->width;
    memset(out, 0, all * sizeof(float));
    memcpy(gradient, bag->b, all * sizeof(float));
    cr_assert_eq(ops->head_norm_forward(team, &(struct eo_head_norm){
        .types = FP32, .out = out, .in = bag->a, .weight = {bag->d, bag->e}, .in_stride = bag->stride,
        .out_stride = bag->stride, .rows = bag->rows, .head_count = {HEADS, KV_HEADS}, .head_size = size, .eps = 1e-5F}),
        EO_OK);
    cr_assert_eq(ops->head_norm_backward(team, &(struct eo_head_norm_gradient){
        .types = FP32, .gradient = gradient, .in = bag->a, .weight = {bag->d, bag->e}, .stride = bag->stride,
        .in_stride = bag->stride, .rows = bag->rows, .head_count = {HEADS, KV_HEADS}, .head_size = size, .eps = 1e-5F,
        .sums = bag->scratch}), EO_OK);
    cr_assert_eq(ops->head_norm_weights(team, &(struct eo_head_norm_weights){
        .types = FP32, .weight_gradient = {weight_gradient, weight_gradient + size}, .sums = bag->scratch,
        .rows = bag->rows, .head_size = size}), EO_OK);
}

/* Goal: each head is an RMSNorm of its own, and the gaps between rows keep their content. */
Test(kernels, heads_are_normed_each_for_itself)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t stride = (HEADS + KV_HEADS) * width + GAP, count = 2 * rows * stride + 2 * width;
        struct bag bag = {.rows = rows, .width = width, .stride = stride,
                          .a = guarded_random(rows * stride, 0.1F, 2),
                          .b = guarded_random(rows * stride, -1, 1),
                          .d = guarded_random(width, 0.5F, 1.5F), .e = guarded_random(width, 0.5F, 1.5F),
                          .scratch = guarded(2 * eo_head_norm_parts(rows) * width)};
        const float *expected = reference_result(run_head_norm, &bag, count);
        every_level_and_team(run_head_norm, &bag, count, expected, 2e-5, 1e-4, "norm of heads");
    }
}

/* ---- rotary positions ---- */

enum { ROPE_SEQ = 5, ROPE_HEADS = 3, ROPE_ROWS = 13 };

static void run_rotate(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    memcpy(out, bag->a, ROPE_ROWS * bag->stride * sizeof(float));
    cr_assert_eq(ops->rotate(team, &(struct eo_rotation){
        .types = FP32, .values = out, .stride = bag->stride, .table = bag->b, .rows = ROPE_ROWS, .seq = ROPE_SEQ,
        .head_count = ROPE_HEADS, .head_size = (uint32_t)bag->width, .backward = bag->flag}), EO_OK);
}

Test(kernels, rotations_turn_halves_and_turn_them_back)
{
    static const uint32_t head_sizes[] = {2, 6, 32, 34, 64};
    for (size_t i = 0; i < sizeof(head_sizes) / sizeof(head_sizes[0]); i++, guards_free()) {
        const uint32_t head_size = head_sizes[i];
        const uint64_t stride = ROPE_HEADS * head_size + 3; /* something else lies between the rows: left alone */
        const uint64_t count = ROPE_ROWS * stride;
        float *table = guarded(eo_rope_table_floats(ROPE_SEQ, head_size));
        eo_rope_table(table, ROPE_SEQ, head_size, 10000, NULL);
        struct bag bag = {.width = head_size, .stride = stride, .a = guarded_random(count, -1, 1), .b = table};
        const float *expected = reference_result(run_rotate, &bag, count), *original = bag.a;
        every_level_and_team(run_rotate, &bag, count, expected, 1e-6, 1e-6, "rotation");
        bag.a = expected;
        bag.flag = true;
        every_level_and_team(run_rotate, &bag, count, original, 2e-6, 2e-6, "rotation backward");
    }
}

/* As Llama 3.1 was published: by wavelengths, in positions. */
static double rope_frequency(double theta, uint32_t pair, uint32_t head_size, const eo_rope_scaling *s)
{
    const double frequency = pow(theta, -2.0 * pair / head_size);
    if (s->kind == EO_ROPE_PLAIN)
        return frequency;
    if (s->kind == EO_ROPE_LINEAR)
        return frequency / (double)s->factor;
    const double low = (double)s->low_freq_factor, high = (double)s->high_freq_factor;
    const double wavelength = 2 * 3.14159265358979323846 / frequency;
    if (wavelength < s->original_context / high)
        return frequency;
    if (wavelength > s->original_context / low)
        return frequency / (double)s->factor;
    const double smooth = (s->original_context / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / (double)s->factor + smooth * frequency;
}

/* Goal: the table holds the angles of its formula, plain and scaled. Method: the formula in double, beyond the positions
 * that the table turns on from one start. llama3: some pairs turn more than 4 times over 512 positions, some less than
 * once. */
Test(kernels, rope_tables_hold_the_angles_of_the_formula)
{
    enum { SEQ = 150 };
    static const uint32_t head_sizes[] = {2, 6, 34, 64};
    static const eo_rope_scaling scalings[] = {
        {.kind = EO_ROPE_PLAIN},
        {.kind = EO_ROPE_LINEAR, .factor = 3},
        {.kind = EO_ROPE_LLAMA3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 512},
    };
    enum { SCALINGS = sizeof(scalings) / sizeof(scalings[0]) };
    for (size_t i = 0; i < SCALINGS * sizeof(head_sizes) / sizeof(head_sizes[0]); i++, guards_free()) {
        const uint32_t head_size = head_sizes[i / SCALINGS];
        const eo_rope_scaling *scaling = &scalings[i % SCALINGS];
        const uint64_t count = eo_rope_table_floats(SEQ, head_size);
        float *table = guarded(count), *expected = guarded(count);
        eo_rope_table(table, SEQ, head_size, 10000, scaling);
        for (uint32_t row = 0; row < SEQ; row++)
            for (uint32_t pair = 0; pair < head_size / 2; pair++) {
                const double angle = row * rope_frequency(10000, pair, head_size, scaling);
                expected[(uint64_t)row * head_size + pair] = (float)cos(angle);
                expected[(uint64_t)row * head_size + head_size / 2 + pair] = (float)sin(angle);
            }
        expect_close("table of angles", table, expected, count, 1e-6, 1e-7);
    }
}

/* Goal: frequencies of published models. Method: those that transformers 5.23 has of Llama 3.2 1B's config.json; the sine of
 * the first position tells them all, for only the first is not small. */
Test(kernels, rope_has_the_frequencies_of_llama_3_2)
{
    static const double published[] = {
        1, 0.66360128, 0.44036663, 0.29222783, 0.19392276, 0.12868738, 0.085397102, 0.056669619, 0.037606031, 0.024955409,
        0.016560441, 0.010989529, 0.0072926651, 0.0048394212, 0.0032114461, 0.001290548, 0.00042955671, 9.7082862e-05,
        1.9461639e-05, 1.2914767e-05, 8.5702559e-06, 5.6872323e-06, 3.7740544e-06, 2.5044671e-06, 1.6619674e-06,
        1.1028836e-06, 7.3187493e-07, 4.8567313e-07, 3.2229329e-07, 2.1387423e-07, 1.419272e-07, 9.4183065e-08};
    enum { HEAD = 2 * sizeof(published) / sizeof(published[0]), SEQ = 3 };
    const eo_rope_scaling scaling = {
        .kind = EO_ROPE_LLAMA3, .factor = 32, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 8192};
    float table[SEQ * HEAD];
    eo_rope_table(table, SEQ, HEAD, 500000, &scaling);
    for (int i = 0; i < HEAD / 2; i++) {
        cr_expect_float_eq((double)table[HEAD + HEAD / 2 + i] / sin(published[i]), 1, 1e-6, "pair %d", i);
        cr_expect_float_eq((double)table[2 * HEAD + i], cos(2 * published[i]), 1e-6, "pair %d", i);
    }
}

/* ---- norms ---- */

/* out: sum, out, mean, rstd. a, b, c: residual, branch, its bias; d, e: weight and bias (NULL: RMSNorm). */
static void run_norm_forward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const uint64_t count = bag->rows * bag->width;
    memset(out, 0, count * sizeof(float)); /* the sum: written only with a branch */
    memset(out + 2 * count, 0, bag->rows * sizeof(float));
    cr_assert_eq(ops->norm_forward(team, &(struct eo_norm){
        .types = FP32, .centered = bag->e, .sum = bag->b ? out : NULL, .out = out + count, .mean = out + 2 * count,
        .rstd = out + 2 * count + bag->rows, .residual = bag->a, .branch = bag->b, .branch_bias = bag->c,
        .weight = bag->d, .bias = bag->e, .eps = 1e-5F, .rows = bag->rows, .width = bag->width}), EO_OK);
}

Test(kernels, norms_add_first_then_normalise)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = 2 * rows * width + 2 * rows;
        struct bag bag = {.rows = rows,
                          .width = width,
                          .a = guarded_random(rows * width, 0, 2),
                          .b = guarded_random(rows * width, -1, 1),
                          .c = guarded_random(width, -1, 1),
                          .d = guarded_random(width, 0.5f, 1.5f)};
        const float *bias = guarded_random(width, -1, 1);
        for (int variant = 0; variant < 4; variant++) {
            bag.e = variant % 2 == 0 ? bias : NULL;
            if (variant == 2)
                bag.b = bag.c = NULL;
            const float *expected = reference_result(run_norm_forward, &bag, count);
            /* A width of one leaves only the noise of x - mean, times rstd = 316. */
            every_level_and_team(run_norm_forward, &bag, count, expected, 1e-5, 1e-4, "norm");
        }
    }
}

/* out: the norm as its backward pass gives it again; also its bits beside the forward's. */
static void run_norm_again(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    float *mean = bag->scratch, *rstd = mean + bag->rows, *forward = rstd + bag->rows;
    const struct eo_norm norm = {.types = FP32, .centered = bag->e, .out = forward, .mean = mean, .rstd = rstd,
                           .residual = bag->a, .weight = bag->d, .bias = bag->e, .eps = 1e-5F, .rows = bag->rows,
                           .width = bag->width};
    const uint64_t count = bag->rows * bag->width;
    float *again = guarded_copy(bag->a, count); /* over its gradient */
    cr_assert_eq(ops->norm_forward(team, &norm), EO_OK);
    cr_assert_eq(ops->norm_backward(team, &(struct eo_norm_gradient){
        .types = FP32, .centered = bag->e, .in_gradient = guarded(count), .again = again, .out_gradient = again, .in = bag->a,
        .weight = bag->d, .bias = bag->e, .mean = mean, .rstd = rstd, .rows = bag->rows, .width = bag->width,
        .scratch = guarded(eo_kernels_cpu_ops.norm_scratch_bytes(bag->rows, bag->width) / sizeof(float))}), EO_OK);
    cr_assert_eq(memcmp(again, forward, count * sizeof(float)), 0, "%s: a norm again has other bits", eo_kernels_name());
    memcpy(out, again, count * sizeof(float));
}

Test(kernels, norms_again_in_backward_are_bit_equal_to_the_forward)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        const float *bias = guarded_random(width, -1, 1);
        struct bag bag = {.rows = rows,
                          .width = width,
                          .a = guarded_random(count, -1, 3),
                          .d = guarded_random(width, 0.5f, 1.5f),
                          .scratch = guarded(count + 2 * rows)};
        for (int centred = 0; centred < 2; centred++) {
            bag.e = centred ? bias : NULL;
            const float *expected = reference_result(run_norm_again, &bag, count);
            every_level_and_team(run_norm_again, &bag, count, expected, 1e-5, 1e-4, "norm again");
        }
    }
}

/* out: gradients of input, weight, bias. a: in, b: out gradient, c: skip gradient, d: weight, e: mean then rstd; stride:
 * centered. */
static void run_norm_backward(const struct eo_kernel_ops *ops, eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const uint64_t count = bag->rows * bag->width;
    float *weight_gradient = out + count, *bias_gradient = weight_gradient + bag->width;
    memcpy(weight_gradient, bag->d, bag->width * sizeof(float)); /* old content, to be added to or not */
    memcpy(bias_gradient, bag->d, bag->width * sizeof(float));
    if (bag->in_place)
        memcpy(out, bag->c, count * sizeof(float));
    cr_assert_eq(ops->norm_backward(team, &(struct eo_norm_gradient){
        .types = FP32, .centered = bag->stride, .in_gradient = out, .skip_gradient = bag->in_place ? out : bag->c,
        .out_gradient = bag->b, .in = bag->a, .weight = bag->d, .mean = bag->e, .rstd = bag->e + bag->rows,
        .weight_gradient = weight_gradient, .bias_gradient = bias_gradient, .rows = bag->rows, .width = bag->width,
        .accumulate = bag->flag, .scratch = bag->scratch}), EO_OK);
}

static void check_norm_backward(struct bag *bag, bool centred)
{
    const uint64_t count = bag->rows * bag->width + 2 * bag->width;
    bag->stride = centred;
    const float *expected = reference_result(run_norm_backward, bag, count);
    every_level_and_team(run_norm_backward, bag, count, expected, 1e-5, 2e-5, "norm backward");
}

Test(kernels, norm_gradients_match_and_add_the_skip)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        float *statistics = guarded_random(2 * rows, 0.1f, 0.9f);
        struct bag bag = {.rows = rows,
                          .width = width,
                          .a = guarded_random(count, -1, 1),
                          .b = guarded_random(count, -1, 1),
                          .c = guarded_random(count, -1, 1),
                          .d = guarded_random(width, 0.5f, 1.5f),
                          .e = statistics,
                          .scratch = guarded(eo_kernels_cpu_ops.norm_scratch_bytes(rows, width) / sizeof(float))};
        check_norm_backward(&bag, true);
        check_norm_backward(&bag, false);
        bag.flag = bag.in_place = true;
        check_norm_backward(&bag, true);
        bag.flag = bag.in_place = false;
        bag.c = NULL;
        check_norm_backward(&bag, false);
    }
}
