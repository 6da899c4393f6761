/* SPDX-License-Identifier: MIT
 *
 * Products by cuBLASLt with their epilogues, attention in each of its ways, and both inside a captured graph.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/device/cuda_sides.h"

static eo_team *team_of(enum side side)
{
    return side == DEVICE ? sides.team : NULL;
}

/* ---- products ---- */

struct product_case {
    struct eo_types types;
    uint64_t m, n, k;
    bool a_transposed, b_transposed, weight_gradient, accumulate, residual, float8;
    enum eo_epilogue epilogue;
};

struct product_tensors {
    struct tensor a, b, c, residual, bias, aux, bias_gradient, scratch;
};

static struct eo_multiply multiply_of(const struct product_case *p, const struct product_tensors *t, enum side side)
{
    return (struct eo_multiply){
        .types = p->types,
        .weight_gradient = p->weight_gradient,
        .c = t->c.at[side],
        .c_stride = t->c.stride,
        .a = {t->a.at[side], t->a.stride, p->a_transposed},
        .b = {t->b.at[side], t->b.stride, p->b_transposed},
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .accumulate = p->accumulate,
        .residual = p->residual ? t->residual.at[side] : NULL,
        .epilogue = p->epilogue,
        .bias = t->bias.at[side],
        .aux = t->aux.at[side],
        .aux_stride = t->aux.stride,
        .bias_gradient = t->bias_gradient.at[side],
        .scratch = t->scratch.at[side],
        .float8 = p->float8,
    };
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t scratch_bytes(const struct product_case *p)
{
    const uint64_t columns = sides.ops[DEVICE]->column_scratch_bytes(p->k, p->m);
    return p->float8 ? most(columns, most(sides.ops[HOST]->float8_scratch_bytes(p->m, p->n, p->k),
                                          sides.ops[DEVICE]->float8_scratch_bytes(p->m, p->n, p->k)))
                     : columns;
}

static struct product_tensors tensors_of(const struct product_case *p)
{
    const eo_dtype d = p->types.compute, c = p->weight_gradient ? p->types.gradient : d;
    struct product_tensors t = {
        .a = tensor_random(d, p->a_transposed ? p->k : p->m, p->a_transposed ? p->m : p->k, -1, 1),
        .b = tensor_random(d, p->b_transposed ? p->n : p->k, p->b_transposed ? p->k : p->n, -1, 1),
        .c = p->accumulate ? tensor_random(c, p->m, p->n, -1, 1) : tensor_unset(c, p->m, p->n),
        .residual = tensor_random(d, p->m, p->n, -1, 1),
        .bias = tensor_random(d, 1, p->n, -1, 1),
        .aux = tensor_random(d, p->m, p->n, -2, 2),
        .bias_gradient = tensor_unset(p->types.gradient, 1, p->m),
        .scratch = tensor_bytes(scratch_bytes(p)),
    };
    return t;
}

/* The reference sums the gradient of a bias apart. */
static void product_on(enum side side, struct eo_multiply multiply, const char *what)
{
    const bool apart = multiply.epilogue == EO_EPILOGUE_BIAS_GRADIENT && !sides.ops[side]->fused_bias_gradients;
    if (apart) {
        multiply.epilogue = EO_EPILOGUE_NONE;
        expect_status(sides.ops[side]->column_sums(team_of(side), &(struct eo_column_sums){
            .types = multiply.types, .bias_gradient = multiply.bias_gradient, .gradient = multiply.a.values,
            .stride = multiply.a.stride, .rows = multiply.k, .width = multiply.m, .scratch = multiply.scratch}), what);
    }
    expect_status(sides.ops[side]->multiply(team_of(side), &multiply), what);
}

/* A sum of k terms has the rounding of its partial sums, which are as large as chance makes them. A single sum that has
 * cancelled is smaller, and its own size no measure. */
static void expect_bias_gradient(const struct product_case *p, const struct product_tensors *t)
{
    const double tolerance = tolerance_of(p->types.gradient, p->k), in_sums = tolerance_of(EO_DTYPE_FP32, p->k);
    const double partial_sum = sqrt((double)p->k) * root_mean_square(&t->a);
    double *terms = calloc(t->bias_gradient.count, sizeof(*terms));
    for (uint64_t i = 0; i < t->bias_gradient.count; i++)
        terms[i] = fmax(root_mean_square(&t->bias_gradient), partial_sum * in_sums / tolerance);
    expect_equal_of_terms("its gradient of the bias", &t->bias_gradient, tolerance, terms);
}

/* C = x gelu'(aux), and a tanh of the hardware's is good to 2^-11. By it |d gelu' / d tanh| tanh is at most 1.8 for |aux| <= 2:
 * an error of x's size, where gelu' may be zero. Of x, the sum, comes its rounding. */
static void expect_gelu_gradient(const char *what, const struct product_case *p, const struct product_tensors *t,
                                 double tolerance)
{
    struct eo_multiply plain = multiply_of(p, t, HOST);
    const struct tensor sums = tensor_unset(p->types.compute, p->m, p->n);
    const double rounding = root_mean_square(&t->c), of_tanh = 1.8 * 0x1p-11 / tolerance;
    double *terms = calloc(sums.count, sizeof(*terms));
    plain.c = sums.at[HOST];
    plain.epilogue = EO_EPILOGUE_NONE;
    expect_status(sides.ops[HOST]->multiply(NULL, &plain), what);
    for (uint64_t i = 0; i < sums.count; i++)
        terms[i] = rounding + of_tanh * fabs((double)eo_element_load(sums.dtype, sums.at[HOST], i));
    expect_equal_of_terms(what, &t->c, tolerance, terms);
}

static void product(const struct product_case *p)
{
    char what[128];
    const eo_dtype c_type = p->weight_gradient ? p->types.gradient : p->types.compute;
    snprintf(what, sizeof(what), "product %llu x %llu x %llu, types %d%d, transposed %d%d, epilogue %d%s%s",
             (unsigned long long)p->m, (unsigned long long)p->n, (unsigned long long)p->k, p->types.compute, c_type,
             p->a_transposed, p->b_transposed, (int)p->epilogue,
             p->accumulate ? ", added" : p->residual ? ", with a residual" : "",
             p->float8 ? ", float8" : "");
    struct product_tensors t = tensors_of(p);
    struct eo_multiply prepared = multiply_of(p, &t, DEVICE);
    prepared.c = prepared.aux = prepared.bias_gradient = NULL;
    prepared.a.values = prepared.b.values = prepared.bias = NULL;
    expect_status(sides.ops[DEVICE]->prepare_multiply(sides.team, &prepared), "prepare_multiply");
    for (enum side side = HOST; side < SIDES; side++)
        product_on(side, multiply_of(p, &t, side), what);
    /* Where no epilogue is fused, a bf16 sum is rounded before it. */
    const double tolerance = 2 * tolerance_of(c_type, p->k);
    if (p->epilogue == EO_EPILOGUE_GELU_GRADIENT)
        expect_gelu_gradient(what, p, &t, tolerance);
    else
        expect_equal(what, &t.c, tolerance);
    if (p->epilogue == EO_EPILOGUE_BIAS_GRADIENT)
        expect_bias_gradient(p, &t);
    const struct eo_multiply again = multiply_of(p, &t, DEVICE);
    if (!p->accumulate) {
        const uint64_t hash = device_hash(&t.c);
        expect_status(sides.ops[DEVICE]->multiply(sides.team, &again), what);
        expect_that(hash == device_hash(&t.c), "%s: other bits in the second run", what);
    }
    part_end(what);
}

/* Where the device has none, it says so, and they are bf16's: nothing to compare. */
static bool float8_products(void)
{
    static const uint64_t sizes[][3] = {{16, 16, 16}, {64, 48, 112}, {144, 272, 64}, {512, 768, 640}};
    expect_status(sides.ops[DEVICE]->prepare_multiply(sides.team, &(struct eo_multiply){
        .types = {EO_DTYPE_BF16, EO_DTYPE_FP32}, .m = 16, .n = 16, .k = 16, .c_stride = 16, .a = {NULL, 16, false},
        .b = {NULL, 16, true}, .float8 = true}), "prepare_multiply");
    for (int s = 0; s < (sides.few ? 3 : 4) && !sides.no_float8; s++) {
        struct product_case p = {.types = {EO_DTYPE_BF16, EO_DTYPE_FP32}, .m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2],
                                 .b_transposed = true, .float8 = true};
        for (int way = 0; way < 4; way++) {
            p.epilogue = way & 1 ? EO_EPILOGUE_BIAS : EO_EPILOGUE_NONE;
            p.residual = way & 2;
            product(&p);
        }
    }
    return !sides.no_float8;
}

