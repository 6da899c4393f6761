/* SPDX-License-Identifier: MIT
 *
 * The inside of a transformer: its description (layers, positions, buffers), the arguments of a pass, and the functions
 * that files of this room offer each other.
 *
 * A block is two halves of one shape, attention and MLP:
 *
 *     input --> norm --> inner = in(norm) --> mid = operation(inner) --> out(mid) --+--> next half's input
 *         \________________________________________________________________________/
 *
 *                    in                      operation                            inner           mid
 *     attention      q, k, v                 (norms, rotary positions,) attention q, k, v         heads' output
 *     MLP            fc, or gate and up      GELU, or silu(gate) x up             before it       after it
 *
 * Halves are numbered 0 ... 2 x layers - 1. A position holds the halves of params.unit_blocks blocks, or one half when
 * params.half_blocks is set. Their inputs are the residual stream: stream[h] is the input of half h, and the last one that of the head.
 *
 * An eo_transformer never changes after create: everything a pass writes lies in buffers of the plan.
 */
#ifndef EO_LAYERS_TRANSFORMER_INTERNAL_H
#define EO_LAYERS_TRANSFORMER_INTERNAL_H

#include "layers/checks.h"
#include "layers/kernel_ops.h"

#define HALF_INPUTS_MAX 3
#define HALF_HEAD_NORMS 2 /* q and k */
#define HALF_OUT HALF_INPUTS_MAX /* the out-product, where linear layers are counted: in-products come before it */
#define HALF_LINEARS (HALF_INPUTS_MAX + 1)
#define NO_BUFFER       UINT32_MAX

/* Results of a half, needed by its backward pass. */
enum half_tensor {
    HALF_NORM,
    HALF_STATS, /* mean (GPT-2) and rstd of the norm: [rows] each, one after the other */
    HALF_RAW,   /* with norms of heads: q and k before them (and v, where inner is computed again) */
    HALF_INNER, /* rows of the in-products' outputs side by side */
    HALF_MID,
    HALF_LOG_SUM_EXP, /* attention */
    HALF_LOW,         /* scale x A^T of the adapters, one after the other (adapters.c) */
    HALF_TENSOR_COUNT,
};

/* A tensor's buffers: where the forward pass writes it, and where recompute and backward find it; equal if it is kept. */
struct tensor_buffers {
    uint32_t forward, backward;
};

struct half {
    bool attention;
    bool recompute;           /* only the input is kept */
    uint32_t position;
    uint32_t first_parameter; /* of the half in its layer */
    struct tensor_buffers tensor[HALF_TENSOR_COUNT];
    struct tensor_buffers scratch; /* a position's halves share theirs */
};

/* The shape that all attention halves, or all MLP halves, have in common. */
struct half_shape {
    uint32_t in_count;
    uint32_t in_width[HALF_INPUTS_MAX];
    uint32_t in_joined[HALF_INPUTS_MAX]; /* in-products from this one on that are one product; 0: it is part of one before */
    uint32_t inner_width; /* their sum */
    uint32_t mid_width;
    uint32_t parameter_count;
    bool norm_bias, in_bias, out_bias;
    bool head_norms; /* of the first two in-products, each followed by the norm's weight: q and k */
    const char *const *parameter_names; /* format: %u is the block */
    const char *inner_name, *mid_name;
    bool adapted[HALF_LINEARS];
    uint32_t adapter_count;
};

struct head {
    uint32_t position;
    uint32_t weight, norm_weight, norm_bias; /* places in its layer; norm_bias: GPT-2 */
    uint64_t chunk_rows;
    uint64_t words; /* of the products: the vocabulary, and rows of zeros up to the kernels' multiple */
    uint64_t logit_stride; /* rows of logits begin on cache lines */
    uint32_t norm, stats, logits, losses, scratch; /* buffers of a chunk */
    uint32_t loss;         /* buffer: one double, the sum of the losses */
};

struct eo_transformer {
    eo_transformer_params params; /* filled in; log points to `log` */
    eo_log log;
    eo_model *model;
    const struct eo_kernel_ops *kernels;
    struct eo_types types;
    float *rope_table;            /* Llama; of the host */
    uint32_t rope_buffer;         /* the same on a device with memory of its own; NO_BUFFER: not needed */
    uint32_t tokens, targets;     /* buffers: params.token_slots x batch x seq, always live */
    uint32_t positions;           /* likewise; NO_BUFFER: not packed */
    uint32_t random;              /* likewise, an eo_random_place a slot; NO_BUFFER: no dropout */
    uint32_t embedding_scratch;   /* NO_BUFFER: none */
    uint32_t product_scratch;     /* always live, of any product and the loss; NO_BUFFER: none */
    uint32_t half_count;
    struct half_shape shape[2];   /* MLP, attention */
    char *adapter_targets;        /* of the adapters; NULL: none */
    uint32_t first_trained;       /* with adapters: the first half that has some; those before it get no gradient */
    struct half *halves;
    struct tensor_buffers *stream;/* half_count + 1 */
    uint32_t stream_gradient;     /* one buffer for all: a half's backward turns its output's gradient into its input's */
    struct head head;
};

