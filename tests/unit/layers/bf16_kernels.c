/* SPDX-License-Identifier: MIT
 *
 * The kernels of the CPU in bf16, at every level: conversions, and each kernel against the table "reference" in fp32.
 * Method: fp32 is given the values that bf16 holds, so what remains is the rounding of fp32 sums and one store, at most 2^-8
 * of the value. Sizes lie around every vector width and are cut into several tasks; teams of 1 to 3 threads must agree to
 * the bit; operands end at a closed page.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernel_fixture.h"
#include "layers/kernel_table.h"

static const char *const level_names[] = {"plain", "avx2", "avx512"};
enum { LEVELS = sizeof(level_names) / sizeof(level_names[0]) };

/* ---- conversions: a sum of one row is a load and a store ---- */

enum { VALUES = 0x10000, LOWS = 6 };

/* Sums `values` in pieces of 1 to 40 columns, whole vectors and parts. */
static void sums_of_pieces(eo_dtype from, const void *values, eo_dtype to, void *sums, uint64_t count)
{
    uint64_t columns = 1;
    for (uint64_t at = 0; at < count; at += columns) {
        columns = columns % 40 + 1;
        columns = columns < count - at ? columns : count - at;
        eo_kernels_of(from)->column_sums(
            &(struct eo_strip){.types = {from, to}, .rows = 1, .columns = columns, .stride = columns,
                               .sums = eo_element_at_mutable(to, sums, at)},
            eo_element_at(from, values, at));
    }
}

/* Goal: loads and stores are those of element.h, bit for bit. Method: all values of bf16, each followed by nothing, by the
 * smallest and largest rest, by the tie and its neighbours: infinities, NaNs, denormals are among them. */
Test(bf16, loads_and_stores_are_those_of_one_element)
{
    uint16_t *halves = guarded_bytes(VALUES * sizeof(uint16_t));
    float *loaded = guarded(VALUES), *exact = guarded((uint64_t)VALUES * LOWS);
    uint16_t *stored = guarded_bytes((uint64_t)VALUES * LOWS * sizeof(uint16_t));
    static const uint32_t lows[LOWS] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t i = 0; i < VALUES; i++) {
        halves[i] = (uint16_t)i;
        for (uint32_t k = 0; k < LOWS; k++) {
            const uint32_t bits = i << 16 | lows[k];
            memcpy(&exact[i * LOWS + k], &bits, sizeof(bits));
        }
    }
    for (size_t level = 0; level < LEVELS; level++) {
        if (eo_kernels_select(level_names[level]) == EO_ERR_UNSUPPORTED)
            continue;
        sums_of_pieces(EO_DTYPE_BF16, halves, EO_DTYPE_FP32, loaded, VALUES);
        for (uint32_t i = 0; i < VALUES; i++) {
            const float expected = 0.0F + eo_element_from_bf16((uint16_t)i);
            cr_assert(memcmp(&loaded[i], &expected, sizeof(float)) == 0, "%s loads %x", level_names[level], i);
        }
        sums_of_pieces(EO_DTYPE_FP32, exact, EO_DTYPE_BF16, stored, (uint64_t)VALUES * LOWS);
        for (uint32_t i = 0; i < VALUES * LOWS; i++)
            cr_assert_eq(stored[i], eo_element_to_bf16(0.0F + exact[i]), "%s stores %x and %x as %x", level_names[level],
                         i / LOWS, lows[i % LOWS], stored[i]);
    }
    guards_free();
}

/* ---- kernels ---- */

enum { INPUTS = 8, RESULTS_MAX = 5 };

/* Operands in bf16, and the same values in fp32. */
struct inputs {
    uint64_t rows, width, stride;
    void *halves[INPUTS];
    float *floats[INPUTS];
    int32_t *tokens;
    bool flag, adds, in_place, fp32_weights; /* of norms */
};

struct result {
    const char *what;
    eo_dtype dtype;
    void *values;
    uint64_t count;
    double absolute; /* of fp32 sums whose terms cancel */
};

struct call {
    const struct eo_kernel_ops *ops;
    struct eo_types types;
    eo_team *team;
    const struct inputs *in;
    struct result results[RESULTS_MAX];
    int result_count;
};

typedef void kernel_call(struct call *call);

static void input(struct inputs *in, int which, uint64_t count, float low, float high)
{
    const float *values = guarded_random(count, low, high);
    in->floats[which] = guarded(count);
    in->halves[which] = guarded_bytes(count * sizeof(uint16_t));
    eo_elements_store(EO_DTYPE_BF16, in->halves[which], 0, values, count);
    eo_elements_load(EO_DTYPE_BF16, in->floats[which], in->halves[which], 0, count);
}

