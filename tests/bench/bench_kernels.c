/* SPDX-License-Identifier: MIT
 *
 * The time of every kernel at gpt2's shapes (4 sequences of 256 tokens, width 768), beside that of the products it
 * stands between: bench_kernels [THREADS [LEVEL]]. The last lines say what share of a step is not products.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "layers/denormals.h"
#include "layers/kernel_ops.h"

enum {
    BATCH = 4,
    SEQ = 256,
    ROWS = BATCH * SEQ,
    WIDTH = 768,
    HEADS = 12,
    MLP = 4 * WIDTH,
    VOCABULARY = 50257,
    BLOCKS = 12,
    RUNS = 7,
};

struct operands {
    eo_team *team;
    float *wide[4];   /* [ROWS][MLP] */
    float *narrow[6]; /* [ROWS][WIDTH] */
    float *weights;   /* [MLP][WIDTH] */
    float *vector[6];
    float *table; /* [VOCABULARY][WIDTH] */
    float *table_gradient;
    float *logits;
    float *losses;
    float *log_sum_exp;
    int32_t *tokens;
    void *scratch;
};

static float *floats(uint64_t count, uint32_t seed)
{
    float *values = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    if (values == NULL)
        abort();
    for (uint64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return values;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static const struct eo_attention_shape shape = {.batch = BATCH,
                                                .seq = SEQ,
                                                .head_count = HEADS,
                                                .kv_head_count = HEADS,
                                                .head_size = WIDTH / HEADS,
                                                .q_stride = 3 * WIDTH,
                                                .kv_stride = 3 * WIDTH,
                                                .out_stride = WIDTH};

static void check(eo_status status)
{
    if (status < 0) {
        fprintf(stderr, "bench_kernels: %s\n", eo_status_text(status));
        exit(1);
    }
}

static const struct eo_kernel_ops *const ops = &eo_kernels_cpu_ops;
#define FP32 {EO_DTYPE_FP32, EO_DTYPE_FP32}

/* y = x W^T and its two gradients: x, d_x [ROWS][in], w [out][in], y [ROWS][out] */
static void product_three(struct operands *o, uint64_t in, uint64_t out, const float *x, const float *w, float *y,
                          float *d_x)
{
    check(ops->multiply(o->team, &(struct eo_multiply){
        .types = FP32, .c = y, .c_stride = out, .a = {x, in, false}, .b = {w, in, true}, .m = ROWS, .n = out, .k = in}));
    check(ops->multiply(o->team, &(struct eo_multiply){
        .types = FP32, .c = d_x, .c_stride = in, .a = {y, out, false}, .b = {w, in, false}, .m = ROWS, .n = in, .k = out}));
    check(ops->multiply(o->team, &(struct eo_multiply){
        .types = FP32, .c = o->table_gradient, .c_stride = in, .a = {y, out, true}, .b = {x, in, false}, .m = out,
        .n = in, .k = ROWS}));
}

static void run_qkv(struct operands *o)
{
    product_three(o, WIDTH, 3 * WIDTH, o->wide[1], o->weights, o->wide[0], o->wide[1]);
}

static void run_attention_out(struct operands *o)
{
    product_three(o, WIDTH, WIDTH, o->wide[1], o->weights, o->wide[0], o->wide[1]);
}

static void run_mlp_in(struct operands *o)
{
    product_three(o, WIDTH, MLP, o->wide[1], o->weights, o->wide[0], o->wide[1]);
}

static void run_mlp_out(struct operands *o)
{
    product_three(o, MLP, WIDTH, o->wide[1], o->weights, o->wide[0], o->wide[1]);
}

static void run_head(struct operands *o)
{
    product_three(o, WIDTH, VOCABULARY, o->narrow[0], o->table, o->logits, o->narrow[1]);
}

static struct eo_norm norm_of(struct operands *o, bool centered)
{
    return (struct eo_norm){
        .types = FP32, .centered = centered, .sum = o->narrow[2], .out = o->narrow[3], .mean = o->vector[3],
        .rstd = o->vector[4], .residual = o->narrow[0], .branch = o->narrow[1],
        .branch_bias = centered ? o->vector[0] : NULL, .weight = o->vector[1], .bias = o->vector[2], .eps = 1e-5f,
        .rows = ROWS, .width = WIDTH};
}

static struct eo_norm_gradient norm_gradient_of(struct operands *o, bool centered)
{
    return (struct eo_norm_gradient){
        .types = FP32, .centered = centered, .in_gradient = o->narrow[4], .skip_gradient = o->narrow[4],
        .out_gradient = o->narrow[3], .in = o->narrow[2], .weight = o->vector[1], .mean = o->vector[3],
        .rstd = o->vector[4], .weight_gradient = o->vector[2], .bias_gradient = o->vector[5], .rows = ROWS,
        .width = WIDTH, .scratch = o->scratch};
}

static void run_norm_forward(struct operands *o)
{
    const struct eo_norm norm = norm_of(o, true);
    check(ops->norm_forward(o->team, &norm));
}

static void run_norm_backward(struct operands *o)
{
    const struct eo_norm_gradient norm = norm_gradient_of(o, true);
    check(ops->norm_backward(o->team, &norm));
}

static void run_rmsnorm_forward(struct operands *o)
{
    const struct eo_norm norm = norm_of(o, false);
    check(ops->norm_forward(o->team, &norm));
}

static void run_rmsnorm_backward(struct operands *o)
{
    const struct eo_norm_gradient norm = norm_gradient_of(o, false);
    check(ops->norm_backward(o->team, &norm));
}

static void run_bias_qkv(struct operands *o)
{
    check(ops->bias_add(o->team, &(struct eo_bias){
        .types = FP32, .output = o->wide[0], .bias = o->vector[0], .stride = 3 * WIDTH, .rows = ROWS,
        .width = 3 * WIDTH}));
}

static void column_sums(struct operands *o, const float *gradient, uint64_t width)
{
    check(ops->column_sums(o->team, &(struct eo_column_sums){
        .types = FP32, .bias_gradient = o->vector[5], .gradient = gradient, .rows = ROWS, .width = width}));
}

static void run_bias_gradient_qkv(struct operands *o)
{
    column_sums(o, o->wide[0], 3 * WIDTH);
}

static void run_bias_gradient(struct operands *o)
{
    column_sums(o, o->narrow[0], WIDTH);
}

static void run_gelu_forward(struct operands *o)
{
    check(ops->gelu_forward(o->team, &(struct eo_gelu){
        .types = FP32, .out = o->wide[1], .in = o->wide[0], .bias = o->vector[0], .rows = ROWS, .width = MLP}));
}

static void run_gelu_backward(struct operands *o)
{
    check(ops->gelu_backward(o->team, &(struct eo_gelu_gradient){
        .types = FP32, .in_gradient = o->wide[1], .out_gradient = o->wide[1], .in = o->wide[0], .bias = o->vector[0],
        .bias_gradient = o->vector[5], .rows = ROWS, .width = MLP}));
}

static struct eo_swiglu swiglu_of(struct operands *o)
{
    return (struct eo_swiglu){
        .types = FP32, .out = o->wide[2], .gate = o->wide[0], .up = o->wide[1], .out_gradient = o->wide[1],
        .gate_gradient = o->wide[2], .up_gradient = o->wide[3], .stride = MLP, .rows = ROWS, .width = MLP};
}

static void run_swiglu_forward(struct operands *o)
{
    const struct eo_swiglu swiglu = swiglu_of(o);
    check(ops->swiglu_forward(o->team, &swiglu));
}

static void run_swiglu_backward(struct operands *o)
{
    const struct eo_swiglu swiglu = swiglu_of(o);
    check(ops->swiglu_backward(o->team, &swiglu));
}

static void run_rope(struct operands *o)
{
    check(ops->rotate(o->team, &(struct eo_rotation){
        .types = FP32, .values = o->wide[0], .stride = 3 * WIDTH, .table = o->table, .rows = ROWS, .seq = SEQ,
        .head_count = HEADS, .head_size = WIDTH / HEADS}));
}

static void run_attention_forward(struct operands *o)
{
    const float *qkv = o->wide[0];
    check(ops->attention_forward(o->team, &(struct eo_attention){
        .types = FP32, .shape = shape, .q = qkv, .k = qkv + WIDTH, .v = qkv + 2 * WIDTH, .out = o->narrow[0],
        .log_sum_exp = o->log_sum_exp, .scratch = o->scratch}));
}

static void run_attention_backward(struct operands *o)
{
    const float *qkv = o->wide[0];
    float *gradient = o->wide[1];
    check(ops->attention_backward(o->team, &(struct eo_attention){
        .types = FP32, .shape = shape, .q = qkv, .k = qkv + WIDTH, .v = qkv + 2 * WIDTH, .out = o->narrow[0],
        .log_sum_exp = o->log_sum_exp, .out_gradient = o->narrow[1], .q_gradient = gradient,
        .k_gradient = gradient + WIDTH, .v_gradient = gradient + 2 * WIDTH, .scratch = o->scratch}));
}

static void run_embedding_forward(struct operands *o)
{
    check(ops->embedding_forward(o->team, &(struct eo_embedding){
        .types = FP32, .out = o->narrow[0], .tokens = o->tokens, .token_table = o->table, .position_table = o->weights,
        .rows = ROWS, .width = WIDTH, .seq = SEQ}));
}

static void run_embedding_backward(struct operands *o)
{
    check(ops->embedding_backward(o->team, &(struct eo_embedding_gradient){
        .types = FP32, .token_gradient = o->table_gradient, .position_gradient = o->wide[0],
        .out_gradient = o->narrow[0], .tokens = o->tokens, .rows = ROWS, .width = WIDTH, .vocabulary = VOCABULARY,
        .positions = 1024, .seq = SEQ}));
}

static void cross_entropy(struct operands *o, bool backward)
{
    double sum = 0;
    check(ops->cross_entropy(o->team, &(struct eo_loss){
        .types = FP32, .logits = o->logits, .losses = o->losses, .loss_sum = &sum, .targets = o->tokens,
        .stride = VOCABULARY, .rows = ROWS, .vocabulary = VOCABULARY, .scale = 1.0f / ROWS, .backward = backward}));
}

static void run_loss(struct operands *o)
{
    cross_entropy(o, false);
}

static void run_loss_backward(struct operands *o)
{
    cross_entropy(o, true);
}

/* `per_block` and `per_step`: how often a training step of gpt2 without recompute runs it. */
struct row {
    const char *name;
    void (*run)(struct operands *o);
    int per_block, per_step;
    double flops; /* products and attention */
    bool product;
};

#define PRODUCT_FLOPS(in, out)    (6.0 * ROWS * (in) * (out))
#define ATTENTION_FLOPS(products) ((products)*1.0 * ROWS * SEQ * WIDTH) /* half of the square */

static const struct row rows[] = {
    {"product qkv, 3", run_qkv, 1, 0, PRODUCT_FLOPS(WIDTH, 3 * WIDTH), true},
    {"product attention out, 3", run_attention_out, 1, 0, PRODUCT_FLOPS(WIDTH, WIDTH), true},
    {"product mlp in, 3", run_mlp_in, 1, 0, PRODUCT_FLOPS(WIDTH, MLP), true},
    {"product mlp out, 3", run_mlp_out, 1, 0, PRODUCT_FLOPS(MLP, WIDTH), true},
    {"product head, 3", run_head, 0, 1, PRODUCT_FLOPS(WIDTH, VOCABULARY), true},
    {"residual + layernorm forward", run_norm_forward, 2, 1, 0, false},
    {"layernorm backward", run_norm_backward, 2, 1, 0, false},
    {"bias add qkv", run_bias_qkv, 1, 0, 0, false},
    {"attention forward", run_attention_forward, 1, 0, ATTENTION_FLOPS(2), false},
    {"attention backward", run_attention_backward, 1, 0, ATTENTION_FLOPS(5), false},
    {"bias gradient qkv", run_bias_gradient_qkv, 1, 0, 0, false},
    {"bias gradient", run_bias_gradient, 2, 0, 0, false},
    {"bias + gelu forward", run_gelu_forward, 1, 0, 0, false},
    {"gelu + bias gradient backward", run_gelu_backward, 1, 0, 0, false},
    {"embedding forward", run_embedding_forward, 0, 1, 0, false},
    {"embedding backward", run_embedding_backward, 0, 1, 0, false},
    {"cross-entropy and gradient", run_loss_backward, 0, 1, 0, false},
    {"cross-entropy alone", run_loss, 0, 0, 0, false},
    {"residual + rmsnorm forward", run_rmsnorm_forward, 0, 0, 0, false},
    {"rmsnorm backward", run_rmsnorm_backward, 0, 0, 0, false},
    {"swiglu forward (mlp 3072)", run_swiglu_forward, 0, 0, 0, false},
    {"swiglu backward (mlp 3072)", run_swiglu_backward, 0, 0, 0, false},
    {"rope, one of q and k", run_rope, 0, 0, 0, false},
};

static double best_ms(struct operands *o, const struct row *row)
{
    double best = 1e30;
    for (int run = 0; run < RUNS; run++) {
        const double begin = now_ms();
        row->run(o);
        const double took = now_ms() - begin;
        best = took < best ? took : best;
    }
    return best;
}

static void prepare(struct operands *o, uint32_t thread_count)
{
    check(eo_team_create(&o->team, thread_count));
    for (uint32_t i = 0; i < 4; i++)
        o->wide[i] = floats((uint64_t)ROWS * MLP, i);
    for (uint32_t i = 0; i < 6; i++) {
        o->narrow[i] = floats((uint64_t)ROWS * WIDTH, 10 + i);
        o->vector[i] = floats(MLP, 20 + i);
    }
    o->weights = floats((uint64_t)MLP * WIDTH, 30);
    o->table = floats((uint64_t)VOCABULARY * WIDTH, 31);
    o->table_gradient = floats((uint64_t)VOCABULARY * WIDTH, 32);
    o->logits = floats((uint64_t)ROWS * VOCABULARY, 33);
    o->losses = floats(ROWS, 34);
    o->log_sum_exp = floats((uint64_t)ROWS * HEADS, 35);
    const uint64_t norm_bytes = ops->norm_scratch_bytes(ROWS, MLP);
    const uint64_t attention_bytes = ops->attention_scratch_bytes((struct eo_types)FP32, &shape, thread_count);
    o->scratch = floats((norm_bytes > attention_bytes ? norm_bytes : attention_bytes) / sizeof(float), 36);
    o->tokens = malloc(ROWS * sizeof(*o->tokens));
    for (int i = 0; i < ROWS; i++)
        o->tokens[i] = (int32_t)((uint32_t)i * 2654435761u % VOCABULARY);
}

int main(int argc, char **argv)
{
    const int thread_count = argc > 1 ? atoi(argv[1]) : 1;
    if (thread_count < 1 || (argc > 2 && eo_kernels_select(argv[2]) < 0)) {
        fprintf(stderr, "usage: bench_kernels [THREADS [avx512|avx2|plain]]\n");
        return 2;
    }
    static struct operands o;
    prepare(&o, (uint32_t)thread_count);
    const uint64_t saved = eo_flush_denormals_begin();
    printf("%s, %d thread(s), %d x %d tokens; best of %d\n\n", eo_kernels_name(), thread_count, BATCH, SEQ, RUNS);
    printf("%-32s %9s %9s %6s %9s\n", "kernel", "ms", "GFLOP/s", "a step", "ms a step");
    double products = 0;
    double others = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const double ms = best_ms(&o, &rows[i]);
        const int count = rows[i].per_block * BLOCKS + rows[i].per_step;
        *(rows[i].product ? &products : &others) += count * ms;
        char speed[32] = "";
        if (rows[i].flops > 0)
            snprintf(speed, sizeof(speed), "%.1f", rows[i].flops / ms * 1e-6);
        printf("%-32s %9.3f %9s %6d %9.2f\n", rows[i].name, ms, speed, count, count * ms);
        fflush(stdout);
    }
    printf("\nproducts %.1f ms, all else %.1f ms: %.1f %% of products, products are %.1f %% of the step\n", products,
           others, 100 * others / products, 100 * products / (products + others));
    eo_flush_denormals_end(saved);
    eo_team_destroy(&o.team);
    return 0;
}
