/* SPDX-License-Identifier: MIT
 *
 * Plans of models that use layers in an unusual way: several times in any order, heads in the middle; and what is said
 * when a plan fails by a fault of ours. tests/random/ has the rest of such models.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "runtime/plan/internal.h"
#include "runtime/plan/proof/proof.h"
#include "tests/unit/plan/check.h"
#include "tests/unit/plan/models.h"

/* Layers of one parameter each, used in this order; a capital letter is a head. */
static eo_model *model_of_uses(const char *uses)
{
    eo_model *model;
    char name[EO_NAME_MAX];
    uint32_t layers = 0;
    cr_assert_eq(eo_model_create(&model, eo_model_params(.name = uses, .log = &eo_test_log)), EO_OK);
    for (const char *use = uses; *use; use++) {
        const bool head = *use >= 'A' && *use <= 'Z';
        const uint32_t layer = (uint32_t)(*use - (head ? 'A' : 'a'));
        for (; layers <= layer; layers++) {
            snprintf(name, sizeof(name), "layer%u", layers);
            cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = name), NULL), EO_OK);
            cr_assert_eq(eo_model_add_parameter(model, eo_parameter_params(.layer = layers, .name = name, .dim_count = 1,
                                                                           .dims = {100 + 900 * layers}), NULL), EO_OK);
        }
        snprintf(name, sizeof(name), "use%d", (int)(use - uses));
        cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = layer, .name = name,
                                                                     .forward_in_backward = head), NULL), EO_OK);
    }
    return model;
}

static void add_buffer(eo_model *model, const char *name, eo_moment first, eo_moment last)
{
    cr_assert_eq(eo_model_add_buffer(model, eo_buffer_params(.name = name, .bytes = 500000, .category = EO_CATEGORY_SCRATCH,
                                                             .first = first, .last = last), NULL), EO_OK);
}

static eo_plan *must_plan(const eo_model *model, eo_plan_params params)
{
    eo_plan *plan;
    params.log = &eo_test_log;
    eo_test_text[0] = '\0';
    cr_assert_eq(eo_plan_create(&plan, model, &params), EO_OK, "%s: %s", model->name, eo_test_text);
    return plan;
}

/* Two uses with a layer between, the first of which adds to the second's gradient. */
static eo_plan *plan_of_sums(eo_plan_params params)
{
    eo_model *model;
    uint32_t layer;
    cr_assert_eq(eo_model_create(&model, eo_model_params(.name = "sums", .log = &eo_test_log)), EO_OK);
    for (uint32_t l = 0; l < 2; l++) {
        const char *const name = l ? "between" : "tied";
        cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = name), &layer), EO_OK);
        cr_assert_eq(eo_model_add_parameter(
                         model, eo_parameter_params(.layer = layer, .name = name, .dim_count = 1, .dims = {1000}), NULL),
                     EO_OK);
    }
    for (uint32_t p = 0; p < 3; p++)
        cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = p % 2, .adds_gradients = p == 0), NULL), EO_OK);
    eo_plan *plan = must_plan(model, params);
    eo_model_destroy(&model);
    return plan;
}

static uint32_t count_of(const eo_plan *plan, eo_operation_kind kind, uint32_t layer)
{
    const struct eo_operation_list *list = &plan->schedule.lists[EO_LIST_STEADY];
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++)
        count += list->operations[i].kind == kind && list->operations[i].layer == layer;
    return count;
}

