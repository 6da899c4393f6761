/* SPDX-License-Identifier: MIT
 *
 * The kernels of a backend: one table of functions, called by the passes (layers/transformer/) and by nothing else.
 *
 *     "cpu"        fp32 on the CPU (layers/cpu/), and a second table of that name: bf16
 *     "reference"  fp32 and bf16 in plain C (layers/reference/): the standard for the others
 *     "cuda"       fp32 and bf16 on a GPU (layers/cuda/)
 *
 * Common to all of them:
 * - Every pointer is memory of the team's device; on a GPU the host cannot read it. The argument structures themselves
 *   are host memory, read during the call only.
 * - A call enqueues on the team's stream and returns; it waits for nothing, but for all_finite, and allocates nothing, but
 *   for products of "cpu" in fp32: oneDNN takes its buffer from the heap. On the CPU the work is done on return.
 * - `void *` tensors are in types.compute, but for gradients of weights: types.gradient. `float *` and `double *` mean
 *   fp32 and double, whatever the types.
 * - bf16: a load is converted to fp32, all arithmetic and every sum is in fp32, a store rounds once, to the nearest,
 *   ties to even: (bits + 0x7fff + (bits >> 16 & 1)) >> 16, a NaN stays one.
 * - Tensors are row-major; `rows` is the number of tokens (batch x seq). Strides and widths are in elements.
 * - Pointers are aligned to 16 bytes at least (losses to 64, scratch to scratch_alignment). Row strides follow from the
 *   model: with an odd width only the first row is aligned. Logits' stride is a multiple of 16 elements.
 * - Operands do not overlap unless the comment says "may be".
 * - Gradients of weights: `accumulate` false overwrites (old content may be anything), true adds: the sum is taken
 *   from zero, and the old value is added to it last, but for fp32 of "cpu".
 * - Results are repeatable: no sum is taken in an order that depends on time ("cuda": but for attention_backward by
 *   cuDNN, unless its team is repeatable). On the CPU they do not depend on the number of threads either ("cpu": but for
 *   multiply, see layers/cpu/kernels.h).
 * - `scratch`: at least as large as the function beside it says, no content before or after.
 * - Sizes are trusted: the model has checked them.
 *
 * A function returns EO_OK, EO_ERR_NO_MEMORY, EO_ERR_DEVICE (the team logs the failed call), and the pass stops there.
 */
#ifndef EO_LAYERS_KERNEL_OPS_H
#define EO_LAYERS_KERNEL_OPS_H

#include "layers/element.h"
#include "layers/team.h"

struct eo_types {
    eo_dtype compute;  /* activations, their gradients, weights */
    eo_dtype gradient; /* gradients of weights, as the ranks reduce them */
};

/* ---- products ---- */

/* An operand, in types.compute. `stride`: elements from stored row to stored row; transposed: stored rows are columns. */
struct eo_operand {
    const void *values;
    uint64_t stride;
    bool transposed;
};

/*
 * The last step of a product, before its sums are stored. x is the sum in fp32, aux [m][n] in types.compute.
 *
 *     BIAS           C = x + bias
 *     BIAS_GELU      aux = x + bias, C = gelu(aux), of aux as stored: a recompute of GELU alone gives the same bits
 *     GELU_GRADIENT  C = x * gelu'(aux); with `remakes` then aux = gelu(aux), the C of BIAS_GELU to the bit
 *     BIAS_GRADIENT  C = x, a gradient of weights; bias_gradient[m] = the sums of A's rows, as column_sums gives them
 *
 * gelu is the tanh form. Never together with accumulate. Only where the table has fused_epilogues; BIAS_GELU not where it
 * has gelu_apart; BIAS_GRADIENT where it has fused_bias_gradients.
 */
enum eo_epilogue {
    EO_EPILOGUE_NONE,
    EO_EPILOGUE_BIAS,
    EO_EPILOGUE_BIAS_GELU,
    EO_EPILOGUE_GELU_GRADIENT,
    EO_EPILOGUE_BIAS_GRADIENT,
};

