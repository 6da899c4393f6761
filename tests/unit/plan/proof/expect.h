/* SPDX-License-Identifier: MIT
 *
 * Short names for schedules by hand, and what the proof is to say of them.
 */
#ifndef EO_TESTS_UNIT_PLAN_PROOF_EXPECT_H
#define EO_TESTS_UNIT_PLAN_PROOF_EXPECT_H

#include <criterion/criterion.h>

#include "tests/unit/plan/proof/hand_schedule.h"

#define COMPUTE EO_STREAM_COMPUTE
#define COMM    EO_STREAM_COMM
#define REDUCE  EO_STREAM_REDUCE
#define FIRST   EO_LIST_FIRST
#define STEADY  EO_LIST_STEADY
#define FORWARD EO_LIST_FORWARD

/* Runs the first list once, then the steady list; the proof must find exactly one hazard, with these operations. */
static inline void expect_one(struct eo_hand *hand, uint32_t runs, enum eo_hazard_kind kind, const char *later,
                       const char *earlier)
{
    cr_assert_eq(eo_hand_prove(hand, FIRST, STEADY, runs), EO_ERR_SCHEDULE, "%s was not found", later);
    const struct eo_hazard *hazard = &hand->hazards[0];
    cr_assert_eq(hand->hazard_count, 1, "%u hazards, the second: %s", hand->hazard_count, hand->hazards[1].text);
    cr_assert_eq(hazard->kind, kind, "%s", hazard->text);
    cr_assert_str_eq(eo_hand_later(hand, hazard, FIRST, STEADY), later, "%s", hazard->text);
    cr_assert_str_eq(eo_hand_earlier(hand, hazard, FIRST, STEADY), earlier, "%s", hazard->text);
}

static inline void expect_none(struct eo_hand *hand, uint32_t runs)
{
    cr_assert_eq(eo_hand_prove(hand, FIRST, STEADY, runs), EO_OK, "%s", hand->hazards[0].text);
}

#endif
