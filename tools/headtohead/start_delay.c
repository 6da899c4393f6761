/* SPDX-License-Identifier: MIT */
#include "tools/headtohead/start_delay.h"

#include <stdlib.h>

int tool_collective_of(eo_operation_kind kind)
{
    switch ((int)kind) {
    case EO_OP_ALL_GATHER:
    case EO_OP_MATRIX_GATHER:
        return EO_WAIT_ALL_GATHER;
    case EO_OP_REDUCE_SCATTER:
    case EO_OP_ALL_REDUCE:
    case EO_OP_MATRIX_SCATTER:
        return EO_WAIT_REDUCE_SCATTER;
    case EO_OP_NORM_GATHER: return EO_WAIT_NORM;
    default: return -1;
    }
}

struct delays {
    const eo_plan *plan;
    eo_plan_operation *operations;
    uint32_t operation_count, rank_count;
    uint32_t *before; /* by operation: the one before it on its stream; of the first the last, of the step before */
    uint64_t slack_ns;
};

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* `step` is a rank's spans of one step; those of the step before lie before it. */
static uint64_t end_of(const struct delays *d, const struct tool_step_span *step, uint32_t operation, bool previous_step)
{
    return operation < d->operation_count ? (previous_step ? step - d->operation_count : step)[operation].end_ns : 0;
}

static uint64_t ready_ns(const struct delays *d, const struct tool_step_span *step, uint32_t index)
{
    const eo_plan_operation *operation = &d->operations[index];
    const uint32_t before = d->before[index];
    uint64_t ready = later(step[index].issued_ns, end_of(d, step, before, before >= index));
    for (uint32_t w = 0; w < operation->wait_count; w++)
        ready = later(ready, end_of(d, step, operation->waits[w], operation->wait_previous_step[w]));
    return ready;
}

static void add(struct tool_start_delay *sum, uint64_t delay_ns, uint64_t late_ns)
{
    sum->delay_s += (double)delay_ns * 1e-9;
    sum->late_s += (double)late_ns * 1e-9;
    sum->count++;
}

static void add_collective(const struct delays *d, const struct tool_step_span *const *steps, uint32_t index,
                           struct tool_start_delays *out)
{
    const int kind = tool_collective_of(d->operations[index].kind);
    uint64_t all_ready = 0;
    for (uint32_t r = 0; r < d->rank_count; r++)
        all_ready = later(all_ready, ready_ns(d, steps[r], index));
    for (uint32_t r = 0; r < d->rank_count; r++) {
        const uint64_t start = steps[r][index].start_ns;
        const uint64_t delay = start > all_ready ? start - all_ready : 0, late = all_ready - ready_ns(d, steps[r], index);
        out->early_count += start + d->slack_ns < ready_ns(d, steps[r], index);
        add(&out->kinds[kind], delay, late);
        add(&out->operations[index], delay, late);
    }
}

/* The list is run again and again, so before the first operation of a stream stands its last. */
static void find_before(struct delays *d)
{
    uint32_t last[EO_STREAM_COUNT];
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        last[s] = UINT32_MAX;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < d->operation_count; i++) {
            d->before[i] = last[d->operations[i].stream];
            last[d->operations[i].stream] = i;
        }
    }
}

static eo_status run(struct delays *d, uint64_t step_count, const struct tool_step_span *const *spans,
                     const uint64_t *const *complete, struct tool_start_delays *out)
{
    const struct tool_step_span **steps = calloc(d->rank_count, sizeof(*steps));
    if (!steps)
        return EO_ERR_NO_MEMORY;
    for (uint64_t s = 1; s < step_count; s++) {
        bool is_complete = true;
        for (uint32_t r = 0; r < d->rank_count; r++) {
            is_complete = is_complete && complete[r][s] && complete[r][s - 1];
            steps[r] = spans[r] + s * d->operation_count;
        }
        for (uint32_t i = 0; is_complete && i < d->operation_count; i++)
            if (tool_collective_of(d->operations[i].kind) >= 0)
                add_collective(d, steps, i, out);
    }
    free(steps);
    return EO_OK;
}

eo_status tool_start_delays(const eo_plan *plan, uint32_t rank_count, uint64_t step_count,
                            const struct tool_step_span *const *spans, const uint64_t *const *complete, uint64_t slack_ns,
                            struct tool_start_delays *out)
{
    struct delays d = {.plan = plan, .rank_count = rank_count, .slack_ns = slack_ns,
                       .operation_count = eo_plan_operation_count(plan, EO_LIST_STEADY)};
    *out = (struct tool_start_delays){0};
    d.operations = calloc(d.operation_count, sizeof(*d.operations));
    d.before = calloc(d.operation_count, sizeof(*d.before));
    out->operations = calloc(d.operation_count, sizeof(*out->operations));
    eo_status status = d.operations && d.before && out->operations ? EO_OK : EO_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < d.operation_count && status >= 0; i++)
        status = eo_plan_get_operation(plan, EO_LIST_STEADY, i, &d.operations[i]);
    if (status >= 0) {
        find_before(&d);
        status = run(&d, step_count, spans, complete, out);
    }
    free(d.operations);
    free(d.before);
    return status;
}
