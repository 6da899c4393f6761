/* SPDX-License-Identifier: MIT
 *
 * A plan for people, and as JSON and CSV.
 */
#ifndef EO_TOOLS_MEMPLAN_REPORT_REPORT_H
#define EO_TOOLS_MEMPLAN_REPORT_REPORT_H

#include <stdio.h>

#include "tools/memplan/estimate/estimate.h"
#include "tools/memplan/systems/peers.h"
#include "tools/memplan/search/search.h"
#include "tools/memplan/search/strategies.h"
#include "tools/memplan/plan/timeline.h"
#include "tools/memplan/search/budget.h"
#include "tools/interchange/safetensors_header.h"

struct tool_memplan_view {
    const struct tool_model_config *config;
    const struct tool_memplan *memplan;
    const struct tool_memplan *shown;       /* whose step lifetimes are: memplan, or one with fewer micro-batches */
    const struct tool_lifetimes *lifetimes; /* NULL: too many operations */
    const struct tool_safetensors_check *safetensors;
    const struct tool_device_memory *device; /* NULL: a number, or none */
    const struct tool_fit *fit;              /* NULL: no search */
    const struct tool_memplan_budget *budget;  /* NULL: none */
    const struct tool_memplan_settings *asked; /* as given, or as a search has found them: nothing filled in */
    uint32_t global_batch;                     /* 0: not given */
    const char *remedies;                      /* of a search that found nothing, or a plan that does not fit: what would */
    const struct tool_time_answer *time;       /* NULL: not asked for */
    bool all_strategies, explain;
};

void tool_report_plan(FILE *out, const struct tool_memplan_view *view);
void tool_report_explain(FILE *out, const struct tool_memplan_view *view);

/* Which two rows stand beside the largest hole at the peak, a line; nothing where there is none. */
void tool_report_hole(FILE *out, const struct tool_memplan_view *view);

/* "of a step with 3 micro-batches, ...", or "" where the step itself is shown. */
void tool_shown_text(const struct tool_memplan_view *view, char *text, size_t bytes);
/* What may make the plan another one than was meant: in the report, or beside JSON and CSV. */
void tool_report_warnings(FILE *out, const struct tool_memplan_view *view);
void tool_report_csv(FILE *out, const struct tool_memplan_view *view);
void tool_report_json(FILE *out, const struct tool_memplan_view *view);

#endif
