/* SPDX-License-Identifier: MIT
 *
 * memplan is the runtime's planner: the same rows, and what is said about them holds. EO_TEST_FULL=1 takes larger models.
 */
#include "tests/unit/tools/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/plan/block_rows.h"
#include "tools/memplan/plan/layers.h"
#include "tools/memplan/report/report.h"

/* Goal: what memplan plans is what the runtime would, row by row. Method: the same model and plan made by the public API
 * alone, over a grid of settings, worlds of 1 to 8. That the runtime reserves it is seen by tests/programs/memplan_beside_train.sh. */
Test(memplan, rows_are_those_of_the_runtimes_plan, .timeout = 300)
{
    static const char *const models[] = {"tiny", "llama-tiny", "base", "gpt2", "qwen2-tiny", "qwen3-tiny"};
    uint32_t compared = 0;
    for (uint32_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        load(models[m]);
        eo_transformer_config shape;
        cr_assert_eq(eo_transformer_preset(models[m], &shape), EO_OK);
        for (uint32_t n = 0; n < 32; n++) {
            const struct tool_memplan_settings s = setting(1 + n % 8, n + 5 * m);
            eo_transformer *transformer;
            eo_plan *other;
            struct tool_memplan memplan = planned(&s);
            const uint32_t blocks = s.plan.recompute_blocks < shape.layer_count ? s.plan.recompute_blocks : shape.layer_count;
            cr_assert_eq(eo_transformer_create(&transformer, eo_transformer_params(
                .config = shape, .batch = s.plan.batch, .seq = s.plan.seq, .recompute = s.plan.recompute,
                .recompute_blocks = blocks, .head_chunks = s.plan.head_chunks, .half_blocks = s.plan.half_blocks,
                .dtype = s.plan.dtype, .reduce_dtype = s.plan.reduce_dtype)), EO_OK);
            cr_assert_eq(eo_plan_create(&other, eo_transformer_model(transformer), eo_plan_params(
                .rank_count = s.plan.ranks, .micro_batches = s.plan.micro_batches, .gather_slots = s.plan.gather_slots,
                .gradient_slots = s.plan.gradient_slots, .dtype = s.plan.dtype, .reduce_dtype = s.plan.reduce_dtype,
                .float8_gather = s.plan.float8_gather, .norms_beside = memplan.summary.params.norms_beside)), EO_OK);
            eo_plan_summary summary;
            eo_plan_get_summary(other, &summary);
            cr_assert_eq(summary.fingerprint, memplan.summary.fingerprint, "%s, setting %u", models[m], n);
            cr_assert_eq(summary.arena_bytes, memplan.summary.arena_bytes);
            for (uint32_t r = 0; r < summary.row_count; r++, compared++) {
                eo_plan_row a, b;
                cr_assert_eq(eo_plan_get_row(other, r, &a), EO_OK);
                cr_assert_eq(eo_plan_get_row(memplan.plan, r, &b), EO_OK);
                cr_assert_str_eq(a.name, b.name);
                cr_assert(a.bytes == b.bytes && a.offset == b.offset && a.space == b.space);
            }
            eo_plan_destroy(&other);
            eo_transformer_destroy(&transformer);
            tool_memplan_fini(&memplan);
        }
    }
    cr_assert_gt(compared, 5000);
}

static const eo_plan_row *find_row(const eo_plan *other, uint32_t count, const eo_plan_row *like, eo_plan_row *row)
{
    for (uint32_t r = 0; r < count; r++)
        if (eo_plan_get_row(other, r, row) >= 0 && strcmp(row->name, like->name) == 0 && row->category == like->category)
            return row;
    return NULL;
}

/* Goal: families without kernels are described as the layers describe theirs. Method: a Llama and its like are described by memplan,
 * and their rows are held against those of the layers' own: all of them, by name, size and lifetime. */
