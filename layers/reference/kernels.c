/* SPDX-License-Identifier: MIT */
#include "layers/reference/kernels.h"

#include <math.h>

enum { COLUMNS = 64 }; /* whose sums are taken together; changes no result */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- element-wise ---- */

void eo_ref_residual_add(const struct eo_residual *r)
{
    const eo_dtype dtype = r->types.compute;
    for (uint64_t i = 0; i < r->rows * r->width; i++) {
        float branch = eo_element_load(dtype, r->output, i);
        if (r->bias)
            branch += eo_element_load(dtype, r->bias, i % r->width);
        eo_element_store(dtype, r->output, i, eo_element_load(dtype, r->residual, i) + branch);
    }
}

static float logistic(float x)
{
    return 1 / (1 + expf(-x));
}

void eo_ref_swiglu_forward(const struct eo_swiglu *s)
{
    const eo_dtype dtype = s->types.compute;
    for (uint64_t row = 0; row < s->rows; row++)
        for (uint64_t i = 0; i < s->width; i++) {
            const float gate = eo_element_load(dtype, s->gate, row * s->stride + i);
            const float up = eo_element_load(dtype, s->up, row * s->stride + i);
            eo_element_store(dtype, s->out, row * s->width + i, gate * logistic(gate) * up);
        }
}

void eo_ref_swiglu_backward(const struct eo_swiglu *s)
{
    const eo_dtype dtype = s->types.compute;
    for (uint64_t row = 0; row < s->rows; row++)
        for (uint64_t i = 0; i < s->width; i++) {
            const uint64_t at = row * s->stride + i;
            const float gate = eo_element_load(dtype, s->gate, at), up = eo_element_load(dtype, s->up, at);
            const float gradient = eo_element_load(dtype, s->out_gradient, row * s->width + i);
            const float sigmoid = logistic(gate);
            if (s->out)
                eo_element_store(dtype, s->out, row * s->width + i, gate * sigmoid * up);
            eo_element_store(dtype, s->up_gradient, at, gradient * gate * sigmoid);
            eo_element_store(dtype, s->gate_gradient, at, gradient * up * (sigmoid + gate * sigmoid * (1 - sigmoid)));
        }
}

void eo_ref_rotate(const struct eo_rotation *r, uint64_t first_row)
{
    const eo_dtype dtype = r->types.compute;
    const uint32_t half = r->head_size / 2;
    for (uint64_t row = first_row; row < first_row + r->rows; row++) {
        const float *angles = r->table + (r->positions ? (uint64_t)r->positions[row] : row % r->seq) * r->head_size; /* cosines, then sines */
        for (uint32_t head = 0; head < r->head_count; head++)
            for (uint32_t i = 0; i < half; i++) {
                const uint64_t low = row * r->stride + (uint64_t)head * r->head_size + i, high = low + half;
                const float sine = r->backward ? -angles[half + i] : angles[half + i];
                const float a = eo_element_load(dtype, r->values, low), b = eo_element_load(dtype, r->values, high);
                eo_element_store(dtype, r->values, low, a * angles[i] - b * sine);
                eo_element_store(dtype, r->values, high, b * angles[i] + a * sine);
            }
    }
}

void eo_ref_column_sums(const struct eo_column_sums *s, uint64_t first, uint64_t count)
{
    const uint64_t stride = s->stride ? s->stride : s->width;
    for (uint64_t at = first; at < first + count; at += COLUMNS) {
        const uint64_t columns = least(COLUMNS, first + count - at);
        float sums[COLUMNS] = {0};
        for (uint64_t row = 0; row < s->rows; row++)
            for (uint64_t i = 0; i < columns; i++)
                sums[i] += eo_element_load(s->types.compute, s->gradient, row * stride + at + i);
        eo_elements_store(s->types.gradient, s->bias_gradient, at, sums, columns);
    }
}

/* ---- norms ---- */

/* The one expression of both passes. */
static float normed(float x, float weight, float bias)
{
    return x * weight + bias;
}

static void norm_row(const struct eo_norm *n, const void *in, uint64_t row, float mean, float rstd)
{
    const eo_dtype dtype = n->types.compute, of_weights = eo_norm_weight_dtype(n->types, n->fp32_weights);
    for (uint64_t i = 0; i < n->width; i++) {
        const float x = (eo_element_load(dtype, in, row * n->width + i) - mean) * rstd;
        const float bias = n->centered ? eo_element_load(of_weights, n->bias, i) : 0;
        eo_element_store(dtype, n->out, row * n->width + i, normed(x, eo_element_load(of_weights, n->weight, i), bias));
    }
}

