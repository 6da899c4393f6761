/* SPDX-License-Identifier: MIT
 *
 * The conformance program of the layers' kernels (tests/conformance/device/cuda_kernels.c), with the .cu files on the host, and no
 * GPU, no CUDA and no products: in their place stand the kernels between products. Tensors are all that kernels may touch.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "alone.h"
#include "alone_alignment.h"
#include "base/float8.h"
#include "layers/cuda/kernels.h"
#include "layers/reference/kernels.h"
#include "tests/conformance/device/cuda_sides.h"

#define LAUNCH(name, arguments)                                                                                       \
    static eo_status launch_##name(eo_team *team, const struct arguments *args)                                       \
    {                                                                                                                 \
        (void)team;                                                                                                   \
        return eo_cuda_##name(args, NULL) == cudaSuccess ? EO_OK : EO_ERR_DEVICE;                                     \
    }

LAUNCH(residual_add, eo_residual)
LAUNCH(dropout, eo_dropout)
LAUNCH(column_sums, eo_column_sums)
LAUNCH(gelu_forward, eo_gelu)
LAUNCH(swiglu_forward, eo_swiglu)
LAUNCH(swiglu_backward, eo_swiglu)
LAUNCH(norm_forward, eo_norm)
LAUNCH(norm_backward, eo_norm_gradient)
LAUNCH(head_norm_forward, eo_head_norm)
LAUNCH(head_norm_backward, eo_head_norm_gradient)
LAUNCH(head_norm_weights, eo_head_norm_weights)
LAUNCH(rotate, eo_rotation)
LAUNCH(embedding_forward, eo_embedding)
LAUNCH(embedding_backward, eo_embedding_gradient)
LAUNCH(cross_entropy, eo_loss)

static eo_status scale(eo_team *team, eo_dtype dtype, void *values, uint64_t count, float factor)
{
    (void)team;
    return eo_cuda_scale(dtype, values, count, factor, NULL) == cudaSuccess ? EO_OK : EO_ERR_DEVICE;
}

static eo_status loss_zero(eo_team *team, double *loss)
{
    (void)team;
    *loss = 0;
    return EO_OK;
}

static eo_status loss_add(eo_team *team, double *to, const double *loss, double factor)
{
    (void)team;
    return eo_cuda_loss_add(to, loss, factor, NULL) == cudaSuccess ? EO_OK : EO_ERR_DEVICE;
}

static eo_status all_finite(eo_team *team, eo_dtype dtype, const void *values, uint64_t count, bool *out)
{
    static uint32_t flag;
    (void)team;
    flag = 0;
    alone_allow(&flag, sizeof(flag));
    const cudaError_t error = eo_cuda_check_finite(&flag, values, count, dtype, NULL);
    *out = flag == 0;
    return error == cudaSuccess ? EO_OK : EO_ERR_DEVICE;
}

static const struct eo_kernel_ops ops = {
    .name = "alone",
    .norm_scratch_bytes = eo_cuda_norm_scratch_bytes,
    .column_scratch_bytes = eo_cuda_column_scratch_bytes,
    .embedding_scratch_bytes = eo_cuda_embedding_scratch_bytes,
    .residual_add = launch_residual_add,
    .scale = scale,
    .dropout = launch_dropout,
    .column_sums = launch_column_sums,
    .gelu_forward = launch_gelu_forward,
    .swiglu_forward = launch_swiglu_forward,
    .swiglu_backward = launch_swiglu_backward,
    .norm_forward = launch_norm_forward,
    .norm_backward = launch_norm_backward,
    .head_norm_forward = launch_head_norm_forward,
    .head_norm_backward = launch_head_norm_backward,
    .head_norm_weights = launch_head_norm_weights,
    .rotate = launch_rotate,
    .embedding_forward = launch_embedding_forward,
    .embedding_backward = launch_embedding_backward,
    .cross_entropy = launch_cross_entropy,
    .loss_zero = loss_zero,
    .loss_add = loss_add,
    .all_finite = all_finite,
};

static void on_tensor(const void *at, uint64_t bytes)
{
    if (at)
        alone_allow(at, bytes);
    else
        alone_allow_nothing();
    expect_that(alone_objections() == 0, "%s", alone_objection());
}

bool sides_begin(uint32_t device_index, char *why, size_t why_bytes)
{
    (void)device_index, (void)why, (void)why_bytes;
    if (eo_cuda_load_elementwise() || eo_cuda_load_embeddings() || eo_cuda_load_head_norms() || eo_cuda_load_losses() ||
        eo_cuda_load_norms() || eo_cuda_load_softmax() || eo_cuda_load_float8_rows())
        abort();
    sides.ops[HOST] = &eo_kernels_reference_ops;
    sides.ops[DEVICE] = &ops;
    sides.memory_bytes = 64u << 20;
    sides.memory = aligned_alloc(4096, sides.memory_bytes);
    sides.on_tensor = on_tensor;
    sides.small = true;
    if (!sides.memory)
        abort();
    sides_guard();
    alone_alignment_cases();
    return true;
}

void sides_end(void)
{
    free(sides.memory);
    alone_allow_nothing();
    tap(alone_objections() == 0, "no kernel does what a GPU would not, and none depends on the order of its threads");
}

/* --- between the products --- */