Test(memplan, a_llama_described_here_has_the_rows_of_the_layers_llama, .timeout = 120)
{
    const eo_log silence = {0};
    static const char *const models[] = {"llama-tiny", "qwen2-tiny", "llama-1b", "qwen3-tiny", "llama-small"};
    const char *kernels[] = {"cpu", "cuda"};
    struct tool_scratch_memory memory = {0};
    for (uint32_t n = 0; n < 60; n++) {
        struct tool_memplan_settings s = setting(1 + n % 8, n);
        s.plan.device = kernels[n % 2];
        if (strcmp(s.plan.device, "cuda") == 0 && s.plan.dtype != s.plan.reduce_dtype)
            s.plan.reduce_dtype = EO_DTYPE_FP32;
        load(models[n % 5]);
        struct tool_memplan memplan = planned(&s);
        eo_model *described;
        eo_plan *other;
        cr_assert_eq(tool_memplan_describe(&described, &config, &memplan.settings.plan, &memplan.settings.slice, &memory, &silence),
                     EO_OK);
        cr_assert_eq(eo_plan_create(&other, described, eo_plan_params(
            .rank_count = s.plan.ranks, .micro_batches = s.plan.micro_batches, .gather_slots = s.plan.gather_slots,
            .gradient_slots = s.plan.gradient_slots, .dtype = s.plan.dtype, .reduce_dtype = s.plan.reduce_dtype,
            .float8_gather = s.plan.float8_gather, .norms_beside = memplan.summary.params.norms_beside)), EO_OK);
        eo_plan_summary summary;
        eo_plan_get_summary(other, &summary);
        cr_assert_eq(summary.row_count, memplan.summary.row_count, "%s: %u rows, the layers have %u", models[n % 5],
                     summary.row_count, memplan.summary.row_count);
        cr_assert_eq(summary.lower_bound_bytes, memplan.summary.lower_bound_bytes);
        for (uint32_t r = 0; r < memplan.summary.row_count; r++) {
            eo_plan_row want, row;
            cr_assert_eq(eo_plan_get_row(memplan.plan, r, &want), EO_OK);
            cr_assert(find_row(other, summary.row_count, &want, &row), "no row %s", want.name);
            cr_assert_eq(row.bytes, want.bytes, "%s of %s (%s): %llu, the layers have %llu", want.name, models[n % 5],
                         s.plan.device, (unsigned long long)row.bytes, (unsigned long long)want.bytes);
            cr_assert_str_eq(row.first, want.first, "%s", want.name);
            cr_assert_str_eq(row.last, want.last, "%s", want.name);
        }
        eo_plan_destroy(&other);
        eo_model_destroy(&described);
        tool_memplan_fini(&memplan);
    }
}

static bool together(const struct tool_live_span *a, const struct tool_live_span *b)
{
    const bool wraps_a = a->first > a->last, wraps_b = b->first > b->last;
    if (wraps_a && wraps_b)
        return true;
    if (wraps_a)
        return b->last >= a->first || b->first <= a->last;
    if (wraps_b)
        return a->last >= b->first || a->first <= b->last;
    return a->first <= b->last && b->first <= a->last;
}

/* No two rows that are live at one time share a byte. */
static void check_no_overlap(const struct tool_memplan *memplan, const struct tool_lifetimes *t)
{
    const uint32_t rows = memplan->summary.row_count;
    const uint32_t count = t->span_count + rows;
    struct tool_live_span *spans = calloc(count, sizeof(*spans));
    uint64_t *bytes = calloc(rows, sizeof(*bytes));
    uint32_t used = t->span_count;
    memcpy(spans, t->spans, t->span_count * sizeof(*spans));
    for (uint32_t r = 0; r < rows; r++) {
        eo_plan_row row;
        cr_assert_eq(eo_plan_get_row(memplan->plan, r, &row), EO_OK);
        bytes[r] = row.bytes;
        if (row.always_live)
            spans[used++] = (struct tool_live_span){r, 0, t->point_count - 1};
    }
    for (uint32_t i = 0; i < used; i++)
        for (uint32_t k = i + 1; k < used; k++) {
            const uint32_t a = spans[i].row, b = spans[k].row;
            if (a != b && t->address[a] < t->address[b] + bytes[b] && t->address[b] < t->address[a] + bytes[a])
                cr_assert_not(together(&spans[i], &spans[k]), "rows %u and %u share addresses", a, b);
        }
    free(spans);
    free(bytes);
}

/* Goal: lifetimes worked out from the public list alone come to the planner's lower bound, and no two rows that are live
 * together overlap. Method: grid of settings; models that are run and models that are described. */
