/* SPDX-License-Identifier: MIT
 *
 * Every buffer the passes use, with its lifetime, as rows of the plan. What is kept from forward to backward is one row;
 * what a recompute writes again is two: one of the forward pass alone, one from recompute to backward. All that runs
 * before eo_gradients_begin belongs to the recompute, the first products of a backward pass too.
 */
#include <stdio.h>

#include "layers/transformer/internal.h"

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

static eo_status add_bytes(eo_transformer *t, const char *name, uint64_t bytes, eo_category category,
                           eo_moment first, eo_moment last, uint32_t *out)
{
    return eo_model_add_buffer(t->model, &(eo_buffer_params){
        .name = name, .bytes = bytes, .category = category, .first = first, .last = last}, out);
}

static eo_status add_persistent(eo_transformer *t, const char *name, uint64_t bytes, uint32_t *out)
{
    return eo_model_add_buffer(t->model, &(eo_buffer_params){
        .name = name, .bytes = bytes, .category = EO_CATEGORY_OTHER, .persistent = true}, out);
}

static uint64_t element_bytes(const eo_transformer *t)
{
    return eo_dtype_bytes(t->types.compute);
}

/* Of one position alone, or written by the one before it. */
static eo_status add_kept(eo_transformer *t, const char *name, uint64_t bytes, eo_moment first, eo_moment last,
                          struct tensor_buffers *out)
{
    EO_TRY(eo_model_add_buffer(t->model,
                               &(eo_buffer_params){.name = name, .bytes = bytes, .category = EO_CATEGORY_ACTIVATION,
                                                   .first = first, .last = last, .saved = first.position == last.position},
                               &out->forward));
    out->backward = out->forward;
    return EO_OK;
}

static eo_status add_passing(eo_transformer *t, const char *name, uint64_t bytes, uint32_t position, uint32_t *out)
{
    return add_bytes(t, name, bytes, EO_CATEGORY_SCRATCH, forward_of(position), forward_of(position), out);
}

static eo_status add_again(eo_transformer *t, const char *name, uint64_t bytes, uint32_t position, uint32_t *out)
{
    char again[EO_NAME_MAX + 8];
    snprintf(again, sizeof(again), "%s.again", name);
    return add_bytes(t, again, bytes, EO_CATEGORY_SCRATCH, recompute_of(position), backward_of(position), out);
}

/* Inner is made again from raw, which then keeps v too. */
static bool remakes_inner(const eo_transformer *t, const struct half *half)
{
    return half_shape_of(t, half)->head_norms && !half->recompute && t->params.recompute == EO_RECOMPUTE_CHEAP;
}

static uint64_t raw_width(const eo_transformer *t, const struct half *half)
{
    const struct half_shape *shape = half_shape_of(t, half);
    if (!shape->head_norms)
        return 0;
    return remakes_inner(t, half) ? shape->inner_width : (uint64_t)shape->in_width[0] + shape->in_width[1];
}

static bool goes_to_raw(const eo_transformer *t, const struct half *half, uint32_t i)
{
    return half_shape_of(t, half)->head_norms && (i < HALF_HEAD_NORMS || remakes_inner(t, half));
}

uint64_t eo_half_output_stride(const eo_transformer *t, const struct half *half, uint32_t i)
{
    return goes_to_raw(t, half, i) ? raw_width(t, half) : half_shape_of(t, half)->inner_width;
}

struct half_output eo_half_output(const struct pass *pass, const struct half *half, uint32_t i)
{
    const eo_transformer *t = pass->transformer;
    const struct half_shape *shape = half_shape_of(t, half);
    uint64_t at = 0;
    for (uint32_t k = 0; k < i; k++)
        at += shape->in_width[k];
    void *values = pass_buffer(pass, half->tensor[goes_to_raw(t, half, i) ? HALF_RAW : HALF_INNER]);
    return (struct half_output){pass_at(pass, values, at), eo_half_output_stride(t, half, i)};
}

