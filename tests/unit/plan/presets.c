/* SPDX-License-Identifier: MIT
 *
 * Plans of the transformers that ship with the library: every preset, proven, and how near their memory comes to the
 * lower bound. The short run takes the presets up to gpt2 and every other setting; EO_TEST_FULL=1 takes all.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <evenodd/layers.h>

#include "runtime/plan/internal.h"
#include "tests/unit/plan/mutate.h"
#include "tests/unit/plan/models.h"

struct shape {
    uint32_t batch, seq;
    eo_recompute recompute;
    uint32_t recompute_blocks;
    bool half_blocks;
};

static eo_transformer *transformer_of(const char *preset, const struct shape *shape)
{
    eo_transformer *transformer;
    eo_transformer_params params = {
        .batch = shape->batch,
        .seq = shape->seq,
        .recompute = shape->recompute,
        .recompute_blocks = shape->recompute_blocks,
        .half_blocks = shape->half_blocks,
        .log = &eo_test_log,
    };
    cr_assert_eq(eo_transformer_preset(preset, &params.config), EO_OK);
    cr_assert_eq(eo_transformer_create(&transformer, &params), EO_OK, "%s", eo_test_text);
    return transformer;
}

static bool in_short_run(const char *preset)
{
    return strcmp(preset, "gpt2-medium") != 0 && strcmp(preset, "gpt2-large") != 0 && strcmp(preset, "gpt2-xl") != 0 &&
           strcmp(preset, "llama-1b") != 0;
}

/*
 * Every preset x ranks x slots x micro-batches x recompute has a plan, which means that its proof passed.
 * Method: eo_plan_create, which proves. Arena and lower bound are held against each other on the way.
 */
Test(plan_presets, every_preset_passes_its_proof, .timeout = 1500)
{
    static const uint32_t slots[][2] = {{1, 1}, {2, 2}, {3, 2}, {2, 1}}, short_ranks[] = {1, 2, 3, 4, 8};
    static const struct {
        eo_recompute kind;
        uint32_t blocks;
    } recompute[] = {{EO_RECOMPUTE_NONE, 0}, {EO_RECOMPUTE_CHEAP, 0}, {EO_RECOMPUTE_BLOCKS, 1},
                     {EO_RECOMPUTE_BLOCKS, UINT32_MAX}};
    uint32_t plans = 0;
    const char *preset;
    for (uint32_t i = 0; (preset = eo_transformer_preset_name(i)); i++) {
        if (!eo_test_full() && !in_short_run(preset))
            continue;
        for (uint32_t r = 0; r < 4; r++) {
            const struct shape shape = {.batch = 1, .seq = 256, .recompute = recompute[r].kind,
                                        .recompute_blocks = recompute[r].blocks};
            eo_transformer *transformer = transformer_of(preset, &shape);
            for (uint32_t c = 0; c < 64; c++) {
                const uint32_t ranks = 1 + c % 8, s = c / 8 % 4, batches = c / 32 ? 3 : 1;
                bool wanted = eo_test_full();
                for (int k = 0; k < 5; k++)
                    wanted = wanted || (ranks == short_ranks[k] && (c + r) % 2 == 0);
                if (!wanted)
                    continue;
                eo_plan *plan;
                const eo_status status =
                    eo_plan_create(&plan, eo_transformer_model(transformer),
                                   eo_plan_params(.rank_count = ranks, .gather_slots = slots[s][0],
                                                  .gradient_slots = slots[s][1], .micro_batches = batches,
                                                  .optimizer = c % 3 == 0 ? EO_OPTIMIZER_MUON : EO_OPTIMIZER_ADAMW,
                                                  .dtype = r == 2 ? EO_DTYPE_BF16 : EO_DTYPE_FP32,
                                                  .float8_gather = r == 2 && ranks > 1, .log = &eo_test_log));
                cr_assert_eq(status, EO_OK, "%s, %u ranks, slots %u,%u, %u micro-batches: %s", preset, ranks,
                             slots[s][0], slots[s][1], batches, eo_test_text);
                eo_plan_summary summary;
                eo_plan_get_summary(plan, &summary);
                cr_assert_leq(summary.lower_bound_bytes, summary.arena_bytes);
                plans++;
                eo_plan_destroy(&plan);
            }
            eo_transformer_destroy(&transformer);
        }
    }
    cr_assert_geq(plans, 300);
    fprintf(stderr, "%u plans proven\n", plans);
}

/*
 * No arena lies more than 5 % above the largest sum of live bytes.
 * Method: all presets in six shapes, one to eight ranks, one and three micro-batches, default slots.
 */