void products_cases(void)
{
    static const uint64_t sizes[][3] = {{64, 48, 40}, {129, 257, 33}, {1, 96, 520}, {512, 768, 640}};
    static const struct eo_types types[] = {
        {EO_DTYPE_FP32, EO_DTYPE_FP32}, {EO_DTYPE_BF16, EO_DTYPE_FP32}, {EO_DTYPE_BF16, EO_DTYPE_BF16}};
    for (int t = 0; t < 3; t++)
        for (int s = 0; s < (sides.few ? 3 : 4); s++) {
            struct product_case p = {.types = types[t], .m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2]};
            for (int transposed = 0; transposed < 4; transposed++) {
                p.a_transposed = transposed & 1;
                p.b_transposed = transposed & 2;
                product(&p);
            }
            p.a_transposed = false; /* y = x W^T + bias; dx = dy W, GELU's slope */
            p.b_transposed = true;
            p.epilogue = EO_EPILOGUE_GELU_GRADIENT;
            product(&p);
            p.epilogue = EO_EPILOGUE_BIAS;
            product(&p);
            p.residual = true; /* x + y W^T, with a bias or without */
            product(&p);
            p.epilogue = EO_EPILOGUE_NONE;
            product(&p);
            p.residual = false;
            p.a_transposed = p.weight_gradient = true; /* dW (+)= dy^T x */
            p.b_transposed = false;
            product(&p);
            p.epilogue = EO_EPILOGUE_BIAS_GRADIENT;
            product(&p);
            p.epilogue = EO_EPILOGUE_NONE;
            p.accumulate = true;
            product(&p);
        }
    tap_case("products agree with the reference: types, transposes, epilogues, sums into gradients");
    tap_case(float8_products() ? "float8 products agree with the reference, which rounds the same operands"
                               : "float8 products: this GPU or its cuBLASLt has none, and says so");
}

