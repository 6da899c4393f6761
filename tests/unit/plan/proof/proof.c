/* SPDX-License-Identifier: MIT
 *
 * The proof on schedules small enough to see through: order, contents and waits.
 */
#include "tests/unit/plan/proof/expect.h"

#include <stdlib.h>
#include <string.h>

/*
 * Two accesses on two streams: a race exactly where one writes and no wait stands between.
 * Method: every pair of modes, with and without the wait. The row begins with what the first access looks for, and
 * the versions agree in list order, so that only the order is at stake.
 */
Test(proof, conflicting_accesses_need_a_wait)
{
    static const enum eo_access_mode modes[] = {EO_READ, EO_WRITE, EO_UPDATE};
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) {
            for (int waits = 0; waits < 2; waits++) {
                struct eo_hand *hand = eo_hand_create(1);
                const uint32_t row = eo_hand_row(hand, "row", 64, 64, 7);
                int32_t version = modes[a] != EO_READ;
                eo_hand_operation(hand, FIRST, COMPUTE, "a");
                eo_hand_access(hand, modes[a], row, 7, version);
                version += modes[b] != EO_READ;
                eo_hand_operation(hand, FIRST, COMM, "b");
                eo_hand_access(hand, modes[b], row, 7, version);
                if (waits)
                    eo_hand_wait(hand, COMPUTE, "a", false);
                if (waits || (modes[a] == EO_READ && modes[b] == EO_READ))
                    expect_none(hand, 1);
                else
                    expect_one(hand, 1, EO_HAZARD_RACE, "b", "a");
                free(hand);
            }
        }
    }
}

/*
 * Order is carried on: through a wait, the stream that is waited for, and its own waits.
 * Method: a writes, c reads on a third stream and waits for b only, which comes after a by a wait, by its stream, or
 * not.
 */
Test(proof, order_is_transitive)
{
    for (int way = 0; way < 3; way++) {
        struct eo_hand *hand = eo_hand_create(1);
        const uint32_t row = eo_hand_row(hand, "row", 0, 1, EO_NONE);
        eo_hand_operation(hand, FIRST, way == 1 ? COMM : COMPUTE, "a");
        eo_hand_access(hand, EO_WRITE, row, 0, 0);
        eo_hand_operation(hand, FIRST, COMM, "b");
        if (way == 0)
            eo_hand_wait(hand, COMPUTE, "a", false);
        eo_hand_operation(hand, FIRST, REDUCE, "c");
        eo_hand_access(hand, EO_READ, row, 0, 0);
        eo_hand_wait(hand, COMM, "b", false);
        if (way < 2)
            expect_none(hand, 1);
        else
            expect_one(hand, 1, EO_HAZARD_RACE, "c", "a");
        free(hand);
    }
}

/*
 * A wait orders what was issued before the record, and nothing after it.
 * Method: the writer comes directly before or directly after the operation that is waited for.
 */
Test(proof, a_record_says_nothing_of_what_follows_it)
{
    for (int after = 0; after < 2; after++) {
        struct eo_hand *hand = eo_hand_create(1);
        const uint32_t row = eo_hand_row(hand, "row", 0, 1, EO_NONE);
        if (after)
            eo_hand_operation(hand, FIRST, COMPUTE, "mark");
        eo_hand_operation(hand, FIRST, COMPUTE, "write");
        eo_hand_access(hand, EO_WRITE, row, 0, 0);
        if (!after)
            eo_hand_operation(hand, FIRST, COMPUTE, "mark");
        eo_hand_operation(hand, FIRST, COMM, "read");
        eo_hand_access(hand, EO_READ, row, 0, 0);
        eo_hand_wait(hand, COMPUTE, "mark", false);
        if (after)
            expect_one(hand, 1, EO_HAZARD_RACE, "read", "write");
        else
            expect_none(hand, 1);
        free(hand);
    }
}

/*
 * A gather buffer that is filled again in the next run: the gather must wait for the use in the run before.
 * Method: correct in the first run; without the wait the steady run is a race, named with its run.
 */
