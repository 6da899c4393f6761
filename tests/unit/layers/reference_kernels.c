/* SPDX-License-Identifier: MIT
 *
 * The table "reference", in fp32 and in bf16, and the table "cpu" in bf16 at every level, each kernel against that of the
 * table "cpu" in fp32. Method: operands are rounded to the element type first and "cpu" is given the rounded values, so that
 * the rest is the rounding of fp32 sums and of one store: 2^-9 of the value in bf16. Sizes have odd ends; teams of none and of
 * 3 threads; operands end at a closed page.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_fixture.h"
#include "layers/reference/kernels.h"

enum table { REFERENCE, PLAIN, AVX2, AVX512 }; /* the last three: "cpu" at that level */

struct kernel_case {
    enum table table;
    struct eo_types types;
    uint32_t threads; /* 0: no team */
};

#define HALF_CASES(table)                                                                           \
    {table, {EO_DTYPE_BF16, EO_DTYPE_FP32}, 0}, {table, {EO_DTYPE_BF16, EO_DTYPE_BF16}, 0},         \
        {table, {EO_DTYPE_BF16, EO_DTYPE_FP32}, 3}, {table, {EO_DTYPE_BF16, EO_DTYPE_BF16}, 3}

static struct kernel_case kernel_cases[] = {
    {REFERENCE, {EO_DTYPE_FP32, EO_DTYPE_FP32}, 0}, {REFERENCE, {EO_DTYPE_FP32, EO_DTYPE_FP32}, 3},
    HALF_CASES(REFERENCE), HALF_CASES(PLAIN), HALF_CASES(AVX2), HALF_CASES(AVX512),
};

#define KERNEL_TEST(name)                                                                                             \
    ParameterizedTestParameters(reference, name)                                                                      \
    {                                                                                                                 \
        return cr_make_param_array(struct kernel_case, kernel_cases, sizeof(kernel_cases) / sizeof(kernel_cases[0])); \
    }                                                                                                                 \
    ParameterizedTest(struct kernel_case *c, reference, name)

static const struct eo_kernel_ops *ops = &eo_kernels_reference_ops, *const cpu = &eo_kernels_cpu_ops;

/* Also chooses the table. A level that this machine lacks leaves the best one. */
static eo_team *team_of(const struct kernel_case *c)
{
    static const char *const levels[] = {[PLAIN] = "plain", [AVX2] = "avx2", [AVX512] = "avx512"};
    eo_team *team = NULL;
    if (c->table != REFERENCE) {
        (void)!eo_kernels_select(levels[c->table]);
        ops = &eo_kernels_cpu_bf16_ops;
    }
    if (c->threads > 0)
        cr_assert_eq(eo_team_create(&team, c->threads), EO_OK);
    return team;
}

/* An operand as the kernel has it, and what it holds, in fp32. */
struct operand {
    void *values;
    float *seen;
};

static struct operand operand_of(eo_dtype dtype, const float *values, uint64_t count)
{
    struct operand o = {guarded_bytes(count * eo_dtype_bytes(dtype)), guarded(count)};
    eo_elements_store(dtype, o.values, 0, values, count);
    eo_elements_load(dtype, o.seen, o.values, 0, count);
    return o;
}

static struct operand operand(eo_dtype dtype, uint64_t count, float low, float high)
{
    return operand_of(dtype, guarded_random(count, low, high), count);
}

static void *output(eo_dtype dtype, uint64_t count)
{
    return guarded_bytes(count * eo_dtype_bytes(dtype));
}

/* `absolute`: of fp32 sums whose terms cancel. */
static void check(const char *what, eo_dtype dtype, const void *got, const float *expected, uint64_t count,
                  double absolute)
{
    float *loaded = guarded(count);
    eo_elements_load(dtype, loaded, got, 0, count);
    expect_close(what, loaded, expected, count, dtype == EO_DTYPE_BF16 ? 0x1p-8 : 2e-5, absolute);
}

/* ---- elements ---- */

static uint16_t rounded(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return eo_element_to_bf16(value);
}

/* Goal: one rounding rule everywhere, that of processors and PyTorch. Method: below, at and above the tie; carries; infinities; NaN
 * with low bits only. Of ties no sum grows, as a stream of residuals would. */