uint64_t eo_adapter_low_bytes(const eo_transformer *t, uint64_t rows)
{
    enum { ALIGNMENT = 64 };
    const uint64_t bytes = rows * t->params.lora.rank * eo_dtype_bytes(t->types.compute);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint64_t eo_half_tensor_bytes(const eo_transformer *t, const struct half *half, enum half_tensor tensor, uint64_t rows)
{
    const struct half_shape *shape = half_shape_of(t, half);
    switch (tensor) {
    case HALF_NORM:
        return rows * t->params.config.width * element_bytes(t);
    case HALF_STATS:
        return rows * (is_gpt2(t) ? 2 : 1) * sizeof(float);
    case HALF_RAW:
        return rows * raw_width(t, half) * element_bytes(t);
    case HALF_INNER:
        return rows * shape->inner_width * element_bytes(t);
    case HALF_MID:
        return rows * shape->mid_width * element_bytes(t);
    case HALF_LOG_SUM_EXP:
        return half->attention ? rows * t->params.config.head_count * sizeof(float) : 0;
    case HALF_LOW:
        return shape->adapter_count * eo_adapter_low_bytes(t, rows);
    case HALF_TENSOR_COUNT:
        break;
    }
    return 0;
}

bool eo_half_tensor_is_needed(const eo_transformer *t, const struct half *half, enum half_tensor tensor)
{
    const struct half_shape *shape = half_shape_of(t, half);
    bool in_adapted = false;
    for (uint32_t i = 0; i < shape->in_count; i++)
        in_adapted = in_adapted || shape->adapted[i];
    if (!has_adapters(t) || (tensor != HALF_NORM && tensor != HALF_MID))
        return true;
    return tensor == HALF_NORM ? in_adapted : half->attention || shape->adapted[HALF_OUT];
}

/* Whether the tensor lives from forward to backward. Cheap to compute again: what norms of heads and rotary positions make of q
 * and k, and the MLP's operation. */
static bool is_kept(const eo_transformer *t, const struct half *half, enum half_tensor tensor)
{
    if (half->recompute)
        return false;
    if (t->params.recompute != EO_RECOMPUTE_CHEAP)
        return true;
    if (tensor == HALF_INNER)
        return !remakes_inner(t, half);
    return half->attention || tensor != HALF_MID;
}

/* Whether what follows the forward pass reads the tensor. */
static bool is_read_later(const eo_transformer *t, const struct half *half, enum half_tensor tensor)
{
    if (tensor == HALF_MID && remakes_mid(t, half))
        return half->recompute && recomputes_mid(t, half);
    if (tensor == HALF_NORM && remakes_norm(t, half))
        return false;
    return half->recompute || eo_half_tensor_is_needed(t, half, tensor);
}

static const char *tensor_name(const eo_transformer *t, const struct half *half, enum half_tensor tensor)
{
    const struct half_shape *shape = half_shape_of(t, half);
    switch (tensor) {
    case HALF_NORM:
        return "norm";
    case HALF_STATS:
        return "norm_stats";
    case HALF_RAW:
        return raw_width(t, half) == shape->inner_width ? "qkv_before_norm" : "qk_before_norm";
    case HALF_INNER:
        return shape->inner_name;
    case HALF_MID:
        return shape->mid_name;
    case HALF_LOG_SUM_EXP:
        return "log_sum_exp";
    case HALF_LOW:
        return "adapters";
    case HALF_TENSOR_COUNT:
        break;
    }
    return "";
}

/* The row of an earlier half of the position for what lives in the forward pass alone: halves run one after the other. */
static uint32_t find_passing(const eo_transformer *t, uint32_t h, enum half_tensor tensor, uint64_t bytes)
{
    while (!is_first_of_position(t, h)) {
        const struct half *before = &t->halves[--h];
        const struct tensor_buffers *buffers = &before->tensor[tensor];
        if (buffers->forward != NO_BUFFER && buffers->backward != buffers->forward &&
            eo_half_tensor_bytes(t, before, tensor, token_rows(t)) == bytes)
            return buffers->forward;
    }
    return NO_BUFFER;
}

static eo_status add_half_tensors(eo_transformer *t, uint32_t h)
{
    struct half *half = &t->halves[h];
    for (uint32_t tensor = 0; tensor < HALF_TENSOR_COUNT; tensor++) {
        struct tensor_buffers *buffers = &half->tensor[tensor];
        const uint64_t bytes = eo_half_tensor_bytes(t, half, tensor, token_rows(t));
        *buffers = (struct tensor_buffers){NO_BUFFER, NO_BUFFER};
        if (bytes == 0)
            continue;
        char name[EO_NAME_MAX];
        snprintf(name, sizeof(name), "block.%u.%s.%s", h / 2, half->attention ? "attention" : "mlp",
                 tensor_name(t, half, tensor));
        if (is_read_later(t, half, tensor) && is_kept(t, half, tensor)) {
            EO_TRY(add_kept(t, name, bytes, forward_of(half->position), backward_of(half->position), buffers));
            continue;
        }
        buffers->forward = find_passing(t, h, tensor, bytes);
        if (buffers->forward == NO_BUFFER)
            EO_TRY(add_passing(t, name, bytes, half->position, &buffers->forward));
        if (is_read_later(t, half, tensor))
            EO_TRY(add_again(t, name, bytes, half->position, &buffers->backward));
    }
    return EO_OK;
}

/* The residual stream: the input of half h is written by the position before, or in the middle of its own. */
static eo_status add_stream(eo_transformer *t)
{
    const uint64_t bytes = token_rows(t) * t->params.config.width * element_bytes(t);
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
            EO_TRY(add_passing(t, name, bytes, reader, &t->stream[h].forward));
            EO_TRY(add_again(t, name, bytes, reader, &t->stream[h].backward));
        } else {
            EO_TRY(add_kept(t, name, bytes, forward_of(writer), backward_of(reader), &t->stream[h]));
        }
    }
    return add_bytes(t, "stream.gradient", bytes, EO_CATEGORY_SCRATCH, recompute_of(t->head.position),
                      backward_of(0), &t->stream_gradient);
}

