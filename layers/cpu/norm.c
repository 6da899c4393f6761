/* SPDX-License-Identifier: MIT */
#include "layers/cpu/kernels.h"

#include <string.h>

#include "layers/kernel_table.h"
#include "layers/split.h"

struct norm_job {
    struct eo_norm all;
    uint64_t rows_per_task;
    void (*kernel)(const struct eo_norm *part);
};

static void norm_rows_task(void *arg, uint32_t index)
{
    const struct norm_job *job = arg;
    struct eo_norm part = job->all;
    const uint64_t row = index * job->rows_per_task;
    const uint64_t width = part.width;
    part.rows = eo_split_min(job->rows_per_task, job->all.rows - row);
    const eo_dtype dtype = part.types.compute;
    part.residual = eo_element_at(dtype, part.residual, row * width);
    part.branch = eo_element_at(dtype, part.branch, row * width);
    part.sum = eo_element_at_mutable(dtype, part.sum, row * width);
    part.out = eo_element_at_mutable(dtype, part.out, row * width);
    part.mean = eo_row_mutable(part.mean, row, 1);
    part.rstd = eo_row_mutable(part.rstd, row, 1);
    job->kernel(&part);
}

eo_status eo_cpu_norm_forward(eo_team *team, const struct eo_norm *n)
{
    const struct eo_kernel_table *kernels = eo_kernels_of(n->types.compute);
    struct norm_job job = {.all = *n,
                           .rows_per_task = eo_split_rows(n->width),
                           .kernel = n->centered ? kernels->layernorm_forward : kernels->rmsnorm_forward};
    eo_team_run(team, (uint32_t)eo_split_up(n->rows, job.rows_per_task), norm_rows_task, &job);
    return EO_OK;
}

/* ---- heads ---- */

struct head_job {
    struct eo_head_rows all;
    eo_dtype dtype;
    uint64_t rows_per_task;
    const struct eo_kernel_table *kernels;
};

static struct eo_head_rows head_rows_of(const struct head_job *job, uint32_t index)
{
    struct eo_head_rows part = job->all;
    const uint64_t row = index * job->rows_per_task;
    part.rows = eo_split_min(job->rows_per_task, part.rows - row);
    part.in = eo_element_at(job->dtype, part.in, row * part.in_stride);
    part.out = eo_element_at_mutable(job->dtype, part.out, row * part.out_stride);
    part.sums = eo_row_mutable(part.sums, index, part.head_size);
    return part;
}

static void head_forward_task(void *arg, uint32_t index)
{
    const struct head_job *job = arg;
    const struct eo_head_rows part = head_rows_of(job, index);
    job->kernels->head_norm_forward(&part);
}

static void head_backward_task(void *arg, uint32_t index)
{
    const struct head_job *job = arg;
    const struct eo_head_rows part = head_rows_of(job, index);
    job->kernels->head_norm_backward(&part);
}

static void heads_forward(eo_team *team, eo_dtype dtype, const struct eo_head_rows *heads)
{
    struct head_job job = {.all = *heads, .dtype = dtype, .kernels = eo_kernels_of(dtype),
                           .rows_per_task = eo_split_rows((uint64_t)heads->head_count * heads->head_size)};
    eo_team_run(team, (uint32_t)eo_split_up(heads->rows, job.rows_per_task), head_forward_task, &job);
}

/* A task is a part, whatever the team. */
static void heads_backward(eo_team *team, eo_dtype dtype, const struct eo_head_rows *heads)
{
    struct head_job job = {.all = *heads, .dtype = dtype, .kernels = eo_kernels_of(dtype), .rows_per_task = heads->part_rows};
    eo_team_run(team, (uint32_t)eo_split_up(heads->rows, heads->part_rows), head_backward_task, &job);
}

eo_status eo_cpu_head_norm_forward(eo_team *team, const struct eo_head_norm *n)
{
    const eo_dtype dtype = n->types.compute;
    const void *in = n->in;
    void *out = n->out;
    for (int k = 0; k < 2; k++) {
        const uint64_t width = (uint64_t)n->head_count[k] * n->head_size;
        heads_forward(team, dtype, &(struct eo_head_rows){
            .in = in, .weight = n->weight[k], .out = out, .in_stride = n->in_stride, .out_stride = n->out_stride,
            .rows = n->rows, .head_count = n->head_count[k], .head_size = n->head_size, .eps = n->eps,
            .fp32_weights = n->fp32_weights});
        in = eo_element_at(dtype, in, width);
        out = eo_element_at_mutable(dtype, out, width);
    }
    for (uint64_t row = 0; n->copied && row < n->rows; row++)
        memcpy(eo_element_at_mutable(dtype, out, row * n->out_stride), eo_element_at(dtype, in, row * n->in_stride),
               n->copied * eo_dtype_bytes(dtype));
    return EO_OK;
}

