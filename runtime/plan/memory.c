/* SPDX-License-Identifier: MIT
 *
 * Lifetimes, and from them offsets.
 *
 * Time is told by the compute stream: its n-th operation is the point 2n. A collective lies between the last compute
 * operation that has ended before it starts and the first that cannot start before it has ended, both by vector clock:
 * an open interval. So two rows whose intervals do not meet are ordered by happens-before, whatever the streams do,
 * and may share addresses.
 *
 *     compute   |  B(5) |  B(4) |  B(3)  |
 *     points       2n     2n+2    2n+4
 *     reduce-scatter(5), waited for by B(3):  2n+1 ... 2n+3
 *
 * For placement the step is folded: the same operation of every micro-batch is one point, and a row is live at a point
 * if it is live there in any micro-batch. That only ever adds lifetime. The lower bound is taken without folding.
 *
 * A forward-only run comes to its passes in the order of a step, so that what does not live at one time there does not in
 * it either. With a head before the last position it does not: then its passes are points of their own, after the step's. Those
 * of a run for inputs alone always are: nothing in it waits for reductions.
 */
#include "runtime/plan/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "buffers/placement.h"

/* From the write of a content to its last read. */
struct episode {
    bool open;
    uint32_t run;
    uint64_t first, last; /* points */
};

struct row_interval {
    uint32_t row;
    struct eo_interval interval;
};

struct lifetimes {
    struct eo_plan *plan;
    const struct plan_trace *trace;
    struct episode *episodes; /* by row */
    struct row_interval *intervals;
    uint32_t interval_count, interval_capacity;
    uint32_t *ended_by; /* by instance, of collectives: number of the first compute operation that follows, or 0 */
    int64_t *live;      /* by point of the middle run and category: change of live bytes */
    uint64_t run_begin, run_points;
    bool *always;
    uint32_t time_count; /* of the folded step, and of what stands behind it */
    bool no_memory, wrong;
};

static const struct eo_operation *operation_of(const struct lifetimes *l, uint32_t instance)
{
    const struct plan_instance *at = &l->trace->instances[instance];
    return &l->plan->schedule.lists[l->trace->sequence[at->run]].operations[at->operation];
}

/* The n-th compute operation, from 1. */
static uint32_t compute_instance(const struct lifetimes *l, uint64_t n)
{
    return l->trace->by_stream[EO_STREAM_COMPUTE][n - 1];
}

static void find_ends(struct lifetimes *l)
{
    const struct plan_trace *trace = l->trace;
    for (uint32_t s = EO_STREAM_COMM; s < EO_STREAM_COUNT; s++) {
        uint32_t next = 0;
        for (uint32_t n = 0; n < trace->stream_count[EO_STREAM_COMPUTE]; n++) {
            const struct plan_instance *compute = &trace->instances[trace->by_stream[EO_STREAM_COMPUTE][n]];
            for (; next < trace->stream_count[s] && next < compute->clock[s]; next++)
                l->ended_by[trace->by_stream[s][next]] = n + 1;
        }
    }
}

static uint32_t fold_of(const struct lifetimes *l, uint64_t n)
{
    return l->plan->places[operation_of(l, compute_instance(l, n))->id].fold;
}

/* Points to folded points. Two neighbours may fold to the same point; then what lies between them does too. */
static uint32_t fold_first(const struct lifetimes *l, uint64_t point)
{
    const uint64_t n = point / 2, count = l->trace->stream_count[EO_STREAM_COMPUTE];
    if (n == 0)
        return 0;
    const uint32_t fold = fold_of(l, n);
    if (point % 2 == 0 || (n < count && fold_of(l, n + 1) == fold))
        return 2 * fold;
    return 2 * fold + 1;
}

static uint32_t fold_last(const struct lifetimes *l, uint64_t point)
{
    const uint64_t n = (point + 1) / 2;
    const uint32_t fold = fold_of(l, n);
    if (point % 2 == 0 || (n > 1 && fold_of(l, n - 1) == fold) || fold == 0)
        return 2 * fold;
    return 2 * fold - 1;
}

