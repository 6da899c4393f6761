/* SPDX-License-Identifier: MIT
 *
 * Every buffer the passes use, with its lifetime, as rows of the plan. What is kept from forward to backward is one row;
 * what a recompute writes again is two: one of the forward pass alone, one from recompute to backward. All that runs
 * before eo_gradients_begin belongs to the recompute, the first products of a backward pass too.
 */
#include <stdio.h>

#include "layers/transformer.h"

static uint64_t token_rows(const eo_transformer *t)
{
    return (uint64_t)t->params.batch * t->params.seq;
}

static eo_moment forward_of(uint32_t position)
{
    return (eo_moment){EO_PASS_FORWARD, position};
}

static eo_moment recompute_of(uint32_t position)
{
    return (eo_moment){EO_PASS_RECOMPUTE, position};
}

static eo_moment backward_of(uint32_t position)
{
    return (eo_moment){EO_PASS_BACKWARD, position};
}

static eo_status add_floats(eo_transformer *t, const char *name, uint64_t floats, eo_category category,
                            eo_moment first, eo_moment last, uint32_t *out)
{
    return eo_model_add_buffer(t->model, &(eo_buffer_params){
        .name = name, .bytes = floats * sizeof(float), .category = category, .first = first, .last = last}, out);
}

static eo_status add_kept(eo_transformer *t, const char *name, uint64_t floats, eo_moment first, eo_moment last,
                          struct tensor_buffers *out)
{
    LAYERS_TRY(add_floats(t, name, floats, EO_CATEGORY_ACTIVATION, first, last, &out->forward));
    out->backward = out->forward;
    return EO_OK;
}

static eo_status add_recomputed(eo_transformer *t, const char *name, uint64_t floats, uint32_t position,
                                struct tensor_buffers *out)
{
    char again[EO_NAME_MAX + 8];
    snprintf(again, sizeof(again), "%s.again", name);
    LAYERS_TRY(add_floats(t, name, floats, EO_CATEGORY_SCRATCH, forward_of(position), forward_of(position),
                          &out->forward));
    return add_floats(t, again, floats, EO_CATEGORY_SCRATCH, recompute_of(position), backward_of(position),
                      &out->backward);
}

static uint64_t tensor_floats(const eo_transformer *t, const struct half *half, enum half_tensor tensor)
{
    const struct half_shape *shape = half_shape_of(t, half);
    const uint64_t rows = token_rows(t);
    switch (tensor) {
    case HALF_NORM:
        return rows * t->params.config.width;
    case HALF_STATS:
        return rows * (is_gpt2(t) ? 2 : 1);
    case HALF_INNER:
        return rows * shape->inner_width;
    case HALF_MID:
        return rows * shape->mid_width;
    case HALF_LOG_SUM_EXP:
        return half->attention ? rows * t->params.config.head_count : 0;
    case HALF_TENSOR_COUNT:
        break;
    }
    return 0;
}

/* Whether the tensor lives from forward to backward. Cheap to compute again: norms and the MLP's operation. */
static bool is_kept(const eo_transformer *t, const struct half *half, enum half_tensor tensor)
{
    if (half->recompute)
        return false;
    if (t->params.recompute != EO_RECOMPUTE_CHEAP)
        return true;
    return tensor != HALF_NORM && (half->attention || tensor != HALF_MID);
}

static const char *tensor_name(const eo_transformer *t, const struct half *half, enum half_tensor tensor)
{
    const struct half_shape *shape = half_shape_of(t, half);
    switch (tensor) {
    case HALF_NORM:
        return "norm";
    case HALF_STATS:
        return "norm_stats";
    case HALF_INNER:
        return shape->inner_name;
    case HALF_MID:
        return shape->mid_name;
    case HALF_LOG_SUM_EXP:
        return "log_sum_exp";
    case HALF_TENSOR_COUNT:
        break;
    }
    return "";
}

static eo_status add_half_tensors(eo_transformer *t, uint32_t h)
{
    struct half *half = &t->halves[h];
    for (uint32_t tensor = 0; tensor < HALF_TENSOR_COUNT; tensor++) {
        struct tensor_buffers *buffers = &half->tensor[tensor];
        const uint64_t floats = tensor_floats(t, half, tensor);
        *buffers = (struct tensor_buffers){NO_BUFFER, NO_BUFFER};
        if (floats == 0)
            continue;
        char name[EO_NAME_MAX];
        snprintf(name, sizeof(name), "block.%u.%s.%s", h / 2, half->attention ? "attention" : "mlp",
                 tensor_name(t, half, tensor));
        if (is_kept(t, half, tensor)) {
            LAYERS_TRY(add_kept(t, name, floats, forward_of(half->position), backward_of(half->position), buffers));
        } else {
            LAYERS_TRY(add_recomputed(t, name, floats, half->position, buffers));
        }
    }
    return EO_OK;
}