/* C[m][n] (+)= A[m][k] B[k][n]. C is in types.compute, or, a gradient of weights, in types.gradient. */
struct eo_multiply {
    struct eo_types types;
    bool weight_gradient; /* C is in types.gradient */
    void *c;
    uint64_t c_stride;
    struct eo_operand a, b;
    uint64_t m, n, k;
    bool accumulate;
    enum eo_epilogue epilogue;
    const void *bias; /* [n] */
    const void *residual; /* [m][n] in types.compute, rows c_stride apart, or NULL: x is the sum plus this. With no epilogue
                             or BIAS, never with accumulate; only where the table has fused_residuals */
    void *aux;
    uint64_t aux_stride;
    bool remakes;        /* only where the table has remakes_gelu */
    void *bias_gradient; /* [m], types.gradient */
    void *scratch; /* multiply_scratch_bytes; of BIAS_GRADIENT: column_scratch_bytes(k, m); float8: float8_scratch_bytes */
    bool float8; /* A's rows and B's columns are rounded to float8 first, with a scale each (base/float8.h); see below. Only
                    where the table has float8_scratch_bytes */
};

/* The product is one in float8: bf16 operands that lie as rows of k, and sizes that tensor cores take. Others are as ever. */
static inline bool eo_is_float8_product(const struct eo_multiply *p)
{
    return p->float8 && p->types.compute == EO_DTYPE_BF16 && !p->weight_gradient && !p->a.transposed && p->b.transposed &&
           p->m % 16 == 0 && p->n % 16 == 0 && p->k % 16 == 0 && p->a.stride % 8 == 0 && p->b.stride % 8 == 0;
}

/* A's rows and B's columns in float8, k elements each, and their scales: where they begin in scratch. */
struct eo_float8_scratch {
    uint64_t a, b, a_scales, b_scales, total;
};

static inline struct eo_float8_scratch eo_float8_scratch_of(uint64_t m, uint64_t n, uint64_t k)
{
    const uint64_t b = (m * k + 255) / 256 * 256, a_scales = b + (n * k + 255) / 256 * 256;
    const uint64_t b_scales = a_scales + (m * sizeof(float) + 255) / 256 * 256;
    const struct eo_float8_scratch at = {0, b, a_scales, b_scales, b_scales + n * sizeof(float)};
    return at;
}

/* ---- element-wise ---- */

/* output = residual + (output + bias); bias[width] or NULL. */
struct eo_residual {
    struct eo_types types;
    void *output;
    const void *residual, *bias;
    uint64_t rows, width;
};

/*
 * out = residual + dropped(in + bias), where an element is dropped, becomes 0, or is scaled by 1 / (1 - probability); residual
 * and bias may be NULL: zeros; out may be in. Row r is of sequence place->sample + r / seq, and element i of it the
 * (r % seq x width + i)th of its place (evenodd/random.h), whose position is `position`.
 */
struct eo_dropout {
    struct eo_types types;
    void *out;
    const void *in, *residual, *bias;
    const eo_random_place *place; /* the device's */
    uint64_t rows, width;
    uint32_t seq, position;
    float probability;
};

/* output[row][i] += bias[i]; rows of output begin `stride` apart. */
struct eo_bias {
    struct eo_types types;
    void *output;
    const void *bias;
    uint64_t stride, rows, width;
};

/* bias_gradient[width] = column sums of gradient, overwritten. Rows of gradient begin `stride` [width] apart. */
struct eo_column_sums {
    struct eo_types types;
    void *bias_gradient; /* types.gradient */
    const void *gradient;
    uint64_t stride, rows, width;
    void *scratch; /* column_scratch_bytes */
};

/* out = gelu(in + bias); bias[width] or NULL (always, with fused_epilogues: `in` has it). */
struct eo_gelu {
    struct eo_types types;
    void *out;
    const void *in, *bias;
    uint64_t rows, width;
};

/* in_gradient = out_gradient * gelu'(in + bias), bias_gradient[width] = its column sums. in_gradient may be in. With
 * fused_epilogues it is out_gradient, and neither bias nor bias_gradient is given. With remakes_gelu `again`, if not NULL,
 * becomes gelu(in + bias), to the bits of gelu_forward; it may be in or out_gradient, whichever in_gradient is not. */
struct eo_gelu_gradient {
    struct eo_types types;
    void *in_gradient, *again;
    const void *out_gradient, *in, *bias;
    void *bias_gradient; /* types.gradient, or NULL */
    uint64_t rows, width;
};

/* out[row][i] = silu(gate[row][i]) * up[row][i]; rows of gate and up begin `stride` apart, out is contiguous.
 * Backward: the gradients have the layout of gate and up, and are gate and up themselves. With remakes_swiglu `out`, if it
 * is not NULL, becomes what it was in the forward pass, to the bit; it may be out_gradient. */
struct eo_swiglu {
    struct eo_types types;
    void *out;
    const void *gate, *up;
    const void *out_gradient;              /* backward */
    void *gate_gradient, *up_gradient;     /* backward */
    uint64_t stride, rows, width;
};