/* A norm's weights. */
static void *of_weights(const struct call *call, int which)
{
    return call->in->fp32_weights || call->types.compute == EO_DTYPE_FP32 ? (void *)call->in->floats[which]
                                                                          : call->in->halves[which];
}

static void *of(const struct call *call, int which)
{
    return call->types.compute == EO_DTYPE_BF16 ? call->in->halves[which] : (void *)call->in->floats[which];
}

static void *result(struct call *call, const char *what, eo_dtype dtype, uint64_t count, double absolute)
{
    void *values = guarded_bytes(count * eo_dtype_bytes(dtype));
    call->results[call->result_count++] = (struct result){what, dtype, values, count, absolute};
    return values;
}

/* A result that begins as an operand. */
static void *result_over(struct call *call, const char *what, eo_dtype dtype, int which, uint64_t count, double absolute)
{
    void *values = result(call, what, dtype, count, absolute);
    if (dtype == EO_DTYPE_BF16)
        memcpy(values, call->in->halves[which], count * sizeof(uint16_t));
    else
        memcpy(values, call->in->floats[which], count * sizeof(float));
    return values;
}

static void check_result(const struct result *got, const struct result *expected)
{
    float *loaded = guarded(got->count);
    eo_elements_load(got->dtype, loaded, got->values, 0, got->count);
    expect_close(got->what, loaded, expected->values, got->count, got->dtype == EO_DTYPE_BF16 ? 0x1p-8 : 2e-5,
                 got->absolute);
}

static void check_level(kernel_call *kernel, const struct call *exact, eo_dtype gradient)
{
    struct call alone = {.ops = &eo_kernels_cpu_bf16_ops, .types = {EO_DTYPE_BF16, gradient}, .in = exact->in};
    kernel(&alone);
    for (int i = 0; i < alone.result_count; i++)
        check_result(&alone.results[i], &exact->results[i]);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct call call = {.ops = alone.ops, .types = alone.types, .in = exact->in};
        cr_assert_eq(eo_team_create(&call.team, threads), EO_OK);
        kernel(&call);
        eo_team_destroy(&call.team);
        for (int i = 0; i < call.result_count; i++)
            cr_assert_eq(memcmp(call.results[i].values, alone.results[i].values,
                                call.results[i].count * eo_dtype_bytes(call.results[i].dtype)), 0,
                         "%s, %s: %u threads give other bits", call.results[i].what, eo_kernels_name(), threads);
    }
}

static void check_kernel(kernel_call *kernel, const struct inputs *in)
{
    struct call exact = {.ops = &eo_kernels_reference_ops, .types = FP32, .in = in};
    kernel(&exact);
    for (size_t level = 0; level < LEVELS; level++) {
        if (eo_kernels_select(level_names[level]) == EO_ERR_UNSUPPORTED)
            continue;
        check_level(kernel, &exact, EO_DTYPE_FP32);
        check_level(kernel, &exact, EO_DTYPE_BF16);
    }
    guards_free();
}

/* The last two are cut into several tasks. */
static const uint64_t shapes[][2] = {{3, 1}, {5, 7}, {3, 16}, {5, 33}, {2, 129}, {70, 257}, {70, 600}};

#define FOR_SHAPES(in)                                                          \
    for (size_t shape_ = 0; shape_ < sizeof(shapes) / sizeof(shapes[0]); shape_++) \
        for (struct inputs in = {.rows = shapes[shape_][0], .width = shapes[shape_][1]}; in.rows > 0; in.rows = 0)

static void element_wise(struct call *c)
{
    const struct inputs *in = c->in;
    const uint64_t rows = in->rows, width = in->width, count = rows * width, stride = 2 * width + 1;
    const eo_dtype d = c->types.compute;
    cr_assert_eq(c->ops->residual_add(c->team, &(struct eo_residual){
        .types = c->types, .output = result_over(c, "residual", d, 0, count, 1e-6), .residual = of(c, 1),
        .bias = in->flag ? of(c, 2) : NULL, .rows = rows, .width = width}), EO_OK);
    cr_assert_eq(c->ops->column_sums(c->team, &(struct eo_column_sums){
        .types = c->types, .bias_gradient = result(c, "column sums", c->types.gradient, width, 1e-5), .gradient = of(c, 3),
        .stride = in->flag ? stride : 0, .rows = rows, .width = width}), EO_OK);
    cr_assert_eq(c->ops->gelu_forward(c->team, &(struct eo_gelu){
        .types = c->types, .out = result(c, "gelu", d, count, 1e-6), .in = of(c, 3), .bias = in->flag ? of(c, 2) : NULL,
        .rows = rows, .width = width}), EO_OK);
    struct eo_swiglu swiglu = {.types = c->types, .out = result(c, "swiglu", d, count, 1e-5), .gate = of(c, 3),
                               .up = eo_element_at(d, of(c, 3), width), .out_gradient = of(c, 0), .stride = stride,
                               .rows = rows, .width = width};
    cr_assert_eq(c->ops->swiglu_forward(c->team, &swiglu), EO_OK);
    void *gradients = result_over(c, "swiglu's gradients", d, 3, rows * stride, 1e-5);
    swiglu.gate = swiglu.gate_gradient = gradients;
    swiglu.up = swiglu.up_gradient = eo_element_at_mutable(d, gradients, width);
    cr_assert_eq(c->ops->swiglu_backward(c->team, &swiglu), EO_OK);
}

