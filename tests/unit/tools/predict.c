/* SPDX-License-Identifier: MIT
 *
 * Predicted steps of blocks that were tried out. Goal: each time stands where it belongs, once, and only for its own shape.
 * Method: one rank, which exchanges nothing, with times of different powers of ten: their sum is worked out by hand.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tools/planning/budget.h"
#include "tools/planning/predict.h"

enum { BLOCKS = 3, TOKENS = 2 * 32 };

static const eo_transformer_config config = {.family = EO_FAMILY_GPT2, .layer_count = BLOCKS, .width = 64, .head_count = 4,
                                             .kv_head_count = 4, .head_size = 16, .mlp_width = 256, .vocabulary = 256, .context = 32,
                                             .tied_head = true, .norm_eps = 1e-5f};

static struct tool_plan_settings settings_of_tests(void)
{
    return (struct tool_plan_settings){.ranks = 1, .strategy = EO_STRATEGY_ZERO3, .batch = 2, .seq = 32, .micro_batches = 1,
                                       .gather_slots = 2, .gradient_slots = 2, .head_chunks = 1, .device = "cpu", .threads = 1};
}

static struct tool_rates rates_for(const struct tool_plan_settings *settings)
{
    struct tool_rates rates = {.products_flops_per_s = 1e21, .memory_bytes_per_s = 1e21, .link_bytes_per_s = 1e21};
    rates.tried = (struct tool_tried){.block_forward_s = 1e-3, .block_backward_s = 1e-2, .head_s = 1,
                                      .embedding_forward_s = 10, .embedding_backward_s = 100 * TOKENS};
    tool_tried_shape(settings, &config, rates.tried.shape);
    return rates;
}

/* For a token, in ms. */
static double predicted(const struct tool_plan_settings *settings, const struct tool_rates *rates)
{
    const eo_log silence = {0};
    struct tool_budget_option option;
    cr_assert_geq(tool_budget_evaluate(settings, &config, rates, true, &silence, &option), 0);
    return option.step_s / TOKENS * 1e3;
}

Test(predict, times_of_blocks_add_up)
{
    struct tool_plan_settings settings = settings_of_tests();
    const struct tool_rates rates = rates_for(&settings);
    const double once = 111000 + BLOCKS * 11;
    cr_assert_float_eq(predicted(&settings, &rates), once, 1e-3, "%g", predicted(&settings, &rates));
    settings.recompute = EO_RECOMPUTE_CHEAP; /* of bytes, whose rate has no end here */
    cr_assert_float_eq(predicted(&settings, &rates), once, 1e-3, "%g", predicted(&settings, &rates));
    settings.recompute = EO_RECOMPUTE_BLOCKS;
    settings.recompute_blocks = 2;
    cr_assert_float_eq(predicted(&settings, &rates), once + 2, 1e-3, "%g", predicted(&settings, &rates));
    struct tool_rates warm = rates; /* as tried, where that was */
    warm.tried.block_recompute_s = 0.5e-3;
    cr_assert_float_eq(predicted(&settings, &warm), once + 1, 1e-3, "%g", predicted(&settings, &warm));
    settings = settings_of_tests();
    settings.half_blocks = true;
    cr_assert_float_eq(predicted(&settings, &rates), once, 1e-3, "%g", predicted(&settings, &rates));
    settings = settings_of_tests();
    settings.micro_batches = 2;
    cr_assert_float_eq(predicted(&settings, &rates), 2 * once, 1e-3, "%g", predicted(&settings, &rates));
    settings = settings_of_tests();
    settings.batch = 4; /* tokens of the embedding's backward pass cost nothing */
    cr_assert_float_eq(predicted(&settings, &rates), 2 * once - 1e5, 1e-3, "%g", predicted(&settings, &rates));
}