/* ---- norms ---- */

static inline eo_dtype eo_norm_weight_dtype(struct eo_types types, bool fp32_weights)
{
    return fp32_weights ? EO_DTYPE_FP32 : types.compute;
}

/*
 * LayerNorm (centered), or RMSNorm (no mean, no bias). sum = residual + (branch + branch_bias), stored first; the norm
 * is taken of the stored sum. Without a branch nothing is summed, `sum` is NULL and the residual is normed. sum may be
 * residual or branch. mean and rstd: [rows]. branch_bias may be NULL.
 */
struct eo_norm {
    struct eo_types types;
    bool centered;
    void *sum, *out;
    float *mean, *rstd;
    const void *residual, *branch, *branch_bias, *weight, *bias;
    float eps;
    uint64_t rows, width;
    bool fp32_weights; /* weight and bias are fp32, whatever the other elements are */
};

/*
 * `in` is the norm's input. in_gradient = skip_gradient (or NULL: zero) + the gradient through the norm; it may be
 * skip_gradient or out_gradient. weight_gradient and bias_gradient (centered) [width]; NULL, both: not wanted.
 * `again`, if not NULL, becomes the forward pass's out, to the bit, so that nobody need keep it; it may be out_gradient,
 * if in_gradient is not. The bias is read for it alone.
 */
struct eo_norm_gradient {
    struct eo_types types;
    bool centered;
    void *in_gradient, *again;
    const void *skip_gradient, *out_gradient, *in, *weight, *bias;
    const float *mean, *rstd;
    void *weight_gradient, *bias_gradient; /* types.gradient */
    uint64_t rows, width;
    bool accumulate; /* the gradients of weights */
    void *scratch;   /* norm_scratch_bytes */
    bool fp32_weights;
};

/*
 * RMSNorm over every head of q and k. A row holds head_count[0] heads that take weight[0], then head_count[1] that take
 * weight[1], all of head_size, then `copied` elements, copied unchanged. out is not in.
 */
struct eo_head_norm {
    struct eo_types types;
    void *out;
    const void *in, *weight[2];
    uint64_t in_stride, out_stride, rows, copied;
    uint32_t head_count[2], head_size;
    float eps;
    bool fp32_weights;
};

/*
 * Turns `gradient` from that of out into that of `in`; elements behind the heads keep their content. The weights'
 * gradients may not be written yet: head_norm_weights makes them of sums[2][eo_head_norm_parts(rows)][head_size], a part
 * for every few rows, in their order.
 */
struct eo_head_norm_gradient {
    struct eo_types types;
    void *gradient;
    const void *in, *weight[2];
    uint64_t stride, in_stride, rows; /* of gradient, of in */
    uint32_t head_count[2], head_size;
    float eps;
    float *sums;
    bool fp32_weights;
};

struct eo_head_norm_weights {
    struct eo_types types;
    void *weight_gradient[2]; /* types.gradient, [head_size] each, overwritten */
    const float *sums;
    uint64_t rows;
    uint32_t head_size;
};

enum { EO_HEAD_NORM_PARTS = 256 };

static inline uint64_t eo_head_norm_part_rows(uint64_t rows)
{
    return (rows + EO_HEAD_NORM_PARTS - 1) / EO_HEAD_NORM_PARTS;
}

static inline uint64_t eo_head_norm_parts(uint64_t rows)
{
    const uint64_t part = eo_head_norm_part_rows(rows);
    return (rows + part - 1) / part;
}

/* ---- attention ---- */

/* eo_rope_table_floats(seq, head_size) floats of the caller, [seq][head_size] (cosines, then sines): the angle of pair i
 * at position t is t * theta^(-2i / head_size), scaled. head_size is even. Computed in double, once: the kernels of all
 * devices read the table, and know of no scaling. `scaling` NULL: plain. */
uint64_t eo_rope_table_floats(uint32_t seq, uint32_t head_size);
void eo_rope_table(float *table, uint32_t seq, uint32_t head_size, float theta, const eo_rope_scaling *scaling);

/*
 * Rotates q or k in place: element i of a head with element i + head_size / 2 (halves, as in Llama's published weights in
 * the transformers layout). values: rows of head_count x head_size elements, `stride` apart; row r is at positions[r], or
 * without positions at r % seq.
 * backward turns the other way: the gradient. table: eo_rope_table's.
 */
struct eo_rotation {
    struct eo_types types;
    void *values;
    uint64_t stride;
    const float *table;
    uint64_t rows;
    uint32_t seq, head_count, head_size;
    bool backward;
    const int32_t *positions; /* [rows], below seq, or NULL */
};

