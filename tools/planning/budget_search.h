/* SPDX-License-Identifier: MIT
 *
 * The search behind tool_budget_find. Settings are tried as drafts of their plans, which know the step time and the least
 * bytes:
 *
 *     budget_seeds.c         settings from all over: each level of recompute, each few layers on disk ...
 *     budget_neighbours.c    what is a step away
 *     budget_search.c        from the fastest that may fit, step by step to a faster neighbour, until none is left; what is
 *                            chosen is planned in full, and fits by its true bytes
 */
#ifndef EO_TOOLS_PLANNING_BUDGET_SEARCH_H
#define EO_TOOLS_PLANNING_BUDGET_SEARCH_H

#include "tools/planning/budget.h"

enum { TOOL_BUDGET_FEW_LAYERS = 10, TOOL_BUDGET_MANY_LAYERS = 40 /* and each plan takes its time */ };

struct tool_budget_tried {
    struct tool_budget_option option;
    uint64_t hash;    /* of its settings, to find it by */
    bool is_planned;  /* in full; else a draft */
    bool is_expanded; /* its neighbours were tried */
};

struct tool_budget_search {
    const eo_transformer_config *config;
    const struct tool_budget_request *request;
    uint32_t head_chunks; /* without a budget */
    bool offloads_layers; /* not possible with Muon */
    struct tool_budget_tried **tried;
    const struct tool_budget_option *last; /* that was tried */
    double best_s;                         /* of all that may fit; INFINITY: none does */
    uint32_t count, capacity;
    uint32_t layer_count; /* layers with an update */
    uint32_t layers_most; /* of these, what the host has room for */
    bool is_careful;                       /* of drafts the bytes as placed count, not the least possible */
};

/* Tries settings, unless they were before; s->last is what came of them. */
EO_NODISCARD eo_status tool_budget_try(struct tool_budget_search *s, const struct tool_plan_settings *settings);
/* The least number of *field, of at most `most`, that fits: more of it takes less memory and more time, so the search ends
 * where nothing that is left can be the fastest. `none`: with none of it. */
EO_NODISCARD eo_status tool_budget_narrow(struct tool_budget_search *s, const struct tool_plan_settings *settings,
                                          uint32_t *field, uint32_t most, const struct tool_budget_option *none);
/* What is one step away; of many layers also what is one and then the last that fits of another. */
EO_NODISCARD eo_status tool_budget_try_neighbours(struct tool_budget_search *s, const struct tool_plan_settings *settings);
/* Everything in memory comes first. */
EO_NODISCARD eo_status tool_budget_try_seeds(struct tool_budget_search *s, const struct tool_plan_settings *settings);
EO_NODISCARD eo_status tool_budget_search(struct tool_budget_search *s, const struct tool_plan_settings *settings,
                                          struct tool_budget_choice *out);
void tool_budget_search_fini(struct tool_budget_search *s);

/* A draft may turn out to have more; in a careful search that is rare. */
bool tool_budget_fits(const struct tool_budget_search *s, const struct tool_budget_option *o);
/* What settings allow. */
bool tool_budget_may_offload_gradients(const struct tool_plan_settings *settings);
bool tool_budget_may_update_late(const struct tool_plan_settings *settings);
bool tool_budget_has_disk(const struct tool_budget_search *s);
/* Recompute by one number: none, cheap, one block, two ... */
void tool_budget_set_level(struct tool_plan_settings *settings, uint32_t level);
uint32_t tool_budget_level_of(const struct tool_plan_settings *p);
void tool_budget_offload_nothing(struct tool_plan_settings *settings);

#endif
