/* SPDX-License-Identifier: MIT
 *
 * Placement: rows that are alive together never share an address, and little is wasted.
 * Method: exact offsets where the best placement is plain; random instances and a transformer's, each checked row
 * against row at every point of time; the lower bound against a sum taken point by point.
 */
#include "buffers/placement.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "placement_instance.h"

static bool row_is_live(const struct instance *instance, uint32_t row, uint32_t time)
{
    const struct eo_placed_row *placed = &instance->rows[row];
    bool is_live = placed->always;
    for (uint32_t i = 0; i < placed->interval_count && !is_live; i++) {
        const struct eo_interval interval = instance->intervals[placed->interval_begin + i];
        is_live = interval.first <= time && time <= interval.last;
    }
    return is_live;
}

static uint64_t aligned_bytes(const struct instance *instance, uint32_t row)
{
    const uint64_t align_bytes = instance->placement.align_bytes;
    return (instance->rows[row].bytes + align_bytes - 1) / align_bytes * align_bytes;
}

static uint64_t bound_by_hand(const struct instance *instance)
{
    uint64_t most = 0;
    for (uint32_t time = 0; time < instance->placement.time_count; time++) {
        uint64_t sum = 0;
        for (uint32_t row = 0; row < instance->placement.row_count; row++)
            sum += row_is_live(instance, row, time) ? aligned_bytes(instance, row) : 0;
        most = sum > most ? sum : most;
    }
    return most;
}

static int compare_places(const void *a_row, const void *b_row)
{
    const struct eo_placed_row *const *a = a_row, *const *b = b_row;
    if ((*a)->out_space != (*b)->out_space)
        return (*a)->out_space < (*b)->out_space ? -1 : 1;
    return ((*a)->out_offset > (*b)->out_offset) - ((*a)->out_offset < (*b)->out_offset);
}

/* The first fault of a solved instance, or NULL. */
static const char *fault_of(const struct instance *instance)
{
    const struct eo_placement *placement = &instance->placement;
    uint64_t total_bytes = 0;
    for (uint32_t space = 0; space < placement->space_count; space++)
        total_bytes += placement->space_bytes[space];
    if (total_bytes != placement->total_bytes)
        return "the total is not the sum of the spaces";
    for (uint32_t row = 0; row < placement->row_count; row++) {
        const struct eo_placed_row *placed = &instance->rows[row];
        if (placed->out_space != placed->space && placed->space + 1 != placement->space_count)
            return "a row left its space";
        if (placed->out_space >= placement->space_count)
            return "a row is in no space";
        if (placed->out_offset % placement->align_bytes != 0)
            return "a row is not aligned";
        const uint64_t space_bytes = placement->space_bytes[placed->out_space];
        if (placed->bytes > space_bytes || placed->out_offset > space_bytes - placed->bytes)
            return "a row is not inside its space";
    }
    const struct eo_placed_row **live = malloc((placement->row_count + 1) * sizeof(*live));
    const char *fault = NULL;
    for (uint32_t time = 0; time < placement->time_count && !fault; time++) {
        uint32_t live_count = 0;
        for (uint32_t row = 0; row < placement->row_count; row++)
            if (instance->rows[row].bytes > 0 && row_is_live(instance, row, time))
                live[live_count++] = &instance->rows[row];
        qsort(live, live_count, sizeof(*live), compare_places);
        for (uint32_t k = 1; k < live_count; k++)
            if (live[k - 1]->out_space == live[k]->out_space &&
                live[k - 1]->out_offset + live[k - 1]->bytes > live[k]->out_offset)
                fault = "two rows that are alive together share an address";
    }
    free(live);
    return fault;
}

static void solve(struct instance *instance)
{
    cr_assert_eq(eo_placement_solve(&instance->placement), EO_OK);
    const char *fault = fault_of(instance);
    cr_assert_null(fault, "%s", fault);
}

