/* SPDX-License-Identifier: MIT
 *
 * The time of every kernel at gpt2's shapes (4 sequences of 256 tokens, width 768), beside that of the products it
 * stands between: bench_kernels [THREADS [LEVEL]]. The last lines say what share of a step is not products.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "layers/kernels.h"

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

/* y = x W^T and its two gradients */
static void product_three(struct operands *o, uint64_t in, uint64_t out)
{
    check(eo_multiply(o->team, o->wide[0], out, eo_plain(o->wide[1], in), eo_transposed(o->weights, in), ROWS, out,
                      in, false));
    check(eo_multiply(o->team, o->wide[1], in, eo_plain(o->wide[0], out), eo_plain(o->weights, in), ROWS, in, out,
                      false));
    check(eo_multiply(o->team, o->table_gradient, in, eo_transposed(o->wide[0], out), eo_plain(o->wide[1], in), out,
                      in, ROWS, false));
}

static void run_qkv(struct operands *o)
{
    product_three(o, WIDTH, 3 * WIDTH);
}

static void run_attention_out(struct operands *o)
{
    product_three(o, WIDTH, WIDTH);
}

static void run_mlp_in(struct operands *o)
{
    product_three(o, WIDTH, MLP);
}

static void run_mlp_out(struct operands *o)
{
    product_three(o, MLP, WIDTH);
}

static void run_head(struct operands *o)
{
    check(eo_multiply(o->team, o->logits, VOCABULARY, eo_plain(o->narrow[0], WIDTH), eo_transposed(o->table, WIDTH),
                      ROWS, VOCABULARY, WIDTH, false));
    check(eo_multiply(o->team, o->narrow[1], WIDTH, eo_plain(o->logits, VOCABULARY), eo_plain(o->table, WIDTH), ROWS,
                      WIDTH, VOCABULARY, false));
    check(eo_multiply(o->team, o->table_gradient, WIDTH, eo_transposed(o->logits, VOCABULARY),
                      eo_plain(o->narrow[0], WIDTH), VOCABULARY, WIDTH, ROWS, false));
}

static void run_norm_forward(struct operands *o)
{
    const struct eo_norm_input input = {o->narrow[0], o->narrow[1], o->vector[0]};
    eo_layernorm_forward(o->team, o->narrow[2], o->narrow[3], o->vector[3], o->vector[4], input, o->vector[1],
                         o->vector[2], 1e-5f, ROWS, WIDTH);
}

static void run_norm_again(struct operands *o)
{
    eo_layernorm_again(o->team, o->narrow[3], o->narrow[2], o->vector[3], o->vector[4], o->vector[1], o->vector[2],
                       ROWS, WIDTH);
}

static void run_norm_backward(struct operands *o)
{
    eo_layernorm_backward(o->team, o->narrow[4], o->narrow[4], o->narrow[3], o->narrow[2], o->vector[3], o->vector[4],
                          o->vector[1], o->vector[2], o->vector[5], ROWS, WIDTH, false, o->scratch);
}

static void run_rmsnorm_forward(struct operands *o)
{
    const struct eo_norm_input input = {o->narrow[0], o->narrow[1], NULL};
    eo_rmsnorm_forward(o->team, o->narrow[2], o->narrow[3], o->vector[4], input, o->vector[1], 1e-5f, ROWS, WIDTH);
}

static void run_rmsnorm_backward(struct operands *o)
{
    eo_rmsnorm_backward(o->team, o->narrow[4], o->narrow[4], o->narrow[3], o->narrow[2], o->vector[4], o->vector[1],
                        o->vector[2], ROWS, WIDTH, false, o->scratch);
}

static void run_bias_qkv(struct operands *o)
{
    eo_bias_add(o->team, o->wide[0], 3 * WIDTH, o->vector[0], ROWS, 3 * WIDTH);
}

static void run_bias_gradient_qkv(struct operands *o)
{
    eo_bias_gradient(o->team, o->vector[5], o->wide[0], 3 * WIDTH, ROWS, 3 * WIDTH, false);
}

static void run_bias_gradient(struct operands *o)
{
    eo_bias_gradient(o->team, o->vector[5], o->narrow[0], WIDTH, ROWS, WIDTH, false);
}

static void run_gelu_forward(struct operands *o)
{
    eo_gelu_forward(o->team, o->wide[1], o->wide[0], o->vector[0], ROWS, MLP);
}

static void run_gelu_backward(struct operands *o)
{
    eo_gelu_backward(o->team, o->wide[1], o->wide[1], o->wide[0], o->vector[0], o->vector[5], ROWS, MLP, false);
}

static void run_swiglu_forward(struct operands *o)
{
    eo_swiglu_forward(o->team, o->wide[2], o->wide[0], o->wide[1], MLP, ROWS, MLP);
}

static void run_swiglu_backward(struct operands *o)
{
    eo_swiglu_backward(o->team, o->wide[2], o->wide[3], o->wide[1], o->wide[0], o->wide[1], MLP, ROWS, MLP);
}

static void run_rope(struct operands *o)
{
    eo_rope(o->team, o->wide[0], 3 * WIDTH, o->table, ROWS, SEQ, HEADS, WIDTH / HEADS, false);
}

static void run_attention_forward(struct operands *o)
{
    const float *qkv = o->wide[0];
    eo_attention_forward(o->team, o->narrow[0], o->log_sum_exp, qkv, qkv + WIDTH, qkv + 2 * WIDTH, &shape,
                         o->scratch);
}

static void run_attention_backward(struct operands *o)
{
    const float *qkv = o->wide[0];
    float *gradient = o->wide[1];
    eo_attention_backward(o->team, gradient, gradient + WIDTH, gradient + 2 * WIDTH, o->narrow[1], o->narrow[0],
                          o->log_sum_exp, qkv, qkv + WIDTH, qkv + 2 * WIDTH, &shape, o->scratch);
}

static void run_embedding_forward(struct operands *o)
{
    eo_embedding_forward(o->team, o->narrow[0], o->tokens, o->table, o->weights, ROWS, SEQ, WIDTH);
}

static void run_embedding_backward(struct operands *o)
{
    eo_embedding_backward(o->team, o->table_gradient, o->wide[0], o->narrow[0], o->tokens, ROWS, SEQ, WIDTH,
                          VOCABULARY, 1024, false);
}

static void run_loss(struct operands *o)
{
    (void)eo_cross_entropy(o->team, o->losses, o->logits, VOCABULARY, o->tokens, ROWS, VOCABULARY);
}

static void run_loss_backward(struct operands *o)
{
    (void)eo_cross_entropy_backward(o->team, o->losses, o->logits, VOCABULARY, o->tokens, ROWS, VOCABULARY,
                                    1.0f / ROWS);
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
    {"layernorm again", run_norm_again, 0, 0, 0, false},
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
    const uint64_t norm_bytes = eo_norm_scratch_bytes(MLP);
    const uint64_t attention_bytes = eo_attention_scratch_bytes(&shape, thread_count);
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
    const uint32_t saved = eo_flush_denormals_begin();
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