Test(reference, stores_round_to_nearest_and_ties_to_even)
{
    cr_assert_eq(rounded(0x3f807fffu), 0x3f80);
    cr_assert_eq(rounded(0x3f808000u), 0x3f80); /* away from zero would be 0x3f81 */
    cr_assert_eq(rounded(0x3f808001u), 0x3f81);
    cr_assert_eq(rounded(0x3f818000u), 0x3f82);
    cr_assert_eq(rounded(0xbf808000u), 0xbf80);
    cr_assert_eq(rounded(0x00008000u), 0x0000);
    cr_assert_eq(rounded(0x7f7f8000u), 0x7f80);
    cr_assert_eq(rounded(0x3fffffffu), 0x4000);
    cr_assert_eq(rounded(0x7f7fffffu), 0x7f80);
    cr_assert_eq(rounded(0x7f800000u), 0x7f80);
    cr_assert_eq(rounded(0xff800000u), 0xff80);
    cr_assert_eq(rounded(0x00000001u), 0x0000);
    cr_assert(isnan(eo_element_from_bf16(rounded(0x7f800001u))));
    cr_assert(isnan(eo_element_from_bf16(rounded(0xffffffffu))));
    for (uint32_t bits = 0; bits < 0x10000u; bits++) /* what is bf16 already is left as it is */
        cr_assert(isnan(eo_element_from_bf16((uint16_t)bits)) || rounded(bits << 16) == bits, "%x", bits);
    double ties = 0, stored = 0;
    for (uint32_t bits = 0x3f808000u; bits < 0x40000000u; bits += 0x10000u) {
        float tie;
        memcpy(&tie, &bits, sizeof(tie));
        ties += (double)tie;
        stored += (double)eo_element_from_bf16(rounded(bits));
    }
    cr_assert_eq(ties, stored, "%.17g, and stored %.17g", ties, stored);
}

/* ---- products ---- */

/* Enough for the sizes of these tests, and three threads. */
static _Alignas(64) char product_scratch[1 << 20];

static void product_case(const struct kernel_case *c, eo_team *team, uint64_t m, uint64_t n, uint64_t k, int shape)
{
    const bool transpose_a = shape & 1, transpose_b = shape & 2, accumulate = shape & 4, weight_gradient = shape & 8;
    const eo_dtype dtype = c->types.compute, c_dtype = weight_gradient ? c->types.gradient : dtype;
    const uint64_t a_stride = (transpose_a ? m : k) + 1, b_stride = (transpose_b ? k : n) + 2, c_stride = n + 3;
    const uint64_t c_count = (m - 1) * c_stride + n;
    const struct operand a = operand(dtype, (transpose_a ? k : m) * a_stride, -1, 1);
    const struct operand b = operand(dtype, (transpose_b ? n : k) * b_stride, -1, 1);
    struct operand out = operand(c_dtype, c_count, -1, 1); /* what lies between the rows stays */
    struct eo_multiply product = {
        .types = c->types, .weight_gradient = weight_gradient, .c = out.values, .c_stride = c_stride,
        .a = {a.values, a_stride, transpose_a}, .b = {b.values, b_stride, transpose_b}, .m = m, .n = n, .k = k,
        .accumulate = accumulate, .scratch = product_scratch};
    cr_assert_eq(ops->multiply(team, &product), EO_OK);
    product.types = FP32;
    product.c = out.seen;
    product.a.values = a.seen;
    product.b.values = b.seen;
    cr_assert_eq(cpu->multiply(NULL, &product), EO_OK);
    check("product", c_dtype, out.values, out.seen, c_count, 1e-5 * sqrt((double)k));
    guards_free();
}

KERNEL_TEST(products_match_in_all_transpositions)
{
    static const uint64_t sizes[][3] = {{1, 1, 1}, {3, 5, 2}, {33, 31, 65}, {64, 32, 64}, {40, 70, 130}, {1, 97, 3}};
    eo_team *team = team_of(c);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int shape = 0; shape < 16; shape++)
            product_case(c, team, sizes[i][0], sizes[i][1], sizes[i][2], shape);
    eo_team_destroy(&team);
}

/* Goal: levels of the processor differ in nothing. Method: the bits of one product at each. */
Test(reference, a_product_has_the_same_bits_at_every_level)
{
    enum { M = 37, N = 45, K = 130 };
    static const char *const levels[] = {"plain", "avx2", "avx512"};
    const struct operand a = operand(EO_DTYPE_BF16, M * K, -1, 1), b = operand(EO_DTYPE_BF16, N * K, -1, 1);
    float *first = NULL;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (eo_kernels_select(levels[i]) == EO_ERR_UNSUPPORTED)
            continue;
        float *out = guarded(M * N);
        eo_ref_multiply(&(struct eo_multiply){
            .types = {EO_DTYPE_BF16, EO_DTYPE_FP32}, .weight_gradient = true, .c = out, .c_stride = N,
            .a = {a.values, K, false}, .b = {b.values, K, true}, .m = M, .n = N, .k = K});
        if (first)
            cr_assert_eq(memcmp(first, out, M * N * sizeof(float)), 0, "%s has other bits", levels[i]);
        first = first ? first : out;
    }
    guards_free();
}

