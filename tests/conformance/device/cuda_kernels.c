/* SPDX-License-Identifier: MIT
 *
 * Every kernel, product and attention of the GPU's backend against the plain reference: fp32 and bf16, sizes around the
 * kernels' blocks, operands that are not aligned, content that must not be read, guards around what may be written; and
 * the same bits in a second run.
 *
 * Usage: conformance_cuda_kernels [device index]. Without a GPU it says so and skips; with EO_TEST_REQUIRE_GPU set that is a
 * failure.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/device/cuda_sides.h"

#define ON_BOTH(side) for (enum side side = HOST; side < SIDES; side++)

static eo_team *team_of(enum side side)
{
    return side == DEVICE ? sides.team : NULL;
}

static const eo_dtype dtypes[] = {EO_DTYPE_FP32, EO_DTYPE_BF16};
static const struct eo_types all_types[] = {
    {EO_DTYPE_FP32, EO_DTYPE_FP32}, {EO_DTYPE_BF16, EO_DTYPE_FP32}, {EO_DTYPE_BF16, EO_DTYPE_BF16}};

struct size {
    uint64_t rows, width;
};
static const struct size sizes[] = {{1, 8}, {3, 35}, {300, 64}, {65, 768}, {33, 1601}, {1000, 520}, {7, 4096}};

#define FOR_SIZES(s)                                                                              \
    for (const struct size *s = sizes; s < sizes + sizeof(sizes) / sizeof(sizes[0]); s++)           \
        if ((!sides.small || s->rows * s->width < 60000) && (!sides.few || s == &sizes[1] || s == &sizes[3]))
#define FOR_DTYPES(d) for (const eo_dtype *d = dtypes; d < dtypes + 2; d++)
#define FOR_TYPES(t) for (const struct eo_types *t = all_types; t < all_types + 3; t++)

/* Aligned, and one element off, unless kernels are judged elsewhere. */
static void both_alignments(void (*run)(void))
{
    sides.offset = 0;
    run();
    sides.offset = 4;
    if (!sides.few)
        run();
    sides.offset = 0;
}

static void dropouts(void)
{
    FOR_DTYPES(d) FOR_SIZES(s) for (int whole = 0; whole < 2; whole++) {
        struct tensor output = tensor_random(*d, s->rows, s->width, -3, 3), b = tensor_random(*d, 1, s->width, -1, 1);
        const struct tensor in = tensor_random(*d, s->rows, s->width, -3, 3), residual = tensor_random(*d, s->rows, s->width, -3, 3);
        const eo_random_place at = {.seed = UINT64_C(0x123456789abcdef), .step = s->rows, .sample = 5};
        const struct tensor place = tensor_bytes(sizeof(at));
        tensor_put(&place, &at);
        ON_BOTH(side)
            expect_status(sides.ops[side]->dropout(team_of(side), &(struct eo_dropout){
                .types = {*d, *d}, .out = output.at[side], .in = whole ? output.at[side] : in.at[side],
                .residual = whole ? residual.at[side] : NULL, .bias = whole ? b.at[side] : NULL,
                .place = place.at[side], .rows = s->rows, .width = s->width, .seq = 33, .position = 3, .probability = 0.25f}),
                "dropout");
        expect_equal("dropout", &output, 0);
        part_end("dropout");
    }
}

static void residuals(void)
{
    FOR_DTYPES(d) FOR_SIZES(s) for (int bias = 0; bias < 2; bias++) {
        struct tensor output = tensor_random(*d, s->rows, s->width, -3, 3), b = tensor_random(*d, 1, s->width, -1, 1);
        const struct tensor residual = tensor_random(*d, s->rows, s->width, -3, 3);
        ON_BOTH(side)
            expect_status(sides.ops[side]->residual_add(team_of(side), &(struct eo_residual){
                .types = {*d, *d}, .output = output.at[side], .residual = residual.at[side],
                .bias = bias ? b.at[side] : NULL, .rows = s->rows, .width = s->width}), "residual_add");
        expect_equal("residual_add", &output, 0);
        part_end("residual_add");
    }
}

