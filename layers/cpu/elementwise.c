/* SPDX-License-Identifier: MIT */
#include "layers/cpu/kernels.h"

#include "layers/kernel_table.h"
#include "layers/split.h"

/* A pointer of the arguments' copy moves to its part. */
#define MOVE(dtype, pointer, elements) ((pointer) = eo_element_at((dtype), (pointer), (elements)))
#define MOVE_MUTABLE(dtype, pointer, elements) ((pointer) = eo_element_at_mutable((dtype), (pointer), (elements)))

/* The arguments of a kernel, and their split by rows. */
struct elementwise {
    const struct eo_kernel_table *kernels;
    const void *arguments;
    uint64_t rows, rows_per_task;
};

static eo_status rows_run(eo_team *team, struct eo_types types, const void *arguments, uint64_t rows, uint64_t rows_per_task,
                          void (*task)(void *arg, uint32_t index))
{
    struct elementwise e = {eo_kernels_of(types.compute), arguments, rows, rows_per_task};
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
    struct eo_residual r = *(const struct eo_residual *)e->arguments;
    const uint64_t at = first_row_of(e, index) * r.width;
    r.rows = rows_of(e, index);
    MOVE_MUTABLE(r.types.compute, r.output, at);
    MOVE(r.types.compute, r.residual, at);
    e->kernels->residual_add(&r);
}

eo_status eo_cpu_residual_add(eo_team *team, const struct eo_residual *r)
{
    return rows_run(team, r->types, r, r->rows, 32, residual_add_task);
}

static void bias_add_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const struct eo_bias *b = e->arguments;
    e->kernels->bias_add(eo_element_at_mutable(b->types.compute, b->output, first_row_of(e, index) * b->stride), b->stride,
                         b->bias, rows_of(e, index), b->width);
}

eo_status eo_cpu_bias_add(eo_team *team, const struct eo_bias *b)
{
    return rows_run(team, b->types, b, b->rows, eo_split_rows(b->width), bias_add_task);
}

static void gelu_forward_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    struct eo_gelu g = *(const struct eo_gelu *)e->arguments;
    const uint64_t at = first_row_of(e, index) * g.width;
    g.rows = rows_of(e, index);
    MOVE_MUTABLE(g.types.compute, g.out, at);
    MOVE(g.types.compute, g.in, at);
    e->kernels->gelu_forward(&g);
}

eo_status eo_cpu_gelu_forward(eo_team *team, const struct eo_gelu *g)
{
    return rows_run(team, g->types, g, g->rows, eo_split_rows(g->width), gelu_forward_task);
}

/* ---- by columns: each task sums its strip over all rows, in order ---- */

static void column_sums_task(void *arg, uint32_t index)
{
    const struct eo_column_sums *s = arg;
    const uint64_t column = (uint64_t)index * EO_STRIP;
    eo_kernels_of(s->types.compute)->column_sums(
        &(struct eo_strip){.types = s->types, .rows = s->rows, .columns = eo_split_min(EO_STRIP, s->width - column),
                           .stride = s->stride ? s->stride : s->width,
                           .sums = eo_element_at_mutable(s->types.gradient, s->bias_gradient, column)},
        eo_element_at(s->types.compute, s->gradient, column));
}

eo_status eo_cpu_column_sums(eo_team *team, const struct eo_column_sums *s)
{
    struct eo_column_sums all = *s;
    eo_team_run(team, (uint32_t)eo_split_up(s->width, EO_STRIP), column_sums_task, &all);
    return EO_OK;
}

static void gelu_backward_task(void *arg, uint32_t index)
{
    struct eo_gelu_gradient g = *(const struct eo_gelu_gradient *)arg;
    const uint64_t column = (uint64_t)index * EO_STRIP;
    const struct eo_strip strip = {.types = g.types, .rows = g.rows, .columns = eo_split_min(EO_STRIP, g.width - column),
                                   .stride = g.width,
                                   .sums = eo_element_at_mutable(g.types.gradient, g.bias_gradient, column)};
    MOVE_MUTABLE(g.types.compute, g.in_gradient, column);
    MOVE_MUTABLE(g.types.compute, g.again, column);
    MOVE(g.types.compute, g.out_gradient, column);
    MOVE(g.types.compute, g.in, column);
    MOVE(g.types.compute, g.bias, column);
    eo_kernels_of(g.types.compute)->gelu_backward(&strip, &g);
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
    MOVE_MUTABLE(s.types.compute, s.out, row * s.width);
    MOVE(s.types.compute, s.gate, row * s.stride);
    MOVE(s.types.compute, s.up, row * s.stride);
    MOVE(s.types.compute, s.out_gradient, row * s.width);
    MOVE_MUTABLE(s.types.compute, s.gate_gradient, row * s.stride);
    MOVE_MUTABLE(s.types.compute, s.up_gradient, row * s.stride);
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
    return rows_run(team, s->types, s, s->rows, eo_split_rows(s->width), swiglu_forward_task);
}

static void swiglu_backward_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    const struct eo_swiglu part = swiglu_rows_of(e, index);
    e->kernels->swiglu_backward(&part);
}

eo_status eo_cpu_swiglu_backward(eo_team *team, const struct eo_swiglu *s)
{
    return rows_run(team, s->types, s, s->rows, eo_split_rows(s->width), swiglu_backward_task);
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
    return rows_run(team, r->types, r, r->rows, eo_split_rows((uint64_t)r->head_count * r->head_size), rotate_task);
}

/* ---- dropout ---- */

static void dropout_task(void *arg, uint32_t index)
{
    const struct elementwise *e = arg;
    struct eo_dropout part = *(const struct eo_dropout *)e->arguments;
    part.rows = rows_of(e, index);
    e->kernels->dropout(&part, first_row_of(e, index));
}

eo_status eo_cpu_dropout(eo_team *team, const struct eo_dropout *d)
{
    return rows_run(team, d->types, d, d->rows, eo_split_rows(d->width), dropout_task);
}