KERNEL_TEST(epilogues_add_the_bias_and_ride_gelu_both_ways)
{
    enum { M = 35, N = 41, K = 17, AUX = N + 2 };
    const eo_dtype dtype = c->types.compute;
    eo_team *team = team_of(c);
    const struct operand a = operand(dtype, M * K, -1, 1), b = operand(dtype, N * K, -1, 1);
    const struct operand bias = operand(dtype, N, -2, 2);
    struct eo_multiply product = {.types = c->types, .c_stride = N, .a = {a.values, K, false},
                                  .b = {b.values, K, true}, .m = M, .n = N, .k = K, .bias = bias.values,
                                  .aux_stride = AUX, .scratch = product_scratch};
    float *sums = guarded(M * N), *expected = guarded(M * N);
    cr_assert_eq(cpu->multiply(NULL, &(struct eo_multiply){
        .types = FP32, .c = sums, .c_stride = N, .a = {a.seen, K, false}, .b = {b.seen, K, true}, .m = M, .n = N, .k = K}),
        EO_OK);

    product.c = output(dtype, M * N);
    product.epilogue = EO_EPILOGUE_BIAS;
    cr_assert_eq(ops->multiply(team, &product), EO_OK);
    memcpy(expected, sums, M * N * sizeof(float));
    cpu->bias_add(NULL, &(struct eo_bias){
        .types = FP32, .output = expected, .bias = bias.seen, .stride = N, .rows = M, .width = N});
    check("bias", dtype, product.c, expected, M * N, 1e-5);

    struct operand aux = operand(dtype, M * AUX, -1, 1);
    product.c = output(dtype, M * N);
    product.aux = aux.values;
    product.epilogue = EO_EPILOGUE_BIAS_GELU;
    cr_assert_eq(ops->multiply(team, &product), EO_OK);
    for (uint64_t row = 0; row < M; row++)
        memcpy(aux.seen + row * AUX, expected + row * N, N * sizeof(float));
    check("what GELU is taken of", dtype, aux.values, aux.seen, M * AUX, 1e-5);
    eo_elements_load(dtype, aux.seen, aux.values, 0, M * AUX);
    float *in = guarded(M * N);
    for (uint64_t row = 0; row < M; row++)
        memcpy(in + row * N, aux.seen + row * AUX, N * sizeof(float));
    cpu->gelu_forward(NULL, &(struct eo_gelu){.types = FP32, .out = expected, .in = in, .rows = M, .width = N});
    check("gelu", dtype, product.c, expected, M * N, 1e-5);

    const char *const gelu = product.c;
    product.c = output(dtype, M * N);
    product.epilogue = EO_EPILOGUE_GELU_GRADIENT;
    product.remakes = true;
    cr_assert_eq(ops->multiply(team, &product), EO_OK);
    cpu->gelu_backward(NULL, &(struct eo_gelu_gradient){
        .types = FP32, .in_gradient = expected, .out_gradient = sums, .in = in, .rows = M, .width = N});
    check("gelu's gradient", dtype, product.c, expected, M * N, 2e-5);
    const uint64_t row_bytes = N * eo_dtype_bytes(dtype);
    for (uint64_t row = 0; row < M; row++)
        cr_assert_eq(memcmp(eo_element_at(dtype, product.aux, row * AUX), gelu + row * row_bytes, row_bytes), 0,
                     "gelu again, row %lu", (unsigned long)row);
    guards_free();
    eo_team_destroy(&team);
}

/* ---- element-wise ---- */

