/* SPDX-License-Identifier: MIT
 *
 * Small random schedules, sound or broken in a known way, for the proof and its twin to agree on.
 */
#ifndef EO_TESTS_UNIT_PLAN_PROOF_RANDOM_SCHEDULE_H
#define EO_TESTS_UNIT_PLAN_PROOF_RANDOM_SCHEDULE_H

#include "tests/unit/plan/proof/hand_schedule.h"

struct eo_random_schedule {
    struct eo_hand *hand;
    eo_list sequence[3];
    uint32_t sequence_count;
};

/*
 * Operations on 2 or 3 streams over 3 or 4 rows, some of which share addresses; what is read is there when the lists
 * are run in order, and every conflict has its wait. Then, of some seeds, waits are taken away, an access is changed,
 * a record is left out, or a wait is sent elsewhere. Equal seeds give equal schedules. Freed by free(out->hand).
 */
EO_NODISCARD eo_status eo_random_schedule_make(struct eo_random_schedule *out, uint64_t seed);

#endif