Test(memplan, lifetimes_made_again_come_to_the_lower_bound, .timeout = 300)
{
    static const char *const models[] = {"tiny", "llama-tiny", "gpt2", "qwen2.5-0.5b", "qwen3-0.6b", "mixtral-8x7b"};
    for (uint32_t m = 0; m < 6; m++) {
        load(models[m]);
        for (uint32_t n = 0; n < (m < 3 ? 32 : 8); n++) {
            const struct tool_memplan_settings s = setting(n % 5 == 4 ? 64 : 1 + n % 8, 3 * n + m);
            struct tool_lifetimes t;
            struct tool_memplan memplan = planned(&s);
            cr_assert_eq(memplan.summary.element_count, tool_model_config_parameters(&config), "%s", models[m]);
            cr_assert_eq(tool_lifetimes_create(&t, &memplan), EO_OK);
            cr_assert_eq(t.peak_bytes, memplan.summary.lower_bound_bytes, "%s, setting %u: %llu, and the plan says %llu",
                         models[m], n, (unsigned long long)t.peak_bytes,
                         (unsigned long long)memplan.summary.lower_bound_bytes);
            check_no_overlap(&memplan, &t);
            tool_lifetimes_fini(&t);
            tool_memplan_fini(&memplan);
        }
    }
}

#define SMALL                                                                                                      \
    "\"num_hidden_layers\":4,\"hidden_size\":48,\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":10,"         \
    "\"intermediate_size\":40,\"vocab_size\":300,\"num_experts_per_tok\":2,"

/* A tensor that lives in its position's forward pass alone: a norm or an activation that the kernel of its gradient gives
 * again. */
static bool passes_in(const struct tool_block_row *row, uint32_t layer, bool again)
{
    const bool has_experts = tool_config_has_experts(&config, layer),
               goes_on = has_experts || config.norms != TOOL_NORMS_BEFORE;
    if (strcmp(row->name, "norm") == 0)
        return !again && !(row->in_mlp && has_experts);
    return row->gradient_remakes && !(again && goes_on);
}

/* Whether both lie in the same position's forward pass, of whichever micro-batches. */
static bool share_forward(const char *first, const char *last)
{
    const size_t length = strcspn(first, "(");
    return strncmp(first, "forward of ", strlen("forward of ")) == 0 && length == strcspn(last, "(") &&
           memcmp(first, last, length) == 0;
}

/* Rows of these: one of a size in a position, whatever its number of blocks. */
static void check_passing(const struct tool_memplan *memplan, const struct tool_block_row *row, uint64_t bytes,
                          const char *text)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < memplan->summary.row_count; r++) {
        eo_plan_row a, b;
        cr_assert_eq(eo_plan_get_row(memplan->plan, r, &a), EO_OK);
        const char *name = strrchr(a.name, '.');
        if (!name || strcmp(name + 1, row->name) != 0 || a.category != EO_CATEGORY_SCRATCH || a.bytes != bytes ||
            !share_forward(a.first, a.last))
            continue;
        count++;
        for (uint32_t o = 0; o < r; o++) {
            cr_assert_eq(eo_plan_get_row(memplan->plan, o, &b), EO_OK);
            const char *other = strrchr(b.name, '.');
            cr_assert(b.bytes != bytes || !share_forward(a.first, b.first) || !share_forward(b.first, b.last) || !other ||
                          strcmp(other, name) != 0,
                      "%s and %s of %s", a.name, b.name, text);
        }
    }
    cr_assert_gt(count, 0, "no row for %s of %s", row->name, text);
}

#define SMALL_EXPERTS "\"moe_intermediate_size\":24,\"shared_expert_intermediate_size\":32,\"num_experts\":5"

/* Goal: what a block of a described family keeps is what its list of rows says, in every granularity and recompute; the model
 * has its parameters, and lifetimes made again come to the bound. Method: a small model of each family over a grid. */