KERNEL_TEST(sums_biases_and_activations_match)
{
    enum { ROWS = 19, WIDTH = 67, COUNT = ROWS * WIDTH, STRIDE = 2 * WIDTH + 1 };
    const eo_dtype dtype = c->types.compute;
    eo_team *team = team_of(c);
    const struct operand residual = operand(dtype, COUNT, -1, 1), bias = operand(dtype, WIDTH, -1, 1);
    struct operand out = operand(dtype, COUNT, -1, 1);
    float *expected = guarded(COUNT);
    cr_assert_eq(ops->residual_add(team, &(struct eo_residual){
        .types = c->types, .output = out.values, .residual = residual.values, .bias = bias.values, .rows = ROWS,
        .width = WIDTH}), EO_OK);
    cpu->residual_add(NULL, &(struct eo_residual){
        .types = FP32, .output = out.seen, .residual = residual.seen, .bias = bias.seen, .rows = ROWS, .width = WIDTH});
    check("residual", dtype, out.values, out.seen, COUNT, 1e-6);

    void *sums = output(c->types.gradient, WIDTH);
    cr_assert_eq(ops->column_sums(team, &(struct eo_column_sums){
        .types = c->types, .bias_gradient = sums, .gradient = residual.values, .rows = ROWS, .width = WIDTH}), EO_OK);
    cpu->column_sums(NULL, &(struct eo_column_sums){
        .types = FP32, .bias_gradient = expected, .gradient = residual.seen, .rows = ROWS, .width = WIDTH});
    check("column sums", c->types.gradient, sums, expected, WIDTH, 1e-5);

    cr_assert_eq(ops->gelu_forward(team, &(struct eo_gelu){
        .types = c->types, .out = out.values, .in = residual.values, .rows = ROWS, .width = WIDTH}), EO_OK);
    cpu->gelu_forward(NULL, &(struct eo_gelu){
        .types = FP32, .out = expected, .in = residual.seen, .rows = ROWS, .width = WIDTH});
    check("gelu", dtype, out.values, expected, COUNT, 1e-6);

    const struct operand both = operand(dtype, ROWS * STRIDE, -3, 3);
    struct operand gradients = operand_of(dtype, both.seen, ROWS * STRIDE);
    struct eo_swiglu swiglu = {.types = c->types, .out = out.values, .gate = both.values,
                               .up = eo_element_at(dtype, both.values, WIDTH), .stride = STRIDE, .rows = ROWS,
                               .width = WIDTH};
    struct eo_swiglu exact = swiglu;
    exact.types = FP32;
    exact.out = expected;
    exact.gate = both.seen;
    exact.up = both.seen + WIDTH;
    cr_assert_eq(ops->swiglu_forward(team, &swiglu), EO_OK);
    cr_assert_eq(cpu->swiglu_forward(NULL, &exact), EO_OK);
    check("swiglu", dtype, out.values, expected, COUNT, 1e-5);

    swiglu.gate = swiglu.gate_gradient = gradients.values; /* over gate and up, as the passes do */
    swiglu.up = swiglu.up_gradient = eo_element_at_mutable(dtype, gradients.values, WIDTH);
    swiglu.out_gradient = residual.values;
    exact.gate_gradient = gradients.seen;
    exact.up_gradient = gradients.seen + WIDTH;
    exact.out_gradient = residual.seen;
    swiglu.out = residual.values; /* in the place of its gradient */
    cr_assert_eq(ops->swiglu_backward(team, &swiglu), EO_OK);
    cr_assert_eq(memcmp(residual.values, out.values, COUNT * eo_dtype_bytes(dtype)), 0, "swiglu again");
    cr_assert_eq(cpu->swiglu_backward(NULL, &exact), EO_OK);
    check("swiglu's gradient", dtype, gradients.values, gradients.seen, ROWS * STRIDE, 1e-5);
    guards_free();
    eo_team_destroy(&team);
}

KERNEL_TEST(rotations_turn_and_turn_back)
{
    enum { SEQ = 5, ROWS = 2 * SEQ, HEADS = 3, HEAD = 6, STRIDE = HEADS * HEAD + 2, COUNT = ROWS * STRIDE };
    eo_team *team = team_of(c);
    float *table = guarded(eo_rope_table_floats(SEQ, HEAD));
    eo_rope_table(table, SEQ, HEAD, 100, NULL);
    for (int backward = 0; backward < 2; backward++) {
        struct operand values = operand(c->types.compute, COUNT, -1, 1);
        struct eo_rotation rotation = {
            .types = c->types, .values = values.values, .stride = STRIDE, .table = table, .rows = ROWS, .seq = SEQ,
            .head_count = HEADS, .head_size = HEAD, .backward = backward};
        cr_assert_eq(ops->rotate(team, &rotation), EO_OK);
        rotation.types = FP32;
        rotation.values = values.seen;
        cr_assert_eq(cpu->rotate(NULL, &rotation), EO_OK);
        check("rotation", c->types.compute, values.values, values.seen, COUNT, 1e-6);
    }
    guards_free();
    eo_team_destroy(&team);
}

/* ---- norms ---- */

