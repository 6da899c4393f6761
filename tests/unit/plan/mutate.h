/* SPDX-License-Identifier: MIT
 *
 * Takes the waits of a list away, one at a time, and asks the proof: a wait that can be missing unnoticed is either
 * redundant or a hole in the proof.
 */
#ifndef EO_TESTS_UNIT_PLAN_MUTATE_H
#define EO_TESTS_UNIT_PLAN_MUTATE_H

#include "runtime/plan/proof/proof.h"

/* One wait that was taken away. */
struct eo_mutation {
    uint32_t operation;  /* list index */
    eo_stream_id stream; /* that was waited for */
    uint32_t awaited;    /* id */
    bool caught;
    const struct eo_hazard *hazard; /* the first one, when caught; valid during the call */
};

struct eo_mutations {
    uint32_t caught, uncaught;
    uint32_t caught_as[EO_HAZARD_KIND_COUNT]; /* by enum eo_hazard_kind of the first hazard */
};

/*
 * Deletes each wait of `list` in turn, in all runs of it, and proves `params` (whose report is left out). The
 * schedule is changed meanwhile and is as before afterwards. `each` may be NULL.
 *
 * EO_OK             *out counts what was found
 * EO_ERR_INVALID    the schedule does not pass as it is, so that nothing can be said: *out counts nothing
 * EO_ERR_NO_MEMORY
 */
EO_NODISCARD eo_status eo_mutate_waits(struct eo_schedule *schedule, eo_list list,
                                       const struct eo_proof_params *params,
                                       void (*each)(void *user, const struct eo_mutation *mutation), void *user,
                                       struct eo_mutations *out);

/* The waits of all lists of a plan's schedule: found[list]. The training lists are proven in the order in which they run. */
EO_NODISCARD eo_status eo_mutate_lists(struct eo_schedule *schedule, struct eo_mutations found[EO_LIST_COUNT]);

#endif
