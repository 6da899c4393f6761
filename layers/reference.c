/* SPDX-License-Identifier: MIT */
#include "layers/reference.h"

#include <math.h>
#include <string.h>

static double at(struct eo_matrix x, uint64_t row, uint64_t column)
{
    return x.transposed ? x.values[column * x.stride + row] : x.values[row * x.stride + column];
}

void eo_multiply_ref(float *c, uint64_t c_stride, struct eo_matrix a, struct eo_matrix b, uint64_t m, uint64_t n,
                     uint64_t k, bool accumulate)
{
    for (uint64_t row = 0; row < m; row++)
        for (uint64_t column = 0; column < n; column++) {
            double sum = accumulate ? c[row * c_stride + column] : 0;
            for (uint64_t i = 0; i < k; i++)
                sum += at(a, row, i) * at(b, i, column);
            c[row * c_stride + column] = (float)sum;
        }
}

void eo_add_ref(float *out, const float *a, const float *b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

void eo_bias_add_ref(float *values, const float *bias, uint64_t rows, uint64_t width)
{
    for (uint64_t i = 0; i < rows * width; i++)
        values[i] += bias[i % width];
}

void eo_bias_gradient_ref(float *bias_gradient, const float *gradient, uint64_t rows, uint64_t width, bool accumulate)
{
    for (uint64_t column = 0; column < width; column++) {
        double sum = accumulate ? bias_gradient[column] : 0;
        for (uint64_t row = 0; row < rows; row++)
            sum += gradient[row * width + column];
        bias_gradient[column] = (float)sum;
    }
}

/* ---- activation functions ---- */

static const double gelu_factor = 0.79788456080286535588; /* sqrt(2 / pi) */

void eo_gelu_forward_ref(float *out, const float *in, const float *bias, uint64_t rows, uint64_t width)
{
    for (uint64_t i = 0; i < rows * width; i++) {
        const double x = (double)in[i] + (bias == NULL ? 0 : bias[i % width]);
        out[i] = (float)(0.5 * x * (1 + tanh(gelu_factor * (x + 0.044715 * x * x * x))));
    }
}

void eo_gelu_backward_ref(float *in_gradient, const float *out_gradient, const float *in, const float *bias,
                          float *bias_gradient, uint64_t rows, uint64_t width, bool accumulate)
{
    for (uint64_t column = 0; column < width; column++) {
        double sum = accumulate ? bias_gradient[column] : 0;
        for (uint64_t row = 0; row < rows; row++) {
            const uint64_t i = row * width + column;
            const double x = (double)in[i] + (bias == NULL ? 0 : bias[column]);
            const double t = tanh(gelu_factor * (x + 0.044715 * x * x * x));
            const double slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_factor * (1 + 3 * 0.044715 * x * x);
            const double gradient = out_gradient[i] * slope;
            in_gradient[i] = (float)gradient;
            sum += gradient;
        }
        if (bias_gradient != NULL)
            bias_gradient[column] = (float)sum;
    }
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

void eo_swiglu_forward_ref(float *out, const float *gate, const float *up, uint64_t stride, uint64_t rows,
                           uint64_t width)
{
    for (uint64_t i = 0; i < rows * width; i++) {
        const uint64_t from = i / width * stride + i % width;
        out[i] = (float)(gate[from] * logistic(gate[from]) * up[from]);
    }
}

void eo_swiglu_backward_ref(float *gate_gradient, float *up_gradient, const float *out_gradient, const float *gate,
                            const float *up, uint64_t stride, uint64_t rows, uint64_t width)
{
    for (uint64_t i = 0; i < rows * width; i++) {
        const uint64_t from = i / width * stride + i % width;
        const double g = gate[from];
        const double u = up[from];
        const double s = logistic(g);
        up_gradient[from] = (float)(out_gradient[i] * g * s);
        gate_gradient[from] = (float)(out_gradient[i] * u * (s + g * s * (1 - s)));
    }
}

/* As Llama 3.1 was published: by wavelengths, in positions. */
static double rope_frequency_ref(double theta, uint32_t pair, uint32_t head_size, const eo_rope_scaling *s)
{
    const double frequency = pow(theta, -2.0 * pair / head_size);
    if (s == NULL || s->kind == EO_ROPE_PLAIN)
        return frequency;
    if (s->kind == EO_ROPE_LINEAR)
        return frequency / (double)s->factor;
    const double low = (double)s->low_freq_factor, high = (double)s->high_freq_factor;
    const double wavelength = 2 * 3.14159265358979323846 / frequency;
    if (wavelength < s->original_context / high)
        return frequency;
    if (wavelength > s->original_context / low)
        return frequency / (double)s->factor;
    const double smooth = (s->original_context / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / (double)s->factor + smooth * frequency;
}

void eo_rope_ref(float *values, uint64_t stride, float theta, const eo_rope_scaling *scaling, uint64_t rows, uint32_t seq,
                 uint32_t head_count, uint32_t head_size, bool backward)
{
    for (uint64_t row = 0; row < rows; row++)
        for (uint32_t head = 0; head < head_count; head++)
            for (uint32_t i = 0; i < head_size / 2; i++) {
                float *low = values + row * stride + (uint64_t)head * head_size + i;
                float *high = low + head_size / 2;
                const double angle = (double)(row % seq) * rope_frequency_ref((double)theta, i, head_size, scaling) *
                                     (backward ? -1 : 1);
                const double a = *low;
                const double b = *high;
                *low = (float)(a * cos(angle) - b * sin(angle));
                *high = (float)(b * cos(angle) + a * sin(angle));
            }
}

/* ---- norms ---- */

void eo_norm_sum_ref(float *sum, struct eo_norm_input input, uint64_t rows, uint64_t width)
{
    for (uint64_t i = 0; i < rows * width; i++)
        sum[i] = (float)((double)input.residual[i] + (input.branch == NULL ? 0 : input.branch[i]) +
                         (input.branch == NULL || input.branch_bias == NULL ? 0 : input.branch_bias[i % width]));
}

void eo_norm_forward_ref(float *out, float *mean, float *rstd, const float *in, const float *weight,
                         const float *bias, float eps, uint64_t rows, uint64_t width)
{
    for (uint64_t row = 0; row < rows; row++) {
        const float *x = in + row * width;
        double m = 0;
        for (uint64_t i = 0; bias != NULL && i < width; i++)
            m += x[i];
        m /= (double)width;
        double squares = 0;
        for (uint64_t i = 0; i < width; i++)
            squares += (x[i] - m) * (x[i] - m);
        const double r = 1 / sqrt(squares / (double)width + eps);
        for (uint64_t i = 0; i < width; i++)
            out[row * width + i] = (float)((x[i] - m) * r * weight[i] + (bias == NULL ? 0 : bias[i]));
        if (mean != NULL)
            mean[row] = (float)m;
        rstd[row] = (float)r;
    }
}

void eo_norm_backward_ref(float *in_gradient, const float *skip_gradient, const float *out_gradient, const float *in,
                          const float *mean, const float *rstd, const float *weight, float *weight_gradient,
                          float *bias_gradient, uint64_t rows, uint64_t width, bool accumulate)
{
    for (uint64_t column = 0; column < width; column++) {
        double weight_sum = accumulate ? weight_gradient[column] : 0;
        double bias_sum = accumulate && bias_gradient != NULL ? bias_gradient[column] : 0;
        for (uint64_t row = 0; row < rows; row++) {
            const uint64_t i = row * width + column;
            weight_sum += out_gradient[i] * ((double)in[i] - (mean == NULL ? 0 : mean[row])) * rstd[row];
            bias_sum += out_gradient[i];
        }
        weight_gradient[column] = (float)weight_sum;
        if (bias_gradient != NULL)
            bias_gradient[column] = (float)bias_sum;
    }
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t first = row * width;
        const double m = mean == NULL ? 0 : mean[row];
        const double r = rstd[row];
        double sum = 0;
        double sum_h = 0;
        for (uint64_t i = 0; i < width; i++) {
            const double g = (double)out_gradient[first + i] * weight[i];
            sum += mean == NULL ? 0 : g;
            sum_h += g * (in[first + i] - m) * r;
        }
        for (uint64_t i = 0; i < width; i++) {
            const double g = (double)out_gradient[first + i] * weight[i];
            const double h = (in[first + i] - m) * r;
            const double through = r * (g - sum / (double)width - h * sum_h / (double)width);
            in_gradient[first + i] = (float)((skip_gradient == NULL ? 0 : skip_gradient[first + i]) + through);
        }
    }
}

/* ---- attention ---- */

/* Where the head of a query token and the head of a key token begin. */
static uint64_t q_at(const struct eo_attention_shape *s, uint32_t sequence, uint32_t head, uint32_t token)
{
    return ((uint64_t)sequence * s->seq + token) * s->q_stride + (uint64_t)head * s->head_size;
}

static uint64_t kv_at(const struct eo_attention_shape *s, uint32_t sequence, uint32_t head, uint32_t token)
{
    const uint32_t kv_head = head / (s->head_count / s->kv_head_count);
    return ((uint64_t)sequence * s->seq + token) * s->kv_stride + (uint64_t)kv_head * s->head_size;
}

static uint64_t out_at(const struct eo_attention_shape *s, uint32_t sequence, uint32_t head, uint32_t token)
{
    return ((uint64_t)sequence * s->seq + token) * s->out_stride + (uint64_t)head * s->head_size;
}

static double dot(const float *a, const float *b, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* The log of the sum of exponentials of one query's scores. */
static double query_log_sum(const float *query, const float *k, uint32_t sequence, uint32_t head, uint32_t token,
                            const struct eo_attention_shape *s)
{
    const double scale = 1 / sqrt(s->head_size);
    double max = -INFINITY;
    for (uint32_t key = 0; key <= token; key++)
        max = fmax(max, scale * dot(query, k + kv_at(s, sequence, head, key), s->head_size));
    double sum = 0;
    for (uint32_t key = 0; key <= token; key++)
        sum += exp(scale * dot(query, k + kv_at(s, sequence, head, key), s->head_size) - max);
    return max + log(sum);
}

static double query_weight(const float *query, const float *key, double log_sum, const struct eo_attention_shape *s)
{
    return exp(dot(query, key, s->head_size) / sqrt(s->head_size) - log_sum);
}

void eo_attention_forward_ref(float *out, float *log_sum_exp, const float *q, const float *k, const float *v,
                              const struct eo_attention_shape *s)
{
    for (uint32_t row = 0; row < s->batch * s->head_count * s->seq; row++) {
        const uint32_t token = row % s->seq;
        const uint32_t head = row / s->seq % s->head_count;
        const uint32_t sequence = row / s->seq / s->head_count;
        const float *query = q + q_at(s, sequence, head, token);
        const double log_sum = query_log_sum(query, k, sequence, head, token, s);
        for (uint32_t i = 0; i < s->head_size; i++) {
            double sum = 0;
            for (uint32_t key = 0; key <= token; key++) {
                const uint64_t kv = kv_at(s, sequence, head, key);
                sum += query_weight(query, k + kv, log_sum, s) * v[kv + i];
            }
            out[out_at(s, sequence, head, token) + i] = (float)sum;
        }
        if (log_sum_exp != NULL)
            log_sum_exp[row] = (float)log_sum;
    }
}

static void gradients_zero(float *gradient, uint64_t stride, uint64_t rows, uint64_t columns)
{
    for (uint64_t row = 0; row < rows; row++)
        memset(gradient + row * stride, 0, columns * sizeof(float));
}

/* Sums over the queries are taken in float, one after the other: tolerances of the tests allow for it. */
void eo_attention_backward_ref(float *q_gradient, float *k_gradient, float *v_gradient, const float *out_gradient,
                               const float *q, const float *k, const float *v, const struct eo_attention_shape *s)
{
    const double scale = 1 / sqrt(s->head_size);
    const uint64_t tokens = (uint64_t)s->batch * s->seq;
    gradients_zero(q_gradient, s->q_stride, tokens, (uint64_t)s->head_count * s->head_size);
    gradients_zero(k_gradient, s->kv_stride, tokens, (uint64_t)s->kv_head_count * s->head_size);
    gradients_zero(v_gradient, s->kv_stride, tokens, (uint64_t)s->kv_head_count * s->head_size);
    for (uint32_t row = 0; row < s->batch * s->head_count * s->seq; row++) {
        const uint32_t token = row % s->seq;
        const uint32_t head = row / s->seq % s->head_count;
        const uint32_t sequence = row / s->seq / s->head_count;
        const uint64_t at_q = q_at(s, sequence, head, token);
        const float *d_out = out_gradient + out_at(s, sequence, head, token);
        const double log_sum = query_log_sum(q + at_q, k, sequence, head, token, s);
        double delta = 0;
        for (uint32_t key = 0; key <= token; key++) {
            const uint64_t kv = kv_at(s, sequence, head, key);
            delta += query_weight(q + at_q, k + kv, log_sum, s) * dot(d_out, v + kv, s->head_size);
        }
        for (uint32_t key = 0; key <= token; key++) {
            const uint64_t kv = kv_at(s, sequence, head, key);
            const double weight = query_weight(q + at_q, k + kv, log_sum, s);
            const double slope = weight * (dot(d_out, v + kv, s->head_size) - delta) * scale;
            for (uint32_t i = 0; i < s->head_size; i++) {
                v_gradient[kv + i] = (float)(v_gradient[kv + i] + weight * d_out[i]);
                k_gradient[kv + i] = (float)(k_gradient[kv + i] + slope * q[at_q + i]);
                q_gradient[at_q + i] = (float)(q_gradient[at_q + i] + slope * k[kv + i]);
            }
        }
    }
}

/* ---- embedding and loss ---- */

void eo_embedding_forward_ref(float *out, const int32_t *tokens, const float *token_table,
                              const float *position_table, uint64_t rows, uint32_t seq, uint64_t width)
{
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t i = 0; i < width; i++)
            out[row * width + i] = token_table[(uint64_t)tokens[row] * width + i] +
                                   (position_table == NULL ? 0 : position_table[row % seq * width + i]);
}

void eo_embedding_backward_ref(float *token_gradient, float *position_gradient, const float *out_gradient,
                               const int32_t *tokens, uint64_t rows, uint32_t seq, uint64_t width,
                               uint64_t vocabulary, uint64_t positions, bool accumulate)
{
    for (uint64_t i = 0; i < vocabulary * width; i++) {
        double sum = accumulate ? token_gradient[i] : 0;
        for (uint64_t row = 0; row < rows; row++)
            sum += (uint64_t)tokens[row] == i / width ? out_gradient[row * width + i % width] : 0;
        token_gradient[i] = (float)sum;
    }
    for (uint64_t i = 0; position_gradient != NULL && i < positions * width; i++) {
        double sum = accumulate ? position_gradient[i] : 0;
        for (uint64_t row = i / width; i / width < seq && row < rows; row += seq)
            sum += out_gradient[row * width + i % width];
        position_gradient[i] = (float)sum;
    }
}

double eo_cross_entropy_ref(float *losses, const float *logits, float *gradient, uint64_t stride,
                            const int32_t *targets, uint64_t rows, uint64_t vocabulary, float scale)
{
    double total = 0;
    for (uint64_t row = 0; row < rows; row++) {
        const float *x = logits + row * stride;
        double max = -INFINITY;
        for (uint64_t i = 0; i < vocabulary; i++)
            max = fmax(max, x[i]);
        double sum = 0;
        for (uint64_t i = 0; i < vocabulary; i++)
            sum += exp(x[i] - max);
        losses[row] = (float)(log(sum) + max - x[targets[row]]);
        total += losses[row];
        for (uint64_t i = 0; gradient != NULL && i < vocabulary; i++)
            gradient[row * stride + i] =
                (float)((exp(x[i] - max) / sum - (i == (uint64_t)targets[row] ? 1 : 0)) * scale);
    }
    return total;
}
