/* SPDX-License-Identifier: MIT
 *
 * The proof from run to run: evaluations, checkpoints, weights calls and graphs between them.
 */
#include "tests/unit/plan/proof/expect.h"

#include <stdlib.h>
#include <string.h>

enum training_fault {
    TRAINING_SOUND,
    EVALUATION_OVERWRITES_STATE, /* the forward-only pass has its scratch where the optimizer's state lies */
    EVALUATION_OF_OLD_WEIGHTS,   /* it wants the weights of the start, whatever step it is */
    STATE_FROM_ANOTHER_STREAM,   /* the optimizer's state is written where only a checkpoint would ever have to wait */
    NORM_AT_ONCE,                /* the first-step list writes what peers read in the step before, without a collective */
    TRAINING_FAULTS,
};

/* One layer that is gathered, used, reduced and updated, a norm that peers read, and a forward-only pass. */
static struct eo_hand *make_training(enum training_fault fault)
{
    enum { WEIGHTS, COPY, STATE, GRADIENT, NORM, NORMS, SCRATCH };
    struct eo_hand *hand = eo_hand_create(1);
    eo_hand_row(hand, "weights", 0, 64, WEIGHTS);
    eo_hand_row(hand, "copy", 64, 64, EO_NONE);
    eo_hand_row(hand, "state", 128, 64, STATE);
    eo_hand_row(hand, "gradient", 192, 64, EO_NONE);
    eo_hand_row(hand, "norm", 256, 64, EO_NONE);
    eo_hand_row(hand, "norms", 320, 64, EO_NONE);
    eo_hand_row(hand, "scratch", fault == EVALUATION_OVERWRITES_STATE ? 191 : 384, 64, EO_NONE);
    hand->rows[WEIGHTS].saved = hand->rows[STATE].saved = true;
    for (int list = FIRST; list <= STEADY; list++) {
        const bool norm_first = fault == NORM_AT_ONCE && list == FIRST;
        for (int place = 0; place < 2; place++) {
            if (place == 0 && list == FIRST && !norm_first) {
                struct eo_operation *gather = eo_hand_operation(hand, FIRST, COMM, "gather");
                gather->scope = EO_SCOPE_GROUP;
                gather->peers_read = true;
                eo_hand_access(hand, EO_READ, WEIGHTS, WEIGHTS, 0);
                eo_hand_access(hand, EO_WRITE, COPY, WEIGHTS, 0);
            }
            if (place == (norm_first ? 1 : 0)) {
                if (norm_first) {
                    eo_hand_operation(hand, FIRST, COMM, "gather")->scope = EO_SCOPE_GROUP;
                    eo_hand_access(hand, EO_READ, WEIGHTS, WEIGHTS, 0);
                    eo_hand_access(hand, EO_WRITE, COPY, WEIGHTS, 0);
                }
                eo_hand_operation(hand, (eo_list)list, COMPUTE, "pass");
                eo_hand_access(hand, EO_READ, COPY, WEIGHTS, 0);
                eo_hand_access(hand, EO_WRITE, GRADIENT, GRADIENT, 0);
                eo_hand_wait(hand, COMM, list == FIRST ? "gather" : "next gather", list != FIRST);
                eo_hand_operation(hand, (eo_list)list, COMM, "reduce")->scope = EO_SCOPE_GROUP;
                eo_hand_access(hand, EO_UPDATE, GRADIENT, GRADIENT, 1);
                eo_hand_wait(hand, COMPUTE, "pass", false);
            }
            if (place == (norm_first ? 0 : 1)) {
                eo_hand_operation(hand, (eo_list)list, COMPUTE, "norm");
                eo_hand_access(hand, EO_WRITE, NORM, NORM, 0);
                if (!norm_first)
                    eo_hand_wait(hand, COMM, "reduce", false);
            }
        }
        struct eo_operation *norms = eo_hand_operation(hand, (eo_list)list, COMM, "norms");
        norms->scope = EO_SCOPE_GROUP;
        norms->peers_read = true;
        eo_hand_access(hand, EO_READ, NORM, NORM, 0);
        eo_hand_access(hand, EO_WRITE, NORMS, NORMS, 0);
        eo_hand_wait(hand, COMPUTE, "norm", false);
        eo_hand_operation(hand, (eo_list)list, COMPUTE, "update");
        eo_hand_access(hand, EO_READ, NORMS, NORMS, 0);
        eo_hand_access(hand, EO_READ, GRADIENT, GRADIENT, 1);
        eo_hand_access(hand, EO_UPDATE, WEIGHTS, WEIGHTS, 1);
        eo_hand_wait(hand, COMM, "norms", false);
        if (fault == STATE_FROM_ANOTHER_STREAM)
            eo_hand_operation(hand, (eo_list)list, REDUCE, "state");
        eo_hand_access(hand, EO_UPDATE, STATE, STATE, 1);
        struct eo_operation *next = eo_hand_operation(hand, (eo_list)list, COMM, "next gather");
        next->scope = fault == NORM_AT_ONCE ? EO_SCOPE_ALONE : EO_SCOPE_GROUP; /* else it comes between */
        next->peers_read = true;
        eo_hand_access(hand, EO_READ, WEIGHTS, WEIGHTS, 1);
        eo_hand_access(hand, EO_WRITE, COPY, WEIGHTS, 1);
        eo_hand_wait(hand, COMPUTE, "update", false);
    }
    struct eo_operation *gather = eo_hand_operation(hand, FORWARD, COMM, "forward gather");
    gather->scope = EO_SCOPE_GROUP;
    gather->peers_read = true;
    for (int k = 0; k < 2; k++) {
        struct eo_access *access = eo_hand_access(hand, k ? EO_WRITE : EO_READ, k ? COPY : WEIGHTS, WEIGHTS, 0);
        access->version_kind = fault == EVALUATION_OF_OLD_WEIGHTS ? EO_VERSION_FIXED : EO_VERSION_STEP;
    }
    eo_hand_operation(hand, FORWARD, COMPUTE, "forward pass");
    eo_hand_access(hand, EO_READ, COPY, WEIGHTS, 0)->version_kind =
        fault == EVALUATION_OF_OLD_WEIGHTS ? EO_VERSION_FIXED : EO_VERSION_STEP;
    eo_hand_access(hand, EO_WRITE, SCRATCH, SCRATCH, 0);
    eo_hand_wait(hand, COMM, "forward gather", false);
    return hand;
}

