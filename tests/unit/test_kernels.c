/* SPDX-License-Identifier: MIT
 *
 * Element-wise kernels and norms, each against its plain reference.
 * Method: sizes around every vector width, at every level, with teams of 1 to 3 threads that must agree to the bit;
 * operands end at a closed page. In-place forms run where the contract allows them.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernel_fixture.h"
#include "layers/kernel_ops.h"

static const uint64_t row_counts[] = {1, 3, 17, 64};
static const uint64_t widths[] = {1, 3, 16, 17, 31, 33, 64, 127, 128, 257, 384};

#define FOR_SHAPES(rows, width)                                                                  \
    for (size_t r_ = 0; r_ < sizeof(row_counts) / sizeof(row_counts[0]); r_++)                   \
        for (size_t w_ = 0, once_ = 1; once_; once_ = 0)                                         \
            for (uint64_t rows = row_counts[r_], width; w_ < sizeof(widths) / sizeof(widths[0]); \
                 w_++, guards_free())                                                            \
                if ((width = widths[w_]) > 0)

/* What a kernel of this file takes: a bag, each test fills what it needs. */
struct bag {
    uint64_t rows, width, stride;
    const float *a, *b, *c, *d, *e;
    float *scratch;
    bool flag, in_place;
};

/* ---- sums ---- */

static void run_add(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    if (bag->in_place)
        memcpy(out, bag->a, bag->rows * bag->width * sizeof(float));
    eo_add(team, out, bag->in_place ? out : bag->a, bag->b, bag->rows * bag->width);
}

Test(kernels, add_is_exact)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        struct bag bag = {
            .rows = rows, .width = width, .a = guarded_random(count, -1, 1), .b = guarded_random(count, -1, 1)};
        float *expected = guarded(count);
        eo_add_ref(expected, bag.a, bag.b, count);
        every_level_and_team(run_add, &bag, count, expected, 0, 0, "add");
        bag.in_place = true;
        every_level_and_team(run_add, &bag, count, expected, 0, 0, "add in place");
    }
}

static void run_bias_add(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    memcpy(out, bag->a, bag->rows * bag->width * sizeof(float));
    eo_bias_add(team, out, bag->width, bag->b, bag->rows, bag->width);
}

Test(kernels, bias_is_added_to_each_row)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        struct bag bag = {
            .rows = rows, .width = width, .a = guarded_random(count, -1, 1), .b = guarded_random(width, -1, 1)};
        float *expected = guarded_copy(bag.a, count);
        eo_bias_add_ref(expected, bag.b, rows, width);
        every_level_and_team(run_bias_add, &bag, count, expected, 0, 0, "bias add");
    }
}

static void run_bias_gradient(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    if (bag->flag)
        memcpy(out, bag->b, bag->width * sizeof(float));
    eo_bias_gradient(team, out, bag->a, bag->width, bag->rows, bag->width, bag->flag);
}

Test(kernels, bias_gradient_sums_columns_and_can_add)
{
    FOR_SHAPES(rows, width)
    {
        struct bag bag = {.rows = rows,
                          .width = width,
                          .a = guarded_random(rows * width, -1, 1),
                          .b = guarded_random(width, -1, 1)};
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            bag.flag = accumulate;
            float *expected = guarded_copy(bag.b, width);
            eo_bias_gradient_ref(expected, bag.a, rows, width, accumulate);
            every_level_and_team(run_bias_gradient, &bag, width, expected, 1e-6, 1e-5, "bias gradient");
        }
    }
}

/* ---- activation functions ---- */

static void run_gelu_forward(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    if (bag->in_place)
        memcpy(out, bag->a, bag->rows * bag->width * sizeof(float));
    eo_gelu_forward(team, out, bag->in_place ? out : bag->a, bag->b, bag->rows, bag->width);
}

Test(kernels, gelu_matches_the_formula_in_double)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        struct bag bag = {
            .rows = rows, .width = width, .a = guarded_random(count, -6, 6), .b = guarded_random(width, -1, 1)};
        float *expected = guarded(count);
        eo_gelu_forward_ref(expected, bag.a, bag.b, rows, width);
        every_level_and_team(run_gelu_forward, &bag, count, expected, 1e-6, 2e-7, "gelu");
        bag.in_place = true;
        bag.b = NULL;
        eo_gelu_forward_ref(expected, bag.a, NULL, rows, width);
        every_level_and_team(run_gelu_forward, &bag, count, expected, 1e-6, 2e-7, "gelu in place without bias");
    }
}