eo_status eo_cpu_head_norm_backward(eo_team *team, const struct eo_head_norm_gradient *n)
{
    const eo_dtype dtype = n->types.compute;
    const void *in = n->in;
    void *gradient = n->gradient;
    for (int k = 0; k < 2; k++) {
        const uint64_t width = (uint64_t)n->head_count[k] * n->head_size;
        heads_backward(team, dtype, &(struct eo_head_rows){
            .in = in, .weight = n->weight[k], .out = gradient, .in_stride = n->in_stride, .out_stride = n->stride,
            .sums = n->sums + (uint64_t)k * eo_head_norm_parts(n->rows) * n->head_size, .rows = n->rows,
            .part_rows = eo_head_norm_part_rows(n->rows), .head_count = n->head_count[k], .head_size = n->head_size,
            .eps = n->eps, .fp32_weights = n->fp32_weights});
        in = eo_element_at(dtype, in, width);
        gradient = eo_element_at_mutable(dtype, gradient, width);
    }
    return EO_OK;
}

/* ---- backward ---- */

/*
 * The rows go in EO_NORM_PARTS parts, whatever the team; each sums its weight gradients in the scratch, and these
 * sums are added in order of the parts:  [part][weight sums | bias sums][width]
 */
struct norm_backward_job {
    struct eo_norm_part all;
    struct eo_types types;
    void *weight_gradient, *bias_gradient;
    float *scratch;
    uint64_t rows_per_part;
    bool accumulate;
    void (*kernel)(const struct eo_norm_part *part);
};

uint64_t eo_cpu_norm_scratch_bytes(uint64_t rows, uint64_t width)
{
    (void)rows;
    return (uint64_t)EO_NORM_PARTS * 2 * width * sizeof(float);
}

static void norm_backward_task(void *arg, uint32_t index)
{
    const struct norm_backward_job *job = arg;
    struct eo_norm_part part = job->all;
    const uint64_t row = eo_split_min(index * job->rows_per_part, part.rows);
    const uint64_t width = part.width;
    part.rows = eo_split_min(job->rows_per_part, part.rows - row);
    const eo_dtype dtype = job->types.compute;
    part.in = eo_element_at(dtype, part.in, row * width);
    part.mean = eo_row(part.mean, row, 1);
    part.rstd += row;
    part.out_gradient = eo_element_at(dtype, part.out_gradient, row * width);
    part.skip_gradient = eo_element_at(dtype, part.skip_gradient, row * width);
    part.in_gradient = eo_element_at_mutable(dtype, part.in_gradient, row * width);
    part.again = eo_element_at_mutable(dtype, part.again, row * width);
    part.weight_sums = job->scratch + (uint64_t)index * 2 * width;
    part.bias_sums = part.weight_sums + width;
    job->kernel(&part);
}

/* The sums are in fp32 whatever the elements. */
static void norm_combine(const struct norm_backward_job *job, void *gradient, const float *sums, uint64_t column)
{
    const uint64_t width = job->all.width;
    const struct eo_strip strip = {.types = job->types,
                                   .rows = EO_NORM_PARTS,
                                   .columns = eo_split_min(EO_STRIP, width - column),
                                   .stride = 2 * width,
                                   .sums = eo_element_at_mutable(job->types.gradient, gradient, column),
                                   .accumulate = job->accumulate};
    eo_kernels_of(EO_DTYPE_FP32)->column_sums(&strip, sums + column);
}

static void norm_combine_task(void *arg, uint32_t index)
{
    const struct norm_backward_job *job = arg;
    const uint64_t column = (uint64_t)index * EO_STRIP;
    norm_combine(job, job->weight_gradient, job->scratch, column);
    if (job->bias_gradient != NULL)
        norm_combine(job, job->bias_gradient, job->scratch + job->all.width, column);
}

eo_status eo_cpu_norm_backward(eo_team *team, const struct eo_norm_gradient *n)
{
    const struct eo_kernel_table *kernels = eo_kernels_of(n->types.compute);
    struct norm_backward_job job = {
        .all = {.in = n->in, .mean = n->mean, .rstd = n->rstd, .weight = n->weight, .bias = n->bias,
                .out_gradient = n->out_gradient, .skip_gradient = n->skip_gradient, .in_gradient = n->in_gradient,
                .again = n->again, .rows = n->rows, .width = n->width, .fp32_weights = n->fp32_weights},
        .types = n->types, .weight_gradient = n->weight_gradient, .bias_gradient = n->centered ? n->bias_gradient : NULL,
        .scratch = n->scratch, .rows_per_part = eo_split_up(n->rows, EO_NORM_PARTS), .accumulate = n->accumulate,
        .kernel = n->centered ? kernels->layernorm_backward : kernels->rmsnorm_backward,
    };
    eo_team_run(team, EO_NORM_PARTS, norm_backward_task, &job);
    if (job.weight_gradient)
        eo_team_run(team, (uint32_t)eo_split_up(n->width, EO_STRIP), norm_combine_task, &job);
    return EO_OK;
}
