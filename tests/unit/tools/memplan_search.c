/* SPDX-License-Identifier: MIT
 *
 * Searches: their answers fit, their neighbours do not, and nothing better was left out.
 */
#include "tests/unit/tools/planned.h"

#include <string.h>

#include "tools/memplan/search/best.h"
#include "tools/memplan/search/search.h"
#include "tools/memplan/search/strategies.h"

/* Goal: an answer fits, its neighbour does not. Method: each search, then plans of both. */
Test(memplan, answers_of_searches_fit_and_their_neighbours_do_not, .timeout = 300)
{
    static const enum tool_fit_kind kinds[] = {TOOL_FIT_MAX_BATCH, TOOL_FIT_MAX_SEQ, TOOL_FIT_MIN_GPUS, TOOL_FIT_MIN_RECOMPUTE,
                                               TOOL_FIT_MAX_LAYERS};
    for (int k = 0; k < 5; k++) {
        load("gpt2");
        struct tool_memplan_settings s = settings_of(4);
        s.plan.seq = 512;
        s.plan.batch = kinds[k] == TOOL_FIT_MIN_RECOMPUTE ? 6 : 2;
        s.capacity_bytes = kinds[k] == TOOL_FIT_MAX_SEQ ? 1100000000 : 1300000000;
        struct tool_fit fit;
        cr_assert_geq(tool_fit_search(&fit, kinds[k], &config, &s, NULL, &problem), 0, "%s", problem.text);
        cr_assert(fit.found && fit.neighbour.known, "%s", tool_fit_name(kinds[k]));
        struct tool_memplan memplan = planned(&s);
        cr_assert(memplan.fits && memplan.total_bytes == fit.answer.total_bytes, "%s", tool_fit_name(kinds[k]));
        tool_memplan_fini(&memplan);
        cr_assert_gt(fit.neighbour.total_bytes, s.capacity_bytes, "%s", tool_fit_name(kinds[k]));
        if (kinds[k] != TOOL_FIT_MIN_GPUS && kinds[k] != TOOL_FIT_MIN_RECOMPUTE)
            cr_assert_eq(fit.neighbour.value, fit.answer.value + 1, "%s", tool_fit_name(kinds[k]));
    }
}

Test(memplan, the_best_strategy_receives_least_of_those_that_fit)
{
    struct tool_strategy_column columns[TOOL_STRATEGY_COLUMNS];
    load("gpt2");
    struct tool_memplan_settings s = settings_of(16);
    const uint32_t count = tool_strategy_columns(columns, &config, &s);
    cr_assert_eq(count, TOOL_STRATEGY_COLUMNS);
    tool_strategy_sort(columns, count);
    uint32_t refused = 0;
    for (uint32_t c = 0; c < count; c++) {
        struct tool_fit fit;
        struct tool_memplan_settings t = s;
        t.capacity_bytes = columns[c].total_bytes;
        cr_assert_eq(tool_fit_search(&fit, TOOL_FIT_BEST_STRATEGY, &config, &t, NULL, &problem), EO_OK);
        cr_assert(fit.found && fit.answer.total_bytes <= t.capacity_bytes);
        uint32_t first = 0;
        while (columns[first].total_bytes > t.capacity_bytes)
            first++;
        cr_assert_eq(t.plan.strategy, columns[first].strategy, "%s", columns[first].name);
        cr_assert_eq(fit.neighbour.known, first > 0);
        refused += fit.neighbour.known && fit.neighbour.total_bytes > t.capacity_bytes;
    }
    cr_assert_gt(refused, 0);
    for (uint32_t c = 0; c + 1 < count; c++)
        cr_assert_leq(columns[c].between_bytes, columns[c + 1].between_bytes);
}

