/* SPDX-License-Identifier: MIT
 *
 * What the proof says: how often, and in which words.
 */
#include "tests/unit/plan/proof/expect.h"

#include <stdlib.h>
#include <string.h>

static bool stop_at_once(void *user, const struct eo_hazard *hazard)
{
    uint32_t *count = user;
    (*count)++;
    return false;
}

/*
 * All hazards are reported, each pair of operations once, the first one is handed back; a report that says stop, or
 * no report, stops. Method: two reads that race with one write of three rows; the pairs are counted.
 */
Test(proof, each_pair_of_operations_is_reported_once)
{
    struct eo_hand *hand = eo_hand_create(1);
    uint32_t rows[3];
    for (int i = 0; i < 3; i++)
        rows[i] = eo_hand_row(hand, "row", (uint64_t)i * 8, 8, EO_NONE);
    eo_hand_operation(hand, FIRST, COMPUTE, "write");
    for (int i = 0; i < 3; i++)
        eo_hand_access(hand, EO_WRITE, rows[i], 0, 0);
    for (int k = 0; k < 2; k++) {
        eo_hand_operation(hand, FIRST, COMM, k == 0 ? "one" : "two");
        for (int i = 0; i < 3; i++)
            eo_hand_access(hand, EO_READ, rows[i], 0, 0);
    }
    cr_assert_eq(eo_hand_prove(hand, FIRST, STEADY, 1), EO_ERR_SCHEDULE);
    cr_assert_eq(hand->hazard_count, 2);
    cr_expect_str_eq(eo_hand_later(hand, &hand->hazards[0], FIRST, STEADY), "one");
    cr_expect_str_eq(eo_hand_later(hand, &hand->hazards[1], FIRST, STEADY), "two");

    static const eo_list sequence[] = {EO_LIST_FIRST};
    uint32_t count = 0;
    struct eo_proof_params params = {.schedule = &hand->schedule,
                                     .sequence = sequence,
                                     .sequence_count = 1,
                                     .report = stop_at_once,
                                     .report_user = &count};
    struct eo_hazard first;
    cr_expect_eq(eo_proof_run(&params, &first), EO_ERR_SCHEDULE);
    cr_expect_eq(count, 1);
    cr_expect_eq(first.operation, 1);
    params.report = NULL;
    cr_expect_eq(eo_proof_run(&params, &first), EO_ERR_SCHEDULE);
    cr_expect_eq(first.operation, 1);
    params.sequence_count = 0;
    cr_expect_eq(eo_proof_run(&params, &first), EO_OK);
    cr_expect_eq(first.kind, EO_HAZARD_NONE);
    free(hand);
}

static void long_namer(void *user, const struct eo_operation *operation, char *text, size_t bytes)
{
    memset(text, 'n', bytes - 1);
    text[bytes - 1] = '\0';
}

/*
 * Texts name both operations in words, the row, and the wait that is missing; what is too long is cut.
 * Method: the pair that YaFSDP lacks, without a namer, and with names as long as they may be.
 */
Test(proof, texts_name_operations_rows_and_the_missing_wait)
{
    struct eo_hand *hand = eo_hand_create(1);
    char row_name[31];
    memset(row_name, 'r', sizeof(row_name) - 1);
    row_name[sizeof(row_name) - 1] = '\0';
    const uint32_t shard = eo_hand_row(hand, row_name, 0, 256, 0);
    struct eo_operation *operation = eo_hand_operation(hand, FIRST, COMPUTE, "update");
    operation->kind = EO_OP_UPDATE;
    operation->layer = 0;
    eo_hand_access(hand, EO_UPDATE, shard, 0, 1);
    operation = eo_hand_operation(hand, FIRST, COMM, "gather");
    operation->kind = EO_OP_ALL_GATHER;
    operation->position = 0;
    operation->micro_batch = 2;
    eo_hand_access(hand, EO_READ, shard, 0, 1);

    static const eo_list sequence[] = {EO_LIST_FIRST};
    struct eo_proof_params params = {.schedule = &hand->schedule, .sequence = sequence, .sequence_count = 1};
    struct eo_hazard first;
    cr_assert_eq(eo_proof_run(&params, &first), EO_ERR_SCHEDULE);
    cr_expect_str_eq(first.text,
                     "all-gather of position 0, micro-batch 2 (run 0) reads rrrrrrrrrrrrrrrrrrrrrrrrrrrrrr "
                     "while optimizer update of layer 0 (run 0) may still write it: all-gather of "
                     "position 0, micro-batch 2 (run 0) needs a wait for optimizer update of layer 0");
    params.namer = long_namer;
    cr_assert_eq(eo_proof_run(&params, &first), EO_ERR_SCHEDULE);
    cr_expect_lt(strlen(first.text), sizeof(first.text));
    free(hand);
}

/*
 * Every kind of operation has a word.
 * Method: a read of what nothing has written, by each kind in turn, without a namer.
 */
Test(proof, texts_have_a_word_for_every_kind)
{
    static const eo_list sequence[] = {EO_LIST_FIRST};
    for (int kind = 0; kind < EO_OP_KIND_COUNT; kind++) {
        struct eo_hand *hand = eo_hand_create(1);
        const uint32_t row = eo_hand_row(hand, "row", 0, 8, EO_NONE);
        eo_hand_operation(hand, FIRST, COMPUTE, "read")->kind = (eo_operation_kind)kind;
        eo_hand_access(hand, EO_READ, row, 0, 0);
        const struct eo_proof_params params = {.schedule = &hand->schedule, .sequence = sequence, .sequence_count = 1};
        struct eo_hazard hazard;
        cr_assert_eq(eo_proof_run(&params, &hazard), EO_ERR_SCHEDULE);
        cr_expect_not(strstr(hazard.text, "null"), "kind %d: %s", kind, hazard.text);
        free(hand);
    }
}
