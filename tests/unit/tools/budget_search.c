/* SPDX-License-Identifier: MIT
 *
 * The search for a budget's plan, of small models. Goal: what it chooses is at most 1.03 x slower, by the same prediction, than
 * the best of all combinations within the budget, and never slower than with a smaller budget; its bytes are those of the plan.
 * Method: models of 4 to 6 blocks and rates, drawn by seed; of each all combinations of recompute, layers and activations on
 * disk, buffers, gradients and late updates are planned, here in plain loops, and budgets from the least to the most are asked
 * for. EO_BUDGET_SEEDS: their number [2; with EO_TEST_FULL 30]; EO_BUDGET_SEED: the first. Of gpt2, whose combinations are too
 * many, 30 budgets: each choice is held to the best that any of them named.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/tools/chance.h"
#include "tools/planning/budget.h"

enum { SEEDS = 2, SEEDS_FULL = 30, BUDGETS = 8, OPTIONS_MAX = 1 << 16 };

static const double ratio_max = 1.03;

static struct tool_budget_option *all;
static bool is_planned[OPTIONS_MAX]; /* in full: others are drafts */
static uint32_t all_count;

struct subject {
    eo_transformer_config config;
    struct tool_plan_settings settings;
    struct tool_rates rates;
};

/* Between two powers of ten. */
static double draw_rate(uint64_t *state, double low, double high)
{
    return pow(10, low + (high - low) * (double)(next_random(state) % 1000) / 1000);
}

static struct subject draw(uint64_t seed)
{
    static const uint32_t widths[] = {64, 96, 192, 384};
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < 8; i++)
        (void)next_random(&state);
    const bool is_llama = next_random(&state) % 2;
    const uint32_t width = widths[next_random(&state) % 4];
    struct subject s = {
        .config = {.family = is_llama ? EO_FAMILY_LLAMA : EO_FAMILY_GPT2, .layer_count = 4 + (uint32_t)(seed % 3), .width = width,
                   .head_count = 4, .kv_head_count = is_llama ? 2 : 4, .head_size = width / 4, .mlp_width = 4 * width,
                   .vocabulary = 256 << next_random(&state) % 4, .context = 128, .tied_head = next_random(&state) % 2,
                   .norm_eps = 1e-5f, .rope_theta = 10000},
        .settings = {.ranks = 1 + (uint32_t)(next_random(&state) % 3), .strategy = EO_STRATEGY_ZERO3,
                     .batch = 1 + (uint32_t)(next_random(&state) % 4), .seq = 128,
                     .micro_batches = 1 + (uint32_t)(next_random(&state) % 4 == 0),
                     .dtype = next_random(&state) % 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32, .gather_slots = 2, .gradient_slots = 2,
                     .head_chunks = 1 + (uint32_t)(next_random(&state) % 2), .device = "cpu", .threads = 1},
        .rates = {.products_flops_per_s = draw_rate(&state, 9, 12.5), .memory_bytes_per_s = draw_rate(&state, 9, 11.5),
                  .disk_bytes_per_s = draw_rate(&state, 8, 10), .link_bytes_per_s = draw_rate(&state, 8, 11)}};
    return s;
}

static void evaluate(const struct subject *s, bool draft, struct tool_budget_option *o)
{
    const eo_log silence = {0};
    const struct tool_plan_settings settings = o->settings;
    cr_assert_geq(tool_budget_evaluate(&settings, &s->config, &s->rates, draft, &silence, o), 0);
}

static void keep(const struct subject *s, const struct tool_plan_settings *settings)
{
    cr_assert_lt(all_count, OPTIONS_MAX);
    all[all_count].settings = *settings;
    is_planned[all_count] = false;
    evaluate(s, true, &all[all_count++]);
}