static void sum_row(const struct eo_norm *n, uint64_t row)
{
    const eo_dtype dtype = n->types.compute;
    for (uint64_t i = 0; i < n->width; i++) {
        const uint64_t at = row * n->width + i;
        float branch = eo_element_load(dtype, n->branch, at);
        if (n->branch_bias)
            branch += eo_element_load(dtype, n->branch_bias, i);
        eo_element_store(dtype, n->sum, at, eo_element_load(dtype, n->residual, at) + branch);
    }
}

void eo_ref_norm_forward(const struct eo_norm *n)
{
    const eo_dtype dtype = n->types.compute;
    const void *in = n->branch ? n->sum : n->residual;
    for (uint64_t row = 0; row < n->rows; row++) {
        if (n->branch)
            sum_row(n, row);
        float mean = 0, squares = 0;
        for (uint64_t i = 0; n->centered && i < n->width; i++)
            mean += eo_element_load(dtype, in, row * n->width + i);
        mean /= (float)n->width;
        for (uint64_t i = 0; i < n->width; i++) {
            const float x = eo_element_load(dtype, in, row * n->width + i) - mean;
            squares += x * x;
        }
        const float rstd = 1 / sqrtf(squares / (float)n->width + n->eps);
        if (n->centered)
            n->mean[row] = mean;
        n->rstd[row] = rstd;
        norm_row(n, in, row, mean, rstd);
    }
}

void eo_ref_norm_input_gradient(const struct eo_norm_gradient *n)
{
    const eo_dtype dtype = n->types.compute, of_weights = eo_norm_weight_dtype(n->types, n->fp32_weights);
    const float width = (float)n->width;
    for (uint64_t row = 0; row < n->rows; row++) {
        const uint64_t first = row * n->width;
        const float mean = n->centered ? n->mean[row] : 0, rstd = n->rstd[row];
        float sum = 0, sum_x = 0;
        for (uint64_t i = 0; i < n->width; i++) {
            const float g = eo_element_load(dtype, n->out_gradient, first + i) * eo_element_load(of_weights, n->weight, i);
            const float x = (eo_element_load(dtype, n->in, first + i) - mean) * rstd;
            sum += n->centered ? g : 0;
            sum_x += g * x;
        }
        for (uint64_t i = 0; i < n->width; i++) {
            const float weight = eo_element_load(of_weights, n->weight, i);
            const float g = eo_element_load(dtype, n->out_gradient, first + i) * weight;
            const float x = (eo_element_load(dtype, n->in, first + i) - mean) * rstd;
            const float skip = n->skip_gradient ? eo_element_load(dtype, n->skip_gradient, first + i) : 0;
            eo_element_store(dtype, n->in_gradient, first + i,
                             skip + rstd * (g - sum / width - x * (sum_x / width)));
            if (n->again)
                eo_element_store(dtype, n->again, first + i,
                                 normed(x, weight, n->centered ? eo_element_load(of_weights, n->bias, i) : 0));
        }
    }
}

static void gradient_finish(eo_dtype dtype, void *gradient, uint64_t at, const float *sums, uint64_t count,
                            bool accumulate)
{
    for (uint64_t i = 0; i < count; i++)
        eo_element_store(dtype, gradient, at + i,
                         accumulate ? eo_element_load(dtype, gradient, at + i) + sums[i] : sums[i]);
}

void eo_ref_norm_weight_gradient(const struct eo_norm_gradient *n, uint64_t first, uint64_t count)
{
    const eo_dtype dtype = n->types.compute;
    for (uint64_t at = first; at < first + count; at += COLUMNS) {
        const uint64_t columns = least(COLUMNS, first + count - at);
        float weight_sums[COLUMNS] = {0}, bias_sums[COLUMNS] = {0};
        for (uint64_t row = 0; row < n->rows; row++) {
            const float mean = n->centered ? n->mean[row] : 0, rstd = n->rstd[row];
            for (uint64_t i = 0; i < columns; i++) {
                const float gradient = eo_element_load(dtype, n->out_gradient, row * n->width + at + i);
                const float x = (eo_element_load(dtype, n->in, row * n->width + at + i) - mean) * rstd;
                weight_sums[i] += gradient * x;
                bias_sums[i] += gradient;
            }
        }
        gradient_finish(n->types.gradient, n->weight_gradient, at, weight_sums, columns, n->accumulate);
        if (n->centered)
            gradient_finish(n->types.gradient, n->bias_gradient, at, bias_sums, columns, n->accumulate);
    }
}

