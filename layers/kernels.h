/* SPDX-License-Identifier: MIT
 *
 * The CPU kernels of the transformers: fp32, row-major, each split over a team (NULL: the calling thread alone).
 *
 * What holds for all of them:
 * - Nothing is allocated: what a kernel needs beside its operands is `scratch`, at least as large as the function
 *   beside it says, aligned to 64 bytes, with no content before or after. (eo_multiply: oneDNN takes its packing
 *   buffer from the heap, once a product.)
 * - Results do not depend on the number of threads: sums are taken in an order that the shape alone fixes. They
 *   differ in rounding between the levels (avx512, avx2, plain). Only eo_multiply may differ in rounding with the
 *   number of threads, for oneDNN chooses its blocks by the shape of a part; it is repeatable for the same team size.
 * - No alignment is asked of operands (64 bytes is fastest), none is read or written beyond its end, and operands
 *   must not overlap unless the comment says "may be".
 * - A bias, or anything else marked "or NULL", may be missing.
 * - Gradients of weights: `accumulate` false overwrites (old content may be anything), true adds.
 * - `rows` is the number of tokens (batch x seq); a row's elements are contiguous.
 * - Sizes are trusted: the model has checked them.
 *
 * Every kernel has a plain reference in layers/reference.h.
 */
#ifndef EO_LAYERS_KERNELS_H
#define EO_LAYERS_KERNELS_H

#include "layers/team.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- denormals ---- */

/*
 * A badly scaled model is full of denormals, and those cost a hundred cycles each. Between begin and end the calling
 * thread, and the team in its runs, treat them as zero. Call it around the compute of a pass; restore what begin
 * returned.
 */
static inline uint32_t eo_flush_denormals_begin(void)
{
#if defined(__x86_64__)
    const uint32_t saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040); /* flush to zero, denormals are zero */
    return saved;
#else
    return 0;
#endif
}

static inline void eo_flush_denormals_end(uint32_t saved)
{
#if defined(__x86_64__)
    _mm_setcsr(saved);
#else
    (void)saved;
#endif
}

/* ---- products ---- */

/* An operand of a product. `stride`: floats from stored row to stored row; transposed: the stored rows are columns.
 */
struct eo_matrix {
    const float *values;
    uint64_t stride;
    bool transposed;
};

static inline struct eo_matrix eo_plain(const float *values, uint64_t stride)
{
    return (struct eo_matrix){values, stride, false};
}

static inline struct eo_matrix eo_transposed(const float *values, uint64_t stride)
{
    return (struct eo_matrix){values, stride, true};
}

/*
 * C[m][n] (+)= A[m][k] B[k][n]. c_stride: floats from row to row of C. accumulate false: C's old content is not read.
 * A linear layer with weights W[out][in] (stored as such), x[rows][in], y[rows][out]:
 *
 *     forward    y  = x W^T    eo_multiply(team, y, out, eo_plain(x, in), eo_transposed(w, in), rows, out, in, false)
 *     backward   dx = dy W     eo_multiply(team, dx, in, eo_plain(dy, out), eo_plain(w, in), rows, in, out, false)
 *                dW = dy^T x   eo_multiply(team, dw, in, eo_transposed(dy, out), eo_plain(x, in), out, in, rows, add)
 *
 * EO_OK, or EO_ERR_NO_MEMORY (oneDNN's packing buffer; C is then undefined).
 */
EO_NODISCARD eo_status eo_multiply(eo_team *team, float *c, uint64_t c_stride, struct eo_matrix a, struct eo_matrix b,
                                   uint64_t m, uint64_t n, uint64_t k, bool accumulate);

/* eo_product_measure of a team of the CPU. */
EO_NODISCARD eo_status eo_product_measure_cpu(eo_team *team, const eo_product *product, double *flops_per_s);

/* ---- element-wise ---- */

/* out[i] = a[i] + b[i]; out may be a or b. */
void eo_add(eo_team *team, float *out, const float *a, const float *b, uint64_t count);
void eo_zero(eo_team *team, float *out, uint64_t count);

/* values[row][column] += bias[column]; rows begin `stride` floats apart. */
void eo_bias_add(eo_team *team, float *values, uint64_t stride, const float *bias, uint64_t rows, uint64_t width);

/* bias_gradient[column] (+)= sum over rows of gradient[row][column]; rows begin `stride` floats apart. */
void eo_bias_gradient(eo_team *team, float *bias_gradient, const float *gradient, uint64_t stride, uint64_t rows,
                      uint64_t width, bool accumulate);

