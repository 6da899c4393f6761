/* SPDX-License-Identifier: MIT
 *
 * Goal: a kernel that takes 16 bytes at a time looks at each of its operands before.
 * Method: one operand after the other misses its alignment, and the others have it. Results are the reference's, and the
 *         checker sees no load and no store that a GPU would refuse.
 */
#include "alone_alignment.h"

#include "layers/cuda/kernels.h"
#include "tests/conformance/device/cuda_sides.h"

enum { ROWS = 9, WIDTH = 72, WORDS = 5, SEQ = 4, PLACES = 6, HEAD = 24 };

static uint32_t operand, apart;

/* The next operand of a kernel. */
static struct tensor next(eo_dtype d, uint64_t rows, uint64_t width)
{
    sides.offset = operand++ == apart ? 4 : 0;
    const struct tensor t = tensor_random(d, rows, width, -2, 2);
    sides.offset = 0;
    return t;
}

#define ON_BOTH(side) for (enum side side = HOST; side < SIDES; side++)

static void element_wise(eo_dtype d)
{
    struct tensor sum = next(d, ROWS, WIDTH), dropped = next(d, ROWS, WIDTH), gelu = next(d, ROWS, WIDTH);
    const struct tensor in = next(d, ROWS, WIDTH), residual = next(d, ROWS, WIDTH), bias = next(d, 1, WIDTH);
    const struct tensor place = tensor_bytes(sizeof(eo_random_place));
    const eo_random_place at = {.seed = 77, .step = 3};
    tensor_put(&place, &at);
    ON_BOTH(side) {
        expect_status(sides.ops[side]->residual_add(NULL, &(struct eo_residual){
            .types = {d, d}, .output = sum.at[side], .residual = residual.at[side], .bias = bias.at[side], .rows = ROWS,
            .width = WIDTH}), "residual_add");
        expect_status(sides.ops[side]->dropout(NULL, &(struct eo_dropout){
            .types = {d, d}, .out = dropped.at[side], .in = in.at[side], .residual = residual.at[side], .bias = bias.at[side],
            .place = place.at[side], .rows = ROWS, .width = WIDTH, .seq = SEQ, .probability = 0.25F}), "dropout");
        expect_status(sides.ops[side]->gelu_forward(NULL, &(struct eo_gelu){
            .types = {d, d}, .out = gelu.at[side], .in = in.at[side], .bias = bias.at[side], .rows = ROWS, .width = WIDTH}),
            "gelu_forward");
    }
    expect_equal("residual_add", &sum, 0);
    expect_equal("dropout", &dropped, 0);
    expect_equal("gelu_forward", &gelu, tolerance_of(d, 1));
}

static void swiglu(eo_dtype d)
{
    struct tensor out = next(d, ROWS, WIDTH), gate_gradient = next(d, ROWS, WIDTH), up_gradient = next(d, ROWS, WIDTH);
    const struct tensor gate = next(d, ROWS, WIDTH), up = next(d, ROWS, WIDTH), gradient = next(d, ROWS, WIDTH);
    ON_BOTH(side) {
        const struct eo_swiglu s = {
            .types = {d, d}, .out = out.at[side], .gate = gate.at[side], .up = up.at[side],
            .out_gradient = gradient.at[side], .gate_gradient = gate_gradient.at[side], .up_gradient = up_gradient.at[side],
            .stride = WIDTH, .rows = ROWS, .width = WIDTH};
        expect_status(sides.ops[side]->swiglu_forward(NULL, &s), "swiglu_forward");
        expect_status(sides.ops[side]->swiglu_backward(NULL, &s), "swiglu_backward");
    }
    expect_equal("swiglu_forward", &out, tolerance_of(d, 1));
    expect_equal("swiglu_backward, gate", &gate_gradient, tolerance_of(d, 1));
    expect_equal("swiglu_backward, up", &up_gradient, tolerance_of(d, 1));
}

