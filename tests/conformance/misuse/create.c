/* SPDX-License-Identifier: MIT
 *
 * Runtimes and worlds that cannot be.
 */
#include <math.h>

#include "tests/conformance/misuse/misuse.h"

/*
 * A plan for another number of ranks, one without the optimizer's state, no plan at all: refused.
 */
void plans_that_do_not_fit(void)
{
    struct scene scene;
    open_scene(&scene, "edges", 1, 0);
    const struct {
        eo_plan_params params;
        eo_status status;
        const char *text;
    } cases[] = {
        {{.rank_count = 2}, EO_ERR_INVALID, "the plan is for 2 ranks, the world has 1"},
        {{.draft = true}, EO_ERR_INVALID, "the plan is a draft, which is not proven; plan again without `draft`"},
        {{.optimizer_states = EO_NO_STATE},
         EO_ERR_INVALID,
         "optimizer adamw needs 2 optimizer states a parameter, the plan has 0; plan with those, or give an update"},
        {{.strategy = EO_STRATEGY_ZERO1}, EO_ERR_UNSUPPORTED, "strategy zero1 needs planned memory"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eo_plan *plan;
        eo_runtime *rt = (eo_runtime *)&scene;
        must(eo_plan_create(&plan, scene.model, &cases[i].params), "plan");
        eo_test_text[0] = '\0';
        const eo_memory memory = cases[i].params.strategy ? EO_MEMORY_DYNAMIC_POOL : EO_MEMORY_STATIC;
        const eo_status status = eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = scene.worlds[0],
                                                                          .memory = memory, .log = &eo_test_log));
        TEST_EXPECT(NULL, status == cases[i].status && rt == NULL, "case %zu: %s", i, eo_status_text(status));
        TEST_EXPECT(NULL, strstr(eo_test_text, cases[i].text), "'%s'", eo_test_text);
        eo_plan_destroy(&plan);
    }
    eo_plan *more = NULL; /* for an update that is not given */
    eo_runtime *trained = NULL;
    eo_test_text[0] = '\0';
    must(eo_plan_create(&more, scene.model, &(eo_plan_params){.rank_count = 1, .optimizer_states = 3}), "plan");
    must(eo_runtime_create(&trained, eo_runtime_params(.plan = more, .world = scene.worlds[0], .log = &eo_test_log)), "runtime");
    TEST_EXPECT(NULL, strstr(eo_test_text, "3 optimizer states a parameter, of which adamw uses 2: was `update` forgotten?"), "'%s'",
                eo_test_text);
    eo_runtime_destroy(&trained);
    eo_plan_destroy(&more);
    eo_model *parts = NULL; /* a layer of expert parallelism is planned, and not run */
    eo_plan *planned = NULL;
    uint32_t layer = 0;
    eo_runtime *rt = NULL;
    must(eo_model_create(&parts, &(eo_model_params){.name = "parts"}), "model");
    must(eo_model_add_layer(parts, &(eo_layer_params){.name = "experts", .parts = 2}, &layer), "layer");
    must(eo_model_add_parameter(parts, &(eo_parameter_params){.layer = layer, .name = "w", .dim_count = 1, .dims = {64}}, NULL), "w");
    must(eo_model_add_position(parts, &(eo_position_params){.layer = layer}, NULL), "position");
    must(eo_plan_create(&planned, parts, &(eo_plan_params){.rank_count = 1}), "plan");
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = planned, .world = scene.worlds[0], .log = &eo_test_log)) ==
                         EO_ERR_UNSUPPORTED);
    TEST_EXPECT(NULL, strstr(eo_test_text, "layer 'experts' is shared by a part of its group"), "'%s'", eo_test_text);
    eo_plan_destroy(&planned);
    eo_model_destroy(&parts);
    eo_model *frozen = eo_plan_model("frozen");
    must(eo_plan_create(&planned, frozen, &(eo_plan_params){.rank_count = 1, .float8_frozen = true}), "plan");
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = planned, .world = scene.worlds[0], .memory = EO_MEMORY_DYNAMIC_POOL,
                                                              .log = &eo_test_log)) == EO_ERR_UNSUPPORTED);
    TEST_EXPECT(NULL, strstr(eo_test_text, "float8_frozen) need planned memory"), "'%s'", eo_test_text);
    eo_plan_destroy(&planned);
    eo_model_destroy(&frozen);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.world = scene.worlds[0])) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(NULL, eo_runtime_params(.plan = scene.plan)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0],
                                                              .memory = (eo_memory)9)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0],
                                                              .dynamic_reduce_inputs = UINT32_MAX)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0],
                                                              .dynamic_offload = true)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_runtime_create(&rt, eo_runtime_params(.plan = scene.plan, .world = scene.worlds[0],
                                                              .parallel = {.thread_count = 4})) == EO_ERR_INVALID);
    close_scene(&scene);
}

/*
 * A plan that is destroyed before its runtimes is theirs until the last of them ends.
 */
void plan_destroyed_first(void)
{
    struct scene scene;
    eo_runtime *rt[2];
    open_scene(&scene, "edges", 1, 0);
    must(open_runtime(&scene, 0, &rt[0]), "runtime");
    must(open_runtime(&scene, 0, &rt[1]), "a second one");
    eo_plan *plan = scene.plan;
    eo_plan_destroy(&scene.plan);
    TEST_HOLDS(NULL, !scene.plan);
    eo_runtime_destroy(&rt[0]);
    scene.plan = plan; /* which the helpers below read */
    must(whole_step(&scene, rt[1]), "step");
    scene.plan = NULL;
    eo_runtime_destroy(&rt[1]);
    close_scene(&scene);
}