Test(memplan, described_families_keep_what_their_lists_say, .timeout = 300)
{
    static const char *const texts[] = {
        "\"gemma2\"," SMALL "\"sliding_window\":32", "\"gemma3_text\"," SMALL "\"attention_bias\":true",
        "\"gpt_oss\"," SMALL "\"num_local_experts\":5", "\"olmo2\"," SMALL "\"tie_word_embeddings\":true",
        "\"deepseek_v3\"," SMALL "\"moe_intermediate_size\":24,\"n_routed_experts\":5,\"first_k_dense_replace\":1,"
        "\"q_lora_rank\":20,\"kv_lora_rank\":12,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_head_dim\":6",
        "\"qwen2_moe\"," SMALL SMALL_EXPERTS ",\"mlp_only_layers\":[1]",
        "\"qwen3_next\"," SMALL SMALL_EXPERTS ",\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
        "\"linear_key_head_dim\":8,\"linear_value_head_dim\":6"};
    for (uint32_t n = 0; n < 7 * 12; n++) {
        char text[640];
        snprintf(text, sizeof(text), "{\"model_type\":%s}", texts[n % 7]);
        cr_assert_geq(tool_model_config_parse(&config, "small", text, strlen(text), NULL, 0, &problem), 0, "%s", problem.text);
        const struct tool_memplan_settings s = setting(1 + n % 3, 5 * n);
        struct tool_lifetimes t;
        struct tool_memplan memplan = planned(&s);
        cr_assert(!memplan.runs && memplan.summary.element_count == tool_model_config_parameters(&config), "%s", text);
        cr_assert_eq(tool_lifetimes_create(&t, &memplan), EO_OK);
        cr_assert_eq(t.peak_bytes, memplan.summary.lower_bound_bytes, "%s, setting %u", text, n);
        check_no_overlap(&memplan, &t);
        tool_lifetimes_fini(&t);
        uint32_t found = 0, found_again = 0, wanted = 0, wanted_again = 0;
        for (uint32_t i = 0; i < config.layer_count; i++) {
            struct tool_block_row rows[TOOL_BLOCK_ROWS_MAX];
            const bool again = s.plan.recompute == EO_RECOMPUTE_BLOCKS && i < s.plan.recompute_blocks;
            const uint32_t count = tool_block_rows(&config, i, !again && s.plan.recompute == EO_RECOMPUTE_CHEAP, rows);
            uint32_t norms = 0, shared = 0;
            for (uint32_t r = 0; r < count; r++) {
                const bool cheap = rows[r].cheap && strcmp(rows[r].name, "norm") != 0 && s.plan.recompute == EO_RECOMPUTE_CHEAP;
                const uint64_t bytes =
                    s.plan.batch * 128 * rows[r].width * (rows[r].bytes ? rows[r].bytes : eo_dtype_bytes(s.plan.dtype));
                if (passes_in(&rows[r], i, again) || again || cheap)
                    check_passing(&memplan, &rows[r], bytes, text);
                else
                    wanted++;
                wanted_again += !passes_in(&rows[r], i, again) && (again || cheap);
                norms += strcmp(rows[r].name, "norm") == 0 || strcmp(rows[r].name, "output_stats") == 0;
                shared += strncmp(rows[r].name, "shared_", 7) == 0;
            }
            const bool has_shared = config.shared_width && tool_config_has_experts(&config, i);
            cr_assert_eq(shared, !has_shared ? 0 : config.gates_shared ? 4 : 2, "%s: %u rows of shared experts", text, shared);
            cr_assert_eq(norms, config.norms == TOOL_NORMS_BOTH ? 4 : 2, "%s: %u norms in a block", text, norms);
            for (uint32_t r = 0; r < memplan.summary.row_count * count; r++) {
                const struct tool_block_row *row = &rows[r % count];
                char name[EO_NAME_MAX];
                eo_plan_row planned;
                snprintf(name, sizeof(name), "block.%u.%s.%s", i, row->in_mlp ? "mlp" : "attention", row->name);
                if (eo_plan_get_row(memplan.plan, r / count, &planned) < 0 || strncmp(planned.name, name, strlen(name)) != 0)
                    continue;
                found_again += strcmp(planned.name + strlen(name), ".again") == 0;
                const bool cheap = row->cheap && strcmp(row->name, "norm") != 0 && s.plan.recompute == EO_RECOMPUTE_CHEAP;
                if (planned.name[strlen(name)] != '\0' || passes_in(row, i, again) || again || cheap)
                    continue;
                cr_assert_eq(planned.bytes, s.plan.batch * 128 * row->width * (row->bytes ? row->bytes : eo_dtype_bytes(s.plan.dtype)),
                             "%s of %s", name, text);
                cr_assert_eq(planned.category, EO_CATEGORY_ACTIVATION, "%s of %s", name, text);
                found++;
            }
        }
        cr_assert_eq(found, wanted, "%s: %u rows of %u", text, found, wanted);
        cr_assert_eq(found_again, wanted_again, "%s: %u rows of a recompute, not %u", text, found_again, wanted_again);
        tool_memplan_fini(&memplan);
    }
}

