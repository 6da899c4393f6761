/* SPDX-License-Identifier: MIT */
#include "layers/cpu/kernels.h"

#include <math.h>
#include <stdatomic.h>

#include "layers/kernel_table.h"
#include "layers/reference/kernels.h"
#include "layers/split.h"

/* Exponentials of a row stay where fp32's logits were; bf16 would round them, so a lane has a place for those of a row. */
static uint64_t lane_exponentials(uint64_t vocabulary)
{
    return eo_split_up(vocabulary, 16) * 16;
}

/* As many lanes as threads; a lane takes the next rows until none are left. */
struct loss_job {
    const struct eo_loss *all;
    const struct eo_kernel_table *kernels;
    uint64_t rows_per_turn;
    _Atomic uint64_t next;
};

uint64_t eo_cpu_loss_bf16_scratch_bytes(uint64_t vocabulary, uint32_t thread_count)
{
    return thread_count * lane_exponentials(vocabulary) * sizeof(float);
}

static void loss_row(const struct loss_job *job, uint64_t row, bool last, float *exponentials)
{
    const struct eo_loss *l = job->all;
    const eo_dtype dtype = l->types.compute;
    void *logits = eo_element_at_mutable(dtype, l->logits, row * l->stride);
    const uint32_t target = (uint32_t)l->targets[row];
    if (eo_host_loss_ignores(l, row))
        return;
    const float target_logit = eo_element_load(dtype, logits, target);
    const void *next = last ? NULL : eo_element_at(dtype, logits, l->stride);
    if (dtype == EO_DTYPE_FP32)
        exponentials = logits;
    float max = 0;
    float sum = 0;
    job->kernels->softmax_sum(logits, next, l->vocabulary, l->backward ? exponentials : NULL, &max, &sum);
    l->losses[row] = (float)(log(sum) + max - (double)target_logit);
    if (l->backward)
        job->kernels->softmax_gradient(logits, exponentials, l->vocabulary, l->scale / sum, target, l->scale);
}

static void loss_task(void *arg, uint32_t lane)
{
    struct loss_job *job = arg;
    const struct eo_loss *l = job->all;
    float *exponentials = eo_row_mutable(l->scratch, lane, lane_exponentials(l->vocabulary));
    uint64_t first;
    while ((first = atomic_fetch_add(&job->next, job->rows_per_turn)) < l->rows) {
        const uint64_t end = eo_split_min(first + job->rows_per_turn, l->rows);
        for (uint64_t row = first; row < end; row++)
            loss_row(job, row, row + 1 == end, exponentials);
    }
}

eo_status eo_cpu_cross_entropy(eo_team *team, const struct eo_loss *l)
{
    struct loss_job job = {l, eo_kernels_of(l->types.compute), 8, 0};
    if (l->vocabulary < EO_SPLIT_FLOATS / 8)
        job.rows_per_turn = eo_split_rows(l->vocabulary);
    eo_team_run(team, eo_team_thread_count(team), loss_task, &job);
    double total = 0;
    for (uint64_t row = 0; row < l->rows; row++)
        total += l->losses[row];
    *l->loss_sum += total;
    return EO_OK;
}
