/* SPDX-License-Identifier: MIT */
#include "layers/cpu/kernels.h"

#include <string.h>

#include "layers/kernel_table.h"
#include "layers/split.h"

struct embedding_rows {
    const struct eo_embedding *all;
    uint64_t rows_per_task;
};

static void embedding_forward_task(void *arg, uint32_t index)
{
    const struct embedding_rows *job = arg;
    const struct eo_embedding *e = job->all;
    const uint64_t width = e->width;
    const uint64_t first = index * job->rows_per_task;
    const uint64_t end = eo_split_min(first + job->rows_per_task, e->rows);
    for (uint64_t row = first; row < end; row++) {
        const float *token = (const float *)e->token_table + (uint64_t)(uint32_t)e->tokens[row] * width;
        float *out = (float *)e->out + row * width;
        if (e->position_table == NULL)
            memcpy(out, token, width * sizeof(float));
        else
            eo_kernels()->add(out, token, (const float *)e->position_table + row % e->seq * width, width);
    }
}

eo_status eo_cpu_embedding_forward(eo_team *team, const struct eo_embedding *e)
{
    struct embedding_rows job = {e, eo_split_rows(e->width)};
    eo_team_run(team, (uint32_t)eo_split_up(e->rows, job.rows_per_task), embedding_forward_task, &job);
    return EO_OK;
}

struct zeros {
    float *values;
    uint64_t count;
};

enum { ZERO_FLOATS = 1 << 18 }; /* 1 MiB: large enough for memset to go past the caches */

static void zero_task(void *arg, uint32_t index)
{
    const struct zeros *zeros = arg;
    const uint64_t at = (uint64_t)index * ZERO_FLOATS;
    memset(zeros->values + at, 0, eo_split_min(ZERO_FLOATS, zeros->count - at) * sizeof(float));
}

static void zero(eo_team *team, float *values, uint64_t count)
{
    struct zeros zeros = {values, count};
    eo_team_run(team, (uint32_t)eo_split_up(count, ZERO_FLOATS), zero_task, &zeros);
}

struct embedding_columns {
    const struct eo_embedding_gradient *all;
    uint64_t columns_per_task;
};

/* A task owns columns, so tokens that occur twice meet in no other thread, and each sum is taken in token order. */
static void embedding_backward_task(void *arg, uint32_t index)
{
    const struct embedding_columns *job = arg;
    const struct eo_embedding_gradient *e = job->all;
    const struct eo_kernel_table *kernels = eo_kernels();
    const uint64_t column = index * job->columns_per_task;
    const uint64_t columns = eo_split_min(job->columns_per_task, e->width - column);
    for (uint64_t row = 0; row < e->rows; row++) {
        const float *gradient = (const float *)e->out_gradient + row * e->width + column;
        float *token = (float *)e->token_gradient + (uint64_t)(uint32_t)e->tokens[row] * e->width + column;
        kernels->add(token, token, gradient, columns);
        if (e->position_gradient == NULL)
            continue;
        float *position = (float *)e->position_gradient + row % e->seq * e->width + column;
        if (row < e->seq)
            memcpy(position, gradient, columns * sizeof(float));
        else
            kernels->add(position, position, gradient, columns);
    }
}

eo_status eo_cpu_embedding_backward(eo_team *team, const struct eo_embedding_gradient *e)
{
    /* How the columns are cut changes no result, so it may follow the team. */
    const uint64_t parts = eo_team_thread_count(team);
    struct embedding_columns job = {e, eo_split_up(eo_split_up(e->width, parts), 16) * 16};
    zero(team, e->token_gradient, e->vocabulary * e->width);
    if (e->position_gradient != NULL)
        zero(team, (float *)e->position_gradient + e->seq * e->width, (e->positions - e->seq) * e->width);
    eo_team_run(team, (uint32_t)eo_split_up(e->width, job.columns_per_task), embedding_backward_task, &job);
    return EO_OK;
}
