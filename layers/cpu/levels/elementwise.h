/* SPDX-License-Identifier: MIT
 *
 * Sums, biases, GELU, SwiGLU, rotary positions at one level (see vector.h and kernel_table.h).
 */
#ifndef EO_LAYERS_CPU_LEVELS_ELEMENTWISE_H
#define EO_LAYERS_CPU_LEVELS_ELEMENTWISE_H

#include "layers/cpu/levels/gelu.h"

INLINE void add_row(element *out, const element *a, const element *b, uint64_t count)
{
    FOR_VECTORS(i, count, STORE(out + i, LOAD(a + i) + LOAD(b + i)););
}

static void add(void *out, const void *a, const void *b, uint64_t count)
{
    add_row(out, a, b, count);
}

static void bias_add(void *values, uint64_t stride, const void *bias, uint64_t rows, uint64_t width)
{
    element *row = values;
    for (uint64_t i = 0; i < rows; i++, row += stride)
        add_row(row, row, bias, width);
}

/* out = residual + (branch + bias); bias may be NULL, out may be residual or branch. */
INLINE void residual_row(element *out, const element *residual, const element *branch, const element *bias, uint64_t width)
{
    if (bias == NULL)
        add_row(out, residual, branch, width);
    else
        FOR_VECTORS(i, width, STORE(out + i, LOAD(residual + i) + (LOAD(branch + i) + LOAD(bias + i))););
}

static void residual_add(const struct eo_residual *r)
{
    element *output = r->output;
    const element *residual = r->residual;
    for (uint64_t row = 0; row < r->rows; row++, output += r->width, residual += r->width)
        residual_row(output, residual, output, r->bias, r->width);
}

/*
 * Column sums of a strip: kept in vectors while the rows go by. Sums to be added to come last, as kernel_ops.h says; with
 * fp32 first, for its results are to keep their bits.
 */
static void strip_open(const struct eo_strip *strip, vf *sums)
{
    for (int i = 0; i < EO_STRIP / V; i++)
        sums[i] = v_set(0);
    if (strip->accumulate && strip->types.compute == EO_DTYPE_FP32)
        FOR_VECTORS(i, strip->columns, sums[i / V] = LOAD((const float *)strip->sums + i););
}

static void strip_close(const struct eo_strip *strip, const vf *sums)
{
    const bool add_last = strip->accumulate && strip->types.compute == EO_DTYPE_BF16;
    float *floats = strip->sums;
    uint16_t *halves = strip->sums;
    if (strip->types.gradient == EO_DTYPE_BF16)
        FOR_VECTORS(i, strip->columns, STORE(halves + i, add_last ? LOAD(halves + i) + sums[i / V] : sums[i / V]););
    else
        FOR_VECTORS(i, strip->columns, STORE(floats + i, add_last ? LOAD(floats + i) + sums[i / V] : sums[i / V]););
}

static void column_sums(const struct eo_strip *strip, const void *values)
{
    vf sums[EO_STRIP / V];
    const element *row = values;
    strip_open(strip, sums);
    if (strip->columns == EO_STRIP) {
        for (uint64_t rows = strip->rows; rows > 0; rows--, row += strip->stride)
            for (int i = 0; i < EO_STRIP / V; i++)
                sums[i] += LOAD_WHOLE(row + i * V);
    } else {
        for (uint64_t rows = strip->rows; rows > 0; rows--, row += strip->stride)
            FOR_VECTORS(i, strip->columns, sums[i / V] += LOAD(row + i););
    }
    strip_close(strip, sums);
}

static void chain_sums(const struct eo_strip *strip, const void *values, const uint32_t *next, uint32_t first)
{
    vf sums[EO_STRIP / V];
    strip_open(strip, sums);
    for (uint32_t row = first; row != EO_CHAIN_END; row = next[row]) {
        const element *terms = (const element *)values + row * strip->stride;
        FOR_VECTORS(i, strip->columns, sums[i / V] += LOAD(terms + i););
    }
    strip_close(strip, sums);
}

