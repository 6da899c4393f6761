/* SPDX-License-Identifier: MIT */
#include "tools/planning/bucketing.h"

#include <math.h>

/* What a prediction may be wrong by, and still be worth a larger arena. */
static const double worth = 0.99;

static const uint32_t runs[] = {1, 2, 3, 4, 6, 8, 12, 16};
enum { RUNS = sizeof(runs) / sizeof(runs[0]) };

struct tried {
    struct tool_plan_settings settings;
    const eo_transformer_config *config;
    const struct tool_rates *rates;
    uint64_t most_bytes;
    struct tool_budget_option best;
};

/* Runs that a plan refuses are none. */
static void try_run(struct tried *t, uint32_t *field, uint32_t run)
{
    const eo_log silence = {0};
    const uint32_t before = *field;
    struct tool_budget_option option;
    *field = run;
    const bool is_there = tool_budget_evaluate(&t->settings, t->config, t->rates, false, &silence, &option) >= 0;
    if (is_there && (t->most_bytes == 0 || option.memory_bytes <= t->most_bytes) && option.step_s < worth * t->best.step_s)
        t->best = option;
    *field = before;
}

eo_status tool_bucketing_choose(struct tool_plan_settings *settings, const eo_transformer_config *config,
                                const struct tool_rates *rates, uint64_t most_bytes, struct tool_bucketing_choice *out,
                                struct tool_problem *problem)
{
    const eo_log silence = {0};
    struct tried t = {.settings = *settings, .config = config, .rates = rates, .most_bytes = most_bytes};
    const uint32_t positions = config->layer_count * (settings->half_blocks ? 2 : 1);
    t.settings.gather_run = t.settings.gradient_run = 1;
    const eo_status status = tool_budget_evaluate(&t.settings, config, rates, false, &silence, &t.best);
    if (status < 0)
        return tool_budget_no_plan("--bucketing auto", &t.settings, config, rates, status, problem);
    out->alone = t.best;
    for (int round = 0; round < 2; round++) { /* one may be worth it with the other only */
        for (size_t r = 0; r < RUNS && runs[r] <= positions; r++)
            try_run(&t, &t.settings.gather_run, runs[r]);
        t.settings = t.best.settings;
        for (size_t r = 0; r < RUNS && runs[r] <= positions; r++)
            try_run(&t, &t.settings.gradient_run, runs[r]);
        t.settings = t.best.settings;
    }
    out->chosen = t.best;
    settings->gather_run = t.best.settings.gather_run;
    settings->gradient_run = t.best.settings.gradient_run;
    return EO_OK;
}

void tool_bucketing_print(FILE *out, const struct tool_bucketing_choice *choice)
{
    const struct tool_plan_settings *s = &choice->chosen.settings;
    const char *unit = s->half_blocks ? "half block" : s->unit_blocks > 1 || s->unit_bytes ? "unit" : "block";
    const double more_mib = ((double)choice->chosen.arena_bytes - (double)choice->alone.arena_bytes) / (1 << 20);
    if (s->gather_run == 1 && s->gradient_run == 1)
        fprintf(out, "bucketing: one by one: %.3f s a step predicted\n", choice->alone.step_s);
    else
        fprintf(out,
                "bucketing: %u %s%s in a gather, %u in a reduction: %.3f s a step predicted, %.3f s one by one; %.1f MiB %s\n",
                s->gather_run, unit, tool_plural(s->gather_run), s->gradient_run, choice->chosen.step_s,
                choice->alone.step_s, fabs(more_mib), more_mib < 0 ? "less" : "more");
}
