/* SPDX-License-Identifier: MIT
 *
 * The time of a step of evenodd: the plan's own list of operations, walked on its streams with its own waits. Each operation
 * takes its flops, bytes and ranks at the device's rates, by the rules of tools/memplan/time/step_time.h.
 */
#ifndef EO_TOOLS_MEMPLAN_TIME_PLAN_TIME_H
#define EO_TOOLS_MEMPLAN_TIME_PLAN_TIME_H

#include "tools/memplan/plan/plan.h"
#include "tools/memplan/time/step_time.h"

/* Constants of the walk: the first three fitted on the half of YaFSDP's published steps that a hash chose, the last that of
 * FSDP's steps (tools/memplan/time/step_time.c). */
struct tool_walk_rules {
    double network_share;      /* of a card's bandwidth to other nodes, that a gather or reduction reaches */
    double slowdown;           /* of compute while a collective runs */
    double collective_seconds; /* of one, on 64 ranks; it grows with their logarithm */
    double step_seconds;       /* of each step, outside the list */
};
extern const struct tool_walk_rules tool_walk_rules;

/* `settings` are those of the plan's run, as an estimate has them. EO_ERR_NO_MEMORY; EO_ERR_INVALID: the list does not end. */
EO_NODISCARD eo_status tool_plan_step_time(struct tool_step_time *out, const struct tool_memplan *memplan,
                                           const struct tool_shape *shape, const struct tool_system_settings *settings,
                                           const struct tool_device_rates *rates, const struct tool_walk_rules *rules);

/* A step of so many micro-batches, by two with fewer. */
struct tool_step_time tool_step_longer(const struct tool_step_time *few, uint32_t few_count, const struct tool_step_time *more,
                                       uint32_t more_count, uint32_t count);

/* A list on a clock: seconds of each operation in the order of the list, without waits for others. `slowdown` stretches compute
 * while another stream works. *seconds: from the end of a step's compute to that of the next. EO_ERR_INVALID: it does not end. */
EO_NODISCARD eo_status tool_walk_list(const eo_plan *plan, const double *durations, double slowdown, double *seconds);

#endif