/* The vectorised exponential over its whole range: relative error, where the value is not lost in the sum. */
Test(kernels, gelu_holds_at_large_small_and_denormal_inputs)
{
    static const float inputs[] = {0.0f,  -0.0f,  1e-40f, -1e-40f, 1e-20f, -1e-3f, 1e-3f, 3.0f,  -3.0f,
                                   10.0f, -10.0f, 50.0f,  -50.0f,  1e4f,   -1e4f,  1e10f, -1e10f};
    const uint64_t count = sizeof(inputs) / sizeof(inputs[0]);
    struct bag bag = {.rows = 1, .width = count, .a = guarded_copy(inputs, count)};
    float *expected = guarded(count);
    eo_gelu_forward_ref(expected, bag.a, NULL, 1, count);
    every_level_and_team(run_gelu_forward, &bag, count, expected, 1e-6, 1e-12, "gelu of extremes");
    guards_free();
}

Test(kernels, gelu_is_within_a_millionth_where_it_counts)
{
    const uint64_t count = 100000;
    struct bag bag = {.rows = 100, .width = 1000, .a = guarded_random(count, -2, 80)};
    float *expected = guarded(count);
    eo_gelu_forward_ref(expected, bag.a, NULL, 100, 1000);
    every_level_and_team(run_gelu_forward, &bag, count, expected, 1e-6, 0, "gelu");
    guards_free();
}

/* Whatever its bits: a poisoned input must not come out as a number. */
Test(kernels, activation_functions_pass_nans_on)
{
    static const char *const names[] = {"plain", "avx2", "avx512"};
    for (size_t level = 0; level < 3; level++) {
        if (eo_kernels_select(names[level]) < 0)
            continue;
        for (int kind = 0; kind < 2; kind++) {
            float in[33];
            float out[33];
            float up[33];
            for (int i = 0; i < 33; i++)
                in[i] = NAN, up[i] = 1;
            if (kind == 1)
                memset(in, 0xff, sizeof(in));
            eo_gelu_forward(NULL, out, in, NULL, 1, 33);
            for (int i = 0; i < 33; i++)
                cr_assert(isnan(out[i]), "gelu, %s: element %d", names[level], i);
            eo_gelu_backward(NULL, out, up, in, NULL, NULL, 1, 33, false);
            for (int i = 0; i < 33; i++)
                cr_assert(isnan(out[i]), "gelu backward, %s: element %d", names[level], i);
            eo_swiglu_forward(NULL, out, in, up, 33, 1, 33);
            for (int i = 0; i < 33; i++)
                cr_assert(isnan(out[i]), "swiglu, %s: element %d", names[level], i);
        }
    }
}

/* out: the gradient of the input, then that of the bias. */
static void run_gelu_backward(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const uint64_t count = bag->rows * bag->width;
    if (bag->in_place)
        memcpy(out, bag->c, count * sizeof(float));
    memcpy(out + count, bag->d, bag->width * sizeof(float));
    eo_gelu_backward(team, out, bag->in_place ? out : bag->c, bag->a, bag->b, out + count, bag->rows, bag->width,
                     bag->flag);
}

Test(kernels, gelu_backward_gives_both_gradients_in_one_pass)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        struct bag bag = {.rows = rows,
                          .width = width,
                          .a = guarded_random(count, -5, 5),
                          .b = guarded_random(width, -1, 1),
                          .c = guarded_random(count, -1, 1),
                          .d = guarded_random(width, -1, 1)};
        for (int variant = 0; variant < 2; variant++) {
            bag.flag = bag.in_place = variant == 1;
            bag.b = variant == 1 ? NULL : bag.b;
            float *expected = guarded(count + width);
            memcpy(expected + count, bag.d, width * sizeof(float));
            eo_gelu_backward_ref(expected, bag.c, bag.a, bag.b, expected + count, rows, width, bag.flag);
            every_level_and_team(run_gelu_backward, &bag, count + width, expected, 2e-6, 1e-5, "gelu backward");
        }
    }
}

Test(kernels, gelu_backward_can_leave_the_bias_out)
{
    const float in[3] = {-1, 0, 2};
    const float gradient[3] = {1, 2, 3};
    float out[3];
    float expected[3];
    eo_gelu_backward_ref(expected, gradient, in, NULL, NULL, 1, 3, false);
    eo_gelu_backward(NULL, out, gradient, in, NULL, NULL, 1, 3, false);
    expect_close("gelu backward without bias", out, expected, 3, 1e-6, 1e-6);
}