Test(plan_presets, arenas_are_near_their_lower_bound, .timeout = 1500)
{
    static const struct shape shapes[] = {{.batch = 1}, {.batch = 1, .seq = 256}, {.batch = 4, .seq = 256},
                                          {.batch = 4, .seq = 256, .recompute = EO_RECOMPUTE_CHEAP},
                                          {.batch = 4, .seq = 256, .recompute = EO_RECOMPUTE_BLOCKS,
                                           .recompute_blocks = UINT32_MAX},
                                          {.batch = 4, .seq = 256, .half_blocks = true}};
    static const uint32_t ranks[] = {1, 2, 4, 8};
    uint32_t plans = 0, above = 0;
    double worst = 0;
    char worst_text[160] = "";
    const char *preset;
    for (uint32_t i = 0; (preset = eo_transformer_preset_name(i)); i++) {
        for (uint32_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            eo_transformer *transformer = transformer_of(preset, &shapes[s]);
            for (uint32_t c = 0; c < 8; c++) {
                if (!eo_test_full() && (i + s + c) % 2)
                    continue;
                eo_plan *plan;
                eo_plan_summary summary;
                cr_assert_eq(eo_plan_create(&plan, eo_transformer_model(transformer),
                                            eo_plan_params(.rank_count = ranks[c % 4], .micro_batches = c / 4 ? 3 : 1,
                                                           .log = &eo_test_log)),
                             EO_OK, "%s", eo_test_text);
                eo_plan_get_summary(plan, &summary);
                const double ratio = (double)summary.arena_bytes / (double)summary.lower_bound_bytes;
                char text[160];
                const eo_transformer_params *p = eo_transformer_get_params(transformer);
                snprintf(text, sizeof(text), "%s, batch %u, seq %u, recompute %d%s, %u ranks, %u micro-batches: %.4f",
                         preset, p->batch, p->seq, (int)p->recompute, p->half_blocks ? ", half blocks" : "",
                         ranks[c % 4], c / 4 ? 3 : 1, ratio);
                if (ratio > worst) {
                    worst = ratio;
                    memcpy(worst_text, text, sizeof(text));
                }
                if (ratio > 1.05) {
                    above++;
                    fprintf(stderr, "above: %s\n", text);
                }
                plans++;
                eo_plan_destroy(&plan);
            }
            eo_transformer_destroy(&transformer);
        }
    }
    fprintf(stderr, "%u arenas, %u above 1.05 x their lower bound, the worst: %s\n", plans, above, worst_text);
    cr_assert_gt(plans, 0);
    cr_assert_eq(above, 0, "%u of %u arenas lie above 1.05 x their lower bound", above, plans);
}

/*
 * No wait of a transformer's lists can be missing either.
 * Method: as for the small models, on presets with few layers.
 */
Test(plan_presets, no_wait_can_be_missing, .timeout = 1500)
{
    static const char *const presets[] = {"tiny", "gpt2", "llama-tiny", "llama-1b"};
    uint32_t waits = 0, by_version = 0;
    for (uint32_t i = 0; i < 4; i++) {
        eo_transformer *transformer = transformer_of(presets[i], &(struct shape){.batch = 1, .seq = 256});
        for (uint32_t c = 0; c < 4; c++) {
            eo_plan *plan;
            cr_assert_eq(eo_plan_create(&plan, eo_transformer_model(transformer),
                                        eo_plan_params(.rank_count = 2, .gather_slots = 1 + c % 3, .gradient_slots = 1 + c % 2,
                                                       .micro_batches = c > 1 ? 3 : 1, .separate_reduce_stream = c == 1,
                                                       .norms_beside = c > 0, .input_gradients = true, .log = &eo_test_log)),
                         EO_OK, "%s", eo_test_text);
            struct eo_mutations found[EO_LIST_COUNT];
            cr_assert_eq(eo_mutate_lists(&plan->schedule, found), EO_OK);
            for (int list = 0; list < EO_LIST_COUNT; list++) {
                cr_assert_eq(found[list].uncaught, 0, "%s: %u waits of list %d can be missing", presets[i],
                             found[list].uncaught, list);
                cr_assert(found[list].caught > 0 || list == EO_LIST_UPDATES); /* no layer is offloaded here */
                waits += found[list].caught;
                by_version += found[list].caught_as[EO_HAZARD_STALE];
            }
            eo_plan_destroy(&plan);
        }
        eo_transformer_destroy(&transformer);
    }
    fprintf(stderr, "%u waits taken away and missed, %u of them by versions alone\n", waits, by_version);
}