/* Gradients that are added to need one buffer and one reduction, and on one rank none; apart they have two of each. */
Test(plan_uses, gradients_that_are_added_up_are_reduced_once)
{
    for (uint32_t ranks = 1; ranks <= 2; ranks++) {
        eo_plan *together = plan_of_sums((eo_plan_params){.rank_count = ranks});
        eo_plan *apart = plan_of_sums((eo_plan_params){.rank_count = ranks, .gradients_apart = true});
        const bool reduces = ranks > 1;
        cr_assert_eq(together->positions[0].buffer_row, together->positions[2].buffer_row);
        cr_assert_eq(count_of(together, EO_OP_REDUCE_SCATTER, 0), reduces);
        cr_assert_eq(count_of(together, EO_OP_ACCUMULATE, 0), 0);
        cr_assert_eq(count_of(apart, EO_OP_REDUCE_SCATTER, 0), 2 * reduces + !reduces);
        cr_assert_eq(count_of(apart, EO_OP_ACCUMULATE, 0), 1);
        cr_assert_neq(together->fingerprint, apart->fingerprint);
        eo_plan_destroy(&together);
        eo_plan_destroy(&apart);
    }
    eo_model *model = model_of_uses("aba");
    eo_plan *plan;
    cr_assert_eq(eo_plan_create(&plan, model, eo_plan_params(.rank_count = 2, .gradients_apart = true, .log = &eo_test_log)),
                 EO_ERR_INVALID);
    cr_assert(strstr(eo_test_text, "gradients_apart would have no effect"), "%s", eo_test_text);
    eo_model_destroy(&model);
}

/* A buffer that no slot lends goes back soon after its reduction, not only when its own next writer comes.
 * Method: a layer used twice between others, two of whose three micro-batches are added in place. */
Test(plan_uses, a_buffer_of_its_own_is_given_back_soon)
{
    enum { POSITIONS = 9, APART_MOST = 12 };
    static const char uses[] = "abcTdTefg";
    eo_model *model;
    uint32_t layer[128] = {0}, tied = 0;
    cr_assert_eq(eo_model_create(&model, eo_model_params(.name = "tied in the middle", .log = &eo_test_log)), EO_OK);
    for (uint32_t p = 0; p < POSITIONS; p++) {
        const char name[] = {uses[p], '\0'};
        const bool again = uses[p] == 'T' && tied++;
        if (!again) {
            cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = name), &layer[(int)uses[p]]), EO_OK);
            cr_assert_eq(eo_model_add_parameter(model,
                                                eo_parameter_params(.layer = layer[(int)uses[p]], .name = name, .dim_count = 1,
                                                                    .dims = {uses[p] == 'T' ? 9000 : 1000}),
                                                NULL),
                         EO_OK);
        }
        cr_assert_eq(
            eo_model_add_position(
                model, eo_position_params(.layer = layer[(int)uses[p]], .adds_gradients = uses[p] == 'T' && !again), NULL),
            EO_OK);
    }
    eo_plan *plan = must_plan(model, (eo_plan_params){.rank_count = 4, .micro_batches = 3});
    const struct eo_operation_list *list = &plan->schedule.lists[EO_LIST_STEADY];
    uint32_t reduced = 0, taken_in = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct eo_operation *o = &list->operations[i];
        if (o->layer != layer['T'] || o->micro_batch != 1)
            continue;
        reduced = o->kind == EO_OP_REDUCE_SCATTER ? i : reduced;
        taken_in = o->kind == EO_OP_ACCUMULATE ? i : taken_in;
    }
    cr_assert(reduced > 0 && taken_in > reduced);
    cr_expect_leq(taken_in - reduced, APART_MOST);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/* Where the row of a buffer lies, as one number. */
static uint64_t place_of_buffer(const eo_plan *plan, uint32_t buffer)
{
    return plan->schedule.rows[plan->buffers[buffer].row].address;
}

/*
 * A layer's gradients are added up in the order of its passes, whichever of its buffers is needed first.
 * Method: orders of use in which a later contribution's buffer is written again before an earlier one's; each strategy,
 * 1 to 3 micro-batches, both types of reductions.
 */
