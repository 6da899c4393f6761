/* SPDX-License-Identifier: MIT
 *
 * A rank's part of a model, beside tensor, pipeline and context groups of the trainer: planned exactly, by the runtime's planner.
 */
#include "tests/unit/tools/planned.h"

#include <string.h>

#include "runtime/plan/internal.h"
#include "tools/memplan/plan/layout.h"

static struct tool_memplan_settings sliced(uint32_t ranks, uint32_t tensor, uint32_t pipeline, uint32_t context)
{
    struct tool_memplan_settings s = settings_of(ranks);
    s.plan.seq = 2048;
    s.plan.micro_batches = 8;
    s.plan.device = "cuda";
    s.slice = (struct tool_slice){.tensor = tensor, .pipeline = pipeline, .context = context, .stage = TOOL_SLICE_FULLEST};
    return s;
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

/* Whatever order they were described in. */
static void assert_same_sizes(const struct tool_memplan *a, const struct tool_memplan *b)
{
    cr_assert_eq(a->summary.lower_bound_bytes, b->summary.lower_bound_bytes);
    cr_assert_eq(a->summary.row_count, b->summary.row_count);
    for (uint32_t r = 0; r < a->summary.row_count; r++) {
        eo_plan_row x, y = {.name = ""};
        cr_assert_geq(eo_plan_get_row(a->plan, r, &x), 0);
        for (uint32_t k = 0; k < b->summary.row_count && strcmp(x.name, y.name) != 0; k++)
            cr_assert_geq(eo_plan_get_row(b->plan, k, &y), 0);
        cr_assert(strcmp(x.name, y.name) == 0 && x.bytes == y.bytes && x.category == y.category && x.space == y.space &&
                      strcmp(x.first, y.first) == 0 && strcmp(x.last, y.last) == 0, "%s: %llu, %s %llu", x.name,
                  (unsigned long long)x.bytes, y.name, (unsigned long long)y.bytes);
    }
}

/* Goal: the part of a tensor rank is planned to the byte. Method: a model whose config has half the heads, MLP and words, on half
 * the ranks, is what the rank's trainer gives to the runtime: every row is the same, by name, place and size. */
Test(slice, a_tensor_rank_is_a_smaller_model)
{
    static const char *const halves[] = {"num_attention_heads=16", "num_key_value_heads=4", "intermediate_size=7168",
                                         "vocab_size=64128", "head_dim=128"};
    load("llama-3-8b");
    struct tool_memplan_settings s = sliced(16, 2, 1, 1);
    struct tool_memplan part = planned(&s);
    load_with("llama-3-8b", halves, 5);
    struct tool_memplan_settings whole = sliced(8, 1, 1, 1);
    struct tool_memplan smaller = planned(&whole);
    assert_same_rows(&part, &smaller);
    cr_assert_eq(part.summary.params.rank_count, 8);
    cr_assert_not(part.runs);
    tool_memplan_fini(&part);
    tool_memplan_fini(&smaller);
    load("llama-3-8b"); /* context ranks: weights over all of them, half the tokens */
    s = sliced(16, 1, 1, 2);
    part = planned(&s);
    whole = sliced(16, 1, 1, 1);
    whole.plan.seq = 1024;
    smaller = planned(&whole);
    assert_same_rows(&part, &smaller);
    tool_memplan_fini(&part);
    tool_memplan_fini(&smaller);
}

/* Goal: a described model is the layers' own. Method: of whole models both are planned: every row is the same. */
Test(slice, a_description_is_what_the_layers_describe)
{
    static const char *const models[] = {"gpt2", "gpt2-xl", "llama-3.2-1b", "qwen3-0.6b"};
    static const eo_recompute ways[] = {EO_RECOMPUTE_NONE, EO_RECOMPUTE_CHEAP, EO_RECOMPUTE_BLOCKS};
    struct tool_scratch_memory memory = {0}; /* filled by the first of a model */
    for (size_t i = 0; i < 4 * 3 * 2; i++) {
        load(models[i / 6]);
        struct tool_memplan_settings s = sliced(8, 0, 0, 0);
        s.slice = (struct tool_slice){0};
        s.plan.seq = 512;
        s.plan.recompute = ways[i / 2 % 3];
        s.plan.recompute_blocks = 5;
        s.plan.half_blocks = i % 2;
        struct tool_memplan plan = planned(&s), described = plan;
        const eo_log log = {0};
        cr_assert_geq(tool_memplan_describe(&described.described, &config, &plan.settings.plan, &s.slice, &memory, &log),
                      0);
        cr_assert_geq(eo_plan_create(&described.plan, described.described, &plan.summary.params), 0);
        eo_plan_get_summary(described.plan, &described.summary);
        assert_same_sizes(&plan, &described);
        described.transformer = NULL;
        tool_memplan_fini(&described);
        tool_memplan_fini(&plan);
    }
}

/* Goal: no element of a stage is lost. Method: of every model the plan's elements are those that the cuts of all layouts count
 * apart from the planner. */
Test(slice, stages_have_the_elements_of_their_cut)
{
    static const char *const models[] = {"llama-3-8b", "llama-3.2-1b", "qwen3-32b", "mixtral-8x7b", "gpt2-medium"};
    static const char *const words[] = {"vocab_size=50304"}; /* that tensor ranks share without a rest */
    for (size_t i = 0; i < 2 * sizeof(models) / sizeof(models[0]); i++) {
        const uint32_t chunks = 1 + i % 2, expert = i / 2 == 3 ? 1 + 3 * (uint32_t)(i % 2) : 1;
        load_with(models[i / 2], words, i / 2 == 4);
        const struct tool_shape shape = tool_shape_of(&config);
        for (uint32_t tensor = 1; tensor <= 4; tensor *= 4)
            for (uint32_t stage = 0; stage < 4; stage++) {
                struct tool_memplan_settings s = sliced(64, tensor, 4, 1);
                s.plan.seq = 512;
                s.slice.stage = stage;
                s.slice.virtual_stages = chunks;
                s.slice.expert = expert;
                struct tool_memplan plan = planned(&s);
                const struct tool_layout l = {.ranks = 64, .tensor = tensor, .pipeline = 4, .context = 1, .expert = expert,
                                              .virtual_stages = chunks, .batch = 1, .seq = 512, .micro_batches = 8};
                const struct tool_stage_elements e = tool_stage_elements(&shape, &l, stage);
                cr_assert_eq(plan.summary.element_count, e.dense + e.experts, "%s tp%u stage %u: %llu, not %llu", models[i / 2], tensor,
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
    load("llama-3-8b");
    uint64_t one = 0, most = 0;
    for (uint32_t micros = 1; micros <= 8; micros *= 2) {
        struct tool_memplan_settings s = sliced(32, 1, 4, 1);
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
        struct tool_memplan_settings s = sliced(32, 1, 4, 1);
        s.slice.stage = stage;
        struct tool_memplan plan = planned(&s);
        most = plan.total_bytes > most ? plan.total_bytes : most;
        tool_memplan_fini(&plan);
    }
    const struct tool_memplan_settings s = sliced(32, 1, 4, 1);
    struct tool_memplan plan = planned(&s);
    cr_assert_eq(plan.total_bytes, most);
    tool_memplan_fini(&plan);
}

/* Goal: interleaved stages hold what Megatron's schedule makes them hold. Method: schedules written out by hand; and for others the
 * chunks that the formula of other systems counts. */
Test(slice, chunks_hold_what_their_schedule_says)
{
    static const struct {
        uint32_t pipeline, chunks, micro_batches, stage, held[2];
    } cases[] = {
        {2, 2, 2, 0, {2, 2}}, /* f0 f0 f1 f1, all before the first backward */
        {2, 2, 2, 1, {2, 1}}, /* f0 f0 f1b1 f1b1 b0 b0 */
        {2, 2, 4, 0, {3, 2}}, /* f0 f0 f1 f1 f0b1 f0b1 f1b0 f1b0 b1 b1 b0 b0 */
        {2, 2, 4, 1, {2, 1}}, /* f0 f0 f1b1 f1b1 f0b0 f0b0 f1b1 f1b1 b0 b0 */
        {4, 1, 8, 1, {3, 0}},
        {4, 1, 2, 0, {2, 0}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (uint32_t chunk = 0; chunk < cases[i].chunks; chunk++) {
            const struct tool_slice slice = {.pipeline = cases[i].pipeline, .virtual_stages = cases[i].chunks,
                                             .stage = cases[i].stage, .micro_batches = cases[i].micro_batches};
            cr_expect_eq(tool_slice_in_flight(&slice, chunk), cases[i].held[chunk], "case %zu, chunk %u: %u", i, chunk,
                         tool_slice_in_flight(&slice, chunk));
        }
    load("llama-3-70b");
    const struct tool_shape shape = tool_shape_of(&config);
    for (uint32_t stage = 0; stage < 4; stage++)
        for (uint32_t micros = 4; micros <= 32; micros += 4) {
            struct tool_memplan_settings s = sliced(32, 1, 4, 1);
            s.plan.seq = 512;
            s.plan.micro_batches = micros;
            s.slice.stage = stage;
            s.slice.virtual_stages = 5;
            struct tool_memplan plan = planned(&s);
            const struct tool_layout l = {.ranks = 32, .tensor = 1, .pipeline = 4, .context = 1, .expert = 1, .virtual_stages = 5,
                                          .batch = 1, .seq = 512, .micro_batches = micros};
            const uint64_t least = tool_blocks_in_flight(&shape, &l, stage) / 4, held = plan.settings.slice.in_flight;
            cr_expect(held == least, "stage %u, %u micro-batches: %llu of %llu", stage, micros,
                      (unsigned long long)held, (unsigned long long)least);
            tool_memplan_fini(&plan);
        }
}

/* Goal: expert parallelism by the field's rule: a rank gathers its experts alone, and they are shared by as many fewer ranks.
 * Method: shards stay as large as without it, gathers become as many times smaller; all else is as before. */
Test(slice, experts_are_shared_by_fewer_ranks)
{
    load("mixtral-8x7b");
    const uint64_t of_block = 3 * 8 * (uint64_t)config.expert_width * config.width; /* elements of experts */
    for (uint32_t expert = 2; expert <= 8; expert *= 2) {
        struct tool_memplan_settings s = sliced(64, 1, 1, 1);
        s.plan.seq = 512;
        s.slice.expert = expert;
        struct tool_memplan plan = planned(&s);
        eo_shard_range experts, dense;
        cr_assert(eo_plan_shard_range(plan.plan, 1, 0, &dense) >= 0 && eo_plan_shard_range(plan.plan, 2, 0, &experts) >= 0);
        cr_assert_str_eq(eo_model_position_name(tool_memplan_model(&plan), 2), "block.0.experts");
        cr_assert_eq(dense.ranks, 64);
        cr_assert_eq(experts.ranks, 64 / expert);
        cr_assert_eq(experts.count * experts.ranks, of_block / expert);
        cr_assert_eq(experts.count, of_block / 64);
        cr_assert_not(plan.runs);
        tool_memplan_fini(&plan);
    }
    struct tool_memplan_settings s = sliced(64, 4, 1, 1); /* experts are whole where tensor ranks have one each */
    s.slice.expert = 8;
    s.slice.expert_tensor = 1;
    s.plan.recompute = EO_RECOMPUTE_BLOCKS;
    s.plan.recompute_blocks = UINT32_MAX;
    struct tool_memplan plan = planned(&s);
    eo_shard_range experts;
    cr_assert_geq(eo_plan_shard_range(plan.plan, 2, 0, &experts), 0);
    cr_assert_eq(experts.ranks, 8);
    cr_assert_eq(experts.count, of_block / 64);
    tool_memplan_fini(&plan);
}

/* Whether each collective of the plan has its layer's ranks: `experts` those of the layers of experts, `rest` those of others. */
static void assert_scopes(const struct tool_memplan *plan, int experts, int rest)
{
    uint32_t seen[2] = {0, 0};
    for (int list = 0; list < 3; list++)
        for (uint32_t i = 0; i < plan->plan->schedule.lists[list].count; i++) {
            const struct eo_operation *o = &plan->plan->schedule.lists[list].operations[i];
            if (o->kind != EO_OP_ALL_GATHER && o->kind != EO_OP_REDUCE_SCATTER && o->kind != EO_OP_NORM_GATHER)
                continue;
            const char *name = o->layer == EO_NONE ? "" : eo_model_position_name(tool_memplan_model(plan), o->position);
            const bool of_experts = strstr(name, ".experts") != NULL;
            cr_expect_eq(o->scope, of_experts ? experts : rest, "%s: %d", name, o->scope);
            seen[of_experts]++;
        }
    cr_expect(seen[0] > 0 && (seen[1] > 0) == (experts != EO_SCOPE_COUNT), "%u, %u collectives", seen[0], seen[1]);
}

/* Goal: experts travel between the ranks that hold the same ones, all else in the whole group, the norm too. Method: bits of each
 * collective, with experts on some ranks, and without expert parallelism. */
Test(slice, collectives_of_experts_are_of_a_part_of_the_group)
{
    load("mixtral-8x7b");
    struct tool_memplan_settings s = sliced(64, 1, 1, 1);
    s.plan.seq = 512;
    s.slice.expert = 4;
    struct tool_memplan plan = planned(&s);
    assert_scopes(&plan, EO_SCOPE_PART, EO_SCOPE_GROUP | EO_SCOPE_PART);
    tool_memplan_fini(&plan);
    s.slice.expert = 1;
    plan = planned(&s);
    assert_scopes(&plan, EO_SCOPE_COUNT, EO_SCOPE_GROUP); /* no layer is of experts alone */
    tool_memplan_fini(&plan);
}

/* Goal: sequence parallelism divides the residual stream. Method: kept bytes of a block, by hand: 4 h over all ranks, the rest over
 * the tensor ranks, too; heads of k and v are 2 of each rank. */
Test(slice, sequence_parallel_ranks_share_the_stream)
{
    load("llama-3-8b");
    struct tool_memplan_settings s = sliced(32, 4, 1, 1);
    uint64_t kept[2];
    for (int shared = 0; shared < 2; shared++) {
        s.slice.sequence_parallel = shared;
        struct tool_memplan plan = planned(&s);
        kept[shared] = kept_bytes(&plan);
        tool_memplan_fini(&plan);
    }
    const uint64_t stream = 32 * 2048 * (4 * (uint64_t)config.width + 2 * sizeof(float)) + 2048 * 2 * (uint64_t)config.width;
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
        {"gpt2", "--tp 8 does not divide the model's heads", sliced(8, 8, 1, 1)},
        {"llama-3-8b", "the model has no experts", sliced(8, 1, 1, 1)},
        {"llama-3-8b", "--tp 3", sliced(8, 3, 1, 1)},
        {"llama-3-8b", "does not divide the model's 32 blocks", sliced(12, 1, 3, 1)},
        {"llama-3-8b", "--cp 3", sliced(12, 1, 1, 3)},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tool_memplan plan;
        load(cases[i].model);
        struct tool_memplan_settings s = cases[i].settings;
        s.plan.seq = 1024;
        s.slice.expert = i == 1 ? 2 : 0;
        cr_assert_lt(tool_memplan_create(&plan, &config, &s, &problem), 0, "case %zu", i);
        cr_assert(strstr(problem.text, cases[i].words), "case %zu: %s", i, problem.text);
    }
    load("llama-3-8b");
    struct tool_memplan_settings s = sliced(64, 4, 1, 1);
    struct tool_memplan plan;
    s.plan.strategy = EO_STRATEGY_HSDP;
    s.plan.shard_group = 32;
    cr_assert_lt(tool_memplan_create(&plan, &config, &s, &problem), 0);
    cr_assert(strstr(problem.text, "hold the same part"), "%s", problem.text);
}
