/* SPDX-License-Identifier: MIT
 *
 * The head, over a chunk of tokens after the other: norm, logits, loss, and their gradients written over the logits, so
 * that logits of a chunk are all there ever is. In training it runs in its backward pass.
 *
 * Products have `words` rows of weights: behind the vocabulary's end weights are zeros, so logits and gradients are zeros
 * there, and the loss, which is told the vocabulary, leaves them as they are.
 */
#include "layers/transformer/internal.h"

struct chunk {
    uint64_t first, rows;
    void *input; /* the stream's rows */
    void *norm, *logits;
    float *stats, *losses;
};

static struct chunk chunk_at(const struct pass *pass, uint64_t first, uint64_t rows)
{
    const eo_transformer *t = pass->transformer;
    return (struct chunk){
        .first = first,
        .rows = rows,
        .input = pass_at(pass, pass_buffer(pass, t->stream[t->half_count]), first * t->params.config.width),
        .norm = pass_memory(pass, t->head.norm),
        .stats = pass_memory(pass, t->head.stats),
        .logits = pass_memory(pass, t->head.logits),
        .losses = pass_memory(pass, t->head.losses),
    };
}

/* The chunk that begins at `first`; the last one may be shorter. */
static struct chunk next_chunk(const struct pass *pass, uint64_t first)
{
    const uint64_t most = pass->transformer->head.chunk_rows, left = pass->rows - first;
    return chunk_at(pass, first, most < left ? most : left);
}

static struct eo_norm chunk_norm(const struct pass *pass, const struct chunk *chunk)
{
    const eo_transformer *t = pass->transformer;
    const bool centered = is_gpt2(t);
    return (struct eo_norm){
        .types = pass->types,
        .centered = centered,
        .residual = chunk->input,
        .out = chunk->norm,
        .mean = centered ? chunk->stats : NULL,
        .rstd = centered ? chunk->stats + chunk->rows : chunk->stats,
        .weight = pass_weight(pass, t->head.norm_weight),
        .bias = centered ? pass_weight(pass, t->head.norm_bias) : NULL,
        .eps = t->params.config.norm_eps,
        .rows = chunk->rows,
        .width = t->params.config.width,
        .fp32_weights = t->params.fp32_norms,
    };
}

static eo_status chunk_logits(const struct pass *pass, const struct chunk *chunk)
{
    const eo_transformer *t = pass->transformer;
    const struct head *head = &t->head;
    const uint64_t width = t->params.config.width;
    const struct eo_norm norm = chunk_norm(pass, chunk);
    EO_TRY(pass->kernels->norm_forward(pass->team, &norm));
    return pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types,
        .c = chunk->logits,
        .c_stride = head->logit_stride,
        .a = operand_plain(chunk->norm, width),
        .b = operand_transposed(pass_weight(pass, head->weight), width),
        .m = chunk->rows,
        .n = head->words,
        .k = width,
    });
}

static eo_status chunk_loss(const struct pass *pass, const struct chunk *chunk, const int32_t *targets, bool backward)
{
    const eo_transformer *t = pass->transformer;
    return pass->kernels->cross_entropy(pass->team, &(struct eo_loss){
        .types = pass->types,
        .logits = chunk->logits,
        .losses = chunk->losses,
        .loss_sum = eo_buffer(pass->runtime, t->head.loss),
        .targets = targets + chunk->first,
        .stride = t->head.logit_stride,
        .rows = chunk->rows,
        .vocabulary = t->params.config.vocabulary,
        .scale = !backward ? 0 : t->params.summed_loss ? 1 : eo_loss_scale(pass->runtime) / (float)pass->rows,
        .backward = backward,
        .scratch = pass_product_scratch(pass),
    });
}

static void *stream_gradient_of(const struct pass *pass, const struct chunk *chunk)
{
    void *gradient = eo_buffer(pass->runtime, pass->transformer->stream_gradient);
    return pass_at(pass, gradient, chunk->first * pass->transformer->params.config.width);
}