Test(plan_uses, layers_used_several_times_are_planned)
{
    static const char *const models[] = {"aaa", "abcccda", "aab", "abababab", "abcabcabcabc", "aaaaab"};
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        eo_model *model = model_of_uses(models[m]);
        for (uint32_t n = 0; n < EO_STRATEGY_COUNT * 3 * 2; n++) {
            const eo_strategy strategy = (eo_strategy)(n % EO_STRATEGY_COUNT);
            eo_plan *plan = must_plan(model, (eo_plan_params){.rank_count = 4, .strategy = strategy,
                                                              .shard_group = strategy == EO_STRATEGY_HSDP ? 2 : 0,
                                                              .micro_batches = 1 + n / EO_STRATEGY_COUNT % 3,
                                                              .reduce_dtype = (eo_dtype)(n / (3 * EO_STRATEGY_COUNT))});
            eo_plan_destroy(&plan);
        }
        eo_model_destroy(&model);
    }
}

/*
 * A head may have one scratch for recompute and another for backward: they share their place, and an evaluation has the
 * second alone, for only that covers the backward pass.
 */
Test(plan_uses, a_head_may_have_a_scratch_for_each_of_its_passes)
{
    eo_model *model = model_of_uses("abC");
    add_buffer(model, "first", (eo_moment){EO_PASS_RECOMPUTE, 2}, (eo_moment){EO_PASS_RECOMPUTE, 2});
    add_buffer(model, "second", (eo_moment){EO_PASS_BACKWARD, 2}, (eo_moment){EO_PASS_BACKWARD, 2});
    eo_plan *plan = must_plan(model, (eo_plan_params){.rank_count = 2});
    cr_assert_eq(place_of_buffer(plan, 0), place_of_buffer(plan, 1));
    uint32_t written[2] = {0};
    for (uint32_t i = 0; i < plan->schedule.lists[EO_LIST_FORWARD].count; i++) {
        const struct eo_operation *o = &plan->schedule.lists[EO_LIST_FORWARD].operations[i];
        for (uint32_t a = 0; a < o->access_count; a++)
            for (uint32_t b = 0; b < 2; b++)
                written[b] += plan->schedule.accesses[o->access_begin + a].row == plan->buffers[b].row;
    }
    cr_assert(written[0] == 0 && written[1] == 1, "%u and %u", written[0], written[1]);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/*
 * A head in the middle runs after the last forward pass in a step, and before it in an evaluation: what it writes there
 * lies apart from what is handed past it. Without the head between them the two share their place.
 */
Test(plan_uses, an_evaluation_keeps_what_is_handed_past_a_head)
{
    for (int head = 0; head < 2; head++) {
        eo_model *model = model_of_uses(head ? "aBc" : "abC");
        const uint32_t at = head ? 1 : 2;
        add_buffer(model, "handed", (eo_moment){EO_PASS_FORWARD, 0}, (eo_moment){EO_PASS_FORWARD, head ? 2 : 1});
        add_buffer(model, "logits", (eo_moment){EO_PASS_BACKWARD, at}, (eo_moment){EO_PASS_BACKWARD, at});
        eo_plan *plan = must_plan(model, (eo_plan_params){.rank_count = 2});
        struct plan_check check;
        cr_assert(eo_plan_check(plan, &check), "%s", check.text);
        cr_assert_eq(place_of_buffer(plan, 0) == place_of_buffer(plan, 1), !head);
        eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
}

/*
 * Where no layer is trained, a fence orders a step's norm after the peers' reading of the one before.
 * Method: the fence is taken out of the lists, and the proof must miss it; where a layer is trained there is none.
 */
Test(plan_uses, norms_of_frozen_models_are_fenced)
{
    static const eo_list training[] = {EO_LIST_FIRST, EO_LIST_STEADY, EO_LIST_STEADY};
    static const eo_strategy strategies[] = {EO_STRATEGY_ZERO2, EO_STRATEGY_ZERO1, EO_STRATEGY_DDP, EO_STRATEGY_HSDP};
    for (int s = 0; s < 4; s++) {
        for (int frozen = 0; frozen < 2; frozen++) {
            eo_model *model = eo_plan_model(frozen ? "all_frozen" : "frozen");
            eo_plan *plan = must_plan(model, (eo_plan_params){.rank_count = 4, .strategy = strategies[s],
                                                              .shard_group = s == 3 ? 2 : 0});
            const struct eo_proof_params params = {.schedule = &plan->schedule, .sequence = training, .sequence_count = 3};
            struct eo_hazard hazard;
            uint32_t fences = 0;
            for (int list = EO_LIST_FIRST; list <= EO_LIST_STEADY; list++) {
                for (uint32_t i = 0; i < plan->schedule.lists[list].count; i++) {
                    struct eo_operation *o = &plan->schedule.lists[list].operations[i];
                    fences += o->fence;
                    o->scope = o->fence ? EO_SCOPE_ALONE : o->scope;
                }
            }
            cr_assert_eq(fences, frozen ? 2 : 0, "%s", eo_strategy_name(strategies[s]));
            cr_assert_eq(eo_proof_run(&params, &hazard), frozen ? EO_ERR_SCHEDULE : EO_OK, "%s", hazard.text);
            cr_assert_eq(hazard.kind, frozen ? EO_HAZARD_PEER : EO_HAZARD_NONE, "%s", hazard.text);
            eo_plan_destroy(&plan);
            eo_model_destroy(&model);
        }
    }
}

static uint32_t queue_of_depth(uint32_t layers, eo_strategy strategy)
{
    eo_model *model = eo_plan_model_of_blocks(layers - 2);
    eo_plan *plan = must_plan(model, (eo_plan_params){.rank_count = 2, .strategy = strategy});
    const uint32_t items = plan->schedule.queue_items[EO_STREAM_COMM];
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
    return items;
}

/*
 * A plan says how many collectives may be under way: of weights that stay all layers' (they are gathered one after the
 * other), else no more than slots ask for, however deep the model is. The proof refuses less.
 */
Test(plan_uses, queues_are_as_long_as_the_lists_need)
{
    cr_assert_eq(queue_of_depth(200, EO_STRATEGY_ZERO3), queue_of_depth(20, EO_STRATEGY_ZERO3));
    cr_assert_leq(queue_of_depth(200, EO_STRATEGY_ZERO3), 16);
    cr_assert_geq(queue_of_depth(200, EO_STRATEGY_ZERO1), 200);
    cr_assert_geq(queue_of_depth(200, EO_STRATEGY_ZERO2), 200);
    static const eo_list training[] = {EO_LIST_FIRST, EO_LIST_STEADY, EO_LIST_STEADY};
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        eo_model *model = eo_plan_model(m->name);
        eo_plan *plan = must_plan(model, (eo_plan_params){.rank_count = 2, .strategy = EO_STRATEGY_ZERO2});
        const struct eo_proof_params params = {.schedule = &plan->schedule, .sequence = training, .sequence_count = 3};
        struct eo_hazard hazard;
        cr_assert_eq(eo_proof_run(&params, &hazard), EO_OK, "%s: %s", m->name, hazard.text);
        plan->schedule.queue_items[EO_STREAM_COMM]--;
        cr_assert_eq(eo_proof_run(&params, &hazard), EO_ERR_SCHEDULE, "%s", m->name);
        cr_assert_eq(hazard.kind, EO_HAZARD_QUEUE, "%s: %s", m->name, hazard.text);
        eo_plan_destroy(&plan);
        eo_model_destroy(&model);
    }
}

/*
 * The proof knows a trainer's buffers by what the trainer said of them, and not by the accesses that the planner wrote down.
 * Method: a persistent buffer is laid upon another row; a buffer of a lifetime is laid upon one that is used within it, with
 * its accesses taken out of the lists. Without the rows' marks both pass.
 */
Test(plan_uses, the_proof_knows_buffers_by_what_the_trainer_said)
{
    static const eo_list sequence[] = {EO_LIST_FIRST, EO_LIST_STEADY, EO_LIST_STEADY, EO_LIST_FORWARD};
    static const uint8_t turns[] = {0, 0, EO_TURN_SAVE, EO_TURN_QUIET | EO_TURN_ORDER};
    enum { KEPT, HANDED, BETWEEN };
    eo_model *model = model_of_uses("abc");
    cr_assert_eq(eo_model_add_buffer(model, eo_buffer_params(.name = "kept", .bytes = 500000, .category = EO_CATEGORY_SCRATCH,
                                                             .persistent = true), NULL), EO_OK);
    add_buffer(model, "handed", (eo_moment){EO_PASS_FORWARD, 0}, (eo_moment){EO_PASS_BACKWARD, 0});
    add_buffer(model, "between", (eo_moment){EO_PASS_FORWARD, 1}, (eo_moment){EO_PASS_FORWARD, 1});
    for (int fault = 0; fault < 2; fault++) {
        eo_plan *plan = must_plan(model, (eo_plan_params){.rank_count = 2});
        const struct eo_proof_params params = {.schedule = &plan->schedule, .sequence = sequence, .turns = turns,
                                               .sequence_count = 4};
        struct eo_schedule_row *kept = &plan->schedule.rows[plan->buffers[KEPT].row];
        struct eo_schedule_row *handed = &plan->schedule.rows[plan->buffers[HANDED].row];
        const struct eo_schedule_row *between = &plan->schedule.rows[plan->buffers[BETWEEN].row];
        struct eo_hazard hazard;
        cr_assert_eq(eo_proof_run(&params, &hazard), EO_OK, "%s", hazard.text);
        for (uint32_t a = 0; a < plan->schedule.access_count && fault; a++)
            if (plan->schedule.accesses[a].row == plan->buffers[HANDED].row)
                plan->schedule.accesses[a].row = plan->buffers[KEPT].row;
        (fault ? handed : kept)->address = between->address;
        cr_assert_eq(eo_proof_run(&params, &hazard), EO_ERR_SCHEDULE);
        cr_expect_eq(hazard.kind, fault ? EO_HAZARD_LIFE : EO_HAZARD_SHARED, "%s", hazard.text);
        kept->always = handed->trainers = false;
        cr_expect_eq(eo_proof_run(&params, &hazard), EO_OK, "%s", hazard.text);
        eo_plan_destroy(&plan);
    }
    eo_model_destroy(&model);
}

static char whole_text[8192];

static void keep_all(void *user, eo_log_level level, const char *text)
{
    (void)user;
    (void)level;
    const size_t used = strlen(whole_text);
    snprintf(whole_text + used, sizeof(whole_text) - used, "%s\n", text);
}

/*
 * A schedule that is wrong is an error, not the end of the program, and the text has the model.
 * Method: the lists of a good plan are broken by hand, in two ways; the report is asked for by itself, for no model is
 * known that has one.
 */
Test(plan_uses, a_fault_of_ours_is_an_error_with_the_models_text)
{
    static const eo_log log = {.write = keep_all, .level = EO_LOG_ERROR};
    eo_model *model = model_of_uses("abC");
    add_buffer(model, "logits", (eo_moment){EO_PASS_BACKWARD, 2}, (eo_moment){EO_PASS_BACKWARD, 2});
    eo_plan *plan = must_plan(model, (eo_plan_params){.rank_count = 2});
    plan->log = log;
    for (uint32_t a = 0; a < plan->schedule.access_count; a++) /* what is written is taken for read */
        if (plan->schedule.accesses[a].row == plan->buffers[0].row)
            plan->schedule.accesses[a].mode = EO_READ;
    cr_assert_eq(eo_plan_make_memory(plan), EO_ERR_SCHEDULE);
    cr_assert(strstr(whole_text, "reads data before any operation has written it"), "%s", whole_text);
    eo_plan_destroy(&plan);

    cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = "experts", .parts = 4), NULL), EO_OK);
    eo_parameter_params matrix = {.layer = 3,
                                  .dim_count = 2,
                                  .dims = {64, 32},
                                  .matrix = true,
                                  .float8_gather = true,
                                  .group = 7,
                                  .no_weight_decay = true};
    char name[EO_NAME_MAX];
    for (int i = 0; i < 40; i++) { /* on several lines */
        snprintf(name, sizeof(name), "experts%d", i);
        matrix.name = name;
        cr_assert_eq(eo_model_add_parameter(model, &matrix, NULL), EO_OK);
        matrix.joined = true;
    }
    cr_assert_eq(eo_model_add_parameter(model,
                                        eo_parameter_params(.layer = 3, .name = "norm", .dim_count = 1, .dims = {100},
                                                            .frozen = true, .fp32 = true, .padding = 9),
                                        NULL),
                 EO_OK);
    cr_assert_eq(eo_model_add_buffer(model,
                                     eo_buffer_params(.name = "kept", .bytes = 9, .category = EO_CATEGORY_ACTIVATION,
                                                      .last = {EO_PASS_BACKWARD, 0}, .saved = true),
                                     NULL),
                 EO_OK);
    whole_text[0] = '\0';
    eo_model_report(&log, model,
                    eo_plan_params(.rank_count = 2, .micro_batches = 3, .no_prefetch = true, .gather_run = 3, .gradient_run = 2,
                                   .offload_layers = 5, .offload_slots = 4, .offload_gradients = true, .offload_activations = 6,
                                   .late_updates = true, .separate_evict_stream = true));
    static const char *const wanted[] = {"this is a bug in evenodd; please report it",
                                         "2 ranks, zero3",
                                         "3 micro-batches",
                                         "no_prefetch",
                                         "runs 3,2,",
                                         "offload_layers 5, offload_slots 4, offload_activations 6",
                                         ", separate_evict_stream, offload_gradients, late_updates\n",
                                         "layer 2 'layer2'\n  elements: 1900\n",
                                         "layer 3 'experts', parts 4\n  elements: 2048 (f8, matrix 64x32, no decay, group 7)",
                                         (" 2048 (f8, joined, matrix 64x32, no decay, group 7)\n  elements: 2048 (f8, joined, "
                                          "matrix 64x32, no decay, group 7) 2048"),
                                         "group 7) 100 (f32, frozen, padding 9)\nposition 0",
                                         "position 2: layer 2, forward_in_backward\n",
                                         "buffer 'logits': 500000 bytes, backward of 2 to backward of 2\n",
                                         "forward of 0 to backward of 0, saved\n"};
    uint32_t found = 0;
    for (const char *at = whole_text; (at = strstr(at, "2048 (")); at++)
        found++;
    cr_expect_eq(found, 40); /* none is lost where a line ends */
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        cr_expect(strstr(whole_text, wanted[i]), "'%s' is not in:\n%s", wanted[i], whole_text);
    eo_model_destroy(&model);
}

