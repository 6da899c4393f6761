/* SPDX-License-Identifier: MIT
 *
 * The trainer's buffers by the time at which something is to be done with them. Those of a key are
 * buffers[begin[key]] ... buffers[begin[key + 1] - 1]; persistent ones are left out.
 */
#ifndef EO_RUNTIME_PLAN_LIST_BUFFER_AGENDA_H
#define EO_RUNTIME_PLAN_LIST_BUFFER_AGENDA_H

#include "runtime/plan/internal.h"

struct buffer_agenda {
    uint32_t *begin, *buffers;
};

enum agenda_key {
    AGENDA_FIRST,            /* the moment in which a life begins, */
    AGENDA_LAST,             /* or ends */
    AGENDA_EVALUATION_FIRST, /* the position in whose forward-only pass it begins, */
    AGENDA_EVALUATION_LAST,  /* or ends */
};

EO_NODISCARD eo_status eo_buffer_agenda_make(struct buffer_agenda *out, const struct eo_plan *plan, enum agenda_key by);
void eo_buffer_agenda_free(struct buffer_agenda *agenda);

#endif
