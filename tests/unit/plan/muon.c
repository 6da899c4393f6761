/* SPDX-License-Identifier: MIT
 *
 * Plans with Muon: who owns which matrix, and in what order the matrices travel. Models are GPT-2's blocks without their
 * kernels.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "runtime/plan/internal.h"
#include "tests/unit/plan/models.h"
#include "tests/unit/plan/mutate.h"

static void add(eo_model *model, uint32_t layer, const char *name, uint64_t rows, uint64_t columns, bool matrix)
{
    char full[64];
    snprintf(full, sizeof(full), "%u.%s", layer, name);
    cr_assert_eq(eo_model_add_parameter(model, eo_parameter_params(.layer = layer, .name = full, .dim_count = 2,
                                                                   .dims = {rows, columns}, .matrix = matrix), NULL), EO_OK);
}

/* An embedding, `blocks` blocks, and a head. */
static eo_model *make_model_of(uint64_t words, uint32_t blocks, uint64_t width)
{
    eo_model *model;
    char name[32];
    cr_assert_eq(eo_model_create(&model, eo_model_params(.log = &eo_test_log)), EO_OK);
    for (uint32_t l = 0; l < blocks + 2; l++) {
        snprintf(name, sizeof(name), "layer%u", l);
        cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = name), NULL), EO_OK);
        if (l == 0 || l == blocks + 1) {
            add(model, l, "words", words, width, false);
        } else {
            add(model, l, "qkv", 3 * width, width, true);
            add(model, l, "out", width, width, true);
            add(model, l, "bias", 1, width, false);
            add(model, l, "up", 4 * width, width, true);
            add(model, l, "down", width, 4 * width, true);
        }
        cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = l), NULL), EO_OK);
    }
    return model;
}

static eo_model *make_model(uint32_t blocks, uint64_t width)
{
    return make_model_of(40 * width, blocks, width);
}

static eo_plan *make_plan(const eo_model *model, eo_plan_params params)
{
    eo_plan *plan;
    params.optimizer = EO_OPTIMIZER_MUON;
    params.log = &eo_test_log;
    cr_assert_eq(eo_plan_create(&plan, model, &params), EO_OK, "%s", eo_test_text);
    return plan;
}

/* Its momentum is what a matrix moves along. A draft, which is not proven, too. */
Test(plan_muon, without_state_is_refused_by_name)
{
    eo_model *model = make_model(2, 32);
    for (int draft = 0; draft < 2; draft++) {
        eo_plan *plan;
        cr_expect_eq(eo_plan_create(&plan, model,
                                    eo_plan_params(.rank_count = 2, .optimizer = EO_OPTIMIZER_MUON,
                                                   .optimizer_states = EO_NO_STATE, .draft = draft, .log = &eo_test_log)),
                     EO_ERR_INVALID);
        cr_expect(strstr(eo_test_text, "optimizer muon without state"), "%s", eo_test_text);
    }
    eo_model_destroy(&model);
}

Test(plan_muon, owners_have_equal_work_within_5_percent)
{
    static const uint32_t ranks[] = {2, 3, 4, 8};
    eo_model *model = make_model(12, 64);
    for (int i = 0; i < 4; i++) {
        eo_plan *plan = make_plan(model, (eo_plan_params){.rank_count = ranks[i]});
        double loads[8] = {0}, all = 0;
        uint32_t owned = 0;
        for (uint32_t p = 0; p < plan->parameter_count; p++) {
            const struct plan_parameter *parameter = &plan->parameters[p];
            cr_assert_eq(parameter->owner != EO_NONE, plan->groups[parameter->group].matrix, "%s", parameter->name);
            if (parameter->owner == EO_NONE)
                continue;
            cr_assert_lt(parameter->owner, ranks[i]);
            loads[parameter->owner] += eo_plan_matrix_work(parameter);
            all += eo_plan_matrix_work(parameter);
            owned++;
        }
        cr_assert_eq(owned, 48);
        for (uint32_t r = 0; r < ranks[i]; r++)
            cr_assert(loads[r] <= 1.05 * all / ranks[i], "rank %u of %u has %.3f of its share", r, ranks[i],
                      loads[r] * ranks[i] / all);
        eo_plan_destroy(&plan);
    }
    eo_model_destroy(&model);
}

static uint64_t row_bytes(const eo_plan *plan, const char *name)
{
    for (uint32_t r = 0; r < plan->row_count; r++)
        if (strcmp(plan->rows[r].name, name) == 0)
            return plan->rows[r].bytes;
    cr_assert_fail("no row %s", name);
    return 0;
}

