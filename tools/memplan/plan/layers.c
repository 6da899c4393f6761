/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/layers.h"

#include <stdlib.h>
#include <string.h>

struct tool_layer_line *tool_layer_lines(const struct tool_memplan *memplan, uint32_t *count)
{
    const eo_model *model = tool_memplan_model(memplan);
    const bool split = memplan->summary.params.dtype == EO_DTYPE_BF16;
    const char *prefix = split ? "weights.high." : "weights.";
    const uint64_t element_bytes = split ? 2 : 4;
    *count = eo_model_layer_count(model);
    struct tool_layer_line *lines = calloc(*count + 1, sizeof(*lines));
    uint32_t l = 0;
    for (uint32_t r = 0; lines && r < memplan->summary.row_count && l < *count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(memplan->plan, r, &row) < 0 || strncmp(row.name, prefix, strlen(prefix)) != 0 ||
            (row.category != EO_CATEGORY_COMPUTE_SHARD && row.category != EO_CATEGORY_MASTER))
            continue;
        const uint64_t shard = row.bytes / element_bytes;
        eo_shard_range range = {0};
        if (eo_plan_shard_range(memplan->plan, l, 0, &range) < 0)
            continue;
        lines[l++] = (struct tool_layer_line){.name = row.name + strlen(prefix),
                                              .shard_bytes = row.bytes,
                                              .padded_elements = shard * range.ranks,
                                              .ranks = range.ranks,
                                              .gather_bytes = row.bytes * range.ranks};
    }
    for (uint32_t r = 0, next = 0; lines && r < memplan->summary.row_count; r++) { /* in the order of layers, too */
        eo_plan_row row;
        static const char narrow[] = "weights.float8.";
        if (eo_plan_get_row(memplan->plan, r, &row) < 0 || row.category != EO_CATEGORY_COMPUTE_SHARD ||
            strncmp(row.name, narrow, strlen(narrow)) != 0)
            continue;
        while (next < l && strcmp(lines[next].name, row.name + strlen(narrow)) != 0)
            next++;
        if (next < l)
            lines[next].gather_bytes = row.bytes * lines[next].ranks;
    }
    for (uint32_t p = 0; lines && p < eo_model_parameter_count(model); p++) {
        eo_parameter_info info;
        if (eo_model_parameter(model, p, &info) >= 0 && info.layer < *count)
            lines[info.layer].elements += info.element_count, lines[info.layer].word_padding += info.padding;
    }
    return lines;
}