static void gelu_forward(const struct eo_gelu *g)
{
    const uint64_t width = g->width;
    const element *in = g->in, *bias = g->bias;
    element *out = g->out;
    for (uint64_t row = 0; row < g->rows; row++, in += width, out += width) {
        if (bias != NULL)
            FOR_VECTORS(i, width, {
                const vf x = LOAD(in + i) + LOAD(bias + i);
                STORE(out + i, x * gelu_sigmoid(x));
            });
        else
            FOR_VECTORS(i, width, {
                const vf x = LOAD(in + i);
                STORE(out + i, x * gelu_sigmoid(x));
            });
    }
}

static void gelu_backward(const struct eo_strip *strip, const struct eo_gelu_gradient *g)
{
    const element *in = g->in, *bias = g->bias, *out_gradient = g->out_gradient;
    element *in_gradient = g->in_gradient, *again = g->again;
    vf sums[EO_STRIP / V];
    vf biases[EO_STRIP / V];
    for (int i = 0; i < EO_STRIP / V; i++) {
        biases[i] = v_set(-0.0f); /* which leaves a zero its sign */
        sums[i] = v_set(0);
    }
    if (strip->sums != NULL)
        strip_open(strip, sums);
    if (bias != NULL)
        FOR_VECTORS(i, strip->columns, biases[i / V] = LOAD(bias + i););
    for (uint64_t row = 0; row < strip->rows; row++) {
        const uint64_t at = row * strip->stride;
        FOR_VECTORS(i, strip->columns, {
            const vf x = LOAD(in + at + i) + biases[i / V];
            const vf sigmoid = gelu_sigmoid(x);
            const vf gradient = LOAD(out_gradient + at + i) * gelu_slope(x, sigmoid);
            STORE(in_gradient + at + i, gradient);
            if (again != NULL)
                STORE(again + at + i, x * sigmoid);
            sums[i / V] += gradient;
        });
    }
    if (strip->sums != NULL)
        strip_close(strip, sums);
}

static void swiglu_forward(const struct eo_swiglu *s)
{
    const uint64_t width = s->width;
    const element *gate = s->gate, *up = s->up;
    element *out = s->out;
    for (uint64_t row = 0; row < s->rows; row++, gate += s->stride, up += s->stride, out += width)
        FOR_VECTORS(i, width, {
            const vf g = LOAD(gate + i);
            STORE(out + i, g * v_sigmoid(g) * LOAD(up + i));
        });
}

static void swiglu_backward(const struct eo_swiglu *s)
{
    const uint64_t width = s->width, stride = s->stride;
    const element *gate = s->gate, *up = s->up, *out_gradient = s->out_gradient;
    element *out = s->out, *gate_gradient = s->gate_gradient, *up_gradient = s->up_gradient;
    for (uint64_t row = 0; row < s->rows; row++) {
        const uint64_t at = row * stride;
        const element *gradients = out_gradient + row * width;
        FOR_VECTORS(i, width, {
            const vf g = LOAD(gate + at + i);
            const vf u = LOAD(up + at + i);
            const vf d = LOAD(gradients + i);
            const vf sigmoid = v_sigmoid(g);
            const vf silu = g * sigmoid;
            if (out != NULL)
                STORE(out + row * width + i, silu * u);
            STORE(up_gradient + at + i, d * silu);
            STORE(gate_gradient + at + i, d * u * v_fma(silu, v_set(1) - sigmoid, sigmoid));
        });
    }
}

static void rotate(const struct eo_rotation *r, uint64_t first_row)
{
    const uint64_t half = r->head_size / 2;
    const vf sign = v_set(r->backward ? -1.0f : 1.0f);
    for (uint64_t row = first_row; row < first_row + r->rows; row++) {
        const float *cosines = r->table + (r->positions ? (uint64_t)r->positions[row] : row % r->seq) * r->head_size;
        const float *sines = cosines + half;
        element *low = (element *)r->values + row * r->stride;
        for (uint32_t head = 0; head < r->head_count; head++, low += r->head_size) {
            element *high = low + half;
            FOR_VECTORS(i, half, {
                const vf c = LOAD(cosines + i);
                const vf s = LOAD(sines + i) * sign;
                const vf a = LOAD(low + i);
                const vf b = LOAD(high + i);
                STORE(low + i, a * c - b * s);
                STORE(high + i, v_fma(a, s, b * c));
            });
        }
    }
}

#endif
