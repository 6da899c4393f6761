/* SPDX-License-Identifier: MIT
 *
 * A rank's part of a model, beside tensor, pipeline and context groups of the trainer: planned exactly, by the runtime's planner.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "tools/memplan/plan/plan.h"
#include "tools/memplan/plan/layout.h"

static struct tool_model_config config;
static struct tool_problem problem;

static struct tool_memplan_settings settings_of(uint32_t ranks, uint32_t tensor, uint32_t pipeline, uint32_t context)
{
    return (struct tool_memplan_settings){.plan = {.ranks = ranks,
                                                   .strategy = EO_STRATEGY_ZERO3,
                                                   .batch = 1,
                                                   .seq = 2048,
                                                   .micro_batches = 8,
                                                   .dtype = EO_DTYPE_BF16,
                                                   .reduce_dtype = EO_DTYPE_FP32,
                                                   .gather_slots = 2,
                                                   .gradient_slots = 2,
                                                   .device = "cuda",
                                                   .threads = 1},
                                          .gpus_per_node = 8,
                                          .slice = {.tensor = tensor, .pipeline = pipeline, .context = context,
                                                    .stage = TOOL_SLICE_FULLEST}};
}

static struct tool_memplan planned(const struct tool_memplan_settings *settings)
{
    struct tool_memplan plan;
    cr_assert_geq(tool_memplan_create(&plan, &config, settings, &problem), 0, "%s", problem.text);
    return plan;
}

static void load(const char *model, const char *const *sets, uint32_t count)
{
    cr_assert_geq(tool_model_config_load(&config, model, sets, count, &problem), 0, "%s", problem.text);
}

static void assert_same_rows(const struct tool_memplan *a, const struct tool_memplan *b)
{
    cr_assert_eq(a->summary.arena_bytes, b->summary.arena_bytes);
    cr_assert_eq(a->summary.row_count, b->summary.row_count);
    for (uint32_t r = 0; r < a->summary.row_count; r++) {
        eo_plan_row x, y;
        cr_assert(eo_plan_get_row(a->plan, r, &x) >= 0 && eo_plan_get_row(b->plan, r, &y) >= 0);
        cr_assert(strcmp(x.name, y.name) == 0 && x.bytes == y.bytes && x.offset == y.offset && x.space == y.space, "%s", x.name);
    }
}

/* Goal: the part of a tensor rank is planned to the byte. Method: a model whose config has half the heads, MLP and words, on half
 * the ranks, is what the rank's trainer gives to the runtime: every row is the same, by name, place and size. */
Test(slice, a_tensor_rank_is_a_smaller_model)
{
    static const char *const halves[] = {"num_attention_heads=16", "num_key_value_heads=4", "intermediate_size=7168",
                                         "vocab_size=64128", "head_dim=128"};
    load("llama-3-8b", NULL, 0);
    struct tool_memplan_settings s = settings_of(16, 2, 1, 1);
    struct tool_memplan part = planned(&s);
    load("llama-3-8b", halves, 5);
    struct tool_memplan_settings whole = settings_of(8, 1, 1, 1);
    struct tool_memplan smaller = planned(&whole);
    assert_same_rows(&part, &smaller);
    cr_assert_eq(part.summary.params.rank_count, 8);
    cr_assert_not(part.runs);
    tool_memplan_fini(&part);
    tool_memplan_fini(&smaller);
    load("llama-3-8b", NULL, 0); /* context ranks: weights over all of them, half the tokens */
    s = settings_of(16, 1, 1, 2);
    part = planned(&s);
    whole = settings_of(16, 1, 1, 1);
    whole.plan.seq = 1024;
    smaller = planned(&whole);
    assert_same_rows(&part, &smaller);
    tool_memplan_fini(&part);
    tool_memplan_fini(&smaller);
}

/* Goal: no element of a stage is lost. Method: of every model the plan's elements are those that the cuts of all layouts count
 * apart from the planner. */
Test(slice, stages_have_the_elements_of_their_cut)
{
    static const char *const models[] = {"llama-3-8b", "llama-3.2-1b", "qwen3-8b", "mixtral-8x7b"};
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        load(models[i], NULL, 0);
        const struct tool_shape shape = tool_shape_of(&config);
        for (uint32_t tensor = 1; tensor <= 4; tensor *= 4)
            for (uint32_t stage = 0; stage < 4; stage++) {
                struct tool_memplan_settings s = settings_of(64, tensor, 4, 1);
                s.slice.stage = stage;
                struct tool_memplan plan = planned(&s);
                const struct tool_layout l = {.ranks = 64, .tensor = tensor, .pipeline = 4, .context = 1, .expert = 1,
                                              .virtual_stages = 1, .batch = 1, .seq = 2048, .micro_batches = 8};
                const struct tool_stage_elements e = tool_stage_elements(&shape, &l, stage);
                cr_assert_eq(plan.summary.element_count, e.dense + e.experts, "%s tp%u stage %u: %llu, not %llu", models[i], tensor,
                             stage, (unsigned long long)plan.summary.element_count, (unsigned long long)(e.dense + e.experts));
                tool_memplan_fini(&plan);
            }
    }
}

