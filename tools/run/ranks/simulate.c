/* SPDX-License-Identifier: MIT */
#include "tools/run/ranks/simulate.h"

#include <stdlib.h>

#include "tools/shared/problem.h"

struct simulation {
    const eo_plan *plan;
    uint32_t rank_count, operation_count;
    eo_plan_operation *operations;
    uint64_t *end_ns;      /* by rank, then operation: of this step, or of the one before if it has not run yet */
    uint64_t *previous_ns; /* likewise, of the step before */
    uint64_t *free_ns;     /* by rank, then stream */
};

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_collective(const eo_plan_operation *operation)
{
    const eo_operation_kind kind = operation->kind;
    return kind == EO_OP_ALL_GATHER || kind == EO_OP_REDUCE_SCATTER || kind == EO_OP_ALL_REDUCE || kind == EO_OP_NORM_GATHER ||
           kind == EO_OP_MATRIX_GATHER || kind == EO_OP_MATRIX_SCATTER;
}

static uint64_t ready_ns(const struct simulation *s, uint32_t rank, const eo_plan_operation *operation)
{
    uint64_t ready = s->free_ns[rank * EO_STREAM_COUNT + (uint32_t)operation->stream];
    for (uint32_t w = 0; w < operation->wait_count; w++) {
        const uint64_t *ends = operation->wait_previous_step[w] ? s->previous_ns : s->end_ns;
        if (operation->waits[w] < s->operation_count)
            ready = later(ready, ends[rank * s->operation_count + operation->waits[w]]);
    }
    return ready;
}

static void run_operation(struct simulation *s, uint32_t index, const uint64_t *const *durations_ns)
{
    const eo_plan_operation *operation = &s->operations[index];
    uint64_t all_ready = 0;
    for (uint32_t r = 0; r < s->rank_count; r++)
        all_ready = later(all_ready, ready_ns(s, r, operation));
    for (uint32_t r = 0; r < s->rank_count; r++) {
        const uint64_t start = is_collective(operation) ? all_ready : ready_ns(s, r, operation);
        const uint64_t end = start + durations_ns[r][index];
        s->end_ns[r * s->operation_count + index] = end;
        s->free_ns[r * EO_STREAM_COUNT + (uint32_t)operation->stream] = end;
    }
}

static uint64_t run_steps(struct simulation *s, const uint64_t *const *durations_ns, uint32_t step_count)
{
    const uint64_t cells = (uint64_t)s->rank_count * s->operation_count;
    uint64_t before_last = 0, last = 0;
    for (uint32_t step = 0; step < step_count; step++) {
        for (uint64_t i = 0; i < cells; i++)
            s->previous_ns[i] = s->end_ns[i];
        for (uint32_t index = 0; index < s->operation_count; index++)
            run_operation(s, index, durations_ns);
        before_last = last;
        /* A step ends for the trainer with compute; the gathers behind it belong to the next one. */
        for (uint32_t r = 0; r < s->rank_count; r++)
            last = later(last, s->free_ns[r * EO_STREAM_COUNT + EO_STREAM_COMPUTE]);
    }
    return last - before_last;
}

static eo_status simulation_init(struct simulation *s)
{
    const uint64_t cells = (uint64_t)s->rank_count * s->operation_count;
    s->operations = calloc(s->operation_count, sizeof(*s->operations));
    s->end_ns = calloc(cells, sizeof(*s->end_ns));
    s->previous_ns = calloc(cells, sizeof(*s->previous_ns));
    s->free_ns = calloc((uint64_t)s->rank_count * EO_STREAM_COUNT, sizeof(*s->free_ns));
    if (!s->operations || !s->end_ns || !s->previous_ns || !s->free_ns)
        return EO_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < s->operation_count; i++)
        EO_TRY(eo_plan_get_operation(s->plan, EO_LIST_STEADY, i, &s->operations[i]));
    return EO_OK;
}

eo_status tool_simulate_ranks(const eo_plan *plan, uint32_t rank_count, const uint64_t *const *durations_ns,
                              uint32_t step_count, uint64_t *out_ns)
{
    struct simulation s = {.plan = plan, .rank_count = rank_count,
                           .operation_count = eo_plan_operation_count(plan, EO_LIST_STEADY)};
    if (rank_count == 0 || step_count < 2 || s.operation_count == 0)
        return EO_ERR_INVALID;
    const eo_status status = simulation_init(&s);
    if (status >= 0)
        *out_ns = run_steps(&s, durations_ns, step_count);
    free(s.operations);
    free(s.end_ns);
    free(s.previous_ns);
    free(s.free_ns);
    return status;
}
