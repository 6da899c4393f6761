/* SPDX-License-Identifier: MIT */
#include "tools/memplan_timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS_MAX = 1 << 15, RUNS = 3 };

struct use {
    bool open;
    uint32_t run;
    uint64_t first, last;
};

struct positions {
    uint32_t gather_row, gradient_row, shard_gradient_row; /* UINT32_MAX: none */
    bool accumulates;
};

struct builder {
    struct eo_lifetimes *out;
    const eo_plan *plan;
    const eo_plan_summary *summary;
    uint32_t count, row_count, position_count, compute_count;
    eo_plan_operation *operations;
    eo_plan_row *rows;
    uint32_t *by_name;      /* rows, sorted by name and category */
    uint32_t *compute_index;/* by operation: its place in the compute stream from 1, or 0 */
    uint32_t *stream_index; /* by operation: its place in its stream from 1 */
    uint32_t stream_count[EO_STREAM_COUNT];
    uint64_t (*clock)[EO_STREAM_COUNT]; /* by run and operation */
    uint64_t *first, *last; /* by run and operation: points */
    struct positions *positions;
    struct use *uses;       /* by row */
    uint32_t *begin_of, *end_of; /* head of a list of rows by operation; next of each row */
    uint32_t *begin_next, *end_next;
    uint32_t span_capacity;
    bool failed;
};

const char *eo_phase_name(enum eo_phase phase)
{
    static const char *const names[EO_PHASE_COUNT] = {"forward", "backward", "reduce tail", "optimizer"};
    return (unsigned)phase < EO_PHASE_COUNT ? names[phase] : "unknown";
}

/* --- rows by name ------------------------------------------------------------------------------------------------- */

static int compare_rows(const void *a, const void *b, void *user)
{
    const eo_plan_row *rows = user, *x = &rows[*(const uint32_t *)a], *y = &rows[*(const uint32_t *)b];
    const int order = strcmp(x->name, y->name);
    return order ? order : (int)x->category - (int)y->category;
}

static uint32_t find_row(const struct builder *b, eo_category category, const char *format, const char *name)
{
    char text[EO_NAME_MAX * 2];
    snprintf(text, sizeof(text), "%s%s", format, name);
    uint32_t low = 0, high = b->row_count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        const eo_plan_row *row = &b->rows[b->by_name[middle]];
        const int order = strcmp(row->name, text);
        if (order == 0 && row->category == category)
            return b->by_name[middle];
        if (order < 0 || (order == 0 && row->category < category))
            low = middle + 1;
        else
            high = middle;
    }
    return UINT32_MAX;
}

static uint32_t find_slot(const struct builder *b, eo_category category, const char *kind, uint32_t slot)
{
    char number[32];
    snprintf(number, sizeof(number), "slot%u", slot);
    return find_row(b, category, kind, number);
}

/* Which rows a position's collectives and passes use, as the planner deals them out: rows of their own for edges, slots
 * in turn for the rest. */