static void run_swiglu_forward(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    eo_swiglu_forward(team, out, bag->a, bag->b, bag->stride, bag->rows, bag->width);
}

/* out: gate and up gradients, in rows as gate and up are: side by side. */
static void run_swiglu_backward(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    if (bag->in_place)
        memcpy(out, bag->a, bag->rows * bag->stride * sizeof(float));
    const float *gate = bag->in_place ? out : bag->a;
    eo_swiglu_backward(team, out, out + bag->width, bag->c, gate, gate + bag->width, bag->stride, bag->rows,
                       bag->width);
}

Test(kernels, swiglu_and_its_gradients_work_on_halves_of_a_row)
{
    FOR_SHAPES(rows, width)
    {
        float *both = guarded_random(rows * 2 * width, -8, 8);
        struct bag bag = {.rows = rows,
                          .width = width,
                          .stride = 2 * width,
                          .a = both,
                          .b = both + width,
                          .c = guarded_random(rows * width, -1, 1)};
        float *expected = guarded(rows * width);
        eo_swiglu_forward_ref(expected, bag.a, bag.b, bag.stride, rows, width);
        every_level_and_team(run_swiglu_forward, &bag, rows * width, expected, 2e-6, 1e-7, "swiglu");
        float *gradients = guarded(rows * 2 * width);
        eo_swiglu_backward_ref(gradients, gradients + width, bag.c, bag.a, bag.b, bag.stride, rows, width);
        every_level_and_team(run_swiglu_backward, &bag, rows * 2 * width, gradients, 2e-6, 1e-6, "swiglu backward");
        bag.in_place = true;
        every_level_and_team(run_swiglu_backward, &bag, rows * 2 * width, gradients, 2e-6, 1e-6,
                             "swiglu backward in place");
    }
}

/* ---- norms of heads: rows of width `width` are heads, a stride of three and a gap apart ---- */

enum { HEADS = 3, GAP = 5 };

static void head_rows(float *packed, const float *rows, const struct bag *bag)
{
    for (uint64_t row = 0; row < bag->rows; row++)
        memcpy(packed + row * HEADS * bag->width, rows + row * bag->stride, HEADS * bag->width * sizeof(float));
}

/* out: the normed, the gradient of a, the weight's gradient. a: in, b: gradient of the normed, d: weight. */
static void run_head_norm(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const uint64_t all = bag->rows * bag->stride, parts = eo_head_norm_parts(bag->rows);
    struct eo_head_rows heads = {.in = bag->a, .weight = bag->d, .out = out, .in_stride = bag->stride,
                                 .out_stride = bag->stride, .rows = bag->rows, .head_count = HEADS,
                                 .head_size = (uint32_t)bag->width, .eps = 1e-5F, .sums = bag->scratch,
                                 .part_rows = eo_head_norm_part_rows(bag->rows)};
    memset(out, 0, all * sizeof(float));
    eo_head_norm_forward(team, &heads);
    heads.out = out + all;
    memcpy(heads.out, bag->b, all * sizeof(float));
    eo_head_norm_backward(team, &heads);
    float *sums = heads.out + all;
    memset(sums, 0, bag->width * sizeof(float));
    for (uint64_t i = 0; i < parts * bag->width; i++)
        sums[i % bag->width] += bag->scratch[i];
}

static void head_norm_expected(const struct bag *bag, float *out)
{
    const uint64_t all = bag->rows * bag->stride, heads = bag->rows * HEADS, count = heads * bag->width;
    float *in = guarded(count), *d = guarded(count), *normed = guarded(count), *gradient = guarded(count);
    float *rstd = guarded(heads);
    head_rows(in, bag->a, bag);
    head_rows(d, bag->b, bag);
    eo_norm_forward_ref(normed, NULL, rstd, in, bag->d, NULL, 1e-5F, heads, bag->width);
    eo_norm_backward_ref(gradient, NULL, d, in, NULL, rstd, bag->d, out + 2 * all, NULL, heads, bag->width, false);
    memset(out, 0, all * sizeof(float));
    memcpy(out + all, bag->b, all * sizeof(float));
    for (uint64_t row = 0; row < bag->rows; row++) {
        memcpy(out + row * bag->stride, normed + row * HEADS * bag->width, HEADS * bag->width * sizeof(float));
        memcpy(out + all + row * bag->stride, gradient + row * HEADS * bag->width, HEADS * bag->width * sizeof(float));
    }
}

