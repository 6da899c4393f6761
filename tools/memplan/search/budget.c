/* SPDX-License-Identifier: MIT */
#include "tools/memplan/search/budget.h"

#include <inttypes.h>

eo_status tool_memplan_budget_choose(struct tool_memplan_budget *b, const struct tool_model_config *config,
                                     struct tool_memplan_settings *settings, struct tool_problem *problem)
{
    struct tool_memplan plan;
    eo_transformer_config shape;
    EO_TRY(tool_rates_read(b->rates_path, &b->request.rates, problem));
    EO_TRY(tool_memplan_create(&plan, config, settings, problem)); /* fills in what is open, and tells what is wrong */
    const struct tool_plan_settings asked = plan.settings.plan;
    const bool runs = plan.runs;
    tool_memplan_fini(&plan);
    if (!runs)
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED, "--budget: %s: no step of this model can be predicted: %s",
                                config->source, plan.why_not);
    tool_model_config_transformer(config, &shape);
    EO_TRY(tool_budget_find(&asked, &shape, &b->request, &b->choice, problem));
    tool_budget_take(&settings->plan, &b->choice.chosen.settings);
    return EO_OK;
}

void tool_memplan_budget_print(FILE *out, const struct tool_memplan_budget *b)
{
    char rates[TOOL_RATES_TEXT_MAX];
    tool_rates_text(&b->request.rates, b->request.host_bytes > 0, rates, sizeof(rates));
    fprintf(out, "\n");
    tool_budget_print(out, "  ", &b->choice, &b->request);
    fprintf(out, "    by the rates of a rank in %s: %s (%u plans)\n", b->rates_path, rates, b->choice.plan_count);
}

static void write_option(struct eo_json *json, const struct tool_budget_option *o)
{
    char recompute[32];
    tool_recompute_text(&o->settings, recompute, sizeof(recompute));
    eo_json_write(json,
                  "{'arena_bytes': %" PRIu64 ", 'cache_bytes': %" PRIu64 ", 'disk_bytes': %" PRIu64 ", 'predicted_step_s': %g,"
                  "'recompute': %s, 'slots': [%u, %u], 'offload_layers': %u, 'offload_slots': %u, 'offload_gradients': %i,"
                  "'late_updates': %i, 'offload_activations': %u, 'head_chunks': %u}",
                  o->arena_bytes, o->cache_bytes, o->disk_bytes, o->step_s, recompute, o->settings.gather_slots,
                  o->settings.gradient_slots, o->settings.offload_layers, o->settings.offload_slots,
                  o->settings.offload_gradients, o->settings.late_updates, o->settings.offload_activations, o->settings.head_chunks);
}

void tool_memplan_budget_json(struct eo_json *json, const struct tool_memplan_budget *b)
{
    eo_json_write(json, "'budget': {'bytes': %" PRIu64 ",", b->request.bytes);
    if (b->request.host_bytes)
        eo_json_write(json, "'host_bytes': %" PRIu64 ",", b->request.host_bytes);
    eo_json_write(json, "'rates':");
    tool_rates_write(json, &b->request.rates);
    eo_json_write(json, "'chosen':");
    write_option(json, &b->choice.chosen);
    eo_json_write(json, "'more': [");
    for (uint32_t i = 0; i < b->choice.next_count; i++)
        write_option(json, &b->choice.next[i]);
    eo_json_write(json, "], 'plans': %u}", b->choice.plan_count);
}