/*
 * out = gelu(in + bias), the tanh form; bias[width] or NULL. `in` is the product as it is: it is not changed, and
 * backward (or a recompute) takes the same `in` and bias again. out may be in.
 */
void eo_gelu_forward(eo_team *team, float *out, const float *in, const float *bias, uint64_t rows, uint64_t width);

/*
 * in_gradient = out_gradient * gelu'(in + bias), and bias_gradient[width] (or NULL) (+)= its column sums, in one
 * pass. in_gradient may be out_gradient or in.
 */
void eo_gelu_backward(eo_team *team, float *in_gradient, const float *out_gradient, const float *in,
                      const float *bias, float *bias_gradient, uint64_t rows, uint64_t width, bool accumulate);

/*
 * SwiGLU: out[row][i] = silu(gate[row][i]) * up[row][i]. gate and up have rows of `width` floats that begin `stride`
 * floats apart (stride = width: arrays of their own; 2 x width: one product's halves); out is contiguous; it may be
 * gate or up where stride = width.
 */
void eo_swiglu_forward(eo_team *team, float *out, const float *gate, const float *up, uint64_t stride, uint64_t rows,
                       uint64_t width);

/* The gradients have the layout of gate and up, and may be gate and up (both at once). */
void eo_swiglu_backward(eo_team *team, float *gate_gradient, float *up_gradient, const float *out_gradient,
                        const float *gate, const float *up, uint64_t stride, uint64_t rows, uint64_t width);

/* ---- norms ---- */

/*
 * The forward norms add first: sum = residual + branch + branch_bias, out = norm(sum). branch (or NULL) is the
 * product that ends a half block, branch_bias[width] (or NULL) its bias; without a branch, `sum` may be NULL (nothing
 * is written) and the residual itself is normed. With one, sum is required; it may be residual or branch. All
 * [rows][width]; mean and rstd [rows] are for backward (NULL: not wanted). out may be branch, or residual where there
 * is no sum; never sum.
 */
struct eo_norm_input {
    const float *residual;
    const float *branch;
    const float *branch_bias;
};

void eo_layernorm_forward(eo_team *team, float *sum, float *out, float *mean, float *rstd, struct eo_norm_input input,
                          const float *weight, const float *bias, float eps, uint64_t rows, uint64_t width);
void eo_rmsnorm_forward(eo_team *team, float *sum, float *out, float *rstd, struct eo_norm_input input,
                        const float *weight, float eps, uint64_t rows, uint64_t width);

/* out = norm(in) again from the saved mean and rstd: bit-equal to the forward's out. For recompute. */
void eo_layernorm_again(eo_team *team, float *out, const float *in, const float *mean, const float *rstd,
                        const float *weight, const float *bias, uint64_t rows, uint64_t width);
void eo_rmsnorm_again(eo_team *team, float *out, const float *in, const float *rstd, const float *weight,
                      uint64_t rows, uint64_t width);

/*
 * `in` is what was normed (sum, or the residual). in_gradient = skip_gradient (or NULL: zero) + the gradient through
 * the norm; it may be skip_gradient (the gradient that flows past the norm) or out_gradient. weight_gradient and
 * bias_gradient [width] are overwritten or added to. scratch: eo_norm_scratch_bytes(width).
 */
void eo_layernorm_backward(eo_team *team, float *in_gradient, const float *skip_gradient, const float *out_gradient,
                           const float *in, const float *mean, const float *rstd, const float *weight,
                           float *weight_gradient, float *bias_gradient, uint64_t rows, uint64_t width,
                           bool accumulate, void *scratch);
void eo_rmsnorm_backward(eo_team *team, float *in_gradient, const float *skip_gradient, const float *out_gradient,
                         const float *in, const float *rstd, const float *weight, float *weight_gradient,
                         uint64_t rows, uint64_t width, bool accumulate, void *scratch);
uint64_t eo_norm_scratch_bytes(uint64_t width);

/*
 * RMSNorm of each head, see eo_head_norm in kernel_ops.h, for one weight: in and out are rows of head_count heads of
 * head_size floats. Backward: `gradient` goes from that of out to that of in; sums[parts][head_size] of the weight's
 * gradient, parts of part_rows rows.
 */
struct eo_head_rows {
    const float *in, *weight;
    float *out; /* backward: the gradient */
    float *sums;
    uint64_t in_stride, out_stride, rows, part_rows;
    uint32_t head_count, head_size;
    float eps;
};
void eo_head_norm_forward(eo_team *team, const struct eo_head_rows *heads);
void eo_head_norm_backward(eo_team *team, const struct eo_head_rows *heads);