static void scales(void)
{
    FOR_DTYPES(d) FOR_SIZES(s) {
        struct tensor values = tensor_random(*d, s->rows, s->width, -3, 3);
        ON_BOTH(side)
            expect_status(sides.ops[side]->scale(team_of(side), *d, values.at[side], s->rows * s->width, 1.7F), "scale");
        expect_equal("scale", &values, 0);
        part_end("scale");
    }
}

static void activations(void)
{
    FOR_DTYPES(d) FOR_SIZES(s) {
        const uint64_t stride = s->width + (s->width % 8 == 0 ? 16 : 3);
        const struct tensor in = tensor_random(*d, s->rows, s->width, -6, 6);
        struct tensor out = tensor_unset(*d, s->rows, s->width);
        ON_BOTH(side)
            expect_status(sides.ops[side]->gelu_forward(team_of(side), &(struct eo_gelu){
                .types = {*d, *d}, .out = out.at[side], .in = in.at[side], .rows = s->rows, .width = s->width}), "gelu");
        expect_equal("gelu_forward", &out, tolerance_of(*d, 1));
        part_end("gelu_forward");

        struct tensor gate = tensor_strided(*d, s->rows, s->width, stride, -6, 6);
        struct tensor up = tensor_strided(*d, s->rows, s->width, stride, -6, 6);
        struct tensor gradient = tensor_random(*d, s->rows, s->width, -2, 2);
        out = tensor_unset(*d, s->rows, s->width);
        ON_BOTH(side) {
            struct eo_swiglu swiglu = {
                .types = {*d, *d}, .out = out.at[side], .gate = gate.at[side], .up = up.at[side],
                .out_gradient = gradient.at[side], .gate_gradient = gate.at[side], .up_gradient = up.at[side],
                .stride = stride, .rows = s->rows, .width = s->width};
            expect_status(sides.ops[side]->swiglu_forward(team_of(side), &swiglu), "swiglu_forward");
            swiglu.out = gradient.at[side]; /* in its place, as the passes do */
            expect_status(sides.ops[side]->swiglu_backward(team_of(side), &swiglu), "swiglu_backward");
        }
        expect_equal("swiglu_forward", &out, tolerance_of(*d, 1));
        expect_equal("swiglu_backward, gate", &gate, tolerance_of(*d, 1));
        expect_equal("swiglu_backward, up", &up, tolerance_of(*d, 1));
        expect_equal("swiglu_backward, out", &gradient, tolerance_of(*d, 1));
        part_end("swiglu");
    }
}

static void rotations(void)
{
    static const uint32_t heads[][2] = {{1, 2}, {5, 6}, {4, 64}, {2, 96}, {8, 128}};
    FOR_DTYPES(d) for (int h = 0; h < 5; h++) for (int backward = 0; backward < 2; backward++) {
        const uint32_t seq = 11, count = heads[h][0], size = heads[h][1];
        const uint64_t rows = 3 * seq, width = (uint64_t)count * size, stride = width + (h < 2 ? 1 : 64);
        struct tensor values = tensor_strided(*d, rows, width, stride, -2, 2);
        const uint64_t offset = sides.offset;
        sides.offset = 0; /* the table is the model's own */
        struct tensor table = tensor_random(EO_DTYPE_FP32, 1, eo_rope_table_floats(seq, size), 0, 1);
        sides.offset = offset;
        float *angles = malloc(table.count * sizeof(float));
        eo_rope_table(angles, seq, size, 10000, NULL);
        tensor_put(&table, angles);
        free(angles);
        const struct tensor positions = tensor_tokens(rows, seq);
        ON_BOTH(side)
            expect_status(sides.ops[side]->rotate(team_of(side), &(struct eo_rotation){
                .types = {*d, *d}, .values = values.at[side], .stride = stride, .table = table.at[side], .rows = rows,
                .seq = seq, .head_count = count, .head_size = size, .backward = backward,
                .positions = h % 2 ? positions.at[side] : NULL}), "rotate");
        expect_equal("rotate", &values, tolerance_of(*d, 2));
        part_end("rotate");
    }
}

