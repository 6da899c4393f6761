/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm at one level. A norm without a mean is an RMSNorm: one code with constants switched.
 */
#ifndef EO_LAYERS_CPU_NORM_VECTOR_H
#define EO_LAYERS_CPU_NORM_VECTOR_H

/* out = (x - mean) rstd w + b; the forward and `again` share it, so they agree to the bit. */
INLINE void norm_row(float *out, const float *x, float mean, float rstd, const float *weight, const float *bias,
                     uint64_t width, bool centred)
{
    const vf m = v_set(mean);
    const vf r = v_set(rstd);
    if (centred)
        FOR_VECTORS(i, width, STORE(out + i, v_fma((LOAD(x + i) - m) * r, LOAD(weight + i), LOAD(bias + i))););
    else
        FOR_VECTORS(i, width, STORE(out + i, LOAD(x + i) * r * LOAD(weight + i)););
}

/* sum = residual + branch + branch_bias, where there is a branch; returns the row to norm. */
INLINE const float *norm_input(const struct eo_norm *n, uint64_t row)
{
    const uint64_t width = n->width;
    const float *residual = (const float *)n->residual + row * width;
    if (n->branch == NULL)
        return residual;
    float *sum = (float *)n->sum + row * width;
    const float *branch = (const float *)n->branch + row * width;
    const float *bias = n->branch_bias;
    if (bias == NULL)
        FOR_VECTORS(i, width, STORE(sum + i, LOAD(residual + i) + LOAD(branch + i)););
    else
        FOR_VECTORS(i, width, STORE(sum + i, LOAD(residual + i) + (LOAD(branch + i) + LOAD(bias + i))););
    return sum;
}

/* Elements beyond the row must not count: a load gives zeros there, and zero less the mean is not zero. */
INLINE float row_sum(const float *x, uint64_t width)
{
    vf sum = v_set(0);
    FOR_VECTORS(i, width, sum += LOAD(x + i););
    return v_sum(sum);
}

INLINE float row_squares(const float *x, float mean, uint64_t width)
{
    const vf m = v_set(mean);
    vf sum = v_set(0);
    uint64_t i = 0;
    for (; i + V <= width; i += V) {
        const vf d = v_load(x + i) - m;
        sum = v_fma(d, d, sum);
    }
    float total = v_sum(sum);
    for (; i < width; i++)
        total += (x[i] - mean) * (x[i] - mean);
    return total;
}

INLINE void norm_forward(const struct eo_norm *n, bool centred)
{
    const uint64_t width = n->width;
    for (uint64_t row = 0; row < n->rows; row++) {
        const float *x = norm_input(n, row);
        const float mean = centred ? row_sum(x, width) / (float)width : 0;
        const float rstd = 1 / sqrtf(row_squares(x, mean, width) / (float)width + n->eps);
        norm_row((float *)n->out + row * width, x, mean, rstd, n->weight, n->bias, width, centred);
        if (centred)
            n->mean[row] = mean;
        n->rstd[row] = rstd;
    }
}

INLINE void norm_again(const struct eo_norm *n, bool centred)
{
    const uint64_t width = n->width;
    for (uint64_t row = 0; row < n->rows; row++)
        norm_row((float *)n->out + row * width, (const float *)n->residual + row * width, centred ? n->mean[row] : 0,
                 n->rstd[row], n->weight, n->bias, width, centred);
}

/*
 * With g = out_gradient w and h = (x - mean) rstd: in_gradient = skip + rstd (g - mean(g) - h mean(g h)), where
 * RMSNorm has no mean(g). Each row is read twice, the second time from the first-level cache; out_gradient is read
 * before in_gradient is written at the same place, so that the two may be one.
 */