/* ---- norms of heads ---- */

static float head_rstd(eo_dtype dtype, const void *in, uint64_t at, uint32_t size, float eps)
{
    float squares = 0;
    for (uint32_t i = 0; i < size; i++) {
        const float x = eo_element_load(dtype, in, at + i);
        squares += x * x;
    }
    return 1 / sqrtf(squares / (float)size + eps);
}

void eo_ref_head_norm_forward(const struct eo_head_norm *n)
{
    const eo_dtype dtype = n->types.compute, of_weights = eo_norm_weight_dtype(n->types, n->fp32_weights);
    const uint32_t size = n->head_size, heads = n->head_count[0] + n->head_count[1];
    for (uint64_t row = 0; row < n->rows; row++) {
        uint64_t from = row * n->in_stride, to = row * n->out_stride;
        for (uint32_t head = 0; head < heads; head++, from += size, to += size) {
            const void *weight = n->weight[head >= n->head_count[0]];
            const float rstd = head_rstd(dtype, n->in, from, size, n->eps);
            for (uint32_t i = 0; i < size; i++)
                eo_element_store(dtype, n->out, to + i,
                                 eo_element_load(dtype, n->in, from + i) * rstd * eo_element_load(of_weights, weight, i));
        }
        memcpy(eo_element_at_mutable(dtype, n->out, to), eo_element_at(dtype, n->in, from),
               n->copied * eo_dtype_bytes(dtype));
    }
}

/* One head of one row; sums: those of its weight. */
static void head_gradient(const struct eo_head_norm_gradient *n, uint64_t in, uint64_t at, const void *weight, float *sums)
{
    const eo_dtype dtype = n->types.compute, of_weights = eo_norm_weight_dtype(n->types, n->fp32_weights);
    const float rstd = head_rstd(dtype, n->in, in, n->head_size, n->eps);
    float sum = 0;
    for (uint32_t i = 0; i < n->head_size; i++) {
        const float d = eo_element_load(dtype, n->gradient, at + i), x = eo_element_load(dtype, n->in, in + i) * rstd;
        sum += d * eo_element_load(of_weights, weight, i) * x;
        sums[i] += d * x;
    }
    for (uint32_t i = 0; i < n->head_size; i++) {
        const float g = eo_element_load(dtype, n->gradient, at + i) * eo_element_load(of_weights, weight, i);
        const float x = eo_element_load(dtype, n->in, in + i) * rstd;
        eo_element_store(dtype, n->gradient, at + i, rstd * (g - x * (sum / (float)n->head_size)));
    }
}

void eo_ref_head_norm_backward(const struct eo_head_norm_gradient *n, uint64_t first, uint64_t count)
{
    const uint64_t part_rows = eo_head_norm_part_rows(n->rows), parts = eo_head_norm_parts(n->rows), size = n->head_size;
    for (uint64_t part = first; part < first + count; part++) {
        float *sums[2] = {n->sums + part * size, n->sums + (parts + part) * size};
        memset(sums[0], 0, size * sizeof(float));
        memset(sums[1], 0, size * sizeof(float));
        for (uint64_t row = part * part_rows; row < least((part + 1) * part_rows, n->rows); row++)
            for (uint32_t head = 0; head < n->head_count[0] + n->head_count[1]; head++) {
                const int k = head >= n->head_count[0];
                head_gradient(n, row * n->in_stride + head * size, row * n->stride + head * size, n->weight[k], sums[k]);
            }
    }
}

void eo_ref_head_norm_weights(const struct eo_head_norm_weights *w)
{
    const uint64_t parts = eo_head_norm_parts(w->rows);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < w->head_size; i++) {
            float sum = 0;
            for (uint64_t part = 0; part < parts; part++)
                sum += w->sums[(k * parts + part) * w->head_size + i];
            eo_element_store(w->types.gradient, w->weight_gradient[k], i, sum);
        }
}

/* ---- embedding ---- */

