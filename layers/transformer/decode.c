/* SPDX-License-Identifier: MIT */
#include "layers/transformer/cached_attention.h"

#include <stdlib.h>
#include <string.h>

#include "layers/denormals.h"

enum { DECODE_ROWS = 64, STREAMS = 3 };

/* ---- memory ---- */

/* The next piece, aligned as kernels ask; without memory it is only counted. */
static void *take(struct eo_decoder *d, uint64_t bytes)
{
    const uint64_t at = d->bytes;
    d->bytes += (bytes + 63) / 64 * 64;
    return d->base ? d->base + at : NULL;
}

static uint64_t rows_at_once(const eo_transformer *t)
{
    return t->params.seq < DECODE_ROWS ? t->params.seq : DECODE_ROWS;
}

static void place(struct eo_decoder *d, uint32_t buffer, void *memory)
{
    if (buffer != NO_BUFFER && d->memory)
        d->memory[buffer] = memory;
}

/* Halves run one after the other, so they share their tensors; of the stream three are in use at a time. */
static void take_buffers(struct eo_decoder *d)
{
    const eo_transformer *t = d->transformer;
    const uint64_t rows = rows_at_once(t), element = eo_dtype_bytes(t->types.compute), width = t->params.config.width;
    void *stream[STREAMS];
    const uint64_t places = (t->product_scratch == NO_BUFFER ? t->head.scratch : t->product_scratch) + 1; /* the last */
    d->memory = take(d, places * sizeof(*d->memory));
    if (d->base)
        memset(d->memory, 0, places * sizeof(*d->memory));
    for (int i = 0; i < STREAMS; i++)
        stream[i] = take(d, rows * width * element);
    for (uint32_t h = 0; h <= t->half_count; h++)
        place(d, t->stream[h].forward, stream[h % STREAMS]);
    for (int tensor = 0; tensor < HALF_TENSOR_COUNT; tensor++) {
        uint64_t bytes = 0;
        for (uint32_t h = 0; h < t->half_count; h++) {
            const uint64_t own = eo_half_tensor_bytes(t, &t->halves[h], (enum half_tensor)tensor, rows);
            bytes = own > bytes ? own : bytes;
        }
        void *memory = take(d, bytes);
        for (uint32_t h = 0; h < t->half_count; h++)
            place(d, t->halves[h].tensor[tensor].forward, memory);
    }
    place(d, t->head.norm, take(d, width * element));
    place(d, t->head.stats, take(d, 2 * sizeof(float)));
    place(d, t->head.logits, take(d, t->head.logit_stride * element));
    place(d, t->product_scratch, take(d, eo_transformer_product_scratch_bytes(t, rows, d->thread_count)));
}

static void take_cache(struct eo_decoder *d)
{
    const eo_transformer *t = d->transformer;
    const uint32_t blocks = t->params.config.layer_count;
    const uint64_t bytes = (uint64_t)t->params.seq * kv_heads_width(t) * eo_dtype_bytes(t->types.compute);
    d->keys = take(d, blocks * sizeof(*d->keys));
    d->values = take(d, blocks * sizeof(*d->values));
    for (uint32_t b = 0; b < blocks; b++) {
        void *keys = take(d, bytes), *values = take(d, bytes);
        if (d->base) {
            d->keys[b] = keys;
            d->values[b] = values;
        }
    }
    d->scores = take(d, (uint64_t)t->params.config.head_count * t->params.seq * sizeof(float));
}

/* Of norms in fp32 (eo_transformer_params.fp32_norms) too. */
static uint64_t weight_bytes(const eo_transformer *t, const eo_parameter_info *info)
{
    return info->element_count * (info->fp32 ? sizeof(float) : eo_dtype_bytes(t->types.compute));
}

/* A view a layer, and the weights that it shows. A layer's parameters have neighbouring numbers. */
static void take_weights(struct eo_decoder *d)
{
    const eo_model *model = d->transformer->model;
    const uint32_t count = eo_model_parameter_count(model);
    void **weights = take(d, count * sizeof(*weights));
    d->views = take(d, eo_model_layer_count(model) * sizeof(*d->views));
    if (d->base)
        memset(d->views, 0, eo_model_layer_count(model) * sizeof(*d->views));
    eo_parameter_info info;
    for (uint32_t k = 0; k < count && eo_model_parameter(model, k, &info) >= 0; k++) {
        void *memory = take(d, weight_bytes(d->transformer, &info));
        if (!d->base)
            continue;
        weights[k] = memory;
        if (d->views[info.layer].parameter_count++ == 0)
            d->views[info.layer].weights = weights + k;
    }
}

static void take_all(struct eo_decoder *d)
{
    d->bytes = 0;
    take_buffers(d);
    take_cache(d);
    take_weights(d);
}

uint64_t eo_decoder_bytes(const eo_transformer *transformer, uint32_t thread_count)
{
    struct eo_decoder counted = {.transformer = transformer, .thread_count = thread_count ? thread_count : 1};
    if (!transformer)
        return 0;
    take_all(&counted);
    return counted.bytes;
}

static eo_decoder *decoder_make(const eo_transformer *transformer, uint32_t thread_count)
{
    struct eo_decoder *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    d->transformer = transformer;
    d->thread_count = thread_count ? thread_count : 1;
    d->base = aligned_alloc(64, eo_decoder_bytes(transformer, thread_count));
    if (!d->base) {
        free(d);
        return NULL;
    }
    take_all(d);
    return d;
}

