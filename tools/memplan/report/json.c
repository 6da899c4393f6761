/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "tools/memplan/plan/layers.h"
#include "tools/memplan/plan/parts.h"
#include "tools/memplan/report/report.h"
#include "tools/memplan/systems/systems.h"
#include "tools/shared/json_output.h"

static void write_settings(struct eo_json *json, const struct tool_memplan_view *view)
{
    const struct tool_memplan_settings *all = &view->memplan->settings;
    const struct tool_plan_settings *s = &all->plan;
    char recompute[32], strategy[32], granularity[TOOL_GRANULARITY_TEXT_MAX];
    tool_recompute_text(s, recompute, sizeof(recompute));
    tool_strategy_text(s->strategy, s->shard_group, strategy, sizeof(strategy));
    eo_json_write(json,
                  "'settings': {'model': %s, 'world': %u, 'gpus_per_node': %u, 'strategy': %s, 'batch': %u, 'seq': %u,"
                  "'micro_batches': %u, 'dtype': %s, 'gather_dtype': %s, 'frozen_dtype': %s, 'product_dtype': %s, 'reduce_dtype': %s, 'slots': [%u, %u], 'recompute': %s,"
                  "'granularity': %s, 'head_chunks': %u, 'kernels': %s, 'on_gpu': %i, 'threads': %u",
                  view->config->source, s->ranks, all->gpus_per_node, strategy, s->batch, s->seq, s->micro_batches,
                  eo_dtype_name(s->dtype), tool_gather_text(s), tool_frozen_text(s), tool_product_text(s), eo_dtype_name(s->reduce_dtype), s->gather_slots,
                  s->gradient_slots, recompute, tool_granularity_text(s, granularity), s->head_chunks, s->device, all->on_gpu, s->threads);
    const struct tool_slice *slice = &all->slice;
    if (!tool_slice_is_whole(slice))
        eo_json_write(json,
                      "'tp': %u, 'pp': %u, 'cp': %u, 'ep': %u, 'virtual_stages': %u, 'sequence_parallel': %i, 'stage': %u,"
                      "'in_flight': %u, 'data_parallel': %u",
                      slice->tensor, slice->pipeline, slice->context, slice->expert ? slice->expert : 1,
                      tool_slice_chunks(slice), slice->sequence_parallel, slice->stage, slice->in_flight,
                      (uint32_t)(s->ranks / (tool_slice_cuts(slice) * slice->context)));
    eo_json_write(json, "}");
}

static void write_categories(struct eo_json *json, const char *name, const uint64_t bytes[EO_CATEGORY_COUNT])
{
    eo_json_write(json, "%s: {", name);
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        eo_json_write(json, "%s: %" PRIu64, eo_category_name((eo_category)c), bytes[c]);
    eo_json_write(json, "}");
}

/* They add up to total_bytes. */
static void write_parts(struct eo_json *json, const uint64_t parts[TOOL_PART_COUNT])
{
    eo_json_write(json, "'parts_at_peak': {");
    for (int p = 0; p < TOOL_PART_COUNT; p++)
        eo_json_write(json, "%s: %" PRIu64, tool_part_name((enum tool_part)p), parts[p]);
    eo_json_write(json, "}");
}

static void write_totals(struct eo_json *json, const struct tool_memplan_view *view)
{
    const struct tool_memplan *m = view->memplan;
    const eo_plan_summary *s = &m->summary;
    eo_json_write(json, "'runs': %i, 'family': %s, 'defaulted': [", m->runs, tool_config_family_name(view->config->family));
    for (uint32_t i = 0; i < view->config->default_count; i++)
        eo_json_write(json, "%s", view->config->defaults[i]);
    eo_json_write(json,
                  "], 'parameters': %" PRIu64 ", 'active_parameters': %" PRIu64 ", 'rank_parameters': %" PRIu64
                  ", 'arena_bytes': %" PRIu64 ", 'lower_bound_bytes': %" PRIu64 ", 'host_bytes': %" PRIu64
                  ", 'outside_bytes': %" PRIu64 ", 'total_bytes': %" PRIu64 ", 'fits': %i, 'headroom_bytes': %" PRIu64
                  ", 'capacity_bytes':",
                  tool_model_config_parameters(view->config), tool_model_config_active_parameters(view->config),
                  s->element_count, s->arena_bytes, s->lower_bound_bytes, s->space_bytes[EO_SPACE_HOST], m->outside_bytes,
                  m->total_bytes, m->fits, m->settings.headroom_bytes);
    if (m->settings.capacity_bytes)
        eo_json_write(json, "%" PRIu64, m->settings.capacity_bytes);
    else
        eo_json_write(json, "null");
    write_categories(json, "categories", s->category_bytes);
    write_categories(json, "categories_at_peak", s->category_bytes_at_peak);
    uint64_t parts[TOOL_PART_COUNT];
    tool_parts_of(m, parts);
    write_parts(json, parts);
    eo_json_write(
        json, "'state_bytes': %" PRIu64 ", 'activation_bytes': %" PRIu64 ", 'peak_bytes': %" PRIu64 ", 'memory_meaning': %s",
        parts[TOOL_PART_WEIGHTS] + s->category_bytes[EO_CATEGORY_GRADIENT] + parts[TOOL_PART_OPTIMIZER],
        parts[TOOL_PART_ACTIVATIONS] + parts[TOOL_PART_HEAD], m->total_bytes, tool_system_meaning(TOOL_SYSTEM_EVENODD));
}

