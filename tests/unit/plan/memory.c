/* SPDX-License-Identifier: MIT
 *
 * Memory maps and their proofs, over small models and all settings.
 */
#include "tests/unit/plan/planned.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/plan/mutate.h"
#include "tests/unit/plan/check.h"

static void describe(const char *model, const eo_plan_params *p, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s, %u ranks, %u micro-batches, slots %u,%u, types %d,%d%s%s%s%s", model, p->rank_count,
             p->micro_batches, p->gather_slots, p->gradient_slots, (int)p->dtype, (int)p->reduce_dtype,
             p->no_prefetch ? ", no prefetch" : "", p->separate_reduce_stream ? ", separate stream" : "",
             p->norms_beside ? ", norms beside" : "", p->float8_frozen ? ", frozen in MXFP8" : "");
}

/* A draft is right as well, and as good to compare with others: the same bound, time and disk. */
static void check_draft(const eo_model *model, eo_plan_params params, const eo_plan *plan, const char *what)
{
    eo_plan_summary summary, of_draft;
    struct plan_check check;
    const uint32_t count = eo_plan_operation_count(plan, EO_LIST_STEADY);
    uint64_t *durations_ns = calloc(count, sizeof(*durations_ns)), step_ns, draft_ns;
    params.draft = true;
    eo_plan *draft = plan_of(model, &params);
    eo_plan_get_summary(plan, &summary);
    eo_plan_get_summary(draft, &of_draft);
    cr_assert(eo_plan_check(draft, &check), "%s, a draft: %s", what, check.text);
    cr_assert_eq(of_draft.lower_bound_bytes, summary.lower_bound_bytes, "%s", what);
    cr_assert_leq(of_draft.lower_bound_bytes, of_draft.arena_bytes, "%s", what);
    cr_assert_eq(of_draft.space_bytes[EO_SPACE_DISK], summary.space_bytes[EO_SPACE_DISK], "%s", what);
    cr_assert_eq(eo_plan_operation_count(draft, EO_LIST_STEADY), count, "%s", what);
    for (uint32_t i = 0; i < count; i++)
        durations_ns[i] = i * 2654435761u % 1000;
    cr_assert_eq(eo_plan_simulate(plan, EO_LIST_STEADY, durations_ns, 3, &step_ns), EO_OK);
    cr_assert_eq(eo_plan_simulate(draft, EO_LIST_STEADY, durations_ns, 3, &draft_ns), EO_OK);
    cr_assert_eq(draft_ns, step_ns, "%s", what);
    free(durations_ns);
    eo_plan_destroy(&draft);
}

/*
 * Every small model with every setting has a plan that passes its proof, and no two rows that live at one time share
 * an address; rows are aligned and inside their reservations, which end where their rows end.
 * Method: eo_plan_check, which knows neither clocks nor the placement's idea of time. It also takes the largest sum of
 * live bytes its own way, which must be the plan's lower bound to the byte.
 */
Test(plan_memory, rows_that_live_at_one_time_lie_apart)
{
    uint32_t plans = 0, shared = 0;
    double worst = 1;
    char what[256];
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        eo_model *model = eo_plan_model(m->name);
        eo_plan_params params;
        for (uint32_t n = 0; eo_plan_settings(n, &params); n++) {
            if (!eo_test_full() && n % 3 != 0)
                continue;
            params.rank_count = 1 + n % 8;
            params.float8_frozen = n % 2 && eo_plan_freezes_matrices(model);
            describe(m->name, &params, what, sizeof(what));
            eo_plan *plan = plan_of(model, &params);
            struct plan_check check;
            eo_plan_summary summary;
            eo_plan_get_summary(plan, &summary);
            cr_assert(eo_plan_check(plan, &check), "%s: %s", what, check.text);
            cr_assert_eq(check.lower_bound_bytes, summary.lower_bound_bytes, "%s: bound %llu, by hand %llu", what,
                         (unsigned long long)summary.lower_bound_bytes, (unsigned long long)check.lower_bound_bytes);
            cr_assert_leq(summary.lower_bound_bytes, summary.arena_bytes, "%s", what);
            const double ratio = (double)summary.arena_bytes / (double)summary.lower_bound_bytes;
            worst = ratio > worst ? ratio : worst;
            check_draft(model, params, plan, what);
            shared += check.shared_pairs;
            plans++;
            eo_plan_destroy(&plan);
        }
        eo_model_destroy(&model);
    }
    cr_assert_gt(shared, plans, "hardly anything shares addresses: this test saw nothing");
    fprintf(stderr, "%u plans, %u pairs of rows that share addresses, worst arena / lower bound %.4f\n", plans, shared,
            worst);
}

/*
 * The check that the test above rests on sees a fault: a row moved onto another that lives at the same time.
 * Method: two slots put on one address.
 */