Test(bf16, sums_and_activations_match)
{
    FOR_SHAPES(in)
    {
        for (int flag = 0; flag < 2; flag++) {
            in.flag = flag;
            input(&in, 0, in.rows * in.width, -1, 1);
            input(&in, 1, in.rows * in.width, -1, 1);
            input(&in, 2, in.width, -1, 1);
            input(&in, 3, in.rows * (2 * in.width + 1), -5, 5);
            check_kernel(element_wise, &in);
        }
    }
}

/* 0: residual, then `in`; 1: branch; 2: its bias; 3: weight; 4: bias; 5: out gradient; 6: skip; 7: old gradients. */
static void norms(struct call *c)
{
    const struct inputs *in = c->in;
    const uint64_t rows = in->rows, width = in->width, count = rows * width;
    const eo_dtype d = c->types.compute;
    float *mean = guarded(rows), *rstd = guarded(rows);
    struct eo_norm norm = {
        .types = c->types, .centered = in->flag, .sum = result(c, "sum", d, count, 1e-6), .out = guarded_bytes(count * 4),
        .mean = mean, .rstd = rstd, .residual = of(c, 0), .branch = of(c, 1), .branch_bias = of(c, 2),
        .weight = of_weights(c, 3), .bias = of_weights(c, 4), .eps = 1e-5F, .rows = rows, .width = width,
        .fp32_weights = in->fp32_weights};
    cr_assert_eq(c->ops->norm_forward(c->team, &norm), EO_OK);

    /* One value has no spread: rstd is 1 / sqrt(eps), and what cancels in x - mean counts by as much. */
    const double absolute = width == 1 ? 1e-2 : 5e-5;
    norm.branch = norm.branch_bias = norm.sum = NULL; /* of the same values in both types: their sum is rounded */
    norm.out = result(c, "norm", d, count, absolute);
    cr_assert_eq(c->ops->norm_forward(c->team, &norm), EO_OK);
    void *again = guarded_bytes(count * eo_dtype_bytes(d)); /* over its gradient */
    memcpy(again, of(c, 5), count * eo_dtype_bytes(d));
    cr_assert_eq(c->ops->norm_backward(c->team, &(struct eo_norm_gradient){
        .types = c->types, .centered = in->flag, .in_gradient = guarded_bytes(count * eo_dtype_bytes(d)), .again = again,
        .out_gradient = again, .in = of(c, 0), .weight = norm.weight, .bias = norm.bias, .fp32_weights = in->fp32_weights,
        .mean = in->flag ? mean : NULL, .rstd = rstd, .rows = rows, .width = width,
        .scratch = guarded_bytes(c->ops->norm_scratch_bytes(rows, width))}), EO_OK);
    cr_assert_eq(memcmp(again, norm.out, count * eo_dtype_bytes(d)), 0, "norm again: other bits");

    /* Statistics of their own: those above differ by the rounding of a sum, which backward would multiply. */
    for (uint64_t row = 0; row < rows; row++)
        mean[row] = 0.125F * (float)(row % 5), rstd[row] = 0.5F + 0.125F * (float)(row % 3);
    const double of_rows = 1e-6 * (double)rows + 1e-5;
    void *in_gradient = in->in_place ? result_over(c, "norm's gradient", d, 6, count, 1e-5)
                                     : result(c, "norm's gradient", d, count, 1e-5);
    cr_assert_eq(c->ops->norm_backward(c->team, &(struct eo_norm_gradient){
        .types = c->types, .centered = in->flag, .in_gradient = in_gradient,
        .skip_gradient = in->in_place ? in_gradient : NULL, .out_gradient = of(c, 5), .in = of(c, 0),
        .weight = of_weights(c, 3), .fp32_weights = in->fp32_weights,
        .mean = in->flag ? mean : NULL, .rstd = rstd,
        .weight_gradient = result_over(c, "weight's gradient", c->types.gradient, 7, width, of_rows),
        .bias_gradient = result_over(c, "bias's gradient", c->types.gradient, 7, width, of_rows), .rows = rows,
        .width = width, .accumulate = in->in_place, .scratch = guarded_bytes(c->ops->norm_scratch_bytes(rows, width))}),
        EO_OK);
}

