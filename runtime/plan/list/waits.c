/* SPDX-License-Identifier: MIT
 *
 * Waits, derived. Operations are taken in issue order, run after run. From the accesses by row we know, for each
 * operation, the latest conflicting operation on every other stream; a vector clock knows which of those have ended
 * anyway, by stream order and the waits already there. Where one has not, a wait for it is put down. So an operation
 * has at most one wait a stream, and no wait that follows from others. The same clocks tell how many operations of a
 * communication stream may be under way at one time.
 */
#include "runtime/plan/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Who touched a row last, by stream: the number of operations of that stream up to and including it. */
struct row_history {
    uint32_t written[EO_STREAM_COUNT], read[EO_STREAM_COUNT];
};

struct deriver {
    struct eo_plan *plan;
    struct plan_trace *trace;
    struct row_history *rows;
    uint32_t clock[EO_STREAM_COUNT][EO_STREAM_COUNT]; /* of the last operation of each stream */
};

void eo_plan_trace_free(struct plan_trace *trace)
{
    free(trace->instances);
    free(trace->sequence);
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        free(trace->by_stream[s]);
    memset(trace, 0, sizeof(*trace));
}

static eo_status trace_init(struct plan_trace *trace, const struct eo_plan *plan, const eo_list *sequence, uint32_t run_count)
{
    uint64_t total = 0;
    *trace = (struct plan_trace){.run_count = run_count};
    for (uint32_t r = 0; r < run_count; r++)
        total += plan->schedule.lists[sequence[r]].count;
    trace->instances = malloc((total + 1) * sizeof(*trace->instances));
    trace->sequence = malloc((run_count + 1) * sizeof(*trace->sequence));
    bool ok = trace->instances && trace->sequence;
    for (int s = 0; s < EO_STREAM_COUNT; s++) {
        trace->by_stream[s] = malloc((total + 1) * sizeof(uint32_t));
        ok = ok && trace->by_stream[s];
    }
    if (!ok) {
        eo_plan_trace_free(trace);
        return EO_ERR_NO_MEMORY;
    }
    memcpy(trace->sequence, sequence, run_count * sizeof(*sequence));
    return EO_OK;
}

static void raise(uint32_t *clock, const uint32_t *other)
{
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        if (other[s] > clock[s])
            clock[s] = other[s];
}

/* How far each other stream must have come before the operation may start. */
static void find_needs(const struct deriver *d, const struct eo_operation *operation, uint32_t *needs)
{
    memset(needs, 0, EO_STREAM_COUNT * sizeof(*needs));
    for (uint32_t a = 0; a < operation->access_count; a++) {
        const struct eo_access *access = &d->plan->schedule.accesses[operation->access_begin + a];
        const struct row_history *row = &d->rows[access->row];
        raise(needs, row->written);
        if (access->mode != EO_READ)
            raise(needs, row->read);
    }
}

static void note_accesses(struct deriver *d, const struct eo_operation *operation, uint32_t place)
{
    for (uint32_t a = 0; a < operation->access_count; a++) {
        const struct eo_access *access = &d->plan->schedule.accesses[operation->access_begin + a];
        struct row_history *row = &d->rows[access->row];
        if (access->mode != EO_READ)
            row->written[operation->stream] = place;
        if (access->mode != EO_WRITE)
            row->read[operation->stream] = place;
    }
}

static const struct eo_operation *operation_of(const struct deriver *d, const struct plan_instance *instance)
{
    return &d->plan->schedule.lists[d->trace->sequence[instance->run]].operations[instance->operation];
}

/* Puts down a wait for the n-th operation of a stream. False: it lies more than a run back, which no wait can name. */
static bool add_wait(struct deriver *d, struct eo_operation *operation, uint32_t run, uint32_t stream, uint32_t n)
{
    const struct plan_instance *instance = &d->trace->instances[d->trace->by_stream[stream][n - 1]];
    if (instance->run + 1 < run)
        return false;
    operation->wait[stream] = operation_of(d, instance)->id;
    operation->wait_previous_run[stream] = instance->run < run;
    return true;
}

static bool derive_operation(struct deriver *d, struct eo_operation *operation, uint32_t run, uint32_t index)
{
    struct plan_trace *trace = d->trace;
    struct plan_instance *instance = &trace->instances[trace->count];
    uint32_t *clock = d->clock[operation->stream];
    uint32_t needs[EO_STREAM_COUNT];
    find_needs(d, operation, needs);
    for (uint32_t s = 0; s < EO_STREAM_COUNT; s++) {
        operation->wait[s] = EO_NONE;
        operation->wait_previous_run[s] = false;
    }
    /* A wait may bring another with it: first those whose operation already knows what is needed of the rest. */
    for (uint32_t s = 0; s < EO_STREAM_COUNT; s++) {
        if (s == operation->stream || needs[s] <= clock[s])
            continue;
        bool follows = false;
        for (uint32_t o = 0; o < EO_STREAM_COUNT && !follows; o++)
            follows = o != s && o != operation->stream && needs[o] > clock[o] &&
                      trace->instances[trace->by_stream[o][needs[o] - 1]].clock[s] >= needs[s];
        if (!follows && !add_wait(d, operation, run, s, needs[s]))
            return false;
    }
    for (uint32_t s = 0; s < EO_STREAM_COUNT; s++)
        if (operation->wait[s] != EO_NONE)
            raise(clock, trace->instances[trace->by_stream[s][needs[s] - 1]].clock);

    const uint32_t place = ++trace->stream_count[operation->stream];
    uint32_t *items = &d->plan->schedule.queue_items[operation->stream];
    if (operation->stream != EO_STREAM_COMPUTE && place - d->clock[EO_STREAM_COMPUTE][operation->stream] > *items)
        *items = place - d->clock[EO_STREAM_COMPUTE][operation->stream];
    clock[operation->stream] = place;
    *instance = (struct plan_instance){.run = run, .operation = index};
    memcpy(instance->clock, clock, sizeof(instance->clock));
    trace->by_stream[operation->stream][place - 1] = trace->count++;
    note_accesses(d, operation, place);
    return true;
}

eo_status eo_plan_derive_waits(struct eo_plan *plan, const eo_list *sequence, uint32_t run_count, struct plan_trace *out)
{
    EO_TRY(trace_init(out, plan, sequence, run_count));
    struct deriver d = {.plan = plan, .trace = out};
    d.rows = calloc(plan->row_count, sizeof(*d.rows));
    if (!d.rows) {
        eo_plan_trace_free(out);
        return EO_ERR_NO_MEMORY;
    }
    bool derived = true;
    for (uint32_t run = 0; run < run_count && derived; run++) {
        struct eo_operation_list *list = &plan->schedule.lists[sequence[run]];
        for (uint32_t i = 0; i < list->count && derived; i++)
            derived = derive_operation(&d, &list->operations[i], run, i);
    }
    free(d.rows);
    if (derived)
        return EO_OK;
    eo_log_write(&plan->log, EO_LOG_ERROR, "the schedule of model '%s' needs a wait across two steps",
                 plan->model_name);
    eo_plan_trace_free(out);
    return EO_ERR_SCHEDULE;
}
