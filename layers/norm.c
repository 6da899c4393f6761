/* SPDX-License-Identifier: MIT */
#include "layers/kernels.h"

#include "layers/kernel_table.h"
#include "layers/split.h"

struct norm_job {
    struct eo_norm_rows all;
    uint64_t rows_per_task;
    void (*kernel)(const struct eo_norm_rows *rows);
};

static void norm_rows_task(void *arg, uint32_t index)
{
    const struct norm_job *job = arg;
    struct eo_norm_rows part = job->all;
    const uint64_t row = index * job->rows_per_task;
    const uint64_t width = part.width;
    part.rows = eo_split_min(job->rows_per_task, job->all.rows - row);
    part.input.residual += row * width;
    part.input.branch = eo_row(part.input.branch, row, width);
    part.sum = eo_row_mutable(part.sum, row, width);
    part.out += row * width;
    part.mean = eo_row_mutable(part.mean, row, 1);
    part.rstd = eo_row_mutable(part.rstd, row, 1);
    job->kernel(&part);
}

static void norm_rows_run(eo_team *team, const struct eo_norm_rows *all,
                          void (*kernel)(const struct eo_norm_rows *rows))
{
    struct norm_job job = {.all = *all, .rows_per_task = eo_split_rows(all->width), .kernel = kernel};
    eo_team_run(team, (uint32_t)eo_split_up(all->rows, job.rows_per_task), norm_rows_task, &job);
}

/* ---- heads ---- */

struct head_job {
    struct eo_head_rows all;
    uint64_t rows_per_task;
    const struct eo_kernel_table *kernels;
};