static void column_sums(void)
{
    FOR_TYPES(t) FOR_SIZES(s) {
        const struct tensor gradient = tensor_random(t->compute, s->rows, s->width, -1, 1);
        struct tensor bias = tensor_unset(t->gradient, 1, s->width);
        const struct tensor scratch = tensor_bytes(sides.ops[DEVICE]->column_scratch_bytes(s->rows, s->width));
        uint64_t hash = 0;
        for (int run = 0; run < 2; run++) {
            ON_BOTH(side)
                expect_status(sides.ops[side]->column_sums(team_of(side), &(struct eo_column_sums){
                    .types = *t, .bias_gradient = bias.at[side], .gradient = gradient.at[side], .rows = s->rows,
                    .width = s->width, .scratch = scratch.at[side]}), "column_sums");
            expect_equal("column_sums", &bias, tolerance_of(t->gradient, s->rows));
            expect_that(run == 0 || hash == device_hash(&bias), "column_sums: other bits in the second run");
            hash = device_hash(&bias);
        }
        part_end("column_sums");
    }
}

/* ---- norms ---- */

struct norm_tensors {
    struct tensor sum, out, again, mean, rstd, residual, branch, branch_bias, weight, bias;
};

static struct eo_norm norm_of(const struct norm_tensors *n, enum side side, eo_dtype d, bool centered, bool branch,
                              bool fp32_weights)
{
    return (struct eo_norm){.types = {d, d},
                            .centered = centered,
                            .sum = branch ? n->sum.at[side] : NULL,
                            .out = n->out.at[side],
                            .mean = centered ? n->mean.at[side] : NULL,
                            .rstd = n->rstd.at[side],
                            .residual = n->residual.at[side],
                            .branch = branch ? n->branch.at[side] : NULL,
                            .branch_bias = branch && centered ? n->branch_bias.at[side] : NULL,
                            .weight = n->weight.at[side],
                            .bias = centered ? n->bias.at[side] : NULL,
                            .eps = 1e-5F,
                            .rows = n->out.rows,
                            .width = n->out.width,
                            .fp32_weights = fp32_weights};
}

/* `largest` of the residual; where it is small, eps is most of what the root is taken of. */
static void norm_forward(eo_dtype d, const struct size *s, bool centered, bool branch, bool fp32_weights, float largest)
{
    const eo_dtype of_weights = fp32_weights ? EO_DTYPE_FP32 : d;
    const struct norm_tensors n = {
        .sum = tensor_unset(d, s->rows, s->width),
        .out = tensor_unset(d, s->rows, s->width),
        .again = tensor_random(d, s->rows, s->width, -1, 1),
        .mean = tensor_unset(EO_DTYPE_FP32, 1, s->rows),
        .rstd = tensor_unset(EO_DTYPE_FP32, 1, s->rows),
        .residual = tensor_random(d, s->rows, s->width, -largest / 2, largest),
        .branch = tensor_random(d, s->rows, s->width, -2, 2),
        .branch_bias = tensor_random(d, 1, s->width, -1, 1),
        .weight = tensor_random(of_weights, 1, s->width, -2, 2),
        .bias = tensor_random(of_weights, 1, s->width, -1, 1),
    };
    const struct tensor in_gradient = tensor_unset(d, s->rows, s->width);
    ON_BOTH(side) {
        const struct eo_norm norm = norm_of(&n, side, d, centered, branch, fp32_weights);
        expect_status(sides.ops[side]->norm_forward(team_of(side), &norm), "norm_forward");
        expect_status(sides.ops[side]->norm_backward(team_of(side), &(struct eo_norm_gradient){
            .types = norm.types, .centered = centered, .in_gradient = in_gradient.at[side], .again = n.again.at[side],
            .out_gradient = n.again.at[side], .in = branch ? norm.sum : norm.residual, .weight = norm.weight,
            .bias = norm.bias, .mean = norm.mean, .rstd = norm.rstd, .rows = s->rows, .width = s->width,
            .fp32_weights = fp32_weights}), "norm_backward");
    }
    if (branch)
        expect_equal("norm_forward, sum", &n.sum, 0);
    expect_equal("norm_forward, out", &n.out, tolerance_of(d, s->width));
    expect_equal("norm_forward, rstd", &n.rstd, tolerance_of(EO_DTYPE_FP32, s->width));
    if (centered)
        expect_equal_of_terms("norm_forward, mean", &n.mean, tolerance_of(EO_DTYPE_FP32, s->width),
                              row_sizes(branch ? &n.sum : &n.residual));
    expect_that(device_hash(&n.out) == device_hash(&n.again), "norm_backward gives other bits of the norm than norm_forward");
    part_end("norm_forward");
}