/* Goal: each head is an RMSNorm of its own, and what lies between rows is left alone. Method: RMSNorm's reference. */
Test(kernels, heads_are_normed_each_for_itself)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t stride = HEADS * width + GAP;
        struct bag bag = {.rows = rows, .width = width, .stride = stride,
                          .a = guarded_random(rows * stride, 0.1F, 2),
                          .b = guarded_random(rows * stride, -1, 1),
                          .d = guarded_random(width, 0.5F, 1.5F),
                          .scratch = guarded(eo_head_norm_parts(rows) * width)};
        float *expected = guarded(2 * rows * stride + width);
        head_norm_expected(&bag, expected);
        every_level_and_team(run_head_norm, &bag, 2 * rows * stride + width, expected, 2e-5, 1e-4, "norm of heads");
    }
}

/* ---- rotary positions ---- */

enum { ROPE_SEQ = 5, ROPE_HEADS = 3, ROPE_ROWS = 13 };

/* Of llama3's: with a theta of 10000 some pairs turn more than 4 times over 512 positions, some less than once. */
static const eo_rope_scaling rope_scalings[] = {
    {.kind = EO_ROPE_PLAIN},
    {.kind = EO_ROPE_LINEAR, .factor = 3},
    {.kind = EO_ROPE_LLAMA3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 512},
};
enum { ROPE_SCALINGS = sizeof(rope_scalings) / sizeof(rope_scalings[0]) };

static void run_rope(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const uint32_t head_size = (uint32_t)bag->width;
    memcpy(out, bag->a, ROPE_ROWS * bag->stride * sizeof(float));
    eo_rope(team, out, bag->stride, bag->b, ROPE_ROWS, ROPE_SEQ, ROPE_HEADS, head_size, bag->flag);
}

Test(kernels, rope_turns_halves_and_turns_them_back)
{
    static const uint32_t head_sizes[] = {2, 6, 32, 34, 64};
    for (size_t i = 0; i < ROPE_SCALINGS * sizeof(head_sizes) / sizeof(head_sizes[0]); i++, guards_free()) {
        const uint32_t head_size = head_sizes[i / ROPE_SCALINGS];
        const eo_rope_scaling *scaling = &rope_scalings[i % ROPE_SCALINGS];
        const uint64_t stride = ROPE_HEADS * head_size + 3; /* something else lies between the rows: left alone */
        const uint64_t count = ROPE_ROWS * stride;
        float *table = guarded(eo_rope_table_floats(ROPE_SEQ, head_size));
        eo_rope_table(table, ROPE_SEQ, head_size, 10000, scaling);
        struct bag bag = {.width = head_size, .stride = stride, .a = guarded_random(count, -1, 1), .b = table};
        float *expected = guarded_copy(bag.a, count);
        eo_rope_ref(expected, stride, 10000, scaling, ROPE_ROWS, ROPE_SEQ, ROPE_HEADS, head_size, false);
        every_level_and_team(run_rope, &bag, count, expected, 1e-6, 1e-6, "rope");
        const float *original = bag.a;
        bag.a = expected;
        bag.flag = true;
        every_level_and_team(run_rope, &bag, count, original, 2e-6, 2e-6, "rope backward");
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
static void run_norm_forward(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const uint64_t count = bag->rows * bag->width;
    const struct eo_norm_input input = {bag->a, bag->b, bag->c};
    float *mean = out + 2 * count;
    float *rstd = mean + bag->rows;
    if (bag->e != NULL) {
        eo_layernorm_forward(team, out, out + count, mean, rstd, input, bag->d, bag->e, 1e-5f, bag->rows, bag->width);
        return;
    }
    memset(mean, 0, bag->rows * sizeof(float));
    eo_rmsnorm_forward(team, out, out + count, rstd, input, bag->d, 1e-5f, bag->rows, bag->width);
}

static void norm_forward_expected(const struct bag *bag, float *out)
{
    const uint64_t count = bag->rows * bag->width;
    memset(out + 2 * count, 0, bag->rows * sizeof(float));
    eo_norm_sum_ref(out, (struct eo_norm_input){bag->a, bag->b, bag->c}, bag->rows, bag->width);
    eo_norm_forward_ref(out + count, bag->e == NULL ? NULL : out + 2 * count, out + 2 * count + bag->rows, out,
                        bag->d, bag->e, 1e-5f, bag->rows, bag->width);
}

Test(kernels, norms_add_first_then_normalise)
{
    FOR_SHAPES(rows, width)
    {
        const uint64_t count = rows * width;
        struct bag bag = {.rows = rows,
                          .width = width,
                          .a = guarded_random(count, 0, 2),
                          .b = guarded_random(count, -1, 1),
                          .c = guarded_random(width, -1, 1),
                          .d = guarded_random(width, 0.5f, 1.5f)};
        const float *bias = guarded_random(width, -1, 1);
        float *expected = guarded(2 * count + 2 * rows);
        for (int variant = 0; variant < 4; variant++) {
            bag.e = variant % 2 == 0 ? bias : NULL;
            if (variant == 2)
                bag.b = bag.c = NULL;
            norm_forward_expected(&bag, expected);
            /* A width of one leaves only the noise of x - mean, times rstd = 316. */
            every_level_and_team(run_norm_forward, &bag, 2 * count + 2 * rows, expected, 1e-5, 1e-4, "norm");
        }
    }
}

/* out: the norm again; also its bits beside the forward's. */
static void run_norm_again(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const struct eo_norm_input input = {.residual = bag->a};
    float *mean = bag->scratch;
    float *rstd = mean + bag->rows;
    float *forward = rstd + bag->rows;
    if (bag->e != NULL) {
        eo_layernorm_forward(team, NULL, forward, mean, rstd, input, bag->d, bag->e, 1e-5f, bag->rows, bag->width);
        eo_layernorm_again(team, out, bag->a, mean, rstd, bag->d, bag->e, bag->rows, bag->width);
    } else {
        eo_rmsnorm_forward(team, NULL, forward, rstd, input, bag->d, 1e-5f, bag->rows, bag->width);
        eo_rmsnorm_again(team, out, bag->a, rstd, bag->d, bag->rows, bag->width);
    }
    cr_assert_eq(memcmp(out, forward, bag->rows * bag->width * sizeof(float)), 0, "a norm again has other bits");
}

Test(kernels, norms_again_are_bit_equal_to_the_forward)
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
        float *expected = guarded(count);
        float *statistics = guarded(2 * rows);
        for (int centred = 0; centred < 2; centred++) {
            bag.e = centred ? bias : NULL;
            eo_norm_forward_ref(expected, statistics, statistics + rows, bag.a, bag.d, bag.e, 1e-5f, rows, width);
            every_level_and_team(run_norm_again, &bag, count, expected, 1e-5, 1e-4, "norm again");
        }
    }
}