/* ---- attention ---- */

struct attention_tensors {
    struct tensor qkv, gradients, out, log_sum_exp, out_gradient, scratch, positions;
};

static struct eo_attention attention_of(struct eo_types types, const struct eo_attention_shape *s,
                                        const struct attention_tensors *t, enum side side)
{
    const uint64_t k = (uint64_t)s->head_count * s->head_size, v = k + (uint64_t)s->kv_head_count * s->head_size;
    return (struct eo_attention){
        .types = types,
        .shape = *s,
        .q = t->qkv.at[side],
        .k = tensor_at(&t->qkv, side, k),
        .v = tensor_at(&t->qkv, side, v),
        .out = t->out.at[side],
        .log_sum_exp = t->log_sum_exp.at[side],
        .out_gradient = t->out_gradient.at[side],
        .q_gradient = t->gradients.at[side],
        .k_gradient = tensor_at(&t->gradients, side, k),
        .v_gradient = tensor_at(&t->gradients, side, v),
        .scratch = t->scratch.at[side],
        .positions = s->packed ? t->positions.at[side] : NULL,
    };
}

/* Documents of 1, 2, 3, ... tokens, as far as a sequence goes. */
static struct tensor documents_of(const struct eo_attention_shape *s)
{
    struct tensor t = tensor_tokens((uint64_t)s->batch * s->seq, 1);
    int32_t *positions = t.at[HOST];
    for (uint64_t i = 0, length = 1; i < t.count; i++) {
        positions[i] = i % s->seq == 0 || (uint64_t)positions[i - 1] + 1 == length ? 0 : positions[i - 1] + 1;
        length = i % s->seq == 0 ? 1 : length + (positions[i] == 0);
    }
    tensor_put(&t, positions);
    return t;
}

