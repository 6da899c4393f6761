/* SPDX-License-Identifier: MIT
 *
 * Shadow memory over the address line, cut where rows begin and end:
 *
 *     rows       |---- a ----|         |--- c ---|
 *                      |------ b ------|
 *     segments   |  0  |  1  |    2    |    3    |
 *
 * A segment knows its last writer, the last reader of each stream since then, and its content. Operations are
 * numbered from 1 in issue order, run after run. A stream does its operations in this order, so a vector clock needs
 * no counters of its own: per stream it holds the number of the latest operation that is known to be done; and this for
 * each set of ranks by itself, what all of them are known to have done.
 */
#include "runtime/plan/proof/proof.h"

#include <stdlib.h>

#include "base/check.h"
#include "runtime/plan/proof/lives.h"
#include "runtime/plan/proof/text.h"

#define SEVERAL_ROWS (UINT32_MAX - 1) /* one operation read the segment as more than one row */

struct clock {
    uint32_t done[EO_SCOPE_COUNT][EO_STREAM_COUNT];
};

struct segment {
    uint32_t writer; /* number of the last writer, 0 before the first */
    eo_stream_id writer_stream;
    uint32_t reader[EO_STREAM_COUNT]; /* number of the last reader since then, or 0 */
    uint32_t reader_row[EO_STREAM_COUNT];
    uint32_t shown[EO_STREAM_COUNT]; /* number of the last operation since then in which peers read it, or 0 */
    uint8_t shown_to[EO_STREAM_COUNT];
    struct eo_content content;
};

/* The latest record of an event. */
struct record {
    uint32_t number; /* of the operation that recorded it, 0: never */
    uint32_t run;
    eo_stream_id stream;
    struct clock clock;
};

struct proof {
    const struct eo_proof_params *params;
    const struct eo_schedule *schedule;
    struct segment *segments;
    uint32_t *row_begin, *row_end; /* segments of a row */
    uint64_t *edges;
    struct eo_proof_lives lives;
    uint32_t *begun;       /* by row: the first pass of a trainer's buffer's life, the latest one */
    uint32_t *owner;       /* by segment: 1 + the row of the whole run that lies there, or 0 */
    struct record *records; /* by id */
    uint32_t *run_begin;    /* how many numbers are given before a run; its first one is its checkpoint's */
    uint32_t *raced_with;   /* by number: the last operation that a race with it was reported for */
    uint32_t *place;        /* by number: how-manieth operation of its stream, from 1 */
    int scopes; /* sets of ranks that the lists name: without parts of groups fewer */
    uint32_t issued[EO_STREAM_COUNT];
    struct clock clocks[EO_STREAM_COUNT];

    uint32_t run, index, number; /* the operation at hand */
    uint32_t step;               /* steps before this run; without turns: runs */
    const struct eo_operation *operation;
    struct clock now;

    struct eo_hazard *first;
    bool stopped;
};