static void keep_with_disk(const struct subject *s, struct tool_plan_settings settings)
{
    const uint32_t most = all[0].layer_count;
    keep(s, &settings);
    for (settings.offload_layers = 1; settings.offload_layers <= most; settings.offload_layers++)
        for (settings.offload_slots = 1; settings.offload_slots <= 4 && settings.offload_slots <= settings.offload_layers;
             settings.offload_slots++)
            for (int bits = 0; bits < 4; bits++) {
                settings.offload_gradients = bits & 1;
                settings.late_updates = bits & 2;
                if (!settings.offload_gradients || (settings.micro_batches == 1 && settings.offload_layers > settings.offload_slots))
                    keep(s, &settings);
            }
}

static void keep_all(const struct subject *s)
{
    const uint32_t blocks = s->config.layer_count;
    struct tool_plan_settings settings = s->settings;
    all_count = 0;
    for (settings.gather_slots = 2; settings.gather_slots > 0; settings.gather_slots--)
        for (settings.gradient_slots = 2; settings.gradient_slots > 0; settings.gradient_slots--)
            for (uint32_t level = 0; level < blocks + 2; level++)
                for (settings.offload_activations = 0; settings.offload_activations <= blocks; settings.offload_activations++) {
                    settings.recompute = level == 0 ? EO_RECOMPUTE_NONE : level == 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
                    settings.recompute_blocks = level < 2 ? 0 : level - 1;
                    keep_with_disk(s, settings);
                }
}

/* By true bytes: a draft has at least as many as it says. */
static const struct tool_budget_option *best_within(const struct subject *s, uint64_t bytes)
{
    for (;;) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < all_count; i++)
            if (all[i].memory_bytes <= bytes && (best == UINT32_MAX || all[i].step_s < all[best].step_s))
                best = i;
        if (best == UINT32_MAX || is_planned[best])
            return best == UINT32_MAX ? NULL : &all[best];
        const struct tool_budget_option draft = all[best];
        evaluate(s, false, &all[best]);
        cr_assert_geq(all[best].memory_bytes, draft.memory_bytes);
        cr_assert_eq(all[best].step_s, draft.step_s);
        cr_assert_eq(all[best].disk_bytes, draft.disk_bytes);
        is_planned[best] = true;
    }
}

/* The chosen one's time over the best; `before_s`: of the budget before, at first INFINITY. */
static double check_budget(const struct subject *s, uint64_t seed, uint64_t bytes, double *before_s)
{
    struct tool_budget_choice choice;
    struct tool_problem problem;
    const struct tool_budget_request request = {.bytes = bytes, .rates = s->rates};
    const struct tool_budget_option *best = best_within(s, bytes);
    const eo_status status = tool_budget_find(&s->settings, &s->config, &request, &choice, &problem);
    cr_assert_eq(status >= 0, best != NULL, "seed %llu, %llu bytes: %s", (unsigned long long)seed, (unsigned long long)bytes,
                 status >= 0 ? "found, and nothing of all fits" : problem.text);
    if (!best)
        return 1;
    char chosen_text[160], best_text[160];
    tool_budget_text(&choice.chosen, chosen_text, sizeof(chosen_text));
    tool_budget_text(best, best_text, sizeof(best_text));
    cr_assert_leq(choice.chosen.memory_bytes, bytes);
    cr_expect_leq(choice.chosen.step_s, ratio_max * best->step_s, "seed %llu, %llu bytes: %g s by %s; %g s by %s",
                  (unsigned long long)seed, (unsigned long long)bytes, choice.chosen.step_s, chosen_text, best->step_s, best_text);
    cr_expect_leq(choice.chosen.step_s, *before_s, "seed %llu, %llu bytes: %g s by %s, slower than with less", (unsigned long long)seed,
                  (unsigned long long)bytes, choice.chosen.step_s, chosen_text);
    *before_s = choice.chosen.step_s;
    return choice.chosen.step_s / best->step_s;
}