/* Each element once, where vectors are aligned as in the other arrays. How long the row must be. */
static uint64_t check_second(const eo_plan *plan, uint32_t l)
{
    const struct plan_layer *layer = &plan->layers[l];
    struct shard_range ranges[8];
    uint64_t all = 0, most = 16;
    for (uint32_t rank = 0; rank < plan->params.shard_group; rank++) {
        const uint32_t count = eo_plan_shard_ranges(plan, l, rank, ranges);
        uint64_t end = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (plan->groups[ranges[i].group].matrix)
                continue;
            cr_assert(ranges[i].second >= end && ranges[i].second % 16 == ranges[i].offset % 16, "layer %u", l);
            end = ranges[i].second + ranges[i].count;
            all += ranges[i].count;
        }
        most = end > most ? end : most;
    }
    uint64_t wanted = 0;
    for (uint32_t p = layer->parameter_begin; p < layer->parameter_begin + layer->parameter_count; p++)
        wanted += plan->groups[plan->parameters[p].group].matrix ? 0 : plan->parameters[p].element_count;
    cr_assert(all >= wanted && all < wanted + layer->layout.shard_count, "layer %u: %llu", l, (unsigned long long)all);
    return most;
}

/* The second array of a block has its vectors alone, two of them fp32 beside bf16, and those of embedding and head are whole. */
Test(plan_muon, matrices_have_one_array_of_state)
{
    eo_model *model = make_model(3, 64);
    for (uint32_t l = 1; l < 4; l++)
        for (uint32_t k = 0; k < 2; k++)
            cr_assert_eq(eo_model_add_parameter(model, eo_parameter_params(.layer = l, .name = (char[]){(char)('a' + 2 * l + k), 0},
                                                                           .dim_count = 1, .dims = {5}, .fp32 = true), NULL), EO_OK);
    for (uint32_t ranks = 1; ranks <= 8; ranks++) {
        eo_plan *plan = make_plan(model, (eo_plan_params){.rank_count = ranks, .dtype = (eo_dtype)(ranks % 2)});
        for (uint32_t l = 0; l < 5; l++) {
            char first[32], second[32];
            snprintf(first, sizeof(first), "state0.layer%u", l);
            snprintf(second, sizeof(second), "state1.layer%u", l);
            const bool block = l > 0 && l < 4;
            cr_assert_eq(row_bytes(plan, first), plan->layers[l].layout.shard_count * 4);
            cr_assert_eq(row_bytes(plan, second), block ? check_second(plan, l) * 4 : row_bytes(plan, first), "%s", second);
            cr_assert(!block || row_bytes(plan, second) <= row_bytes(plan, first) / 4, "%s", second);
        }
        eo_plan_destroy(&plan);
    }
    eo_model_destroy(&model);
}

static uint32_t place_of(const eo_plan *plan, eo_operation_kind kind, uint32_t layer)
{
    const struct eo_operation_list *list = &plan->schedule.lists[EO_LIST_STEADY];
    for (uint32_t i = 0; i < list->count; i++)
        if (list->operations[i].kind == kind && list->operations[i].layer == layer)
            return i;
    cr_assert_fail("no %s of layer %u", eo_operation_kind_name(kind), layer);
    return EO_NONE;
}

