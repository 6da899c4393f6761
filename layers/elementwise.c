/* SPDX-License-Identifier: MIT */
#include "layers/kernels.h"

#include <math.h>
#include <string.h>

#include "layers/kernel_table.h"
#include "layers/split.h"

/* One description serves all kernels of this file; each reads what it was given. */
struct elementwise {
    const struct eo_kernel_table *kernels;
    float *out, *out_b;
    const float *a, *b, *c;
    uint64_t rows, width, stride, rows_per_task;
    uint32_t seq, head_count, head_size;
    bool flag;
};

static void elementwise_run(eo_team *team, struct elementwise *e, void (*task)(void *arg, uint32_t index))
{
    e->kernels = eo_kernels();
    e->rows_per_task = eo_split_rows(e->width);
    eo_team_run(team, (uint32_t)eo_split_up(e->rows, e->rows_per_task), task, e);
}

static uint64_t rows_of(const struct elementwise *e, uint32_t index)
{
    return eo_split_min(e->rows_per_task, e->rows - index * e->rows_per_task);
}

/* Arrays without rows: a row is what a task takes. */
static void add_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const uint64_t at = (uint64_t)index * EO_SPLIT_FLOATS;
    e->kernels->add(e->out + at, e->a + at, e->b + at, eo_split_min(EO_SPLIT_FLOATS, e->rows - at));
}

void eo_add(eo_team *team, float *out, const float *a, const float *b, uint64_t count)
{
    struct elementwise e = {.out = out, .a = a, .b = b, .rows = count, .width = 1};
    elementwise_run(team, &e, add_task);
}

enum { ZERO_FLOATS = 1 << 18 }; /* 1 MiB: large enough for memset to go past the caches */

static void zero_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const uint64_t at = (uint64_t)index * ZERO_FLOATS;
    memset(e->out + at, 0, eo_split_min(ZERO_FLOATS, e->rows - at) * sizeof(float));
}

void eo_zero(eo_team *team, float *out, uint64_t count)
{
    struct elementwise e = {.out = out, .rows = count};
    eo_team_run(team, (uint32_t)eo_split_up(count, ZERO_FLOATS), zero_task, &e);
}

static void bias_add_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    e->kernels->bias_add(e->out + index * e->rows_per_task * e->stride, e->stride, e->a, rows_of(e, index), e->width);
}

void eo_bias_add(eo_team *team, float *values, uint64_t stride, const float *bias, uint64_t rows, uint64_t width)
{
    struct elementwise e = {.out = values, .a = bias, .rows = rows, .width = width, .stride = stride};
    elementwise_run(team, &e, bias_add_task);
}

static void gelu_forward_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const uint64_t at = index * e->rows_per_task * e->width;
    e->kernels->gelu_forward(e->out + at, e->a + at, e->b, rows_of(e, index), e->width);
}

void eo_gelu_forward(eo_team *team, float *out, const float *in, const float *bias, uint64_t rows, uint64_t width)
{
    struct elementwise e = {.out = out, .a = in, .b = bias, .rows = rows, .width = width};
    elementwise_run(team, &e, gelu_forward_task);
}

/* ---- by columns: each task sums its strip over all rows, in order ---- */

static struct eo_strip strip_of(const struct elementwise *e, uint32_t index)
{
    const uint64_t column = (uint64_t)index * EO_STRIP;
    return (struct eo_strip){.rows = e->rows,
                             .columns = eo_split_min(EO_STRIP, e->width - column),
                             .stride = e->stride,
                             .sums = eo_row_mutable(e->out_b, column, 1),
                             .accumulate = e->flag};
}

static void bias_gradient_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const struct eo_strip strip = strip_of(e, index);
    e->kernels->column_sums(&strip, e->a + (uint64_t)index * EO_STRIP);
}

void eo_bias_gradient(eo_team *team, float *bias_gradient, const float *gradient, uint64_t stride, uint64_t rows,
                      uint64_t width, bool accumulate)
{
    struct elementwise e = {.kernels = eo_kernels(),
                            .out_b = bias_gradient,
                            .a = gradient,
                            .rows = rows,
                            .width = width,
                            .stride = stride,
                            .flag = accumulate};
    eo_team_run(team, (uint32_t)eo_split_up(width, EO_STRIP), bias_gradient_task, &e);
}

static void gelu_backward_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const uint64_t at = (uint64_t)index * EO_STRIP;
    const struct eo_strip strip = strip_of(e, index);
    e->kernels->gelu_backward(&strip, e->out + at, e->a + at, e->b + at, eo_row(e->c, at, 1));
}