/*
 * Causal, within each sequence, scale 1 / sqrt(head_size). Head h of a token's row begins at h x head_size; query head h
 * uses key/value head h / (head_count / kv_head_count). Strides go from token to token: with GPT-2's
 * qkv[token][3 x width], q = qkv, k = qkv + width, v = qkv + 2 x width, and q_stride = kv_stride = 3 x width.
 */
struct eo_attention_shape {
    uint32_t batch, seq;
    uint32_t head_count, kv_head_count, head_size;
    uint64_t q_stride, kv_stride; /* q; k and v. Their gradients have the same */
    uint64_t out_stride;          /* out and out_gradient */
    bool packed;                  /* eo_attention has positions */
};

/* A sequence's documents: each begins where positions are 0, and counts on. Where that of token `first` ends. */
static inline uint32_t eo_document_end(const int32_t *positions, uint32_t first, uint32_t seq)
{
    uint32_t end = first + 1;
    if (!positions)
        return seq;
    while (end < seq && positions[end] != 0)
        end++;
    return end;
}

/*
 * log_sum_exp: [batch][head_count][seq]. The gradients have the strides of q, k and v, and are q, k and v themselves where
 * the table says gradients_in_place, else memory of their own; the gaps between rows keep their content.
 * bf16: where products take pairs of bf16, the softmax's weights and the scores' gradients are rounded before them.
 * With positions a query sees the keys of its own document alone: what other documents hold, as long as it is finite, changes
 * no bit of its results and gradients.
 */
struct eo_attention {
    struct eo_types types;
    struct eo_attention_shape shape;
    const void *q, *k, *v;
    void *out;          /* backward: read */
    float *log_sum_exp; /* backward: read */
    const void *out_gradient;
    void *q_gradient, *k_gradient, *v_gradient;
    void *scratch; /* attention_scratch_bytes */
    const int32_t *positions; /* [batch][seq] with shape.packed, else NULL: a sequence is one document */
};

/* ---- embedding and loss ---- */

/* out[row] = token_table[tokens[row]] + position_table[row % seq], or of positions[row] (NULL: none). */
struct eo_embedding {
    struct eo_types types;
    void *out;
    const int32_t *tokens;
    const void *token_table, *position_table;
    uint64_t rows, width;
    uint32_t seq;
    const int32_t *positions; /* [rows], or NULL */
};

/* All of token_gradient[vocabulary][width] and position_gradient[positions][width] (or NULL) is written, with zeros where
 * no token is; with `adds` the sums are added to token_gradient, where no token is it stays. A token's rows are added in their
 * order. positions >= seq. */
struct eo_embedding_gradient {
    struct eo_types types;
    void *token_gradient, *position_gradient; /* types.gradient */
    const void *out_gradient;
    const int32_t *tokens;
    uint64_t rows, width, vocabulary, positions;
    uint32_t seq;
    bool adds;
    void *scratch; /* embedding_scratch_bytes */
};

/*
 * losses[row] = log(sum exp(logits[row])) - logits[row][targets[row]]; *loss_sum += their sum in double, taken from zero
 * in row order. Rows of logits begin `stride` apart. With `backward` logits become (softmax - one-hot) x scale. A target
 * below 0 is ignored: the row's loss and gradient are 0, whatever its logits are.
 */
struct eo_loss {
    struct eo_types types;
    void *logits;
    float *losses;
    double *loss_sum;
    const int32_t *targets;
    uint64_t stride, rows, vocabulary;
    float scale;
    bool backward;
    void *scratch; /* loss_scratch_bytes; read if `backward` */
};

/* ---- the table ---- */

struct eo_kernel_ops {
    const char *name;
    /*
     * Products take epilogues: the kept `inner` of a half then includes the in-product's bias, and GELU forward and
     * backward ride on products. Without, bias and GELU are the element-wise functions'.
     */
    bool fused_epilogues;
    bool gelu_apart; /* ... but no BIAS_GELU: a library takes GELU of the fp32 sum, a recompute of aux as stored */
    bool fused_bias_gradients; /* the gradient of a bias rides on that of its weight */
    bool fused_residuals; /* products take a residual: a half's out-product adds the stream and its bias, norms do not */
    bool joined_products; /* in-products whose weights lie side by side are one: fewer and larger launches */
    bool gradients_in_place; /* attention_backward may write over q, k and v */
    /* Backward passes of GELU, of SwiGLU, also give the forward's result again: it need not be kept. */
    bool remakes_gelu, remakes_swiglu;
    bool host_memory;        /* the kernels' memory is the host's too */
    uint32_t scratch_alignment; /* bytes */
    /* The rows of the head's products: words of the vocabulary (their weights are zeros behind its end), and tokens of a
     * chunk, where it has so many, are rounded up to these. */
    uint32_t word_multiple, chunk_multiple;
    bool (*supports)(struct eo_types types);