static void epilogue(eo_dtype d, uint64_t rows, uint64_t width, uint64_t stride, enum eo_epilogue kind)
{
    struct tensor c = tensor_strided(d, rows, width, stride, -3, 3);
    const struct tensor aux = tensor_strided(d, rows, width, stride, -3, 3), bias = tensor_random(d, 1, width, -1, 1);
    const struct eo_multiply product = {.types = {d, d}, .m = rows, .n = width, .c = c.at[DEVICE], .c_stride = stride,
                                        .aux = aux.at[DEVICE], .aux_stride = stride, .bias = bias.at[DEVICE],
                                        .epilogue = kind};
    expect_that(eo_cuda_epilogue(&product, NULL) == cudaSuccess, "epilogue");
    for (uint64_t row = 0; row < rows; row++) {
        void *to = tensor_at(&c, HOST, row * stride);
        if (kind == EO_EPILOGUE_GELU_GRADIENT) {
            eo_ref_gelu_gradient(to, tensor_at(&aux, HOST, row * stride), NULL, d, width);
            continue;
        }
        for (uint64_t i = 0; i < width; i++)
            eo_element_store(d, to, i, eo_element_load(d, to, i) + eo_element_load(d, bias.at[HOST], i));
    }
    expect_equal("epilogue, c", &c, tolerance_of(d, 1));
    part_end("epilogue");
}

/* A row of zeros, one with a NaN, one with an infinity, and the smallest of all scales. */
static void spoil_rows(struct tensor *t)
{
    uint16_t *rows = t->at[HOST];
    for (uint64_t i = 0; i < t->width; i++) {
        rows[i] = 0;
        rows[t->stride + i] = (uint16_t)(i % 3); /* the smallest numbers of bf16 */
    }
    rows[2 * t->stride + t->width - 1] = 0x7fc1;
    rows[3 * t->stride] = 0xff80;
    tensor_put(t, rows);
}

static void expect_float8(const struct tensor *t, uint64_t k, const uint8_t *got, const float *scales)
{
    for (uint64_t row = 0; row < t->rows; row++) {
        const uint16_t *from = tensor_at(t, HOST, row * t->stride);
        uint16_t largest = 0;
        for (uint64_t i = 0; i < k; i++)
            largest = (from[i] & 0x7fff) > largest ? from[i] & 0x7fff : largest;
        const float scale = eo_float8_scale(largest);
        expect_that(scales[row] == scale, "row %llu: scale %g, not %g", (unsigned long long)row, scales[row], scale);
        for (uint64_t i = 0; i < k; i++)
            expect_that(got[row * k + i] == eo_float8_narrow(from[i], eo_float8_inverse(scale)), "row %llu, element %llu: %02x",
                        (unsigned long long)row, (unsigned long long)i, got[row * k + i]);
    }
}