Test(placement, rows_share_an_address_only_when_their_lifetimes_are_apart)
{
    struct instance instance;
    instance_init(&instance, 10, 1, 1);
    instance_add(&instance, 0, 100, 0, 9);
    instance_add(&instance, 0, 50, 0, 4);
    instance_add(&instance, 0, 50, 5, 9);
    instance_add(&instance, 0, 20, 4, 5); /* meets both */
    solve(&instance);
    cr_assert_eq(instance.rows[0].out_offset, 0);
    cr_assert_eq(instance.rows[1].out_offset, 100);
    cr_assert_eq(instance.rows[2].out_offset, 100);
    cr_assert_eq(instance.rows[3].out_offset, 150);
    cr_assert_eq(instance.placement.total_bytes, 170);
    instance_fini(&instance);
}

Test(placement, a_row_that_wraps_around_meets_both_ends_of_the_step)
{
    struct instance instance;
    instance_init(&instance, 10, 1, 1);
    instance_add(&instance, 0, 40, 8, 1);
    instance_add(&instance, 0, 30, 1, 2);
    instance_add(&instance, 0, 30, 7, 8);
    instance_add(&instance, 0, 40, 3, 6);
    solve(&instance);
    cr_assert_eq(instance.rows[1].out_offset, instance.rows[2].out_offset);
    cr_assert_neq(instance.rows[0].out_offset, instance.rows[1].out_offset);
    cr_assert_eq(instance.placement.total_bytes, 70);
    instance_fini(&instance);
}

Test(placement, rows_that_are_always_live_lie_at_the_bottom_of_their_space)
{
    struct instance instance;
    instance_init(&instance, 4, 2, 16);
    instance_add(&instance, 0, 100, 1, 2);
    instance_add_row(&instance, 0, 30, true);
    instance_add(&instance, 0, 10, 0, 3); /* always, in other words */
    instance_add(&instance, 1, 64, 0, 0);
    instance_add_row(&instance, 1, 1, true);
    solve(&instance);
    cr_assert(instance.rows[1].out_offset < 48 && instance.rows[2].out_offset < 48);
    cr_assert_eq(instance.rows[0].out_offset, 48, "both rounded up to 16: 32 + 16");
    cr_assert_eq(instance.placement.space_bytes[0], 48 + 112);
    cr_assert_eq(instance.rows[4].out_space, 1, "what is always live stays at home");
    cr_assert_eq(instance.rows[3].out_space, 0, "what is not fills the hole of point 0");
    cr_assert_eq(instance.placement.space_bytes[1], 16);
    instance_fini(&instance);
}

Test(placement, rows_of_the_last_space_move_into_holes_by_rows_where_the_whole_does_not_fit)
{
    /* At point 0 spaces 0 and 1 have holes of 100 and 60; six rows of one lifetime, together 180. */
    struct instance instance;
    instance_init(&instance, 2, 3, 1);
    instance_add(&instance, 0, 100, 1, 1);
    instance_add(&instance, 1, 60, 1, 1);
    for (int k = 0; k < 6; k++)
        instance_add(&instance, 2, 30, 0, 0);
    solve(&instance);
    cr_assert_eq(instance.placement.space_bytes[0], 100);
    cr_assert_eq(instance.placement.space_bytes[1], 60);
    cr_assert_eq(instance.placement.space_bytes[2], 30, "three in one hole, two in the other, one left");
    instance_fini(&instance);
}

Test(placement, rows_of_other_spaces_stay_where_they_belong)
{
    struct instance instance;
    instance_init(&instance, 2, 3, 1);
    instance_add(&instance, 0, 100, 0, 0);
    instance_add(&instance, 1, 100, 1, 1);
    instance_add(&instance, 2, 0, 0, 1);
    solve(&instance);
    cr_assert_eq(instance.placement.total_bytes, 200, "a row of space 1 may not use the hole in space 0");
    instance_fini(&instance);
}

