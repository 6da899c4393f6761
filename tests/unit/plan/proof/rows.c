/* SPDX-License-Identifier: MIT
 *
 * The proof of rows that others use: peers, the whole run, a trainer; and of queues that are long enough.
 */
#include "tests/unit/plan/proof/expect.h"

#include <stdlib.h>
#include <string.h>

/*
 * A row that peers read stays until all of them are known to have read it: after a later collective with them, and not one
 * of their group alone.
 * Method: an all-gather of r; then collectives of several scopes, for the last of which compute waits; then r is written.
 * Groups and replicas one after the other reach the whole world.
 */
Test(proof, a_row_that_peers_read_stays_until_they_have)
{
    enum { ALONE = EO_SCOPE_ALONE, GROUP = EO_SCOPE_GROUP, REPLICAS = EO_SCOPE_REPLICAS, WORLD = EO_SCOPE_WORLD,
           PART = EO_SCOPE_PART, ALL = GROUP | PART /* of a group with parts */ };
    static const struct {
        uint8_t shown, later[2];
        bool good;
    } cases[] = {
        {WORLD, {ALONE, ALONE}, false},    {WORLD, {WORLD, ALONE}, true},  {WORLD, {GROUP, ALONE}, false},
        {WORLD, {GROUP, REPLICAS}, true},  {WORLD, {REPLICAS, GROUP}, true}, {WORLD, {GROUP, GROUP}, false},
        {GROUP, {GROUP, ALONE}, true},     {GROUP, {REPLICAS, ALONE}, false}, {GROUP, {WORLD, ALONE}, true},
        {ALONE, {ALONE, ALONE}, true}, /* there is no peer */
        {ALL, {PART, PART}, false},        {PART, {PART, ALONE}, true},   {PART, {ALL, ALONE}, true},
        {ALL, {ALL, ALONE}, true},         {ALL | REPLICAS, {ALL, REPLICAS}, true}, {ALL | REPLICAS, {PART, REPLICAS}, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct eo_hand *hand = eo_hand_create(1);
        const uint32_t r = eo_hand_row(hand, "r", 0, 64, 1), t = eo_hand_row(hand, "t", 64, 64, EO_NONE);
        struct eo_operation *gather = eo_hand_operation(hand, FIRST, COMM, "gather");
        gather->peers_read = true;
        gather->scope = cases[i].shown;
        eo_hand_access(hand, EO_READ, r, 1, 0);
        for (uint32_t k = 0; k < 2; k++) {
            eo_hand_operation(hand, FIRST, COMM, k ? "second" : "first")->scope = cases[i].later[k];
            eo_hand_access(hand, EO_WRITE, t, k, 0);
        }
        eo_hand_operation(hand, FIRST, COMPUTE, "write");
        eo_hand_access(hand, EO_WRITE, r, 1, 1);
        eo_hand_wait(hand, COMM, "second", false);
        cr_expect_eq(eo_hand_prove(hand, FIRST, FIRST, 1), cases[i].good ? EO_OK : EO_ERR_SCHEDULE, "case %zu", i);
        if (!cases[i].good) {
            cr_expect_eq(hand->hazards[0].kind, EO_HAZARD_PEER, "case %zu", i);
            cr_expect(strstr(hand->hazards[0].text, "write (run 0) overwrites r while a peer may still read it in gather"),
                      "%s", hand->hazards[0].text);
        }
        free(hand);
    }
}

/*
 * More operations under way than a queue holds are found, and what compute has waited for is none of them.
 * Method: three gathers of rows of their own; with a wait of compute for the first one two may be under way.
 */
Test(proof, a_queue_that_is_too_short_is_found)
{
    for (int waits = 0; waits < 2; waits++) {
        struct eo_hand *hand = eo_hand_create(1);
        const char *names[] = {"g0", "g1", "g2"};
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t row = eo_hand_row(hand, names[i], 64 * i, 64, EO_NONE);
            eo_hand_operation(hand, FIRST, COMM, names[i]);
            eo_hand_access(hand, EO_WRITE, row, i, 0);
            if (i != 0 || !waits)
                continue;
            eo_hand_operation(hand, FIRST, COMPUTE, "r");
            eo_hand_wait(hand, COMM, "g0", false);
        }
        const uint32_t most = waits ? 2 : 3;
        hand->schedule.queue_items[COMM] = most;
        cr_expect_eq(eo_hand_prove(hand, FIRST, FIRST, 1), EO_OK, "%s", hand->hazards[0].text);
        hand->schedule.queue_items[COMM] = most - 1;
        cr_expect_eq(eo_hand_prove(hand, FIRST, FIRST, 1), EO_ERR_SCHEDULE);
        cr_expect_eq(hand->hazards[0].kind, EO_HAZARD_QUEUE);
        cr_expect(strstr(hand->hazards[0].text, "when g2 (run 0) is issued"), "%s", hand->hazards[0].text);
        free(hand);
    }
}

/*
 * A row of the whole run lies alone, though no operation ever touches it: a trainer's kernels may.
 * Method: a row that slides along it, written before anything else; of two rows of the whole run the later is the other.
 */
Test(proof, a_row_of_the_whole_run_shares_no_byte)
{
    for (uint64_t address = 96; address < 114; address++) {
        for (int always = 0; always < 3; always++) { /* none of the two rows, one, both */
            struct eo_hand *hand = eo_hand_create(1);
            const uint32_t kept = eo_hand_row(hand, "kept", 100, 10, EO_NONE);
            const uint32_t sliding = eo_hand_row(hand, "sliding", address, 3, EO_NONE);
            hand->rows[kept].always = always > 0;
            hand->rows[sliding].always = always > 1;
            eo_hand_operation(hand, FIRST, COMPUTE, "write");
            eo_hand_access(hand, EO_WRITE, sliding, 0, 0);
            if (always == 0 || address + 3 <= 100 || address >= 110) {
                expect_none(hand, 1);
            } else {
                expect_one(hand, 1, EO_HAZARD_SHARED, "", "");
                cr_expect_eq(hand->hazards[0].row, kept);
                cr_expect_eq(hand->hazards[0].other_row, sliding);
                cr_expect_str_eq(hand->hazards[0].text, "kept holds its content for the whole run, but shares addresses with "
                                                        "sliding: it needs a place of its own");
            }
            free(hand);
        }
    }
}