enum { LEAVE = EO_TURN_QUIET | EO_TURN_ORDER };

/*
 * Lists that are sound in a row of steps, and in an evaluation alone, may not be so one after the other.
 * Method: each fault passes the runs that know no turns, and is found in the turns that bring it about.
 */
Test(proof, a_training_is_proven_from_turn_to_turn)
{
    static const eo_list steps[] = {FIRST, STEADY, STEADY}, forward[] = {FORWARD};
    static const eo_list all[] = {FORWARD, FIRST, STEADY, STEADY, FORWARD, FIRST, STEADY, STEADY, FIRST, FIRST};
    static const uint8_t turns[] = {0, LEAVE, 0, EO_TURN_SAVE, LEAVE, LEAVE, EO_TURN_GRAPH, EO_TURN_GRAPH | EO_TURN_SAVE,
                                    EO_TURN_ORDER, LEAVE | EO_TURN_WEIGHTS};
    static const struct {
        enum eo_hazard_kind kind;
        uint32_t run; /* that it is found in first */
        const char *text;
    } expected[TRAINING_FAULTS] = {
        [EVALUATION_OVERWRITES_STATE] = {EO_HAZARD_STALE, 1, "update (run 1) updates state and needs version 0"},
        [EVALUATION_OF_OLD_WEIGHTS] = {EO_HAZARD_STALE, 4, "forward gather (run 4) reads weights and needs version 0"},
        [STATE_FROM_ANOTHER_STREAM] = {EO_HAZARD_RACE, 3,
                                       "the checkpoint (run 3) reads state while state (run 2) may still write it"},
        [NORM_AT_ONCE] = {EO_HAZARD_PEER, 8, "norm (run 8) overwrites norm while a peer may still read it in norms (run 7)"},
    };
    for (int fault = 0; fault < TRAINING_FAULTS; fault++) {
        struct eo_hand *hand = make_training((enum training_fault)fault);
        const struct eo_hazard *first = &hand->hazards[0];
        cr_assert_eq(eo_hand_prove_turns(hand, steps, NULL, 3), EO_OK, "fault %d: %s", fault, first->text);
        cr_assert_eq(eo_hand_prove_turns(hand, forward, NULL, 1), EO_OK, "fault %d: %s", fault, first->text);
        const eo_status status = eo_hand_prove_turns(hand, all, turns, sizeof(turns));
        cr_assert_eq(status, fault ? EO_ERR_SCHEDULE : EO_OK, "fault %d: %s", fault, first->text);
        if (fault) {
            cr_expect_eq(first->kind, expected[fault].kind, "fault %d: %s", fault, first->text);
            cr_expect_eq(first->run, expected[fault].run, "fault %d: %s", fault, first->text);
            cr_expect(strstr(first->text, expected[fault].text), "fault %d: %s", fault, first->text);
        }
        free(hand);
    }
}