Test(budget_search, is_as_good_as_all_combinations, .timeout = 1800)
{
    const char *asked = getenv("EO_BUDGET_SEEDS");
    const uint64_t seeds = asked ? strtoull(asked, NULL, 10) : getenv("EO_TEST_FULL") ? SEEDS_FULL : SEEDS;
    double worst = 1;
    all = calloc(OPTIONS_MAX, sizeof(*all));
    cr_assert(all);
    const char *first = getenv("EO_BUDGET_SEED");
    for (uint64_t seed = first ? strtoull(first, NULL, 10) : 1; seed <= seeds; seed++) {
        const struct subject s = draw(seed);
        uint64_t least = UINT64_MAX;
        double before_s = INFINITY;
        keep_all(&s);
        for (uint32_t i = 0; i < all_count; i++) /* one that comes near it */
            least = all[i].memory_bytes < least ? all[i].memory_bytes : least;
        for (int b = 0; b < BUDGETS; b++)
            worst = fmax(worst, check_budget(&s, seed, least + (all[0].memory_bytes - least) * (uint64_t)b / (BUDGETS - 1), &before_s));
        cr_log_info("seed %llu: %u combinations, worst ratio so far %.4f", (unsigned long long)seed, all_count, worst);
    }
    free(all);
}

enum { SWEEP = 30 };

/* All that a sweep of budgets named: of each the choice, and what it said that more memory would buy. */
struct sweep {
    struct tool_budget_choice choices[SWEEP];
    uint64_t budgets[SWEEP];
};

static const struct tool_budget_option *best_named(const struct sweep *sweep, uint64_t bytes)
{
    const struct tool_budget_option *best = NULL;
    for (int b = 0; b < SWEEP; b++)
        for (uint32_t n = 0; n <= sweep->choices[b].next_count; n++) {
            const struct tool_budget_option *o = n ? &sweep->choices[b].next[n - 1] : &sweep->choices[b].chosen;
            if (o->memory_bytes <= bytes && (!best || o->step_s < best->step_s))
                best = o;
        }
    return best;
}

/* From the least to everything. */
static void ask_all(const struct subject *s, struct sweep *sweep)
{
    struct tool_problem problem;
    const struct tool_budget_request nothing = {.bytes = 1, .rates = s->rates};
    cr_assert_lt(tool_budget_find(&s->settings, &s->config, &nothing, &sweep->choices[0], &problem), 0);
    const uint64_t least = sweep->choices[0].least.memory_bytes, most = sweep->choices[0].everything.memory_bytes;
    for (int b = 0; b < SWEEP; b++) {
        const struct tool_budget_request request = {.bytes = least + (most - least) * (uint64_t)b / (SWEEP - 1),
                                                    .rates = s->rates};
        cr_assert_geq(tool_budget_find(&s->settings, &s->config, &request, &sweep->choices[b], &problem), 0, "%s",
                      problem.text);
        cr_assert_leq(sweep->choices[b].chosen.memory_bytes, request.bytes);
        sweep->budgets[b] = request.bytes;
    }
}