/* The residual stream: the input of half h is written by the position before, or in the middle of its own. */
static eo_status add_stream(eo_transformer *t)
{
    const uint64_t floats = token_rows(t) * t->params.config.width;
    for (uint32_t h = 0; h <= t->half_count; h++) {
        const bool is_head = h == t->half_count;
        const uint32_t reader = is_head ? t->head.position : t->halves[h].position;
        const uint32_t writer = h == 0 ? 0 : t->halves[h - 1].position;
        char name[EO_NAME_MAX];
        if (is_head)
            snprintf(name, sizeof(name), "head.input");
        else
            snprintf(name, sizeof(name), "block.%u.%s.input", h / 2, t->halves[h].attention ? "attention" : "mlp");
        if (writer == reader && t->halves[h].recompute) {
            LAYERS_TRY(add_recomputed(t, name, floats, reader, &t->stream[h]));
        } else {
            LAYERS_TRY(add_kept(t, name, floats, forward_of(writer), backward_of(reader), &t->stream[h]));
        }
    }
    return add_floats(t, "stream.gradient", floats, EO_CATEGORY_SCRATCH, recompute_of(t->head.position),
                      backward_of(0), &t->stream_gradient);
}

static uint64_t align_floats(uint64_t floats)
{
    return (floats + 15) / 16 * 16; /* 64 bytes, as the kernels ask */
}

static uint64_t bytes_to_floats(uint64_t bytes)
{
    return align_floats((bytes + 3) / 4);
}

struct eo_attention_shape eo_half_attention_shape(const eo_transformer *t, uint32_t batch, uint32_t seq)
{
    const eo_transformer_config *c = &t->params.config;
    return (struct eo_attention_shape){
        .batch = batch,
        .seq = seq,
        .head_count = c->head_count,
        .kv_head_count = c->kv_head_count,
        .head_size = c->width / c->head_count,
        .q_stride = t->shape[true].inner_width,
        .kv_stride = t->shape[true].inner_width,
        .out_stride = c->width,
    };
}

static uint64_t attention_scratch_floats(const eo_transformer *t)
{
    const struct eo_attention_shape shape = eo_half_attention_shape(t, t->params.batch, t->params.seq);
    return bytes_to_floats(eo_attention_scratch_bytes(&shape, t->params.thread_count));
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct half_scratch eo_half_scratch(const eo_transformer *t, const struct half *half, uint64_t rows)
{
    const struct half_shape *shape = half_shape_of(t, half);
    const uint64_t width = t->params.config.width;
    const uint64_t norm = bytes_to_floats(eo_norm_scratch_bytes(width));
    struct half_scratch scratch;
    scratch.bias = align_floats(rows * max_u64(shape->mid_width, width));
    scratch.kernels = scratch.bias + (shape->biases ? align_floats(shape->inner_width) : 0);
    scratch.total = scratch.kernels + (half->attention ? max_u64(norm, attention_scratch_floats(t)) : norm);
    return scratch;
}

static eo_status add_half_scratch(eo_transformer *t, uint32_t h)
{
    struct half *half = &t->halves[h];
    if (!half->attention && !t->params.half_blocks) {
        half->scratch = t->halves[h - 1].scratch;
        return EO_OK;
    }
    char name[EO_NAME_MAX];
    const char *part = t->params.half_blocks ? (half->attention ? ".attention" : ".mlp") : "";
    half->scratch.forward = NO_BUFFER;
    if (half->attention) {
        snprintf(name, sizeof(name), "block.%u%s.forward_scratch", h / 2, part);
        LAYERS_TRY(add_floats(t, name, max_u64(1, attention_scratch_floats(t)), EO_CATEGORY_SCRATCH,
                              forward_of(half->position), forward_of(half->position), &half->scratch.forward));
    }
    uint64_t floats = eo_half_scratch(t, half, token_rows(t)).total;
    if (!t->params.half_blocks)
        floats = max_u64(floats, eo_half_scratch(t, half + 1, token_rows(t)).total);
    snprintf(name, sizeof(name), "block.%u%s.scratch", h / 2, part);
    return add_floats(t, name, floats, EO_CATEGORY_SCRATCH, recompute_of(half->position),
                      backward_of(half->position), &half->scratch.backward);
}

static eo_status add_head_buffers(eo_transformer *t)
{
    struct head *head = &t->head;
    const uint64_t rows = token_rows(t), width = t->params.config.width;
    const eo_moment from = recompute_of(head->position), to = backward_of(head->position);
    head->chunk_rows = (rows + t->params.head_chunks - 1) / t->params.head_chunks;
    head->logit_stride = align_floats(t->params.config.vocabulary);
    const uint64_t chunk = head->chunk_rows;
    LAYERS_TRY(add_floats(t, "head.norm", chunk * width, EO_CATEGORY_HEAD, from, to, &head->norm));
    LAYERS_TRY(add_floats(t, "head.norm_stats", 2 * chunk, EO_CATEGORY_HEAD, from, to, &head->stats));
    LAYERS_TRY(add_floats(t, "head.logits", chunk * head->logit_stride, EO_CATEGORY_HEAD, from, to, &head->logits));
    LAYERS_TRY(add_floats(t, "head.losses", chunk, EO_CATEGORY_HEAD, from, to, &head->losses));
    return add_floats(t, "head.scratch", max_u64(1, bytes_to_floats(eo_norm_scratch_bytes(width))), EO_CATEGORY_HEAD,
                      from, to, &head->scratch);
}

eo_status eo_transformer_add_buffers(eo_transformer *t)
{
    LAYERS_TRY(add_stream(t));
    for (uint32_t h = 0; h < t->half_count; h++) {
        LAYERS_TRY(add_half_tensors(t, h));
        LAYERS_TRY(add_half_scratch(t, h));
    }
    return add_head_buffers(t);
}