static void add_interval(struct lifetimes *l, uint32_t row, uint32_t first, uint32_t last)
{
    if (l->interval_count == l->interval_capacity) {
        const uint32_t larger = l->interval_capacity ? l->interval_capacity * 2 : 4096;
        struct row_interval *moved = realloc(l->intervals, larger * sizeof(*moved));
        if (!moved) {
            l->no_memory = true;
            return;
        }
        l->intervals = moved;
        l->interval_capacity = larger;
    }
    l->wrong = l->wrong || first > last || last >= l->time_count;
    l->intervals[l->interval_count++] = (struct row_interval){row, {first, last}};
}

static void fold_episode(struct lifetimes *l, uint32_t row, const struct episode *episode)
{
    const struct eo_plan *plan = l->plan;
    const uint32_t batch_end = 2 * plan->batch_fold_count - 1, step_end = 2 * plan->fold_count - 1;
    const uint64_t from = eo_max_u64(episode->first / 2, 1), to = (episode->last + 1) / 2;
    const uint32_t run_from = l->trace->instances[compute_instance(l, from)].run;
    const uint32_t run_to = l->trace->instances[compute_instance(l, to)].run;
    const uint32_t batch_from = plan->places[operation_of(l, compute_instance(l, from))->id].micro_batch;
    const uint32_t batch_to = plan->places[operation_of(l, compute_instance(l, to))->id].micro_batch;
    const uint32_t first = fold_first(l, episode->first), last = fold_last(l, episode->last);

    if (run_from == run_to && batch_from == batch_to && first <= last) {
        add_interval(l, row, first, last);
    } else if (run_from == run_to && batch_from < batch_to) {
        add_interval(l, row, eo_min_u64(first, batch_end), batch_end);
        add_interval(l, row, 0, batch_from + 1 < batch_to ? eo_max_u64(batch_end, last) : last); /* all of one between them */
    } else if (run_from + 1 == run_to && batch_from == plan->params.micro_batches - 1) {
        add_interval(l, row, first, step_end);
        add_interval(l, row, 0, batch_to > 0 ? eo_max_u64(batch_end, last) : last); /* all of the first one */
    } else {
        l->always[row] = true;
    }
}

static void add_live(struct lifetimes *l, uint32_t row, uint64_t first, uint64_t last)
{
    const struct plan_row *r = &l->plan->rows[row];
    const int64_t bytes = (int64_t)eo_align_up(r->bytes, l->plan->params.align_bytes);
    l->live[first * EO_CATEGORY_COUNT + r->category] += bytes;
    l->live[(last + 1) * EO_CATEGORY_COUNT + r->category] -= bytes;
}

/* Only the middle run counts. What reaches over its ends is counted as if runs were a circle: the runs are equal. */
static void count_episode(struct lifetimes *l, uint32_t row, const struct episode *episode)
{
    if (episode->run != 1)
        return;
    const uint64_t points = l->run_points, end = points - 1;
    if (episode->last - episode->first >= end) {
        add_live(l, row, 0, end);
        return;
    }
    const uint64_t first = (episode->first + points - l->run_begin) % points;
    const uint64_t last = (episode->last + points - l->run_begin) % points;
    if (first <= last) {
        add_live(l, row, first, last);
    } else {
        add_live(l, row, first, end);
        add_live(l, row, 0, last);
    }
}

static void close_episode(struct lifetimes *l, uint32_t row)
{
    struct episode *episode = &l->episodes[row];
    if (!episode->open)
        return;
    episode->open = false;
    if (episode->run > 1)
        return; /* the last run is there to end what the middle one began */
    fold_episode(l, row, episode);
    count_episode(l, row, episode);
}

/* The points of an instance; `last` is 0 where nothing ever waits for its end. */
static void find_points(const struct lifetimes *l, uint32_t i, uint64_t *first, uint64_t *last)
{
    const uint64_t before = l->trace->instances[i].clock[EO_STREAM_COMPUTE];
    const bool compute = operation_of(l, i)->stream == EO_STREAM_COMPUTE;
    *first = compute ? 2 * before : 2 * before + 1;
    *last = compute ? *first : l->ended_by[i] ? 2 * (uint64_t)l->ended_by[i] - 1 : 0;
}

