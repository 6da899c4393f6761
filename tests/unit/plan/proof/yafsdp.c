/* SPDX-License-Identifier: MIT
 *
 * The proof on a schedule that people trained with and that has a fault; and the helper that takes waits away.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/plan/mutate.h"
#include "tests/unit/plan/proof/yafsdp_v1.h"

enum { UNITS = 6, STEPS = 4 }; /* embedding, four blocks, head */

static uint32_t count_kind(const struct eo_hand *hand, eo_list list, eo_operation_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < hand->schedule.lists[list].count; i++)
        count += hand->operations[list][i].kind == kind;
    return count;
}

/*
 * The data is YaFSDP's step: as many collectives as it has, and a steady step that repeats itself.
 * Method: collectives are counted, 2 U - 2 + 1 gathers and U + 1 reductions for one micro-batch; the third step is
 * compared with the second one, operation by operation.
 */
Test(proof_yafsdp, the_data_has_the_collectives_of_the_original)
{
    for (uint32_t micro_batches = 1; micro_batches <= 3; micro_batches++) {
        struct eo_hand *hand = eo_yafsdp_v1_create(UNITS, micro_batches, false);
        const struct eo_operation_list *steady = &hand->schedule.lists[EO_LIST_STEADY];
        const struct eo_operation_list *again = &hand->schedule.lists[EO_LIST_FORWARD];
        const uint32_t gathers = 1 + 2 + micro_batches * 2 * (UNITS - 2);
        for (int list = EO_LIST_FIRST; list <= EO_LIST_STEADY; list++) {
            cr_expect_eq(count_kind(hand, (eo_list)list, EO_OP_ALL_GATHER), gathers);
            cr_expect_eq(count_kind(hand, (eo_list)list, EO_OP_REDUCE_SCATTER), UNITS * micro_batches + 1);
        }
        cr_assert(micro_batches != 1 || gathers == 2 * UNITS - 2 + 1);
        cr_assert_eq(again->count, steady->count);
        for (uint32_t i = 0; i < steady->count; i++) {
            const struct eo_operation *a = &again->operations[i], *b = &steady->operations[i];
            cr_assert(a->kind == b->kind && a->stream == b->stream && a->micro_batch == b->micro_batch &&
                          a->id == b->id && a->access_count == b->access_count,
                      "operation %u differs", i);
            cr_expect_eq(memcmp(a->wait, b->wait, sizeof(a->wait)), 0, "waits of operation %u differ", i);
            cr_expect_eq(memcmp(a->wait_previous_run, b->wait_previous_run, sizeof(a->wait_previous_run)), 0,
                         "waits of operation %u are of other runs", i);
            cr_expect_eq(memcmp(&hand->accesses[a->access_begin], &hand->accesses[b->access_begin],
                                a->access_count * sizeof(hand->accesses[0])),
                         0, "accesses of operation %u differ", i);
        }
        free(hand);
    }
}

/*
 * YaFSDP's missing edge, and nothing else: the cast at step start writes the shards that the first gathers read, of
 * the norms and of units 0 and 1; unit 2 is gathered after the forward of unit 0, and so after the cast. Method: all
 * hazards over four steps, for one to three micro-batches: these three in each step, both operations named.
 */
Test(proof_yafsdp, its_first_gathers_race_with_the_cast_and_nothing_else_does)
{
    static const char *const gathers[] = {"gather of norms", "gather of unit 0, forward 0",
                                          "gather of unit 1, forward 0"};
    static const char *const rows[] = {"shard.6", "shard.0", "shard.1"};
    for (uint32_t micro_batches = 1; micro_batches <= 3; micro_batches++) {
        struct eo_hand *hand = eo_yafsdp_v1_create(UNITS, micro_batches, false);
        cr_assert_eq(eo_hand_prove(hand, EO_LIST_FIRST, EO_LIST_STEADY, STEPS), EO_ERR_SCHEDULE);
        for (uint32_t i = 0; i < hand->hazard_count && i < 3 * STEPS; i++) {
            const struct eo_hazard *hazard = &hand->hazards[i];
            cr_expect_eq(hazard->kind, EO_HAZARD_RACE, "%s", hazard->text);
            cr_expect_eq(hazard->run, i / 3, "%s", hazard->text);
            cr_expect_eq(hazard->other_run, i / 3, "%s", hazard->text);
            cr_expect_str_eq(eo_hand_later(hand, hazard, EO_LIST_FIRST, EO_LIST_STEADY), gathers[i % 3], "%s",
                             hazard->text);
            cr_expect_str_eq(eo_hand_earlier(hand, hazard, EO_LIST_FIRST, EO_LIST_STEADY), "step-start cast", "%s",
                             hazard->text);
            cr_expect_str_eq(hand->rows[hazard->row].name, rows[i % 3], "%s", hazard->text);
            cr_expect_not_null(strstr(hazard->text, gathers[i % 3]), "%s", hazard->text);
            cr_expect_not_null(strstr(hazard->text, "step-start cast"), "%s", hazard->text);
        }
        cr_expect_eq(hand->hazard_count, 3 * STEPS, "%u hazards; the last: %s", hand->hazard_count,
                     hand->hazards[(hand->hazard_count - 1) % EO_HAND_HAZARDS_MAX].text);
        cr_log_info("%s", hand->hazards[0].text);
        free(hand);
    }
}

