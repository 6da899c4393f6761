/* SPDX-License-Identifier: MIT
 *
 * The proof's view of memory: shadow memory over the address line, cut where rows begin and end:
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
#ifndef EO_RUNTIME_PLAN_PROOF_SHADOW_H
#define EO_RUNTIME_PLAN_PROOF_SHADOW_H

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

static inline uint8_t eo_proof_turn(const struct proof *proof)
{
    return proof->params->turns != NULL ? proof->params->turns[proof->run] : 0;
}

/* What is known to be done, with what another knows. */
static inline void eo_proof_raise(uint32_t *done, const uint32_t *other)
{
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        if (done[s] < other[s])
            done[s] = other[s];
}

/* segments.c */
void eo_proof_cut_segments(struct proof *proof);
void eo_proof_check_owners(struct proof *proof);

/* report.c: a hazard of the operation at hand, handed on with its text; report_here: one that has its text. */
void eo_proof_report_here(struct proof *proof, struct eo_hazard *hazard);
void eo_proof_report_shared(struct proof *proof, uint32_t row, uint32_t other);
void eo_proof_report_race(struct proof *proof, const struct eo_access *access, uint32_t other, uint32_t other_row,
                          bool other_writes);
void eo_proof_report_peer(struct proof *proof, const struct eo_access *access, uint32_t other);
void eo_proof_report_stale(struct proof *proof, const struct eo_access *access, const struct eo_content *expected,
                           const struct segment *segment);
void eo_proof_report_life(struct proof *proof, uint32_t row, const struct segment *segment);
struct eo_place eo_proof_here(const struct proof *proof);

/* accesses.c: the part of an access that looks (READ, and UPDATE before it writes), */
void eo_proof_look(struct proof *proof, const struct eo_access *access);
/* and the part that writes (WRITE, and UPDATE after it looked). */
void eo_proof_leave(struct proof *proof, const struct eo_access *access);
/* What begins or ends with a pass, by the lifetimes that the trainer gave. */
void eo_proof_follow_lives(struct proof *proof, bool ends);

/* turns.c */
void eo_proof_begin_run(struct proof *proof);
void eo_proof_end_run(struct proof *proof);

#endif
