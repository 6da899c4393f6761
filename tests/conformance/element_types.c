/* SPDX-License-Identifier: MIT
 *
 * Element types: weights in fp32 and as split bf16, reductions in fp32 and bf16. Every memory mode, with any slots and
 * streams, ends in the bits of a training written out (written_out.h) without shards, buffers or streams: sums are
 * over ranks in rank order, then over contributions in the order of backward passes. On the CPU the short run takes every
 * second model in turn, EO_TEST_FULL=1 all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/ranks.h"
#include "runtime/plan/internal.h"
#include "streams/bf16.h"
#include "tests/unit/plan/models.h"
#include "tests/conformance/written_out.h"

/* -- an optimizer of the trainer's own -------------------------------------------------------------------------------*/

struct descent {
    bool split, doubled;
};

/* Exact, so a rate of one half undoes it. */
static void twice(void *user, const eo_shard *shard)
{
    ((struct descent *)user)->doubled = true;
    for (uint32_t p = 0; p < shard->part_count; p++)
        for (uint64_t i = 0; i < shard->parts[p].count; i++)
            shard->gradient[shard->parts[p].at + i] *= 2;
}

/* Host memory: this optimizer is for the CPU. */
static void descend(void *user, const eo_shard *shard)
{
    const struct descent *descent = user;
    const bool split = descent->split;
    const float rate = descent->doubled ? 5e-4f : 1e-3f;
    if (split != !shard->weights || split != (shard->weights_high && shard->weights_low))
        TEST_EXPECT(NULL, false, "weights in the wrong form");
    for (uint64_t i = 0; i < shard->count; i++) {
        const float weight = split ? eo_bf16_join(shard->weights_high[i], shard->weights_low[i]) : shard->weights[i];
        volatile float change = rate * shard->gradient[i];
        if (split)
            eo_bf16_split(weight - change, &shard->weights_high[i], &shard->weights_low[i]);
        else
            shard->weights[i] = weight - change;
    }
}

static eo_status keep_weights(void *user, const eo_parameter_info *info, const float *values)
{
    float **at = user;
    memcpy(*at, values, info->element_count * sizeof(float));
    *at += info->element_count;
    return EO_OK;
}

/*
 * Goal: a trainer's optimizer works on both halves as it does on whole weights.
 * Method: the same descent in static mode, where they are split, and in dynamic mode, where they are not, and where every
 * parameter's gradient is doubled before.
 */
static void check_own_optimizer(void)
{
    struct scene scene = {.model = eo_plan_model("tied"),
                          .own_update = true,
                          .settings = {.rank_count = 1, .dtype = EO_DTYPE_BF16, .log = &eo_test_log}};
    plan_anew(&scene);
    float *weights[2];
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        struct descent descent = {.split = !dynamic};
        eo_runtime *rt;
        must(eo_world_create_local(scene.worlds, eo_world_params(.log = &eo_test_log)), "world", NULL);
        must(eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0], .update = descend,
                                                      .update_user = &descent, .gradient = dynamic ? twice : NULL,
                                                      .gradient_user = &descent, .log = &eo_test_log,
                                                      .memory = dynamic ? EO_MEMORY_DYNAMIC_POOL : EO_MEMORY_STATIC)),
             "create", NULL);
        fill(rt, scene.plan);
        for (uint32_t step = 0; step < STEPS; step++)
            run_step(rt, &scene, 0, step);
        weights[dynamic] = malloc(scene.plan->element_count * sizeof(float));
        float *at = weights[dynamic];
        must(eo_weights_visit(rt, keep_weights, &at), "visit", rt);
        eo_runtime_destroy(&rt);
        eo_world_destroy(&scene.worlds[0]);
    }
    TEST_HOLDS(NULL, memcmp(weights[0], weights[1], scene.plan->element_count * sizeof(float)) == 0);
    TEST_HOLDS(NULL, weights[0][0] != first_weight(0, 0));
    free(weights[0]);
    free(weights[1]);
    eo_plan_destroy(&scene.plan);
    eo_model_destroy(&scene.model);
}

/* One reference; then every mode, and slots, streams and reservations that change no number. */
static void check_numbers(struct scene *scene)
{
    static const eo_memory memories[] = {EO_MEMORY_STATIC, EO_MEMORY_DYNAMIC_MALLOC, EO_MEMORY_DYNAMIC_POOL,
                                         EO_MEMORY_DYNAMIC_CACHING};
    plan_anew(scene);
    make_reference(scene);
    const bool is_mixed = scene->plan->layer_count > eo_model_layer_count(scene->model); /* for planned memory alone */
    for (size_t m = 0; m < (is_mixed || scene->settings.float8_frozen ? 1 : sizeof(memories) / sizeof(memories[0])); m++) {
        scene->memory = memories[m];
        scene->debug = memories[m] == EO_MEMORY_STATIC;
        run(scene);
        scene->dynamic_offload = memories[m] == EO_MEMORY_DYNAMIC_POOL && !scene->settings.float8_gather;
        if (scene->dynamic_offload)
            run(scene);
        scene->dynamic_offload = false;
    }
    scene->memory = EO_MEMORY_STATIC;
    scene->debug = false; /* weights are then read into memory that passes use */
    run(scene);
    scene->debug = true;
    for (uint32_t slots = 1; slots <= 3; slots += 2) {
        scene->settings.gather_slots = slots;
        scene->settings.gradient_slots = 4 - slots;
        scene->settings.separate_reduce_stream = slots == 3;
        scene->settings.separate_reservations = slots == 3;
        scene->settings.no_prefetch = slots == 1;
        plan_anew(scene);
        run(scene);
    }
    free(scene->reference);
}