Test(bf16, norms_match_forward_again_and_backward)
{
    FOR_SHAPES(in)
    {
        for (int variant = 0; variant < 8; variant++) {
            in.flag = variant & 1;
            in.in_place = variant & 2;
            in.fp32_weights = variant & 4;
            for (int which = 0; which < INPUTS; which++)
                input(&in, which, which == 2 || which == 3 || which == 4 || which == 7 ? in.width : in.rows * in.width,
                      -1, 1);
            check_kernel(norms, &in);
        }
    }
}

enum { HEADS = 2, KV_HEADS = 1, COPIED = 3, SEQ = 5 };

/* 0: in; 1: gradient; 2, 3: weights. Rows: heads of `width`, what is copied, a gap. */
static void heads(struct call *c)
{
    const struct inputs *in = c->in;
    const uint64_t rows = in->rows, all = rows * in->stride, sum_count = 2 * eo_head_norm_parts(rows) * in->width;
    const uint32_t size = (uint32_t)in->width;
    const eo_dtype d = c->types.compute, g = c->types.gradient;
    float *sums = guarded(sum_count);
    cr_assert_eq(c->ops->head_norm_forward(c->team, &(struct eo_head_norm){
        .types = c->types, .out = result_over(c, "heads", d, 1, all, 2e-5), .in = of(c, 0),
        .weight = {of_weights(c, 2), of_weights(c, 3)}, .fp32_weights = in->fp32_weights, .in_stride = in->stride,
        .out_stride = in->stride, .rows = rows, .copied = COPIED,
        .head_count = {HEADS, KV_HEADS}, .head_size = size, .eps = 1e-5F}), EO_OK);
    cr_assert_eq(c->ops->head_norm_backward(c->team, &(struct eo_head_norm_gradient){
        .types = c->types, .gradient = result_over(c, "heads' gradient", d, 1, all, 1e-4), .in = of(c, 0),
        .weight = {of_weights(c, 2), of_weights(c, 3)}, .fp32_weights = in->fp32_weights, .stride = in->stride,
        .in_stride = in->stride, .rows = rows, .head_count = {HEADS, KV_HEADS}, .head_size = size, .eps = 1e-5F, .sums = sums}), EO_OK);
    void *of_q = result(c, "weight's gradient, q", g, size, 1e-4), *of_k = result(c, "weight's gradient, k", g, size, 1e-4);
    cr_assert_eq(c->ops->head_norm_weights(c->team, &(struct eo_head_norm_weights){
        .types = c->types, .weight_gradient = {of_q, of_k}, .sums = sums, .rows = rows, .head_size = size}), EO_OK);
}

static void rotations(struct call *c)
{
    const struct inputs *in = c->in;
    const uint32_t size = 2 * (uint32_t)in->width;
    float *table = guarded(eo_rope_table_floats(SEQ, size));
    eo_rope_table(table, SEQ, size, 100, NULL);
    cr_assert_eq(c->ops->rotate(c->team, &(struct eo_rotation){
        .types = c->types, .values = result_over(c, "rotation", c->types.compute, 0, in->rows * in->stride, 1e-6),
        .stride = in->stride, .table = table, .rows = in->rows, .seq = SEQ, .head_count = HEADS, .head_size = size,
        .backward = in->flag}), EO_OK);
}

Test(bf16, heads_are_normed_and_turned_and_the_gaps_stay)
{
    FOR_SHAPES(in)
    {
        for (int wide = 0; wide < 2; wide++) {
            in.fp32_weights = wide;
            in.stride = (HEADS + KV_HEADS) * in.width + COPIED + 2;
            input(&in, 0, in.rows * in.stride, 0.5F, 2);
            input(&in, 1, in.rows * in.stride, -1, 1);
            input(&in, 2, in.width, 0.5F, 1.5F);
            input(&in, 3, in.width, 0.5F, 1.5F);
            check_kernel(heads, &in);
        }
        in.stride = 2 * HEADS * in.width + 3;
        for (int flag = 0; flag < 2; flag++) {
            in.flag = flag;
            input(&in, 0, in.rows * in.stride, -1, 1);
            check_kernel(rotations, &in);
        }
    }
}