    /* For a model's description: pure functions of their arguments, equal on all ranks, and enough for every plan of
     * the backend. 0: none. */
    uint64_t (*norm_scratch_bytes)(uint64_t rows, uint64_t width);   /* norm_backward */
    uint64_t (*column_scratch_bytes)(uint64_t rows, uint64_t width); /* column_sums */
    uint64_t (*attention_scratch_bytes)(struct eo_types types, const struct eo_attention_shape *shape,
                                        uint32_t thread_count); /* both directions */
    uint64_t (*embedding_scratch_bytes)(uint64_t rows, uint64_t width, uint64_t vocabulary);
    uint64_t (*loss_scratch_bytes)(uint64_t vocabulary, uint32_t thread_count); /* cross_entropy; NULL: none */
    /* Of products with at most these sizes; NULL: none. */
    uint64_t (*multiply_scratch_bytes)(uint64_t m, uint64_t n, uint64_t k, uint32_t thread_count);
    uint64_t (*float8_scratch_bytes)(uint64_t m, uint64_t n, uint64_t k); /* NULL: no products in float8 */

    /*
     * Before the first step, once for every shape of the passes: a backend may choose and build its plans now, and take
     * memory and time for it. Pointers are NULL; those of the calls are aligned as said above. A table may have NULL here;
     * products and attention without preparation work as well.
     */
    eo_status (*prepare_multiply)(eo_team *team, const struct eo_multiply *product);
    eo_status (*prepare_attention)(eo_team *team, const struct eo_attention *attention);

    eo_status (*multiply)(eo_team *team, const struct eo_multiply *product);
    eo_status (*residual_add)(eo_team *team, const struct eo_residual *residual);
    eo_status (*scale)(eo_team *team, eo_dtype dtype, void *values, uint64_t count, float factor); /* values[i] *= factor */
    eo_status (*dropout)(eo_team *team, const struct eo_dropout *dropout);
    eo_status (*bias_add)(eo_team *team, const struct eo_bias *bias); /* not with fused_epilogues */
    eo_status (*column_sums)(eo_team *team, const struct eo_column_sums *sums);
    eo_status (*gelu_forward)(eo_team *team, const struct eo_gelu *gelu);
    eo_status (*gelu_backward)(eo_team *team, const struct eo_gelu_gradient *gelu);
    eo_status (*swiglu_forward)(eo_team *team, const struct eo_swiglu *swiglu);
    eo_status (*swiglu_backward)(eo_team *team, const struct eo_swiglu *swiglu);
    eo_status (*norm_forward)(eo_team *team, const struct eo_norm *norm);
    eo_status (*norm_backward)(eo_team *team, const struct eo_norm_gradient *norm);
    eo_status (*head_norm_forward)(eo_team *team, const struct eo_head_norm *norm);
    eo_status (*head_norm_backward)(eo_team *team, const struct eo_head_norm_gradient *norm);
    eo_status (*head_norm_weights)(eo_team *team, const struct eo_head_norm_weights *weights);
    eo_status (*rotate)(eo_team *team, const struct eo_rotation *rotation);
    eo_status (*attention_forward)(eo_team *team, const struct eo_attention *attention);
    eo_status (*attention_backward)(eo_team *team, const struct eo_attention *attention);
    eo_status (*embedding_forward)(eo_team *team, const struct eo_embedding *embedding);
    eo_status (*embedding_backward)(eo_team *team, const struct eo_embedding_gradient *embedding);
    eo_status (*cross_entropy)(eo_team *team, const struct eo_loss *loss);
    eo_status (*loss_zero)(eo_team *team, double *loss);
    eo_status (*loss_add)(eo_team *team, double *to, const double *loss, double factor); /* *to += *loss * factor */
    /* Whether all of values[count] (compute) are finite. Waits for the stream; for the text of an error, not for steps. */
    eo_status (*all_finite)(eo_team *team, eo_dtype dtype, const void *values, uint64_t count, bool *out);
};

extern const struct eo_kernel_ops eo_kernels_cpu_ops, eo_kernels_cpu_bf16_ops;
extern const struct eo_kernel_ops eo_kernels_reference_ops;

#endif