static bool is_in_this_run(size_t turn)
{
    return turn % 2 == 0 || eo_test_full() || (device_name && strcmp(device_name, "cpu") != 0);
}

/*
 * Goal: frozen weights in MXFP8 are those of the formula in every pass, and when they are read; what is trained beside them is
 * as ever. Blocks do not depend on the number of ranks.
 * Method: as all; models with frozen matrices in layers of their own, in edges, tied, and beside trainable ones; strategies that
 * gather for each use, in groups, once and for all, and not at all; with and without prefetch.
 */
static void check_mxfp8(void)
{
    static const char *const models[] = {"frozen", "frozen_tied", "all_frozen", "fp32_beside", "mixed"};
    static const struct {
        uint32_t ranks;
        eo_strategy strategy;
        uint32_t group, micro_batches;
    } worlds[] = {{1, EO_STRATEGY_ZERO3, 0, 1}, {2, EO_STRATEGY_ZERO3, 0, 2}, {3, EO_STRATEGY_ZERO3, 0, 1},
                  {4, EO_STRATEGY_HSDP, 2, 2}, {2, EO_STRATEGY_DDP, 0, 2}, {3, EO_STRATEGY_ZERO2, 0, 1},
                  {2, EO_STRATEGY_ZERO1, 0, 2}};
    for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
        for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                if (!is_in_this_run(w + m + (size_t)bf16))
                    continue;
                struct scene scene = {.model_name = models[m],
                                      .model = eo_plan_model(models[m]),
                                      .settings = {.rank_count = worlds[w].ranks, .strategy = worlds[w].strategy,
                                                   .shard_group = worlds[w].group, .micro_batches = worlds[w].micro_batches,
                                                   .dtype = bf16 ? EO_DTYPE_BF16 : EO_DTYPE_FP32, .float8_frozen = true,
                                                   .ema = m % 2, .no_prefetch = (w + m) % 3 == 0, .log = &eo_test_log}};
                check_numbers(&scene);
                eo_plan_destroy(&scene.plan);
                eo_model_destroy(&scene.model);
            }
        char name[128];
        snprintf(name, sizeof(name), "frozen weights in MXFP8, %s: the bits written out", eo_strategy_name(worlds[w].strategy));
        test_report(name, worlds[w].ranks);
    }
}

static bool has_device(void)
{
    const struct eo_device_params params = {.queue_count = 3, .ring_capacity = 8, .rank_count = 1, .event_count = 4,
                                            .stamp_count = 4};
    struct eo_device *device = NULL;
    const eo_status status = eo_device_create(&device, device_name, &params);
    eo_device_destroy(&device);
    return status != EO_ERR_UNSUPPORTED;
}

int main(void)
{
    static const char *const models[] = {"tied", "frozen", "edges", "tied_in_the_middle", "fp32_beside", "mixed"};
    static const eo_dtype types[][2] = {{EO_DTYPE_FP32, EO_DTYPE_FP32},
                                        {EO_DTYPE_BF16, EO_DTYPE_FP32},
                                        {EO_DTYPE_BF16, EO_DTYPE_BF16},
                                        {EO_DTYPE_FP32, EO_DTYPE_BF16},
                                        {EO_DTYPE_BF16, EO_DTYPE_FP32},
                                        {EO_DTYPE_BF16, EO_DTYPE_BF16}}; /* the last two gathered in float8 */
    device_name = getenv("EO_TEST_DEVICE");
    if (device_name && !has_device())
        return tap_skip_all("there is no device %s here", device_name);
    for (uint32_t t = 0; t < 6; t++) {
        const bool float8 = t >= 4;
        for (uint32_t ranks = float8 ? 2 : 1; ranks <= 3; ranks++) {
            for (size_t m = 0; m < sizeof(models) / sizeof(models[0]) - float8; m++) { /* float8 does not take the last */
                if (!is_in_this_run(t + ranks + m))
                    continue;
                struct scene scene = {.model_name = models[m],
                                      .model = eo_plan_model(models[m]),
                                      .settings = {.rank_count = ranks, .micro_batches = 1 + (uint32_t)m % 3,
                                                   .dtype = types[t][0], .reduce_dtype = types[t][1],
                                                   .float8_gather = float8, .ema = (t + m) % 2, .log = &eo_test_log}};
                check_numbers(&scene);
                eo_plan_destroy(&scene.plan);
                eo_model_destroy(&scene.model);
            }
            char name[128];
            snprintf(name, sizeof(name), "weights in %s%s, reductions in %s: all modes have the bits written out",
                     types[t][0] ? "bf16" : "fp32", float8 ? " gathered in float8" : "", types[t][1] ? "bf16" : "fp32");
            test_report(name, ranks);
        }
    }
    check_mxfp8();
    if (!device_name || strcmp(device_name, "cpu") == 0) {
        check_own_optimizer();
        test_report("an optimizer of the trainer's own works on both halves as on whole weights", 1);
    }
    return tap_end();
}
