/* SPDX-License-Identifier: MIT
 *
 * What a runtime does between two runs of lists: evaluations, weights calls, checkpoints, graphs (enum eo_turn).
 */
#include "runtime/plan/proof/shadow.h"

/* All ranks have ended what was issued. */
static void all_have_ended(struct proof *proof)
{
    uint32_t last[EO_STREAM_COUNT];
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        last[s] = proof->clocks[s].done[EO_SCOPE_ALONE][s];
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        for (int ranks = 0; ranks < proof->scopes; ranks++)
            eo_proof_raise(proof->clocks[s].done[ranks], last);
}

/* What is issued to `stream` from here on waits for what was issued to `other`. */
static void join_stream(struct proof *proof, int stream, int other)
{
    for (int ranks = 0; ranks < proof->scopes; ranks++)
        eo_proof_raise(proof->clocks[stream].done[ranks], proof->clocks[other].done[ranks]);
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
    join_stream(proof, EO_STREAM_COMPUTE, EO_STREAM_EVICT);
    proof->now = proof->clocks[EO_STREAM_COMPUTE];
    proof->now.done[EO_SCOPE_ALONE][EO_STREAM_COMPUTE] = proof->number;
    for (uint32_t row = 0; row < proof->schedule->row_count && !proof->stopped; row++) {
        const struct eo_schedule_row *r = &proof->schedule->rows[row];
        if (!r->saved || proof->row_begin[row] == proof->row_end[row])
            continue;
        /* What no step has written yet is what it was: frozen weights always. */
        const bool is_old = proof->segments[proof->row_begin[row]].writer == 0;
        eo_proof_look(proof, &(struct eo_access){.row = row,
                                                 .subject = r->initial_subject,
                                                 .mode = EO_READ,
                                                 .version_kind = is_old ? EO_VERSION_FIXED : EO_VERSION_STEP});
    }
    proof->clocks[EO_STREAM_COMPUTE] = proof->now;
}

void eo_proof_begin_run(struct proof *proof)
{
    const uint8_t turn = eo_proof_turn(proof);
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

void eo_proof_end_run(struct proof *proof)
{
    if ((eo_proof_turn(proof) & EO_TURN_GRAPH) != 0) {
        compute_joins_all(proof);
        for (uint32_t id = 0; id < proof->schedule->id_count; id++)
            proof->records[id].number = 0;
    }
    const eo_list list = proof->params->sequence[proof->run];
    proof->step +=
        list != EO_LIST_UPDATES && list != EO_LIST_INPUTS && (proof->params->turns == NULL || list != EO_LIST_FORWARD);
}
