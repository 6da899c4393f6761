/* SPDX-License-Identifier: MIT
 *
 * The walk over the lists: streams and waits give each operation its clock, its accesses are held against the segments.
 */
#include "runtime/plan/proof/proof.h"

#include <stdlib.h>

#include "base/check.h"
#include "runtime/plan/proof/shadow.h"

/* Whoever has ended a collective knows that its peers have begun it, and so what they knew then. */
static struct clock after_collective(const struct proof *proof, const struct clock *begin)
{
    struct clock end = proof->now;
    const int scope = proof->operation->scope;
    for (int ranks = 0; ranks < proof->scopes && scope != EO_SCOPE_ALONE; ranks++)
        for (int part = 0; part < proof->scopes; part++)
            if ((part & ~(ranks | scope)) == 0)
                eo_proof_raise(end.done[part], begin->done[ranks]);
    return end;
}

/* A wait binds to the latest record of its event that was issued before it, and this must be of the run it says. */
static void follow_wait(struct proof *proof, eo_stream_id stream)
{
    const uint32_t id = proof->operation->wait[stream];
    const bool previous = proof->operation->wait_previous_run[stream];
    if (previous && (eo_proof_turn(proof) & EO_TURN_GRAPH) != 0)
        return;
    const struct record *record = id < proof->schedule->id_count ? &proof->records[id] : NULL;
    const bool recorded = record != NULL && record->number != 0 && record->stream == stream;

    /* Execution binds to the latest record, whatever the wait says; going on like this reports one fault once. */
    if (recorded)
        for (int ranks = 0; ranks < proof->scopes; ranks++)
            eo_proof_raise(proof->now.done[ranks], record->clock.done[ranks]);

    if (recorded && record->run + previous == proof->run)
        return;
    if (!recorded && previous && proof->run == 0 && proof->params->sequence[0] == EO_LIST_FORWARD)
        return; /* a list that follows itself: its first run has nothing to wait for */
    struct eo_hazard hazard = {.kind = EO_HAZARD_UNKNOWN_WAIT,
                               .other_run = EO_NONE,
                               .other_operation = EO_NONE,
                               .row = EO_NONE,
                               .other_row = EO_NONE};
    eo_proof_text_unknown_wait(proof->params, eo_proof_here(proof), stream, &hazard);
    eo_proof_report_here(proof, &hazard);
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
    eo_proof_text_queue(proof->params, eo_proof_here(proof), place - done, &hazard);
    eo_proof_report_here(proof, &hazard);
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
            eo_proof_look(proof, &accesses[i]);
    }
    for (uint32_t i = 0; i < operation->access_count && !proof->stopped; i++)
        if (accesses[i].mode != EO_READ)
            eo_proof_leave(proof, &accesses[i]);
    eo_proof_follow_lives(proof, false);
    eo_proof_follow_lives(proof, true);

    proof->now = after_collective(proof, &begin);
    proof->clocks[operation->stream] = proof->now;
    if (operation->record) {
        EO_ASSERT(operation->id < schedule->id_count);
        proof->records[operation->id] = (struct record){proof->number, proof->run, operation->stream, proof->now};
    }
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
    eo_proof_cut_segments(proof);
    eo_proof_check_owners(proof);
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
            eo_proof_begin_run(&proof);
            for (proof.index = 0; proof.index < list->count && !proof.stopped; proof.index++) {
                proof.number++;
                proof.operation = &list->operations[proof.index];
                issue(&proof);
            }
            eo_proof_end_run(&proof);
        }
        status = first->kind == EO_HAZARD_NONE ? EO_OK : EO_ERR_SCHEDULE;
    }
    proof_fini(&proof);
    return status;
}