Test(budget_search, of_gpt2_more_memory_is_not_slower, .timeout = 600)
{
    static const struct {
        eo_strategy strategy;
        eo_dtype dtype;
        uint32_t batch;
    } cases[] = {{EO_STRATEGY_ZERO3, EO_DTYPE_BF16, 1},
                 {EO_STRATEGY_ZERO3, EO_DTYPE_FP32, 4},
                 {EO_STRATEGY_DDP, EO_DTYPE_BF16, 1},
                 {EO_STRATEGY_DDP, EO_DTYPE_FP32, 4}};
    static struct sweep sweep;
    const double slower_max = 1.01;
    const size_t count = sizeof(cases) / sizeof(cases[0]),
                 stride = getenv("EO_TEST_FULL") ? 1 : count - 1; /* else first and last */
    for (size_t k = 0; k < count; k += stride) {
        struct subject s = {.settings = {.ranks = 2,
                                         .strategy = cases[k].strategy,
                                         .batch = cases[k].batch,
                                         .seq = 512,
                                         .micro_batches = 1,
                                         .dtype = cases[k].dtype,
                                         .gather_slots = 2,
                                         .gradient_slots = 2,
                                         .head_chunks = 1,
                                         .device = "cpu",
                                         .threads = 1},
                            .rates = {.products_flops_per_s = 98e9,
                                      .memory_bytes_per_s = 22.2e9,
                                      .disk_bytes_per_s = 0.63e9,
                                      .link_bytes_per_s = 22.2e9}};
        double worst = 1;
        cr_assert_geq(eo_transformer_preset("gpt2", &s.config), 0);
        ask_all(&s, &sweep);
        for (int b = 0; b < SWEEP; b++) {
            const struct tool_budget_option *chosen = &sweep.choices[b].chosen, *best = best_named(&sweep, sweep.budgets[b]);
            char text[160], best_text[160];
            tool_budget_text(chosen, text, sizeof(text));
            tool_budget_text(best, best_text, sizeof(best_text));
            cr_expect_leq(chosen->step_s, slower_max * best->step_s, "case %zu, %.1f MiB: %g s by %s; %g s by %s", k,
                          (double)sweep.budgets[b] / (1 << 20), chosen->step_s, text, best->step_s, best_text);
            worst = fmax(worst, chosen->step_s / best->step_s);
        }
        cr_log_info("case %zu: worst ratio %.4f", k, worst);
    }
}

/* Here the search looks at more than 8,192 plans, which were once all that it had room for. */
Test(budget_search, leave_to_change_bits_is_not_slower, .timeout = 600)
{
    struct subject s = {
        .settings = {.ranks = 4,
                     .strategy = EO_STRATEGY_ZERO3,
                     .batch = 8,
                     .seq = 256,
                     .micro_batches = 1,
                     .dtype = EO_DTYPE_BF16,
                     .gather_slots = 2,
                     .gradient_slots = 2,
                     .head_chunks = 1,
                     .device = "cpu",
                     .threads = 1},
        .rates = {
            .products_flops_per_s = 5e11, .memory_bytes_per_s = 2e10, .disk_bytes_per_s = 1.5e9, .link_bytes_per_s = 1e10}};
    struct tool_budget_request request = {.bytes = 29 << 20, .rates = s.rates};
    struct tool_budget_choice without, with;
    struct tool_problem problem;
    cr_assert_geq(eo_transformer_preset("tiny", &s.config), 0);
    s.config.layer_count = 9;
    cr_assert_geq(tool_budget_find(&s.settings, &s.config, &request, &without, &problem), 0, "%s", problem.text);
    request.may_change_bits = true;
    cr_assert_geq(tool_budget_find(&s.settings, &s.config, &request, &with, &problem), 0, "%s", problem.text);
    cr_expect_gt(with.plan_count, 8192);
    cr_expect_leq(with.chosen.step_s, without.chosen.step_s);
}

/* The longest there is, of a model with the most layers. */
Test(budget_search, a_choice_of_everything_is_told_whole)
{
    static const char last[] = ", head in 1024 pieces";
    const struct tool_budget_option option = {.layer_count = 4096,
                                              .changes_bits = true,
                                              .settings = {.recompute = EO_RECOMPUTE_BLOCKS,
                                                           .recompute_blocks = 4095,
                                                           .gather_slots = 64,
                                                           .gradient_slots = 64,
                                                           .offload_layers = 4095,
                                                           .offload_slots = 64,
                                                           .offload_gradients = true,
                                                           .late_updates = true,
                                                           .offload_activations = 4095,
                                                           .head_chunks = 1024,
                                                           .device = "cuda"}};
    char text[TOOL_BUDGET_TEXT_MAX];
    tool_budget_text(&option, text, sizeof(text));
    cr_expect_str_eq(text + strlen(text) - strlen(last), last, "%s", text);
}
