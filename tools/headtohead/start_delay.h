/* SPDX-License-Identifier: MIT
 *
 * How late collectives begin: what gives way to what. A collective is ready on a rank when it has been issued, what its
 * stream had before has ended, and so has what the plan lets it wait for; and ready altogether when it is on all ranks.
 *
 *     late      its rank was ready, and others were not
 *     delay     all were ready, and it had not begun: the streams and the hardware had not come to it
 */
#ifndef EO_TOOLS_HEADTOHEAD_START_DELAY_H
#define EO_TOOLS_HEADTOHEAD_START_DELAY_H

#include <evenodd/runtime.h>

/* An operation of a step, on one clock for all ranks. */
struct tool_step_span {
    uint64_t issued_ns, start_ns, end_ns;
};

/* Sums over ranks and steps. */
struct tool_start_delay {
    double delay_s, late_s;
    uint64_t count;
};

struct tool_start_delays {
    struct tool_start_delay kinds[EO_WAIT_COUNT];
    struct tool_start_delay *operations; /* of the steady list, to be given to free() */
    uint64_t early_count;              /* began before they were ready: then a time, or the plan, is not what it says */
};

/* The kind of wait that this operation's end is booked under; -1: it is no collective. */
int tool_collective_of(eo_operation_kind kind);

/*
 * spans[rank][step * operations of the steady list + operation]; complete[rank][step]: whether all are there. A step
 * counts where it and the one before are complete on all ranks. `slack_ns`: what clocks may differ by. EO_ERR_NO_MEMORY.
 */
eo_status tool_start_delays(const eo_plan *plan, uint32_t rank_count, uint64_t step_count,
                            const struct tool_step_span *const *spans, const uint64_t *const *complete, uint64_t slack_ns,
                            struct tool_start_delays *out);

#endif