static void norm_forwards(void)
{
    const struct size wide = {2, 13001}, wide_packs = {1, 16400}; /* more than registers keep */
    FOR_DTYPES(d) for (int kind = 0; kind < 4; kind++) {
        FOR_SIZES(s) norm_forward(*d, s, kind & 1, kind & 2, false, 4);
        norm_forward(*d, &wide, kind & 1, kind & 2, false, 4);
        norm_forward(*d, &wide_packs, kind & 1, kind & 2, false, 4);
        if (!(kind & 2))
            norm_forward(*d, &sizes[3], kind & 1, false, false, 3e-3F);
    }
    for (int kind = 0; kind < 2; kind++)
        FOR_SIZES(s) norm_forward(EO_DTYPE_BF16, s, kind, kind, true, 4);
}

/* skip 0: none; 1: in_gradient itself; 2: another tensor, and in_gradient is out_gradient, else `again` is. */
static void norm_backward(struct eo_types t, const struct size *s, bool centered, int skip, bool accumulate,
                          bool fp32_weights)
{
    const eo_dtype d = t.compute;
    const bool frozen = skip == 2 && s->width % 2; /* no gradient of weights is wanted */
    struct tensor in_gradient = tensor_random(d, s->rows, s->width, -1, 1);
    struct tensor out_gradient = skip == 2 ? in_gradient : tensor_random(d, s->rows, s->width, -1, 1);
    struct tensor again = skip == 2 ? tensor_unset(d, s->rows, s->width) : out_gradient;
    const struct tensor other = tensor_random(d, s->rows, s->width, -1, 1);
    const struct tensor in = tensor_random(d, s->rows, s->width, -2, 2), weight = tensor_random(fp32_weights ? EO_DTYPE_FP32 : d, 1, s->width, -2, 2);
    const struct tensor bias = tensor_random(fp32_weights ? EO_DTYPE_FP32 : d, 1, s->width, -1, 1);
    const struct tensor mean = tensor_random(EO_DTYPE_FP32, 1, s->rows, -0.1F, 0.1F);
    const struct tensor rstd = tensor_random(EO_DTYPE_FP32, 1, s->rows, 0.5F, 1);
    struct tensor weight_gradient = accumulate ? tensor_random(t.gradient, 1, s->width, -1, 1)
                                               : tensor_unset(t.gradient, 1, s->width);
    struct tensor bias_gradient = accumulate ? tensor_random(t.gradient, 1, s->width, -1, 1)
                                             : tensor_unset(t.gradient, 1, s->width);
    const struct tensor scratch = tensor_bytes(sides.ops[DEVICE]->norm_scratch_bytes(s->rows, s->width));
    ON_BOTH(side)
        expect_status(sides.ops[side]->norm_backward(team_of(side), &(struct eo_norm_gradient){
            .types = t, .centered = centered, .in_gradient = in_gradient.at[side], .again = again.at[side],
            .bias = centered ? bias.at[side] : NULL,
            .skip_gradient = skip == 0 ? NULL : skip == 1 ? in_gradient.at[side] : other.at[side],
            .out_gradient = out_gradient.at[side], .in = in.at[side], .weight = weight.at[side],
            .mean = centered ? mean.at[side] : NULL, .rstd = rstd.at[side],
            .weight_gradient = frozen ? NULL : weight_gradient.at[side],
            .bias_gradient = centered && !frozen ? bias_gradient.at[side] : NULL,
            .rows = s->rows, .width = s->width, .accumulate = accumulate, .scratch = scratch.at[side],
            .fp32_weights = fp32_weights}), "norm_backward");
    expect_equal("norm_backward, again", &again, tolerance_of(d, 1));
    expect_equal("norm_backward, in", &in_gradient, tolerance_of(d, s->width));
    if (!frozen)
        expect_equal("norm_backward, weight", &weight_gradient, tolerance_of(t.gradient, s->rows));
    if (centered && !frozen)
        expect_equal("norm_backward, bias", &bias_gradient, tolerance_of(t.gradient, s->rows));
    part_end("norm_backward");
}