Test(plan_memory, the_check_sees_rows_that_collide)
{
    eo_model *model = eo_plan_model("edges");
    eo_plan *plan = plan_of(model, eo_plan_params(.rank_count = 2));
    struct plan_check check;
    cr_assert(eo_plan_check(plan, &check), "%s", check.text);
    struct plan_row *a = &plan->rows[plan->positions[1].gather_row], *b = &plan->rows[plan->positions[2].gather_row];
    cr_assert_neq(a, b);
    b->offset = a->offset;
    b->space = a->space;
    cr_assert_not(eo_plan_check(plan, &check));
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}

/*
 * No wait can be taken away: not from the steady list in all steps, not from the first list, not from the forward one.
 * Method: each in turn, and the proof must object. All models, settings without repetition of what differs in bytes only.
 */
Test(plan_memory, no_wait_can_be_missing)
{
    uint32_t waits[EO_LIST_COUNT] = {0}, stale = 0;
    char what[256];
    for (const struct plan_model *m = eo_plan_models; m->name; m++) {
        eo_model *model = eo_plan_model(m->name);
        eo_plan_params params;
        for (uint32_t n = 0; eo_plan_settings(n, &params); n++) {
            const bool short_run = params.dtype == EO_DTYPE_FP32 && params.micro_batches != 2 && !params.no_prefetch;
            if (!eo_test_full() && !short_run)
                continue;
            params.rank_count = 2;
            params.float8_frozen = n % 2 && eo_plan_freezes_matrices(model);
            describe(m->name, &params, what, sizeof(what));
            eo_plan *plan = plan_of(model, &params);
            struct eo_mutations found[EO_LIST_COUNT];
            cr_assert_eq(eo_mutate_lists(&plan->schedule, found), EO_OK);
            for (int list = 0; list < EO_LIST_COUNT; list++) {
                cr_assert_eq(found[list].uncaught, 0, "%s: %u waits of list %d can be missing", what,
                             found[list].uncaught, list);
                cr_assert(found[list].caught > 0 || params.no_prefetch || list == EO_LIST_UPDATES ||
                              (list == EO_LIST_INPUTS && !params.input_gradients),
                          "%s: list %d has no waits", what, list);
                waits[list] += found[list].caught;
                stale += found[list].caught_as[EO_HAZARD_STALE];
            }
            eo_plan_destroy(&plan);
        }
        eo_model_destroy(&model);
    }
    cr_assert_gt(waits[EO_LIST_UPDATES], 0);
    fprintf(stderr, "waits taken away and missed: first list %u, steady %u, forward %u, late updates %u; seen by versions alone: %u\n",
            waits[EO_LIST_FIRST], waits[EO_LIST_STEADY], waits[EO_LIST_FORWARD], waits[EO_LIST_UPDATES], stale);
}

/*
 * Weights that were widened leave what they were gathered in to the backward pass.
 * Method: frozen weights in MXFP8, and scratch of the recompute pass that is larger than all else.
 */
Test(plan_memory, scratch_lies_where_weights_were_before_they_were_widened)
{
    eo_model *model;
    cr_assert_eq(eo_model_create(&model, eo_model_params(.log = &eo_test_log)), EO_OK);
    for (uint32_t l = 0; l < 3; l++) {
        const char *names[] = {"a", "b", "c"}, *matrices[] = {"a.matrix", "b.matrix", "c.matrix"},
                   *biases[] = {"a.bias", "b.bias", "c.bias"}, *scratch[] = {"a.scratch", "b.scratch", "c.scratch"};
        cr_assert_eq(eo_model_add_layer(model, eo_layer_params(.name = names[l]), NULL), EO_OK);
        cr_assert_eq(eo_model_add_parameter(model,
                                            eo_parameter_params(.layer = l, .name = matrices[l], .dim_count = 2,
                                                                .dims = {512, 512}, .frozen = true, .float8_gather = true),
                                            NULL),
                     EO_OK);
        cr_assert_eq(eo_model_add_parameter(
                         model, eo_parameter_params(.layer = l, .name = biases[l], .dim_count = 1, .dims = {512}), NULL),
                     EO_OK);
        cr_assert_eq(eo_model_add_position(model, eo_position_params(.layer = l), NULL), EO_OK);
        cr_assert_eq(eo_model_add_buffer(model,
                                         eo_buffer_params(.name = scratch[l], .bytes = 200000, .category = EO_CATEGORY_SCRATCH,
                                                          .first = {EO_PASS_RECOMPUTE, l}, .last = {EO_PASS_BACKWARD, l}),
                                         NULL),
                     EO_OK);
    }
    eo_plan_summary summary;
    eo_plan *plan =
        plan_of(model, eo_plan_params(.rank_count = 4, .dtype = EO_DTYPE_BF16, .float8_frozen = true, .gather_slots = 1));
    eo_plan_get_summary(plan, &summary);
    cr_expect_leq((double)summary.arena_bytes, 1.01 * (double)summary.lower_bound_bytes, "%llu, not %llu",
                  (unsigned long long)summary.arena_bytes, (unsigned long long)summary.lower_bound_bytes);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
}