static void norm_case(const struct kernel_case *c, eo_team *team, bool centered, uint64_t rows, uint64_t width)
{
    const eo_dtype dtype = c->types.compute, gradient = c->types.gradient;
    const uint64_t count = rows * width;
    const struct operand residual = operand(dtype, count, -1, 1), branch = operand(dtype, count, -1, 1);
    const struct operand branch_bias = operand(dtype, width, -1, 1), weight = operand(dtype, width, 0.5F, 1.5F);
    const struct operand bias = operand(dtype, width, -1, 1), out_gradient = operand(dtype, count, -1, 1);
    struct operand sum = operand_of(dtype, branch.seen, count); /* over the branch, as the passes do */
    float *expected = guarded(count), *mean = guarded(rows), *rstd = guarded(rows);
    struct eo_norm norm = {.types = c->types, .centered = centered, .sum = sum.values, .out = output(dtype, count),
                           .mean = centered ? mean : NULL, .rstd = rstd, .residual = residual.values,
                           .branch = sum.values, .branch_bias = branch_bias.values, .weight = weight.values,
                           .bias = centered ? bias.values : NULL, .eps = 1e-5F, .rows = rows, .width = width};
    cr_assert_eq(ops->norm_forward(team, &norm), EO_OK);
    cpu->residual_add(NULL, &(struct eo_residual){
        .types = FP32, .output = sum.seen, .residual = residual.seen, .bias = branch_bias.seen, .rows = rows,
        .width = width});
    check("sum", dtype, sum.values, sum.seen, count, 1e-6);
    eo_elements_load(dtype, sum.seen, sum.values, 0, count); /* the norm is of the stored sum */
    const double absolute = width == 1 ? 1e-2 : 2e-5;        /* one value has no spread: rstd is 1 / sqrt(eps) */
    float *unused = guarded(rows);
    cr_assert_eq(cpu->norm_forward(NULL, &(struct eo_norm){
        .types = FP32, .centered = centered, .out = expected, .mean = unused, .rstd = unused, .residual = sum.seen,
        .weight = weight.seen, .bias = bias.seen, .eps = 1e-5F, .rows = rows, .width = width}), EO_OK);
    check("norm", dtype, norm.out, expected, count, absolute);

    for (int accumulate = 0; accumulate < 2; accumulate++) {
        struct operand d_weight = operand(gradient, width, -1, 1), d_bias = operand(gradient, width, -1, 1);
        struct operand d = operand_of(dtype, out_gradient.seen, count);
        const bool skips = accumulate; /* with: over the skip gradient; without: over the output's */
        struct operand skip = operand(dtype, count, -1, 1);
        void *in_gradient = skips ? skip.values : d.values;
        struct eo_norm_gradient backward = {
            .types = c->types, .centered = centered, .in_gradient = in_gradient,
            .skip_gradient = skips ? skip.values : NULL, .out_gradient = d.values, .in = sum.values,
            .weight = weight.values, .mean = centered ? mean : NULL, .rstd = rstd, .weight_gradient = d_weight.values,
            .bias_gradient = centered ? d_bias.values : NULL, .rows = rows, .width = width, .accumulate = accumulate,
            .scratch = guarded_bytes(cpu->norm_scratch_bytes(rows, width)), .bias = norm.bias,
            .again = skips ? d.values : output(dtype, count)};
        cr_assert_eq(ops->norm_backward(team, &backward), EO_OK);
        cr_assert_eq(memcmp(backward.again, norm.out, count * eo_dtype_bytes(dtype)), 0, "the norm in the backward pass");
        backward.types = FP32;
        backward.again = NULL;
        backward.in_gradient = expected;
        backward.skip_gradient = skips ? skip.seen : NULL;
        backward.out_gradient = d.seen;
        backward.in = sum.seen;
        backward.weight = weight.seen;
        backward.weight_gradient = d_weight.seen;
        backward.bias_gradient = d_bias.seen;
        cr_assert_eq(cpu->norm_backward(NULL, &backward), EO_OK);
        const double error = width == 1 ? 0.1 : 5e-5;
        check("norm's gradient", dtype, in_gradient, expected, count, error);
        check("its weight's gradient", gradient, d_weight.values, d_weight.seen, width, error);
        check("its bias's gradient", gradient, d_bias.values, d_bias.seen, width, 2e-5); /* RMSNorm: left alone */
    }
    guards_free();
}

KERNEL_TEST(norms_match_forward_again_and_backward)
{
    static const uint64_t shapes[][2] = {{1, 3}, {5, 1}, {7, 64}, {33, 131}, {12, 300}};
    eo_team *team = team_of(c);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int centered = 0; centered < 2; centered++)
            norm_case(c, team, centered, shapes[i][0], shapes[i][1]);
    eo_team_destroy(&team);
}

