/* SPDX-License-Identifier: MIT
 *
 * Reports: their parts add up, published figures agree, fields of a config follow those that are set.
 */
#include "tests/unit/tools/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/plan/parts.h"
#include "tools/memplan/published/published.h"
#include "tools/memplan/report/report.h"

/* Goal: an arena far above its bound is explained by the two rows beside its largest hole. Method: no such plan is known, so
 * the bound of one with a hole is told to be smaller than it is. */
Test(memplan, a_report_names_the_pair_that_costs_more_than_5_percent)
{
    load("llama-3-8b");
    struct tool_memplan_settings s = settings_of(8);
    s.plan.seq = 8192;
    struct tool_lifetimes lifetimes;
    struct tool_memplan memplan = planned(&s);
    cr_assert_gt(memplan.summary.arena_bytes, memplan.summary.lower_bound_bytes);
    cr_assert_eq(tool_lifetimes_create(&lifetimes, &memplan), EO_OK);
    for (int told = 0; told < 2; told++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        tool_report_plan(out,
                         &(struct tool_memplan_view){
                             .config = &config, .memplan = &memplan, .shown = &memplan, .lifetimes = &lifetimes, .asked = &s});
        fclose(out);
        const char *pair = strstr(text, "lies between");
        cr_assert_eq(pair != NULL, told, "%s", text);
        free(text);
        memplan.summary.lower_bound_bytes = memplan.summary.arena_bytes / 12 * 10;
    }
    tool_lifetimes_fini(&lifetimes);
    tool_memplan_fini(&memplan);
}

Test(memplan, published_figures_agree)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const uint32_t wrong = tool_published_print(out);
    fclose(out);
    cr_assert_eq(wrong, 0, "%s", text);
    uint32_t lines = 0;
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    cr_assert_geq(lines, 2 + 7 + 3 + 3 + 4 + 2 * 16);
    free(text);
}

/* Terms of two rows of the sixteen: shards, buffers, activations, head, scratch. */
Test(memplan, yafsdp_rules_give_its_terms)
{
    load("llama-2-7b");
    struct tool_yafsdp_estimate e = tool_yafsdp_estimate(&config, 64, 2048, UINT64_MAX);
    cr_assert_eq(e.unit_elements, 202375168);
    cr_assert_eq(e.norm_elements, 266240);
    cr_assert_eq(e.shard_bytes, 1895179392);
    cr_assert_eq(e.buffer_bytes, 2429566976);
    cr_assert_eq(e.activations_full_bytes, 8632401920);
    cr_assert_eq(e.activations_cheap_bytes, 6115819520);
    cr_assert_eq(e.head_bytes, 164626432);
    cr_assert_eq(e.scratch_bytes, 185597952);
    load("llama-2-70b");
    e = tool_yafsdp_estimate(&config, 256, 4096, (uint64_t)(77.15 * 1073741824.0));
    cr_assert_eq(e.least_recompute_full, 24);
    cr_assert_eq(e.least_recompute_cheap, 0);
}

/* Goal: the parts of the answer add up to the bytes of a GPU, whatever is planned. Method: grid of settings and strategies; the
 * parts against the total, which is made of the plan's own spaces. */
Test(memplan, the_parts_at_the_peak_add_up_to_the_total)
{
    static const char *const models[] = {"tiny", "llama-tiny", "qwen3-tiny", "mixtral-8x7b"};
    static const char *const kernels[] = {"cpu", "cuda"};
    for (uint32_t n = 0; n < 160; n++) {
        struct tool_memplan_settings s = setting(8, n);
        uint64_t parts[TOOL_PART_COUNT], sum = 0;
        load(models[n % 4]);
        s.plan.strategy = (eo_strategy)(n / 4 % EO_STRATEGY_COUNT);
        s.plan.shard_group = s.plan.strategy == EO_STRATEGY_HSDP ? 4 : 0;
        s.plan.float8_gather = s.plan.float8_gather && s.plan.strategy != EO_STRATEGY_DDP; /* gathers nothing */
        s.plan.device = kernels[n / 2 % 2];
        if (n / 2 % 2)
            s.plan.reduce_dtype = EO_DTYPE_FP32;
        struct tool_memplan memplan = planned(&s);
        tool_parts_of(&memplan, parts);
        for (int p = 0; p < TOOL_PART_COUNT; p++) {
            cr_assert_lt(parts[p], memplan.total_bytes + 1, "%s of setting %u", tool_part_name((enum tool_part)p), n);
            sum += parts[p];
        }
        cr_assert_eq(sum, memplan.total_bytes, "setting %u: %llu, and the total is %llu", n, (unsigned long long)sum,
                     (unsigned long long)memplan.total_bytes);
        tool_memplan_fini(&memplan);
    }
}