static void norm(eo_dtype d)
{
    struct tensor sum = next(d, ROWS, WIDTH), out = next(d, ROWS, WIDTH), in_gradient = next(d, ROWS, WIDTH);
    const struct tensor residual = next(d, ROWS, WIDTH), branch = next(d, ROWS, WIDTH), branch_bias = next(d, 1, WIDTH);
    const struct tensor weight = next(d, 1, WIDTH), bias = next(d, 1, WIDTH), skip = next(d, ROWS, WIDTH);
    const struct tensor out_gradient = next(d, ROWS, WIDTH), in = next(d, ROWS, WIDTH);
    const struct tensor mean = tensor_random(EO_DTYPE_FP32, 1, ROWS, -1, 1), rstd = tensor_random(EO_DTYPE_FP32, 1, ROWS, 1, 2);
    struct tensor weights_to = tensor_unset(EO_DTYPE_FP32, 1, WIDTH), biases_to = tensor_unset(EO_DTYPE_FP32, 1, WIDTH);
    const struct tensor scratch = tensor_bytes(sides.ops[DEVICE]->norm_scratch_bytes(ROWS, WIDTH));
    ON_BOTH(side) {
        expect_status(sides.ops[side]->norm_backward(NULL, &(struct eo_norm_gradient){
            .types = {d, EO_DTYPE_FP32}, .centered = true, .in_gradient = in_gradient.at[side], .skip_gradient = skip.at[side],
            .out_gradient = out_gradient.at[side], .in = in.at[side], .weight = weight.at[side], .mean = mean.at[side],
            .rstd = rstd.at[side], .weight_gradient = weights_to.at[side], .bias_gradient = biases_to.at[side], .rows = ROWS,
            .width = WIDTH, .scratch = scratch.at[side]}), "norm_backward");
        expect_status(sides.ops[side]->norm_forward(NULL, &(struct eo_norm){
            .types = {d, d}, .centered = true, .sum = sum.at[side], .out = out.at[side], .mean = mean.at[side],
            .rstd = rstd.at[side], .residual = residual.at[side], .branch = branch.at[side],
            .branch_bias = branch_bias.at[side], .weight = weight.at[side], .bias = bias.at[side], .eps = 1e-5F, .rows = ROWS,
            .width = WIDTH}), "norm_forward");
    }
    expect_equal("norm_forward, sum", &sum, 0);
    expect_equal("norm_forward, out", &out, tolerance_of(d, WIDTH));
    expect_equal("norm_backward, in", &in_gradient, tolerance_of(d, WIDTH));
    expect_equal("norm_backward, weight", &weights_to, tolerance_of(EO_DTYPE_FP32, ROWS));
    expect_equal("norm_backward, bias", &biases_to, tolerance_of(EO_DTYPE_FP32, ROWS));
}

static void head_norm(eo_dtype d)
{
    struct tensor out = next(d, ROWS, WIDTH), gradient = next(d, ROWS, WIDTH);
    const struct tensor in = next(d, ROWS, WIDTH), q_weight = next(d, 1, HEAD), k_weight = next(d, 1, HEAD);
    const struct tensor sums = tensor_bytes(2 * eo_head_norm_parts(ROWS) * HEAD * sizeof(float));
    ON_BOTH(side) {
        expect_status(sides.ops[side]->head_norm_forward(NULL, &(struct eo_head_norm){
            .types = {d, d}, .out = out.at[side], .in = in.at[side], .weight = {q_weight.at[side], k_weight.at[side]},
            .in_stride = WIDTH, .out_stride = WIDTH, .rows = ROWS, .copied = HEAD, .head_count = {1, 1}, .head_size = HEAD,
            .eps = 1e-6F}), "head_norm_forward");
        expect_status(sides.ops[side]->head_norm_backward(NULL, &(struct eo_head_norm_gradient){
            .types = {d, d}, .gradient = gradient.at[side], .in = in.at[side], .weight = {q_weight.at[side], k_weight.at[side]},
            .stride = WIDTH, .in_stride = WIDTH, .rows = ROWS, .head_count = {1, 1}, .head_size = HEAD, .eps = 1e-6F,
            .sums = sums.at[side]}), "head_norm_backward");
    }
    expect_equal("head_norm, out", &out, tolerance_of(d, HEAD));
    expect_equal("head_norm, in", &gradient, tolerance_of(d, HEAD));
}

