/* SPDX-License-Identifier: MIT
 *
 * The proof: given a schedule as data, shows that no execution of it can go wrong, or names two operations that can.
 *
 * Happens-before is computed from stream order and waits with vector clocks (Mattern 1988; Fidge 1988). Two things
 * are checked over a sequence of runs (first, steady, steady, ...; forward alone):
 *
 *  1. Every pair of accesses to overlapping addresses of which one writes is ordered by happens-before.
 *  2. Every read and update finds the content that it names in all its bytes. Because of 1 every execution leaves the
 *     same contents as list order, so running the list once on symbolic contents is enough.
 *  3. What an all-gather reads, its peers read too, and may go on when it has ended on this rank. It is overwritten only
 *     where they are known to have ended it: after a later collective with them, which they begin after it. All ranks run
 *     the same lists, so what this rank knows of its peers follows from the same clocks, one for each set of peers.
 *  4. A stream that is not compute never has more operations under way than schedule.queue_items: what is issued in list
 *     order, less what compute has waited for by then.
 *  5. A row of the whole run (persistent: weights, optimizer state, what a trainer keeps) shares its addresses with no
 *     other row. Nothing in the lists need touch it: a trainer's kernels may at any time.
 *  6. A trainer's buffer is written and read by every pass of its lifetime, in a step and in a forward-only run, whatever
 *     the lists say of it: from the first pass to the last nothing else is written there.
 *  7. All of this from run to run as a runtime goes on (enum eo_turn): after an evaluation, weights calls and checkpoints,
 *     into a graph and out of it. Then versions count steps, which forward-only runs are none of.
 *
 * Two accesses of one operation are ordered if they name the same row, which it first reads and then writes; through
 * two rows that share addresses they are a race. Content is found only through the row that it was written through.
 *
 * In the first run of a sequence a wait for the previous run has nothing to wait for. That is a hazard in the lists
 * of a step, as the first list is made to need no such wait and the steady list must not be run first; it is none in
 * the forward list, which follows itself.
 *
 * It shares no code with what derives the waits. Linear in the number of accesses (times the rows that share the
 * addresses of each).
 */
#ifndef EO_RUNTIME_PLAN_PROOF_PROOF_H
#define EO_RUNTIME_PLAN_PROOF_PROOF_H

#include "runtime/plan/schedule.h"

enum eo_hazard_kind {
    EO_HAZARD_NONE,
    EO_HAZARD_RACE,         /* two conflicting accesses, not ordered */
    EO_HAZARD_STALE,        /* ordered, but the content found is not the one named */
    EO_HAZARD_UNKNOWN_WAIT, /* a wait whose latest earlier record is not of the run and stream that it names */
    EO_HAZARD_PEER,         /* a row that a peer may still read is overwritten */
    EO_HAZARD_QUEUE,        /* more is issued to a stream than schedule.queue_items */
    EO_HAZARD_SHARED,       /* a row of the whole run shares addresses with another one; of no operation */
    EO_HAZARD_LIFE,         /* a trainer's buffer is overwritten within its lifetime */
    EO_HAZARD_KIND_COUNT,
};

/* What a runtime does before a run of a list, as bits; done in this order. */
enum eo_turn {
    EO_TURN_QUIET = 1,   /* all ranks have ended all of it: around evaluations and weights calls */
    EO_TURN_ORDER = 2,   /* the other streams wait for compute: before a step that is not of the schedule */
    EO_TURN_WEIGHTS = 4, /* weights calls: from here nothing is found but what rows hold at first, with the step's version */
    EO_TURN_SAVE = 8,    /* compute copies a checkpoint: the rows that are saved, all of one step */
    EO_TURN_GRAPH = 16,  /* the run is one graph: it begins when all before it has ended, waits for the previous run are left
                            out, compute goes on when all of it has ended, and no later wait can name its events */
};

struct eo_hazard {
    enum eo_hazard_kind kind;
    uint32_t run;                        /* 0: the first list of the sequence, 1 ... */
    uint32_t operation;                  /* list index in its run: the later one; EO_NONE: the checkpoint before the run */
    uint32_t other_run, other_operation; /* the earlier one (race); the last writer, or EO_NONE in both (stale) */
    uint32_t row, other_row;             /* where both touch the same addresses */
    char text[512]; /* both operations, the buffer, the missing wait or the content found and expected */
};

/* Names an operation in texts: "backward of position 3, micro-batch 0"; NULL: kind and position. */
typedef void (*eo_operation_namer)(void *user, const struct eo_operation *operation, char *text, size_t bytes);

struct eo_proof_params {
    const struct eo_schedule *schedule;
    const eo_list *sequence; /* the lists in the order they are run */
    const uint8_t *turns;    /* what stands before each of them, or NULL: nothing */
    uint32_t sequence_count;
    eo_operation_namer namer;
    void *namer_user;
    /* Called for each hazard found; false stops. NULL: the first hazard stops. After a race the run goes on as if the
     * pair were ordered, so that one fault is not reported twice for the same pair of operations. */
    bool (*report)(void *user, const struct eo_hazard *hazard);
    void *report_user;
};

/*
 * EO_OK             no hazard; *first->kind is EO_HAZARD_NONE
 * EO_ERR_SCHEDULE   at least one; *first is the first
 * EO_ERR_NO_MEMORY
 */
EO_NODISCARD eo_status eo_proof_run(const struct eo_proof_params *params, struct eo_hazard *first);

#endif