static void write_phases(struct eo_json *json, const struct tool_lifetimes *t)
{
    if (!t) {
        eo_json_write(json, "'phases': null");
        return;
    }
    eo_json_write(json, "'phases': {'end of forward': {'bytes': %" PRIu64 ", 'operation': %s}", t->forward_end.bytes,
                  t->forward_end.operation);
    for (int p = 0; p < TOOL_PHASE_COUNT; p++)
        eo_json_write(json, "%s: {'bytes': %" PRIu64 ", 'operation': %s}", tool_phase_name((enum tool_phase)p),
                      t->phases[p].bytes, t->phases[p].operation);
    eo_json_write(json, "}");
}

static void write_layers(struct eo_json *json, const struct tool_memplan *m)
{
    uint32_t count = 0;
    struct tool_layer_line *lines = tool_layer_lines(m, &count);
    eo_json_write(json, "'layers': [");
    for (uint32_t i = 0; lines && i < count; i++)
        eo_json_write(json,
                      "{'name': %s, 'elements': %" PRIu64 ", 'padded_elements': %" PRIu64 ", 'shard_bytes': %" PRIu64
                      ", 'gather_bytes': %" PRIu64 ", 'frozen': %i}",
                      lines[i].name, lines[i].elements, lines[i].padded_elements, lines[i].shard_bytes, lines[i].gather_bytes,
                      lines[i].is_frozen);
    eo_json_write(json, "]");
    free(lines);
}

static void write_rows(struct eo_json *json, const struct tool_memplan *m)
{
    static const char *const spaces[EO_SPACE_COUNT] = {"gather", "gradient", "private", "host", "disk"};
    eo_json_write(json, "'rows': [");
    for (uint32_t r = 0; r < m->summary.row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(m->plan, r, &row) >= 0)
            eo_json_write(json,
                          "{'name': %s, 'class': %s, 'space': %s, 'bytes': %" PRIu64 ", 'offset': %" PRIu64
                          ", 'first': %s, 'last': %s}",
                          row.name, eo_category_name(row.category), spaces[row.space], row.bytes, row.offset,
                          row.always_live ? "always" : row.first, row.always_live ? "always" : row.last);
    }
    eo_json_write(json, "]");
}

static void write_point(struct eo_json *json, const struct tool_fit *fit, const struct tool_fit_point *point)
{
    if (!point->known) {
        eo_json_write(json, "null");
        return;
    }
    eo_json_write(json, "{'value': %" PRIu64 ", 'total_bytes': %" PRIu64 ", 'left_bytes': %" PRId64, point->value,
                  point->total_bytes, (int64_t)(fit->capacity_bytes - point->total_bytes));
    if (point->refused[0])
        eo_json_write(json, "'refused': %s", point->refused);
    eo_json_write(json, "}");
}

static void write_fit(struct eo_json *json, const struct tool_fit *fit)
{
    if (!fit) {
        eo_json_write(json, "'fit': null");
        return;
    }
    eo_json_write(json, "'fit': {'search': %s, 'found': %i, 'answer':", tool_fit_name(fit->kind), fit->found);
    write_point(json, fit, &fit->answer);
    eo_json_write(json, "'neighbour':");
    write_point(json, fit, &fit->neighbour);
    eo_json_write(json, "'plans': %u, 'note': %s}", fit->plan_count, fit->note);
}

/* What --strategy all shows side by side. */
static void write_strategies(struct eo_json *json, const struct tool_memplan_view *view)
{
    struct tool_strategy_column columns[TOOL_STRATEGY_COLUMNS];
    const uint32_t count = tool_strategy_columns(columns, view->config, &view->memplan->settings);
    eo_json_write(json, "'strategies': [");
    for (uint32_t c = 0; c < count; c++) {
        const struct tool_strategy_column *from = &columns[c];
        eo_json_write(json, "{'strategy': %s", from->name);
        if (from->refused[0]) {
            eo_json_write(json, "'refused': %s}", from->refused);
            continue;
        }
        write_parts(json, from->parts);
        eo_json_write(json,
                      "'arena_bytes': %" PRIu64 ", 'lower_bound_bytes': %" PRIu64 ", 'total_bytes': %" PRIu64
                      ", 'fits': %i, 'received_bytes': %" PRIu64 ", 'between_nodes_bytes': %" PRIu64 "}",
                      from->summary.arena_bytes, from->summary.lower_bound_bytes, from->total_bytes, from->fits,
                      from->received_bytes, from->between_bytes);
    }
    eo_json_write(json, "]");
}

void tool_report_json(FILE *out, const struct tool_memplan_view *view)
{
    struct eo_json json = {.write = tool_write_to_stream, .user = out, .indent = 1};
    eo_json_write(&json, "{'schema': 1");
    write_settings(&json, view);
    write_totals(&json, view);
    tool_estimate_time_json(&json, view->time);
    write_phases(&json, view->lifetimes);
    write_layers(&json, view->memplan);
    write_rows(&json, view->memplan);
    write_fit(&json, view->fit);
    if (view->budget)
        tool_memplan_budget_json(&json, view->budget);
    if (view->all_strategies)
        write_strategies(&json, view);
    eo_json_write(&json, "}");
    fputc('\n', out);
}
