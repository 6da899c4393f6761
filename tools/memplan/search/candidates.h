/* SPDX-License-Identifier: MIT
 *
 * Candidates of a search: each is planned.
 */
#ifndef EO_TOOLS_MEMPLAN_SEARCH_CANDIDATES_H
#define EO_TOOLS_MEMPLAN_SEARCH_CANDIDATES_H

#include "tools/memplan/search/search.h"

struct tool_search {
    struct tool_fit *fit;
    struct tool_model_config *config;
    struct tool_memplan_settings *settings;
    struct tool_scratch_memory scratch;
    uint64_t begun_ns, shown_ns;
    bool no_drafts;             /* plan all in full */
    uint32_t recompute_blocks;  /* as asked for */
    double best_token_ns;       /* of the best so far; 0: there is none */
    uint32_t global_batch;      /* of a step; 0: none is asked for */
    uint32_t sequences;         /* ... of it on a data-parallel rank */
    uint32_t unit;              /* tokens; max-seq: values count in it */
    const struct tool_estimate_request *clock; /* what orders the best; NULL: the rule */
};

/* Plans with this value. What the planner refuses does not fit. */
struct tool_fit_point tool_search_try(struct tool_search *s, uint64_t value);
struct tool_fit_point tool_search_exact(struct tool_search *s, uint64_t value); /* in full */
void tool_search_settle(struct tool_search *s, struct tool_fit_point *point);   /* likewise, if it is a draft */
bool tool_search_fits(const struct tool_search *s, const struct tool_fit_point *point);
/* Than the best so far, so not worth a plan in full. Of a draft by more than 1 %: in full its time differs a little. */
bool tool_search_is_slower(const struct tool_search *s, const struct tool_fit_point *point);

/* The largest value in [least, most] that fits, where bytes grow with it; what is too small to be planned is passed over. */
void tool_search_largest(struct tool_search *s, uint64_t least, uint64_t most);

/* Takes `sequences` of the global batch; false: no whole number of them. */
bool tool_search_share(struct tool_search *s);

/* tools/memplan/search/search_best.c */
void tool_search_best(struct tool_search *s, const struct tool_best_kept *kept);

#endif