static struct attention_tensors attention_tensors_of(struct eo_types types, const struct eo_attention_shape *s)
{
    const eo_dtype d = types.compute;
    const uint64_t rows = (uint64_t)s->batch * s->seq, host = sides.ops[HOST]->attention_scratch_bytes(types, s, 1);
    const uint64_t device = sides.ops[DEVICE]->attention_scratch_bytes(types, s, 1);
    return (struct attention_tensors){
        .qkv = tensor_random(d, rows, s->q_stride, -1, 1),
        .gradients = tensor_unset(d, rows, s->q_stride),
        .out = tensor_unset(d, rows, s->out_stride),
        .log_sum_exp = tensor_unset(EO_DTYPE_FP32, (uint64_t)s->batch * s->head_count, s->seq),
        .out_gradient = tensor_random(d, rows, s->out_stride, -1, 1),
        .scratch = tensor_bytes(host > device ? host : device),
        .positions = documents_of(s),
    };
}

static struct eo_attention_shape packed(uint32_t batch, uint32_t heads, uint32_t kv_heads, uint32_t seq, uint32_t size)
{
    const uint64_t row = (uint64_t)(heads + 2 * kv_heads) * size;
    return (struct eo_attention_shape){.batch = batch, .seq = seq, .head_count = heads, .kv_head_count = kv_heads,
                                       .head_size = size, .q_stride = row, .kv_stride = row,
                                       .out_stride = (uint64_t)heads * size};
}

static void attention(eo_dtype d, const struct eo_attention_shape *s, bool repeatable)
{
    char what[128];
    const struct eo_types types = {d, EO_DTYPE_FP32};
    /* In bf16 the weights are rounded before they are multiplied; the reference keeps them in fp32. A small gradient that
     * is the difference of large sums shows it most. */
    const double tolerance = d == EO_DTYPE_BF16 ? 2e-2 : 2e-5, of_gradients = d == EO_DTYPE_BF16 ? 8e-2 : 5e-5;
    struct attention_tensors t = attention_tensors_of(types, s);
    snprintf(what, sizeof(what), "attention of %u x %u, heads %u/%u of %u, %s", s->batch, s->seq, s->head_count,
             s->kv_head_count, s->head_size, d == EO_DTYPE_BF16 ? "bf16" : "fp32");
    expect_status(sides.ops[DEVICE]->prepare_attention(sides.team, &(struct eo_attention){.types = types, .shape = *s}),
                  what);
    for (enum side side = HOST; side < SIDES; side++) {
        const struct eo_attention a = attention_of(types, s, &t, side);
        expect_status(sides.ops[side]->attention_forward(team_of(side), &a), what);
        expect_status(sides.ops[side]->attention_backward(team_of(side), &a), what);
    }
    /* A query's weights are rounded, p (1 + d), and its result sum p (1 + d) v is off by about |d| sqrt(sum p^2 v^2). That is
     * |d| times what random v leave of sum p v: ten times as much for queries of few keys as for those of many. Gradients are
     * alike. */
    expect_equal_of_terms(what, &t.out, tolerance, terms_of_rows(&t.out));
    expect_equal("its log_sum_exp", &t.log_sum_exp, d == EO_DTYPE_BF16 ? 1e-3 : 1e-5);
    expect_equal_of_terms("its gradients", &t.gradients, of_gradients, terms_of_rows(&t.gradients));
    const struct eo_attention a = attention_of(types, s, &t, DEVICE);
    const uint64_t out = device_hash(&t.out), gradients = device_hash(&t.gradients);
    expect_status(sides.ops[DEVICE]->attention_forward(sides.team, &a), what);
    expect_status(sides.ops[DEVICE]->attention_backward(sides.team, &a), what);
    expect_that(out == device_hash(&t.out), "%s: other bits in the second run", what);
    expect_that(!repeatable || gradients == device_hash(&t.gradients), "%s: other gradients in the second run", what);
    expect_equal_of_terms("its gradients, the second time", &t.gradients, of_gradients, terms_of_rows(&t.gradients));
    part_end(what);
}

