/* SPDX-License-Identifier: MIT
 *
 * Sums, biases, GELU, SwiGLU, rotary positions at one level (see vector.h and kernel_table.h).
 */
#ifndef EO_LAYERS_CPU_ELEMENTWISE_VECTOR_H
#define EO_LAYERS_CPU_ELEMENTWISE_VECTOR_H

#include "layers/cpu/gelu_vector.h"

static void add(float *out, const float *a, const float *b, uint64_t count)
{
    FOR_VECTORS(i, count, STORE(out + i, LOAD(a + i) + LOAD(b + i)););
}

static void scale(float *row, uint64_t count, float factor)
{
    const vf f = v_set(factor);
    FOR_VECTORS(i, count, STORE(row + i, LOAD(row + i) * f););
}

static void bias_add(float *values, uint64_t stride, const float *bias, uint64_t rows, uint64_t width)
{
    for (uint64_t row = 0; row < rows; row++, values += stride)
        add(values, values, bias, width);
}

/* Column sums of a strip: kept in vectors while the rows go by. */
static void strip_open(const struct eo_strip *strip, vf *sums)
{
    for (int i = 0; i < EO_STRIP / V; i++)
        sums[i] = v_set(0);
    if (strip->accumulate)
        FOR_VECTORS(i, strip->columns, sums[i / V] = LOAD(strip->sums + i););
}

static void strip_close(const struct eo_strip *strip, const vf *sums)
{
    FOR_VECTORS(i, strip->columns, STORE(strip->sums + i, sums[i / V]););
}

static void column_sums(const struct eo_strip *strip, const float *values)
{
    vf sums[EO_STRIP / V];
    strip_open(strip, sums);
    if (strip->columns == EO_STRIP) {
        for (uint64_t row = 0; row < strip->rows; row++, values += strip->stride)
            for (int i = 0; i < EO_STRIP / V; i++)
                sums[i] += v_load(values + i * V);
    } else {
        for (uint64_t row = 0; row < strip->rows; row++, values += strip->stride)
            FOR_VECTORS(i, strip->columns, sums[i / V] += LOAD(values + i););
    }
    strip_close(strip, sums);
}

static void gelu_forward(float *out, const float *in, const float *bias, uint64_t rows, uint64_t width)
{
    for (uint64_t row = 0; row < rows; row++, in += width, out += width) {
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

static void gelu_backward(const struct eo_strip *strip, float *in_gradient, const float *out_gradient,
                          const float *in, const float *bias)
{
    vf sums[EO_STRIP / V];
    vf biases[EO_STRIP / V];
    for (int i = 0; i < EO_STRIP / V; i++)
        biases[i] = sums[i] = v_set(0);
    if (strip->sums != NULL)
        strip_open(strip, sums);
    if (bias != NULL)
        FOR_VECTORS(i, strip->columns, biases[i / V] = LOAD(bias + i););
    for (uint64_t row = 0; row < strip->rows; row++) {
        const uint64_t at = row * strip->stride;
        FOR_VECTORS(i, strip->columns, {
            const vf x = LOAD(in + at + i) + biases[i / V];
            const vf gradient = LOAD(out_gradient + at + i) * gelu_slope(x);
            STORE(in_gradient + at + i, gradient);
            sums[i / V] += gradient;
        });
    }
    if (strip->sums != NULL)
        strip_close(strip, sums);
}

static void swiglu_forward(const struct eo_swiglu *s)
{
    const uint64_t width = s->width;
    const float *gate = s->gate, *up = s->up;
    float *out = s->out;
    for (uint64_t row = 0; row < s->rows; row++, gate += s->stride, up += s->stride, out += width)
        FOR_VECTORS(i, width, {
            const vf g = LOAD(gate + i);
            STORE(out + i, g * v_sigmoid(g) * LOAD(up + i));
        });
}

static void swiglu_backward(const struct eo_swiglu *s)
{
    const uint64_t width = s->width, stride = s->stride;
    const float *gate = s->gate, *up = s->up, *out_gradient = s->out_gradient;
    float *gate_gradient = s->gate_gradient, *up_gradient = s->up_gradient;
    for (uint64_t row = 0; row < s->rows; row++) {
        const uint64_t at = row * stride;
        const float *gradients = out_gradient + row * width;
        FOR_VECTORS(i, width, {
            const vf g = LOAD(gate + at + i);
            const vf u = LOAD(up + at + i);
            const vf d = LOAD(gradients + i);
            const vf sigmoid = v_sigmoid(g);
            const vf silu = g * sigmoid;
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
        const float *cosines = r->table + row % r->seq * r->head_size;
        const float *sines = cosines + half;
        float *low = (float *)r->values + row * r->stride;
        for (uint32_t head = 0; head < r->head_count; head++, low += r->head_size) {
            float *high = low + half;
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
