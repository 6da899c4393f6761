/* SPDX-License-Identifier: MIT
 *
 * Goal: NaN and infinities go through the GPU's kernels as they go through the reference: none is lost, and none appears.
 * Method: such values among others, of all payloads, in operands that are aligned and that are not; a NaN counts as a NaN,
 *         whatever its bits are.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/conformance/device/cuda_sides.h"

#define ON_BOTH(side) for (enum side side = HOST; side < SIDES; side++)

static eo_team *team_of(enum side side)
{
    return side == DEVICE ? sides.team : NULL;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The NaN that GPUs make has all bits set: rounded as a number it would be a zero. */
enum { ALL_BITS = 0x7fffffff };

static void put_bits(const struct tensor *t, uint64_t at, uint32_t bits)
{
    if (t->dtype == EO_DTYPE_BF16)
        ((uint16_t *)t->at[HOST])[at] = (uint16_t)(bits >> 16);
    else
        ((float *)t->at[HOST])[at] = float_of(bits);
    tensor_put(t, t->at[HOST]);
}

/* A row of bf16 that a norm makes, in its backward pass, of finite elements, and of a statistic or a weight that is none. */
static void norms(bool centered)
{
    enum { ROWS = 4, WIDTH = 48 };
    const eo_dtype d = EO_DTYPE_BF16;
    struct tensor again = tensor_random(d, ROWS, WIDTH, -1, 1); /* over the gradient */
    const struct tensor gradient = tensor_unset(d, ROWS, WIDTH);
    const struct tensor in = tensor_random(d, ROWS, WIDTH, -2, 2), weight = tensor_random(EO_DTYPE_FP32, 1, WIDTH, 1, 2);
    const struct tensor bias = tensor_random(EO_DTYPE_FP32, 1, WIDTH, -1, 1);
    const struct tensor mean = tensor_random(EO_DTYPE_FP32, 1, ROWS, -1, 1), rstd = tensor_random(EO_DTYPE_FP32, 1, ROWS, 1, 2);
    put_bits(&rstd, 1, ALL_BITS);
    put_bits(&rstd, 2, 0x7f800000);
    put_bits(&weight, 13, ALL_BITS);
    put_bits(&weight, 30, 0xff800000);
    ON_BOTH(side)
        expect_status(sides.ops[side]->norm_backward(team_of(side), &(struct eo_norm_gradient){
            .types = {d, d}, .centered = centered, .in_gradient = gradient.at[side], .again = again.at[side],
            .out_gradient = again.at[side], .in = in.at[side], .mean = centered ? mean.at[side] : NULL, .rstd = rstd.at[side],
            .weight = weight.at[side], .bias = centered ? bias.at[side] : NULL, .rows = ROWS, .width = WIDTH,
            .fp32_weights = true}), "norm_backward");
    expect_equal("the norm in the backward pass", &again, tolerance_of(d, 1));
    part_end("norm_backward");
}

/* All numbers of bf16; fp32 has low bits too. */
static void activations(eo_dtype d)
{
    enum { ROWS = 64, WIDTH = 1024 };
    const struct tensor in = tensor_unset(d, ROWS, WIDTH), ones = tensor_random(d, ROWS, WIDTH, 1, 1);
    struct tensor gelu = tensor_unset(d, ROWS, WIDTH), swiglu = tensor_unset(d, ROWS, WIDTH);
    for (uint32_t i = 0; i < ROWS * WIDTH; i++)
        if (d == EO_DTYPE_BF16)
            ((uint16_t *)in.at[HOST])[i] = (uint16_t)i;
        else
            ((float *)in.at[HOST])[i] = float_of(i << 16 | (i & 1 ? 0xffff : 0));
    tensor_put(&in, in.at[HOST]);
    ON_BOTH(side) {
        expect_status(sides.ops[side]->gelu_forward(team_of(side), &(struct eo_gelu){
            .types = {d, d}, .out = gelu.at[side], .in = in.at[side], .rows = ROWS, .width = WIDTH}), "gelu_forward");
        expect_status(sides.ops[side]->swiglu_forward(team_of(side), &(struct eo_swiglu){
            .types = {d, d}, .out = swiglu.at[side], .gate = in.at[side], .up = ones.at[side], .stride = WIDTH, .rows = ROWS,
            .width = WIDTH}), "swiglu_forward");
    }
    /* x times a factor of 1 at most; all sizes are there, and the largest says nothing of others. Denormals are off by their
     * spacing (Higham, 2.2), 2^-133 in bf16. */
    for (int way = 0; way < 2; way++) {
        double *terms = calloc(in.count, sizeof(*terms));
        for (uint64_t i = 0; i < in.count; i++)
            terms[i] = fabs((double)eo_element_load(d, in.at[HOST], i)) + 0x1p-126;
        expect_equal_of_terms(way ? "swiglu_forward" : "gelu_forward", way ? &swiglu : &gelu, tolerance_of(d, 1), terms);
    }
    part_end("activations");
}

