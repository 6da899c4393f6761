/* SPDX-License-Identifier: MIT
 *
 * The proof on schedules small enough to see through.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/plan/hand_schedule.h"

#define COMPUTE EO_STREAM_COMPUTE
#define COMM    EO_STREAM_COMM
#define REDUCE  EO_STREAM_REDUCE
#define FIRST   EO_LIST_FIRST
#define STEADY  EO_LIST_STEADY
#define FORWARD EO_LIST_FORWARD

/* Runs the first list once, then the steady list; the proof must find exactly one hazard, with these operations. */
static void expect_one(struct eo_hand *hand, uint32_t runs, enum eo_hazard_kind kind, const char *later,
                       const char *earlier)
{
    cr_assert_eq(eo_hand_prove(hand, FIRST, STEADY, runs), EO_ERR_SCHEDULE, "%s was not found", later);
    const struct eo_hazard *hazard = &hand->hazards[0];
    cr_assert_eq(hand->hazard_count, 1, "%u hazards, the second: %s", hand->hazard_count, hand->hazards[1].text);
    cr_assert_eq(hazard->kind, kind, "%s", hazard->text);
    cr_assert_str_eq(eo_hand_later(hand, hazard, FIRST, STEADY), later, "%s", hazard->text);
    cr_assert_str_eq(eo_hand_earlier(hand, hazard, FIRST, STEADY), earlier, "%s", hazard->text);
}

static void expect_none(struct eo_hand *hand, uint32_t runs)
{
    cr_assert_eq(eo_hand_prove(hand, FIRST, STEADY, runs), EO_OK, "%s", hand->hazards[0].text);
}

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
