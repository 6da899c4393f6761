/* SPDX-License-Identifier: MIT */
#include "layers/residual.h"

enum { ROWS_A_TASK = 32 };

struct residual_add {
    float *output;
    const float *residual, *bias;
    uint64_t rows, width;
};

static void residual_add_task(void *arg, uint32_t index)
{
    const struct residual_add *job = arg;
    const uint64_t width = job->width, first = (uint64_t)index * ROWS_A_TASK;
    const uint64_t end = first + ROWS_A_TASK < job->rows ? first + ROWS_A_TASK : job->rows;
    for (uint64_t row = first; row < end; row++) {
        float *restrict output = job->output + row * width;
        const float *restrict residual = job->residual + row * width, *restrict bias = job->bias;
        if (bias) {
            for (uint64_t i = 0; i < width; i++)
                output[i] = residual[i] + (output[i] + bias[i]);
        } else {
            for (uint64_t i = 0; i < width; i++)
                output[i] += residual[i];
        }
    }
}

void eo_residual_add(eo_team *team, float *output, const float *residual, const float *bias, uint64_t rows,
                     uint64_t width)
{
    struct residual_add job = {output, residual, bias, rows, width};
    eo_team_run(team, (uint32_t)((rows + ROWS_A_TASK - 1) / ROWS_A_TASK), residual_add_task, &job);
}