static void attention_shapes(bool repeatable)
{
    const struct eo_attention_shape shapes[] = {
        packed(1, 4, 4, 256, 64), packed(2, 8, 2, 384, 128), packed(2, 3, 3, 129, 96), packed(3, 4, 2, 1, 64),
        packed(2, 6, 3, 77, 40),  packed(1, 2, 1, 700, 8),
    };
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        const uint32_t most = repeatable ? 200 : 256; /* on the host the softmax of all queries and keys takes long */
        if (sides.few && shapes[s].seq > most) {
            printf("# left to the full run: attention of %u tokens\n", shapes[s].seq);
            continue;
        }
        attention(EO_DTYPE_BF16, &shapes[s], repeatable);
        if (!sides.few || !repeatable) /* in fp32 there is one way, and it is repeatable */
            attention(EO_DTYPE_FP32, &shapes[s], true);
    }
    const struct eo_attention_shape odd = packed(2, 5, 5, 9, 7); /* rows that are not aligned */
    attention(EO_DTYPE_FP32, &odd, true);
    attention(EO_DTYPE_BF16, &odd, true);
    struct eo_attention_shape documents = packed(2, 4, 2, 150, 64);
    documents.packed = true;
    attention(EO_DTYPE_FP32, &documents, true);
    attention(EO_DTYPE_BF16, &documents, true);
}

/* A product and attention, eagerly and as a graph: the same bits (of what is repeatable). */
static void captured(void)
{
    const struct eo_types types = {EO_DTYPE_BF16, EO_DTYPE_FP32};
    const uint32_t seq = sides.few ? 48 : 256;
    const struct eo_attention_shape s = packed(2, 4, 2, seq, 64);
    const struct product_case p = {.types = types, .m = 2 * (uint64_t)seq, .n = s.q_stride, .k = 256, .b_transposed = true,
                                   .epilogue = EO_EPILOGUE_BIAS};
    struct product_tensors t = tensors_of(&p);
    struct attention_tensors at = attention_tensors_of(types, &s);
    at.qkv = t.c; /* what the product writes */
    const struct eo_multiply multiply = multiply_of(&p, &t, DEVICE);
    const struct eo_attention a = attention_of(types, &s, &at, DEVICE);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    expect_status(sides.ops[DEVICE]->multiply(sides.team, &multiply), "a product");
    expect_status(sides.ops[DEVICE]->attention_forward(sides.team, &a), "attention");
    expect_status(sides.ops[DEVICE]->attention_backward(sides.team, &a), "attention");
    const uint64_t product_bits = device_hash(&t.c), bits = device_hash(&at.out);
    (void)cudaMemsetAsync(t.c.at[DEVICE], 0, t.c.count * 2, sides.stream);
    (void)cudaMemsetAsync(at.out.at[DEVICE], 0, at.out.count * 2, sides.stream);
    expect_that(cudaStreamBeginCapture(sides.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess, "no capture");
    expect_status(sides.ops[DEVICE]->multiply(sides.team, &multiply), "a captured product");
    expect_status(sides.ops[DEVICE]->attention_forward(sides.team, &a), "captured attention");
    expect_status(sides.ops[DEVICE]->attention_backward(sides.team, &a), "captured attention");
    expect_that(cudaStreamEndCapture(sides.stream, &graph) == cudaSuccess, "the capture was spoiled");
    expect_that(cudaGraphInstantiateWithFlags(&executable, graph, cudaGraphInstantiateFlagUseNodePriority) == cudaSuccess,
                "the graph cannot be instantiated");
    for (int run = 0; run < 2 && executable; run++) {
        expect_that(cudaGraphLaunch(executable, sides.stream) == cudaSuccess, "the graph cannot be launched");
        expect_that(device_hash(&t.c) == product_bits && device_hash(&at.out) == bits, "other bits as a graph");
    }
    if (executable)
        (void)cudaGraphExecDestroy(executable);
    if (graph)
        (void)cudaGraphDestroy(graph);
    part_end("a graph");
}

void attention_cases(void)
{
    attention_shapes(false);
    tap_case("attention agrees with the reference");
    captured();
    tap_case("a product and attention have the same bits in a graph");
    eo_team_destroy(&sides.team);
    expect_status(eo_team_create_on(&sides.team, eo_team_params(.device = "cuda", .stream = sides.stream,
                                                                .repeatable = true)), "a team that is repeatable");
    attention_shapes(true);
    tap_case("repeatable attention agrees with the reference, twice with the same bits");
}