/* Goal: a field that follows another does so where nobody has fixed it; a key that does not exist is refused with the nearest.
 * Method: presets of the layers, published shapes and texts, with sets. */
Test(memplan, fields_follow_those_that_are_set)
{
    static const struct {
        const char *model, *sets[2];
        uint32_t mlp_width, kv_heads, head_size, fixed;
    } cases[] = {
        {"gpt2", {"n_embd=1024", "n_head=16"}, 4096, 16, 64, 0},
        {"gpt2", {"n_embd=1024", "n_inner=3000"}, 3000, 0, 0, 0},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"n_inner\":256,\"vocab_size\":99}",
         {"n_embd=128"},
         256,
         4,
         32,
         1},
        {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"n_inner\":256,\"vocab_size\":99}",
         {"n_embd=128", "n_inner=null"},
         512,
         4,
         32,
         0},
        {"llama-2-7b", {"num_attention_heads=64"}, 11008, 32, 64, 1},
        {"llama-2-7b", {"num_attention_heads=64", "num_key_value_heads=null"}, 11008, 64, 64, 0},
        {"llama-3-8b", {"hidden_size=8192"}, 14336, 8, 256, 0},
        {"llama-3.2-1b", {"hidden_size=4096"}, 8192, 8, 64, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *model = cases[i].model;
        const uint32_t count = cases[i].sets[1] ? 2 : 1;
        const eo_status status =
            model[0] == '{' ? tool_model_config_parse(&config, "a text", model, strlen(model), cases[i].sets, count, &problem)
                            : tool_model_config_load(&config, model, cases[i].sets, count, &problem);
        if (i == 1) { /* 12 heads do not divide 1024 */
            cr_assert_eq(status, EO_ERR_INVALID);
            continue;
        }
        cr_assert_eq(status, EO_OK, "%s", problem.text);
        cr_assert(config.mlp_width == cases[i].mlp_width && config.kv_head_count == cases[i].kv_heads &&
                      config.head_size == cases[i].head_size && config.fixed_count == cases[i].fixed,
                  "case %zu: MLP %u, %u heads of keys, heads of %u, %u fixed", i, config.mlp_width, config.kv_head_count,
                  config.head_size, config.fixed_count);
    }
    static const char *const wrong[][3] = {{"gpt2", "n_layers=3", "did you mean n_layer?"},
                                           {"llama-3-8b", "n_layer=3", "did you mean num_hidden_layers?"},
                                           {"gpt2", "intermediate_size=64", "did you mean n_inner?"},
                                           {"llama-3-8b", "num_key_values_heads=3", "did you mean num_key_value_heads?"},
                                           {"mixtral-8x7b", "num_experts_per_token=1", "did you mean num_experts_per_tok?"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_eq(tool_model_config_load(&config, wrong[i][0], &wrong[i][1], 1, &problem), EO_ERR_INVALID);
        cr_assert(strstr(problem.text, wrong[i][2]), "%s", problem.text);
    }
}

/* Goal: figures of others follow their rules. Method: DeepSpeed's of Mixtral, whose module of experts is one leaf; Megatron's
 * activations by hand, with and without recompute. */
Test(memplan, figures_of_others_follow_their_rules)
{
    load("mixtral-8x7b");
    const struct tool_deepspeed_estimate d = tool_deepspeed_estimate(&config, 64);
    cr_assert_eq(d.largest_elements, 8u * 3 * 14336 * 4096);
    cr_assert_float_eq(tool_gib(d.zero3_bytes), 17.5, 0.05);
    load("llama-2-7b");
    const uint64_t tokens = 2 * 4096, h = 4096, f = 11008, once = 8 * tokens + tokens * h + 4 * tokens * (h + 32000);
    cr_assert_eq(tool_megatron_estimate(&config, 8, 2, 4096, 0).activation_bytes, 32 * tokens * (18 * h + 4 * f) + once);
    cr_assert_eq(tool_megatron_estimate(&config, 8, 2, 4096, 32).activation_bytes, 32 * tokens * 2 * h + once);
    cr_assert_eq(tool_megatron_estimate(&config, 8, 2, 4096, 8).activation_bytes,
                 24 * tokens * (18 * h + 4 * f) + 8 * tokens * 2 * h + once);
}