/* Issued before, so the transfer runs beside. The results of the last layers have nothing left to run beside. */
Test(plan_muon, matrices_travel_beside_the_work_on_others)
{
    enum { BLOCKS = 6 };
    eo_model *model = make_model(BLOCKS, 32);
    eo_plan *plan = make_plan(model, (eo_plan_params){.rank_count = 2});
    for (uint32_t l = 1; l <= BLOCKS; l++) {
        if (l < BLOCKS)
            cr_assert_lt(place_of(plan, EO_OP_MATRIX_GATHER, l + 1), place_of(plan, EO_OP_ORTHOGONALIZE, l), "layer %u", l);
        if (l < BLOCKS - 1)
            cr_assert_lt(place_of(plan, EO_OP_ORTHOGONALIZE, l + 1), place_of(plan, EO_OP_UPDATE, l), "layer %u", l);
        cr_assert_lt(place_of(plan, EO_OP_MATRIX_SCATTER, l), place_of(plan, EO_OP_UPDATE, l), "layer %u", l);
    }
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/*
 * What lives through whole micro-batches need not be there at the step's end, where the matrices are.
 * Method: buffers that hold their layer all the time leave the arena at its bound; sums of whole gradients take no more
 * addresses in many micro-batches than in two.
 */
Test(plan_muon, matrices_lie_where_the_micro_batches_were)
{
    for (uint32_t blocks = 1; blocks <= 3; blocks++) {
        eo_model *model = make_model_of(4, blocks, 256);
        uint64_t of_two = 0;
        for (uint32_t batches = 2; batches <= 5; batches++) {
            eo_plan_summary summary;
            eo_plan *plan = make_plan(model, (eo_plan_params){.rank_count = 4, .micro_batches = batches});
            eo_plan_get_summary(plan, &summary);
            cr_expect_leq((double)summary.arena_bytes, 1.01 * (double)summary.lower_bound_bytes, "%u blocks, %u micro-batches",
                          blocks, batches);
            eo_plan_destroy(&plan);
            plan = make_plan(model, (eo_plan_params){.rank_count = 4, .micro_batches = batches, .strategy = EO_STRATEGY_ZERO1});
            eo_plan_get_summary(plan, &summary);
            of_two = batches == 2 ? summary.arena_bytes : of_two;
            cr_expect_eq(summary.arena_bytes, of_two, "%u blocks, %u micro-batches of zero1", blocks, batches);
            eo_plan_destroy(&plan);
        }
        eo_model_destroy(&model);
    }
}

/* Every strategy, on 1 to 4 ranks, and all other settings that a small model is planned with: plans are proven. A wait that is
 * left out is found, or another one covers it. */
Test(plan_muon, every_setting_has_a_proof_that_misses_no_wait, .timeout = 300)
{
    eo_model *model = make_model(5, 32);
    for (int strategy = 0; strategy < EO_STRATEGY_COUNT; strategy++) {
        eo_plan_params params;
        for (uint32_t n = 0; eo_plan_settings(n, &params); n++) {
            params.strategy = (eo_strategy)strategy;
            params.rank_count = strategy == EO_STRATEGY_HSDP ? 4 : 1 + n % 4;
            params.shard_group = strategy == EO_STRATEGY_HSDP ? 2 : 0;
            params.optimizer_states = 0;
            if (params.offload_layers || (params.float8_gather && params.rank_count == 1) ||
                (!eo_test_full() && (n + (uint32_t)strategy) % 7 != 0))
                continue;
            eo_plan *plan = make_plan(model, params);
            struct eo_mutations found[EO_LIST_COUNT];
            cr_assert_eq(eo_mutate_lists(&plan->schedule, found), EO_OK);
            for (int list = 0; list < EO_LIST_COUNT; list++)
                cr_assert_eq(found[list].uncaught, 0, "strategy %d, settings %u: %u waits of list %d can be missing", strategy,
                             n, found[list].uncaught, list);
            eo_plan_destroy(&plan);
        }
    }
    eo_model_destroy(&model);
}

Test(plan_muon, a_matrix_has_two_dimensions_and_offloading_is_refused)
{
    eo_model *model = make_model(2, 32);
    eo_plan *plan;
    cr_assert_eq(eo_model_add_parameter(model, eo_parameter_params(.layer = 1, .name = "flat", .dim_count = 1, .dims = {32},
                                                                   .matrix = true), NULL), EO_ERR_INVALID);
    cr_assert(strstr(eo_test_text, "has 1 dimensions"), "%s", eo_test_text);
    cr_assert_eq(eo_plan_create(&plan, model, eo_plan_params(.optimizer = EO_OPTIMIZER_MUON, .offload_layers = 1,
                                                             .log = &eo_test_log)), EO_ERR_INVALID);
    cr_assert(strstr(eo_test_text, "muon"), "%s", eo_test_text);
    eo_model_destroy(&model);
}

Test(plan_muon, a_model_without_matrices_is_told)
{
    for (int with = 0; with < 2; with++) {
        eo_model *model;
        eo_plan *plan;
        eo_test_text[0] = '\0';
        cr_assert_eq(eo_model_create(&model, eo_model_params(.name = "plain", .log = &eo_test_log)), EO_OK);
        cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "only"), NULL), EO_OK);
        cr_assert_eq(eo_model_add_parameter(
                         model, eo_parameter_params(.name = "w", .dim_count = 2, .dims = {4, 4}, .matrix = with), NULL),
                     EO_OK);
        cr_assert_eq(eo_model_add_position(model, eo_position_params(.name = "use"), NULL), EO_OK);
        cr_assert_eq(eo_plan_create(&plan, model, eo_plan_params(.optimizer = EO_OPTIMIZER_MUON, .log = &eo_test_log)), EO_OK);
        cr_assert_eq(strstr(eo_test_text, "no parameter has `matrix`") != NULL, !with, "%s", eo_test_text);
        eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
}