static int compare_edges(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The segment that begins at `edge`, which is one of the edges. */
static uint32_t segment_at(const uint64_t *edges, uint32_t edge_count, uint64_t edge)
{
    uint32_t low = 0, high = edge_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (edges[middle] <= edge)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void cut_segments(struct proof *proof)
{
    const struct eo_schedule *schedule = proof->schedule;
    uint32_t edge_count = 0;
    for (uint32_t row = 0; row < schedule->row_count; row++) {
        const struct eo_schedule_row *r = &schedule->rows[row];
        EO_ASSERT(r->bytes <= UINT64_MAX - r->address);
        proof->edges[edge_count++] = r->address;
        proof->edges[edge_count++] = r->address + r->bytes;
    }
    qsort(proof->edges, edge_count, sizeof(proof->edges[0]), compare_edges);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < edge_count; i++)
        if (kept == 0 || proof->edges[i] != proof->edges[kept - 1])
            proof->edges[kept++] = proof->edges[i];

    for (uint32_t i = 0; i < kept; i++)
        proof->segments[i].content = (struct eo_content){.row = EO_NONE, .subject = EO_NONE};
    for (uint32_t row = 0; row < schedule->row_count; row++) {
        const struct eo_schedule_row *r = &schedule->rows[row];
        proof->row_begin[row] = segment_at(proof->edges, kept, r->address);
        proof->row_end[row] = segment_at(proof->edges, kept, r->address + r->bytes);
        for (uint32_t i = proof->row_begin[row]; r->initialised && i < proof->row_end[row]; i++)
            proof->segments[i].content = (struct eo_content){.row = row, .subject = r->initial_subject};
    }
}

/* Hands a hazard on. */
static void report(struct proof *proof, const struct eo_hazard *hazard)
{
    if (proof->first->kind == EO_HAZARD_NONE)
        *proof->first = *hazard;
    if (proof->params->report == NULL || !proof->params->report(proof->params->report_user, hazard))
        proof->stopped = true;
}

static void report_shared(struct proof *proof, uint32_t row, uint32_t other)
{
    struct eo_hazard hazard = {.kind = EO_HAZARD_SHARED,
                               .operation = EO_NONE,
                               .other_run = EO_NONE,
                               .other_operation = EO_NONE,
                               .row = row,
                               .other_row = other};
    eo_proof_text_shared(proof->params, &hazard);
    report(proof, &hazard);
}

/* Rows of the whole run own their segments; no other row has any of these. */
static void check_owners(struct proof *proof)
{
    const struct eo_schedule *schedule = proof->schedule;
    for (uint32_t row = 0; row < schedule->row_count; row++)
        for (uint32_t i = proof->row_begin[row]; schedule->rows[row].always && i < proof->row_end[row]; i++)
            if (proof->owner[i] == 0)
                proof->owner[i] = row + 1;
    for (uint32_t row = 0; row < schedule->row_count && !proof->stopped; row++) {
        for (uint32_t i = proof->row_begin[row]; i < proof->row_end[row]; i++) {
            if (proof->owner[i] == 0 || proof->owner[i] == row + 1)
                continue;
            report_shared(proof, proof->owner[i] - 1, row);
            break; /* once a row, not once a segment */
        }
    }
}

/* The place of the operation with this number; EO_NONE in both for 0. */
static struct eo_place place_of(const struct proof *proof, uint32_t number)
{
    if (number == 0)
        return (struct eo_place){EO_NONE, EO_NONE};
    uint32_t run = proof->run;
    while (proof->run_begin[run] >= number)
        run--;
    return (struct eo_place){run, number - 2 - proof->run_begin[run]}; /* of a checkpoint: EO_NONE */
}

static struct eo_place here(const struct proof *proof)
{
    return (struct eo_place){proof->run, proof->index};
}

/* Completes the hazard with the operation at hand, the later one, and hands it on. */
static void report_here(struct proof *proof, struct eo_hazard *hazard)
{
    hazard->run = proof->run;
    hazard->operation = proof->index;
    report(proof, hazard);
}

static void report_race(struct proof *proof, const struct eo_access *access, uint32_t other, uint32_t other_row,
                        bool other_writes)
{
    if (proof->raced_with[other] == proof->number)
        return;
    proof->raced_with[other] = proof->number;
    const struct eo_place earlier = place_of(proof, other);
    struct eo_hazard hazard = {.kind = EO_HAZARD_RACE,
                               .other_run = earlier.run,
                               .other_operation = earlier.operation,
                               .row = access->row,
                               .other_row = other_row == SEVERAL_ROWS ? access->row : other_row};
    eo_proof_text_race(proof->params, here(proof), access, &hazard, other_writes);
    report_here(proof, &hazard);
}

static void report_peer(struct proof *proof, const struct eo_access *access, uint32_t other)
{
    if (proof->raced_with[other] == proof->number)
        return;
    proof->raced_with[other] = proof->number;
    const struct eo_place earlier = place_of(proof, other);
    struct eo_hazard hazard = {.kind = EO_HAZARD_PEER,
                               .other_run = earlier.run,
                               .other_operation = earlier.operation,
                               .row = access->row,
                               .other_row = access->row};
    eo_proof_text_peer(proof->params, here(proof), access, &hazard);
    report_here(proof, &hazard);
}

static void report_stale(struct proof *proof, const struct eo_access *access, const struct eo_content *expected,
                         const struct segment *segment)
{
    const struct eo_place writer = place_of(proof, segment->writer);
    struct eo_hazard hazard = {.kind = EO_HAZARD_STALE,
                               .other_run = writer.run,
                               .other_operation = writer.operation,
                               .row = access->row,
                               .other_row = segment->content.row};
    eo_proof_text_stale(proof->params, here(proof), access, &hazard, expected, &segment->content);
    report_here(proof, &hazard);
}

static void report_life(struct proof *proof, uint32_t row, const struct segment *segment)
{
    const struct eo_place begin = place_of(proof, proof->begun[row]);
    struct eo_hazard hazard = {.kind = EO_HAZARD_LIFE,
                               .other_run = begin.run,
                               .other_operation = begin.operation,
                               .row = row,
                               .other_row = segment->content.row};
    eo_proof_text_life(proof->params, here(proof), &hazard, place_of(proof, segment->writer));
    report_here(proof, &hazard);
}

static void raise_to(uint32_t *done, const uint32_t *other)
{
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        if (done[s] < other[s])
            done[s] = other[s];
}

/* Whoever has ended a collective knows that its peers have begun it, and so what they knew then. */
static struct clock after_collective(const struct proof *proof, const struct clock *begin)
{
    struct clock end = proof->now;
    const int scope = proof->operation->scope;
    for (int ranks = 0; ranks < proof->scopes && scope != EO_SCOPE_ALONE; ranks++)
        for (int part = 0; part < proof->scopes; part++)
            if ((part & ~(ranks | scope)) == 0)
                raise_to(end.done[part], begin->done[ranks]);
    return end;
}

static uint8_t turn_of(const struct proof *proof)
{
    return proof->params->turns != NULL ? proof->params->turns[proof->run] : 0;
}

/* A wait binds to the latest record of its event that was issued before it, and this must be of the run it says. */
static void follow_wait(struct proof *proof, eo_stream_id stream)
{
    const uint32_t id = proof->operation->wait[stream];
    const bool previous = proof->operation->wait_previous_run[stream];
    if (previous && (turn_of(proof) & EO_TURN_GRAPH) != 0)
        return;
    const struct record *record = id < proof->schedule->id_count ? &proof->records[id] : NULL;
    const bool recorded = record != NULL && record->number != 0 && record->stream == stream;

    /* Execution binds to the latest record, whatever the wait says; going on like this reports one fault once. */
    if (recorded)
        for (int ranks = 0; ranks < proof->scopes; ranks++)
            raise_to(proof->now.done[ranks], record->clock.done[ranks]);

    if (recorded && record->run + previous == proof->run)
        return;
    if (!recorded && previous && proof->run == 0 && proof->params->sequence[0] == EO_LIST_FORWARD)
        return; /* a list that follows itself: its first run has nothing to wait for */
    struct eo_hazard hazard = {.kind = EO_HAZARD_UNKNOWN_WAIT,
                               .other_run = EO_NONE,
                               .other_operation = EO_NONE,
                               .row = EO_NONE,
                               .other_row = EO_NONE};
    eo_proof_text_unknown_wait(proof->params, here(proof), stream, &hazard);
    report_here(proof, &hazard);
}

/* What compute has not waited for may all be under way. */
static void check_queue(struct proof *proof)
{
    const eo_stream_id stream = proof->operation->stream;
    const uint32_t place = proof->place[proof->number] = ++proof->issued[stream];
    const uint32_t done = proof->place[proof->clocks[EO_STREAM_COMPUTE].done[EO_SCOPE_ALONE][stream]];
    if (stream == EO_STREAM_COMPUTE || place - done <= proof->schedule->queue_items[stream])
        return;
    struct eo_hazard hazard = {.kind = EO_HAZARD_QUEUE,
                               .other_run = EO_NONE,
                               .other_operation = EO_NONE,
                               .row = EO_NONE,
                               .other_row = EO_NONE};
    eo_proof_text_queue(proof->params, here(proof), place - done, &hazard);
    report_here(proof, &hazard);
}

static bool happens_before(const struct proof *proof, uint32_t number, eo_stream_id stream)
{
    return number <= proof->now.done[EO_SCOPE_ALONE][stream];
}

static struct eo_content content_named(const struct proof *proof, const struct eo_access *access)
{
    const int64_t step = proof->step, micro_batches = proof->schedule->micro_batches;
    const int64_t micro_batch = proof->operation->micro_batch == EO_NONE ? 0 : proof->operation->micro_batch;
    int64_t version = access->version_offset;
    if (access->version_kind == EO_VERSION_STEP)
        version += step;
    else if (access->version_kind == EO_VERSION_MICRO_BATCH)
        version += (step * micro_batches + micro_batch) * (access->version_scale == 0 ? 1 : access->version_scale);
    else
        EO_ASSERT(access->version_kind == EO_VERSION_FIXED);
    return (struct eo_content){access->row, access->subject, version};
}

/* The part of an access that looks: READ, and UPDATE before it writes. */
static void look(struct proof *proof, const struct eo_access *access)
{
    const eo_stream_id stream = proof->operation->stream;
    struct eo_content expected = content_named(proof, access);
    expected.version -= access->mode == EO_UPDATE;
    bool stale_seen = false;
    const uint32_t end = proof->row_end[access->row];
    for (uint32_t i = proof->row_begin[access->row]; i < end && !proof->stopped; i++) {
        struct segment *segment = &proof->segments[i];
        if (!happens_before(proof, segment->writer, segment->writer_stream))
            report_race(proof, access, segment->writer, segment->content.row, true);
        if (!stale_seen && !proof->stopped &&
            (segment->content.row != expected.row || segment->content.subject != expected.subject ||
             segment->content.version != expected.version)) {
            stale_seen = true; /* once an access, not once a segment */
            report_stale(proof, access, &expected, segment);
        }
        const bool again = segment->reader[stream] == proof->number && segment->reader_row[stream] != access->row;
        segment->reader[stream] = proof->number;
        segment->reader_row[stream] = again ? SEVERAL_ROWS : access->row;
        if (proof->operation->peers_read && proof->operation->scope != EO_SCOPE_ALONE) {
            segment->shown[stream] = proof->number;
            segment->shown_to[stream] |= proof->operation->scope;
        }
    }
}

/* The part of an access that writes: WRITE, and UPDATE after it looked. */
static void leave(struct proof *proof, const struct eo_access *access)
{
    const struct eo_content content = content_named(proof, access);
    const uint32_t end = proof->row_end[access->row];
    for (uint32_t i = proof->row_begin[access->row]; i < end && !proof->stopped; i++) {
        struct segment *segment = &proof->segments[i];
        /* One operation may touch a row more than once, but not write where it touches another row: nothing orders
         * the parts of an operation. */
        const bool other_row = segment->writer == proof->number && segment->content.row != access->row;
        if (other_row || !happens_before(proof, segment->writer, segment->writer_stream))
            report_race(proof, access, segment->writer, segment->content.row, true);
        for (int s = 0; s < EO_STREAM_COUNT && !proof->stopped; s++) {
            const uint32_t reader = segment->reader[s], row = segment->reader_row[s];
            if ((reader == proof->number && row != access->row) || !happens_before(proof, reader, (eo_stream_id)s))
                report_race(proof, access, reader, row, false);
            segment->reader[s] = 0; /* what follows this write follows its readers too */
            if (!proof->stopped && segment->shown[s] > proof->now.done[segment->shown_to[s]][s])
                report_peer(proof, access, segment->shown[s]);
            segment->shown[s] = segment->shown_to[s] = 0;
        }
        segment->writer = proof->number;
        segment->writer_stream = proof->operation->stream;
        segment->content = content;
    }
}

/* The trainer writes its buffer, unless the list says so of this pass already. */
static void begin_life(struct proof *proof, uint32_t row)
{
    const struct eo_access access = {
        .row = row, .subject = EO_NONE, .mode = EO_WRITE, .version_kind = EO_VERSION_FIXED, .version_scale = 1};
    proof->begun[row] = proof->number;
    for (uint32_t i = proof->row_begin[row]; i < proof->row_end[row]; i++) {
        if (proof->segments[i].writer == proof->number && proof->segments[i].content.row == row)
            continue;
        leave(proof, &access);
        return;
    }
}

/* The last pass finds the buffer as the passes of its life left it; later writers come after it. */
static void end_life(struct proof *proof, uint32_t row)
{
    const struct eo_access access = {.row = row, .mode = EO_READ};
    const eo_stream_id stream = proof->operation->stream;
    for (uint32_t i = proof->row_begin[row]; i < proof->row_end[row] && !proof->stopped; i++) {
        struct segment *segment = &proof->segments[i];
        if (!happens_before(proof, segment->writer, segment->writer_stream))
            report_race(proof, &access, segment->writer, segment->content.row, true);
        const bool again = segment->reader[stream] == proof->number && segment->reader_row[stream] != row;
        segment->reader[stream] = proof->number;
        segment->reader_row[stream] = again ? SEVERAL_ROWS : row;
        if (proof->stopped || segment->content.row == row)
            continue;
        report_life(proof, row, segment);
        return; /* once a life, not once a segment */
    }
}

/* What begins and ends with a pass, by the lifetimes that the trainer gave. */
static void follow_lives(struct proof *proof, bool ends)
{
    static const eo_pass passes[EO_OP_KIND_COUNT] = {[EO_OP_FORWARD] = EO_PASS_FORWARD,
                                                     [EO_OP_RECOMPUTE] = EO_PASS_RECOMPUTE,
                                                     [EO_OP_BACKWARD] = EO_PASS_BACKWARD};
    const struct eo_operation *operation = proof->operation;
    const struct eo_proof_lives *lives = &proof->lives;
    const bool is_pass = operation->kind == EO_OP_FORWARD || operation->kind == EO_OP_RECOMPUTE ||
                         operation->kind == EO_OP_BACKWARD;
    if (!is_pass || operation->position == EO_NONE)
        return;
    const bool forward = proof->params->sequence[proof->run] == EO_LIST_FORWARD;
    const struct eo_proof_agenda *agenda = forward ? ends ? &lives->forward_ends : &lives->forward_begins
                                           : ends  ? &lives->step_ends
                                                   : &lives->step_begins;
    const uint32_t key = forward ? operation->position
                                 : eo_proof_moment(lives->position_count, passes[operation->kind], operation->position);
    for (uint32_t i = agenda->begin[key]; i < agenda->begin[key + 1] && !proof->stopped; i++) {
        if (ends)
            end_life(proof, agenda->rows[i]);
        else
            begin_life(proof, agenda->rows[i]);
    }
}

static void issue(struct proof *proof)
{
    const struct eo_operation *operation = proof->operation;
    const struct eo_schedule *schedule = proof->schedule;
    EO_ASSERT((uint32_t)operation->stream < EO_STREAM_COUNT && operation->scope < EO_SCOPE_COUNT);
    EO_ASSERT(operation->access_count <= schedule->access_count &&
              operation->access_begin <= schedule->access_count - operation->access_count);

    check_queue(proof);
    proof->now = proof->clocks[operation->stream];
    for (int s = 0; s < EO_STREAM_COUNT && !proof->stopped; s++)
        if (operation->wait[s] != EO_NONE)
            follow_wait(proof, (eo_stream_id)s);
    const struct clock begin = proof->now;
    proof->now.done[EO_SCOPE_ALONE][operation->stream] = proof->number; /* and with it all before it on the stream */

    /* First all looks, then all writes: an operation that names a row twice finds what was there before it. */
    const struct eo_access *accesses = &schedule->accesses[operation->access_begin];
    for (uint32_t i = 0; i < operation->access_count && !proof->stopped; i++) {
        EO_ASSERT(accesses[i].row < schedule->row_count);
        if (accesses[i].mode != EO_WRITE)
            look(proof, &accesses[i]);
    }
    for (uint32_t i = 0; i < operation->access_count && !proof->stopped; i++)
        if (accesses[i].mode != EO_READ)
            leave(proof, &accesses[i]);
    follow_lives(proof, false);
    follow_lives(proof, true);

    proof->now = after_collective(proof, &begin);
    proof->clocks[operation->stream] = proof->now;
    if (operation->record) {
        EO_ASSERT(operation->id < schedule->id_count);
        proof->records[operation->id] = (struct record){proof->number, proof->run, operation->stream, proof->now};
    }
}

/* All ranks have ended what was issued. */
static void all_have_ended(struct proof *proof)
{
    uint32_t last[EO_STREAM_COUNT];
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        last[s] = proof->clocks[s].done[EO_SCOPE_ALONE][s];
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        for (int ranks = 0; ranks < proof->scopes; ranks++)
            raise_to(proof->clocks[s].done[ranks], last);
}

/* What is issued to `stream` from here on waits for what was issued to `other`. */
static void join_stream(struct proof *proof, int stream, int other)
{
    for (int ranks = 0; ranks < proof->scopes; ranks++)
        raise_to(proof->clocks[stream].done[ranks], proof->clocks[other].done[ranks]);
}

static void compute_joins_all(struct proof *proof)
{
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        join_stream(proof, EO_STREAM_COMPUTE, s);
}

static void all_join_compute(struct proof *proof)
{
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        join_stream(proof, s, EO_STREAM_COMPUTE);
}

/* Weights may be others now, and what was gathered of them before is nothing that a step may use. */
static void forget_copies(struct proof *proof)
{
    const struct eo_schedule *schedule = proof->schedule;
    for (uint32_t row = 0; row < schedule->row_count; row++) {
        for (uint32_t i = proof->row_begin[row]; i < proof->row_end[row]; i++) {
            struct eo_content *content = &proof->segments[i].content;
            if (content->row != EO_NONE && !schedule->rows[content->row].initialised)
                *content = (struct eo_content){.row = EO_NONE, .subject = EO_NONE};
        }
    }
}

/* A checkpoint: compute waits for the last evictions, and reads the rows that are saved, all as the last step left them. */
static void save(struct proof *proof)
{
    static const struct eo_operation copy = {.stream = EO_STREAM_COMPUTE, .position = EO_NONE, .layer = EO_NONE,
                                             .micro_batch = EO_NONE};
    proof->operation = &copy;
    proof->index = EO_NONE;
    join_stream(proof, EO_STREAM_COMPUTE, EO_STREAM_COPY);
    proof->now = proof->clocks[EO_STREAM_COMPUTE];
    proof->now.done[EO_SCOPE_ALONE][EO_STREAM_COMPUTE] = proof->number;
    for (uint32_t row = 0; row < proof->schedule->row_count && !proof->stopped; row++) {
        const struct eo_schedule_row *r = &proof->schedule->rows[row];
        if (!r->saved || proof->row_begin[row] == proof->row_end[row])
            continue;
        /* What no step has written yet is what it was: frozen weights always. */
        const bool is_old = proof->segments[proof->row_begin[row]].writer == 0;
        look(proof, &(struct eo_access){.row = row, .subject = r->initial_subject, .mode = EO_READ,
                                        .version_kind = is_old ? EO_VERSION_FIXED : EO_VERSION_STEP});
    }
    proof->clocks[EO_STREAM_COMPUTE] = proof->now;
}

static void begin_run(struct proof *proof)
{
    const uint8_t turn = turn_of(proof);
    proof->number++; /* the checkpoint's, whether there is one or not */
    if ((turn & EO_TURN_QUIET) != 0)
        all_have_ended(proof);
    if ((turn & EO_TURN_ORDER) != 0)
        all_join_compute(proof);
    if ((turn & EO_TURN_WEIGHTS) != 0)
        forget_copies(proof);
    if ((turn & EO_TURN_SAVE) != 0)
        save(proof);
    if ((turn & EO_TURN_GRAPH) != 0) {
        compute_joins_all(proof);
        all_join_compute(proof);
    }
}

static void end_run(struct proof *proof)
{
    if ((turn_of(proof) & EO_TURN_GRAPH) != 0) {
        compute_joins_all(proof);
        for (uint32_t id = 0; id < proof->schedule->id_count; id++)
            proof->records[id].number = 0;
    }
    proof->step += proof->params->turns == NULL || proof->params->sequence[proof->run] != EO_LIST_FORWARD;
}

static void proof_fini(struct proof *proof)
{
    free(proof->segments);
    free(proof->row_begin);
    free(proof->row_end);
    free(proof->edges);
    free(proof->owner);
    free(proof->begun);
    eo_proof_lives_free(&proof->lives);
    free(proof->records);
    free(proof->run_begin);
    free(proof->raced_with);
    free(proof->place);
}

static void *zeroed(size_t count, size_t bytes)
{
    return calloc(count + 1, bytes); /* one more, as some tables need, and none is empty */
}

static eo_status proof_init(struct proof *proof, const struct eo_proof_params *params, struct eo_hazard *first)
{
    const struct eo_schedule *schedule = params->schedule;
    const size_t rows = schedule->row_count;
    *proof = (struct proof){.params = params, .schedule = schedule, .first = first};
    proof->scopes = EO_SCOPE_PART;
    for (int list = 0; list < EO_LIST_COUNT; list++)
        for (uint32_t i = 0; i < schedule->lists[list].count; i++)
            if (schedule->lists[list].operations[i].scope >= EO_SCOPE_PART)
                proof->scopes = EO_SCOPE_COUNT;
    proof->run_begin = zeroed(params->sequence_count, sizeof(proof->run_begin[0]));
    if (proof->run_begin == NULL)
        return EO_ERR_NO_MEMORY;
    uint64_t operations = 0;
    for (uint32_t run = 0; run < params->sequence_count; run++) {
        EO_ASSERT((uint32_t)params->sequence[run] < EO_LIST_COUNT);
        operations += 1 + (uint64_t)schedule->lists[params->sequence[run]].count;
        EO_ASSERT(operations < UINT32_MAX);
        proof->run_begin[run + 1] = (uint32_t)operations;
    }
    proof->segments = zeroed(2 * rows, sizeof(proof->segments[0]));
    proof->edges = zeroed(2 * rows, sizeof(proof->edges[0]));
    proof->owner = zeroed(2 * rows, sizeof(proof->owner[0]));
    proof->begun = zeroed(rows, sizeof(proof->begun[0]));
    proof->row_begin = zeroed(rows, sizeof(proof->row_begin[0]));
    proof->row_end = zeroed(rows, sizeof(proof->row_end[0]));
    proof->records = zeroed(schedule->id_count, sizeof(proof->records[0]));
    proof->raced_with = zeroed(operations, sizeof(proof->raced_with[0]));
    proof->place = zeroed(operations, sizeof(proof->place[0]));
    if (proof->segments == NULL || proof->edges == NULL || proof->row_begin == NULL || proof->row_end == NULL ||
        proof->owner == NULL || proof->begun == NULL || proof->records == NULL || proof->raced_with == NULL ||
        proof->place == NULL)
        return EO_ERR_NO_MEMORY;
    EO_TRY(eo_proof_lives_make(&proof->lives, schedule));
    cut_segments(proof);
    check_owners(proof);
    return EO_OK;
}

eo_status eo_proof_run(const struct eo_proof_params *params, struct eo_hazard *first)
{
    struct proof proof;
    first->kind = EO_HAZARD_NONE;
    first->text[0] = '\0';
    eo_status status = proof_init(&proof, params, first);
    if (status == EO_OK) {
        for (; proof.run < params->sequence_count && !proof.stopped; proof.run++) {
            const struct eo_operation_list *list = &params->schedule->lists[params->sequence[proof.run]];
            begin_run(&proof);
            for (proof.index = 0; proof.index < list->count && !proof.stopped; proof.index++) {
                proof.number++;
                proof.operation = &list->operations[proof.index];
                issue(&proof);
            }
            end_run(&proof);
        }
        status = first->kind == EO_HAZARD_NONE ? EO_OK : EO_ERR_SCHEDULE;
    }
    proof_fini(&proof);
    return status;
}