enum { VOCABULARY = 40, POSITIONS = 9 };

/* 0: table of tokens; 1: of positions; 2: out gradient; 3: old gradients. */
static void embeddings(struct call *c)
{
    const struct inputs *in = c->in;
    const uint64_t width = in->width;
    const eo_dtype g = c->types.gradient;
    cr_assert_eq(c->ops->embedding_forward(c->team, &(struct eo_embedding){
        .types = c->types, .out = result(c, "embedding", c->types.compute, in->rows * width, 0), .tokens = in->tokens,
        .token_table = of(c, 0), .position_table = in->flag ? of(c, 1) : NULL, .rows = in->rows, .width = width,
        .seq = SEQ}), EO_OK);
    void *of_tokens = result_over(c, "tokens' gradient", g, 3, VOCABULARY * width, 1e-5);
    void *of_positions = result_over(c, "positions' gradient", g, 3, POSITIONS * width, 1e-5);
    cr_assert_eq(c->ops->embedding_backward(
                     c->team, &(struct eo_embedding_gradient){.types = c->types,
                                                              .token_gradient = of_tokens,
                                                              .position_gradient = in->flag ? of_positions : NULL,
                                                              .out_gradient = of(c, 2),
                                                              .tokens = in->tokens,
                                                              .rows = in->rows,
                                                              .width = width,
                                                              .vocabulary = VOCABULARY,
                                                              .positions = POSITIONS,
                                                              .seq = SEQ,
                                                              .adds = in->adds,
                                                              .scratch = guarded_bytes(c->ops->embedding_scratch_bytes(
                                                                  in->rows, width, VOCABULARY))}),
                 EO_OK);
}

Test(bf16, embeddings_match_and_tokens_that_repeat_are_rounded_once)
{
    FOR_SHAPES(in)
    {
        in.rows = in.rows / SEQ * SEQ + SEQ;
        for (int flags = 0; flags < 4; flags++) {
            in.flag = flags & 1;
            in.adds = flags & 2;
            in.tokens = guarded_tokens(in.rows, VOCABULARY);
            input(&in, 0, VOCABULARY * in.width, -1, 1);
            input(&in, 1, POSITIONS * in.width, -1, 1);
            input(&in, 2, in.rows * in.width, -1, 1);
            input(&in, 3, VOCABULARY * in.width, -1, 1);
            check_kernel(embeddings, &in);
        }
    }
}

static void losses(struct call *c)
{
    const struct inputs *in = c->in;
    const uint64_t count = (in->rows - 1) * in->stride + in->width;
    double total = 0, sum = 0;
    float *of_rows = result(c, "losses", EO_DTYPE_FP32, in->rows, 1e-5);
    /* A gradient is at most one: what cancels at the target is of that size. */
    void *logits = result_over(c, "logits' gradient", c->types.compute, 0, count, 1e-6);
    void *scratch =
        c->ops->loss_scratch_bytes ? guarded_bytes(c->ops->loss_scratch_bytes(in->width, eo_team_thread_count(c->team))) : NULL;
    cr_assert_eq(c->ops->cross_entropy(c->team, &(struct eo_loss){.types = c->types,
                                                                  .logits = logits,
                                                                  .losses = of_rows,
                                                                  .loss_sum = &total,
                                                                  .targets = in->tokens,
                                                                  .stride = in->stride,
                                                                  .rows = in->rows,
                                                                  .vocabulary = in->width,
                                                                  .scale = 0.25F,
                                                                  .backward = in->flag,
                                                                  .scratch = scratch}),
                 EO_OK);
    for (uint64_t row = 0; row < in->rows; row++)
        sum += of_rows[row];
    cr_assert_eq(total, sum, "the sum of the losses is not in row order");
}

Test(bf16, losses_match_and_their_gradient_is_rounded_once)
{
    static const uint64_t vocabularies[] = {1, 2, 17, 33, 63, 64, 65, 257, 5003};
    for (size_t i = 0; i < sizeof(vocabularies) / sizeof(vocabularies[0]); i++)
        for (int flag = 0; flag < 2; flag++) {
            struct inputs in = {.rows = 19, .width = vocabularies[i], .stride = vocabularies[i] + i % 3, .flag = flag,
                                .tokens = guarded_tokens(19, (uint32_t)vocabularies[i])};
            input(&in, 0, in.rows * in.stride, -12, 12);
            ((int32_t *)(uintptr_t)in.tokens)[4] = -100; /* ignored */
            check_kernel(losses, &in);
        }
}