Test(proof, a_race_across_runs_is_found)
{
    for (int waits = 0; waits < 2; waits++) {
        struct eo_hand *hand = eo_hand_create(1);
        const uint32_t buffer = eo_hand_row(hand, "buffer", 0, 256, EO_NONE);
        for (int list = FIRST; list <= STEADY; list++) {
            eo_hand_operation(hand, (eo_list)list, COMM, "gather");
            eo_hand_access(hand, EO_WRITE, buffer, 0, 0);
            if (waits && list == STEADY)
                eo_hand_wait(hand, COMPUTE, "use", true);
            eo_hand_operation(hand, (eo_list)list, COMPUTE, "use");
            eo_hand_access(hand, EO_READ, buffer, 0, 0);
            eo_hand_wait(hand, COMM, "gather", false);
        }
        expect_none(hand, 1);
        if (waits) {
            expect_none(hand, 5);
        } else {
            expect_one(hand, 2, EO_HAZARD_RACE, "gather", "use");
            cr_expect_eq(hand->hazards[0].run, 1);
            cr_expect_eq(hand->hazards[0].other_run, 0);
            cr_expect_not_null(strstr(hand->hazards[0].text, "gather (run 1) needs a wait for use of run 0"), "%s",
                               hand->hazards[0].text);
        }
        free(hand);
    }
}

/*
 * Rows that share addresses: only bytes count, down to a single one, and both rows are named.
 * Method: a second row slides along the first, which lies at 100 ... 109.
 */
Test(proof, rows_conflict_where_they_share_a_byte)
{
    for (uint64_t address = 96; address < 114; address++) {
        struct eo_hand *hand = eo_hand_create(1);
        const uint32_t fixed = eo_hand_row(hand, "fixed", 100, 10, EO_NONE);
        const uint32_t sliding = eo_hand_row(hand, "sliding", address, 3, EO_NONE);
        eo_hand_operation(hand, FIRST, COMPUTE, "a");
        eo_hand_access(hand, EO_WRITE, fixed, 0, 0);
        eo_hand_operation(hand, FIRST, COMM, "b");
        eo_hand_access(hand, EO_WRITE, sliding, 0, 0);
        if (address + 3 <= 100 || address >= 110) {
            expect_none(hand, 1);
        } else {
            expect_one(hand, 1, EO_HAZARD_RACE, "b", "a");
            cr_expect_eq(hand->hazards[0].row, sliding);
            cr_expect_eq(hand->hazards[0].other_row, fixed);
            cr_expect_not_null(strstr(hand->hazards[0].text, "sliding"), "%s", hand->hazards[0].text);
            cr_expect_not_null(strstr(hand->hazards[0].text, "fixed"), "%s", hand->hazards[0].text);
        }
        free(hand);
    }
}

/*
 * Stale content on one stream, where nothing can race: another subject, another version, never written, or
 * overwritten in one byte through another row. Method: one operation writes (subject 1, version 5), a second one
 * looks; what stands between differs.
 */