static void follow_rows(struct lifetimes *l)
{
    const struct eo_plan *plan = l->plan;
    for (uint32_t i = 0; i < l->trace->count; i++) {
        const struct plan_instance *instance = &l->trace->instances[i];
        const struct eo_operation *operation = operation_of(l, i);
        uint64_t first, last;
        find_points(l, i, &first, &last);
        for (uint32_t a = 0; a < operation->access_count; a++) {
            const struct eo_access *access = &plan->schedule.accesses[operation->access_begin + a];
            struct episode *episode = &l->episodes[access->row];
            if (plan->rows[access->row].always_live)
                continue;
            /* A reduction in place overwrites what it reads: one life, not two at once. */
            if (access->mode == EO_WRITE && !(episode->open && first <= episode->last)) {
                close_episode(l, access->row);
                *episode = (struct episode){.open = true, .run = instance->run, .first = first, .last = first};
            }
            l->wrong = l->wrong || !episode->open; /* read before it was written */
            if (last == 0 && instance->run <= 1)
                l->always[access->row] = true; /* nothing ever waits for it */
            episode->last = eo_max_u64(episode->last, last);
        }
    }
    for (uint32_t r = 0; r < plan->row_count; r++)
        close_episode(l, r);
}

/* From the first to the last point of a row in a forward-only run: contents that follow each other are not told apart. */
static void follow_evaluation(struct lifetimes *l, uint32_t time_begin)
{
    const struct eo_plan *plan = l->plan;
    const uint64_t end = 2 * (uint64_t)l->trace->stream_count[EO_STREAM_COMPUTE] + 1;
    for (uint32_t i = 0; i < l->trace->count; i++) {
        const struct eo_operation *operation = operation_of(l, i);
        uint64_t first, last;
        find_points(l, i, &first, &last);
        for (uint32_t a = 0; a < operation->access_count; a++) {
            const uint32_t row = plan->schedule.accesses[operation->access_begin + a].row;
            struct episode *episode = &l->episodes[row];
            if (!episode->open)
                *episode = (struct episode){.open = true, .first = first};
            episode->last = eo_max_u64(episode->last, last ? last : end);
        }
    }
    for (uint32_t r = 0; r < plan->row_count; r++) {
        if (l->episodes[r].open && !plan->rows[r].always_live)
            add_interval(l, r, time_begin + (uint32_t)l->episodes[r].first, time_begin + (uint32_t)l->episodes[r].last);
        l->episodes[r].open = false;
    }
}

static int compare_intervals(const void *a, const void *b)
{
    const struct row_interval *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return (x->interval.first > y->interval.first) - (x->interval.first < y->interval.first);
}

/* Sorted by row and time, with what touches joined; rows get their ranges. */
static uint32_t join_intervals(struct lifetimes *l, struct eo_placed_row *placed, struct eo_interval *out)
{
    if (l->interval_count)
        qsort(l->intervals, l->interval_count, sizeof(*l->intervals), compare_intervals);
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->interval_count; i++) {
        const struct row_interval *from = &l->intervals[i];
        struct eo_placed_row *row = &placed[from->row];
        if (row->interval_count && from->interval.first <= out[count - 1].last + 1) {
            out[count - 1].last = (uint32_t)eo_max_u64(out[count - 1].last, from->interval.last);
            continue;
        }
        if (row->interval_count++ == 0)
            row->interval_begin = count;
        out[count++] = from->interval;
    }
    return count;
}

