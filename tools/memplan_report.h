/* SPDX-License-Identifier: MIT
 *
 * A plan for people, and as JSON and CSV.
 */
#ifndef EO_TOOLS_MEMPLAN_REPORT_H
#define EO_TOOLS_MEMPLAN_REPORT_H

#include <stdio.h>

#include "tools/memplan_peers.h"
#include "tools/memplan_search.h"
#include "tools/memplan_strategies.h"
#include "tools/memplan_timeline.h"
#include "tools/safetensors_header.h"

struct eo_memplan_view {
    const struct eo_model_config *config;
    const struct eo_memplan *memplan;
    const struct eo_memplan *shown;       /* whose step lifetimes are: memplan, or one with fewer micro-batches */
    const struct eo_lifetimes *lifetimes; /* NULL: too many operations */
    const struct eo_safetensors_check *safetensors;
    const struct eo_device_memory *device; /* NULL: a number, or none */
    const struct eo_fit *fit;              /* NULL: no search */
    bool all_strategies;
};

void eo_report_plan(FILE *out, const struct eo_memplan_view *view);
void eo_report_explain(FILE *out, const struct eo_memplan_view *view);

/* Which two rows stand beside the largest hole at the peak, a line; nothing where there is none. */
void eo_report_hole(FILE *out, const struct eo_memplan_view *view);

/* "of a step with 3 micro-batches, ...", or "" where the step itself is shown. */
void eo_shown_text(const struct eo_memplan_view *view, char *text, size_t bytes);
void eo_report_csv(FILE *out, const struct eo_memplan_view *view);
json_t *eo_report_json(const struct eo_memplan_view *view); /* NULL: no memory */

/* A layer of the plan as its collectives and rows show it. */
struct eo_layer_line {
    const char *name;
    uint64_t elements, padded_elements, shard_bytes, gather_bytes;
};
/* By layer; NULL: no memory. To be freed. */
struct eo_layer_line *eo_layer_lines(const struct eo_memplan *memplan, uint32_t *count);

double eo_gib(uint64_t bytes);
const char *eo_dtype_text(eo_dtype dtype);
void eo_recompute_text(const struct eo_memplan_settings *settings, char *text, size_t bytes);

#endif