/* An update of 1 s an element is all of the time. */
Test(predict, an_update_takes_its_time_an_element)
{
    struct tool_plan_settings settings = settings_of_tests();
    struct tool_rates rates = rates_for(&settings);
    char shape[TOOL_TRIED_SHAPE_MAX];
    eo_transformer *transformer;
    struct tool_plan_params params = tool_plan_params_of(&settings, &config, &(eo_log){0});
    eo_plan *plan;
    eo_plan_summary summary;
    memcpy(shape, rates.tried.shape, sizeof(shape));
    rates.tried = (struct tool_tried){.update_s = 1};
    memcpy(rates.tried.shape, shape, sizeof(shape));
    cr_assert_geq(eo_transformer_create(&transformer, &params.transformer), 0);
    cr_assert_geq(eo_plan_create(&plan, eo_transformer_model(transformer), &params.plan), 0);
    eo_plan_get_summary(plan, &summary);
    cr_assert_float_eq(predicted(&settings, &rates) * 1e-3 * TOKENS / (double)summary.element_count, 1, 0.02);
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
}

/* Goal: what reads and writes elements takes their time: sums of a whole buffer where gradients stay whole, norms and updates
 * of a rank's shard, with an average or without. Method: a rank's memory alone has a rate; each operation of the plan by hand.
 */
Test(predict, sums_norms_and_updates_take_the_bytes_of_their_elements)
{
    for (int k = 0; k < 6; k++) {
        struct tool_plan_settings settings = settings_of_tests();
        settings.ranks = 2;
        settings.strategy = k < 4 ? EO_STRATEGY_ZERO1 : EO_STRATEGY_ZERO3;
        settings.micro_batches = k % 2 ? 2 : 1;
        settings.reduce_dtype = k < 2 ? EO_DTYPE_FP32 : EO_DTYPE_BF16;
        settings.ema_decay = k == 5 ? 0.9 : 0;
        struct tool_rates rates = rates_for(&settings);
        char shape[TOOL_TRIED_SHAPE_MAX];
        memcpy(shape, rates.tried.shape, sizeof(shape));
        rates.tried = (struct tool_tried){.update_s = 0};
        memcpy(rates.tried.shape, shape, sizeof(shape));
        rates.memory_bytes_per_s = 1e6;
        eo_transformer *transformer;
        struct tool_plan_params params = tool_plan_params_of(&settings, &config, &(eo_log){0});
        eo_plan *plan;
        double bytes = 0;
        cr_assert_geq(eo_transformer_create(&transformer, &params.transformer), 0);
        cr_assert_geq(eo_plan_create(&plan, eo_transformer_model(transformer), &params.plan), 0);
        for (uint32_t i = 0; i < eo_plan_operation_count(plan, EO_LIST_STEADY); i++) {
            eo_plan_operation o;
            eo_shard_range shard = {0};
            cr_assert_geq(eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o), 0);
            if (o.layer != UINT32_MAX)
                cr_assert_geq(eo_plan_shard_range(plan, o.layer, 0, &shard), 0);
            /* Of reductions in bf16 what has one contribution is a shard when it is added up. */
            const bool is_whole = settings.strategy == EO_STRATEGY_ZERO1 && settings.micro_batches > 1;
            bytes += (double)shard.count * (o.kind == EO_OP_ACCUMULATE     ? 12 * (is_whole ? shard.ranks : 1)
                                            : o.kind == EO_OP_NORM_PARTIAL ? 4
                                            : o.kind == EO_OP_UPDATE       ? 28 + (settings.ema_decay > 0 ? 12 : 0)
                                                                           : 0);
        }
        cr_assert_float_eq(predicted(&settings, &rates) * 1e-3 * TOKENS, bytes / 1e6, 1e-4 * bytes / 1e6, "case %d: %g, not %g",
                           k, predicted(&settings, &rates) * 1e-3 * TOKENS, bytes / 1e6);
        eo_plan_destroy(&plan);
        eo_transformer_destroy(&transformer);
    }
}

Test(predict, another_shape_goes_by_rates)
{
    struct tool_plan_settings settings = settings_of_tests();
    const struct tool_rates rates = rates_for(&settings);
    struct tool_plan_settings others[] = {settings, settings, settings, settings, settings, settings, settings};
    others[0].threads = 2;
    others[1].seq = 16;
    others[2].reduce_dtype = EO_DTYPE_BF16;
    others[3].dropout = 0.1;
    others[4].lora.rank = 2;
    others[5].optimizer = EO_OPTIMIZER_LION;
    others[6].ema_decay = 0.9;
    snprintf(others[4].lora.targets, sizeof(others[4].lora.targets), "all-linear");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_assert_lt(predicted(&others[i], &rates), 1, "case %zu", i);
}
