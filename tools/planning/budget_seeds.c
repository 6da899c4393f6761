/* SPDX-License-Identifier: MIT */
#include "tools/planning/budget_search.h"

#include <math.h>

static eo_status try_early_and_late(struct tool_budget_search *s, struct tool_plan_settings settings)
{
    settings.late_updates = false;
    EO_TRY(tool_budget_try(s, &settings));
    settings.late_updates = tool_budget_may_update_late(&settings);
    return settings.late_updates ? tool_budget_try(s, &settings) : EO_OK;
}

/* Each number of a few layers on disk, by one, two or four buffers; with gradients by one or two. */
static eo_status try_offloading(struct tool_budget_search *s, struct tool_plan_settings settings)
{
    const uint32_t most = s->offloads_layers ? s->layer_count : 0;
    for (uint32_t layers = 1; layers <= most; layers++)
        for (uint32_t slots = 1; slots <= 4 && slots <= layers; slots *= 2) {
            settings.offload_layers = layers;
            settings.offload_slots = slots;
            settings.offload_gradients = false;
            EO_TRY(try_early_and_late(s, settings));
            settings.offload_gradients = tool_budget_may_offload_gradients(&settings) && slots <= 2 && layers > slots;
            if (settings.offload_gradients)
                EO_TRY(try_early_and_late(s, settings));
        }
    return EO_OK;
}

static eo_status try_few(struct tool_budget_search *s, struct tool_plan_settings settings)
{
    for (uint32_t level = 0; level < s->config->layer_count + 2; level++) {
        tool_budget_set_level(&settings, level);
        tool_budget_offload_nothing(&settings);
        EO_TRY(tool_budget_try(s, &settings));
        EO_TRY(try_offloading(s, settings));
    }
    return EO_OK;
}

/* Between two numbers, of which `high` fits: where a line through their bytes meets the budget; every third time the middle. */
static uint32_t next_probe(const struct tool_budget_search *s, uint32_t low, uint64_t low_bytes, uint32_t high, uint64_t high_bytes,
                           uint32_t probe)
{
    const uint32_t middle = low + (high - low) / 2;
    if (probe % 3 == 2 || low_bytes <= high_bytes)
        return middle;
    if (low_bytes <= s->request->bytes)
        return low + 1;
    const double share = (double)(low_bytes - s->request->bytes) / (double)(low_bytes - high_bytes);
    const uint32_t at = low + (uint32_t)ceil(share * (high - low));
    return at <= low ? low + 1 : at >= high ? high - 1 : at;
}

eo_status tool_budget_narrow(struct tool_budget_search *s, const struct tool_plan_settings *settings, uint32_t *field,
                             uint32_t most, const struct tool_budget_option *none)
{
    const struct tool_budget_option *low = none;
    *field = most;
    EO_TRY(tool_budget_try(s, settings));
    const struct tool_budget_option *high = s->last;
    if (high->memory_bytes > s->request->bytes)
        return EO_OK;
    for (uint32_t from = 0, to = most, probe = 0; to - from > 1 && low->step_s < s->best_s; probe++) {
        *field = next_probe(s, from, low->memory_bytes, to, high->memory_bytes, probe);
        EO_TRY(tool_budget_try(s, settings));
        const bool is_enough = s->last->memory_bytes <= s->request->bytes;
        *(is_enough ? &to : &from) = *field;
        *(is_enough ? &high : &low) = s->last;
    }
    return EO_OK;
}

/* Layers whose state the host has room for, if it lies there in equal parts, which the check of each plan makes good. */
static eo_status find_most_layers(struct tool_budget_search *s, struct tool_plan_settings settings, uint32_t *most)
{
    *most = s->layer_count;
    if (s->request->host_bytes == 0 || !s->offloads_layers)
        return EO_OK;
    settings.offload_layers = s->layer_count;
    settings.offload_slots = 1;
    EO_TRY(tool_budget_try(s, &settings));
    const uint64_t all_bytes = s->last->host_bytes;
    if (all_bytes > s->request->host_bytes)
        *most = (uint32_t)((double)s->layer_count * (double)s->request->host_bytes / (double)all_bytes);
    return EO_OK;
}

/* Of many layers: for no, all and all but one layers on disk the least recompute that fits, and for some settings of recompute
 * the least number of layers on disk. The one is the embedding, the first to be updated. One buffer takes the least memory. */
