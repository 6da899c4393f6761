/* SPDX-License-Identifier: MIT
 *
 * Goal: every strategy runs as it is planned, and ends in the bits of a training written out whose sums are in the
 * order that the strategy says (written_out.h); a rank that holds the same parts holds the same bits.
 * Method: models with tied and frozen layers and large edges; 2 and 4 ranks, 1 to 3 micro-batches, fp32 and bf16,
 * slots, streams, reservations and random delays that may change no number. EO_TEST_FULL=1 takes all combinations.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/ranks.h"
#include "tests/unit/plan/models.h"
#include "tests/conformance/written_out.h"

static const struct {
    eo_strategy strategy;
    uint32_t ranks, group;
} cases[] = {
    {EO_STRATEGY_ZERO2, 2, 0}, {EO_STRATEGY_ZERO2, 4, 0}, {EO_STRATEGY_ZERO1, 2, 0}, {EO_STRATEGY_ZERO1, 4, 0},
    {EO_STRATEGY_ZERO1, 1, 0}, {EO_STRATEGY_DDP, 1, 0},   {EO_STRATEGY_DDP, 2, 0},   {EO_STRATEGY_DDP, 4, 0},
    {EO_STRATEGY_HSDP, 4, 2},  {EO_STRATEGY_HSDP, 4, 4},  {EO_STRATEGY_HSDP, 4, 1},  {EO_STRATEGY_HSDP, 2, 1},
};

static void check(struct scene *scene, uint32_t variant)
{
    eo_plan_params *s = &scene->settings;
    s->gather_slots = 1 + variant % 3;
    s->gradient_slots = 1 + variant / 3 % 2;
    s->separate_reduce_stream = variant % 2;
    s->norms_beside = variant % 3 == 1;
    s->separate_reservations = variant / 2 % 2;
    s->no_prefetch = variant % 5 == 4;
    scene->debug = variant % 4 != 3;
    plan_anew(scene);
    make_reference(scene);
    run(scene);
    free(scene->reference);
}

int main(void)
{
    static const char *const models[] = {"tied", "frozen", "edges", "frozen_tied", "tied_in_the_middle", "fp32_beside", "mixed"};
    static const eo_dtype types[][2] = {{EO_DTYPE_FP32, EO_DTYPE_FP32},
                                        {EO_DTYPE_BF16, EO_DTYPE_FP32},
                                        {EO_DTYPE_BF16, EO_DTYPE_BF16}};
    uint32_t variant = 0;
    device_name = getenv("EO_TEST_DEVICE");
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        uint32_t n = (uint32_t)c;
        for (uint32_t t = 0; t < 3; t++) {
            for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
                for (uint32_t batches = 1; batches <= 3; batches++, n++) {
                    if (!eo_test_full() && n % 5 != 0)
                        continue;
                    const bool gathers = cases[c].strategy != EO_STRATEGY_DDP && cases[c].group != 1 && cases[c].ranks > 1;
                    struct scene scene = {.model_name = models[m],
                                          .model = eo_plan_model(models[m]),
                                          .settings = {.rank_count = cases[c].ranks, .strategy = cases[c].strategy,
                                                       .shard_group = cases[c].group, .micro_batches = batches,
                                                       .dtype = types[t][0], .reduce_dtype = types[t][1],
                                                       .float8_gather = gathers && types[t][0] && n / 5 % 2 && m < 6,
                                                       .log = &eo_test_log}};
                    for (uint32_t v = 0; v < (eo_test_full() ? 6 : 1); v++)
                        check(&scene, variant++);
                    eo_plan_destroy(&scene.plan);
                    eo_model_destroy(&scene.model);
                }
            }
        }
        char name[128];
        snprintf(name, sizeof(name), "%s in groups of %u ends in the bits written out",
                 eo_strategy_name(cases[c].strategy), cases[c].group ? cases[c].group : cases[c].ranks);
        test_report(name, cases[c].ranks);
    }
    return tap_end();
}