static struct eo_head_rows head_rows_of(const struct head_job *job, uint32_t index)
{
    struct eo_head_rows part = job->all;
    const uint64_t row = index * job->rows_per_task;
    part.rows = eo_split_min(job->rows_per_task, part.rows - row);
    part.in += row * part.in_stride;
    part.out += row * part.out_stride;
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

void eo_head_norm_forward(eo_team *team, const struct eo_head_rows *heads)
{
    struct head_job job = {.all = *heads, .kernels = eo_kernels(),
                           .rows_per_task = eo_split_rows((uint64_t)heads->head_count * heads->head_size)};
    job.all.sums = NULL;
    eo_team_run(team, (uint32_t)eo_split_up(heads->rows, job.rows_per_task), head_forward_task, &job);
}

/* A task is a part, whatever the team. */
void eo_head_norm_backward(eo_team *team, const struct eo_head_rows *heads)
{
    struct head_job job = {.all = *heads, .kernels = eo_kernels(), .rows_per_task = heads->part_rows};
    eo_team_run(team, (uint32_t)eo_split_up(heads->rows, heads->part_rows), head_backward_task, &job);
}

/* ---- rows ---- */

/* RMSNorm is LayerNorm without mean and bias: NULL. */
void eo_layernorm_forward(eo_team *team, float *sum, float *out, float *mean, float *rstd, struct eo_norm_input input,
                          const float *weight, const float *bias, float eps, uint64_t rows, uint64_t width)
{
    const struct eo_norm_rows all = {.input = input, .weight = weight, .bias = bias, .sum = sum, .out = out,
                                     .mean = mean, .rstd = rstd, .eps = eps, .rows = rows, .width = width};
    norm_rows_run(team, &all, eo_kernels()->layernorm_forward);
}

void eo_rmsnorm_forward(eo_team *team, float *sum, float *out, float *rstd, struct eo_norm_input input,
                        const float *weight, float eps, uint64_t rows, uint64_t width)
{
    const struct eo_norm_rows all = {.input = input, .weight = weight, .sum = sum, .out = out, .rstd = rstd, .eps = eps,
                                     .rows = rows, .width = width};
    norm_rows_run(team, &all, eo_kernels()->rmsnorm_forward);
}

/* `again` reads what forward wrote: the casts only fit it into forward's description. */
void eo_layernorm_again(eo_team *team, float *out, const float *in, const float *mean, const float *rstd,
                        const float *weight, const float *bias, uint64_t rows, uint64_t width)
{
    const struct eo_norm_rows all = {.input = {.residual = in}, .weight = weight, .bias = bias, .out = out,
                                     .mean = (float *)(uintptr_t)mean, .rstd = (float *)(uintptr_t)rstd, .rows = rows,
                                     .width = width};
    norm_rows_run(team, &all, eo_kernels()->layernorm_again);
}

void eo_rmsnorm_again(eo_team *team, float *out, const float *in, const float *rstd, const float *weight,
                      uint64_t rows, uint64_t width)
{
    const struct eo_norm_rows all = {.input = {.residual = in}, .weight = weight, .out = out,
                                     .rstd = (float *)(uintptr_t)rstd, .rows = rows, .width = width};
    norm_rows_run(team, &all, eo_kernels()->rmsnorm_again);
}

/*
 * The rows go in EO_NORM_PARTS parts, whatever the team; each sums its weight gradients in the scratch, and these
 * sums are added in order of the parts:  [part][weight sums | bias sums][width]
 */
struct norm_backward_job {
    struct eo_norm_part all;
    float *weight_gradient, *bias_gradient, *scratch;
    uint64_t rows_per_part;
    bool accumulate;
    const struct eo_kernel_table *kernels;
    void (*kernel)(const struct eo_norm_part *part);
};

uint64_t eo_norm_scratch_bytes(uint64_t width)
{
    return (uint64_t)EO_NORM_PARTS * 2 * width * sizeof(float);
}

static void norm_backward_task(void *arg, uint32_t index)
{
    const struct norm_backward_job *job = arg;
    struct eo_norm_part part = job->all;
    const uint64_t row = eo_split_min(index * job->rows_per_part, part.rows);
    const uint64_t width = part.width;
    part.rows = eo_split_min(job->rows_per_part, part.rows - row);
    part.in += row * width;
    part.mean = eo_row(part.mean, row, 1);
    part.rstd += row;
    part.out_gradient += row * width;
    part.skip_gradient = eo_row(part.skip_gradient, row, width);
    part.in_gradient += row * width;
    part.weight_sums = job->scratch + (uint64_t)index * 2 * width;
    part.bias_sums = part.weight_sums + width;
    job->kernel(&part);
}

static void norm_combine(const struct norm_backward_job *job, float *gradient, const float *sums, uint64_t columns)
{
    const uint64_t width = job->all.width;
    const struct eo_strip strip = {.rows = EO_NORM_PARTS,
                                   .columns = columns,
                                   .stride = 2 * width,
                                   .sums = gradient,
                                   .accumulate = job->accumulate};
    job->kernels->column_sums(&strip, sums);
}

static void norm_combine_task(void *arg, uint32_t index)
{
    const struct norm_backward_job *job = arg;
    const uint64_t column = (uint64_t)index * EO_STRIP;
    const uint64_t columns = eo_split_min(EO_STRIP, job->all.width - column);
    norm_combine(job, job->weight_gradient + column, job->scratch + column, columns);
    if (job->bias_gradient != NULL)
        norm_combine(job, job->bias_gradient + column, job->scratch + job->all.width + column, columns);
}

static void norm_backward_run(eo_team *team, struct norm_backward_job *job)
{
    job->kernels = eo_kernels();
    job->kernel = job->all.mean ? job->kernels->layernorm_backward : job->kernels->rmsnorm_backward;
    job->rows_per_part = eo_split_up(job->all.rows, EO_NORM_PARTS);
    eo_team_run(team, EO_NORM_PARTS, norm_backward_task, job);
    eo_team_run(team, (uint32_t)eo_split_up(job->all.width, EO_STRIP), norm_combine_task, job);
}

void eo_layernorm_backward(eo_team *team, float *in_gradient, const float *skip_gradient, const float *out_gradient,
                           const float *in, const float *mean, const float *rstd, const float *weight,
                           float *weight_gradient, float *bias_gradient, uint64_t rows, uint64_t width,
                           bool accumulate, void *scratch)
{
    struct norm_backward_job job = {
        .all = {.in = in, .mean = mean, .rstd = rstd, .weight = weight, .out_gradient = out_gradient,
                .skip_gradient = skip_gradient, .in_gradient = in_gradient, .rows = rows, .width = width},
        .weight_gradient = weight_gradient, .bias_gradient = bias_gradient, .scratch = scratch, .accumulate = accumulate,
    };
    norm_backward_run(team, &job);
}

void eo_rmsnorm_backward(eo_team *team, float *in_gradient, const float *skip_gradient, const float *out_gradient,
                         const float *in, const float *rstd, const float *weight, float *weight_gradient,
                         uint64_t rows, uint64_t width, bool accumulate, void *scratch)
{
    eo_layernorm_backward(team, in_gradient, skip_gradient, out_gradient, in, NULL, rstd, weight, weight_gradient, NULL,
                          rows, width, accumulate, scratch);
}
