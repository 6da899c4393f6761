/* SPDX-License-Identifier: MIT
 *
 * The answer about another system: three lines, a table that adds up, and what the figure means; or JSON; or all systems beside
 * each other.
 */
#ifndef EO_TOOLS_MEMPLAN_ESTIMATE_ESTIMATE_H
#define EO_TOOLS_MEMPLAN_ESTIMATE_ESTIMATE_H

#include <stdio.h>

#include "tools/memplan/plan/plan.h"
#include "tools/memplan/time/step_time.h"

struct tool_estimate_request {
    enum tool_system system;
    struct tool_layout layout; /* its cut; ranks, batch, seq and micro-batches are those of `asked` */
    struct tool_system_run run; /* of other systems */
    uint32_t global_batch;     /* 0: micro-batches count */
    bool strategy_given;       /* else each system has its own */
    const struct tool_memplan_settings *asked;
    const struct tool_model_config *config;
    const char *device; /* NULL: none of the table */
    const struct tool_memplan *plan; /* of evenodd, whose time is asked for */
    struct tool_scratch_memory *scratch; /* of a search with that plan; NULL: none */
    bool time;          /* asked for; needs a device with rates */
    double tokens;      /* of a training; 0: not asked */
    double price;       /* of an hour of a GPU; 0: not asked */
    uint64_t network_bytes;            /* a second, of a GPU to other nodes; 0: the device\'s own */
};

/* What a step takes, and a training of so many tokens. */
struct tool_time_answer {
    struct tool_step_time step;
    double days, cost; /* 0: not asked */
    char text[640];    /* lines for people */
};

/* Of evenodd's strategies too. EO_ERR_INVALID: no rates for the device, or no such layout. */
EO_NODISCARD eo_status tool_estimate_time(struct tool_time_answer *out, const struct tool_estimate_request *request,
                                          struct tool_problem *problem);

/* Settings that a search leaves as they were given. */
struct tool_layouts_kept {
    bool tensor, pipeline, virtual_stages, batch, recompute;
};

/* The fastest layouts of the request's system that fit, by the estimated time; needs a global batch, a capacity and rates.
 * *found: any fits. */
EO_NODISCARD eo_status tool_estimate_layouts(FILE *out, const struct tool_estimate_request *request,
                                             const struct tool_layouts_kept *kept, bool *found, struct tool_problem *problem);

/* Its total on the fullest rank, with what lies outside the estimate. */
EO_NODISCARD eo_status tool_estimate_total(uint64_t *bytes, bool *fits, const struct tool_estimate_request *request,
                                           struct tool_problem *problem);

struct eo_json;
void tool_estimate_time_json(struct eo_json *json, const struct tool_time_answer *time); /* NULL: fields that are null */

/* `fits` or no capacity was asked about. EO_ERR_INVALID: the system has no such layout. */
EO_NODISCARD eo_status tool_estimate_print(FILE *out, const struct tool_estimate_request *request, bool json, bool *fits,
                                           struct tool_problem *problem);
EO_NODISCARD eo_status tool_estimate_compare(FILE *out, const struct tool_estimate_request *request,
                                             struct tool_problem *problem);

/* A rank's part of evenodd's plan in the layout; whole where it cuts nothing. */
struct tool_slice tool_estimate_slice(const struct tool_layout *layout);

/* Micro-batches of a step of so many sequences. EO_ERR_INVALID: no whole number of them. */
EO_NODISCARD eo_status tool_estimate_micro_batches(uint32_t *out, const struct tool_estimate_request *request,
                                                   struct tool_problem *problem);

#endif
