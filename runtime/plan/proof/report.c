/* SPDX-License-Identifier: MIT
 *
 * Hazards on their way to the caller: each with its place, its text and the operation that it is of.
 */
#include "runtime/plan/proof/shadow.h"

/* Hands a hazard on. */
static void report(struct proof *proof, const struct eo_hazard *hazard)
{
    if (proof->first->kind == EO_HAZARD_NONE)
        *proof->first = *hazard;
    if (proof->params->report == NULL || !proof->params->report(proof->params->report_user, hazard))
        proof->stopped = true;
}

void eo_proof_report_shared(struct proof *proof, uint32_t row, uint32_t other)
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

struct eo_place eo_proof_here(const struct proof *proof)
{
    return (struct eo_place){proof->run, proof->index};
}

/* Completes the hazard with the operation at hand, the later one, and hands it on. */
void eo_proof_report_here(struct proof *proof, struct eo_hazard *hazard)
{
    hazard->run = proof->run;
    hazard->operation = proof->index;
    report(proof, hazard);
}

void eo_proof_report_race(struct proof *proof, const struct eo_access *access, uint32_t other, uint32_t other_row,
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
    eo_proof_text_race(proof->params, eo_proof_here(proof), access, &hazard, other_writes);
    eo_proof_report_here(proof, &hazard);
}

void eo_proof_report_peer(struct proof *proof, const struct eo_access *access, uint32_t other)
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
    eo_proof_text_peer(proof->params, eo_proof_here(proof), access, &hazard);
    eo_proof_report_here(proof, &hazard);
}

void eo_proof_report_stale(struct proof *proof, const struct eo_access *access, const struct eo_content *expected,
                           const struct segment *segment)
{
    const struct eo_place writer = place_of(proof, segment->writer);
    struct eo_hazard hazard = {.kind = EO_HAZARD_STALE,
                               .other_run = writer.run,
                               .other_operation = writer.operation,
                               .row = access->row,
                               .other_row = segment->content.row};
    eo_proof_text_stale(proof->params, eo_proof_here(proof), access, &hazard, expected, &segment->content);
    eo_proof_report_here(proof, &hazard);
}

void eo_proof_report_life(struct proof *proof, uint32_t row, const struct segment *segment)
{
    const struct eo_place begin = place_of(proof, proof->begun[row]);
    struct eo_hazard hazard = {.kind = EO_HAZARD_LIFE,
                               .other_run = begin.run,
                               .other_operation = begin.operation,
                               .row = row,
                               .other_row = segment->content.row};
    eo_proof_text_life(proof->params, eo_proof_here(proof), &hazard, place_of(proof, segment->writer));
    eo_proof_report_here(proof, &hazard);
}