static void float8_rows(uint64_t m, uint64_t n, uint64_t k, uint64_t stride)
{
    struct tensor a = tensor_strided(EO_DTYPE_BF16, m, k, stride, -3, 3), b = tensor_random(EO_DTYPE_BF16, n, k, -1e-3F, 1e-3F);
    const struct eo_float8_scratch at = eo_float8_scratch_of(m, n, k);
    const struct tensor scratch = tensor_bytes(at.total);
    const char *got = scratch.at[DEVICE];
    spoil_rows(&a);
    expect_that(eo_cuda_float8_rows(&(struct eo_multiply){
        .types = {EO_DTYPE_BF16, EO_DTYPE_FP32}, .float8 = true, .m = m, .n = n, .k = k, .a = {a.at[DEVICE], stride, false},
        .b = {b.at[DEVICE], k, true}, .scratch = scratch.at[DEVICE]}, NULL) == cudaSuccess, "float8_rows");
    expect_float8(&a, k, (const uint8_t *)got + at.a, (const float *)(got + at.a_scales));
    expect_float8(&b, k, (const uint8_t *)got + at.b, (const float *)(got + at.b_scales));
    part_end("operands of float8 products");
}

void products_cases(void)
{
    float8_rows(16, 16, 16, 24);
    float8_rows(16, 32, 1040, 1040);
    float8_rows(32, 16, 2064, 2072);
    tap_case("operands of float8 products are rounded as the formula says");
    static const enum eo_epilogue kinds[] = {EO_EPILOGUE_BIAS, EO_EPILOGUE_GELU_GRADIENT};
    for (int way = 0; way < 8; way++) {
        const eo_dtype d = way & 1 ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
        sides.offset = way & 2 ? 4 : 0;
        epilogue(d, 3, 35, 37, kinds[way / 4]);
        epilogue(d, 5, 1600, 1616, kinds[way / 4]);
    }
    sides.offset = 0;
    tap_case("epilogues that no product has taken agree with the reference");
}

/* Of keys that a query does not see, of another document or after it: not to be read. */
static void unset_unseen(struct tensor *t, uint32_t queries, uint32_t first, const int32_t *positions)
{
    for (uint64_t row = 0; row < t->rows; row++) {
        const uint64_t query = first + row % queries;
        for (uint64_t key = 0; key < t->width; key++)
            if (key > query || (positions && key < query - (uint64_t)positions[row % queries]))
                eo_element_store(t->dtype, t->at[HOST], row * t->width + key, NAN);
    }
    tensor_put(t, t->at[HOST]);
}

/* Of the queries from `first` on: a document every five tokens. */
static struct tensor positions_from(uint32_t first, uint32_t queries)
{
    struct tensor t = tensor_tokens(queries, 1);
    for (uint32_t query = 0; query < queries; query++)
        ((int32_t *)t.at[HOST])[query] = (int32_t)((first + query) % 5);
    tensor_put(&t, t.at[HOST]);
    return t;
}