/* Small: of the three ways of skip and accumulate one a size and type, in turn, so that each meets each type and alignment. */
static void norm_backwards(void)
{
    const struct size wide = {5, 13001}, long_one = {sides.small ? 301 : 2003, 128};
    const struct size long_odd = {257, 515}, long_wide = {45, 6101};
    /* In bf16 two packs of a thread; centered, sums in shared memory, or in memory. */
    const struct size two_packs = {3, 4104}, wide_packs = {2, 6400};
    uint32_t turn = sides.offset > 0;
    FOR_TYPES(t) for (int centered = 0; centered < 2; centered++, turn++) {
        uint32_t which = turn;
        FOR_SIZES(s) {
            for (uint32_t way = 0; way < 3; way++)
                if (!sides.small || way == which % 3)
                    norm_backward(*t, s, centered, (int)way, way == 1, false);
            if (t->compute == EO_DTYPE_BF16)
                norm_backward(*t, s, centered, (int)(which % 3), which % 3 == 1, true);
            which++;
        }
        for (uint32_t way = 0; way < 3; way++)
            if (!sides.small || way == turn % 3) {
                norm_backward(*t, &wide, centered, (int)way, way == 1, false);
                norm_backward(*t, &long_one, centered, (int)way, way == 1, false);
                norm_backward(*t, &two_packs, centered, (int)way, way == 1, false);
                norm_backward(*t, &wide_packs, centered, (int)way, way == 1, false);
            }
        if (!sides.few && centered && sides.offset == 0) { /* the last block's rows are fewer; nor do they fit in registers */
            norm_backward(*t, &long_odd, true, 0, false, false);
            norm_backward(*t, &long_wide, true, 0, false, false);
        }
    }
}

/* An element of the gradient is rstd times the difference of g, the gradient times the weight, and its part along x. Of heads
 * of two elements little may be left. */
static double *head_norm_terms(const struct tensor *gradient, const struct tensor *in, const struct tensor *const weights[2],
                               uint32_t heads, uint32_t size)
{
    double *terms = calloc(gradient->count, sizeof(*terms));
    for (uint64_t row = 0; row < gradient->rows; row++)
        for (uint64_t head = 0; head < gradient->width / size; head++) {
            const struct tensor *weight = weights[head >= heads];
            const uint64_t at = row * gradient->stride + head * size;
            double squares = 1e-6 * size, squares_g = 0;
            for (uint64_t i = 0; i < size; i++) {
                const double x = eo_element_load(in->dtype, in->at[HOST], row * in->stride + head * size + i);
                const double d = eo_element_load(gradient->dtype, gradient->at[HOST], at + i);
                const double g = d * (double)eo_element_load(weight->dtype, weight->at[HOST], i);
                squares += x * x;
                squares_g += g * g;
            }
            for (uint64_t i = 0; i < size; i++)
                terms[at + i] = sqrt(squares_g / squares);
        }
    return terms;
}

