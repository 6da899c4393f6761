/* SPDX-License-Identifier: MIT
 *
 * A list run against a clock.
 */
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/plan/internal.h"

eo_status eo_plan_simulate(const eo_plan *plan, eo_list list, const uint64_t *duration_ns, uint32_t step_count,
                           uint64_t *out_ns)
{
    if (!plan || (unsigned)list >= EO_LIST_COUNT || !duration_ns || step_count == 0 || !out_ns)
        return EO_ERR_INVALID;
    const struct eo_operation_list *operations = &plan->schedule.lists[list];
    uint64_t *ended = calloc(plan->schedule.id_count + 1, sizeof(*ended)); /* by id: its latest record */
    if (!ended)
        return EO_ERR_NO_MEMORY;
    uint64_t stream_free[EO_STREAM_COUNT] = {0}, before = 0, end = 0;
    for (uint32_t step = 0; step < step_count; step++) {
        before = end;
        for (uint32_t i = 0; i < operations->count; i++) {
            const struct eo_operation *o = &operations->operations[i];
            uint64_t start = stream_free[o->stream];
            for (int s = 0; s < EO_STREAM_COUNT; s++)
                if (o->wait[s] != EO_NONE)
                    start = eo_max_u64(start, ended[o->wait[s]]);
            stream_free[o->stream] = ended[o->id] = start + duration_ns[i];
        }
        /* A step ends for the trainer when compute does; what communication still does hides behind the next. */
        end = stream_free[EO_STREAM_COMPUTE];
    }
    *out_ns = end - before;
    free(ended);
    return EO_OK;
}