static void find_positions(struct builder *b, const eo_model *model)
{
    const eo_plan_params *p = &b->summary->params;
    const bool alone = p->rank_count == 1;
    uint32_t uses[2] = {0, 0}, body = 0; /* of the embedding's layer: a tied head is its second */
    const bool tied = eo_model_layer_count(model) < b->position_count;
    uses[0] = tied ? 2 : 1;
    for (uint32_t i = 0; i < b->position_count; i++) {
        struct positions *at = &b->positions[i];
        const char *name = eo_model_position_name(model, i);
        const bool shared = tied && (i == 0 || i + 1 == b->position_count);
        const bool direct = alone && p->micro_batches == 1 && p->reduce_dtype == EO_DTYPE_FP32 && !(shared && uses[0] > 1);
        at->gather_row = find_row(b, EO_CATEGORY_GATHER_BUFFER, "gather.", name);
        at->gradient_row = find_row(b, EO_CATEGORY_GRADIENT_BUFFER, "gradient.", name);
        const bool edge = at->gather_row != UINT32_MAX || at->gradient_row != UINT32_MAX;
        if (!edge) {
            at->gather_row = find_slot(b, EO_CATEGORY_GATHER_BUFFER, "gather.", body % p->gather_slots);
            if (!direct)
                at->gradient_row = find_slot(b, EO_CATEGORY_GRADIENT_BUFFER, "gradient.", body % p->gradient_slots);
            body++;
        }
        at->shard_gradient_row = find_row(b, EO_CATEGORY_GRADIENT, "gradient.",
                                          shared ? eo_model_position_name(model, 0) : name);
    }
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
    struct eo_lifetimes *t = b->out;
    if (t->span_count == b->span_capacity) {
        const uint32_t larger = b->span_capacity ? 2 * b->span_capacity : 1024;
        struct eo_live_span *moved = realloc(t->spans, larger * sizeof(*moved));
        if (!moved) {
            b->failed = true;
            return;
        }
        t->spans = moved;
        b->span_capacity = larger;
    }
    const uint64_t points = t->point_count, begin = 2 * ((uint64_t)b->compute_count + 1);
    struct eo_live_span span = {.row = row, .last = (uint32_t)(points - 1)};
    if (last - first < points - 1) {
        span.first = (uint32_t)((first + points - begin) % points);
        span.last = (uint32_t)((last + points - begin) % points);
    }
    t->spans[t->span_count++] = span;
}

static void close_use(struct builder *b, uint32_t row)
{
    struct use *use = &b->uses[row];
    if (use->open && use->run == 1)
        add_span(b, row, use->first, use->last);
    use->open = false;
}