static uint64_t round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static uint64_t align_bytes(const eo_transformer *t, uint64_t bytes)
{
    return round_up(bytes, t->kernels->scratch_alignment);
}

struct eo_attention_shape eo_half_attention_shape(const eo_transformer *t, uint32_t batch, uint32_t seq)
{
    const eo_transformer_config *c = &t->params.config;
    return (struct eo_attention_shape){
        .batch = batch,
        .seq = seq,
        .head_count = c->head_count,
        .kv_head_count = c->kv_head_count,
        .head_size = c->head_size,
        .q_stride = t->shape[true].inner_width,
        .kv_stride = t->shape[true].inner_width,
        .out_stride = heads_width(t),
    };
}

static uint64_t attention_scratch_bytes(const eo_transformer *t)
{
    const struct eo_attention_shape shape = eo_half_attention_shape(t, t->params.batch, t->params.seq);
    return align_bytes(t, t->kernels->attention_scratch_bytes(t->types, &shape, t->params.thread_count));
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What the kernels of a backward pass take beside their operands: they run one after the other. */
static uint64_t kernel_scratch_bytes(const eo_transformer *t, const struct half *half, uint64_t rows)
{
    const struct half_shape *shape = half_shape_of(t, half);
    const uint64_t width = t->params.config.width;
    uint64_t bytes = t->kernels->norm_scratch_bytes(rows, width);
    if (shape->out_bias)
        bytes = max_u64(bytes, t->kernels->column_scratch_bytes(rows, width));
    for (uint32_t i = 0; i < shape->in_count && shape->in_bias; i++)
        bytes = max_u64(bytes, t->kernels->column_scratch_bytes(rows, shape->in_width[i]));
    if (half->attention)
        bytes = max_u64(bytes, attention_scratch_bytes(t));
    return align_bytes(t, bytes);
}

struct half_scratch eo_half_scratch(const eo_transformer *t, const struct half *half, uint64_t rows)
{
    const struct half_shape *shape = half_shape_of(t, half);
    const uint64_t width = t->params.config.width, row_bytes = rows * element_bytes(t);
    const bool fuses_gelu = half_fuses_gelu(t, half);
    const bool remakes = remakes_mid(t, half) && eo_half_tensor_is_needed(t, half, HALF_MID);
    struct half_scratch scratch = {0};
    uint64_t used = align_bytes(t, row_bytes * max_u64(shape->mid_width, fuses_gelu || remakes ? 0 : width));
    if (half->attention && !t->kernels->gradients_in_place) {
        scratch.inner_gradient = used;
        used += align_bytes(t, row_bytes * shape->inner_width);
    }
    if (remakes || (fuses_gelu && width > shape->inner_width)) {
        scratch.norm_gradient = used;
        used += align_bytes(t, row_bytes * width);
    }
    if (shape->in_bias && !half->attention && !fuses_gelu && !has_adapters(t)) {
        scratch.bias = used;
        used += align_bytes(t, shape->inner_width * eo_dtype_bytes(t->types.gradient));
    }
    if (shape->head_norms) {
        scratch.head_norms = used;
        used += align_bytes(t, 2 * eo_head_norm_parts(rows) * t->params.config.head_size * sizeof(float));
    }
    scratch.low = used;
    used += align_bytes(t, shape->adapter_count * eo_adapter_low_bytes(t, rows));
    if (t->params.dropout > 0) {
        scratch.branch = used;
        used += align_bytes(t, row_bytes * width);
    }
    scratch.kernels = used;
    scratch.total = used + kernel_scratch_bytes(t, half, rows);
    return scratch;
}

struct half_gradients eo_half_gradients(const struct pass *pass, const struct half *half)
{
    const eo_transformer *t = pass->transformer;
    const struct half_scratch at = eo_half_scratch(t, half, pass->rows);
    char *scratch = pass_buffer(pass, half->scratch);
    void *inner = pass_buffer(pass, half->tensor[HALF_INNER]);
    struct half_gradients gradients = {.mid = scratch,
                                       .inner = inner,
                                       .norm = at.norm_gradient ? scratch + at.norm_gradient : scratch,
                                       .mid_values = pass_buffer(pass, half->tensor[HALF_MID]),
                                       .in_bias = at.bias ? scratch + at.bias : NULL,
                                       .head_norms = (float *)(void *)(scratch + at.head_norms),
                                       .low = scratch + at.low,
                                       .branch = at.branch ? (void *)(scratch + at.branch)
                                                           : eo_buffer(pass->runtime, t->stream_gradient),
                                       .kernels = scratch + at.kernels};
    if (half_fuses_gelu(t, half)) {
        gradients.mid = NULL;
        gradients.inner = scratch;
        gradients.norm = at.norm_gradient ? (void *)(scratch + at.norm_gradient) : inner;
    } else if (at.inner_gradient) {
        gradients.inner = scratch + at.inner_gradient;
    }
    gradients.norm_values = !remakes_norm(t, half)                         ? pass_buffer(pass, half->tensor[HALF_NORM])
                            : eo_half_tensor_is_needed(t, half, HALF_NORM) ? gradients.norm
                                                                           : NULL;
    if (remakes_mid(t, half))
        gradients.mid_values = !eo_half_tensor_is_needed(t, half, HALF_MID) ? NULL : half_fuses_gelu(t, half) ? inner : scratch;
    return gradients;
}

static eo_status add_half_scratch(eo_transformer *t, uint32_t h)
{
    struct half *half = &t->halves[h];
    if (!is_first_of_position(t, h)) {
        half->scratch = t->halves[h - 1].scratch;
        return EO_OK;
    }
    char name[EO_NAME_MAX];
    const char *part = t->params.half_blocks ? (half->attention ? ".attention" : ".mlp") : "";
    half->scratch.forward = NO_BUFFER;
    if (half->attention) {
        snprintf(name, sizeof(name), "block.%u%s.forward_scratch", h / 2, part);
        EO_TRY(add_bytes(t, name, max_u64(1, attention_scratch_bytes(t)), EO_CATEGORY_SCRATCH,
                         forward_of(half->position), forward_of(half->position), &half->scratch.forward));
    }
    uint64_t bytes = eo_half_scratch(t, half, token_rows(t)).total;
    if (!t->params.half_blocks)
        bytes = max_u64(bytes, eo_half_scratch(t, half + 1, token_rows(t)).total);
    snprintf(name, sizeof(name), "block.%u%s.scratch", h / 2, part);
    return add_bytes(t, name, bytes, EO_CATEGORY_SCRATCH, recompute_of(half->position),
                     backward_of(half->position), &half->scratch.backward);
}

static eo_status add_head_buffers(eo_transformer *t)
{
    struct head *head = &t->head;
    const uint64_t rows = token_rows(t), width = t->params.config.width;
    const eo_moment from = recompute_of(head->position), to = backward_of(head->position);
    const uint64_t most = (rows + t->params.head_chunks - 1) / t->params.head_chunks;
    const uint64_t rounded = round_up(most, t->kernels->chunk_multiple);
    head->chunk_rows = most < t->kernels->chunk_multiple ? most : rounded < rows ? rounded : rows;
    head->logit_stride = round_up(head->words, 16);
    const uint64_t chunk = head->chunk_rows, logits = chunk * head->logit_stride * element_bytes(t);
    const uint64_t scratch = align_bytes(t, t->kernels->norm_scratch_bytes(chunk, width));
    EO_TRY(add_bytes(t, "head.norm", chunk * width * element_bytes(t), EO_CATEGORY_HEAD, from, to, &head->norm));
    EO_TRY(add_bytes(t, "head.norm_stats", 2 * chunk * sizeof(float), EO_CATEGORY_HEAD, from, to, &head->stats));
    EO_TRY(add_bytes(t, "head.logits", logits, EO_CATEGORY_HEAD, from, to, &head->logits));
    EO_TRY(add_bytes(t, "head.losses", chunk * sizeof(float), EO_CATEGORY_HEAD, from, to, &head->losses));
    EO_TRY(add_bytes(t, "head.loss", sizeof(double), EO_CATEGORY_HEAD, from, to, &head->loss));
    return add_bytes(t, "head.scratch", max_u64(1, scratch), EO_CATEGORY_HEAD, from, to, &head->scratch);
}

/* What comes from the host: always live, so that a captured step finds it where it was. */
static eo_status add_inputs(eo_transformer *t)
{
    const uint64_t bytes = t->params.token_slots * token_rows(t) * sizeof(int32_t);
    EO_TRY(add_persistent(t, "tokens", bytes, &t->tokens));
    EO_TRY(add_persistent(t, "targets", bytes, &t->targets));
    t->rope_buffer = t->random = t->positions = NO_BUFFER;
    if (t->params.packed)
        EO_TRY(add_persistent(t, "positions", bytes, &t->positions));
    if (t->params.dropout > 0)
        EO_TRY(add_persistent(t, "dropout", t->params.token_slots * sizeof(eo_random_place), &t->random));
    if (is_gpt2(t) || t->kernels->host_memory)
        return EO_OK;
    return add_persistent(t, "rope_table", eo_rope_table_floats(t->params.seq, t->params.config.head_size) * sizeof(float),
                          &t->rope_buffer);
}

static eo_status add_embedding_scratch(eo_transformer *t)
{
    const eo_transformer_config *c = &t->params.config;
    const bool sums_positions = t->params.packed && is_gpt2(t); /* as if they were tokens */
    const uint64_t words = max_u64(c->vocabulary, sums_positions ? c->context : 0);
    const uint64_t bytes = t->kernels->embedding_scratch_bytes(token_rows(t), c->width, words);
    t->embedding_scratch = NO_BUFFER;
    return bytes == 0 ? EO_OK
                      : add_bytes(t, "embedding.scratch", bytes, EO_CATEGORY_SCRATCH, backward_of(0), backward_of(0),
                                  &t->embedding_scratch);
}

/* The products of a layer y[rows][out] = x[rows][in] W^T: forward, and both gradients. */
static uint64_t linear_scratch_bytes(const eo_transformer *t, uint64_t rows, uint64_t out, uint64_t in, uint32_t threads)
{
    const uint64_t forward = t->kernels->multiply_scratch_bytes(rows, out, in, threads);
    const uint64_t input_gradient = t->kernels->multiply_scratch_bytes(rows, in, out, threads);
    return max_u64(max_u64(forward, input_gradient), t->kernels->multiply_scratch_bytes(out, in, rows, threads));
}

/* The forward products of blocks, in float8. */
static uint64_t float8_scratch_bytes(const eo_transformer *t, uint64_t rows)
{
    const uint64_t width = t->params.config.width;
    uint64_t bytes = 0;
    for (int h = 0; h < 2 && t->params.float8_products; h++) {
        const struct half_shape *shape = &t->shape[h];
        bytes = max_u64(bytes, t->kernels->float8_scratch_bytes(rows, width, shape->mid_width));
        for (uint32_t i = 0; i < shape->in_count; i += shape->in_joined[i])
            bytes = max_u64(bytes, t->kernels->float8_scratch_bytes(rows, half_product_width(shape, i), width));
    }
    return bytes;
}

uint64_t eo_transformer_product_scratch_bytes(const eo_transformer *t, uint64_t rows, uint32_t thread_count)
{
    const uint64_t width = t->params.config.width;
    if (!t->kernels->multiply_scratch_bytes)
        return float8_scratch_bytes(t, rows);
    uint64_t bytes = linear_scratch_bytes(t, t->head.chunk_rows < rows ? t->head.chunk_rows : rows,
                                          t->head.words, width, thread_count);
    for (int h = 0; h < 2; h++) {
        const struct half_shape *shape = &t->shape[h];
        bytes = max_u64(bytes, linear_scratch_bytes(t, rows, width, shape->mid_width, thread_count));
        for (uint32_t i = 0; i < shape->in_count; i += shape->in_joined[i])
            bytes = max_u64(bytes, linear_scratch_bytes(t, rows, half_product_width(shape, i), width, thread_count));
    }
    return bytes;
}

/* Products and the loss run one after the other: one buffer for all. */
static eo_status add_product_scratch(eo_transformer *t)
{
    const uint32_t threads = t->params.thread_count;
    const uint64_t of_products = eo_transformer_product_scratch_bytes(t, token_rows(t), threads);
    const uint64_t of_loss =
        t->kernels->loss_scratch_bytes ? t->kernels->loss_scratch_bytes(t->params.config.vocabulary, threads) : 0;
    const uint64_t bytes = max_u64(of_products, of_loss);
    t->product_scratch = NO_BUFFER;
    return bytes == 0 ? EO_OK : add_persistent(t, "product_scratch", bytes, &t->product_scratch);
}

eo_status eo_transformer_add_buffers(eo_transformer *t)
{
    EO_TRY(add_inputs(t));
    EO_TRY(add_stream(t));
    for (uint32_t h = 0; h < t->half_count; h++) {
        EO_TRY(add_half_tensors(t, h));
        EO_TRY(add_half_scratch(t, h));
    }
    EO_TRY(add_head_buffers(t));
    EO_TRY(add_product_scratch(t));
    return add_embedding_scratch(t);
}