/* Heads of q and k with weights of their own, then what is copied; rows have a gap. */
static void head_norm_case(const struct kernel_case *c, eo_team *team, uint64_t rows, uint64_t copied)
{
    enum { HEADS = 3, KV_HEADS = 2, SIZE = 10, NORMED = (HEADS + KV_HEADS) * SIZE };
    const eo_dtype dtype = c->types.compute;
    const uint64_t in_stride = NORMED + copied + 1, stride = NORMED + copied + 3, parts = eo_head_norm_parts(rows);
    const struct operand in = operand(dtype, rows * in_stride, -2, 2), weight[2] = {operand(dtype, SIZE, 0.5F, 1.5F),
                                                                                    operand(dtype, SIZE, 0.5F, 1.5F)};
    struct operand out = operand(dtype, rows * stride, -1, 1), d = operand(dtype, rows * stride, -1, 1);
    float *sums = guarded(2 * parts * SIZE), *expected[2] = {guarded(SIZE), guarded(SIZE)};
    void *weight_gradient[2] = {output(c->types.gradient, SIZE), output(c->types.gradient, SIZE)};
    struct eo_head_norm forward = {
        .types = c->types, .out = out.values, .in = in.values, .weight = {weight[0].values, weight[1].values},
        .in_stride = in_stride, .out_stride = stride, .rows = rows, .copied = copied, .head_count = {HEADS, KV_HEADS},
        .head_size = SIZE, .eps = 1e-5F};
    struct eo_head_norm_gradient backward = {
        .types = c->types, .gradient = d.values, .in = in.values, .weight = {weight[0].values, weight[1].values},
        .stride = stride, .in_stride = in_stride, .rows = rows, .head_count = {HEADS, KV_HEADS}, .head_size = SIZE,
        .eps = 1e-5F, .sums = sums};
    cr_assert_eq(ops->head_norm_forward(team, &forward), EO_OK);
    cr_assert_eq(ops->head_norm_backward(team, &backward), EO_OK);
    cr_assert_eq(ops->head_norm_weights(team, &(struct eo_head_norm_weights){
        .types = c->types, .weight_gradient = {weight_gradient[0], weight_gradient[1]}, .sums = sums, .rows = rows,
        .head_size = SIZE}), EO_OK);

    forward.types = backward.types = FP32;
    forward.in = backward.in = in.seen;
    forward.out = out.seen;
    backward.gradient = d.seen;
    for (int k = 0; k < 2; k++)
        forward.weight[k] = backward.weight[k] = weight[k].seen;
    cr_assert_eq(cpu->head_norm_forward(NULL, &forward), EO_OK);
    cr_assert_eq(cpu->head_norm_backward(NULL, &backward), EO_OK);
    for (uint64_t i = 0; i < 2 * SIZE; i++) {
        double sum = 0;
        for (uint64_t part = 0; part < parts; part++)
            sum += sums[(i / SIZE * parts + part) * SIZE + i % SIZE];
        expected[i / SIZE][i % SIZE] = (float)sum;
    }
    check("heads", dtype, out.values, out.seen, rows * stride, 2e-5);
    check("heads' gradient", dtype, d.values, d.seen, rows * stride, 5e-5);
    check("their weight's gradient, q", c->types.gradient, weight_gradient[0], expected[0], SIZE, 5e-4);
    check("their weight's gradient, k", c->types.gradient, weight_gradient[1], expected[1], SIZE, 5e-4);
    guards_free();
}

KERNEL_TEST(heads_are_normed_each_for_itself)
{
    eo_team *team = team_of(c);
    head_norm_case(c, team, 1, 0);
    head_norm_case(c, team, 37, 7);
    head_norm_case(c, team, 600, 2); /* parts of more than one row */
    eo_team_destroy(&team);
}

/* ---- attention ---- */

