/* SPDX-License-Identifier: MIT
 *
 * The plan's steady list against a clock, on all ranks together: eo_plan_simulate takes a collective to begin when one
 * rank has come to it; here it begins when all have, each with the operation times that were measured on it.
 */
#ifndef EO_TOOLS_RUN_RANKS_SIMULATE_H
#define EO_TOOLS_RUN_RANKS_SIMULATE_H

#include <evenodd/plan.h>

/*
 * durations_ns[rank][operation]. The list is run `step_count` times (at least 2); the time of the last one goes to
 * *out_ns. Allocates during the call. EO_ERR_NO_MEMORY, EO_ERR_INVALID.
 */
EO_NODISCARD eo_status tool_simulate_ranks(const eo_plan *plan, uint32_t rank_count, const uint64_t *const *durations_ns,
                                           uint32_t step_count, uint64_t *out_ns);

#endif
