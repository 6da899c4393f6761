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
    const eo_dtype dtype = e->types.compute;
    const uint64_t width = e->width;
    const uint64_t first = index * job->rows_per_task;
    const uint64_t end = eo_split_min(first + job->rows_per_task, e->rows);
    for (uint64_t row = first; row < end; row++) {
        const void *token = eo_element_at(dtype, e->token_table, (uint64_t)(uint32_t)e->tokens[row] * width);
        const uint64_t at = e->positions ? (uint64_t)e->positions[row] : row % e->seq;
        const void *position = eo_element_at(dtype, e->position_table, at * width);
        void *out = eo_element_at_mutable(dtype, e->out, row * width);
        if (position == NULL)
            memcpy(out, token, width * eo_dtype_bytes(dtype));
        else
            eo_kernels_of(dtype)->add(out, token, position, width);
    }
}

eo_status eo_cpu_embedding_forward(eo_team *team, const struct eo_embedding *e)
{
    struct embedding_rows job = {e, eo_split_rows(e->width)};
    eo_team_run(team, (uint32_t)eo_split_up(e->rows, job.rows_per_task), embedding_forward_task, &job);
    return EO_OK;
}

struct zeros {
    char *values;
    uint64_t bytes;
};

enum { ZERO_BYTES = 1 << 20 }; /* large enough for memset to go past the caches */

static void zero_task(void *arg, uint32_t index)
{
    const struct zeros *zeros = arg;
    const uint64_t at = (uint64_t)index * ZERO_BYTES;
    memset(zeros->values + at, 0, eo_split_min(ZERO_BYTES, zeros->bytes - at));
}

static void zero(eo_team *team, void *values, uint64_t bytes)
{
    struct zeros zeros = {values, bytes};
    eo_team_run(team, (uint32_t)eo_split_up(bytes, ZERO_BYTES), zero_task, &zeros);
}

/* In bf16 the rows of a token form a chain, in their order: its sum is taken as a whole and rounded once. In fp32 the rows
 * are added where the sum is to be, which needs no scratch: `first` and `next` are NULL. */
struct embedding_columns {
    const struct eo_embedding_gradient *all;
    uint32_t *first; /* [vocabulary] row of a token */
    uint32_t *next;  /* [rows] */
    uint64_t columns_per_task;
};

uint64_t eo_cpu_embedding_bf16_scratch_bytes(uint64_t rows, uint64_t width, uint64_t vocabulary)
{
    (void)width;
    return (vocabulary + rows) * sizeof(uint32_t);
}

static void chain_rows(const struct embedding_columns *job)
{
    const struct eo_embedding_gradient *e = job->all;
    memset(job->first, 0xff, e->vocabulary * sizeof(*job->first)); /* EO_CHAIN_END */
    for (uint64_t row = e->rows; row-- > 0;) {
        job->next[row] = job->first[e->tokens[row]];
        job->first[e->tokens[row]] = (uint32_t)row;
    }
}

/* Of columns that fit a strip. */
static void embedding_strip(const struct embedding_columns *job, uint64_t column, uint64_t columns)
{
    const struct eo_embedding_gradient *e = job->all;
    const struct eo_kernel_table *kernels = eo_kernels_of(e->types.compute);
    const void *gradients = eo_element_at(e->types.compute, e->out_gradient, column);
    struct eo_strip strip = {.types = e->types, .columns = columns, .stride = e->width, .accumulate = e->adds};
    for (uint64_t row = 0; row < e->rows; row++) {
        const uint64_t token = (uint64_t)(uint32_t)e->tokens[row];
        strip.sums = eo_element_at_mutable(e->types.gradient, e->token_gradient, token * e->width + column);
        if (job->first == NULL)
            kernels->add(strip.sums, strip.sums, eo_element_at(EO_DTYPE_FP32, gradients, row * e->width), columns);
        else if (job->first[token] == row)
            kernels->chain_sums(&strip, gradients, job->next, (uint32_t)row);
    }
    strip.rows = e->rows / e->seq;
    strip.stride = e->seq * e->width;
    strip.accumulate = false;
    for (uint64_t position = 0; e->position_gradient != NULL && position < e->seq; position++) {
        const uint64_t at = position * e->width;
        strip.sums = eo_element_at_mutable(e->types.gradient, e->position_gradient, at + column);
        kernels->column_sums(&strip, eo_element_at(e->types.compute, gradients, at));
    }
}

static void embedding_backward_task(void *arg, uint32_t index)
{
    const struct embedding_columns *job = arg;
    const uint64_t width = job->all->width, first = index * job->columns_per_task;
    const uint64_t end = eo_split_min(first + job->columns_per_task, width);
    for (uint64_t column = first; column < end; column += EO_STRIP)
        embedding_strip(job, column, eo_split_min(EO_STRIP, end - column));
}

eo_status eo_cpu_embedding_backward(eo_team *team, const struct eo_embedding_gradient *e)
{
    /* How the columns are cut changes no result, so it may follow the team. */
    const uint64_t parts = eo_team_thread_count(team), row_bytes = e->width * eo_dtype_bytes(e->types.gradient);
    struct embedding_columns job = {.all = e, .columns_per_task = eo_split_up(eo_split_up(e->width, parts), 16) * 16};
    if (e->types.compute == EO_DTYPE_BF16) {
        job.first = e->scratch;
        job.next = job.first + e->vocabulary;
        chain_rows(&job);
    }
    if (!e->adds)
        zero(team, e->token_gradient, e->vocabulary * row_bytes);
    if (e->position_gradient != NULL)
        zero(team, (char *)e->position_gradient + e->seq * row_bytes, (e->positions - e->seq) * row_bytes);
    eo_team_run(team, (uint32_t)eo_split_up(e->width, job.columns_per_task), embedding_backward_task, &job);
    return EO_OK;
}