/* Heads of q, then of k, then what is copied; strides leave a gap, which nobody touches. */
static void head_norm(struct eo_types t, uint64_t rows, uint32_t heads, uint32_t kv_heads, uint32_t size, uint64_t copied,
                      bool fp32_weights)
{
    const eo_dtype d = t.compute;
    const uint64_t normed = (uint64_t)(heads + kv_heads) * size, width = normed + copied, stride = width + 8;
    const float largest = rows == 37 ? 2e-3F : 2; /* there eps is half of what the root is taken of */
    const struct tensor in = tensor_strided(d, rows, width, stride, -largest, largest);
    const struct tensor q_weight = tensor_random(fp32_weights ? EO_DTYPE_FP32 : d, 1, size, -2, 2);
    const struct tensor k_weight = tensor_random(fp32_weights ? EO_DTYPE_FP32 : d, 1, size, -2, 2);
    struct tensor out = tensor_strided(d, rows, width, stride, 0, 0), gradient = tensor_strided(d, rows, normed, stride, -1, 1);
    struct tensor q_gradient = tensor_unset(t.gradient, 1, size), k_gradient = tensor_unset(t.gradient, 1, size);
    const struct tensor sums = tensor_bytes(2 * eo_head_norm_parts(rows) * size * sizeof(float));
    const struct tensor *const weights[2] = {&q_weight, &k_weight};
    double *terms = head_norm_terms(&gradient, &in, weights, heads, size);
    ON_BOTH(side) {
        expect_status(sides.ops[side]->head_norm_forward(team_of(side), &(struct eo_head_norm){
            .types = t, .out = out.at[side], .in = in.at[side], .weight = {q_weight.at[side], k_weight.at[side]},
            .in_stride = stride, .out_stride = stride, .rows = rows, .copied = copied, .head_count = {heads, kv_heads},
            .head_size = size, .eps = 1e-6F, .fp32_weights = fp32_weights}), "head_norm_forward");
        expect_status(sides.ops[side]->head_norm_backward(team_of(side), &(struct eo_head_norm_gradient){
            .types = t, .gradient = gradient.at[side], .in = in.at[side],
            .weight = {q_weight.at[side], k_weight.at[side]}, .stride = stride, .in_stride = stride, .rows = rows,
            .head_count = {heads, kv_heads}, .head_size = size, .eps = 1e-6F, .sums = sums.at[side],
            .fp32_weights = fp32_weights}), "head_norm_backward");
        expect_status(sides.ops[side]->head_norm_weights(team_of(side), &(struct eo_head_norm_weights){
            .types = t, .weight_gradient = {q_gradient.at[side], k_gradient.at[side]}, .sums = sums.at[side], .rows = rows,
            .head_size = size}), "head_norm_weights");
    }
    expect_equal("head_norm, out", &out, tolerance_of(d, size));
    expect_equal_of_terms("head_norm, in", &gradient, tolerance_of(d, size), terms);
    /* Each summand has the rounding of its head's sum of squares. */
    expect_equal("head_norm, weight of q", &q_gradient, tolerance_of(t.gradient, rows * heads + size));
    expect_equal("head_norm, weight of k", &k_gradient, tolerance_of(t.gradient, rows * kv_heads + size));
    part_end("head_norm");
}

static void head_norms(void)
{
    FOR_TYPES(t) {
        if (t->compute == EO_DTYPE_BF16) {
            head_norm(*t, 37, 5, 1, 6, 6, true);
            head_norm(*t, 45, 3, 1, 64, 128, true);
        }
        head_norm(*t, 1, 1, 1, 2, 0, false);
        head_norm(*t, 37, 5, 1, 6, 6, false);
        head_norm(*t, 600, sides.small ? 3 : 4, sides.small ? 1 : 2, 64, 128, false);
        head_norm(*t, 259, sides.small ? 4 : 16, sides.small ? 2 : 8, 128, 0, false);
        head_norm(*t, 3, 2, 1, 700, 7, false);
        head_norm(*t, 2, 1, 1, 7002, 0, false);
    }
}

/* ---- embedding and loss ---- */

