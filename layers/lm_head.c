/* SPDX-License-Identifier: MIT
 *
 * The head, over a chunk of tokens after the other: norm, logits, loss, and their gradients written over the logits, so
 * that logits of a chunk are all there ever is. In training it runs in its backward pass.
 */
#include "layers/transformer.h"

struct chunk {
    uint64_t first, rows;
    const float *input; /* the stream's rows */
    float *norm, *stats, *logits, *losses;
};

static struct chunk chunk_at(const struct pass *pass, uint64_t first, uint64_t rows)
{
    const eo_transformer *t = pass->transformer;
    const float *stream = pass_buffer(pass, t->stream[t->half_count]);
    return (struct chunk){
        .first = first,
        .rows = rows,
        .input = stream + first * t->params.config.width,
        .norm = eo_buffer(pass->runtime, t->head.norm),
        .stats = eo_buffer(pass->runtime, t->head.stats),
        .logits = eo_buffer(pass->runtime, t->head.logits),
        .losses = eo_buffer(pass->runtime, t->head.losses),
    };
}

/* The chunk that begins at `first`; the last one may be shorter. */
static struct chunk next_chunk(const struct pass *pass, uint64_t first)
{
    const uint64_t most = pass->transformer->head.chunk_rows, left = pass->rows - first;
    return chunk_at(pass, first, most < left ? most : left);
}

static eo_status chunk_logits(const struct pass *pass, const struct chunk *chunk, float *logits)
{
    const eo_transformer *t = pass->transformer;
    const struct head *head = &t->head;
    const uint64_t width = t->params.config.width, vocabulary = t->params.config.vocabulary;
    const struct eo_norm_input input = {.residual = chunk->input};
    if (is_gpt2(t))
        eo_layernorm_forward(pass->team, NULL, chunk->norm, chunk->stats, chunk->stats + chunk->rows, input,
                             pass_weight(pass, head->norm_weight), pass_weight(pass, head->norm_bias),
                             t->params.config.norm_eps, chunk->rows, width);
    else
        eo_rmsnorm_forward(pass->team, NULL, chunk->norm, chunk->stats, input, pass_weight(pass, head->norm_weight),
                           t->params.config.norm_eps, chunk->rows, width);
    return eo_multiply(pass->team, logits, head->logit_stride, eo_plain(chunk->norm, width),
                       eo_transposed(pass_weight(pass, head->weight), width), chunk->rows, vocabulary, width, false);
}

static float *stream_gradient_of(const struct pass *pass, const struct chunk *chunk)
{
    float *gradient = eo_buffer(pass->runtime, pass->transformer->stream_gradient);
    return gradient + chunk->first * pass->transformer->params.config.width;
}

/* Forward, loss, and the gradient of the norm's output, which goes to the stream's gradient for the time being. */
static eo_status chunk_first(const struct pass *pass, const struct chunk *chunk, const int32_t *targets,
                             double *loss_sum)
{
    const eo_transformer *t = pass->transformer;
    const uint64_t width = t->params.config.width, vocabulary = t->params.config.vocabulary;
    const uint64_t stride = t->head.logit_stride;
    const float scale = eo_loss_scale(pass->runtime) / (float)pass->rows;
    LAYERS_TRY(chunk_logits(pass, chunk, chunk->logits));
    *loss_sum += eo_cross_entropy_backward(pass->team, chunk->losses, chunk->logits, stride, targets + chunk->first,
                                           chunk->rows, vocabulary, scale);
    return eo_multiply(pass->team, stream_gradient_of(pass, chunk), width, eo_plain(chunk->logits, stride),
                       eo_plain(pass_weight(pass, t->head.weight), width), chunk->rows, width, vocabulary, false);
}

static eo_status chunk_gradients(const struct pass *pass, const struct chunk *chunk)
{
    const eo_transformer *t = pass->transformer;
    const struct head *head = &t->head;
    const uint64_t width = t->params.config.width, vocabulary = t->params.config.vocabulary;
    const bool accumulate = chunk->first > 0;
    float *gradient = stream_gradient_of(pass, chunk);
    void *scratch = eo_buffer(pass->runtime, head->scratch);
    LAYERS_TRY(eo_multiply(pass->team, pass_gradient(pass, head->weight), width,
                           eo_transposed(chunk->logits, head->logit_stride), eo_plain(chunk->norm, width), vocabulary,
                           width, chunk->rows, accumulate));
    if (is_gpt2(t))
        eo_layernorm_backward(pass->team, gradient, NULL, gradient, chunk->input, chunk->stats,
                              chunk->stats + chunk->rows, pass_weight(pass, head->norm_weight),
                              pass_gradient(pass, head->norm_weight), pass_gradient(pass, head->norm_bias),
                              chunk->rows, width, accumulate, scratch);
    else
        eo_rmsnorm_backward(pass->team, gradient, NULL, gradient, chunk->input, chunk->stats,
                            pass_weight(pass, head->norm_weight), pass_gradient(pass, head->norm_weight),
                            chunk->rows, width, accumulate, scratch);
    return EO_OK;
}

eo_status eo_head_backward_first(const struct pass *pass, const int32_t *targets, double *loss_sum)
{
    const struct chunk chunk = next_chunk(pass, 0);
    return chunk_first(pass, &chunk, targets, loss_sum);
}

eo_status eo_head_backward(const struct pass *pass, const int32_t *targets, double *loss_sum)
{
    struct chunk chunk = next_chunk(pass, 0);
    LAYERS_TRY(chunk_gradients(pass, &chunk));
    for (uint64_t first = chunk.rows; first < pass->rows; first += chunk.rows) {
        chunk = next_chunk(pass, first);
        LAYERS_TRY(chunk_first(pass, &chunk, targets, loss_sum));
        LAYERS_TRY(chunk_gradients(pass, &chunk));
    }
    return EO_OK;
}

eo_status eo_head_loss(const struct pass *pass, const int32_t *targets, double *loss_sum)
{
    struct chunk chunk;
    for (uint64_t first = 0; first < pass->rows; first += chunk.rows) {
        chunk = next_chunk(pass, first);
        LAYERS_TRY(chunk_logits(pass, &chunk, chunk.logits));
        *loss_sum += eo_cross_entropy(pass->team, chunk.losses, chunk.logits, pass->transformer->head.logit_stride,
                                      targets + first, chunk.rows, pass->transformer->params.config.vocabulary);
    }
    return EO_OK;
}

eo_status eo_head_logits(const struct pass *pass, uint64_t row, float *logits)
{
    const struct chunk chunk = chunk_at(pass, row, 1);
    return chunk_logits(pass, &chunk, logits);
}