void eo_ref_embedding_forward(const struct eo_embedding *e, uint64_t first_row)
{
    const eo_dtype dtype = e->types.compute;
    for (uint64_t row = first_row; row < first_row + e->rows; row++)
        for (uint64_t i = 0; i < e->width; i++) {
            float value = eo_element_load(dtype, e->token_table, (uint64_t)(uint32_t)e->tokens[row] * e->width + i);
            if (e->position_table)
                value += eo_element_load(dtype, e->position_table,
                                         (e->positions ? (uint64_t)e->positions[row] : row % e->seq) * e->width + i);
            eo_element_store(dtype, e->out, row * e->width + i, value);
        }
}

static void columns_zero(eo_dtype dtype, void *table, uint64_t rows, uint64_t width, uint64_t first, uint64_t count)
{
    for (uint64_t row = 0; row < rows; row++)
        memset(eo_element_at_mutable(dtype, table, row * width + first), 0, count * eo_dtype_bytes(dtype));
}

static bool is_first_of_token(const int32_t *tokens, uint64_t row)
{
    uint64_t before = 0;
    while (tokens[before] != tokens[row])
        before++;
    return before == row;
}

/* Sums `to` <- rows first, first + step, ... that `tokens` (or NULL: all) says belong together; `adds`: to what is there. */
static void rows_sum(const struct eo_embedding_gradient *e, void *to, const int32_t *tokens, bool adds, uint64_t first,
                     uint64_t step, uint64_t column, uint64_t count)
{
    for (uint64_t at = column; at < column + count; at += COLUMNS) {
        const uint64_t columns = least(COLUMNS, column + count - at);
        float sums[COLUMNS] = {0};
        for (uint64_t row = first; row < e->rows; row += step)
            for (uint64_t i = 0; (!tokens || tokens[row] == tokens[first]) && i < columns; i++)
                sums[i] += eo_element_load(e->types.compute, e->out_gradient, row * e->width + at + i);
        for (uint64_t i = 0; adds && i < columns; i++)
            sums[i] += eo_element_load(e->types.gradient, to, at + i);
        eo_elements_store(e->types.gradient, to, at, sums, columns);
    }
}

/* A search through all rows for each token: slow for long batches, and with nothing to remember. */
void eo_ref_embedding_backward(const struct eo_embedding_gradient *e, uint64_t first, uint64_t count)
{
    const eo_dtype dtype = e->types.gradient;
    if (!e->adds)
        columns_zero(dtype, e->token_gradient, e->vocabulary, e->width, first, count);
    for (uint64_t row = 0; row < e->rows; row++)
        if (is_first_of_token(e->tokens, row))
            rows_sum(e, eo_element_at_mutable(dtype, e->token_gradient, (uint64_t)(uint32_t)e->tokens[row] * e->width),
                     e->tokens, e->adds, row, 1, first, count);
    if (!e->position_gradient)
        return;
    columns_zero(dtype, e->position_gradient, e->positions, e->width, first, count);
    for (uint64_t position = 0; position < e->seq; position++)
        rows_sum(e, eo_element_at_mutable(dtype, e->position_gradient, position * e->width), NULL, false, position, e->seq,
                 first, count);
}

/* ---- loss ---- */

void eo_ref_loss_row(const struct eo_loss *l, uint64_t row)
{
    const eo_dtype dtype = l->types.compute;
    void *logits = eo_element_at_mutable(dtype, l->logits, row * l->stride);
    const uint32_t target = (uint32_t)l->targets[row];
    if (eo_host_loss_ignores(l, row))
        return;
    const float target_logit = eo_element_load(dtype, logits, target);
    float max = -INFINITY;
    bool is_nan = false;
    for (uint64_t i = 0; i < l->vocabulary; i++) {
        const float x = eo_element_load(dtype, logits, i);
        is_nan = is_nan || isnan(x);
        max = x > max ? x : max;
    }
    max = is_nan ? NAN : max;
    double sum = 0;
    for (uint64_t i = 0; i < l->vocabulary; i++)
        sum += expf(eo_element_load(dtype, logits, i) - max);
    l->losses[row] = (float)(log(sum) + max - target_logit);
    const float factor = l->scale / (float)sum;
    for (uint64_t i = 0; l->backward && i < l->vocabulary; i++) {
        const float gradient = expf(eo_element_load(dtype, logits, i) - max) * factor;
        eo_element_store(dtype, logits, i, i == target ? gradient - l->scale : gradient);
    }
}

bool eo_ref_all_finite(eo_dtype dtype, const void *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(eo_element_load(dtype, values, i)))
            return false;
    return true;
}