/*
 * What a runtime does from run to run is needed, each part of it.
 * Method: sound lists; a turn without one of its parts, or the steady list where the first-step one is due.
 */
Test(proof, a_turn_that_leaves_out_a_part_is_found)
{
    enum { GRAPH = EO_TURN_GRAPH, ORDER = EO_TURN_ORDER, QUIET = EO_TURN_QUIET, WEIGHTS = EO_TURN_WEIGHTS };
    static const struct {
        eo_list runs[4];
        uint8_t turns[4];
        enum eo_hazard_kind kind;
    } cases[] = {
        {{FIRST, STEADY, STEADY, STEADY}, {0}, EO_HAZARD_NONE},
        {{FIRST, STEADY, FORWARD, FIRST}, {0, 0, LEAVE, LEAVE}, EO_HAZARD_NONE},
        {{FIRST, STEADY, FORWARD, STEADY}, {0, 0, LEAVE, LEAVE}, EO_HAZARD_UNKNOWN_WAIT},
        {{FIRST, STEADY, FIRST, STEADY}, {0, 0, LEAVE | WEIGHTS, 0}, EO_HAZARD_NONE},
        {{FIRST, STEADY, STEADY, STEADY}, {0, 0, LEAVE | WEIGHTS, 0}, EO_HAZARD_STALE},
        {{FIRST, STEADY, STEADY, FIRST}, {0, GRAPH, GRAPH, ORDER}, EO_HAZARD_NONE},
        {{FIRST, STEADY, STEADY, STEADY}, {0, GRAPH, GRAPH, ORDER}, EO_HAZARD_UNKNOWN_WAIT},
        {{FORWARD, FIRST, STEADY, STEADY}, {0, LEAVE, 0, 0}, EO_HAZARD_NONE},
        {{FORWARD, FIRST, STEADY, STEADY}, {0, 0, 0, 0}, EO_HAZARD_RACE},
        {{FORWARD, STEADY, STEADY, STEADY}, {0, LEAVE, 0, 0}, EO_HAZARD_UNKNOWN_WAIT},
        {{FIRST, STEADY, FORWARD, FIRST}, {0, 0, QUIET, QUIET}, EO_HAZARD_NONE}, /* quiet is order too */
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct eo_hand *hand = make_training(TRAINING_SOUND);
        const eo_status status = eo_hand_prove_turns(hand, cases[c].runs, cases[c].turns, 4);
        cr_expect_eq(status, cases[c].kind == EO_HAZARD_NONE ? EO_OK : EO_ERR_SCHEDULE, "case %zu: %s", c,
                     hand->hazards[0].text);
        if (status != EO_OK)
            cr_expect_eq(hand->hazards[0].kind, cases[c].kind, "case %zu: %s", c, hand->hazards[0].text);
        free(hand);
    }
}