INLINE void norm_backward(const struct eo_norm_part *n, bool centred)
{
    const uint64_t width = n->width;
    memset(n->weight_sums, 0, width * sizeof(float));
    if (centred)
        memset(n->bias_sums, 0, width * sizeof(float));
    for (uint64_t row = 0; row < n->rows; row++) {
        const float *x = n->in + row * width;
        const float *out_gradient = n->out_gradient + row * width;
        const float *skip = n->skip_gradient == NULL ? NULL : n->skip_gradient + row * width;
        float *in_gradient = n->in_gradient + row * width;
        const vf mean = v_set(centred ? n->mean[row] : 0);
        const vf rstd = v_set(n->rstd[row]);

        vf sum = v_set(0);
        vf sum_h = v_set(0);
        FOR_VECTORS(i, width, {
            const vf d = LOAD(out_gradient + i);
            const vf h = (LOAD(x + i) - mean) * rstd;
            const vf g = d * LOAD(n->weight + i);
            sum += g;
            sum_h = v_fma(g, h, sum_h);
            STORE(n->weight_sums + i, v_fma(d, h, LOAD(n->weight_sums + i)));
            if (centred)
                STORE(n->bias_sums + i, d + LOAD(n->bias_sums + i));
        });
        const vf mean_g = v_set(centred ? v_sum(sum) / (float)width : 0);
        const vf mean_gh = v_set(v_sum(sum_h) / (float)width);
        FOR_VECTORS(i, width, {
            const vf h = (LOAD(x + i) - mean) * rstd;
            const vf g = LOAD(out_gradient + i) * LOAD(n->weight + i);
            const vf past = skip == NULL ? v_set(0) : LOAD(skip + i);
            STORE(in_gradient + i, v_fma(rstd, g - mean_g - h * mean_gh, past));
        });
    }
}

/* The norm of one head of one row. Its rstd is taken again for backward: that is less than to keep it. */
INLINE float head_rstd(const float *x, const struct eo_head_rows *h)
{
    return 1 / sqrtf(row_squares(x, 0, h->head_size) / (float)h->head_size + h->eps);
}

static void head_norm_forward(const struct eo_head_rows *h)
{
    for (uint64_t row = 0; row < h->rows; row++) {
        const float *x = h->in + row * h->in_stride;
        float *out = h->out + row * h->out_stride;
        for (uint32_t head = 0; head < h->head_count; head++, x += h->head_size, out += h->head_size)
            norm_row(out, x, 0, head_rstd(x, h), h->weight, NULL, h->head_size, false);
    }
}

/* As norm_backward without mean and skip. */
static void head_norm_backward(const struct eo_head_rows *h)
{
    const uint64_t size = h->head_size;
    memset(h->sums, 0, size * sizeof(float));
    for (uint64_t row = 0; row < h->rows; row++) {
        const float *x = h->in + row * h->in_stride;
        float *gradient = h->out + row * h->out_stride;
        for (uint32_t head = 0; head < h->head_count; head++, x += size, gradient += size) {
            const vf rstd = v_set(head_rstd(x, h));
            vf sum = v_set(0);
            FOR_VECTORS(i, size, {
                const vf d = LOAD(gradient + i);
                const vf n = LOAD(x + i) * rstd;
                sum = v_fma(d * LOAD(h->weight + i), n, sum);
                STORE(h->sums + i, v_fma(d, n, LOAD(h->sums + i)));
            });
            const vf mean = v_set(v_sum(sum) / (float)size);
            FOR_VECTORS(i, size, {
                const vf n = LOAD(x + i) * rstd;
                STORE(gradient + i, rstd * (LOAD(gradient + i) * LOAD(h->weight + i) - n * mean));
            });
        }
    }
}

static void layernorm_forward(const struct eo_norm *part)
{
    norm_forward(part, true);
}

static void layernorm_again(const struct eo_norm *part)
{
    norm_again(part, true);
}

static void layernorm_backward(const struct eo_norm_part *part)
{
    norm_backward(part, true);
}

static void rmsnorm_forward(const struct eo_norm *part)
{
    norm_forward(part, false);
}

static void rmsnorm_again(const struct eo_norm *part)
{
    norm_again(part, false);
}

static void rmsnorm_backward(const struct eo_norm_part *part)
{
    norm_backward(part, false);
}

#endif