static eo_status try_many(struct tool_budget_search *s, struct tool_plan_settings settings)
{
    const uint32_t blocks = s->config->layer_count;
    const struct tool_budget_option *none = NULL;
    uint32_t all;
    EO_TRY(find_most_layers(s, settings, &all));
    s->layers_most = all;
    const bool late = tool_budget_may_update_late(&settings);
    const struct {
        uint32_t layers, slots;
        bool gradients, late;
    } disk[] = {{0, 0, false, false},     {all - 1, 2, false, false}, {all - 1, 2, false, true}, {all - 1, 2, true, true},
                {all - 1, 1, true, true}, {all, 2, false, false},     {all, 2, false, true},     {all, 2, true, true},
                {all, 1, false, false},   {all, 1, false, true},      {all, 1, true, false},     {all, 1, true, true}};
    const uint32_t levels[] = {0, 1, 1 + blocks / 2, 1 + blocks};
    for (size_t d = 0; d < (s->offloads_layers && all > 1 ? sizeof(disk) / sizeof(disk[0]) : 1); d++) { /* the first is none */
        settings.offload_layers = disk[d].layers;
        settings.offload_slots = disk[d].slots;
        settings.offload_gradients = disk[d].gradients && tool_budget_may_offload_gradients(&settings);
        settings.late_updates = disk[d].late && late;
        if (disk[d].late && !late && !settings.offload_gradients)
            continue; /* stood before */
        for (uint32_t level = 0; level < 2; level++) {
            tool_budget_set_level(&settings, level);
            EO_TRY(tool_budget_try(s, &settings));
            none = level == 0 ? s->last : none;
        }
        tool_budget_set_level(&settings, 2);
        EO_TRY(tool_budget_narrow(s, &settings, &settings.recompute_blocks, blocks, none));
    }
    for (size_t l = 0; s->offloads_layers && all > 1 && l < sizeof(levels) / sizeof(levels[0]); l++) {
        tool_budget_set_level(&settings, levels[l]);
        tool_budget_offload_nothing(&settings);
        EO_TRY(tool_budget_try(s, &settings));
        none = s->last;
        settings.offload_slots = 4;
        EO_TRY(tool_budget_narrow(s, &settings, &settings.offload_layers, all, none));
        settings.late_updates = late;
        if (late)
            EO_TRY(tool_budget_narrow(s, &settings, &settings.offload_layers, all, none));
    }
    return EO_OK;
}

/* What all blocks save, or half of them, beside all state or none; where it is computed again there is less to move. Of many
 * layers each plan takes its time, and that is tried where most lies on disk. */
static eo_status try_activations(struct tool_budget_search *s, struct tool_plan_settings settings)
{
    const uint32_t blocks[] = {s->config->layer_count / 2, UINT32_MAX};
    const uint32_t choices = !tool_budget_has_disk(s) ? 0 : s->offloads_layers ? 8 : 4;
    for (uint32_t choice = 0; choice < choices; choice++) {
        if (s->layer_count > TOOL_BUDGET_FEW_LAYERS && (choice & 1) && choice != 7)
            continue;
        tool_budget_set_level(&settings, choice & 1);
        settings.offload_activations = blocks[choice >> 1 & 1];
        settings.offload_layers = choice & 4 ? s->layer_count : 0;
        settings.offload_slots = choice & 4 && s->layer_count ? settings.gather_slots : 0;
        EO_TRY(settings.offload_layers ? try_early_and_late(s, settings) : tool_budget_try(s, &settings));
    }
    return EO_OK;
}

static eo_status try_all(struct tool_budget_search *s, struct tool_plan_settings settings)
{
    for (uint32_t slots = 2; slots >= 1; slots--) {
        settings.gather_slots = settings.gradient_slots = slots;
        tool_budget_offload_nothing(&settings);
        if (slots == 2) { /* everything in memory, and the number of layers */
            tool_budget_set_level(&settings, 0);
            EO_TRY(tool_budget_try(s, &settings));
        }
        EO_TRY(s->layer_count <= TOOL_BUDGET_FEW_LAYERS ? try_few(s, settings) : try_many(s, settings));
        EO_TRY(try_activations(s, settings));
    }
    return EO_OK;
}

/* The head in one piece, and in up to eight times as many. */
static eo_status try_pieces(struct tool_budget_search *s, struct tool_plan_settings settings)
{
    enum { MORE = 8 };
    const uint64_t tokens = (uint64_t)settings.batch * settings.seq, most = (uint64_t)MORE * s->head_chunks;
    for (uint64_t pieces = 2 * (uint64_t)s->head_chunks; pieces <= most && pieces <= tokens; pieces *= 2) {
        settings.head_chunks = (uint32_t)pieces;
        EO_TRY(try_all(s, settings));
    }
    settings.head_chunks = 1;
    return s->head_chunks > 1 ? try_all(s, settings) : EO_OK;
}

eo_status tool_budget_try_seeds(struct tool_budget_search *s, const struct tool_plan_settings *settings)
{
    EO_TRY(try_all(s, *settings));
    return s->request->may_change_bits ? try_pieces(s, *settings) : EO_OK;
}