Test(proof, stale_content_is_found_without_a_race)
{
    static const struct {
        const char *what;
        uint32_t subject;
        int32_t version;
        bool write, cover;
        enum eo_access_mode mode;
        bool good;
    } cases[] = {
        {"what was written", 1, 5, true, false, EO_READ, true},
        {"another subject", 2, 5, true, false, EO_READ, false},
        {"an older version", 1, 4, true, false, EO_READ, false},
        {"a newer version", 1, 6, true, false, EO_READ, false},
        {"nothing yet", 1, 5, false, false, EO_READ, false},
        {"overwritten in one byte", 1, 5, true, true, EO_READ, false},
        {"the version before an update", 1, 6, true, false, EO_UPDATE, true},
        {"an update that was done already", 1, 5, true, false, EO_UPDATE, false},
        {"an update that leaves one out", 1, 7, true, false, EO_UPDATE, false},
        {"an update of nothing", 1, 6, false, false, EO_UPDATE, false},
        {"an overwrite needs nothing", 9, 9, true, true, EO_WRITE, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct eo_hand *hand = eo_hand_create(1);
        const uint32_t row = eo_hand_row(hand, "row", 100, 10, EO_NONE);
        const uint32_t cover = eo_hand_row(hand, "cover", 109, 4, EO_NONE);
        const char *writer = cases[i].cover ? "cover" : cases[i].write ? "write" : "";
        if (cases[i].write) {
            eo_hand_operation(hand, FIRST, COMPUTE, "write");
            eo_hand_access(hand, EO_WRITE, row, 1, 5);
        }
        if (cases[i].cover) {
            eo_hand_operation(hand, FIRST, COMPUTE, "cover");
            eo_hand_access(hand, EO_WRITE, cover, 1, 5); /* the same subject and version, yet another row */
        }
        eo_hand_operation(hand, FIRST, COMPUTE, "look");
        eo_hand_access(hand, cases[i].mode, row, cases[i].subject, cases[i].version);
        if (cases[i].good)
            expect_none(hand, 1);
        else
            expect_one(hand, 1, EO_HAZARD_STALE, "look", writer);
        free(hand);
    }
}

/*
 * The fault that only versions show: an optimizer that was forgotten, a gather of the layer that was there before.
 * Method: update and gather on one stream. In the steady list the gather stands before the update, or the update is
 * missing: all pairs stay ordered.
 */
Test(proof, a_gather_of_old_weights_is_found)
{
    for (int fault = 0; fault < 3; fault++) {
        struct eo_hand *hand = eo_hand_create(1);
        const uint32_t shard = eo_hand_row(hand, "shard", 0, 256, 3);
        const uint32_t buffer = eo_hand_row(hand, "buffer", 256, 512, EO_NONE);
        for (int list = FIRST; list <= STEADY; list++) {
            for (int k = 0; k < 2; k++) {
                const bool update = (k == 0) != (fault == 1 && list == STEADY);
                if (update && !(fault == 2 && list == STEADY)) {
                    eo_hand_operation(hand, (eo_list)list, COMM, "update");
                    eo_hand_access(hand, EO_UPDATE, shard, 3, 1);
                }
                if (!update) {
                    eo_hand_operation(hand, (eo_list)list, COMM, "gather");
                    eo_hand_access(hand, EO_READ, shard, 3, 1);
                    eo_hand_access(hand, EO_WRITE, buffer, 3, 1);
                }
            }
        }
        if (fault == 0) {
            expect_none(hand, 4);
        } else {
            expect_one(hand, 2, EO_HAZARD_STALE, "gather", "update");
            cr_expect_eq(hand->hazards[0].row, shard);
            cr_expect_eq(hand->hazards[0].other_run, 0); /* the update of the run before left what was found */
        }
        free(hand);
    }
}

/* Puts down: w writes on compute; r reads on communication and waits as told. */
static struct eo_hand *make_wait(const char *awaited, eo_stream_id stream, bool previous_run)
{
    struct eo_hand *hand = eo_hand_create(1);
    for (int list = FIRST; list < EO_LIST_COUNT; list++) {
        eo_hand_operation(hand, (eo_list)list, COMPUTE, "w");
        eo_hand_operation(hand, (eo_list)list, COMM, "r");
        if (list != FIRST && awaited != NULL)
            eo_hand_wait(hand, stream, awaited, previous_run);
        eo_hand_operation(hand, (eo_list)list, COMPUTE, "z");
    }
    return hand;
}

/*
 * A wait must name an earlier record: of the same run, of the run before if it says so, on the stream that it says.
 * Method: the same three operations with waits that miss in each of these ways, and those that do not.
 */
Test(proof, waits_that_name_no_record_are_found)
{
    static const struct {
        const char *awaited;
        eo_stream_id stream;
        bool previous_run, good;
    } cases[] = {
        {"w", EO_STREAM_COMPUTE, false, true},      {"z", EO_STREAM_COMPUTE, true, true},
        {"z", EO_STREAM_COMPUTE, false, false},     /* not issued yet in this run */
        {"w", EO_STREAM_COMPUTE, true, false},      /* the latest record is of this run */
        {"w", EO_STREAM_REDUCE, false, false},      /* on another stream */
        {"never", EO_STREAM_COMPUTE, false, false}, /* in no list */
        {"never", EO_STREAM_COMPUTE, true, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct eo_hand *hand = make_wait(cases[i].awaited, cases[i].stream, cases[i].previous_run);
        if (cases[i].good)
            expect_none(hand, 2);
        else
            expect_one(hand, 2, EO_HAZARD_UNKNOWN_WAIT, "r", "");
        free(hand);
    }
    struct eo_hand *hand = make_wait("w", COMPUTE, false);
    hand->operations[STEADY][0].record = false; /* the record of the first run is too old */
    expect_one(hand, 2, EO_HAZARD_UNKNOWN_WAIT, "r", "");
    hand->operations[STEADY][1].wait[COMPUTE] = 12345; /* beyond all ids */
    expect_one(hand, 2, EO_HAZARD_UNKNOWN_WAIT, "r", "");
    free(hand);
}

/*
 * In the first run there is no previous one: a hazard for the lists of a step, none for the forward list.
 * Method: one list with a wait for the previous run, started first.
 */
Test(proof, the_first_run_has_no_previous_run)
{
    struct eo_hand *hand = make_wait("z", COMPUTE, true);
    cr_expect_eq(eo_hand_prove(hand, FIRST, STEADY, 3), EO_OK, "%s", hand->hazards[0].text);
    cr_expect_eq(eo_hand_prove(hand, FORWARD, FORWARD, 3), EO_OK, "%s", hand->hazards[0].text);
    cr_expect_eq(eo_hand_prove(hand, STEADY, STEADY, 3), EO_ERR_SCHEDULE);
    cr_expect_eq(hand->hazard_count, 1);
    cr_expect_eq(hand->hazards[0].kind, EO_HAZARD_UNKNOWN_WAIT);
    hand->operations[FIRST][1].wait[COMPUTE] = eo_hand_id(hand, "z");
    hand->operations[FIRST][1].wait_previous_run[COMPUTE] = true;
    cr_expect_eq(eo_hand_prove(hand, FIRST, STEADY, 1), EO_ERR_SCHEDULE);
    free(hand);
}

/*
 * One operation: the same row may be read and written, two rows that share addresses may not if one is written.
 * Method: all pairs of modes, in both cases. On the same row each looks at what was there before the operation.
 */
Test(proof, one_operation_does_not_write_what_it_touches_as_another_row)
{
    static const enum eo_access_mode modes[] = {EO_READ, EO_WRITE, EO_UPDATE};
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) {
            for (int shared = 0; shared < 2; shared++) {
                struct eo_hand *hand = eo_hand_create(1);
                const uint32_t row = eo_hand_row(hand, "row", 0, 8, 1);
                const uint32_t other = shared ? row : eo_hand_row(hand, "other", 7, 8, 1);
                eo_hand_operation(hand, FIRST, COMPUTE, "both");
                static const int32_t versions[] = {[EO_READ] = 0, [EO_WRITE] = 5, [EO_UPDATE] = 1};
                eo_hand_access(hand, modes[a], row, 1, versions[modes[a]]);
                eo_hand_access(hand, modes[b], other, 1, versions[modes[b]]);
                const bool race = !shared && (modes[a] != EO_READ || modes[b] != EO_READ);
                eo_hand_prove(hand, FIRST, STEADY, 1);
                uint32_t races = 0;
                for (uint32_t i = 0; i < hand->hazard_count; i++)
                    races += hand->hazards[i].kind == EO_HAZARD_RACE;
                cr_expect(!shared || hand->hazard_count == 0, "modes %d and %d: %s", a, b, hand->hazards[0].text);
                cr_expect_eq(races, race, "modes %d and %d, %s: %u", a, b, shared ? "one row" : "two rows", races);
                free(hand);
            }
        }
    }
}