/* ---- rotary positions ---- */

/* table: eo_rope_table_floats(seq, head_size) floats of the caller, [seq][head_size] (cosines, then sines); the angle
 * of pair i at position t is t * theta^(-2i / head_size), scaled. head_size is even. Computed in double, once: the kernels
 * of all devices read the table, and know of no scaling. `scaling` NULL: plain. */
uint64_t eo_rope_table_floats(uint32_t seq, uint32_t head_size);
void eo_rope_table(float *table, uint32_t seq, uint32_t head_size, float theta, const eo_rope_scaling *scaling);

/*
 * Rotates in place: element i of a head with element i + head_size / 2 (halves, as Llama's published weights in the
 * transformers layout). values: rows of head_count x head_size floats that begin `stride` floats apart; row r is
 * position r % seq. backward true turns the other way: that is its gradient.
 */
void eo_rope(eo_team *team, float *values, uint64_t stride, const float *table, uint64_t rows, uint32_t seq,
             uint32_t head_count, uint32_t head_size, bool backward);

/* ---- attention ---- */

/*
 * Causal, within each sequence, scale 1 / sqrt(head_size). Head h of a token's row begins at h x head_size; query
 * head h uses key/value head h / (head_count / kv_head_count). Strides are floats from token to token: with GPT-2's
 * qkv[token][3 x width], q = qkv, k = qkv + width, v = qkv + 2 x width, and q_stride = kv_stride = 3 x width.
 */
struct eo_attention_shape {
    uint32_t batch, seq;
    uint32_t head_count, kv_head_count, head_size;
    uint64_t q_stride, kv_stride; /* q; k and v. Their gradients have the same */
    uint64_t out_stride;          /* out and out_gradient */
};

/* A block of queries against all keys before them for each thread: O(seq), not seq x seq. For both directions. */
uint64_t eo_attention_scratch_bytes(const struct eo_attention_shape *shape, uint32_t thread_count);

/* log_sum_exp: [batch][head_count][seq], kept for backward (NULL: not wanted). */
void eo_attention_forward(eo_team *team, float *out, float *log_sum_exp, const float *q, const float *k,
                          const float *v, const struct eo_attention_shape *shape, void *scratch);

/*
 * Overwrites the three gradients (all heads; what lies between rows is left alone). They may be q, k and v themselves
 * (all three at once).
 */
void eo_attention_backward(eo_team *team, float *q_gradient, float *k_gradient, float *v_gradient,
                           const float *out_gradient, const float *out, const float *log_sum_exp, const float *q,
                           const float *k, const float *v, const struct eo_attention_shape *shape, void *scratch);

/* ---- embedding ---- */

/* out[row] = token_table[tokens[row]] + position_table[row % seq] (or NULL). rows = batch x seq. */
void eo_embedding_forward(eo_team *team, float *out, const int32_t *tokens, const float *token_table,
                          const float *position_table, uint64_t rows, uint32_t seq, uint64_t width);

/*
 * token_gradient[vocabulary][width] and position_gradient[positions][width] (or NULL): accumulate false writes all of
 * both (zeros where no token is), true adds. Tokens are added in their order. positions >= seq.
 */
void eo_embedding_backward(eo_team *team, float *token_gradient, float *position_gradient, const float *out_gradient,
                           const int32_t *tokens, uint64_t rows, uint32_t seq, uint64_t width, uint64_t vocabulary,
                           uint64_t positions, bool accumulate);

/* ---- loss ---- */

/*
 * Softmax cross-entropy. logits: rows of `vocabulary` floats that begin `stride` floats apart (what lies between is
 * left alone). losses[row] = log(sum exp(logits[row])) - logits[row][targets[row]]; the return value is their sum in
 * double, in row order. A row with a NaN or an infinite maximum has a loss that is not finite. With `backward`,
 * logits become (softmax - one-hot) x scale; scale = loss scale / tokens gives the mean's gradient.
 */
double eo_cross_entropy(eo_team *team, float *losses, const float *logits, uint64_t stride, const int32_t *targets,
                        uint64_t rows, uint64_t vocabulary);
double eo_cross_entropy_backward(eo_team *team, float *losses, float *logits, uint64_t stride, const int32_t *targets,
                                 uint64_t rows, uint64_t vocabulary, float scale);

#endif