static void embeddings(void)
{
    static const uint32_t vocabularies[] = {1, 7, 1000};
    FOR_TYPES(t) FOR_SIZES(s) for (int v = 0; v < 4; v++)
    {
        const bool adds = v == 3;
        const uint32_t vocabulary = vocabularies[adds ? 2 : v],
                       seq = s->rows > 4 ? (uint32_t)s->rows / 3 + 1 : (uint32_t)s->rows;
        const uint64_t positions = seq + 2;
        const struct tensor tokens = tensor_tokens(s->rows, vocabulary), in_document = tensor_tokens(s->rows, seq);
        const struct tensor table = tensor_random(t->compute, vocabulary, s->width, -1, 1);
        const struct tensor place = tensor_random(t->compute, positions, s->width, -1, 1);
        const struct tensor gradient = tensor_random(t->compute, s->rows, s->width, -1, 1);
        struct tensor out = tensor_unset(t->compute, s->rows, s->width);
        struct tensor tokens_to =
            adds ? tensor_random(t->gradient, vocabulary, s->width, -1, 1) : tensor_unset(t->gradient, vocabulary, s->width);
        struct tensor places_to = tensor_unset(t->gradient, positions, s->width);
        const struct tensor scratch =
            tensor_bytes(sides.ops[DEVICE]->embedding_scratch_bytes(s->rows, s->width, vocabulary));
        ON_BOTH(side) {
            expect_status(sides.ops[side]->embedding_forward(team_of(side), &(struct eo_embedding){
                .types = *t, .out = out.at[side], .tokens = tokens.at[side], .token_table = table.at[side],
                .position_table = v > 0 ? place.at[side] : NULL, .rows = s->rows, .width = s->width, .seq = seq,
                .positions = v > 1 ? in_document.at[side] : NULL}), "embedding_forward");
            expect_status(sides.ops[side]->embedding_backward(
                              team_of(side), &(struct eo_embedding_gradient){.types = *t,
                                                                             .token_gradient = tokens_to.at[side],
                                                                             .position_gradient = places_to.at[side],
                                                                             .out_gradient = gradient.at[side],
                                                                             .tokens = tokens.at[side],
                                                                             .rows = s->rows,
                                                                             .width = s->width,
                                                                             .vocabulary = vocabulary,
                                                                             .positions = positions,
                                                                             .seq = seq,
                                                                             .adds = adds,
                                                                             .scratch = scratch.at[side]}),
                          "embedding_backward");
        }
        expect_equal("embedding_forward", &out, 0);
        expect_equal("embedding_backward, tokens", &tokens_to, tolerance_of(t->gradient, s->rows));
        expect_equal("embedding_backward, positions", &places_to, tolerance_of(t->gradient, 4));
        part_end("embedding");
    }
}

static void loss(eo_dtype d, uint64_t rows, uint64_t vocabulary, bool backward)
{
    const uint64_t stride = (vocabulary + 15) / 16 * 16 + 16;
    const uint64_t offset = sides.offset;
    const float factor = 0.37F;
    struct tensor logits = tensor_strided(d, rows, vocabulary, stride, -8, 8);
    struct tensor targets = tensor_tokens(rows, (uint32_t)vocabulary);
    if (rows > 2)
        ((int32_t *)targets.at[HOST])[2] = -100; /* ignored */
    if (rows == 3)
        ((int32_t *)targets.at[HOST])[0] = (int32_t)vocabulary / 2;
    tensor_put(&targets, targets.at[HOST]);
    eo_element_store(d, logits.at[HOST], vocabulary / 2, 40); /* a row that is sure of itself */
    if (rows > 1 && vocabulary > 8)
        for (uint64_t i = 0; i < vocabulary - 1; i++) /* one that rules out nearly all */
            if ((int32_t)i != ((int32_t *)targets.at[HOST])[1])
                eo_element_store(d, logits.at[HOST], stride + i, -INFINITY);
    if (rows == 3) { /* both are right: all losses are small beside their logits */
        const uint64_t target = stride + (uint64_t)((int32_t *)targets.at[HOST])[1];
        eo_element_store(d, logits.at[HOST], stride + vocabulary - 1, -8);
        eo_element_store(d, logits.at[HOST], target, 3);
    }
    tensor_put(&logits, logits.at[HOST]);
    sides.offset = 0;
    struct tensor losses = tensor_unset(EO_DTYPE_FP32, 1, rows), sum = tensor_bytes(8);
    sides.offset = offset;
    double *of_losses = terms_of_losses(&logits), *of_gradient = terms_of_loss_gradient(&logits, &targets, factor);
    const double start = 3.25;
    double total[SIDES];
    memcpy(sum.at[HOST], &start, sizeof(start));
    tensor_put(&sum, sum.at[HOST]);
    ON_BOTH(side)
        expect_status(sides.ops[side]->cross_entropy(team_of(side), &(struct eo_loss){
            .types = {d, d}, .logits = logits.at[side], .losses = losses.at[side], .loss_sum = sum.at[side],
            .targets = targets.at[side], .stride = stride, .rows = rows, .vocabulary = vocabulary, .scale = factor,
            .backward = backward}), "cross_entropy");
    expect_equal_of_terms("cross_entropy, losses", &losses, 1e-5, of_losses);
    expect_equal_of_terms("cross_entropy, gradient", &logits, backward ? tolerance_of(d, 1) + 1e-5 : 0, of_gradient);
    ON_BOTH(side)
        expect_status(sides.ops[side]->loss_add(team_of(side), (double *)sum.at[side], sum.at[side], 0.5), "loss_add");
    sides_copy(&total[DEVICE], sum.at[DEVICE], sizeof(double), cudaMemcpyDeviceToHost);
    memcpy(&total[HOST], sum.at[HOST], sizeof(double));
    expect_that(fabs(total[DEVICE] - total[HOST]) <= 1e-6 * fabs(total[HOST]), "the sum of losses is %.12g, not %.12g",
                total[DEVICE], total[HOST]);
    expect_status(sides.ops[DEVICE]->loss_zero(sides.team, sum.at[DEVICE]), "loss_zero");
    sides_copy(&total[DEVICE], sum.at[DEVICE], sizeof(double), cudaMemcpyDeviceToHost);
    expect_that(total[DEVICE] == 0, "loss_zero left %g", total[DEVICE]);
    part_end("cross_entropy");
}

