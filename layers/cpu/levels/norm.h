/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm at one level. A norm without a mean is an RMSNorm: one code with constants switched.
 */
#ifndef EO_LAYERS_CPU_LEVELS_NORM_H
#define EO_LAYERS_CPU_LEVELS_NORM_H

/* out = (x - mean) rstd w + b; the forward and `again` share it, so they agree to the bit. */
INLINE void norm_row(element *out, const element *x, float mean, float rstd, const element *weight, const element *bias,
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
INLINE const element *norm_input(const struct eo_norm *n, uint64_t row)
{
    const uint64_t width = n->width;
    const element *residual = (const element *)n->residual + row * width;
    if (n->branch == NULL)
        return residual;
    element *sum = (element *)n->sum + row * width;
    residual_row(sum, residual, (const element *)n->branch + row * width, n->branch_bias, width);
    return sum;
}

/* Elements beyond the row must not count: a load gives zeros there, and zero less the mean is not zero. */
INLINE float row_sum(const element *x, uint64_t width)
{
    vf sum = v_set(0);
    FOR_VECTORS(i, width, sum += LOAD(x + i););
    return v_sum(sum);
}

INLINE float row_squares(const element *x, float mean, uint64_t width)
{
    const vf m = v_set(mean);
    vf sum = v_set(0);
    uint64_t i = 0;
    for (; i + V <= width; i += V) {
        const vf d = LOAD_WHOLE(x + i) - m;
        sum = v_fma(d, d, sum);
    }
    float total = v_sum(sum);
    for (; i < width; i++)
        total += (float_of(x[i]) - mean) * (float_of(x[i]) - mean);
    return total;
}

INLINE void norm_forward(const struct eo_norm *n, bool centred)
{
    const uint64_t width = n->width;
    for (uint64_t row = 0; row < n->rows; row++) {
        const element *x = norm_input(n, row);
        const float mean = centred ? row_sum(x, width) / (float)width : 0;
        const float rstd = 1 / sqrtf(row_squares(x, mean, width) / (float)width + n->eps);
        norm_row((element *)n->out + row * width, x, mean, rstd, n->weight, n->bias, width, centred);
        if (centred)
            n->mean[row] = mean;
        n->rstd[row] = rstd;
    }
}

INLINE void norm_again(const struct eo_norm *n, bool centred)
{
    const uint64_t width = n->width;
    for (uint64_t row = 0; row < n->rows; row++)
        norm_row((element *)n->out + row * width, (const element *)n->residual + row * width, centred ? n->mean[row] : 0,
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
    const element *weight = n->weight;
    memset(n->weight_sums, 0, width * sizeof(float));
    if (centred)
        memset(n->bias_sums, 0, width * sizeof(float));
    for (uint64_t row = 0; row < n->rows; row++) {
        const element *x = (const element *)n->in + row * width;
        const element *out_gradient = (const element *)n->out_gradient + row * width;
        const element *skip = n->skip_gradient == NULL ? NULL : (const element *)n->skip_gradient + row * width;
        element *in_gradient = (element *)n->in_gradient + row * width;
        const vf mean = v_set(centred ? n->mean[row] : 0);
        const vf rstd = v_set(n->rstd[row]);

        vf sum = v_set(0);
        vf sum_h = v_set(0);
        FOR_VECTORS(i, width, {
            const vf d = LOAD(out_gradient + i);
            const vf h = (LOAD(x + i) - mean) * rstd;
            const vf g = d * LOAD(weight + i);
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
            const vf g = LOAD(out_gradient + i) * LOAD(weight + i);
            const vf past = skip == NULL ? v_set(0) : LOAD(skip + i);
            STORE(in_gradient + i, v_fma(rstd, g - mean_g - h * mean_gh, past));
        });
    }
}

/* The norm of one head of one row. Its rstd is taken again for backward: that is less than to keep it. */
INLINE float head_rstd(const element *x, const struct eo_head_rows *h)
{
    return 1 / sqrtf(row_squares(x, 0, h->head_size) / (float)h->head_size + h->eps);
}

static void head_norm_forward(const struct eo_head_rows *h)
{
    for (uint64_t row = 0; row < h->rows; row++) {
        const element *x = (const element *)h->in + row * h->in_stride;
        element *out = (element *)h->out + row * h->out_stride;
        for (uint32_t head = 0; head < h->head_count; head++, x += h->head_size, out += h->head_size)
            norm_row(out, x, 0, head_rstd(x, h), h->weight, NULL, h->head_size, false);
    }
}

/* As norm_backward without mean and skip. */
static void head_norm_backward(const struct eo_head_rows *h)
{
    const uint64_t size = h->head_size;
    const element *weight = h->weight;
    memset(h->sums, 0, size * sizeof(float));
    for (uint64_t row = 0; row < h->rows; row++) {
        const element *x = (const element *)h->in + row * h->in_stride;
        element *gradient = (element *)h->out + row * h->out_stride;
        for (uint32_t head = 0; head < h->head_count; head++, x += size, gradient += size) {
            const vf rstd = v_set(head_rstd(x, h));
            vf sum = v_set(0);
            FOR_VECTORS(i, size, {
                const vf d = LOAD(gradient + i);
                const vf n = LOAD(x + i) * rstd;
                sum = v_fma(d * LOAD(weight + i), n, sum);
                STORE(h->sums + i, v_fma(d, n, LOAD(h->sums + i)));
            });
            const vf mean = v_set(v_sum(sum) / (float)size);
            FOR_VECTORS(i, size, {
                const vf n = LOAD(x + i) * rstd;
                STORE(gradient + i, rstd * (LOAD(gradient + i) * LOAD(weight + i) - n * mean));
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