static void attention_case(const struct kernel_case *c, eo_team *team, uint32_t heads, uint32_t kv_heads, uint32_t seq,
                           uint32_t head_size)
{
    const eo_dtype dtype = c->types.compute;
    const uint64_t row = (uint64_t)(heads + 2 * kv_heads) * head_size + 3, out_row = (uint64_t)heads * head_size + 1;
    const struct eo_attention_shape shape = {.batch = 2, .seq = seq, .head_count = heads, .kv_head_count = kv_heads,
                                             .head_size = head_size, .q_stride = row, .kv_stride = row,
                                             .out_stride = out_row};
    const uint64_t k_at = (uint64_t)heads * head_size, v_at = k_at + (uint64_t)kv_heads * head_size;
    const uint64_t count = 2 * seq * row, out_count = 2 * seq * out_row;
    const struct operand qkv = operand(dtype, count, -2, 2), d_out = operand(dtype, out_count, -1, 1);
    struct operand out = operand(dtype, out_count, -1, 1), d = operand(dtype, count, -1, 1);
    float *log_sum_exp = guarded(2 * heads * seq), *expected_sums = guarded(2 * heads * seq);
    struct eo_attention attention = {
        .types = c->types, .shape = shape, .q = qkv.values, .k = eo_element_at(dtype, qkv.values, k_at),
        .v = eo_element_at(dtype, qkv.values, v_at), .out = out.values, .log_sum_exp = log_sum_exp,
        .out_gradient = d_out.values, .q_gradient = d.values, .k_gradient = eo_element_at_mutable(dtype, d.values, k_at),
        .v_gradient = eo_element_at_mutable(dtype, d.values, v_at),
        .scratch = guarded_bytes(ops->attention_scratch_bytes(c->types, &shape, c->threads ? c->threads : 1))};
    const struct eo_attention exact = {
        .types = FP32, .shape = shape, .q = qkv.seen, .k = qkv.seen + k_at, .v = qkv.seen + v_at, .out = out.seen,
        .log_sum_exp = expected_sums, .out_gradient = d_out.seen, .q_gradient = d.seen, .k_gradient = d.seen + k_at,
        .v_gradient = d.seen + v_at, .scratch = guarded_bytes(cpu->attention_scratch_bytes(FP32, &shape, 1))};
    cr_assert_eq(ops->attention_forward(team, &attention), EO_OK);
    cr_assert_eq(cpu->attention_forward(NULL, &exact), EO_OK);
    check("attention", dtype, out.values, out.seen, out_count, 1e-5);
    check("log-sum-exp", EO_DTYPE_FP32, log_sum_exp, expected_sums, 2 * heads * seq, 1e-5);
    cr_assert_eq(ops->attention_backward(team, &attention), EO_OK);
    cr_assert_eq(cpu->attention_backward(NULL, &exact), EO_OK);
    /* delta is taken from the stored output: half an ulp of it, times a weight and a key, summed over the queries */
    check("attention's gradients", dtype, d.values, d.seen, count, dtype == EO_DTYPE_BF16 ? 0.04 : 1e-4);
    guards_free();
}

KERNEL_TEST(attention_matches_with_and_without_groups)
{
    eo_team *team = team_of(c);
    attention_case(c, team, 1, 1, 1, 4);
    attention_case(c, team, 3, 3, 9, 8);
    attention_case(c, team, 4, 2, 17, 6);
    attention_case(c, team, 6, 1, 33, 16);
    eo_team_destroy(&team);
}

/* ---- embedding and loss ---- */

KERNEL_TEST(embeddings_match_both_ways)
{
    enum { SEQ = 7, ROWS = 3 * SEQ, WIDTH = 70, VOCABULARY = 9, POSITIONS = 8, TABLE = VOCABULARY * WIDTH };
    const eo_dtype dtype = c->types.compute, gradient = c->types.gradient;
    eo_team *team = team_of(c);
    const int32_t *tokens = guarded_tokens(ROWS, VOCABULARY - 1); /* one that never comes */
    const struct operand table = operand(dtype, TABLE, -1, 1), positions = operand(dtype, POSITIONS * WIDTH, -1, 1);
    const struct operand d = operand(dtype, ROWS * WIDTH, -1, 1);
    for (int with_positions = 0; with_positions < 2; with_positions++) {
        void *out = output(dtype, ROWS * WIDTH), *d_table = output(gradient, TABLE);
        void *d_positions = output(gradient, POSITIONS * WIDTH);
        float *expected = guarded(ROWS * WIDTH), *d_expected = guarded(TABLE);
        float *d_positions_expected = guarded(POSITIONS * WIDTH);
        struct eo_embedding forward = {
            .types = c->types, .out = out, .tokens = tokens, .token_table = table.values,
            .position_table = with_positions ? positions.values : NULL, .rows = ROWS, .width = WIDTH, .seq = SEQ};
        cr_assert_eq(ops->embedding_forward(team, &forward), EO_OK);
        forward.types = FP32;
        forward.out = expected;
        forward.token_table = table.seen;
        forward.position_table = with_positions ? positions.seen : NULL;
        cr_assert_eq(cpu->embedding_forward(NULL, &forward), EO_OK);
        check("embedding", dtype, out, expected, ROWS * WIDTH, 1e-6);
        struct eo_embedding_gradient backward = {
            .types = c->types, .token_gradient = d_table, .position_gradient = with_positions ? d_positions : NULL,
            .out_gradient = d.values, .tokens = tokens, .rows = ROWS, .width = WIDTH, .vocabulary = VOCABULARY,
            .positions = POSITIONS, .seq = SEQ,
            .scratch = guarded_bytes(ops->embedding_scratch_bytes(ROWS, WIDTH, VOCABULARY))};
        cr_assert_eq(ops->embedding_backward(team, &backward), EO_OK);
        backward.types = FP32;
        backward.token_gradient = d_expected;
        backward.position_gradient = with_positions ? d_positions_expected : NULL;
        backward.out_gradient = d.seen;
        cr_assert_eq(cpu->embedding_backward(NULL, &backward), EO_OK);
        check("tokens' gradient", gradient, d_table, d_expected, TABLE, 1e-5);
        if (with_positions)
            check("positions' gradient", gradient, d_positions, d_positions_expected, POSITIONS * WIDTH, 1e-5);
    }
    guards_free();
    eo_team_destroy(&team);
}