static void losses(void)
{
    FOR_DTYPES(d) for (int backward = 0; backward < 2; backward++) {
        loss(*d, 1, 1, backward);
        loss(*d, 3, 61, backward);
        loss(*d, sides.small ? 70 : 1100, 515, backward);
        loss(*d, 9, 50257, backward);
    }
}

static void finite_values(void)
{
    FOR_DTYPES(d) FOR_SIZES(s) {
        struct tensor values = tensor_random(*d, s->rows, s->width, -1e30F, 1e30F);
        static const float bad[] = {INFINITY, -INFINITY, NAN};
        for (int i = 0; i < 7; i++) {
            const uint64_t place = i % 2 ? values.count - 1 : values.count / 3;
            bool is_finite = i > 0;
            const float before = eo_element_load(*d, values.at[HOST], place);
            if (i > 0)
                eo_element_store(*d, values.at[HOST], place, bad[i % 3]);
            tensor_put(&values, values.at[HOST]);
            expect_status(sides.ops[DEVICE]->all_finite(sides.team, *d, values.at[DEVICE], values.count, &is_finite),
                          "all_finite");
            expect_that(is_finite == (i == 0), "all_finite: %d where %g is", is_finite, i > 0 ? (double)bad[i % 3] : 0.0);
            eo_element_store(*d, values.at[HOST], place, before);
        }
        part_end("all_finite");
    }
}

int main(int argc, char **argv)
{
    char why[256];
    if (!sides_begin(argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0, why, sizeof(why))) {
        if (!getenv("EO_TEST_REQUIRE_GPU"))
            return tap_skip_all("%s", why);
        tap(false, "%s, and EO_TEST_REQUIRE_GPU is set", why);
        return tap_end();
    }
    both_alignments(residuals);
    tap_case("residual_add has the reference's bits");
    both_alignments(scales);
    tap_case("scale has the reference's bits");
    both_alignments(dropouts);
    tap_case("dropout has the reference's bits");
    both_alignments(activations);
    tap_case("GELU and SwiGLU agree with the reference");
    both_alignments(rotations);
    tap_case("rotary positions agree with the reference");
    both_alignments(column_sums);
    tap_case("column sums agree with the reference, twice with the same bits");
    both_alignments(norm_forwards);
    tap_case("norms agree with the reference; a norm taken again has the same bits");
    both_alignments(norm_backwards);
    tap_case("gradients of norms agree with the reference, in place too");
    both_alignments(embeddings);
    tap_case("embeddings agree with the reference, whatever tokens repeat");
    both_alignments(losses);
    tap_case("cross-entropy agrees with the reference, its sum too");
    both_alignments(finite_values);
    tap_case("a value that is not finite is found anywhere");
    not_finite_cases();
    products_cases();
    attention_cases();
    both_alignments(head_norms);
    tap_case("norms of heads agree with the reference, forward and backward");
    sides_end();
    return tap_end();
}