/* One pass as the code of layers/ sees it. */
struct pass {
    const eo_transformer *transformer;
    eo_runtime *runtime;
    eo_team *team;
    const struct eo_kernel_ops *kernels;
    struct eo_types types;
    const eo_view *view;
    uint32_t batch, seq;
    uint64_t rows; /* batch x seq */
    bool backward; /* recompute and backward: take a tensor's second buffer */
    struct eo_decoder *decoder; /* NULL, or: the rows are new tokens behind those of its cache (cached_attention.h) */
    void *const *memory;        /* NULL, or: by buffer, in place of the runtime's */
    const eo_random_place *random; /* NULL: nothing is dropped */
    const int32_t *positions;      /* of the rows in their documents; NULL: a sequence is one */
};

static inline bool is_gpt2(const eo_transformer *t)
{
    return t->params.config.family == EO_FAMILY_GPT2;
}

/* Nothing but adapters is trained. */
static inline bool has_adapters(const eo_transformer *t)
{
    return t->params.lora.rank > 0;
}

/* Of a position; the last one may have fewer. */
static inline uint32_t position_half_count(const eo_transformer *t)
{
    return t->params.half_blocks ? 1 : 2 * t->params.unit_blocks;
}

static inline bool is_first_of_position(const eo_transformer *t, uint32_t h)
{
    return h % position_half_count(t) == 0;
}

static inline bool is_last_of_position(const eo_transformer *t, uint32_t h)
{
    return h + 1 == t->half_count || is_first_of_position(t, h + 1);
}

/* All heads side by side, and all key/value heads: GPT-2's are as wide as the model. */
static inline uint32_t heads_width(const eo_transformer *t)
{
    return t->params.config.head_count * t->params.config.head_size;
}

static inline uint32_t kv_heads_width(const eo_transformer *t)
{
    return t->params.config.kv_head_count * t->params.config.head_size;
}

static inline const struct half_shape *half_shape_of(const eo_transformer *t, const struct half *half)
{
    return &t->shape[half->attention];
}

/* Inputs and outputs of a linear layer. */
static inline uint32_t half_linear_in(const eo_transformer *t, const struct half_shape *shape, uint32_t linear)
{
    return linear == HALF_OUT ? shape->mid_width : t->params.config.width;
}

static inline uint32_t half_linear_out(const eo_transformer *t, const struct half_shape *shape, uint32_t linear)
{
    return linear == HALF_OUT ? t->params.config.width : shape->in_width[linear];
}

/* Outputs of the product that begins with in-product i. */
static inline uint32_t half_product_width(const struct half_shape *shape, uint32_t i)
{
    uint32_t width = 0;
    for (uint32_t k = i; k < i + shape->in_joined[i]; k++)
        width += shape->in_width[k];
    return width;
}

static inline void *pass_memory(const struct pass *pass, uint32_t buffer)
{
    return pass->memory ? pass->memory[buffer] : eo_buffer(pass->runtime, buffer);
}

static inline void *pass_buffer(const struct pass *pass, struct tensor_buffers buffers)
{
    const uint32_t buffer = pass->backward ? buffers.backward : buffers.forward;
    return buffer == NO_BUFFER ? NULL : pass_memory(pass, buffer);
}

static inline void *pass_weight(const struct pass *pass, uint32_t parameter)
{
    return pass->view->weights[parameter];
}

/* NULL: frozen. */
static inline void *pass_gradient(const struct pass *pass, uint32_t parameter)
{
    return pass->view->gradients ? pass->view->gradients[parameter] : NULL;
}

/* A loss is the mean over the rows, or their sum. */
static inline double pass_loss_divisor(const struct pass *pass)
{
    return pass->transformer->params.summed_loss ? 1 : (double)pass->rows;
}

/* Element `index` of a tensor in the compute type. */
static inline void *pass_at(const struct pass *pass, void *values, uint64_t index)
{
    return eo_element_at_mutable(pass->types.compute, values, index);
}

static inline void *pass_product_scratch(const struct pass *pass)
{
    const uint32_t scratch = pass->transformer->product_scratch;
    return scratch == NO_BUFFER ? NULL : pass_memory(pass, scratch);
}

static inline eo_status pass_multiply(const struct pass *pass, const struct eo_multiply *product)
{
    struct eo_multiply p = *product;
    if (p.epilogue != EO_EPILOGUE_BIAS_GRADIENT)
        p.scratch = pass_product_scratch(pass);
    return pass->kernels->multiply(pass->team, &p);
}