/*
 * One wait mends it: the communication stream waits for the cast before it gathers the norms.
 * Method: the same steps with that edge are proven; taking it out of the steady list alone is caught.
 */
Test(proof_yafsdp, with_the_missing_edge_it_passes)
{
    for (uint32_t micro_batches = 1; micro_batches <= 3; micro_batches++) {
        struct eo_hand *hand = eo_yafsdp_v1_create(UNITS, micro_batches, true);
        cr_assert_eq(eo_hand_prove(hand, EO_LIST_FIRST, EO_LIST_STEADY, STEPS), EO_OK, "%s", hand->hazards[0].text);
        struct eo_operation *gather = &hand->operations[EO_LIST_STEADY][1];
        cr_assert_str_eq(hand->names[gather->id], "gather of norms");
        cr_assert_str_eq(hand->names[gather->wait[EO_STREAM_COMPUTE]], "step-start cast");
        gather->wait[EO_STREAM_COMPUTE] = EO_NONE;
        cr_assert_eq(eo_hand_prove(hand, EO_LIST_FIRST, EO_LIST_STEADY, STEPS), EO_ERR_SCHEDULE);
        cr_expect_str_eq(eo_hand_earlier(hand, &hand->hazards[0], EO_LIST_FIRST, EO_LIST_STEADY), "step-start cast");
        free(hand);
    }
}

static void check_mutation(void *user, const struct eo_mutation *mutation)
{
    const struct eo_hand *hand = user;
    const bool redundant =
        strcmp(hand->names[hand->operations[EO_LIST_STEADY][mutation->operation].id], "extra") == 0;
    cr_expect_eq(mutation->caught, !redundant, "operation %u", mutation->operation);
    cr_expect_eq(mutation->hazard != NULL, mutation->caught);
}

/*
 * Taking waits away: each one that is needed is caught, one that is not needed is told apart, and the schedule is
 * afterwards what it was.
 * Method: two gather buffers used in turn, each gather waiting for the use before, and one more wait that orders
 * nothing. A schedule that fails as it is gets no verdict.
 */
Test(proof_yafsdp, each_needed_wait_is_missed_when_taken_away)
{
    static const eo_list sequence[] = {EO_LIST_FIRST, EO_LIST_STEADY, EO_LIST_STEADY};
    static const char *const gathers[] = {"gather 0", "gather 1", "gather 2", "gather 3"};
    static const char *const uses[] = {"use 0", "use 1", "use 2", "use 3"};
    struct eo_hand *hand = eo_hand_create(1);
    const uint32_t buffers[] = {eo_hand_row(hand, "even", 0, 64, EO_NONE), eo_hand_row(hand, "odd", 64, 64, EO_NONE)};
    for (int list = EO_LIST_FIRST; list <= EO_LIST_STEADY; list++) {
        for (uint32_t i = 0; i < 4; i++) {
            eo_hand_operation(hand, (eo_list)list, EO_STREAM_COMM, gathers[i]);
            eo_hand_access(hand, EO_WRITE, buffers[i % 2], i, 0);
            if (i >= 2 || list == EO_LIST_STEADY)
                eo_hand_wait(hand, EO_STREAM_COMPUTE, uses[(i + 2) % 4], i < 2);
            eo_hand_operation(hand, (eo_list)list, EO_STREAM_COMPUTE, uses[i]);
            eo_hand_access(hand, EO_READ, buffers[i % 2], i, 0);
            eo_hand_wait(hand, EO_STREAM_COMM, gathers[i], false);
        }
        eo_hand_operation(hand, (eo_list)list, EO_STREAM_COMPUTE, "extra");
        eo_hand_wait(hand, EO_STREAM_COMM, gathers[1], false);
    }
    const struct eo_proof_params params = {.schedule = &hand->schedule, .sequence = sequence, .sequence_count = 3};
    struct eo_operation before[EO_HAND_OPERATIONS_MAX];
    memcpy(before, hand->operations[EO_LIST_STEADY], sizeof(before));
    struct eo_mutations mutations;
    cr_assert_eq(eo_mutate_waits(&hand->schedule, EO_LIST_STEADY, &params, check_mutation, hand, &mutations), EO_OK);
    cr_expect_eq(mutations.caught, 8);
    cr_expect_eq(mutations.caught_as[EO_HAZARD_RACE], 8);
    cr_expect_eq(mutations.uncaught, 1);
    cr_expect_eq(memcmp(before, hand->operations[EO_LIST_STEADY], sizeof(before)), 0);

    hand->accesses[1].subject = 9;
    cr_expect_eq(eo_mutate_waits(&hand->schedule, EO_LIST_STEADY, &params, NULL, NULL, &mutations), EO_ERR_INVALID);
    free(hand);
}
