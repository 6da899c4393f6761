/* SPDX-License-Identifier: MIT
 *
 * Searches on the exact planner: each candidate is planned, and the answer comes with the neighbour that fails.
 */
#ifndef EO_TOOLS_MEMPLAN_SEARCH_H
#define EO_TOOLS_MEMPLAN_SEARCH_H

#include "tools/memplan_plan.h"

enum eo_fit_kind {
    EO_FIT_NONE,
    EO_FIT_MAX_BATCH,
    EO_FIT_MAX_SEQ,
    EO_FIT_MIN_GPUS,
    EO_FIT_MIN_RECOMPUTE,
    EO_FIT_BEST_STRATEGY,
    EO_FIT_MAX_LAYERS,
};

struct eo_fit_point {
    bool known;
    uint64_t value;      /* best-strategy: the strategy, and from bit 8 on the group of hsdp */
    uint64_t total_bytes;
    char refused[512];   /* it cannot be planned at all: why */
};

struct eo_fit {
    enum eo_fit_kind kind;
    bool found;
    struct eo_fit_point answer, neighbour; /* neighbour: does not fit, or is refused */
    bool cheap_fits;                       /* min-recompute: --recompute cheap does */
    uint64_t capacity_bytes;
    uint32_t plan_count;
    char note[768];
};

/* False: no such search. */
bool eo_fit_parse(const char *text, enum eo_fit_kind *out);
const char *eo_fit_name(enum eo_fit_kind kind);

/* `settings` and `config` become the answer's, where there is one. Progress on standard error after a second. */
EO_NODISCARD eo_status eo_fit_search(struct eo_fit *fit, enum eo_fit_kind kind, struct eo_model_config *config,
                                     struct eo_memplan_settings *settings, struct eo_problem *problem);

#endif