/* out: gradients of input, weight, bias. a: in, b: out gradient, c: skip gradient, d: weight, e: mean then rstd. */
static void run_norm_backward(eo_team *team, float *out, void *arg)
{
    const struct bag *bag = arg;
    const uint64_t count = bag->rows * bag->width;
    float *weight_gradient = out + count;
    float *bias_gradient = weight_gradient + bag->width;
    const float *skip = bag->c;
    memcpy(weight_gradient, bag->d, bag->width * sizeof(float)); /* old content, to be added to or not */
    memcpy(bias_gradient, bag->d, bag->width * sizeof(float));
    if (bag->in_place) {
        memcpy(out, bag->c, count * sizeof(float));
        skip = out;
    }
    const float *rstd = bag->e + bag->rows;
    if (bag->stride != 0)
        eo_layernorm_backward(team, out, skip, bag->b, bag->a, bag->e, rstd, bag->d, weight_gradient, bias_gradient,
                              bag->rows, bag->width, bag->flag, bag->scratch);
    else
        eo_rmsnorm_backward(team, out, skip, bag->b, bag->a, rstd, bag->d, weight_gradient, bag->rows, bag->width,
                            bag->flag, bag->scratch);
}

static void check_norm_backward(struct bag *bag, bool centred)
{
    const uint64_t count = bag->rows * bag->width;
    float *expected = guarded(count + 2 * bag->width);
    memcpy(expected + count, bag->d, bag->width * sizeof(float));
    memcpy(expected + count + bag->width, bag->d, bag->width * sizeof(float));
    bag->stride = centred;
    eo_norm_backward_ref(expected, bag->c, bag->b, bag->a, centred ? bag->e : NULL, bag->e + bag->rows, bag->d,
                         expected + count, centred ? expected + count + bag->width : NULL, bag->rows, bag->width,
                         bag->flag);
    every_level_and_team(run_norm_backward, bag, count + 2 * bag->width, expected, 1e-5, 2e-5, "norm backward");
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
                          .scratch = guarded(eo_norm_scratch_bytes(width) / sizeof(float))};
        check_norm_backward(&bag, true);
        check_norm_backward(&bag, false);
        bag.flag = bag.in_place = true;
        check_norm_backward(&bag, true);
        bag.flag = bag.in_place = false;
        bag.c = NULL;
        check_norm_backward(&bag, false);
    }
}