/* As eo_cuda_softmax says; weights beside scores, or over them. */
static void softmax(eo_dtype d, uint32_t heads, uint32_t queries, uint32_t first, uint32_t keys, bool in_place, bool packed)
{
    enum { SIZE = 24 };
    const uint64_t rows = (uint64_t)heads * queries;
    struct tensor scores = tensor_random(EO_DTYPE_FP32, rows, keys, -9, 9), beside = tensor_unset(d, rows, keys);
    struct tensor weights = in_place ? scores : beside, lse = tensor_unset(EO_DTYPE_FP32, heads, queries);
    struct tensor gradient = tensor_random(EO_DTYPE_FP32, rows, keys, -2, 2), gradient_to = tensor_unset(d, rows, keys);
    const struct tensor out = tensor_random(d, queries, (uint64_t)heads * SIZE, -1, 1);
    const struct tensor out_gradient = tensor_random(d, queries, (uint64_t)heads * SIZE, -1, 1);
    const struct tensor places = positions_from(first, queries);
    const int32_t *positions = packed ? places.at[HOST] : NULL;
    const struct eo_cuda_softmax s = {.scores = scores.at[DEVICE], .weights = weights.at[DEVICE],
                                      .log_sum_exp = lse.at[DEVICE], .log_sum_exp_stride = queries, .heads = heads,
                                      .queries = queries, .first = first, .keys = keys, .scale = 0.3F, .dtype = d,
                                      .positions = packed ? places.at[DEVICE] : NULL};
    const struct eo_cuda_softmax_gradient g = {.softmax = s, .weights_gradient = gradient.at[DEVICE],
                                               .scores_gradient = gradient_to.at[DEVICE], .out = out.at[DEVICE],
                                               .out_gradient = out_gradient.at[DEVICE], .out_stride = heads * SIZE,
                                               .out_head_stride = SIZE, .head_size = SIZE};
    unset_unseen(&scores, queries, first, positions);
    unset_unseen(&gradient, queries, first, positions);
    for (uint64_t row = 0; row < rows; row++) {
        const float *from = tensor_at(&scores, HOST, row * keys), *slopes = tensor_at(&gradient, HOST, row * keys);
        const uint64_t query = row % queries, head = row / queries, seen = first + query < keys ? first + query + 1 : keys;
        const uint64_t at = query * heads * SIZE + head * SIZE, hidden = packed ? first + query - (uint64_t)positions[query] : 0;
        double max = -INFINITY, sum = 0, dot = 0;
        for (uint64_t key = hidden; key < seen; key++)
            if (max < 0.3 * (double)from[key]) /* by fmax, gcc 12 fails for ARM */
                max = 0.3 * (double)from[key];
        for (uint64_t key = hidden; key < seen; key++)
            sum += exp(0.3 * (double)from[key] - max);
        for (uint64_t i = 0; i < SIZE; i++)
            dot += (double)eo_element_load(d, out.at[HOST], at + i) * (double)eo_element_load(d, out_gradient.at[HOST], at + i);
        ((float *)lse.at[HOST])[head * queries + query] = (float)(max + log(sum));
        for (uint64_t key = 0; key < keys; key++) {
            const bool sees = key >= hidden && key < seen;
            const double weight = sees ? exp(0.3 * (double)from[key] - max) / sum : 0;
            eo_element_store(d, gradient_to.at[HOST], row * keys + key,
                             (float)(sees ? 0.3 * weight * ((double)slopes[key] - dot) : 0));
            eo_element_store(d, weights.at[HOST], row * keys + key, (float)weight);
        }
    }
    if (!in_place) {
        expect_that(eo_cuda_softmax_forward(&s, NULL) == cudaSuccess, "softmax_forward");
        expect_equal("softmax_forward, weights", &weights, tolerance_of(d, keys) + 1e-5);
        expect_equal("softmax_forward, log_sum_exp", &lse, 1e-5);
    }
    if (!in_place && d == EO_DTYPE_FP32) {
        struct tensor over = tensor_unset(d, rows, keys); /* the scores, which become the weights */
        struct eo_cuda_softmax alone = s;
        tensor_put(&over, scores.at[HOST]);
        memcpy(over.at[HOST], weights.at[HOST], over.count * sizeof(float));
        alone.scores = alone.weights = over.at[DEVICE];
        expect_that(eo_cuda_softmax_forward(&alone, NULL) == cudaSuccess, "softmax_forward");
        expect_equal("softmax_forward in place, weights", &over, tolerance_of(d, keys) + 1e-5);
    }
    tensor_put(&lse, lse.at[HOST]);
    expect_that(eo_cuda_softmax_backward(&g, NULL) == cudaSuccess, "softmax_backward");
    expect_equal("softmax_backward, weights", &weights, tolerance_of(d, keys) + 1e-5);
    expect_equal("softmax_backward, gradient", &gradient_to, tolerance_of(d, keys) + 1e-4);
    part_end("softmax");
}

void attention_cases(void)
{
    for (int type = 0; type < 2; type++) {
        const eo_dtype d = type ? EO_DTYPE_BF16 : EO_DTYPE_FP32;
        softmax(d, 2, 5, 0, 5, false, false);
        softmax(d, 3, 4, 9, 16, false, false);
        softmax(d, 1, 3, 298, 301, false, false);
        softmax(d, 1, 2, 4000, 4002, !type, false);
        softmax(d, 2, 7, 0, 9, false, true);
        softmax(d, 1, 6, 298, 304, !type, true);
        struct tensor to = tensor_strided(d, 7, 300, 311, 0, 0);
        const struct tensor from = tensor_random(EO_DTYPE_FP32, 7, 300, -2, 2);
        for (uint64_t i = 0; i < from.count; i++)
            eo_element_store(d, to.at[HOST], i / 300 * 311 + i % 300, ((const float *)from.at[HOST])[i]);
        expect_that(eo_cuda_narrow_rows(to.at[DEVICE], 311, from.at[DEVICE], 7, 300, d, NULL) == cudaSuccess, "narrow_rows");
        expect_equal("narrow_rows", &to, 0);
        part_end("narrow_rows");
    }
    tap_case("softmax of blocks of queries and its gradient agree with sums in double");
}
