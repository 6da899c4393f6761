/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS_MAX = 1 << 19, RUNS = 3 };

struct use {
    bool open;
    uint32_t run;
    uint64_t first, last;
};

struct builder {
    struct tool_lifetimes *out;
    const eo_plan *plan;
    const eo_plan_summary *summary;
    uint32_t count, row_count, compute_count;
    eo_plan_operation *operations;
    eo_plan_row *rows;
    uint64_t (*clock)[EO_STREAM_COUNT]; /* by run and operation */
    uint64_t *first, *last; /* by run and operation: points */
    struct use *uses;       /* by row */
    uint32_t span_capacity;
    bool failed;
};

const char *tool_phase_name(enum tool_phase phase)
{
    static const char *const names[TOOL_PHASE_COUNT] = {"forward", "backward", "reduce tail", "optimizer"};
    return (unsigned)phase < TOOL_PHASE_COUNT ? names[phase] : "unknown";
}

/* --- clocks ------------------------------------------------------------------------------------------------------- */

static void find_clocks(struct builder *b)
{
    uint64_t now[EO_STREAM_COUNT][EO_STREAM_COUNT] = {{0}};
    for (uint32_t run = 0; run < RUNS; run++) {
        for (uint32_t i = 0; i < b->count; i++) {
            const eo_plan_operation *o = &b->operations[i];
            uint64_t *clock = now[o->stream];
            for (uint32_t w = 0; w < o->wait_count; w++) {
                if (o->waits[w] >= b->count || (o->wait_previous_step[w] && run == 0))
                    continue;
                const uint32_t from = run - (o->wait_previous_step[w] ? 1 : 0);
                const uint64_t *other = b->clock[(uint64_t)from * b->count + o->waits[w]];
                for (int s = 0; s < EO_STREAM_COUNT; s++)
                    clock[s] = other[s] > clock[s] ? other[s] : clock[s];
            }
            const uint64_t at = (uint64_t)run * b->count + i;
            b->first[at] = 2 * clock[EO_STREAM_COMPUTE] + 1; /* of a collective: after what it comes after */
            clock[o->stream]++;
            if (o->stream == EO_STREAM_COMPUTE)
                b->first[at] = b->last[at] = 2 * clock[EO_STREAM_COMPUTE];
            memcpy(b->clock[at], clock, sizeof(b->clock[at]));
        }
    }
}

/* A collective is over at the first compute operation whose clock has it. */
static void find_ends(struct builder *b)
{
    for (int s = EO_STREAM_COMM; s < EO_STREAM_COUNT; s++) {
        uint64_t next = 0; /* over runs and operations */
        const uint64_t all = (uint64_t)RUNS * b->count;
        for (uint64_t i = 0; i < all; i++) {
            if (b->operations[i % b->count].stream != EO_STREAM_COMPUTE)
                continue;
            for (; next < all; next++) {
                if ((int)b->operations[next % b->count].stream != s)
                    continue;
                if (b->clock[next][s] > b->clock[i][s])
                    break;
                b->last[next] = b->clock[i][EO_STREAM_COMPUTE] * 2 - 1;
            }
        }
    }
}

/* --- lives -------------------------------------------------------------------------------------------------------- */

static void add_span(struct builder *b, uint32_t row, uint64_t first, uint64_t last)
{
    struct tool_lifetimes *t = b->out;
    if (t->span_count == b->span_capacity) {
        const uint32_t larger = b->span_capacity ? 2 * b->span_capacity : 1024;
        struct tool_live_span *moved = realloc(t->spans, larger * sizeof(*moved));
        if (!moved) {
            b->failed = true;
            return;
        }
        t->spans = moved;
        b->span_capacity = larger;
    }
    const uint64_t points = t->point_count, begin = 2 * ((uint64_t)b->compute_count + 1);
    struct tool_live_span span = {.row = row, .last = (uint32_t)(points - 1)};
    if (last - first < points - 1) {
        span.first = (uint32_t)((first + points - begin) % points);
        span.last = (uint32_t)((last + points - begin) % points);
    }
    t->spans[t->span_count++] = span;
}

static void close_use(struct builder *b, uint32_t row)
{
    const struct use *use = &b->uses[row];
    if (use->open && use->run == 1)
        add_span(b, row, use->first, use->last);
}