KERNEL_TEST(losses_and_their_gradients_match)
{
    enum { ROWS = 21, VOCABULARY = 37, STRIDE = 48, COUNT = ROWS * STRIDE };
    const eo_dtype dtype = c->types.compute;
    eo_team *team = team_of(c);
    const int32_t *targets = guarded_tokens(ROWS, VOCABULARY);
    struct operand logits = operand(dtype, COUNT, -6, 6);
    float *losses = guarded(ROWS), *expected = guarded(ROWS);
    double sum = 100, total = 0, twice;
    struct eo_loss loss = {.types = c->types, .logits = logits.values, .losses = losses, .loss_sum = &sum,
                           .targets = targets, .stride = STRIDE, .rows = ROWS, .vocabulary = VOCABULARY};
    struct eo_loss exact = loss;
    exact.types = FP32;
    exact.logits = logits.seen;
    exact.losses = expected;
    exact.loss_sum = &total;
    cr_assert_eq(cpu->cross_entropy(NULL, &exact), EO_OK);
    cr_assert_eq(ops->cross_entropy(team, &loss), EO_OK);
    expect_close("losses", losses, expected, ROWS, 1e-5, 1e-5);
    cr_assert_float_eq(sum, 100 + total, 1e-3);

    loss.backward = exact.backward = true;
    if (ops->loss_scratch_bytes)
        loss.scratch = guarded_bytes(ops->loss_scratch_bytes(VOCABULARY, eo_team_thread_count(team)));
    loss.scale = exact.scale = 0.25F;
    cr_assert_eq(ops->loss_zero(team, &sum), EO_OK);
    cr_assert_eq(ops->cross_entropy(team, &loss), EO_OK);
    cr_assert_float_eq(sum, total, 1e-3);
    cr_assert_eq(cpu->cross_entropy(NULL, &exact), EO_OK);
    check("logits' gradient", dtype, logits.values, logits.seen, COUNT, 1e-6);
    twice = 1;
    cr_assert_eq(ops->loss_add(team, &twice, &sum, 2), EO_OK);
    cr_assert_float_eq(twice, 1 + 2 * sum, 1e-9);
    guards_free();
    eo_team_destroy(&team);
}

/* Goal: what is not finite shows. Method: one NaN, one infinity, in a row of a loss and anywhere in a tensor. */
KERNEL_TEST(what_is_not_finite_is_found)
{
    enum { COUNT = 65 };
    static const float spoilers[] = {NAN, INFINITY, -INFINITY};
    const eo_dtype dtype = c->types.compute;
    const int32_t target = 3;
    eo_team_destroy(&(eo_team *){team_of(c)});
    for (size_t i = 0; i < sizeof(spoilers) / sizeof(spoilers[0]); i++) {
        struct operand values = operand(dtype, COUNT, -1, 1);
        bool is_finite = false;
        cr_assert_eq(ops->all_finite(NULL, dtype, values.values, COUNT, &is_finite), EO_OK);
        cr_assert(is_finite);
        eo_element_store(dtype, values.values, COUNT - 1, spoilers[i]);
        cr_assert_eq(ops->all_finite(NULL, dtype, values.values, COUNT, &is_finite), EO_OK);
        cr_assert_not(is_finite);
        float loss = 0;
        double sum = 0;
        cr_assert_eq(ops->cross_entropy(NULL, &(struct eo_loss){
            .types = c->types, .logits = values.values, .losses = &loss, .loss_sum = &sum, .targets = &target,
            .stride = COUNT, .rows = 1, .vocabulary = COUNT}), EO_OK);
        cr_assert(isfinite(sum) == (spoilers[i] == -INFINITY), "%g gives %g", (double)spoilers[i], sum);
    }
    guards_free();
}