/* Goal: a step too long to be shown has the phases of one with three micro-batches. Method: lengths that are still shown as
 * they are, against three, with every recompute and two strategies: the same sums, and the same bound. */
Test(memplan, micro_batches_between_the_first_and_the_last_are_alike)
{
    static const eo_strategy strategies[] = {EO_STRATEGY_ZERO3, EO_STRATEGY_ZERO2};
    static const eo_recompute recomputes[] = {EO_RECOMPUTE_NONE, EO_RECOMPUTE_CHEAP, EO_RECOMPUTE_BLOCKS};
    load("llama-tiny");
    for (int n = 0; n < 6; n++) {
        struct tool_memplan_settings s = settings_of(4);
        struct tool_memplan many, three;
        struct tool_lifetimes a, b;
        s.plan.strategy = strategies[n % 2];
        s.plan.recompute = recomputes[n / 2];
        s.plan.recompute_blocks = 2;
        s.plan.micro_batches = 40;
        many = planned(&s);
        s.plan.micro_batches = TOOL_LIFETIMES_MICRO_BATCHES;
        three = planned(&s);
        cr_assert_eq(tool_lifetimes_create(&a, &many), EO_OK);
        cr_assert_eq(tool_lifetimes_create(&b, &three), EO_OK);
        cr_assert_eq(many.summary.lower_bound_bytes, three.summary.lower_bound_bytes);
        cr_assert_eq(a.forward_end.bytes, b.forward_end.bytes);
        for (int p = 0; p < TOOL_PHASE_COUNT; p++) {
            cr_assert_eq(a.phases[p].bytes, b.phases[p].bytes, "%s, setting %d", tool_phase_name((enum tool_phase)p), n);
            cr_assert_eq(memcmp(a.phases[p].category_bytes, b.phases[p].category_bytes, sizeof(a.phases[p].category_bytes)), 0);
        }
        tool_lifetimes_fini(&a);
        tool_lifetimes_fini(&b);
        tool_memplan_fini(&many);
        tool_memplan_fini(&three);
    }
}

/*
 * Every strategy is planned by the planner that executes it, and held against what memory must be.
 * Method: rows and bytes of tool_memplan_create against eo_plan_create with the same settings; the largest sum of live
 * bytes, made again from the list, is the lower bound; the search takes the strategy that receives least and fits, and
 * its neighbour does not fit.
 */
Test(memplan, strategies_are_planned_as_they_run)
{
    load("tiny");
    for (int k = 0; k < EO_STRATEGY_COUNT; k++) {
        for (uint32_t batches = 1; batches <= 2; batches++) {
            struct tool_memplan_settings s = settings_of(4);
            struct tool_memplan memplan;
            struct tool_lifetimes lifetimes;
            eo_plan *plan;
            eo_plan_summary summary;
            s.plan.strategy = (eo_strategy)k;
            s.plan.shard_group = 2;
            s.plan.micro_batches = batches;
            cr_assert_eq(tool_memplan_create(&memplan, &config, &s, &problem), EO_OK, "%s", problem.text);
            cr_assert_eq(eo_plan_create(&plan, tool_memplan_model(&memplan),
                                        &(eo_plan_params){.rank_count = 4,
                                                          .strategy = s.plan.strategy,
                                                          .shard_group = k == EO_STRATEGY_HSDP ? 2 : 0,
                                                          .dtype = s.plan.dtype,
                                                          .reduce_dtype = s.plan.reduce_dtype,
                                                          .micro_batches = batches,
                                                          .gather_slots = s.plan.gather_slots,
                                                          .gradient_slots = s.plan.gradient_slots}),
                         EO_OK);
            eo_plan_get_summary(plan, &summary);
            cr_assert_eq(summary.fingerprint, memplan.summary.fingerprint);
            cr_assert_eq(tool_lifetimes_create(&lifetimes, &memplan), EO_OK);
            cr_assert_eq(lifetimes.peak_bytes, summary.lower_bound_bytes, "%s", eo_strategy_name(s.plan.strategy));
            tool_lifetimes_fini(&lifetimes);
            eo_plan_destroy(&plan);
            tool_memplan_fini(&memplan);
        }
    }
}