/* Forward, loss, and the gradient of the norm's output, which goes to the stream's gradient for the time being. */
static eo_status chunk_first(const struct pass *pass, const struct chunk *chunk, const int32_t *targets)
{
    const eo_transformer *t = pass->transformer;
    const uint64_t width = t->params.config.width;
    EO_TRY(chunk_logits(pass, chunk));
    EO_TRY(chunk_loss(pass, chunk, targets, true));
    return pass_multiply(pass, &(struct eo_multiply){
        .types = pass->types,
        .c = stream_gradient_of(pass, chunk),
        .c_stride = width,
        .a = operand_plain(chunk->logits, t->head.logit_stride),
        .b = operand_plain(pass_weight(pass, t->head.weight), width),
        .m = chunk->rows,
        .n = width,
        .k = t->head.words,
    });
}

static eo_status chunk_gradients(const struct pass *pass, const struct chunk *chunk)
{
    const eo_transformer *t = pass->transformer;
    const struct head *head = &t->head;
    const uint64_t width = t->params.config.width;
    const struct eo_norm forward = chunk_norm(pass, chunk);
    const bool accumulate = chunk->first > 0;
    void *gradient = stream_gradient_of(pass, chunk);
    if (pass_gradient(pass, head->weight)) /* else it is frozen */
        EO_TRY(pass_multiply(pass, &(struct eo_multiply){
            .types = pass->types,
            .weight_gradient = true,
            .c = pass_gradient(pass, head->weight),
            .c_stride = width,
            .a = operand_transposed(chunk->logits, head->logit_stride),
            .b = operand_plain(chunk->norm, width),
            .m = head->words,
            .n = width,
            .k = chunk->rows,
            .accumulate = accumulate,
        }));
    return pass->kernels->norm_backward(pass->team, &(struct eo_norm_gradient){
        .types = pass->types,
        .centered = forward.centered,
        .in_gradient = gradient,
        .out_gradient = gradient,
        .in = chunk->input,
        .weight = forward.weight,
        .mean = forward.mean,
        .rstd = forward.rstd,
        .weight_gradient = pass_gradient(pass, head->norm_weight),
        .bias_gradient = forward.centered ? pass_gradient(pass, head->norm_bias) : NULL,
        .rows = chunk->rows,
        .width = width,
        .accumulate = accumulate,
        .scratch = eo_buffer(pass->runtime, head->scratch),
        .fp32_weights = forward.fp32_weights,
    });
}

static eo_status loss_zero(const struct pass *pass)
{
    return pass->kernels->loss_zero(pass->team, eo_buffer(pass->runtime, pass->transformer->head.loss));
}

eo_status eo_head_backward_first(const struct pass *pass, const int32_t *targets)
{
    const struct chunk chunk = next_chunk(pass, 0);
    EO_TRY(loss_zero(pass));
    return chunk_first(pass, &chunk, targets);
}

eo_status eo_head_backward(const struct pass *pass, const int32_t *targets)
{
    struct chunk chunk = next_chunk(pass, 0);
    EO_TRY(chunk_gradients(pass, &chunk));
    for (uint64_t first = chunk.rows; first < pass->rows; first += chunk.rows) {
        chunk = next_chunk(pass, first);
        EO_TRY(chunk_first(pass, &chunk, targets));
        EO_TRY(chunk_gradients(pass, &chunk));
    }
    return EO_OK;
}

eo_status eo_head_loss(const struct pass *pass, const int32_t *targets)
{
    struct chunk chunk;
    EO_TRY(loss_zero(pass));
    for (uint64_t first = 0; first < pass->rows; first += chunk.rows) {
        chunk = next_chunk(pass, first);
        EO_TRY(chunk_logits(pass, &chunk));
        EO_TRY(chunk_loss(pass, &chunk, targets, false));
    }
    return EO_OK;
}

eo_status eo_head_logits(const struct pass *pass, uint64_t row, void **logits)
{
    const struct chunk chunk = chunk_at(pass, row, 1);
    *logits = chunk.logits;
    return chunk_logits(pass, &chunk);
}