/* Bytes of rows of activations, each counted. */
static uint64_t kept_bytes(const struct tool_memplan *plan)
{
    return plan->summary.category_bytes[EO_CATEGORY_ACTIVATION];
}

/* Goal: a stage holds what its schedule says. Method: the first of four holds four micro-batches, as many as there are if they are
 * fewer; each has its own rows, always live. The fullest stage is the one of most bytes. */
Test(slice, a_stage_holds_its_micro_batches)
{
    load("llama-3-8b", NULL, 0);
    uint64_t one = 0, most = 0;
    for (uint32_t micros = 1; micros <= 8; micros *= 2) {
        struct tool_memplan_settings s = settings_of(32, 1, 4, 1);
        s.plan.micro_batches = micros;
        s.slice.stage = 0;
        struct tool_memplan plan = planned(&s);
        const uint32_t held = micros < 4 ? micros : 4;
        one = one ? one : kept_bytes(&plan);
        cr_assert_eq(plan.settings.slice.in_flight, held);
        cr_assert_eq(kept_bytes(&plan), held * one, "%u micro-batches: %llu of %llu", micros,
                     (unsigned long long)kept_bytes(&plan), (unsigned long long)one);
        tool_memplan_fini(&plan);
    }
    for (uint32_t stage = 0; stage < 4; stage++) {
        struct tool_memplan_settings s = settings_of(32, 1, 4, 1);
        s.slice.stage = stage;
        struct tool_memplan plan = planned(&s);
        most = plan.total_bytes > most ? plan.total_bytes : most;
        tool_memplan_fini(&plan);
    }
    const struct tool_memplan_settings s = settings_of(32, 1, 4, 1);
    struct tool_memplan plan = planned(&s);
    cr_assert_eq(plan.total_bytes, most);
    tool_memplan_fini(&plan);
}

/* Goal: sequence parallelism divides the residual stream. Method: kept bytes of a block, by hand: 8 h over all ranks, the rest over
 * the tensor ranks, too; heads of k and v are 2 of each rank. */
Test(slice, sequence_parallel_ranks_share_the_stream)
{
    load("llama-3-8b", NULL, 0);
    struct tool_memplan_settings s = settings_of(32, 4, 1, 1);
    uint64_t kept[2];
    for (int shared = 0; shared < 2; shared++) {
        s.slice.sequence_parallel = shared;
        struct tool_memplan plan = planned(&s);
        kept[shared] = kept_bytes(&plan);
        tool_memplan_fini(&plan);
    }
    const uint64_t stream = 32 * 2048 * (8 * (uint64_t)config.width + 2 * sizeof(float)) + 2048 * 2 * (uint64_t)config.width;
    cr_assert_eq(kept[0] - kept[1], stream - stream / 4, "%llu, not %llu", (unsigned long long)(kept[0] - kept[1]),
                 (unsigned long long)(stream - stream / 4));
}

/* Goal: parts that cannot be are refused by name. */
Test(slice, parts_that_cannot_be_are_refused)
{
    const struct {
        const char *model, *words;
        struct tool_memplan_settings settings;
    } cases[] = {
        {"gpt2", "parts of a", settings_of(8, 2, 1, 1)},
        {"llama-3-8b", "--tp 3", settings_of(8, 3, 1, 1)},
        {"llama-3-8b", "does not divide the model's 32 blocks", settings_of(12, 1, 3, 1)},
        {"llama-3-8b", "--cp 3", settings_of(12, 1, 1, 3)},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tool_memplan plan;
        load(cases[i].model, NULL, 0);
        struct tool_memplan_settings s = cases[i].settings;
        s.plan.seq = 1024;
        cr_assert_lt(tool_memplan_create(&plan, &config, &s, &problem), 0, "case %zu", i);
        cr_assert(strstr(problem.text, cases[i].words), "case %zu: %s", i, problem.text);
    }
    load("llama-3-8b", NULL, 0);
    struct tool_memplan_settings s = settings_of(64, 4, 1, 1);
    struct tool_memplan plan;
    s.plan.strategy = EO_STRATEGY_HSDP;
    s.plan.shard_group = 32;
    cr_assert_lt(tool_memplan_create(&plan, &config, &s, &problem), 0);
    cr_assert(strstr(problem.text, "hold the same part"), "%s", problem.text);
}