Test(placement, empty_and_dead_rows_are_placed_too)
{
    struct instance instance;
    instance_init(&instance, 3, 2, 64);
    cr_assert_eq(eo_placement_solve(&instance.placement), EO_OK, "no rows at all");
    cr_assert_eq(instance.placement.total_bytes, 0);
    instance_add(&instance, 0, 0, 0, 2);
    instance_add_row(&instance, 1, 100, false); /* live nowhere */
    instance_add(&instance, 1, 70, 1, 1);
    solve(&instance);
    cr_assert_eq(instance.placement.total_bytes, 128, "a row that is never live shares with anyone");
    instance_fini(&instance);
}

Test(placement, sizes_that_overflow_are_refused)
{
    struct instance instance;
    uint64_t bytes;
    uint32_t time;
    instance_init(&instance, 4, 1, 256);
    instance_add(&instance, 0, UINT64_MAX, 0, 1);
    cr_assert_eq(eo_placement_solve(&instance.placement), EO_ERR_INVALID);
    cr_assert_eq(eo_placement_lower_bound(&instance.placement, &bytes, &time), EO_ERR_INVALID);
    instance.rows[0].bytes = (uint64_t)1 << 62;
    cr_assert_eq(eo_placement_solve(&instance.placement), EO_OK);
    instance_add(&instance, 0, (uint64_t)1 << 62, 0, 1);
    instance_add(&instance, 0, (uint64_t)1 << 62, 0, 1);
    cr_assert_eq(eo_placement_solve(&instance.placement), EO_ERR_INVALID, "each fits, their sum does not");
    instance_fini(&instance);
}

Test(placement, random_rows_with_overlapping_lifetimes_never_share_an_address)
{
    uint64_t bound_sum = 0, total_sum = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct instance instance;
        instance_make_random(&instance, seed);
        cr_assert_eq(eo_placement_solve(&instance.placement), EO_OK);
        const char *fault = fault_of(&instance);
        cr_assert_null(fault, "seed %d: %s", (int)seed, fault);
        if (instance.placement.space_count == 1) {
            bound_sum += bound_by_hand(&instance);
            total_sum += instance.placement.total_bytes;
        }
        cr_assert(instance.placement.total_bytes >= bound_by_hand(&instance), "seed %d", (int)seed);
        instance_fini(&instance);
    }
    /* 0.47 %; without one of the orders, the promotions, or the splitting it is 0.7 % and more. */
    cr_assert(bound_sum > 0 && total_sum <= bound_sum + bound_sum * 6 / 1000);
}

Test(placement, the_check_of_these_tests_sees_a_shared_address)
{
    struct instance instance;
    instance_init(&instance, 4, 1, 8);
    instance_add(&instance, 0, 16, 0, 2);
    instance_add(&instance, 0, 16, 2, 3);
    solve(&instance);
    instance.rows[0].out_offset = 0;
    instance.rows[1].out_offset = 8;
    cr_assert_not_null(fault_of(&instance));
    instance_fini(&instance);
}

Test(placement, the_lower_bound_is_the_largest_sum_of_live_bytes)
{
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        struct instance instance;
        instance_make_random(&instance, seed);
        uint64_t bytes;
        uint32_t time;
        cr_assert_eq(eo_placement_lower_bound(&instance.placement, &bytes, &time), EO_OK);
        cr_assert_eq(bytes, bound_by_hand(&instance), "seed %d", (int)seed);
        uint64_t at_time = 0;
        for (uint32_t row = 0; row < instance.placement.row_count; row++)
            at_time += row_is_live(&instance, row, time) ? aligned_bytes(&instance, row) : 0;
        cr_assert_eq(at_time, bytes, "seed %d: the point named is the point", (int)seed);
        instance_fini(&instance);
    }
}