static inline struct eo_operand operand_plain(const void *values, uint64_t stride)
{
    return (struct eo_operand){values, stride, false};
}

static inline struct eo_operand operand_transposed(const void *values, uint64_t stride)
{
    return (struct eo_operand){values, stride, true};
}

/* ---- describe.c ---- */

/* Fills in shapes, positions and the model. */
eo_status eo_transformer_describe(eo_transformer *t);

/* ---- adapters.c ---- */

/* Which linear layers have adapters, after their shapes are known; and the parameters of a half's. */
eo_status eo_adapters_describe(eo_transformer *t);
eo_status eo_adapters_add(eo_transformer *t, uint32_t layer, const struct half *half, uint32_t block);

/* Whether the position has any, or trains all. */
bool eo_position_trains(const eo_transformer *t, uint32_t position);

/* ---- activations.c ---- */

/* Room for one adapter of HALF_LOW, or for its gradient, in bytes. */
uint64_t eo_adapter_low_bytes(const eo_transformer *t, uint64_t rows);

/* Of so many tokens; 0: the half has no such tensor. */
uint64_t eo_half_tensor_bytes(const eo_transformer *t, const struct half *half, enum half_tensor tensor, uint64_t rows);

/* Adds every buffer the passes use, with its lifetime. After describe. */
eo_status eo_transformer_add_buffers(eo_transformer *t);

/*
 * A half's backward scratch, in bytes: where each part begins. At 0 lies mid's gradient, later mid itself, if it is made
 * again, or the norm's gradient; or, where GELU rides on the product, inner's.
 */
struct half_scratch {
    uint64_t inner_gradient; /* attention, where the kernel cannot write it over inner */
    uint64_t norm_gradient;  /* of an MLP that makes mid again, or with GELU on its products, if inner has no room for it */
    uint64_t bias;           /* gradient of the in-product's bias, where the GELU kernel gives it early */
    uint64_t head_norms;     /* sums of the gradients of their weights */
    uint64_t low;            /* gradients of HALF_LOW */
    uint64_t branch;         /* with dropout: the gradient of what the half adds to the stream, as far as it was not dropped */
    uint64_t kernels;        /* the kernels' own */
    uint64_t total;
};
struct half_scratch eo_half_scratch(const eo_transformer *t, const struct half *half, uint64_t rows);

/* Where the gradients of a half's tensors lie from eo_block_backward_first on. */
struct half_gradients {
    void *mid, *inner, *norm; /* mid and norm: may be one after the other in the same place */
    void *mid_values;         /* mid itself, for the gradients of the out-product's weight */
    void *norm_values; /* the norm itself, for those of the in-products: where norm was, if norm_backward makes it again */
    void *in_bias;            /* or NULL: to be summed from inner's */
    float *head_norms;        /* sums that become the gradients of their weights */
    void *low;                /* of HALF_LOW */
    void *branch;             /* of the out-product's result: the stream's gradient, or with dropout its own */
    void *kernels;            /* scratch */
};
struct half_gradients eo_half_gradients(const struct pass *pass, const struct half *half);

/* GELU may ride on the products of this half (see fused_epilogues in kernel_ops.h): then their bias does. */
static inline bool half_fuses_gelu(const eo_transformer *t, const struct half *half)
{
    return is_gpt2(t) && !half->attention && t->kernels->fused_epilogues;
}

/* ... and GELU rides, unless an adapter adds to what the product gives, or the table has none for the forward pass. */
static inline bool gelu_rides_on(const eo_transformer *t, const struct half *half, uint32_t linear)
{
    const bool is_apart = linear != HALF_OUT && t->kernels->gelu_apart;
    return half_fuses_gelu(t, half) && !half_shape_of(t, half)->adapted[linear] && !is_apart;
}

/* The backward pass of the MLP's operation gives mid again, over its gradient or inner, and nobody keeps it. */
static inline bool remakes_mid(const eo_transformer *t, const struct half *half)
{
    return !half->attention && (is_gpt2(t) ? t->kernels->remakes_gelu : t->kernels->remakes_swiglu);
}

/* ... then a recompute makes it only for the next half's input, or for an adapter. */
static inline bool recomputes_mid(const eo_transformer *t, const struct half *half)
{
    return !remakes_mid(t, half) || !is_last_of_position(t, (uint32_t)(half - t->halves)) ||
           half_shape_of(t, half)->adapted[HALF_OUT];
}

/* With adapters the backward pass ends at the first of them: that half passes no gradient on to its norm. */
static inline bool passes_gradient_on(const eo_transformer *t, const struct half *half)
{
    return !has_adapters(t) || half - t->halves > t->first_trained;
}

