/* SPDX-License-Identifier: MIT
 *
 * A budget of memory for a rank: among the settings that change no bit (recompute, buffers, what lies on disk) and, with leave
 * to change bits, the pieces of the head, those with the least predicted step time whose plan fits. A pure function of model,
 * settings and rates; without a rate of a disk nothing lies on one.
 */
#ifndef EO_TOOLS_PLANNING_BUDGET_H
#define EO_TOOLS_PLANNING_BUDGET_H

#include <stdio.h>

#include "tools/planning/settings.h"
#include "tools/planning/rates.h"

enum { TOOL_BUDGET_NEXT = 3 };

struct tool_budget_request {
    uint64_t bytes; /* of a rank; 0: none */
    uint64_t host_bytes; /* with GPUs: of the host, for what is offloaded and staged; `bytes` is of the device then */
    struct tool_rates rates;
    bool may_change_bits; /* pieces of the head are chosen too */
};

/* Settings, and what their plan takes. */
struct tool_budget_option {
    struct tool_plan_settings settings;
    uint64_t arena_bytes; /* with GPUs: of the device */
    uint64_t disk_bytes;
    uint64_t cache_bytes;  /* of memory beside the arena: what the page cache holds of the file on disk */
    uint64_t memory_bytes; /* arena and cache, what the budget bounds; of a draft, the least that they can be */
    uint64_t host_bytes;  /* with GPUs: disk_bytes and staging; 0 elsewhere */
    double step_s;        /* predicted */
    uint32_t layer_count; /* with an update */
    bool changes_bits;    /* the head has other pieces than without a budget */
};

struct tool_budget_choice {
    bool found;
    struct tool_budget_option chosen;
    struct tool_budget_option least;      /* the least memory of all, whatever its time */
    struct tool_budget_option everything; /* no recompute, nothing on disk */
    struct tool_budget_option next[TOOL_BUDGET_NEXT]; /* faster ones that take more memory, by memory */
    uint32_t next_count, plan_count;                  /* plans looked at */
};

/* `settings`: recompute, slots and offloading are not read. EO_ERR_INVALID: less than the least possible, which is named. */
EO_NODISCARD eo_status tool_budget_find(const struct tool_plan_settings *settings, const eo_transformer_config *config,
                                        const struct tool_budget_request *request, struct tool_budget_choice *out,
                                        struct tool_problem *problem);
/* Recompute, slots, offloading and pieces of the head, and nothing else. */
void tool_budget_take(struct tool_plan_settings *settings, const struct tool_plan_settings *chosen);

/* Of settings as they are. `draft`: quickly, by a draft of their plan. */
EO_NODISCARD eo_status tool_budget_evaluate(const struct tool_plan_settings *settings, const eo_transformer_config *config,
                                            const struct tool_rates *rates, bool draft, const eo_log *log,
                                            struct tool_budget_option *out);

/* Of settings that no plan can be made of: `status`, with the option and the reason. */
EO_NODISCARD eo_status tool_budget_no_plan(const char *option, const struct tool_plan_settings *settings,
                                           const eo_transformer_config *config, const struct tool_rates *rates,
                                           eo_status status, struct tool_problem *problem);

/* The choice in a line, and what more memory would buy; the lines begin with `indent`. */
void tool_budget_print(FILE *out, const char *indent, const struct tool_budget_choice *choice,
                       const struct tool_budget_request *request);
/* "recompute cheap, slots 1,1, 3 of 14 layers on disk by 2 buffers". */
enum { TOOL_BUDGET_TEXT_MAX = 200 };
void tool_budget_text(const struct tool_budget_option *option, char *text, size_t bytes);

#endif