void eo_gelu_backward(eo_team *team, float *in_gradient, const float *out_gradient, const float *in,
                      const float *bias, float *bias_gradient, uint64_t rows, uint64_t width, bool accumulate)
{
    struct elementwise e = {.kernels = eo_kernels(),
                            .out = in_gradient,
                            .out_b = bias_gradient,
                            .a = out_gradient,
                            .b = in,
                            .c = bias,
                            .rows = rows,
                            .width = width,
                            .stride = width,
                            .flag = accumulate};
    eo_team_run(team, (uint32_t)eo_split_up(width, EO_STRIP), gelu_backward_task, &e);
}

/* ---- SwiGLU ---- */

static void swiglu_forward_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const uint64_t row = index * e->rows_per_task;
    e->kernels->swiglu_forward(e->out + row * e->width, e->a + row * e->stride, e->b + row * e->stride, e->stride,
                               rows_of(e, index), e->width);
}

void eo_swiglu_forward(eo_team *team, float *out, const float *gate, const float *up, uint64_t stride, uint64_t rows,
                       uint64_t width)
{
    struct elementwise e = {.out = out, .a = gate, .b = up, .rows = rows, .width = width, .stride = stride};
    elementwise_run(team, &e, swiglu_forward_task);
}

static void swiglu_backward_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const uint64_t row = index * e->rows_per_task;
    const uint64_t at = row * e->stride;
    e->kernels->swiglu_backward(e->out + at, e->out_b + at, e->c + row * e->width, e->a + at, e->b + at, e->stride,
                                rows_of(e, index), e->width);
}

void eo_swiglu_backward(eo_team *team, float *gate_gradient, float *up_gradient, const float *out_gradient,
                        const float *gate, const float *up, uint64_t stride, uint64_t rows, uint64_t width)
{
    struct elementwise e = {.out = gate_gradient,
                            .out_b = up_gradient,
                            .a = gate,
                            .b = up,
                            .c = out_gradient,
                            .rows = rows,
                            .width = width,
                            .stride = stride};
    elementwise_run(team, &e, swiglu_backward_task);
}

/* ---- rotary positions ---- */

uint64_t eo_rope_table_floats(uint32_t seq, uint32_t head_size)
{
    return (uint64_t)seq * head_size;
}

static double scaled_frequency(double frequency, const eo_rope_scaling *s)
{
    if (!s || s->kind == EO_ROPE_PLAIN)
        return frequency;
    double kept = 0; /* the part of it that is not divided */
    if (s->kind == EO_ROPE_LLAMA3) {
        const double turns = s->original_context * frequency / 6.283185307179586477;
        kept = (turns - (double)s->low_freq_factor) / ((double)s->high_freq_factor - (double)s->low_freq_factor);
        kept = fmin(fmax(kept, 0), 1);
    }
    return kept * frequency + (1 - kept) * frequency / (double)s->factor;
}

void eo_rope_table(float *table, uint32_t seq, uint32_t head_size, float theta, const eo_rope_scaling *scaling)
{
    /* A few positions from each start that libm gives: a turn after the other, in double, is as exact as a float can tell,
     * and long contexts do not wait for it. */
    enum { TURNS = 64 };
    const uint32_t half = head_size / 2;
    for (uint32_t first = 0; first < seq; first += TURNS) {
        const uint32_t end = seq - first < TURNS ? seq : first + TURNS;
        for (uint32_t i = 0; i < half; i++) {
            const double frequency = scaled_frequency(pow(theta, -2.0 * i / head_size), scaling);
            const double step_cosine = cos(frequency), step_sine = sin(frequency);
            double cosine = cos(first * frequency), sine = sin(first * frequency);
            for (uint32_t position = first; position < end; position++) {
                float *row = table + (uint64_t)position * head_size;
                row[i] = (float)cosine;
                row[half + i] = (float)sine;
                const double turned = cosine * step_cosine - sine * step_sine;
                sine = sine * step_cosine + cosine * step_sine;
                cosine = turned;
            }
        }
    }
}

static void rope_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const uint64_t row = index * e->rows_per_task;
    e->kernels->rope(e->out + row * e->stride, e->stride, e->a, row, rows_of(e, index), e->seq, e->head_count,
                     e->head_size, e->flag);
}

void eo_rope(eo_team *team, float *values, uint64_t stride, const float *table, uint64_t rows, uint32_t seq,
             uint32_t head_count, uint32_t head_size, bool backward)
{
    struct elementwise e = {.out = values,
                            .a = table,
                            .rows = rows,
                            .width = (uint64_t)head_count * head_size,
                            .stride = stride,
                            .seq = seq,
                            .head_count = head_count,
                            .head_size = head_size,
                            .flag = backward};
    elementwise_run(team, &e, rope_task);
}
