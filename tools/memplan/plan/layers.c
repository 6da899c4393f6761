/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MXFP8 "weights.mxfp8."

static const char *behind(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0 ? name + strlen(prefix) : NULL;
}

/* The layer's name where a row is its shard; NULL: another row. Of MXFP8 there is no other. */
static const char *shard_of(const struct tool_memplan *memplan, const eo_plan_row *row)
{
    const bool is_split = memplan->summary.params.dtype == EO_DTYPE_BF16;
    if (row->category == EO_CATEGORY_COMPUTE_SHARD && behind(row->name, MXFP8))
        return behind(row->name, MXFP8);
    return row->category == (is_split ? EO_CATEGORY_COMPUTE_SHARD : EO_CATEGORY_MASTER)
               ? behind(row->name, is_split ? "weights.high." : "weights.")
               : NULL;
}

/* Rows of shards are in the order of layers, frozen parts last. */
static uint32_t find_shards(const struct tool_memplan *memplan, struct tool_layer_line *lines)
{
    const uint32_t model_layers = eo_model_layer_count(tool_memplan_model(memplan));
    uint32_t l = 0;
    eo_shard_range range = {0};
    for (uint32_t r = 0; r < memplan->summary.row_count; r++) {
        eo_plan_row row;
        const char *name = eo_plan_get_row(memplan->plan, r, &row) < 0 ? NULL : shard_of(memplan, &row);
        if (!name || eo_plan_shard_range(memplan->plan, l, 0, &range) < 0)
            continue;
        struct tool_layer_line *line = &lines[l++];
        *line = (struct tool_layer_line){.is_part = l > model_layers, .is_frozen = true, .ranks = range.ranks,
                                         .is_mxfp8 = behind(row.name, MXFP8), .shard_bytes = row.bytes,
                                         .padded_elements = range.count * range.ranks, .gather_bytes = row.bytes * range.ranks};
        const size_t length = line->is_part ? strcspn(name, " ") : strlen(name); /* of two rows one is called "block.0 #2" */
        snprintf(line->name, sizeof(line->name), "%.*s%s", (int)length, name, line->is_part ? ", frozen" : "");
    }
    return l;
}

/* In the order of layers, too. */
static void find_float8(const struct tool_memplan *memplan, struct tool_layer_line *lines, uint32_t count)
{
    for (uint32_t r = 0, next = 0; r < memplan->summary.row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(memplan->plan, r, &row) < 0 || row.category != EO_CATEGORY_COMPUTE_SHARD)
            continue;
        const char *name = behind(row.name, "weights.float8.");
        while (name && next < count && strcmp(lines[next].name, name) != 0)
            next++;
        if (name && next < count)
            lines[next].gather_bytes = row.bytes * lines[next].ranks;
    }
}

struct tool_layer_line *tool_layer_lines(const struct tool_memplan *memplan, uint32_t *count)
{
    const eo_model *model = tool_memplan_model(memplan);
    struct tool_layer_line *lines = calloc(2 * (size_t)eo_model_layer_count(model) + 1, sizeof(*lines));
    *count = 0;
    if (!lines)
        return NULL;
    *count = find_shards(memplan, lines);
    find_float8(memplan, lines, *count);
    for (uint32_t p = 0; p < eo_model_parameter_count(model); p++) {
        eo_parameter_info info;
        eo_parameter_place place;
        if (eo_model_parameter(model, p, &info) < 0 || eo_plan_parameter_place(memplan->plan, p, &place) < 0 || place.layer >= *count)
            continue;
        struct tool_layer_line *line = &lines[place.layer];
        line->elements += info.element_count;
        line->more_elements +=
            info.padding + (info.fp32 && memplan->summary.params.dtype == EO_DTYPE_BF16 ? info.element_count : 0);
        line->is_frozen = line->is_frozen && info.frozen;
    }
    return lines;
}