/* Worlds of threads, and of one process that meets itself. */
void worlds_that_cannot_be(void)
{
    static const struct {
        double gigabytes_per_s, latency_us;
        const char *says;
    } fabrics[] = {{-1, 0, "finite and not negative"}, {NAN, 0, "finite"}, {INFINITY, 0, "finite"}, {1, NAN, "finite"},
                   {1, -1, "not negative"}, {0, 5, "no speed"}, {1, 1e17, "at most 1e9 us"}, {1e-300, 0, "at least 1e-6 GB/s"}};
    eo_rendezvous *rendezvous = NULL;
    eo_world *world = NULL, *many[100];
    memset(many, 0xff, sizeof(many));
    must(eo_rendezvous_create(&rendezvous, eo_rendezvous_params(.rank = 0, .rank_count = 1)), "rendezvous");
    for (size_t i = 0; i < sizeof(fabrics) / sizeof(fabrics[0]); i++) {
        for (int joined = 0; joined < 2; joined++) {
            eo_test_text[0] = '\0';
            const eo_status status =
                joined ? eo_world_create_joined(&world, eo_world_join_params(.rendezvous = rendezvous, .log = &eo_test_log,
                             .fabric_gigabytes_per_s = fabrics[i].gigabytes_per_s, .fabric_latency_us = fabrics[i].latency_us))
                       : eo_world_create_local(&world, eo_world_params(.log = &eo_test_log,
                             .fabric_gigabytes_per_s = fabrics[i].gigabytes_per_s, .fabric_latency_us = fabrics[i].latency_us));
            TEST_EXPECT(NULL, status == EO_ERR_INVALID && !world && strstr(eo_test_text, fabrics[i].says),
                        "fabric %zu, joined %d: %s, '%s'", i, joined, eo_status_text(status), eo_test_text);
        }
    }
    TEST_HOLDS(NULL, eo_world_create_joined(&world, eo_world_join_params(.rendezvous = rendezvous, .collectives = "pigeons")) ==
                         EO_ERR_UNSUPPORTED);
    TEST_HOLDS(NULL, eo_world_create_joined(&world, eo_world_join_params(.rendezvous = rendezvous, .device = "abacus")) ==
                         EO_ERR_UNSUPPORTED);
    TEST_HOLDS(NULL, eo_world_create_mpi(&world, eo_world_mpi_params(.collectives = "pigeons")) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_world_create_nccl(&world, eo_world_nccl_params(.rank = 1, .rank_count = 1)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL, eo_world_create_nccl(&world, eo_world_nccl_params(.rank = 0, .rank_count = 1)) == EO_ERR_INVALID);
    TEST_HOLDS(NULL,
               eo_world_create_local(many, eo_world_params(.rank_count = 100)) == EO_ERR_INVALID && !many[0] && !many[63]);
    TEST_HOLDS(NULL, many[64]); /* beyond what the largest world has */
    eo_rendezvous_destroy(&rendezvous);
}

/* Steps cannot be recorded here, nor replayed; copies of nothing are refused; a world on a device that is not there too.
 * Ordinary steps go on. */
void what_this_device_has_not(void)
{
    struct scene scene;
    open_scene(&scene, "bare", 1, 0);
    eo_runtime *rt;
    eo_world *world = NULL;
    char byte = 0;
    must(open_runtime(&scene, 0, &rt), "runtime");
    TEST_HOLDS(NULL, strcmp(eo_runtime_device(rt), "cpu") == 0 && !eo_runtime_stream(rt));
    for (int round = 0; round < 2; round++) {
        TEST_HOLDS(NULL, eo_step_capture(rt) == EO_ERR_UNSUPPORTED);
        TEST_EXPECT(NULL, strstr(eo_runtime_error(rt), "eo_step_capture: this device has no graphs"), "%s",
                    eo_runtime_error(rt));
        TEST_HOLDS(NULL, eo_step_replay(rt, eo_step_params(.learning_rate = 0.1F), NULL) == EO_ERR_UNSUPPORTED);
        TEST_HOLDS(NULL, eo_runtime_upload(rt, NULL, &byte, 1) == EO_ERR_INVALID);
        TEST_HOLDS(NULL, eo_runtime_download(rt, &byte, NULL, 1) == EO_ERR_INVALID);
        must(eo_step_begin(rt), "begin");
        for (uint32_t p = 0; p < 5; p++)
            must(forward_pass(rt, p), "forward");
        for (uint32_t p = 5; p-- > 0;)
            must(backward_pass(&scene, rt, p, 0), "backward");
        must(eo_step_end(rt, eo_step_params(.learning_rate = 0.1F), NULL), "end");
    }
    eo_runtime_destroy(&rt);
    eo_test_text[0] = '\0';
    TEST_HOLDS(NULL, eo_world_create_local(&world, eo_world_params(.device = "abacus", .log = &eo_test_log)) ==
                         EO_ERR_UNSUPPORTED);
    TEST_EXPECT(NULL, !world && strstr(eo_test_text, "'abacus'"), "%s", eo_test_text);
    close_scene(&scene);
}