static void find_peak(struct lifetimes *l)
{
    struct eo_plan *plan = l->plan;
    uint64_t always[EO_CATEGORY_COUNT] = {0};
    for (uint32_t r = 0; r < plan->disk_row_begin; r++)
        if (plan->rows[r].always_live)
            always[plan->rows[r].category] += eo_align_up(plan->rows[r].bytes, plan->params.align_bytes);
    int64_t now[EO_CATEGORY_COUNT] = {0};
    plan->lower_bound_bytes = 0;
    for (uint64_t point = 0; point < l->run_points; point++) {
        uint64_t sum = 0;
        for (int c = 0; c < EO_CATEGORY_COUNT; c++) {
            now[c] += l->live[point * EO_CATEGORY_COUNT + c];
            sum += always[c] + (uint64_t)now[c];
        }
        if (sum <= plan->lower_bound_bytes)
            continue;
        plan->lower_bound_bytes = sum;
        for (int c = 0; c < EO_CATEGORY_COUNT; c++)
            plan->category_bytes_at_peak[c] = always[c] + (uint64_t)now[c];
    }
}

static eo_status place(struct lifetimes *l)
{
    struct eo_plan *plan = l->plan;
    struct eo_placed_row *placed = calloc(plan->row_count, sizeof(*placed));
    struct eo_interval *intervals = malloc((l->interval_count + 1) * sizeof(*intervals));
    eo_status status = EO_ERR_NO_MEMORY;
    if (!placed || !intervals)
        goto out;
    /* In one reservation, buffers of edges that are gathered and others that are reduced can share addresses. */
    for (uint32_t r = 0; r < plan->host_row_begin; r++) {
        const bool join = plan->rows[r].space == EO_SPACE_GRADIENT && !plan->params.separate_reservations;
        placed[r] = (struct eo_placed_row){
            .bytes = plan->rows[r].bytes,
            .space = join ? EO_SPACE_GATHER : plan->rows[r].space,
        };
    }
    join_intervals(l, placed, intervals);
    for (uint32_t r = 0; r < plan->host_row_begin; r++)
        placed[r].always = plan->rows[r].always_live || l->always[r] || placed[r].interval_count == 0;
    struct eo_placement placement = {
        .rows = placed,
        .row_count = plan->host_row_begin,
        .intervals = intervals,
        .time_count = l->time_count,
        .space_count = EO_SPACE_HOST,
        .align_bytes = plan->params.align_bytes,
        .draft = plan->params.draft,
    };
    status = eo_placement_solve(&placement);
    if (status < 0)
        goto out;
    placement.space_bytes[EO_SPACE_HOST] = placement.space_bytes[EO_SPACE_DISK] = 0;
    for (uint32_t r = plan->host_row_begin; r < plan->row_count; r++) {
        const eo_space space = plan->rows[r].space;
        uint64_t *end = &placement.space_bytes[space];
        placed[r].out_space = space;
        placed[r].out_offset = *end;
        *end += eo_align_up(plan->rows[r].bytes, space == EO_SPACE_DISK ? EO_DISK_ALIGN : plan->params.align_bytes);
    }
    uint64_t base[EO_SPACE_COUNT], sum = 0;
    for (int s = 0; s < EO_SPACE_COUNT; s++) {
        plan->space_bytes[s] = placement.space_bytes[s];
        base[s] = sum;
        sum += placement.space_bytes[s];
    }
    for (uint32_t r = 0; r < plan->row_count; r++) {
        plan->rows[r].space = (eo_space)placed[r].out_space;
        plan->rows[r].offset = placed[r].out_offset;
        plan->schedule.rows[r].address = base[placed[r].out_space] + placed[r].out_offset;
    }
out:
    free(placed);
    free(intervals);
    return status;
}

/* For people: where in the steady list a row is touched first and last. */
static void name_uses(struct eo_plan *plan)
{
    const struct eo_operation_list *list = &plan->schedule.lists[EO_LIST_STEADY];
    for (uint32_t i = 0; i < list->count; i++) {
        for (uint32_t a = 0; a < list->operations[i].access_count; a++) {
            struct plan_row *row = &plan->rows[plan->schedule.accesses[list->operations[i].access_begin + a].row];
            if (row->always_live)
                continue;
            if (row->first_operation == EO_NONE)
                row->first_operation = i;
            row->last_operation = i;
        }
    }
}