Test(placement, the_same_instance_gives_the_same_offsets)
{
    struct instance a, b;
    instance_make_random(&a, 78);
    instance_make_random(&b, 78);
    solve(&a);
    solve(&b);
    cr_assert_gt(a.placement.row_count, 10);
    for (uint32_t row = 0; row < a.placement.row_count; row++) {
        cr_assert_eq(a.rows[row].out_space, b.rows[row].out_space);
        cr_assert_eq(a.rows[row].out_offset, b.rows[row].out_offset);
    }
    instance_fini(&a);
    instance_fini(&b);
}

Test(placement, nested_lifetimes_are_a_stack_without_waste)
{
    /* What forward leaves for backward: the first in is the last out. */
    enum { DEPTH = 500 };
    struct instance instance;
    instance_init(&instance, 2 * DEPTH, 1, 64);
    uint64_t sum = 0;
    for (uint32_t k = 0; k < DEPTH; k++) {
        instance_add(&instance, 0, 64 * (1 + k * 7 % 13), k, 2 * DEPTH - 1 - k);
        sum += 64 * (1 + k * 7 % 13);
    }
    solve(&instance);
    cr_assert_eq(instance.placement.total_bytes, sum);
    instance_fini(&instance);
}

ParameterizedTestParameters(placement, a_transformer_wastes_at_most_5_percent)
{
    /* name, layers, ranks, width, MLP, vocabulary, tokens, tokens of a head chunk, bytes of weight and value */
    static struct transformer models[] = {
        {"tiny", 4, 2, 128, 512, 256, 1024, 1024, 4, 4, false},
        {"small", 6, 2, 384, 1536, 256, 2048, 2048, 4, 4, false},
        {"gpt2", 12, 2, 768, 3072, 50257, 1024, 1024, 4, 4, false},
        {"gpt2, head in chunks", 12, 2, 768, 3072, 50257, 1024, 128, 4, 4, false},
        {"gpt2, recompute", 12, 2, 768, 3072, 50257, 1024, 128, 4, 4, true},
        {"gpt2, many tokens", 12, 2, 768, 3072, 50257, 16384, 1024, 4, 4, false},
        {"gpt2, many tokens, recompute", 12, 2, 768, 3072, 50257, 16384, 1024, 4, 4, true},
        {"gpt2, 1024 ranks", 12, 1024, 768, 3072, 50257, 256, 256, 4, 4, false},
        {"gpt2-xl bf16", 48, 8, 1600, 6400, 50257, 4096, 512, 2, 2, false},
        {"gpt2-xl bf16, recompute", 48, 8, 1600, 6400, 50257, 4096, 512, 2, 2, true},
        {"1b bf16", 16, 64, 2048, 8192, 128256, 8192, 1024, 2, 2, false},
        {"1b bf16, recompute", 16, 64, 2048, 8192, 128256, 8192, 1024, 2, 2, true},
        {"70b bf16", 80, 1024, 8192, 28672, 128256, 4096, 512, 2, 2, false},
        {"70b bf16, recompute", 80, 1024, 8192, 28672, 128256, 4096, 512, 2, 2, true},
        {"70b bf16, recompute, whole head", 80, 1024, 8192, 28672, 128256, 4096, 4096, 2, 2, true},
    };
    return cr_make_param_array(struct transformer, models, sizeof(models) / sizeof(models[0]));
}

ParameterizedTest(struct transformer *model, placement, a_transformer_wastes_at_most_5_percent)
{
    struct instance instance;
    instance_transformer(&instance, model);
    cr_assert_gt(instance.placement.row_count, 20 * model->layers);
    solve(&instance);
    uint64_t bytes;
    uint32_t time;
    cr_assert_eq(eo_placement_lower_bound(&instance.placement, &bytes, &time), EO_OK);
    const double ratio = (double)instance.placement.total_bytes / (double)bytes;
    cr_log_info("%-32s %5u rows, peak / bound %.4f", model->name, instance.placement.row_count, ratio);
    cr_assert(ratio >= 1 && ratio <= 1.05, "%s: %.4f", model->name, ratio);
    instance_fini(&instance);
}