/* The norm's backward pass gives its result again, over the gradient of it, and nobody keeps it. */
static inline bool remakes_norm(const eo_transformer *t, const struct half *half)
{
    return !half->recompute && passes_gradient_on(t, half);
}

/* Whether the half's backward pass reads the tensor: a frozen product does not need its input. */
bool eo_half_tensor_is_needed(const eo_transformer *t, const struct half *half, enum half_tensor tensor);

/* A half's weights or gradients, by their use. NULL: the model has none, or it is frozen. */
struct half_parameters {
    void *norm_weight, *norm_bias, *in[HALF_INPUTS_MAX], *in_bias[HALF_INPUTS_MAX], *out, *out_bias;
    void *head_norm[HALF_HEAD_NORMS];
    struct half_adapter {
        void *a, *b;
    } adapter[HALF_LINEARS];
};

/* ---- adapters.c again: nothing is done where the linear layer has no adapter ---- */

/* What a linear layer reads and writes; rows of the output, or of its gradient, begin `stride` apart. */
struct linear_data {
    uint32_t linear;
    const void *input;
    void *output;
    uint64_t stride;
};

/* low = scale input A^T; and then output += low B^T. */
eo_status eo_adapter_low(const struct pass *pass, const struct half *half, const struct half_parameters *w,
                         const struct linear_data *data);
eo_status eo_adapter_forward(const struct pass *pass, const struct half *half, const struct half_parameters *w,
                             const struct linear_data *data);

/* d_low = scale output B; and then input_gradient += d_low A, if it is wanted. `output` is its gradient here. */
eo_status eo_adapter_backward(const struct pass *pass, const struct half *half, const struct half_parameters *w,
                              const struct linear_data *data, void *input_gradient);
/* The gradients of A and B, after it. */
eo_status eo_adapter_gradients(const struct pass *pass, const struct half *half, const struct half_parameters *d,
                               const struct linear_data *data);

/* Where the forward pass writes in-product i: into inner, or into raw, the input of heads' norms. */
struct half_output {
    void *values;
    uint64_t stride;
};
struct half_output eo_half_output(const struct pass *pass, const struct half *half, uint32_t i);
uint64_t eo_half_output_stride(const eo_transformer *t, const struct half *half, uint32_t i);

/* Of the product scratch, for passes of so many tokens on a team of so many threads; 0: none. */
uint64_t eo_transformer_product_scratch_bytes(const eo_transformer *t, uint64_t rows, uint32_t thread_count);

struct eo_attention_shape eo_half_attention_shape(const eo_transformer *t, uint32_t batch, uint32_t seq);

/* ---- block.c ---- */

/*
 * The halves of a position, in each of its passes. Backward is in two steps: `first` needs weights and activations
 * only, the second writes gradients.
 */
eo_status eo_block_forward(const struct pass *pass, uint32_t position);
eo_status eo_block_recompute(const struct pass *pass, uint32_t position);
eo_status eo_block_backward_first(const struct pass *pass, uint32_t position);
eo_status eo_block_backward(const struct pass *pass, uint32_t position);

/* ---- operations.c ---- */

/*
 * The half's own operation: the in-products' outputs -> mid; and mid's gradient -> theirs. Biases that did not ride on
 * products are added by attention, and taken along by GELU. `again`: the part that a cheap recompute repeats.
 */
eo_status eo_half_operation_forward(const struct pass *pass, const struct half *half, const struct half_parameters *w);
eo_status eo_half_operation_again(const struct pass *pass, const struct half *half, const struct half_parameters *w);
eo_status eo_half_operation_backward(const struct pass *pass, const struct half *half, const struct half_parameters *w);

/* ---- transformer.c ---- */

/* The first position's forward pass. */
eo_status eo_pass_embedding(const struct pass *pass, const int32_t *tokens);
eo_status eo_transformer_check_runtime(const eo_transformer *t, const eo_runtime *runtime);
eo_status eo_transformer_check_tokens(const eo_transformer *t, const int32_t *tokens, uint64_t count);

/* ---- lm_head.c ---- */

/* Losses are added to the loss buffer; `first` runs chunk 0 as far as it needs no gradient buffer. */
eo_status eo_head_backward_first(const struct pass *pass, const int32_t *targets);
eo_status eo_head_backward(const struct pass *pass, const int32_t *targets);
eo_status eo_head_loss(const struct pass *pass, const int32_t *targets);
eo_status eo_head_logits(const struct pass *pass, uint64_t row, void **logits);

/* ---- prepare.c ---- */

/* Between host memory and a buffer. From the host: `from` is free again on return. To the host: waits. */
eo_status eo_pass_upload(const struct pass *pass, void *to, const void *from, uint64_t bytes);
eo_status eo_pass_download(const struct pass *pass, void *to, const void *from, uint64_t bytes);

#endif
