/* SPDX-License-Identifier: MIT */
#include "layers/kernels.h"

#include <string.h>

#include "layers/kernel_table.h"
#include "layers/split.h"

struct embedding_job {
    const struct eo_kernel_table *kernels;
    const int32_t *tokens;
    const float *token_table, *position_table;
    float *out;
    float *token_gradient, *position_gradient;
    const float *out_gradient;
    uint64_t rows, width, rows_per_task, columns_per_task, positions;
    uint32_t seq;
    bool accumulate;
};

static void embedding_forward_task(void *arg, uint32_t index)
{
    const struct embedding_job *job = arg;
    const uint64_t width = job->width;
    const uint64_t first = index * job->rows_per_task;
    const uint64_t end = eo_split_min(first + job->rows_per_task, job->rows);
    for (uint64_t row = first; row < end; row++) {
        const float *token = job->token_table + (uint64_t)(uint32_t)job->tokens[row] * width;
        if (job->position_table == NULL)
            memcpy(job->out + row * width, token, width * sizeof(float));
        else
            job->kernels->add(job->out + row * width, token, job->position_table + row % job->seq * width, width);
    }
}

void eo_embedding_forward(eo_team *team, float *out, const int32_t *tokens, const float *token_table,
                          const float *position_table, uint64_t rows, uint32_t seq, uint64_t width)
{
    struct embedding_job job = {.kernels = eo_kernels(),
                                .tokens = tokens,
                                .token_table = token_table,
                                .position_table = position_table,
                                .out = out,
                                .rows = rows,
                                .width = width,
                                .rows_per_task = eo_split_rows(width),
                                .seq = seq};
    eo_team_run(team, (uint32_t)eo_split_up(rows, job.rows_per_task), embedding_forward_task, &job);
}

/* A task owns columns, so tokens that occur twice meet in no other thread, and each sum is taken in token order. */
static void embedding_backward_task(void *arg, uint32_t index)
{
    const struct embedding_job *job = arg;
    const uint64_t column = index * job->columns_per_task;
    const uint64_t columns = eo_split_min(job->columns_per_task, job->width - column);
    for (uint64_t row = 0; row < job->rows; row++) {
        const float *gradient = job->out_gradient + row * job->width + column;
        float *token = job->token_gradient + (uint64_t)(uint32_t)job->tokens[row] * job->width + column;
        job->kernels->add(token, token, gradient, columns);
        if (job->position_gradient == NULL)
            continue;
        float *position = job->position_gradient + row % job->seq * job->width + column;
        if (row < job->seq && !job->accumulate)
            memcpy(position, gradient, columns * sizeof(float));
        else
            job->kernels->add(position, position, gradient, columns);
    }
}

void eo_embedding_backward(eo_team *team, float *token_gradient, float *position_gradient, const float *out_gradient,
                           const int32_t *tokens, uint64_t rows, uint32_t seq, uint64_t width, uint64_t vocabulary,
                           uint64_t positions, bool accumulate)
{
    /* How the columns are cut changes no result, so it may follow the team. */
    const uint64_t parts = eo_team_thread_count(team);
    struct embedding_job job = {.kernels = eo_kernels(),
                                .tokens = tokens,
                                .token_gradient = token_gradient,
                                .position_gradient = position_gradient,
                                .out_gradient = out_gradient,
                                .rows = rows,
                                .width = width,
                                .columns_per_task = eo_split_up(eo_split_up(width, parts), 16) * 16,
                                .seq = seq,
                                .accumulate = accumulate};
    if (!accumulate) {
        eo_zero(team, token_gradient, vocabulary * width);
        if (position_gradient != NULL)
            eo_zero(team, position_gradient + seq * width, (positions - seq) * width);
    }
    eo_team_run(team, (uint32_t)eo_split_up(width, job.columns_per_task), embedding_backward_task, &job);
}