static void embedding_of(eo_dtype d, eo_dtype of_gradients, bool adds)
{
    struct tensor out = next(d, ROWS, WIDTH), tokens_to = next(of_gradients, WORDS, WIDTH);
    struct tensor places_to = next(of_gradients, PLACES, WIDTH);
    const struct tensor table = next(d, WORDS, WIDTH), places = next(d, PLACES, WIDTH), gradient = next(d, ROWS, WIDTH);
    const struct tensor tokens = tensor_tokens(ROWS, WORDS);
    const struct tensor scratch = tensor_bytes(sides.ops[DEVICE]->embedding_scratch_bytes(ROWS, WIDTH, WORDS));
    ON_BOTH(side) {
        expect_status(sides.ops[side]->embedding_forward(NULL, &(struct eo_embedding){
            .types = {d, of_gradients}, .out = out.at[side], .tokens = tokens.at[side], .token_table = table.at[side],
            .position_table = places.at[side], .rows = ROWS, .width = WIDTH, .seq = SEQ}), "embedding_forward");
        expect_status(
            sides.ops[side]->embedding_backward(NULL, &(struct eo_embedding_gradient){.types = {d, of_gradients},
                                                                                      .token_gradient = tokens_to.at[side],
                                                                                      .position_gradient = places_to.at[side],
                                                                                      .out_gradient = gradient.at[side],
                                                                                      .tokens = tokens.at[side],
                                                                                      .rows = ROWS,
                                                                                      .width = WIDTH,
                                                                                      .vocabulary = WORDS,
                                                                                      .positions = PLACES,
                                                                                      .seq = SEQ,
                                                                                      .adds = adds,
                                                                                      .scratch = scratch.at[side]}),
            "embedding_backward");
    }
    expect_equal("embedding_forward", &out, 0);
    expect_equal("embedding_backward, tokens", &tokens_to, tolerance_of(of_gradients, ROWS));
    expect_equal("embedding_backward, positions", &places_to, tolerance_of(of_gradients, ROWS));
}

static void embedding(eo_dtype d, eo_dtype of_gradients)
{
    embedding_of(d, of_gradients, false);
    embedding_of(d, of_gradients, true);
}

static void embedding_to_floats(eo_dtype d)
{
    embedding(d, EO_DTYPE_FP32);
}

static void embedding_to_its_own(eo_dtype d)
{
    embedding(d, d);
}

static void epilogue(eo_dtype d)
{
    const struct tensor c = next(d, ROWS, WIDTH), aux = next(d, ROWS, WIDTH), bias = next(d, 1, WIDTH);
    static const enum eo_epilogue kinds[] = {EO_EPILOGUE_BIAS, EO_EPILOGUE_GELU_GRADIENT};
    for (int k = 0; k < 2; k++)
        expect_that(eo_cuda_epilogue(&(struct eo_multiply){
            .types = {d, d}, .m = ROWS, .n = WIDTH, .c = c.at[DEVICE], .c_stride = WIDTH, .aux = aux.at[DEVICE],
            .aux_stride = WIDTH, .bias = bias.at[DEVICE], .epilogue = kinds[k]}, NULL) == cudaSuccess, "epilogue");
}

void alone_alignment_cases(void)
{
    static void (*const kernels[])(eo_dtype d) = {element_wise, swiglu, norm, head_norm, embedding_to_floats,
                                                  embedding_to_its_own, epilogue};
    for (int type = 0; type < 2; type++)
        for (uint32_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++) {
            apart = 0;
            do {
                operand = 0;
                kernels[k](type ? EO_DTYPE_BF16 : EO_DTYPE_FP32);
                part_end("operands of their own alignment");
            } while (++apart < operand);
        }
    tap_case("any one operand may miss its alignment");
}