static void touch(struct builder *b, uint32_t row, uint32_t run, uint32_t operation, bool writes)
{
    if (b->rows[row].always_live)
        return;
    struct use *use = &b->uses[row];
    const uint64_t at = (uint64_t)run * b->count + operation;
    if ((writes && !(use->open && b->first[at] <= use->last)) || !use->open) {
        close_use(b, row);
        *use = (struct use){.open = true, .run = run, .first = b->first[at], .last = b->last[at]};
    }
    if (b->last[at] > use->last)
        use->last = b->last[at];
}

static void follow(struct builder *b)
{
    for (uint32_t run = 0; run < RUNS; run++) {
        for (uint32_t i = 0; i < b->count; i++) {
            eo_plan_access access;
            for (uint32_t k = 0; eo_plan_get_access(b->plan, EO_LIST_STEADY, i, k, &access) >= 0; k++)
                touch(b, access.row, run, i, access.writes && !access.reads);
        }
    }
    for (uint32_t r = 0; r < b->row_count; r++)
        close_use(b, r);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

static uint64_t aligned(const struct builder *b, uint32_t row)
{
    const uint64_t align = b->summary->params.align_bytes;
    return (b->rows[row].bytes + align - 1) / align * align;
}

static void add_live(struct builder *b, uint32_t row, uint32_t first, uint32_t last)
{
    struct tool_lifetimes *t = b->out;
    t->live[(uint64_t)first * EO_CATEGORY_COUNT + b->rows[row].category] += aligned(b, row);
    if (last + 1 < t->point_count) /* wraps below 0 and back */
        t->live[((uint64_t)last + 1) * EO_CATEGORY_COUNT + b->rows[row].category] -= aligned(b, row);
}

static void sum_live(struct builder *b)
{
    struct tool_lifetimes *t = b->out;
    for (uint32_t r = 0; r < b->row_count; r++)
        if (b->rows[r].always_live && b->rows[r].space != EO_SPACE_DISK)
            add_live(b, r, 0, t->point_count - 1);
    for (uint32_t i = 0; i < t->span_count; i++) {
        const struct tool_live_span *s = &t->spans[i];
        if (s->first <= s->last) {
            add_live(b, s->row, s->first, s->last);
        } else {
            add_live(b, s->row, s->first, t->point_count - 1);
            add_live(b, s->row, 0, s->last);
        }
    }
    for (uint64_t p = 1; p < t->point_count; p++)
        for (int c = 0; c < EO_CATEGORY_COUNT; c++)
            t->live[p * EO_CATEGORY_COUNT + c] += t->live[(p - 1) * EO_CATEGORY_COUNT + c];
}

static enum tool_phase phase_of(const struct builder *b, uint32_t operation)
{
    switch ((int)b->operations[operation].kind) {
    case EO_OP_FORWARD:
        return TOOL_PHASE_FORWARD;
    case EO_OP_WIDEN: /* for the pass after it */
        return phase_of(b, operation + 1);
    case EO_OP_RECOMPUTE:
    case EO_OP_BACKWARD:
    case EO_OP_ACCUMULATE:
        return TOOL_PHASE_BACKWARD;
    case EO_OP_DIRECTION:
    case EO_OP_ORTHOGONALIZE:
    case EO_OP_UPDATE:
    case EO_OP_NARROW:
        return TOOL_PHASE_OPTIMIZER;
    default:
        return TOOL_PHASE_REDUCE;
    }
}

static void take_peak(struct tool_phase_peak *peak, const uint64_t *live, uint64_t sum, const char *operation)
{
    if (sum <= peak->bytes)
        return;
    peak->bytes = sum;
    memcpy(peak->category_bytes, live, sizeof(peak->category_bytes));
    snprintf(peak->operation, sizeof(peak->operation), "%s", operation);
}

static void find_peaks(struct builder *b)
{
    struct tool_lifetimes *t = b->out;
    for (uint32_t p = 0; p < t->point_count; p++) {
        const uint64_t *live = &t->live[(uint64_t)p * EO_CATEGORY_COUNT];
        uint64_t sum = 0;
        for (int c = 0; c < EO_CATEGORY_COUNT; c++)
            sum += live[c];
        if (sum > t->peak_bytes) {
            t->peak_bytes = sum;
            t->peak_point = p;
        }
        const uint32_t operation = t->operations[p / 2];
        const eo_plan_operation *o = &b->operations[operation];
        take_peak(&t->phases[t->operation_phases[p / 2]], live, sum, o->name);
        if (o->kind == EO_OP_FORWARD && p % 2 == 0) {
            t->forward_end.bytes = 0;
            take_peak(&t->forward_end, live, sum, o->name);
        }
    }
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static eo_status build(struct builder *b)
{
    struct tool_lifetimes *t = b->out;
    const uint64_t cells = (uint64_t)RUNS * b->count;
    b->operations = calloc(b->count + 1, sizeof(*b->operations));
    b->rows = calloc(b->row_count + 1, sizeof(*b->rows));
    b->clock = calloc(cells, sizeof(*b->clock));
    b->first = calloc(cells, sizeof(*b->first));
    b->last = calloc(cells, sizeof(*b->last));
    b->uses = calloc(b->row_count + 1, sizeof(*b->uses));
    t->address = calloc(b->row_count + 1, sizeof(*t->address));
    eo_status status = EO_ERR_NO_MEMORY;
    if (!b->operations || !b->rows || !b->clock || !b->first || !b->last || !b->uses || !t->address)
        goto out;
    uint64_t base[EO_SPACE_COUNT] = {0};
    for (int s = 1; s < EO_SPACE_COUNT; s++)
        base[s] = base[s - 1] + b->summary->space_bytes[s - 1];
    for (uint32_t r = 0; r < b->row_count; r++) {
        status = eo_plan_get_row(b->plan, r, &b->rows[r]);
        if (status < 0)
            goto out;
        t->address[r] = base[b->rows[r].space] + b->rows[r].offset;
    }
    for (uint32_t i = 0; i < b->count; i++) {
        status = eo_plan_get_operation(b->plan, EO_LIST_STEADY, i, &b->operations[i]);
        if (status < 0)
            goto out;
        b->compute_count += b->operations[i].stream == EO_STREAM_COMPUTE;
    }
    status = EO_ERR_NO_MEMORY;
    t->point_count = 2 * b->compute_count;
    t->operations = calloc(b->compute_count + 1, sizeof(*t->operations));
    t->live = calloc(((uint64_t)t->point_count + 1) * EO_CATEGORY_COUNT, sizeof(*t->live));
    t->operation_phases = calloc(b->compute_count + 1, sizeof(*t->operation_phases));
    if (!t->operations || !t->live || !t->operation_phases)
        goto out;
    for (uint32_t i = 0, n = 0; i < b->count; i++)
        if (b->operations[i].stream == EO_STREAM_COMPUTE) {
            t->operations[n] = i;
            t->operation_phases[n++] = (uint8_t)phase_of(b, i);
        }
    find_clocks(b);
    find_ends(b);
    follow(b);
    sum_live(b);
    find_peaks(b);
    status = b->failed ? EO_ERR_NO_MEMORY : EO_OK;
out:
    free(b->operations);
    free(b->rows);
    free(b->clock);
    free(b->first);
    free(b->last);
    free(b->uses);
    return status;
}

eo_status tool_lifetimes_create(struct tool_lifetimes *out, const struct tool_memplan *memplan)
{
    *out = (struct tool_lifetimes){0};
    struct builder b = {.out = out, .plan = memplan->plan, .summary = &memplan->summary,
                        .count = eo_plan_operation_count(memplan->plan, EO_LIST_STEADY),
                        .row_count = memplan->summary.row_count};
    if (b.count == 0 || b.count > OPERATIONS_MAX)
        return EO_ERR_UNSUPPORTED;
    const eo_status status = build(&b);
    if (status < 0)
        tool_lifetimes_fini(out);
    return status;
}

void tool_lifetimes_fini(struct tool_lifetimes *timeline)
{
    free(timeline->live);
    free(timeline->operations);
    free(timeline->operation_phases);
    free(timeline->spans);
    free(timeline->address);
    *timeline = (struct tool_lifetimes){0};
}
