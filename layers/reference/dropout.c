/* SPDX-License-Identifier: MIT
 *
 * Dropout for kernels on host memory, in plain C: the standard for the others, whose masks are the same.
 */
#include "layers/reference/kernels.h"
#include "layers/split.h"

enum { ROWS_A_TASK = 16 };

static void drop_row(const struct eo_dropout *d, const eo_random_place *place, uint64_t row)
{
    const eo_dtype dtype = d->types.compute;
    const uint32_t threshold = eo_random_threshold(d->probability);
    const float scale = 1.0f / (1.0f - d->probability);
    const uint64_t first = row % d->seq * d->width, at = row * d->width;
    uint32_t words[4];
    for (uint64_t i = 0; i < d->width; i++) {
        if (i == 0 || (first + i) % 4 == 0)
            eo_random_words(place, (uint32_t)((first + i) / 4), words);
        const float bias = d->bias ? eo_element_load(dtype, d->bias, i) : 0;
        const float value = (eo_element_load(dtype, d->in, at + i) + bias) * scale;
        const float residual = d->residual ? eo_element_load(dtype, d->residual, at + i) : 0;
        eo_element_store(dtype, d->out, at + i, residual + (words[(first + i) % 4] >= threshold ? value : 0));
    }
}

static void drop_task(void *arg, uint32_t index)
{
    const struct eo_dropout *d = arg;
    const uint64_t begin = (uint64_t)index * ROWS_A_TASK, end = begin + eo_split_min(ROWS_A_TASK, d->rows - begin);
    for (uint64_t row = begin; row < end; row++) {
        eo_random_place place = *d->place;
        place.sample += row / d->seq;
        place.position = d->position;
        drop_row(d, &place, row);
    }
}

eo_status eo_host_dropout(eo_team *team, const struct eo_dropout *dropout)
{
    struct eo_dropout all = *dropout;
    eo_team_run(team, (uint32_t)eo_split_up(all.rows, ROWS_A_TASK), drop_task, &all);
    return EO_OK;
}