/* Goal: saved buffers that all stay in memory are told of. Method: of positions with such buffers the last two stay. */
Test(plan_uses, offload_activations_without_effect_warn)
{
    eo_model *model = model_of_uses("abcd");
    char name[EO_NAME_MAX];
    for (uint32_t p = 0; p < 3; p++) {
        snprintf(name, sizeof(name), "kept%u", p);
        cr_assert_eq(
            eo_model_add_buffer(model,
                                eo_buffer_params(.name = name, .bytes = 9, .category = EO_CATEGORY_ACTIVATION,
                                                 .first = {EO_PASS_FORWARD, p}, .last = {EO_PASS_BACKWARD, p}, .saved = true),
                                NULL),
            EO_OK);
    }
    for (uint32_t count = 0; count <= 4; count++) {
        eo_plan *plan;
        eo_test_text[0] = '\0';
        cr_assert_eq(eo_plan_create(&plan, model, eo_plan_params(.offload_activations = count, .log = &eo_test_log)), EO_OK);
        const bool warns = strstr(eo_test_text, "offload_activations has no effect: ");
        cr_expect_eq(warns, count == 1 || count == 2, "%u: '%s'", count, eo_test_text);
        for (uint32_t p = 0; p < plan->position_count; p++)
            cr_expect_eq(plan->positions[p].leaves, p == 0 && count > 2, "%u: position %u", count, p);
        eo_plan_destroy(&plan);
    }
    eo_model_destroy(&model);
}
