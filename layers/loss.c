/* SPDX-License-Identifier: MIT */
#include "layers/kernels.h"

#include <math.h>

#include "layers/kernel_table.h"
#include "layers/split.h"

struct loss_job {
    const struct eo_kernel_table *kernels;
    float *losses;
    float *logits;
    const int32_t *targets;
    uint64_t stride, rows, vocabulary, rows_per_task;
    float scale;
    bool backward;
};

static void loss_row(const struct loss_job *job, uint64_t row, bool last)
{
    float *logits = job->logits + row * job->stride;
    const uint32_t target = (uint32_t)job->targets[row];
    const double target_logit = logits[target];
    float max = 0;
    float sum = 0;
    job->kernels->softmax_sum(logits, last ? NULL : logits + job->stride, job->vocabulary, job->backward, &max, &sum);
    job->losses[row] = (float)(log(sum) + max - target_logit);
    if (!job->backward)
        return;
    job->kernels->scale(logits, job->vocabulary, job->scale / sum);
    logits[target] -= job->scale;
}

static void loss_task(void *arg, uint32_t index)
{
    const struct loss_job *job = arg;
    const uint64_t first = index * job->rows_per_task;
    const uint64_t end = eo_split_min(first + job->rows_per_task, job->rows);
    for (uint64_t row = first; row < end; row++)
        loss_row(job, row, row + 1 == end);
}

static double loss_run(eo_team *team, struct loss_job *job)
{
    job->kernels = eo_kernels();
    job->rows_per_task = 8;
    if (job->vocabulary < EO_SPLIT_FLOATS / 8)
        job->rows_per_task = eo_split_rows(job->vocabulary);
    eo_team_run(team, (uint32_t)eo_split_up(job->rows, job->rows_per_task), loss_task, job);
    double total = 0;
    for (uint64_t row = 0; row < job->rows; row++)
        total += job->losses[row];
    return total;
}

/* Without `backward` nothing is written over the logits: the cast only fits them into the one description. */
double eo_cross_entropy(eo_team *team, float *losses, const float *logits, uint64_t stride, const int32_t *targets,
                        uint64_t rows, uint64_t vocabulary)
{
    struct loss_job job = {.losses = losses,
                           .logits = (float *)(uintptr_t)logits,
                           .targets = targets,
                           .stride = stride,
                           .rows = rows,
                           .vocabulary = vocabulary};
    return loss_run(team, &job);
}

double eo_cross_entropy_backward(eo_team *team, float *losses, float *logits, uint64_t stride, const int32_t *targets,
                                 uint64_t rows, uint64_t vocabulary, float scale)
{
    struct loss_job job = {.losses = losses,
                           .logits = logits,
                           .targets = targets,
                           .stride = stride,
                           .rows = rows,
                           .vocabulary = vocabulary,
                           .scale = scale,
                           .backward = true};
    return loss_run(team, &job);
}