void eo_decoder_destroy(eo_decoder **decoder)
{
    if (!decoder || !*decoder)
        return;
    free((*decoder)->base);
    free(*decoder);
    *decoder = NULL;
}

/* ---- weights ---- */

/* A tied head's weights are the embedding's. */
static uint32_t layer_of(const eo_transformer *t, uint32_t position)
{
    return position == t->head.position && t->params.config.tied_head ? 0 : position;
}

static void copy_layer(struct eo_decoder *d, uint32_t layer, const eo_view *view)
{
    const eo_model *model = d->transformer->model;
    eo_parameter_info info;
    for (uint32_t k = 0, own = 0; k < eo_model_parameter_count(model) && eo_model_parameter(model, k, &info) >= 0; k++)
        if (info.layer == layer) {
            memcpy(d->views[layer].weights[own], view->weights[own], weight_bytes(d->transformer, &info));
            own++;
        }
}

/* All ranks go through the layers; who keeps them copies. */
static eo_status visit_layers(const eo_transformer *t, eo_runtime *runtime, struct eo_decoder *d)
{
    const eo_view *view;
    EO_TRY(eo_evaluation_begin(runtime));
    for (uint32_t position = 0; position <= t->head.position; position++) {
        EO_TRY(eo_forward_begin(runtime, position, &view));
        if (d && layer_of(t, position) == position)
            copy_layer(d, position, view);
        EO_TRY(eo_forward_end(runtime, position));
    }
    return eo_evaluation_end(runtime);
}

eo_status eo_decoder_create(eo_decoder **out, const eo_transformer *transformer, eo_runtime *runtime, uint32_t thread_count)
{
    if (out)
        *out = NULL;
    if (!transformer || !runtime)
        return EO_ERR_INVALID;
    if (!transformer->kernels->host_memory) {
        eo_layers_log(&transformer->log, EO_LOG_ERROR, "decoder: the host cannot read the memory of device \"%s\"; use "
                      "eo_transformer_logits", transformer->params.device);
        return EO_ERR_UNSUPPORTED;
    }
    EO_TRY(eo_transformer_check_runtime(transformer, runtime));
    eo_decoder *decoder = out ? decoder_make(transformer, thread_count) : NULL;
    eo_status status = visit_layers(transformer, runtime, decoder); /* also without memory: the others are there */
    if (status >= 0 && out && !decoder) {
        eo_layers_log(&transformer->log, EO_LOG_ERROR, "decoder: no memory for %llu bytes",
                      (unsigned long long)eo_decoder_bytes(transformer, thread_count));
        status = EO_ERR_NO_MEMORY;
    }
    if (status < 0)
        eo_decoder_destroy(&decoder);
    if (out)
        *out = decoder;
    return status;
}

/* ---- tokens ---- */

static eo_status decode_rows(struct eo_decoder *d, eo_team *team, const int32_t *tokens, uint32_t count, float *logits)
{
    const eo_transformer *t = d->transformer;
    struct pass pass = {.transformer = t, .team = team, .kernels = t->kernels, .types = t->types, .batch = 1, .seq = count,
                        .rows = count, .decoder = d, .memory = d->memory};
    for (uint32_t position = 0; position < t->head.position; position++) {
        pass.view = &d->views[position];
        EO_TRY(position == 0 ? eo_pass_embedding(&pass, tokens) : eo_block_forward(&pass, position));
    }
    d->count += count;
    if (!logits)
        return EO_OK;
    void *values = NULL;
    pass.view = &d->views[layer_of(t, t->head.position)];
    EO_TRY(eo_head_logits(&pass, count - 1, &values));
    eo_elements_load(t->types.compute, logits, values, 0, t->params.config.vocabulary);
    return EO_OK;
}

eo_status eo_decoder_run(eo_decoder *decoder, eo_team *team, const int32_t *tokens, uint32_t count, float *logits)
{
    if (!decoder || !tokens)
        return EO_ERR_INVALID;
    const eo_transformer *t = decoder->transformer;
    LAYERS_REQUIRE(&t->log, count >= 1 && count <= t->params.seq - decoder->count,
                   "decoder: no room for %u more tokens; %u of %u are used", count, decoder->count, t->params.seq);
    LAYERS_REQUIRE(&t->log, eo_team_thread_count(team) <= decoder->thread_count,
                   "decoder: a team of %u threads, but scratch memory for %u; set thread_count of eo_decoder_create",
                   eo_team_thread_count(team), decoder->thread_count);
    EO_TRY(eo_transformer_check_tokens(t, tokens, count));
    const uint64_t saved = eo_flush_denormals_begin();
    eo_status status = EO_OK;
    for (uint32_t done = 0, rows; status >= 0 && done < count; done += rows) {
        rows = count - done < rows_at_once(t) ? count - done : (uint32_t)rows_at_once(t);
        status = decode_rows(decoder, team, tokens + done, rows, done + rows == count ? logits : NULL);
    }
    eo_flush_denormals_end(saved);
    return status;
}

uint32_t eo_decoder_count(const eo_decoder *decoder)
{
    return decoder ? decoder->count : 0;
}

void eo_decoder_forget(eo_decoder *decoder)
{
    if (decoder)
        decoder->count = 0;
}
