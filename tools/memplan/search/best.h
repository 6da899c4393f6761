/* SPDX-License-Identifier: MIT
 *
 * --fit best: strategy, group of hsdp, recompute, batch and granularity together. What fits is ordered by an estimated time of
 * a token: not a prediction, but a rule that weighs what is received against what is computed again. docs/memplan.md.
 */
#ifndef EO_TOOLS_MEMPLAN_SEARCH_BEST_H
#define EO_TOOLS_MEMPLAN_SEARCH_BEST_H

#include "tools/memplan/search/strategies.h"

/* What the order is made of. */
struct tool_best_cost {
    double token_ns, compute_ns;           /* max(compute, links) of one token on its GPU; compute alone */
    double between_bytes, received_bytes;  /* by a rank for a token: from other nodes, in all */
    uint32_t batch;
    uint64_t total_bytes;
};
/* Of a plan that fits. */
struct tool_best_cost tool_best_cost_of(const struct tool_memplan *memplan, const struct tool_model_config *config);
/* Below 0: a is better. Less time, then less to compute, less from other nodes, less received, a larger batch, less memory. */
int tool_best_compare(const struct tool_best_cost *a, const struct tool_best_cost *b);

/* The values that are tried, of what the command line does not fix. Batches are all from 1 on. */
enum { TOOL_BEST_STRATEGIES_MAX = 64, TOOL_BEST_RECOMPUTES = 6, TOOL_BEST_BATCH_MAX = 1 << 16 };
struct tool_best_kept {
    bool strategy, recompute, batch, granularity;
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
