/* SPDX-License-Identifier: MIT
 *
 * The proof against its brute-force twin.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/plan/proof/interleavings.h"
#include "tests/unit/plan/proof/random_schedule.h"

enum { SEEDS = 20000 };

struct seen {
    bool race, stale, unknown_wait;
    char first[512];
};

static bool note(void *user, const struct eo_hazard *hazard)
{
    struct seen *seen = user;
    seen->race |= hazard->kind == EO_HAZARD_RACE;
    seen->stale |= hazard->kind == EO_HAZARD_STALE;
    seen->unknown_wait |= hazard->kind == EO_HAZARD_UNKNOWN_WAIT;
    if (seen->first[0] == '\0')
        snprintf(seen->first, sizeof(seen->first), "%s", hazard->text);
    return true;
}

/*
 * The proof finds a hazard exactly where some interleaving has one, and it is of the same kind: races and unknown
 * waits always; stale contents where nothing races, as else they depend on the path. Method: random schedules, sound
 * ones and broken ones; all states of the twin. Both kinds of each verdict must be frequent, and without a race every
 * state must have one content whatever the path, which is what the proof relies on.
 */
Test(proof_random, the_proof_agrees_with_all_interleavings, .timeout = 120)
{
    uint32_t good = 0, race = 0, stale = 0, unknown_wait = 0, reads = 0, overlaps = 0;
    uint64_t states = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct eo_random_schedule random;
        struct eo_interleavings truth;
        cr_assert_eq(eo_random_schedule_make(&random, seed), EO_OK);
        const struct eo_schedule *schedule = &random.hand->schedule;
        cr_assert_eq(eo_interleavings_explore(schedule, random.sequence, random.sequence_count, &truth), EO_OK);

        struct seen seen = {0};
        struct eo_hazard first;
        struct eo_proof_params params = {.schedule = schedule,
                                         .sequence = random.sequence,
                                         .sequence_count = random.sequence_count,
                                         .namer = eo_hand_namer,
                                         .namer_user = random.hand,
                                         .report = note,
                                         .report_user = &seen};
        const eo_status status = eo_proof_run(&params, &first);
        cr_assert_eq(seen.race, truth.race, "seed %lu: race: proof %d, truth %d (%s)", (unsigned long)seed, seen.race,
                     truth.race, seen.first);
        cr_assert_eq(seen.unknown_wait, truth.unknown_wait, "seed %lu: unknown wait: proof %d, truth %d (%s)",
                     (unsigned long)seed, seen.unknown_wait, truth.unknown_wait, seen.first);
        if (!truth.race) {
            cr_assert_not(truth.diverged, "seed %lu: no race, yet the contents depend on the path",
                          (unsigned long)seed);
            cr_assert_eq(seen.stale, truth.stale, "seed %lu: stale: proof %d, truth %d (%s)", (unsigned long)seed,
                         seen.stale, truth.stale, seen.first);
        }
        const bool bad = truth.race || truth.stale || truth.unknown_wait;
        cr_assert_eq(status, bad ? EO_ERR_SCHEDULE : EO_OK, "seed %lu", (unsigned long)seed);
        params.report = NULL; /* stopping at the first hazard changes nothing about the verdict */
        cr_assert_eq(eo_proof_run(&params, &first), status, "seed %lu", (unsigned long)seed);

        good += !bad;
        race += truth.race;
        stale += truth.stale && !truth.race && !truth.unknown_wait;
        unknown_wait += truth.unknown_wait;
        states += truth.states;
        for (uint32_t i = 0; i < schedule->access_count && !bad; i++)
            reads += schedule->accesses[i].mode != EO_WRITE;
        for (uint32_t i = 1; i < schedule->row_count && !bad; i++)
            if (schedule->rows[i].address < schedule->rows[0].address + schedule->rows[0].bytes &&
                schedule->rows[0].address < schedule->rows[i].address + schedule->rows[i].bytes) {
                overlaps++;
                break;
            }
        free(random.hand);
    }
    cr_log_info("%u schedules: %u good (%u reads in them, %u with rows that overlap), %u with a race, %u with stale "
                "content alone, %u with an unknown wait; %lu states\n",
                (unsigned)SEEDS, good, reads, overlaps, race, stale, unknown_wait, (unsigned long)states);
    cr_expect_gt(good, SEEDS / 4);
    cr_expect_gt(race, SEEDS / 5);
    cr_expect_gt(stale, SEEDS / 30);
    cr_expect_gt(unknown_wait, SEEDS / 30);
    cr_expect_gt(reads, good, "the good schedules hardly read");
    cr_expect_gt(overlaps, good / 10, "in good schedules hardly any rows share addresses");
}