static void touch(struct builder *b, uint32_t row, uint32_t run, uint32_t operation, bool writes)
{
    if (row == UINT32_MAX || b->rows[row].always_live)
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

/* Does the list add this position's reduced gradient to the shard? Then the reduction stays in the buffer. */
static bool accumulates(const struct builder *b, uint32_t operation)
{
    const eo_plan_operation *reduce = &b->operations[operation];
    for (uint32_t i = operation + 1; i < b->count; i++) {
        const eo_plan_operation *o = &b->operations[i];
        if (o->kind == EO_OP_ACCUMULATE && o->position == reduce->position && o->micro_batch == reduce->micro_batch)
            return true;
        if (o->kind == EO_OP_UPDATE)
            break;
    }
    return false;
}

static void touch_collective(struct builder *b, uint32_t run, uint32_t i, uint32_t *written)
{
    const eo_plan_operation *o = &b->operations[i];
    const struct positions *at = o->position < b->position_count ? &b->positions[o->position] : NULL;
    if (!at)
        return;
    const bool first = at->shard_gradient_row != UINT32_MAX && written[at->shard_gradient_row] != run + 1;
    switch ((int)o->kind) {
    case EO_OP_ALL_GATHER: touch(b, at->gather_row, run, i, true); break;
    case EO_OP_REDUCE_SCATTER:
        touch(b, at->gradient_row, run, i, false);
        if (b->begin_next[b->row_count + i]) /* accumulates */
            break;
        touch(b, at->shard_gradient_row, run, i, true);
        if (at->shard_gradient_row != UINT32_MAX)
            written[at->shard_gradient_row] = run + 1;
        break;
    case EO_OP_ACCUMULATE:
        touch(b, at->gradient_row, run, i, false);
        touch(b, at->shard_gradient_row, run, i, first);
        if (at->shard_gradient_row != UINT32_MAX)
            written[at->shard_gradient_row] = run + 1;
        break;
    default: break;
    }
}

static void touch_pass(struct builder *b, uint32_t run, uint32_t i, uint32_t *written)
{
    const eo_plan_operation *o = &b->operations[i];
    if (o->position >= b->position_count)
        return;
    const struct positions *at = &b->positions[o->position];
    const bool embedding_backward = o->position == 0 && o->kind != EO_OP_FORWARD;
    if (!embedding_backward)
        touch(b, at->gather_row, run, i, false);
    if (o->kind != EO_OP_BACKWARD)
        return;
    if (at->gradient_row != UINT32_MAX) {
        touch(b, at->gradient_row, run, i, true);
    } else if (at->shard_gradient_row != UINT32_MAX) { /* one rank writes its gradient where it stays */
        touch(b, at->shard_gradient_row, run, i, true);
        written[at->shard_gradient_row] = run + 1;
    }
}

static void touch_layer(struct builder *b, uint32_t run, uint32_t i, const uint32_t *gradient_of_layer)
{
    const eo_plan_operation *o = &b->operations[i];
    if (o->kind == EO_OP_UPDATE || o->kind == EO_OP_NORM_PARTIAL)
        if (o->layer < b->row_count)
            touch(b, gradient_of_layer[o->layer], run, i, false);
}

static void follow(struct builder *b, const uint32_t *gradient_of_layer, uint32_t *written)
{
    for (uint32_t run = 0; run < RUNS; run++) {
        for (uint32_t i = 0; i < b->count; i++) {
            const eo_plan_operation *o = &b->operations[i];
            for (uint32_t r = b->begin_of[i]; r != UINT32_MAX; r = b->begin_next[r])
                touch(b, r, run, i, true);
            if (o->kind == EO_OP_FORWARD || o->kind == EO_OP_RECOMPUTE || o->kind == EO_OP_BACKWARD)
                touch_pass(b, run, i, written);
            else
                touch_collective(b, run, i, written);
            touch_layer(b, run, i, gradient_of_layer);
            for (uint32_t r = b->end_of[i]; r != UINT32_MAX; r = b->end_next[r])
                touch(b, r, run, i, false);
        }
    }
    for (uint32_t r = 0; r < b->row_count; r++)
        close_use(b, r);
}

/* --- the trainer's rows ------------------------------------------------------------------------------------------- */

struct named {
    const char *name;
    uint32_t operation;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* "forward of block.0 (micro-batch 1)": where that stands in the list. */
static uint32_t find_operation(const struct named *names, uint32_t count, const char *text)
{
    const struct named key = {.name = text}, *found = bsearch(&key, names, count, sizeof(*names), by_name);
    return found ? found->operation : UINT32_MAX;
}

/* A row of the trainer's lives once a micro-batch, from the pass of its first use to that of its last: the row names those
 * of the step, and micro-batches are alike. */
static eo_status find_trainer_rows(struct builder *b)
{
    struct named *names = calloc(b->count + 1, sizeof(*names));
    uint32_t *by_pass = malloc(((uint64_t)b->count + 1) * sizeof(*by_pass));
    if (!names || !by_pass) {
        free(names);
        free(by_pass);
        return EO_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < b->count; i++) {
        names[i] = (struct named){b->operations[i].name, i};
        b->begin_of[i] = b->end_of[i] = UINT32_MAX;
    }
    qsort(names, b->count, sizeof(*names), by_name);
    const uint32_t batches = b->summary->params.micro_batches;
    for (uint32_t r = 0; r < b->row_count; r++) {
        const eo_plan_row *row = &b->rows[r];
        if (row->always_live || row->category < EO_CATEGORY_ACTIVATION || !row->first[0])
            continue;
        const uint32_t first = find_operation(names, b->count, row->first);
        const uint32_t last = find_operation(names, b->count, row->last);
        if (first == UINT32_MAX || last == UINT32_MAX)
            continue;
        if (batches == 1) {
            b->begin_next[r] = b->begin_of[first];
            b->begin_of[first] = r;
            b->end_next[r] = b->end_of[last];
            b->end_of[last] = r;
        } else {
            b->uses[r].first = first; /* for follow_micro_batches */
            b->uses[r].last = last;
        }
    }
    free(names);
    free(by_pass);
    return EO_OK;
}

/* Operation of the same kind and position in another micro-batch. */
static uint32_t *index_passes(const struct builder *b)
{
    const uint32_t batches = b->summary->params.micro_batches;
    const uint64_t cells = (uint64_t)batches * b->position_count * 3;
    uint32_t *index = malloc(cells * sizeof(*index));
    for (uint64_t i = 0; index && i < cells; i++)
        index[i] = UINT32_MAX;
    for (uint32_t i = 0; index && i < b->count; i++) {
        const eo_plan_operation *o = &b->operations[i];
        if (o->kind < EO_OP_FORWARD || o->kind > EO_OP_BACKWARD || o->position >= b->position_count)
            continue;
        index[((uint64_t)o->micro_batch * b->position_count + o->position) * 3 + (o->kind - EO_OP_FORWARD)] = i;
    }
    return index;
}

/* With several micro-batches, spans of the trainer's rows are made at once, one a micro-batch. */
static eo_status follow_micro_batches(struct builder *b)
{
    const uint32_t batches = b->summary->params.micro_batches;
    if (batches == 1)
        return EO_OK;
    uint32_t *index = index_passes(b);
    if (!index)
        return EO_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < b->row_count; r++) {
        const eo_plan_row *row = &b->rows[r];
        struct use use = b->uses[r];
        b->uses[r] = (struct use){0};
        if (row->always_live || row->category < EO_CATEGORY_ACTIVATION || !row->first[0])
            continue;
        const eo_plan_operation *first = &b->operations[use.first], *last = &b->operations[use.last];
        for (uint32_t m = 0; m < batches; m++) {
            const uint32_t f = index[((uint64_t)m * b->position_count + first->position) * 3 + (first->kind - EO_OP_FORWARD)];
            const uint32_t l = index[((uint64_t)m * b->position_count + last->position) * 3 + (last->kind - EO_OP_FORWARD)];
            if (f != UINT32_MAX && l != UINT32_MAX)
                add_span(b, r, b->first[b->count + f], b->last[b->count + l]);
        }
    }
    free(index);
    return EO_OK;
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

static uint64_t aligned(const struct builder *b, uint32_t row)
{
    const uint64_t align = b->summary->params.align_bytes;
    return (b->rows[row].bytes + align - 1) / align * align;
}

static void add_live(struct builder *b, uint32_t row, uint32_t first, uint32_t last)
{
    struct eo_lifetimes *t = b->out;
    t->live[(uint64_t)first * EO_CATEGORY_COUNT + b->rows[row].category] += aligned(b, row);
    if (last + 1 < t->point_count) /* wraps below 0 and back */
        t->live[((uint64_t)last + 1) * EO_CATEGORY_COUNT + b->rows[row].category] -= aligned(b, row);
}

static void sum_live(struct builder *b)
{
    struct eo_lifetimes *t = b->out;
    for (uint32_t r = 0; r < b->row_count; r++)
        if (b->rows[r].always_live)
            add_live(b, r, 0, t->point_count - 1);
    for (uint32_t i = 0; i < t->span_count; i++) {
        const struct eo_live_span *s = &t->spans[i];
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

static enum eo_phase phase_of(const struct builder *b, uint32_t operation)
{
    switch ((int)b->operations[operation].kind) {
    case EO_OP_FORWARD: return EO_PHASE_FORWARD;
    case EO_OP_RECOMPUTE:
    case EO_OP_BACKWARD:
    case EO_OP_ACCUMULATE: return EO_PHASE_BACKWARD;
    case EO_OP_UPDATE: return EO_PHASE_OPTIMIZER;
    default: return EO_PHASE_REDUCE;
    }
}

static void take_peak(struct eo_phase_peak *peak, const uint64_t *live, uint64_t sum, const char *operation)
{
    if (sum <= peak->bytes)
        return;
    peak->bytes = sum;
    memcpy(peak->category_bytes, live, sizeof(peak->category_bytes));
    snprintf(peak->operation, sizeof(peak->operation), "%s", operation);
}

static void find_peaks(struct builder *b)
{
    struct eo_lifetimes *t = b->out;
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
        take_peak(&t->phases[phase_of(b, operation)], live, sum, o->name);
        if (o->kind == EO_OP_FORWARD && p % 2 == 0) {
            t->forward_end.bytes = 0;
            take_peak(&t->forward_end, live, sum, o->name);
        }
    }
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static eo_status build(struct builder *b, const eo_model *model)
{
    struct eo_lifetimes *t = b->out;
    const uint64_t cells = (uint64_t)RUNS * b->count;
    b->operations = calloc(b->count + 1, sizeof(*b->operations));
    b->rows = calloc(b->row_count + 1, sizeof(*b->rows));
    b->by_name = calloc(b->row_count + 1, sizeof(*b->by_name));
    b->clock = calloc(cells, sizeof(*b->clock));
    b->first = calloc(cells, sizeof(*b->first));
    b->last = calloc(cells, sizeof(*b->last));
    b->positions = calloc(b->position_count + 1, sizeof(*b->positions));
    b->uses = calloc(b->row_count + 1, sizeof(*b->uses));
    b->begin_of = calloc(b->count + 1, sizeof(*b->begin_of));
    b->end_of = calloc(b->count + 1, sizeof(*b->end_of));
    b->begin_next = calloc((uint64_t)b->row_count + b->count + 1, sizeof(*b->begin_next));
    b->end_next = calloc(b->row_count + 1, sizeof(*b->end_next));
    t->address = calloc(b->row_count + 1, sizeof(*t->address));
    uint32_t *written = calloc(b->row_count + 1, sizeof(*written));
    uint32_t *gradient_of_layer = calloc(b->row_count + 1, sizeof(*gradient_of_layer));
    eo_status status = EO_ERR_NO_MEMORY;
    if (!b->operations || !b->rows || !b->by_name || !b->clock || !b->first || !b->last || !b->positions || !b->uses ||
        !b->begin_of || !b->end_of || !b->begin_next || !b->end_next || !t->address || !written || !gradient_of_layer)
        goto out;
    uint64_t base[EO_SPACE_COUNT] = {0};
    for (int s = 1; s < EO_SPACE_COUNT; s++)
        base[s] = base[s - 1] + b->summary->space_bytes[s - 1];
    for (uint32_t r = 0; r < b->row_count; r++) {
        status = eo_plan_get_row(b->plan, r, &b->rows[r]);
        if (status < 0)
            goto out;
        b->by_name[r] = r;
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
    if (!t->operations || !t->live)
        goto out;
    for (uint32_t i = 0, n = 0; i < b->count; i++)
        if (b->operations[i].stream == EO_STREAM_COMPUTE)
            t->operations[n++] = i;
    qsort_r(b->by_name, b->row_count, sizeof(*b->by_name), compare_rows, b->rows);
    find_positions(b, model);
    for (uint32_t r = 0, l = 0; r < b->row_count && l < eo_model_layer_count(model); r++)
        if (b->rows[r].category == EO_CATEGORY_GRADIENT)
            gradient_of_layer[l++] = r;
    for (uint32_t i = 0; i < b->count; i++)
        if (b->operations[i].kind == EO_OP_REDUCE_SCATTER)
            b->begin_next[b->row_count + i] = accumulates(b, i);
    find_clocks(b);
    find_ends(b);
    status = find_trainer_rows(b);
    if (status >= 0)
        status = follow_micro_batches(b);
    if (status < 0)
        goto out;
    follow(b, gradient_of_layer, written);
    sum_live(b);
    find_peaks(b);
    status = b->failed ? EO_ERR_NO_MEMORY : EO_OK;
out:
    free(b->operations);
    free(b->rows);
    free(b->by_name);
    free(b->clock);
    free(b->first);
    free(b->last);
    free(b->positions);
    free(b->uses);
    free(b->begin_of);
    free(b->end_of);
    free(b->begin_next);
    free(b->end_next);
    free(written);
    free(gradient_of_layer);
    return status;
}

eo_status eo_lifetimes_create(struct eo_lifetimes *out, const struct eo_memplan *memplan)
{
    *out = (struct eo_lifetimes){0};
    const eo_model *model = eo_memplan_model(memplan);
    struct builder b = {.out = out, .plan = memplan->plan, .summary = &memplan->summary,
                        .count = eo_plan_operation_count(memplan->plan, EO_LIST_STEADY),
                        .row_count = memplan->summary.row_count, .position_count = eo_model_position_count(model)};
    if (b.count == 0 || b.count > OPERATIONS_MAX)
        return EO_ERR_UNSUPPORTED;
    const eo_status status = build(&b, model);
    if (status < 0)
        eo_lifetimes_fini(out);
    return status;
}

void eo_lifetimes_fini(struct eo_lifetimes *timeline)
{
    free(timeline->live);
    free(timeline->operations);
    free(timeline->spans);
    free(timeline->address);
    *timeline = (struct eo_lifetimes){0};
}
