/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm at one level. A norm without a mean is an RMSNorm: one code with constants switched.
 */
#ifndef EO_LAYERS_CPU_LEVELS_NORM_H
#define EO_LAYERS_CPU_LEVELS_NORM_H

/* Of a norm's weights or biases. */
#define WEIGHT(wide, values, i) \
    ((wide) ? LOAD((const float *)(values) + (i)) : LOAD((const element *)(values) + (i)))

/* out = h w + b with h = (x - mean) rstd: forward and backward share it, so they agree to the bit. */
#define NORMED(h, wide, weight, bias, i, centred) \
    ((centred) ? v_fma(h, WEIGHT(wide, weight, i), WEIGHT(wide, bias, i)) : (h)*WEIGHT(wide, weight, i))

INLINE void norm_row(element *out, const element *x, float mean, float rstd, const void *weight, const void *bias,
                     uint64_t width, bool centred, bool wide)
{
    const vf m = v_set(mean);
    const vf r = v_set(rstd);
    FOR_VECTORS(i, width, {
        const vf h = (centred ? LOAD(x + i) - m : LOAD(x + i)) * r;
        STORE(out + i, NORMED(h, wide, weight, bias, i, centred));
    });
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

INLINE void norm_forward(const struct eo_norm *n, bool centred, bool wide)
{
    const uint64_t width = n->width;
    for (uint64_t row = 0; row < n->rows; row++) {
        const element *x = norm_input(n, row);
        const float mean = centred ? row_sum(x, width) / (float)width : 0;
        const float rstd = 1 / sqrtf(row_squares(x, mean, width) / (float)width + n->eps);
        norm_row((element *)n->out + row * width, x, mean, rstd, n->weight, n->bias, width, centred, wide);
        if (centred)
            n->mean[row] = mean;
        n->rstd[row] = rstd;
    }
}

/*
 * With g = out_gradient w and h = (x - mean) rstd: in_gradient = skip + rstd (g - mean(g) - h mean(g h)), where
 * RMSNorm has no mean(g). Each row is read twice, the second time from the first-level cache; out_gradient is read
 * before in_gradient or `again` is written at the same place, so that the two may be one.
 */
INLINE void norm_backward(const struct eo_norm_part *n, bool centred, bool wide)
{
    const uint64_t width = n->width;
    memset(n->weight_sums, 0, width * sizeof(float));
    if (centred)
        memset(n->bias_sums, 0, width * sizeof(float));
    for (uint64_t row = 0; row < n->rows; row++) {
        const element *x = (const element *)n->in + row * width;
        const element *out_gradient = (const element *)n->out_gradient + row * width;
        const element *skip = n->skip_gradient == NULL ? NULL : (const element *)n->skip_gradient + row * width;
        element *in_gradient = (element *)n->in_gradient + row * width;
        element *again = n->again == NULL ? NULL : (element *)n->again + row * width;
        const vf mean = v_set(centred ? n->mean[row] : 0);
        const vf rstd = v_set(n->rstd[row]);

        vf sum = v_set(0);
        vf sum_h = v_set(0);
        FOR_VECTORS(i, width, {
            const vf d = LOAD(out_gradient + i);
            const vf h = (LOAD(x + i) - mean) * rstd;
            const vf g = d * WEIGHT(wide, n->weight, i);
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
            const vf g = LOAD(out_gradient + i) * WEIGHT(wide, n->weight, i);
            const vf past = skip == NULL ? v_set(0) : LOAD(skip + i);
            STORE(in_gradient + i, v_fma(rstd, g - mean_g - h * mean_gh, past));
            if (again != NULL)
                STORE(again + i, NORMED(h, wide, n->weight, n->bias, i, centred));
        });
    }
}

/* The norm of one head of one row. Its rstd is taken again for backward: that is less than to keep it. */
INLINE float head_rstd(const element *x, const struct eo_head_rows *h)
{
    return 1 / sqrtf(row_squares(x, 0, h->head_size) / (float)h->head_size + h->eps);
}

INLINE void head_forward(const struct eo_head_rows *h, bool wide)
{
    for (uint64_t row = 0; row < h->rows; row++) {
        const element *x = (const element *)h->in + row * h->in_stride;
        element *out = (element *)h->out + row * h->out_stride;
        for (uint32_t head = 0; head < h->head_count; head++, x += h->head_size, out += h->head_size)
            norm_row(out, x, 0, head_rstd(x, h), h->weight, NULL, h->head_size, false, wide);
    }
}

/* As norm_backward without mean and skip. */
INLINE void head_backward(const struct eo_head_rows *h, bool wide)
{
    const uint64_t size = h->head_size;
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
                sum = v_fma(d * WEIGHT(wide, h->weight, i), n, sum);
                STORE(h->sums + i, v_fma(d, n, LOAD(h->sums + i)));
            });
            const vf mean = v_set(v_sum(sum) / (float)size);
            FOR_VECTORS(i, size, {
                const vf n = LOAD(x + i) * rstd;
                STORE(gradient + i, rstd * (LOAD(gradient + i) * WEIGHT(wide, h->weight, i) - n * mean));
            });
        }
    }
}

#undef NORMED

/* A kernel of its own for each type of the weights. */
#define NORM_KERNEL(name, params, kernel, centred)   \
    static void name(const struct params *part)       \
    {                                                 \
        if (part->fp32_weights)                       \
            kernel(part, centred, true);        \
        else                                          \
            kernel(part, centred, false);       \
    }
NORM_KERNEL(layernorm_forward, eo_norm, norm_forward, true)
NORM_KERNEL(layernorm_backward, eo_norm_part, norm_backward, true)
NORM_KERNEL(rmsnorm_forward, eo_norm, norm_forward, false)
NORM_KERNEL(rmsnorm_backward, eo_norm_part, norm_backward, false)
#undef NORM_KERNEL

static void head_norm_forward(const struct eo_head_rows *h)
{
    if (h->fp32_weights)
        head_forward(h, true);
    else
        head_forward(h, false);
}

static void head_norm_backward(const struct eo_head_rows *h)
{
    if (h->fp32_weights)
        head_backward(h, true);
    else
        head_backward(h, false);
}

#endif
