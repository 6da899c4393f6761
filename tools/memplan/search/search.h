/* SPDX-License-Identifier: MIT
 *
 * Searches on the exact planner: each candidate is planned, and the answer comes with the neighbour that fails. A draft decides
 * most candidates: if its least possible bytes are too many, the plan does not fit; if it fits, the plan fits. The others, the
 * answer and its neighbour are planned in full; a draft may fit where its plan does not, so the answer is looked at again.
 */
#ifndef EO_TOOLS_MEMPLAN_SEARCH_SEARCH_H
#define EO_TOOLS_MEMPLAN_SEARCH_SEARCH_H

#include "tools/memplan/search/best.h"

enum tool_fit_kind {
    TOOL_FIT_NONE,
    TOOL_FIT_MAX_BATCH,
    TOOL_FIT_MAX_SEQ,
    TOOL_FIT_MIN_GPUS,
    TOOL_FIT_MIN_RECOMPUTE,
    TOOL_FIT_BEST_STRATEGY,
    TOOL_FIT_MAX_LAYERS,
    TOOL_FIT_BEST,
    TOOL_FIT_BEST_LAYOUT, /* and cuts over groups of a trainer */
};

struct tool_fit_point {
    bool known;
    uint64_t value; /* best-strategy: the strategy, and from bit 8 on the group of hsdp; best: the batch */
    uint64_t total_bytes, lower_bound_bytes; /* with what lies outside */
    bool is_draft;       /* its bytes may be a few percent more than those of the plan in full */
    char refused[512];   /* it cannot be planned at all: why */
    struct tool_best_cost cost; /* where the best is searched, and this fits or there is no clock */
};

struct tool_fit {
    enum tool_fit_kind kind;
    bool found;
    struct tool_fit_point answer, neighbour; /* neighbour: does not fit, or is refused */
    bool has_cheap, cheap_fits;            /* min-recompute: --recompute cheap saves something; it does */
    uint64_t capacity_bytes;               /* less the headroom */
    uint32_t plan_count;
    struct tool_memplan_settings settings; /* best: those of the answer, or of the neighbour where nothing fits */
    bool by_clock;                         /* ... by estimated times, else by a rule */
    char note[768];
};

enum { TOOL_MICRO_BATCHES_MOST = 4096 }; /* of a plan */

/* False: no such search. */
bool tool_fit_parse(const char *text, enum tool_fit_kind *out);
const char *tool_fit_name(enum tool_fit_kind kind);

/* The fewest ranks that are whole nodes, and whole groups of hsdp. */
uint64_t tool_fit_world_unit(const struct tool_memplan_settings *settings);

/* `settings` and `config` become the answer's, where there is one. Progress on standard error after a second. */
EO_NODISCARD eo_status tool_fit_search(struct tool_fit *fit, enum tool_fit_kind kind, struct tool_model_config *config,
                                       struct tool_memplan_settings *settings, const struct tool_best_kept *kept,
                                       struct tool_problem *problem);

#endif
