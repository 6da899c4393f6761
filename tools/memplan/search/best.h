/* SPDX-License-Identifier: MIT
 *
 * --fit best: strategy, group of hsdp, recompute, batch and granularity together. What fits is ordered by the time of a token:
 * that of the plan's list on a clock, where the device's rates are known; else by a rule that weighs what is received against what
 * is computed again. docs/memplan.md.
 */
#ifndef EO_TOOLS_MEMPLAN_SEARCH_BEST_H
#define EO_TOOLS_MEMPLAN_SEARCH_BEST_H

#include "tools/memplan/estimate/estimate.h"
#include "tools/memplan/search/strategies.h"

/* What the order is made of. */
struct tool_best_cost {
    double token_ns, compute_ns;           /* of one token on its GPU; what any batch computes for it at least */
    double between_bytes, received_bytes;  /* by a rank for a token: from other nodes, in all */
    uint32_t batch;
    uint64_t total_bytes;
};
/* Of a plan that fits, by the clock of a device with rates; `clock` and `scratch` may be NULL. */
struct tool_best_cost tool_best_cost_of(const struct tool_memplan *memplan, const struct tool_model_config *config,
                                        const struct tool_estimate_request *clock, struct tool_scratch_memory *scratch);
/* What cannot be hidden of a token with these settings, whatever the batch, on a clock; without one 0. Its products; and in a
 * pipeline those of a stage's micro-batch for each other stage, because the first one reaches the last stage through all. */
double tool_best_least_ns(const struct tool_memplan_settings *settings, uint32_t micro_batches,
                          const struct tool_model_config *config, const struct tool_estimate_request *clock);
/* Below 0: a is better. Less time, then less to compute, less from other nodes, less received, a larger batch, less memory. */
int tool_best_compare(const struct tool_best_cost *a, const struct tool_best_cost *b);

/* The values that are tried, of what the command line does not fix. Batches are all from 1 on. */
enum { TOOL_BEST_STRATEGIES_MAX = 64, TOOL_BEST_RECOMPUTES = 6, TOOL_BEST_BATCH_MAX = 1 << 16 };
struct tool_best_kept {
    bool strategy, recompute, batch, granularity, tensor, pipeline;
    uint32_t global_batch;                     /* of a step: batches are those that divide it; 0: micro-batches count */
    const struct tool_estimate_request *clock; /* that gives times; NULL: the rule */
};
struct tool_best_space {
    struct {
        eo_strategy strategy;
        uint32_t group;
    } strategies[TOOL_BEST_STRATEGIES_MAX];
    struct {
        eo_recompute recompute;
        uint32_t blocks;
    } recomputes[TOOL_BEST_RECOMPUTES];
    uint32_t strategy_count, recompute_count, granularity_count; /* granularity n: block or half; with one, as given */
};
void tool_best_space_of(struct tool_best_space *space, const struct tool_model_config *config,
                        const struct tool_memplan_settings *settings, const struct tool_best_kept *kept);
/* Number `index` of strategy_count x recompute_count x granularity_count. */
void tool_best_set(struct tool_memplan_settings *settings, const struct tool_best_space *space, uint32_t index);

#endif
