/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "tools/memplan_report.h"
#include "tools/options.h"

enum { SCHEMA = 1 };

static json_t *bytes_of(uint64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

static json_t *settings_json(const struct eo_memplan_view *view)
{
    const struct eo_memplan_settings *s = &view->memplan->settings;
    char recompute[32];
    char strategy[32];
    eo_recompute_text(s, recompute, sizeof(recompute));
    eo_strategy_text(s->strategy, s->hsdp_group, strategy, sizeof(strategy));
    return json_pack("{s:s, s:i, s:i, s:s, s:i, s:i, s:i, s:s, s:s, s:[i, i], s:s, s:s, s:i, s:s, s:b, s:i}",
        "model", view->config->source, "world", (int)s->world, "gpus_per_node", (int)s->gpus_per_node,
        "strategy", strategy, "batch", (int)s->batch, "seq", (int)s->seq,
        "micro_batches", (int)s->micro_batches, "dtype", eo_dtype_text(s->dtype), "reduce_dtype",
        eo_dtype_text(s->reduce_dtype), "slots", (int)s->gather_slots, (int)s->gradient_slots, "recompute", recompute,
        "granularity", s->half_blocks ? "half" : "block", "head_chunks", (int)s->head_chunks, "kernels", s->kernels, "on_gpu", (int)s->on_gpu,
        "threads", (int)s->threads);
}

static json_t *rows_json(const struct eo_memplan *m)
{
    static const char *const spaces[EO_SPACE_COUNT] = {"gather", "gradient", "private", "host"};
    json_t *rows = json_array();
    for (uint32_t r = 0; rows && r < m->summary.row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(m->plan, r, &row) < 0)
            continue;
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:s}", "name", row.name, "class",
            eo_category_name(row.category), "space", spaces[row.space], "bytes", bytes_of(row.bytes), "offset",
            bytes_of(row.offset), "first", row.always_live ? "always" : row.first, "last",
            row.always_live ? "always" : row.last));
    }
    return rows;
}

static json_t *point_json(const struct eo_fit *fit, const struct eo_fit_point *point)
{
    if (!point->known)
        return json_null();
    json_t *object = json_pack("{s:o, s:o, s:o}", "value", bytes_of(point->value), "total_bytes",
        bytes_of(point->total_bytes), "left_bytes",
        json_integer((json_int_t)fit->capacity_bytes - (json_int_t)point->total_bytes));
    if (object && point->refused[0])
        json_object_set_new(object, "refused", json_string(point->refused));
    return object;
}

static json_t *fit_json(const struct eo_fit *fit)
{
    if (!fit)
        return json_null();
    return json_pack("{s:s, s:b, s:o, s:o, s:i, s:s}", "search", eo_fit_name(fit->kind), "found", (int)fit->found, "answer",
        point_json(fit, &fit->answer), "neighbour", point_json(fit, &fit->neighbour), "plans", (int)fit->plan_count,
        "note", fit->note);
}

static json_t *phases_json(const struct eo_lifetimes *t)
{
    if (!t)
        return json_null();
    json_t *phases = json_object();
    json_object_set_new(phases, "end of forward", json_pack("{s:o, s:s}", "bytes", bytes_of(t->forward_end.bytes),
                                                            "operation", t->forward_end.operation));
    for (int p = 0; p < EO_PHASE_COUNT; p++)
        json_object_set_new(phases, eo_phase_name((enum eo_phase)p), json_pack("{s:o, s:s}", "bytes",
            bytes_of(t->phases[p].bytes), "operation", t->phases[p].operation));
    return phases;
}

/* What --strategy all shows side by side. */
static json_t *strategies_json(const struct eo_memplan_view *view)
{
    struct eo_strategy_column columns[EO_STRATEGY_COLUMNS];
    const uint32_t count = eo_strategy_columns(columns, view->config, &view->memplan->settings);
    json_t *list = json_array();
    for (uint32_t c = 0; list && c < count; c++) {
        const struct eo_strategy_column *from = &columns[c];
        if (from->refused[0]) {
            json_array_append_new(list, json_pack("{s:s, s:s}", "strategy", from->name, "refused", from->refused));
            continue;
        }
        json_t *categories = json_object();
        for (int k = 0; k < EO_CATEGORY_COUNT; k++)
            json_object_set_new(categories, eo_category_name((eo_category)k), bytes_of(from->summary.category_bytes[k]));
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "strategy", from->name,
            "categories", categories, "arena_bytes", bytes_of(from->summary.arena_bytes), "lower_bound_bytes",
            bytes_of(from->summary.lower_bound_bytes), "total_bytes", bytes_of(from->total_bytes), "fits",
            (int)from->fits, "received_bytes", bytes_of(from->received_bytes), "between_nodes_bytes",
            bytes_of(from->between_bytes)));
    }
    return list;
}

json_t *eo_report_json(const struct eo_memplan_view *view)
{
    const struct eo_memplan *m = view->memplan;
    const eo_plan_summary *s = &m->summary;
    json_t *categories = json_object(), *at_peak = json_object(), *defaults = json_array(), *layers = json_array();
    for (int c = 0; c < EO_CATEGORY_COUNT; c++) {
        json_object_set_new(categories, eo_category_name((eo_category)c), bytes_of(s->category_bytes[c]));
        json_object_set_new(at_peak, eo_category_name((eo_category)c), bytes_of(s->category_bytes_at_peak[c]));
    }
    for (uint32_t i = 0; i < view->config->default_count; i++)
        json_array_append_new(defaults, json_string(view->config->defaults[i]));
    uint32_t count = 0;
    struct eo_layer_line *lines = eo_layer_lines(m, &count);
    for (uint32_t i = 0; lines && i < count; i++)
        json_array_append_new(layers, json_pack("{s:s, s:o, s:o, s:o, s:o}", "name", lines[i].name, "elements",
            bytes_of(lines[i].elements), "padded_elements", bytes_of(lines[i].padded_elements), "shard_bytes",
            bytes_of(lines[i].shard_bytes), "gather_bytes", bytes_of(lines[i].gather_bytes)));
    free(lines);
    json_t *object = json_pack("{s:i, s:o, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "schema", SCHEMA, "settings", settings_json(view), "runs", (int)m->runs, "family",
        eo_config_family_name(view->config->family), "defaulted", defaults, "parameters", bytes_of(s->element_count),
        "active_parameters", bytes_of(eo_model_config_active_parameters(view->config)), "arena_bytes",
        bytes_of(s->arena_bytes), "lower_bound_bytes", bytes_of(s->lower_bound_bytes), "host_bytes",
        bytes_of(s->space_bytes[EO_SPACE_HOST]), "outside_bytes", bytes_of(m->outside_bytes), "total_bytes",
        bytes_of(m->total_bytes), "fits", (int)m->fits, "capacity_bytes",
        m->settings.capacity_bytes ? bytes_of(m->settings.capacity_bytes) : json_null(), "categories", categories,
        "categories_at_peak", at_peak, "phases", phases_json(view->lifetimes), "layers", layers, "rows", rows_json(m),
        "fit", fit_json(view->fit));
    if (object && view->all_strategies)
        json_object_set_new(object, "strategies", strategies_json(view));
    return object;
}