/* The best plan of all: every strategy, group, recompute, batch and granularity is tried. False: none fits. */
static bool try_all(const struct tool_memplan_settings *given, const struct tool_best_kept *kept, uint32_t batch_most,
                    struct tool_best_cost *best)
{
    static const struct {
        eo_strategy strategy;
        uint32_t group;
    } strategies[] = {{EO_STRATEGY_DDP, 0},  {EO_STRATEGY_ZERO1, 0}, {EO_STRATEGY_ZERO2, 0}, {EO_STRATEGY_ZERO3, 0},
                      {EO_STRATEGY_HSDP, 2}, {EO_STRATEGY_HSDP, 4},  {EO_STRATEGY_HSDP, 8}};
    enum { STRATEGIES = sizeof(strategies) / sizeof(strategies[0]) };
    bool found = false;
    uint32_t largest = 0;
    for (uint32_t i = 0; i < 2 * STRATEGIES * (config.layer_count + 2) * batch_most; i++) {
        struct tool_memplan_settings s = *given;
        const uint32_t strategy = i % STRATEGIES, rest = i / STRATEGIES / 2;
        const uint32_t again = rest % (config.layer_count + 2), batch = 1 + rest / (config.layer_count + 2);
        struct tool_memplan memplan;
        if ((kept->batch && batch != given->plan.batch) ||
            (kept->strategy && strategies[strategy].strategy != given->plan.strategy))
            continue;
        if (!kept->batch && batch > largest + 3)
            break; /* larger ones take more */
        s.plan.strategy = strategies[strategy].strategy;
        s.plan.shard_group = strategies[strategy].group;
        s.plan.half_blocks = i / STRATEGIES % 2;
        s.plan.recompute = again == 0 ? EO_RECOMPUTE_NONE : again == 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
        s.plan.recompute_blocks = again < 2 ? 0 : again - 1;
        s.plan.batch = batch;
        s.draft = true; /* knows the least bytes */
        if (tool_memplan_create(&memplan, &config, &s, &problem) < 0)
            continue;
        const uint64_t least_bytes = memplan.summary.lower_bound_bytes + memplan.outside_bytes;
        tool_memplan_fini(&memplan);
        s.draft = false;
        if (least_bytes > tool_usable_bytes(&s) || tool_memplan_create(&memplan, &config, &s, &problem) < 0)
            continue;
        const struct tool_best_cost cost = tool_best_cost_of(&memplan, &config, kept->clock, NULL);
        if (memplan.fits && (!found || tool_best_compare(&cost, best) < 0))
            *best = cost;
        found = found || memplan.fits;
        largest = memplan.fits && batch > largest ? batch : largest;
        tool_memplan_fini(&memplan);
    }
    cr_assert(kept->batch || largest < batch_most, "a batch of %u fits: not all were tried", largest);
    return found;
}

/* Goal: --fit best finds what trying everything finds. Method: models of four blocks or fewer, so that quarters of the blocks
 * are all of them, and wide enough for bytes to count; by the rule and by the clock; against capacities from where nothing fits, with batch or strategy
 * given, too. The answers must differ, or nothing was weighed. */
Test(memplan, the_best_is_what_trying_everything_finds, .timeout = 300)
{
    static const char *const texts[] = {
        "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":1024,\"n_head\":16,\"vocab_size\":2000}",
        "{\"model_type\":\"llama\",\"num_hidden_layers\":4,\"hidden_size\":512,\"num_attention_heads\":8,"
        "\"num_key_value_heads\":8,\"intermediate_size\":1536,\"vocab_size\":4000}"};
    static const struct tool_estimate_request clock = {
        .system = TOOL_SYSTEM_EVENODD, .strategy_given = true, .device = "A100-80GB",
        .layout = {.tensor = 1, .pipeline = 1, .context = 1, .expert = 1, .virtual_stages = 1}};
    static const uint32_t percents[] = {40, 50, 60, 70, 80, 90, 100, 126}; /* of the memory without a search */
    uint32_t found = 0, not_found = 0, strategies = 0, recomputes = 0;
    for (uint32_t n = 0; n < 16; n++) {
        const struct tool_best_kept kept = {.batch = n % 6 == 4, .strategy = n % 6 == 5, .clock = n < 8 ? NULL : &clock};
        struct tool_memplan_settings s = settings_of(16);
        struct tool_best_cost best = {0}, cost;
        struct tool_fit fit;
        cr_assert_eq(tool_model_config_parse(&config, "a text", texts[n % 2], strlen(texts[n % 2]), NULL, 0, &problem), EO_OK);
        s.plan.seq = 256;
        s.plan.head_chunks = 1;
        s.plan.strategy = EO_STRATEGY_ZERO2;
        s.plan.batch = 2;
        s.plan.micro_batches = n % 4 >= 2 ? 8 : 1; /* what is reduced for each: hsdp's own strength */
        s.outside = (struct tool_outside){.given = true};
        struct tool_memplan memplan = planned(&s);
        s.capacity_bytes = memplan.total_bytes * percents[n % 8] / 100;
        s.headroom_bytes = n % 3 ? 0 : s.capacity_bytes / 20;
        tool_memplan_fini(&memplan);
        const bool fits = try_all(&s, &kept, 20, &best);
        cr_assert_eq(tool_fit_search(&fit, TOOL_FIT_BEST, &config, &s, &kept, &problem), EO_OK);
        cr_assert_eq(fit.found, fits, "capacity %u", n);
        *(fits ? &found : &not_found) += 1;
        if (!fits)
            continue;
        memplan = planned(&s);
        cost = tool_best_cost_of(&memplan, &config, kept.clock, NULL);
        cr_assert(memplan.fits && tool_best_compare(&cost, &best) == 0,
                  "capacity %u: %s takes %g ns a token in batches of %u, the best %g in batches of %u", n, fit.note,
                  cost.token_ns, cost.batch, best.token_ns, best.batch);
        strategies |= 1u << s.plan.strategy;
        recomputes |= 1u << s.plan.recompute;
        tool_memplan_fini(&memplan);
    }
    cr_assert(found >= 4 && not_found > 0, "%u found, %u not", found, not_found);
    cr_assert(strategies & 1u << EO_STRATEGY_HSDP && (strategies & (strategies - 1)) && (recomputes & (recomputes - 1)),
              "one kind of answers: strategies %x, recomputes %x", strategies, recomputes);
}