/* Rows of logits: see the cases. The logits lie near each other, so that no loss is the small difference of large numbers. */
static void losses(eo_dtype d, uint64_t vocabulary, uint64_t stride)
{
    enum { ROWS = 11 };
    const float factor = 0.37F;
    struct tensor logits = tensor_strided(d, ROWS, vocabulary, stride, -2, 2);
    const uint64_t offset = sides.offset, last = vocabulary - 1, middle = vocabulary / 2;
    sides.offset = 0;
    struct tensor losses = tensor_unset(EO_DTYPE_FP32, 1, ROWS);
    const struct tensor targets = tensor_tokens(ROWS, (uint32_t)vocabulary), sum = tensor_bytes(8);
    sides.offset = offset;
    for (uint64_t row = 0; row < ROWS; row++)
        for (uint64_t i = 0; i < vocabulary; i++) {
            float x = eo_element_load(d, logits.at[HOST], row * stride + i);
            switch (row) {
            case 1: x = -INFINITY; break;                                   /* no word is possible */
            case 2: x = i == last ? x : -INFINITY; break;                   /* one is */
            case 3: x = i < middle ? -INFINITY : x; break;
            case 4: x = i > middle ? -INFINITY : x; break;
            case 5: x = i % 2 ? -INFINITY : x; break;
            case 6: x = i == middle ? NAN : x; break;
            case 7: x = i == last ? NAN : -INFINITY; break;
            case 8: x = i == middle ? INFINITY : x; break;
            case 9: x = i == 0 ? 3e38F : -3e38F; break;
            case 10: x = NAN; break;                                        /* of a target to be ignored */
            default: break;
            }
            eo_element_store(d, logits.at[HOST], row * stride + i, x);
        }
    ((int32_t *)targets.at[HOST])[2] = (int32_t)last;
    ((int32_t *)targets.at[HOST])[10] = -100;
    tensor_put(&targets, targets.at[HOST]);
    tensor_put(&logits, logits.at[HOST]);
    double *of_losses = terms_of_losses(&logits), *of_gradient = terms_of_loss_gradient(&logits, &targets, factor);
    ON_BOTH(side)
        expect_status(sides.ops[side]->cross_entropy(team_of(side), &(struct eo_loss){
            .types = {d, d}, .logits = logits.at[side], .losses = losses.at[side], .loss_sum = sum.at[side],
            .targets = targets.at[side], .stride = stride, .rows = ROWS, .vocabulary = vocabulary, .scale = factor,
            .backward = true}), "cross_entropy");
    expect_equal_of_terms("cross_entropy, losses", &losses, 1e-5, of_losses);
    expect_equal_of_terms("cross_entropy, gradient", &logits, tolerance_of(d, 1) + 1e-5, of_gradient);
    part_end("cross_entropy");
}

/* A sum that is too large for bf16 rounds to an infinity; NaN of all payloads stay NaN. */
static void sums(void)
{
    enum { ROWS = 3, WIDTH = 64 };
    const eo_dtype d = EO_DTYPE_BF16;
    static const uint32_t bits[] = {0x7fff0000, 0xffff0000, 0x7f810000, 0x7f800000, 0xff800000, 0x7f7f0000, 0xff7f0000,
                                    0x00010000};
    struct tensor output = tensor_random(d, ROWS, WIDTH, -2, 2);
    const struct tensor residual = tensor_random(d, ROWS, WIDTH, -2, 2);
    for (uint64_t i = 0; i < 8; i++) {
        put_bits(&output, 9 * i, bits[i]);
        put_bits(&residual, WIDTH + 11 * i % WIDTH, bits[i]);
        put_bits(&output, 2 * WIDTH + i, bits[i]);
        put_bits(&residual, 2 * WIDTH + i, bits[i]);
    }
    ON_BOTH(side)
        expect_status(sides.ops[side]->residual_add(team_of(side), &(struct eo_residual){
            .types = {d, d}, .output = output.at[side], .residual = residual.at[side], .rows = ROWS, .width = WIDTH}),
            "residual_add");
    expect_equal("residual_add", &output, 0);
    part_end("residual_add");
}

void not_finite_cases(void)
{
    static const uint64_t vocabularies[] = {1, 2, 8, 61, 64, 515};
    for (int way = 0; way < 4; way++) {
        const eo_dtype d = way & 1 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
        sides.offset = way & 2 ? 4 : 0;
        norms(way & 1);
        sums();
        activations(d);
        for (int v = 0; v < 6; v++) {
            losses(d, vocabularies[v], vocabularies[v]);
            losses(d, vocabularies[v], (vocabularies[v] + 63) / 64 * 64);
        }
    }
    sides.offset = 0;
    tap_case("NaN and infinities are the reference's");
}