/*
 * Versions: by step, by micro-batch with a scale, fixed.
 * Method: three micro-batches add twice each to a row, over three runs; a frozen row is read in all of them; a read
 * after the end of a run names the last version. One version off is stale.
 */
Test(proof, versions_count_steps_and_micro_batches)
{
    for (int fault = 0; fault < 4; fault++) {
        struct eo_hand *hand = eo_hand_create(3);
        const uint32_t sum = eo_hand_row(hand, "sum", 0, 8, 0);
        const uint32_t frozen = eo_hand_row(hand, "frozen", 8, 8, 1);
        for (int list = FIRST; list <= STEADY; list++) {
            for (uint32_t m = 0; m < 3; m++) {
                for (int32_t k = 0; k < 2; k++) {
                    eo_hand_operation(hand, (eo_list)list, COMPUTE, "add")->micro_batch = m;
                    struct eo_access *access = eo_hand_access(hand, EO_UPDATE, sum, 0, k + 1);
                    access->version_kind = EO_VERSION_MICRO_BATCH;
                    access->version_scale = 2;
                    access = eo_hand_access(hand, EO_READ, frozen, 1, fault == 1);
                    access->version_kind = EO_VERSION_FIXED;
                }
            }
            eo_hand_operation(hand, (eo_list)list, COMPUTE, "end");
            struct eo_access *access = eo_hand_access(hand, EO_READ, sum, 0, fault == 2 ? 5 : 6);
            access->version_kind = EO_VERSION_MICRO_BATCH;
            access->version_scale = fault == 3 ? 0 : 2; /* 0 stands for 1: right in run 0 only */
        }
        if (fault == 0)
            expect_none(hand, 3);
        else
            cr_expect_eq(eo_hand_prove(hand, FIRST, STEADY, 3), EO_ERR_SCHEDULE, "fault %d", fault);
        cr_expect_eq(hand->hazard_count, fault == 1 ? 18 : fault == 2 ? 3 : fault == 3 ? 2 : 0);
        free(hand);
    }
}