/* A step of two positions, or a forward-only run, with "other" written before the `at`-th pass. */
static void add_passes(struct eo_hand *hand, eo_list list, uint32_t other, uint32_t at, eo_stream_id stream, bool is_head)
{
    static const struct {
        const char *name;
        eo_operation_kind kind;
        uint32_t position;
    } passes[] = {{"F0", EO_OP_FORWARD, 0},  {"F1", EO_OP_FORWARD, 1},   {"R1", EO_OP_RECOMPUTE, 1},
                  {"B1", EO_OP_BACKWARD, 1}, {"R0", EO_OP_RECOMPUTE, 0}, {"B0", EO_OP_BACKWARD, 0}};
    for (uint32_t i = 0; i <= (list == FORWARD ? 2 : 6); i++) {
        if (i == at) {
            eo_hand_operation(hand, list, stream, "other");
            eo_hand_access(hand, EO_WRITE, other, 0, 0);
        }
        if (i == (list == FORWARD ? 2 : 6) || (i == 1 && is_head && list != FORWARD))
            continue;
        struct eo_operation *operation = eo_hand_operation(hand, list, COMPUTE, passes[i].name);
        operation->kind = passes[i].kind;
        operation->position = passes[i].position;
    }
}

/*
 * A trainer's buffer is the trainer's from the first to the last pass of its life, though the lists do not say that any
 * pass touches it; also in a forward-only run, where a head stands for its backward pass.
 * Method: another row at the same addresses is written before each pass in turn, on the same stream and on another one.
 */
Test(proof, a_trainers_buffer_lives_as_long_as_the_trainer_said)
{
    static const struct {
        eo_list list;
        bool is_head;
        eo_moment first, last;
        uint32_t begin, end; /* the first and the last of the list's passes that touch it */
    } cases[] = {
        {FIRST, false, {EO_PASS_FORWARD, 0}, {EO_PASS_BACKWARD, 0}, 0, 5},
        {FIRST, false, {EO_PASS_FORWARD, 1}, {EO_PASS_RECOMPUTE, 1}, 1, 2},
        {FIRST, false, {EO_PASS_BACKWARD, 1}, {EO_PASS_RECOMPUTE, 0}, 3, 4},
        {FIRST, false, {EO_PASS_RECOMPUTE, 0}, {EO_PASS_RECOMPUTE, 0}, 4, 4},
        {FIRST, true, {EO_PASS_FORWARD, 1}, {EO_PASS_BACKWARD, 1}, 2, 3},
        {FIRST, true, {EO_PASS_FORWARD, 0}, {EO_PASS_FORWARD, 1}, 0, 0},
        {FORWARD, false, {EO_PASS_FORWARD, 0}, {EO_PASS_FORWARD, 1}, 0, 1},
        {FORWARD, false, {EO_PASS_FORWARD, 0}, {EO_PASS_BACKWARD, 1}, 0, 1},
        {FORWARD, false, {EO_PASS_FORWARD, 1}, {EO_PASS_BACKWARD, 0}, 1, 1},
        {FORWARD, true, {EO_PASS_FORWARD, 0}, {EO_PASS_BACKWARD, 1}, 0, 1},
        {FORWARD, true, {EO_PASS_BACKWARD, 1}, {EO_PASS_BACKWARD, 0}, 1, 1},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (uint32_t at = 0; at <= (cases[c].list == FORWARD ? 2 : 6); at++) {
            for (int way = 0; way < 4; way++) { /* one stream or two, and a row of the trainer or one that is nobody's */
                struct eo_hand *hand = eo_hand_create(1);
                const uint32_t buffer = eo_hand_row(hand, "buffer", 0, 64, EO_NONE);
                const uint32_t other = eo_hand_row(hand, "other", 63, 64, EO_NONE);
                hand->rows[buffer].trainers = way < 2;
                hand->rows[buffer].first = cases[c].first;
                hand->rows[buffer].last = cases[c].last;
                if (cases[c].list == FORWARD)
                    add_passes(hand, FIRST, other, EO_NONE, COMPUTE, cases[c].is_head);
                add_passes(hand, cases[c].list, other, at, way % 2 ? COMM : COMPUTE, cases[c].is_head);
                const bool within = at > cases[c].begin && at <= cases[c].end;
                const eo_status status = eo_hand_prove(hand, cases[c].list, STEADY, 1);
                cr_expect_eq(status, way == 1 || (way == 0 && within) ? EO_ERR_SCHEDULE : EO_OK, "case %zu, %u, way %d: %s", c,
                             at, way, hand->hazards[0].text);
                if (status != EO_OK)
                    cr_expect_eq(hand->hazards[0].kind, way == 0 ? EO_HAZARD_LIFE : EO_HAZARD_RACE, "case %zu, %u: %s", c, at,
                                 hand->hazards[0].text);
                if (c == 0 && at == 3 && way == 0)
                    cr_expect_str_eq(hand->hazards[0].text,
                                     "B0 (run 0) needs the trainer's buffer buffer as the passes since F0 (run 0) left it, "
                                     "but other (run 0) has written other at the same addresses: the buffer needs a place of "
                                     "its own until here");
                free(hand);
            }
        }
    }
}
