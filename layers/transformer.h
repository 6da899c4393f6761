/* SPDX-License-Identifier: MIT
 *
 * The inside of a transformer: its description (layers, positions, buffers) and what a pass needs to run.
 *
 * A block is two halves of one shape, attention and MLP:
 *
 *     input --> norm --> inner = in(norm) --> mid = operation(inner) --> out(mid) --+--> next half's input
 *         \________________________________________________________________________/
 *
 *                    in                      operation                            inner           mid
 *     attention      q, k, v                 (rotary positions,) attention        q, k, v         heads' output
 *     MLP            fc, or gate and up      GELU, or silu(gate) x up             before it       after it
 *
 * Halves are numbered 0 ... 2 x layers - 1. A position holds two halves, or one when params.half_blocks is set. Their
 * inputs are the residual stream: stream[h] is the input of half h, and the last one that of the head.
 *
 * An eo_transformer never changes after create: everything a pass writes lies in buffers of the plan.
 */
#ifndef EO_LAYERS_TRANSFORMER_H
#define EO_LAYERS_TRANSFORMER_H

#include "layers/checks.h"
#include "layers/kernels.h"

#define HALF_INPUTS_MAX 3
#define NO_BUFFER       UINT32_MAX

/* What a half computes and its backward pass needs. */
enum half_tensor {
    HALF_NORM,
    HALF_STATS, /* mean (GPT-2) and rstd of the norm: [rows] each, one after the other */
    HALF_INNER, /* rows of the in-products' outputs side by side */
    HALF_MID,
    HALF_LOG_SUM_EXP, /* attention */
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
    struct tensor_buffers scratch; /* a position's two halves share theirs */
};

/* The shape that all attention halves, or all MLP halves, have in common. */
struct half_shape {
    uint32_t in_count;
    uint32_t in_width[HALF_INPUTS_MAX];
    uint32_t inner_width; /* their sum */
    uint32_t mid_width;
    uint32_t parameter_count;
    bool biases;
    const char *const *parameter_names; /* format: %u is the block */
    const char *inner_name, *mid_name;
};

struct head {
    uint32_t position;
    uint32_t weight, norm_weight, norm_bias; /* places in its layer; norm_bias: GPT-2 */
    uint64_t chunk_rows;
    uint64_t logit_stride; /* rows of logits begin on cache lines */
    uint32_t norm, stats, logits, losses, scratch; /* buffers of a chunk */
};

struct eo_transformer {
    eo_transformer_params params; /* filled in; log points to `log` */
    eo_log log;
    eo_model *model;
    float *rope_table;            /* Llama */
    uint32_t half_count;
    uint32_t position_count;
    struct half_shape shape[2];   /* MLP, attention */
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
    const eo_view *view;
    uint32_t batch, seq;
    uint64_t rows; /* batch x seq */
    bool backward; /* recompute and backward: which of a tensor's buffers */
};

static inline bool is_gpt2(const eo_transformer *t)
{
    return t->params.config.family == EO_FAMILY_GPT2;
}

static inline const struct half_shape *half_shape_of(const eo_transformer *t, const struct half *half)
{
    return &t->shape[half->attention];
}

static inline float *pass_buffer(const struct pass *pass, struct tensor_buffers buffers)
{
    const uint32_t buffer = pass->backward ? buffers.backward : buffers.forward;
    return buffer == NO_BUFFER ? NULL : eo_buffer(pass->runtime, buffer);
}

static inline float *pass_weight(const struct pass *pass, uint32_t parameter)
{
    return pass->view->weights[parameter];
}

static inline float *pass_gradient(const struct pass *pass, uint32_t parameter)
{
    return pass->view->gradients[parameter];
}

/* Fills in shapes, positions and the model. */
eo_status eo_transformer_describe(eo_transformer *t);

/* Adds every buffer the passes use, with its lifetime. After describe. */
eo_status eo_transformer_add_buffers(eo_transformer *t);

/* Floats of a half's backward scratch: d_mid (later d_norm), bias gradient, then the kernels' own. */
struct half_scratch {
    uint64_t bias, kernels, total; /* where each begins */
};
struct half_scratch eo_half_scratch(const eo_transformer *t, const struct half *half, uint64_t rows);
struct eo_attention_shape eo_half_attention_shape(const eo_transformer *t, uint32_t batch, uint32_t seq);

/*
 * The halves of a position, in each of its passes. eo_block_backward is in two steps: what needs weights and
 * activations only (`first`), then all that writes gradients.
 */
eo_status eo_block_forward(const struct pass *pass, uint32_t position);
eo_status eo_block_recompute(const struct pass *pass, uint32_t position);
eo_status eo_block_backward_first(const struct pass *pass, uint32_t position);
eo_status eo_block_backward(const struct pass *pass, uint32_t position);

/*
 * The half's own operation: inner -> mid; and mid's gradient -> inner's, in place of inner. The in-product's bias belongs
 * to it: attention adds it to inner, GELU takes it along. in_bias_gradient is overwritten; both NULL where there is none.
 */
void eo_half_operation_forward(const struct pass *pass, const struct half *half, const float *in_bias);
void eo_half_operation_backward(const struct pass *pass, const struct half *half, const float *mid_gradient,
                                const float *in_bias, float *in_bias_gradient);

/* The head. Losses are summed into *loss_sum; `first` runs chunk 0 as far as it needs no gradient buffer. */
eo_status eo_head_backward_first(const struct pass *pass, const int32_t *targets, double *loss_sum);
eo_status eo_head_backward(const struct pass *pass, const int32_t *targets, double *loss_sum);
eo_status eo_head_loss(const struct pass *pass, const int32_t *targets, double *loss_sum);
eo_status eo_head_logits(const struct pass *pass, uint64_t row, float *logits);

#endif