/* Goal: a search leaves out no plan by a bound that is none. Method: on one GPU, where nothing is sent, a plan of each kind
 * takes at least its bound on the clock; adapters, too, whose frozen weights have no gradients; and stages of a pipeline on a
 * GPU each, for a few micro-batches and many. */
Test(memplan, no_plan_is_faster_than_its_bound)
{
    static const struct tool_estimate_request clock = {
        .system = TOOL_SYSTEM_EVENODD,
        .strategy_given = true,
        .device = "H200",
        .layout = {.tensor = 1, .pipeline = 1, .context = 1, .expert = 1, .virtual_stages = 1}};
    load("llama-3-70b");
    for (uint32_t n = 0; n < 18; n++) {
        struct tool_estimate_request request = clock;
        struct tool_memplan_settings s = settings_of(n < 6 ? 1 : 4);
        if (n >= 6) {
            s.slice = (struct tool_slice){.tensor = 1, .pipeline = 4, .context = 1, .stage = TOOL_SLICE_FULLEST};
            s.plan.micro_batches = n < 12 ? 3 : 24;
        }
        s.plan.device = "cuda";
        s.plan.seq = 2048;
        s.plan.recompute = n / 2 % 3 == 0 ? EO_RECOMPUTE_NONE : EO_RECOMPUTE_BLOCKS;
        s.plan.recompute_blocks = n / 2 % 3 == 1 ? 40 : 80;
        s.plan.lora.rank = request.run.lora_rank = n % 2 ? 16 : 0;
        struct tool_memplan memplan = planned(&s);
        const struct tool_best_cost cost = tool_best_cost_of(&memplan, &config, &request, NULL);
        const double least = tool_best_least_ns(&s, s.plan.micro_batches, &config, &request);
        cr_assert(least > 0.5 * cost.token_ns && least <= cost.token_ns, "case %u: %g ns of %g", n, least, cost.token_ns);
        tool_memplan_fini(&memplan);
    }
}

/* Goal: what Muon sends counts. Method: beside AdamW's it is a gather of each matrix and a scatter of the results. */
Test(memplan, matrices_of_muon_are_received)
{
    load("llama-3.2-1b");
    struct tool_memplan_settings s = settings_of(16);
    struct tool_memplan memplan = planned(&s);
    const struct tool_traffic plain = tool_traffic_of(&memplan);
    tool_memplan_fini(&memplan);
    s.plan.optimizer = EO_OPTIMIZER_MUON;
    memplan = planned(&s);
    const struct tool_traffic muon = tool_traffic_of(&memplan);
    tool_memplan_fini(&memplan);
    cr_assert(muon.received_bytes > plain.received_bytes && muon.between_bytes > plain.between_bytes &&
                  muon.collectives == plain.collectives + 2 * config.layer_count,
              "%u collectives, %u of AdamW", muon.collectives, plain.collectives);
}
