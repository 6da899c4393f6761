/* SPDX-License-Identifier: MIT */
#include "layers/cpu/kernels.h"

#include <math.h>

#include "layers/kernel_table.h"
#include "layers/reference/kernels.h"
#include "layers/split.h"

struct loss_job {
    const struct eo_loss *all;
    const struct eo_kernel_table *kernels;
    uint64_t rows_per_task;
};

static void loss_row(const struct loss_job *job, uint64_t row, bool last)
{
    const struct eo_loss *l = job->all;
    const eo_dtype dtype = l->types.compute;
    void *logits = eo_element_at_mutable(dtype, l->logits, row * l->stride);
    const uint32_t target = (uint32_t)l->targets[row];
    if (eo_host_loss_ignores(l, row))
        return;
    const float target_logit = eo_element_load(dtype, logits, target);
    float max = 0;
    float sum = 0;
    job->kernels->softmax_sum(logits, last ? NULL : eo_element_at(dtype, logits, l->stride), l->vocabulary, l->backward, &max,
                              &sum);
    l->losses[row] = (float)(log(sum) + max - (double)target_logit);
    if (l->backward)
        job->kernels->softmax_gradient(logits, l->vocabulary, max, l->scale / sum, target, l->scale);
}

static void loss_task(void *arg, uint32_t index)
{
    const struct loss_job *job = arg;
    const uint64_t first = index * job->rows_per_task;
    const uint64_t end = eo_split_min(first + job->rows_per_task, job->all->rows);
    for (uint64_t row = first; row < end; row++)
        loss_row(job, row, row + 1 == end);
}

eo_status eo_cpu_cross_entropy(eo_team *team, const struct eo_loss *l)
{
    struct loss_job job = {l, eo_kernels_of(l->types.compute), 8};
    if (l->vocabulary < EO_SPLIT_FLOATS / 8)
        job.rows_per_task = eo_split_rows(l->vocabulary);
    eo_team_run(team, (uint32_t)eo_split_up(l->rows, job.rows_per_task), loss_task, &job);
    double total = 0;
    for (uint64_t row = 0; row < l->rows; row++)
        total += l->losses[row];
    *l->loss_sum += total;
    return EO_OK;
}
