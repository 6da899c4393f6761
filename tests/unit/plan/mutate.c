/* SPDX-License-Identifier: MIT */
#include "tests/unit/plan/mutate.h"

#include "base/check.h"

eo_status eo_mutate_waits(struct eo_schedule *schedule, eo_list list, const struct eo_proof_params *params,
                          void (*each)(void *user, const struct eo_mutation *mutation), void *user,
                          struct eo_mutations *out)
{
    const struct eo_operation_list *operations = &schedule->lists[list];
    struct eo_proof_params silent = *params;
    struct eo_hazard hazard;
    *out = (struct eo_mutations){0};
    EO_ASSERT(params->schedule == schedule);
    silent.report = NULL;

    const eo_status whole = eo_proof_run(&silent, &hazard);
    if (whole != EO_OK)
        return whole == EO_ERR_SCHEDULE ? EO_ERR_INVALID : whole;
    for (uint32_t i = 0; i < operations->count; i++) {
        for (int s = 0; s < EO_STREAM_COUNT; s++) {
            uint32_t *wait = &operations->operations[i].wait[s];
            if (*wait == EO_NONE)
                continue;
            struct eo_mutation mutation = {.operation = i, .stream = (eo_stream_id)s, .awaited = *wait};
            *wait = EO_NONE;
            const eo_status status = eo_proof_run(&silent, &hazard);
            *wait = mutation.awaited;
            if (status == EO_ERR_NO_MEMORY)
                return status;
            mutation.caught = status == EO_ERR_SCHEDULE;
            mutation.hazard = mutation.caught ? &hazard : NULL;
            out->caught += mutation.caught;
            out->uncaught += !mutation.caught;
            out->caught_as[hazard.kind] += mutation.caught;
            if (each != NULL)
                each(user, &mutation);
        }
    }
    return EO_OK;
}

eo_status eo_mutate_lists(struct eo_schedule *schedule, struct eo_mutations found[EO_LIST_COUNT])
{
    static const eo_list training[] = {EO_LIST_FIRST, EO_LIST_STEADY, EO_LIST_STEADY}, forward[] = {EO_LIST_FORWARD},
                         inputs[] = {EO_LIST_INPUTS},
                         updates[] = {EO_LIST_FIRST, EO_LIST_STEADY, EO_LIST_UPDATES, EO_LIST_FIRST};
    static const uint8_t turns[] = {0, 0, EO_TURN_QUIET, EO_TURN_QUIET | EO_TURN_ORDER | EO_TURN_SAVE};
    for (int list = 0; list < EO_LIST_COUNT; list++) {
        const bool is_forward = list == EO_LIST_FORWARD, is_updates = list == EO_LIST_UPDATES,
                   is_inputs = list == EO_LIST_INPUTS;
        const struct eo_proof_params proof = {
            .schedule = schedule,
            .sequence = is_forward   ? forward
                        : is_inputs  ? inputs
                        : is_updates ? updates
                                     : training,
            .sequence_count = is_forward || is_inputs ? 1
                              : is_updates            ? 4
                                                      : 3,
            .turns = is_updates ? turns : NULL,
        };
        found[list] = (struct eo_mutations){0};
        if (schedule->lists[list].count == 0)
            continue;
        EO_TRY(eo_mutate_waits(schedule, (eo_list)list, &proof, NULL, NULL, &found[list]));
    }
    return EO_OK;
}
