/* SPDX-License-Identifier: MIT
 *
 * The start delay that headtohead prints: a collective is late by what it waits after all ranks were ready, and by nothing
 * that came before.
 * Method: a small plan, and times made up for it: operations one after the other, a microsecond each, 100 ns long.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include <evenodd/evenodd.h>

#include "tools/headtohead/start_delay.h"

enum { STEPS = 4, RANKS = 2, LAYERS = 3 };
static const uint64_t slot_ns = 1000, issued_at = 300, starts_at = 500, takes_ns = 100;

struct bed {
    eo_model *model;
    eo_plan *plan;
    uint32_t count;
    struct tool_step_span *spans[RANKS];
    uint64_t complete[RANKS][STEPS];
    struct tool_start_delays delays;
};

static void begin(struct bed *bed)
{
    static const char *const layers[LAYERS] = {"a", "b", "c"};
    cr_assert_eq(eo_model_create(&bed->model, eo_model_params(.name = "small")), EO_OK);
    for (uint32_t l = 0; l < LAYERS; l++) {
        cr_assert_eq(eo_model_add_layer(bed->model, eo_layer_params(.name = layers[l]), NULL), EO_OK);
        cr_assert_eq(eo_model_add_parameter(bed->model, eo_parameter_params(.layer = l, .name = layers[l], .dim_count = 1,
                                                                            .dims = {4096}), NULL), EO_OK);
        cr_assert_eq(eo_model_add_position(bed->model, eo_position_params(.layer = l, .name = layers[l]), NULL), EO_OK);
    }
    cr_assert_eq(eo_plan_create(&bed->plan, bed->model, eo_plan_params(.rank_count = RANKS)), EO_OK);
    bed->count = eo_plan_operation_count(bed->plan, EO_LIST_STEADY);
    for (uint32_t r = 0; r < RANKS; r++) {
        bed->spans[r] = calloc((size_t)STEPS * bed->count, sizeof(*bed->spans[r]));
        for (uint32_t i = 0; i < STEPS * bed->count; i++) {
            const uint64_t slot = 1000000 + i * slot_ns;
            bed->spans[r][i] = (struct tool_step_span){slot + issued_at, slot + starts_at, slot + starts_at + takes_ns};
        }
        for (uint32_t s = 0; s < STEPS; s++)
            bed->complete[r][s] = true;
    }
}

static void look(struct bed *bed)
{
    const struct tool_step_span *spans[RANKS] = {bed->spans[0], bed->spans[1]};
    const uint64_t *complete[RANKS] = {bed->complete[0], bed->complete[1]};
    free(bed->delays.operations);
    cr_assert_eq(tool_start_delays(bed->plan, RANKS, STEPS, spans, complete, 0, &bed->delays), EO_OK);
}

static void end(struct bed *bed)
{
    for (uint32_t r = 0; r < RANKS; r++)
        free(bed->spans[r]);
    free(bed->delays.operations);
    eo_plan_destroy(&bed->plan);
    eo_model_destroy(&bed->model);
}

static uint32_t find(const struct bed *bed, eo_operation_kind kind)
{
    eo_plan_operation operation;
    for (uint32_t i = 0; i < bed->count; i++)
        if (eo_plan_get_operation(bed->plan, EO_LIST_STEADY, i, &operation) >= 0 && operation.kind == kind)
            return i;
    cr_assert_fail("the plan has no such operation");
    return 0;
}

static void expect_ns(double seconds, uint64_t count, double ns)
{
    cr_assert_gt(count, 0);
    cr_assert_float_eq(seconds * 1e9 / (double)count, ns, 0.5, "%.1f ns, and not %.1f", seconds * 1e9 / (double)count, ns);
}

Test(start_delay, what_is_issued_last_is_what_counts)
{
    struct bed bed = {0};
    begin(&bed);
    look(&bed);
    for (int w = 0; w <= EO_WAIT_NORM; w++) {
        expect_ns(bed.delays.kinds[w].delay_s, bed.delays.kinds[w].count, (double)(starts_at - issued_at));
        expect_ns(bed.delays.kinds[w].late_s, bed.delays.kinds[w].count, 0);
    }
    cr_assert_eq(bed.delays.early_count, 0);
    end(&bed);
}

Test(start_delay, each_collective_has_the_kind_that_waits_for_it_are_booked_under)
{
    static const int wanted[EO_OP_KIND_COUNT] = {
        [EO_OP_ALL_GATHER] = 1 + EO_WAIT_ALL_GATHER,         [EO_OP_MATRIX_GATHER] = 1 + EO_WAIT_ALL_GATHER,
        [EO_OP_REDUCE_SCATTER] = 1 + EO_WAIT_REDUCE_SCATTER, [EO_OP_MATRIX_SCATTER] = 1 + EO_WAIT_REDUCE_SCATTER,
        [EO_OP_ALL_REDUCE] = 1 + EO_WAIT_REDUCE_SCATTER,     [EO_OP_NORM_GATHER] = 1 + EO_WAIT_NORM};
    for (int kind = 0; kind < EO_OP_KIND_COUNT; kind++)
        cr_assert_eq(tool_collective_of((eo_operation_kind)kind), wanted[kind] - 1, "%s",
                     eo_operation_kind_name((eo_operation_kind)kind));
}

Test(start_delay, a_rank_that_is_late_is_not_a_delay)
{
    struct bed bed = {0};
    begin(&bed);
    for (uint32_t i = 0; i < STEPS * bed.count; i++)
        bed.spans[1][i].issued_ns += 50;
    look(&bed);
    const struct tool_start_delay *d = &bed.delays.kinds[EO_WAIT_ALL_GATHER];
    expect_ns(d->delay_s, d->count, (double)(starts_at - issued_at - 50));
    expect_ns(d->late_s, d->count, 25); /* rank 0 waits 50, rank 1 not at all */
    end(&bed);
}

Test(start_delay, what_is_waited_for_counts_however_early_it_was_issued)
{
    struct bed bed = {0};
    begin(&bed);
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t i = 0; i < STEPS * bed.count; i++)
            bed.spans[r][i].issued_ns = 1;
    look(&bed);
    /* The gather of norms waits for the local norm, which stands before it. */
    const uint32_t norms = find(&bed, EO_OP_NORM_GATHER);
    const struct tool_start_delay *d = &bed.delays.operations[norms];
    expect_ns(d->delay_s, d->count, (double)(slot_ns - takes_ns));
    /* Its start a little sooner than the local norm's end is noticed, on either rank. */
    bed.spans[1][2 * bed.count + norms].start_ns -= slot_ns - takes_ns + 1;
    look(&bed);
    cr_assert_eq(bed.delays.early_count, 1);
    end(&bed);
}

Test(start_delay, the_step_before_counts_and_must_be_complete)
{
    struct bed bed = {0};
    begin(&bed);
    look(&bed);
    const uint64_t all = bed.delays.kinds[EO_WAIT_ALL_GATHER].count;
    bed.complete[1][2] = false; /* so the last two do not count: one is missing, one has none before it */
    look(&bed);
    cr_assert_eq(bed.delays.kinds[EO_WAIT_ALL_GATHER].count * 3, all);
    end(&bed);
}
