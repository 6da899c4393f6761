/* SPDX-License-Identifier: MIT */
#include "runtime/plan/list/buffer_agenda.h"

#include <stdlib.h>

/* When a forward-only run is at a position, in the order of a training micro-batch. */
static uint32_t forward_moment(const struct eo_plan *plan, uint32_t p)
{
    const eo_pass where = plan->positions[p].forward_in_backward ? EO_PASS_BACKWARD : EO_PASS_FORWARD;
    return eo_moment_order((eo_moment){where, p}, plan->position_count);
}

static bool is_within(uint32_t moment, uint32_t first, uint32_t last)
{
    return first <= moment && moment <= last;
}

/* From the first position whose moment the lifetime covers to the last one, in the order of a forward-only run. */
struct evaluation_life eo_evaluation_life(const struct eo_plan *plan, const struct plan_buffer *buffer)
{
    const uint32_t first = eo_moment_order(buffer->first, plan->position_count);
    const uint32_t last = eo_moment_order(buffer->last, plan->position_count);
    struct evaluation_life life = {EO_NONE, EO_NONE};
    if (buffer->shared) /* by a later position */
        return (struct evaluation_life){buffer->first.position, buffer->first.position};
    /* Moments of backward passes descend: from the position of the last one, to that of the first one. */
    const uint32_t count = plan->position_count, end = first < count ? count - 1 : count - 1 - (first - count) / 2;
    const uint32_t turned = last < count ? first : count - 1 - (last - count) / 2;
    for (uint32_t p = first < turned ? first : turned; p <= end && life.first == EO_NONE; p++)
        life.first = is_within(forward_moment(plan, p), first, last) ? p : EO_NONE;
    if (life.first == EO_NONE)
        return life;
    for (life.last = end; !is_within(forward_moment(plan, life.last), first, last);)
        life.last--;
    return life;
}

bool eo_evaluation_turns(const struct eo_plan *plan)
{
    for (uint32_t p = 0; p + 1 < plan->position_count; p++)
        if (plan->positions[p].forward_in_backward)
            return true;
    return false;
}

static uint32_t key_of(const struct eo_plan *plan, const struct plan_buffer *buffer, enum agenda_key by)
{
    if (buffer->persistent)
        return EO_NONE;
    switch (by) {
    case AGENDA_FIRST:
        return eo_moment_order(buffer->first, plan->position_count);
    case AGENDA_LAST:
        return eo_moment_order(buffer->last, plan->position_count);
    case AGENDA_EVALUATION_FIRST:
        return eo_evaluation_life(plan, buffer).first;
    case AGENDA_EVALUATION_LAST:
        break;
    }
    return eo_evaluation_life(plan, buffer).last;
}

eo_status eo_buffer_agenda_make(struct buffer_agenda *out, const struct eo_plan *plan, enum agenda_key by)
{
    const size_t keys = (size_t)(by < AGENDA_EVALUATION_FIRST ? 3 : 1) * plan->position_count;
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
