/* SPDX-License-Identifier: MIT
 *
 * When each row is live in a steady step, made again from the plan's public list: what each operation reads and writes,
 * and the earliest begin and the latest end of that by order and waits. It shares no code with the planner, so its
 * largest sum of live bytes is a check of the plan's own lower bound.
 *
 * Time is told by the compute stream, as the planner tells it: its n-th operation (from 1) is the point 2n; a collective
 * lies between the compute operation that it comes after and the one that waits for it.
 */
#ifndef EO_TOOLS_MEMPLAN_PLAN_TIMELINE_H
#define EO_TOOLS_MEMPLAN_PLAN_TIMELINE_H

#include "tools/memplan/plan/plan.h"

/* A content of a row: from its write to its last use. Points of one step, 0 ... point_count - 1; first > last: it reaches
 * over the step's end into the next one. */
struct tool_live_span {
    uint32_t row;
    uint32_t first, last;
};

enum tool_phase { TOOL_PHASE_FORWARD, TOOL_PHASE_BACKWARD, TOOL_PHASE_REDUCE, TOOL_PHASE_OPTIMIZER, TOOL_PHASE_COUNT };

struct tool_phase_peak {
    uint64_t bytes;
    uint64_t category_bytes[EO_CATEGORY_COUNT];
    char operation[EO_NAME_MAX * 2]; /* what the compute stream runs then */
};

struct tool_lifetimes {
    uint32_t point_count;
    uint64_t *live;               /* by point and category */
    uint32_t *operations;         /* of the steady list, by compute operation: point / 2 */
    uint8_t *operation_phases;    /* by compute operation, an enum tool_phase */
    struct tool_live_span *spans;
    uint32_t span_count;
    uint64_t *address;            /* by row, over all reservations; host rows last */
    uint64_t peak_bytes;
    uint32_t peak_point;
    struct tool_phase_peak phases[TOOL_PHASE_COUNT];
    struct tool_phase_peak forward_end; /* at the end of the last forward pass */
};

/* A step of more operations is shown by one with fewer micro-batches, where it has more than three: those between the first
 * and the last are alike. */
enum { TOOL_LIFETIMES_OPERATIONS = 1 << 15, TOOL_LIFETIMES_MICRO_BATCHES = 3 };

/* EO_OK, EO_ERR_NO_MEMORY, EO_ERR_UNSUPPORTED (more operations than any model has with three micro-batches). */
EO_NODISCARD eo_status tool_lifetimes_create(struct tool_lifetimes *out, const struct tool_memplan *memplan);
void tool_lifetimes_fini(struct tool_lifetimes *timeline);
const char *tool_phase_name(enum tool_phase phase);

#endif