static bool lifetimes_make_room(struct lifetimes *l, uint32_t trace_count)
{
    l->episodes = calloc(l->plan->row_count, sizeof(*l->episodes));
    l->always = calloc(l->plan->row_count, sizeof(*l->always));
    l->ended_by = calloc((size_t)trace_count + 1, sizeof(*l->ended_by));
    l->live = calloc((l->run_points + 2) * EO_CATEGORY_COUNT, sizeof(*l->live));
    return l->episodes && l->always && l->ended_by && l->live;
}

/* Points behind those of the step. */
static void follow_beside(struct lifetimes *l, const struct plan_trace *trace)
{
    const uint32_t begin = l->time_count;
    l->time_count += 2 * trace->stream_count[EO_STREAM_COMPUTE] + 2;
    l->trace = trace;
    find_ends(l);
    follow_evaluation(l, begin);
    memset(l->ended_by, 0, trace->count * sizeof(*l->ended_by));
}

/* First the runs beside steps, which have less instances than the training. */
static eo_status find_lifetimes(struct lifetimes *l, const struct plan_trace *forward, const struct plan_trace *inputs,
                                const struct plan_trace *training)
{
    const struct eo_plan *plan = l->plan;
    l->time_count = 2 * plan->fold_count;
    if (eo_evaluation_turns(plan))
        follow_beside(l, forward);
    if (plan->params.input_gradients)
        follow_beside(l, inputs);
    l->trace = training;
    find_ends(l);
    follow_rows(l);
    if (!l->no_memory && l->wrong) {
        eo_log_write(&plan->log, EO_LOG_ERROR, "the schedule of model '%s' reads data before any operation has written it",
                     plan->model_name);
        return EO_ERR_SCHEDULE;
    }
    return l->no_memory ? EO_ERR_NO_MEMORY : EO_OK;
}

static uint64_t count_computes(const struct eo_operation_list *list)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < list->count; i++)
        count += list->operations[i].stream == EO_STREAM_COMPUTE;
    return count;
}

static eo_status make_memory(struct eo_plan *plan, const struct plan_trace *forward, const struct plan_trace *inputs,
                             const struct plan_trace *training)
{
    struct lifetimes l = {.plan = plan};
    const uint64_t first = count_computes(&plan->schedule.lists[EO_LIST_FIRST]);
    l.run_begin = 2 * (first + 1);
    l.run_points = 2 * count_computes(&plan->schedule.lists[EO_LIST_STEADY]);
    eo_status status = EO_ERR_NO_MEMORY;
    if (lifetimes_make_room(&l, eo_max_u64(forward->count, eo_max_u64(inputs->count, training->count))))
        status = find_lifetimes(&l, forward, inputs, training);
    if (status >= 0) {
        find_peak(&l);
        status = place(&l);
        name_uses(plan);
    }
    free(l.episodes);
    free(l.always);
    free(l.ended_by);
    free(l.live);
    free(l.intervals);
    return status;
}

eo_status eo_plan_make_memory(struct eo_plan *plan)
{
    const eo_list training[] = {EO_LIST_FIRST, EO_LIST_STEADY, EO_LIST_STEADY}, forward[] = {EO_LIST_FORWARD},
                  updates[] = {EO_LIST_UPDATES}, inputs_alone[] = {EO_LIST_INPUTS};
    struct plan_trace once, inputs = {0}, steps = {0};
    EO_TRY(eo_plan_derive_waits(plan, updates, 1, &once)); /* all its rows live as long as the run */
    eo_plan_trace_free(&once);
    EO_TRY(eo_plan_derive_waits(plan, forward, 1, &once));
    eo_status status = eo_plan_derive_waits(plan, inputs_alone, 1, &inputs);
    if (status >= 0)
        status = eo_plan_derive_waits(plan, training, 3, &steps);
    if (status >= 0)
        status = make_memory(plan, &once, &inputs, &steps);
    eo_plan_trace_free(&steps);
    eo_plan_trace_free(&inputs);
    eo_plan_trace_free(&once);
    return status;
}
