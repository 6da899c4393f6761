/* SPDX-License-Identifier: MIT
 *
 * The proof's twin: every interleaving of a small schedule, state by state. It knows no clocks and no happens-before:
 *
 *  - a state is how far each stream has come, over all runs unrolled; all states that can be reached are visited;
 *  - an operation is enabled when it is the next of its stream and all that it waits for is done; two operations that
 *    are enabled together and touch a byte that one of them writes are a race;
 *  - memory is kept byte by byte along every path, and each operation looks at it when it is done.
 */
#ifndef EO_TESTS_UNIT_PLAN_PROOF_INTERLEAVINGS_H
#define EO_TESTS_UNIT_PLAN_PROOF_INTERLEAVINGS_H

#include "runtime/plan/schedule.h"

enum {
    EO_INTERLEAVINGS_OPERATIONS_MAX = 48, /* of all runs together */
    EO_INTERLEAVINGS_BYTES_MAX = 24,      /* addresses are below this */
};

struct eo_interleavings {
    bool race, stale, unknown_wait;
    bool diverged; /* two paths to one state left different bytes there */
    uint32_t states;
};

EO_NODISCARD eo_status eo_interleavings_explore(const struct eo_schedule *schedule, const eo_list *sequence,
                                                uint32_t sequence_count, struct eo_interleavings *out);

#endif
