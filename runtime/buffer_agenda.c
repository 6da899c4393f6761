/* SPDX-License-Identifier: MIT */
#include "runtime/buffer_agenda.h"

#include <stdlib.h>

static uint32_t evaluation_end(const struct eo_plan *plan, const struct plan_buffer *buffer)
{
    const uint32_t last = eo_moment_order(buffer->last, plan->position_count);
    uint32_t end = EO_NONE;
    for (uint32_t p = 0; p < plan->position_count; p++)
        if (eo_begins_in_forward(plan, buffer, p) || (end != EO_NONE && eo_forward_moment(plan, p) <= last))
            end = p;
    return end;
}

static uint32_t key_of(const struct eo_plan *plan, const struct plan_buffer *buffer, enum agenda_key by)
{
    if (buffer->persistent)
        return EO_NONE;
    if (by == AGENDA_EVALUATION)
        return evaluation_end(plan, buffer);
    return eo_moment_order(by == AGENDA_FIRST ? buffer->first : buffer->last, plan->position_count);
}

eo_status eo_buffer_agenda_make(struct buffer_agenda *out, const struct eo_plan *plan, enum agenda_key by)
{
    const size_t keys = (size_t)(by == AGENDA_EVALUATION ? 1 : 3) * plan->position_count;
    out->begin = calloc(keys + 2, sizeof(*out->begin));
    out->buffers = calloc((size_t)plan->buffer_count + 1, sizeof(*out->buffers));
    if (!out->begin || !out->buffers)
        return EO_ERR_NO_MEMORY;
    for (int round = 0; round < 2; round++) { /* count, then fill */
        for (uint32_t b = 0; b < plan->buffer_count; b++) {
            const uint32_t key = key_of(plan, &plan->buffers[b], by);
            if (key == EO_NONE)
                continue;
            if (round == 0)
                out->begin[key + 2]++;
            else
                out->buffers[out->begin[key + 1]++] = b;
        }
        for (size_t k = 2; round == 0 && k < keys + 2; k++)
            out->begin[k] += out->begin[k - 1];
    }
    return EO_OK;
}

void eo_buffer_agenda_free(struct buffer_agenda *agenda)
{
    free(agenda->begin);
    free(agenda->buffers);
}
