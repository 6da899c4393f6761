/* SPDX-License-Identifier: MIT */
#include "layers/cpu/kernels.h"

#include "layers/kernel_table.h"
#include "layers/split.h"

/* The arguments of a kernel, and their split by rows. */
struct elementwise {
    const struct eo_kernel_table *kernels;
    const void *arguments;
    uint64_t rows, rows_per_task;
};

static eo_status rows_run(eo_team *team, const void *arguments, uint64_t rows, uint64_t rows_per_task,
                          void (*task)(void *arg, uint32_t index))
{
    struct elementwise e = {eo_kernels(), arguments, rows, rows_per_task};
    eo_team_run(team, (uint32_t)eo_split_up(rows, rows_per_task), task, &e);
    return EO_OK;
}

static uint64_t first_row_of(const struct elementwise *e, uint32_t index)
{
    return index * e->rows_per_task;
}

static uint64_t rows_of(const struct elementwise *e, uint32_t index)
{
    return eo_split_min(e->rows_per_task, e->rows - first_row_of(e, index));
}

/* ---- sums, biases, GELU ---- */

static void residual_add_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const struct eo_residual *r = e->arguments;
    const uint64_t width = r->width, first = first_row_of(e, index), end = first + rows_of(e, index);
    for (uint64_t row = first; row < end; row++) {
        float *restrict output = (float *)r->output + row * width;
        const float *restrict residual = (const float *)r->residual + row * width, *restrict bias = r->bias;
        if (bias) {
            for (uint64_t i = 0; i < width; i++)
                output[i] = residual[i] + (output[i] + bias[i]);
        } else {
            for (uint64_t i = 0; i < width; i++)
                output[i] += residual[i];
        }
    }
}

eo_status eo_cpu_residual_add(eo_team *team, const struct eo_residual *r)
{
    return rows_run(team, r, r->rows, 32, residual_add_task);
}

static void bias_add_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const struct eo_bias *b = e->arguments;
    e->kernels->bias_add((float *)b->output + first_row_of(e, index) * b->stride, b->stride, b->bias, rows_of(e, index),
                         b->width);
}

eo_status eo_cpu_bias_add(eo_team *team, const struct eo_bias *b)
{
    return rows_run(team, b, b->rows, eo_split_rows(b->width), bias_add_task);
}

static void gelu_forward_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const struct eo_gelu *g = e->arguments;
    const uint64_t at = first_row_of(e, index) * g->width;
    e->kernels->gelu_forward((float *)g->out + at, (const float *)g->in + at, g->bias, rows_of(e, index), g->width);
}

eo_status eo_cpu_gelu_forward(eo_team *team, const struct eo_gelu *g)
{
    return rows_run(team, g, g->rows, eo_split_rows(g->width), gelu_forward_task);
}

/* ---- by columns: each task sums its strip over all rows, in order ---- */

static void column_sums_task(void *arg, uint32_t index)
{
    const struct eo_column_sums *s = arg;
    const uint64_t column = (uint64_t)index * EO_STRIP;
    eo_kernels()->column_sums(&(struct eo_strip){.rows = s->rows, .columns = eo_split_min(EO_STRIP, s->width - column),
                                                 .stride = s->stride ? s->stride : s->width,
                                                 .sums = (float *)s->bias_gradient + column},
                              (const float *)s->gradient + column);
}

eo_status eo_cpu_column_sums(eo_team *team, const struct eo_column_sums *s)
{
    struct eo_column_sums all = *s;
    eo_team_run(team, (uint32_t)eo_split_up(s->width, EO_STRIP), column_sums_task, &all);
    return EO_OK;
}

static void gelu_backward_task(void *arg, uint32_t index)
{
    const struct eo_gelu_gradient *g = arg;
    const uint64_t column = (uint64_t)index * EO_STRIP;
    eo_kernels()->gelu_backward(&(struct eo_strip){.rows = g->rows, .columns = eo_split_min(EO_STRIP, g->width - column),
                                                   .stride = g->width,
                                                   .sums = eo_row_mutable(g->bias_gradient, column, 1)},
                                (float *)g->in_gradient + column, (const float *)g->out_gradient + column,
                                (const float *)g->in + column, eo_row(g->bias, column, 1));
}

eo_status eo_cpu_gelu_backward(eo_team *team, const struct eo_gelu_gradient *g)
{
    struct eo_gelu_gradient all = *g;
    eo_team_run(team, (uint32_t)eo_split_up(g->width, EO_STRIP), gelu_backward_task, &all);
    return EO_OK;
}

/* ---- SwiGLU ---- */

static struct eo_swiglu swiglu_rows_of(const struct elementwise *e, uint32_t index)
{
    struct eo_swiglu s = *(const struct eo_swiglu *)e->arguments;
    const uint64_t row = first_row_of(e, index);
    s.rows = rows_of(e, index);
    s.out = eo_row_mutable(s.out, row, s.width);
    s.gate = eo_row(s.gate, row, s.stride);
    s.up = eo_row(s.up, row, s.stride);
    s.out_gradient = eo_row(s.out_gradient, row, s.width);
    s.gate_gradient = eo_row_mutable(s.gate_gradient, row, s.stride);
    s.up_gradient = eo_row_mutable(s.up_gradient, row, s.stride);
    return s;
}

static void swiglu_forward_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const struct eo_swiglu part = swiglu_rows_of(e, index);
    e->kernels->swiglu_forward(&part);
}

eo_status eo_cpu_swiglu_forward(eo_team *team, const struct eo_swiglu *s)
{
    return rows_run(team, s, s->rows, eo_split_rows(s->width), swiglu_forward_task);
}

static void swiglu_backward_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const struct eo_swiglu part = swiglu_rows_of(e, index);
    e->kernels->swiglu_backward(&part);
}

eo_status eo_cpu_swiglu_backward(eo_team *team, const struct eo_swiglu *s)
{
    return rows_run(team, s, s->rows, eo_split_rows(s->width), swiglu_backward_task);
}

/* ---- rotary positions ---- */

static void rotate_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    struct eo_rotation part = *(const struct eo_rotation *)e->arguments;
    part.rows = rows_of(e, index);
    e->kernels->rotate(&part, first_row_of(e, index));
}

eo_status eo_cpu_rotate(eo_team *team, const struct eo_rotation *r)
{
    return rows_run(team, r, r->rows, eo_split_rows((uint64_t)r->head_count * r->head_size), rotate_task);
}
