/* SPDX-License-Identifier: MIT */
#include "tests/unit/plan/proof/random_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { LINE_BYTES = 24, ROW_BYTES_MAX = 4, SUBJECTS = 2 /* the same for all rows */ };

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)(draw(state) % bound);
}

static struct eo_access *access_of(struct eo_hand *hand, const struct eo_operation *operation, uint32_t i)
{
    return &hand->accesses[operation->access_begin + i];
}

/*
 * Names the contents of a row, so that each look finds what the operation before it in the list left, the first one
 * what the run before left. A row that is written somewhere ends each run at version s + 1; one that is only updated
 * gains as many versions a run as it has updates.
 */
static void name_row(struct eo_hand *hand, const struct eo_operation_list *list, uint32_t row, uint64_t *random)
{
    uint32_t subject = 0, updates_after_write = 0, updates = 0;
    bool written = false;
    for (uint32_t i = 0; i < list->count; i++) {
        for (uint32_t a = 0; a < list->operations[i].access_count; a++) {
            struct eo_access *access = access_of(hand, &list->operations[i], a);
            if (access->row != row)
                continue;
            if (access->mode == EO_WRITE) {
                access->subject = subject = below(random, SUBJECTS);
                written = true;
                updates_after_write = 0;
            } else if (access->mode == EO_UPDATE) {
                updates_after_write++;
                updates++;
            }
        }
    }
    const uint32_t micro_batches = hand->schedule.micro_batches;
    const int32_t gain = written ? 1 : (int32_t)updates; /* versions a run */
    int32_t version = 0;                                 /* minus s * gain */
    hand->rows[row].initial_subject = subject;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct eo_operation *operation = &list->operations[i];
        for (uint32_t a = 0; a < operation->access_count; a++) {
            struct eo_access *access = access_of(hand, operation, a);
            if (access->row != row)
                continue;
            if (access->mode == EO_WRITE) {
                subject = access->subject;
                /* The updates that follow the last write of a run end at version s + 1. */
                version = 1 - (int32_t)updates_after_write;
            } else if (access->mode == EO_UPDATE) {
                version++;
            }
            access->subject = subject;
            access->version_offset = version;
            access->version_scale = 0;
            if (gain == 0) {
                access->version_kind = EO_VERSION_FIXED;
            } else if (gain % (int32_t)micro_batches == 0 && (gain > 1 || below(random, 2) == 0)) {
                const int32_t scale = gain / (int32_t)micro_batches;
                access->version_kind = EO_VERSION_MICRO_BATCH;
                access->version_scale = (uint16_t)scale;
                if (operation->micro_batch != EO_NONE)
                    access->version_offset -= (int32_t)operation->micro_batch * scale;
            } else {
                access->version_kind = EO_VERSION_STEP; /* right if the gain is 1, else mended below */
            }
        }
    }
}

struct byte {
    uint32_t row, subject;
    int64_t version;
};

static int64_t version_of(const struct eo_hand *hand, const struct eo_operation *operation,
                          const struct eo_access *access, uint32_t run)
{
    const uint32_t m = operation->micro_batch == EO_NONE ? 0 : operation->micro_batch;
    const uint32_t scale = access->version_scale == 0 ? 1 : access->version_scale;
    const int64_t micro_batch = (int64_t)(run * hand->schedule.micro_batches + m) * scale;
    return access->version_offset + (access->version_kind == EO_VERSION_STEP          ? run
                                     : access->version_kind == EO_VERSION_MICRO_BATCH ? micro_batch
                                                                                      : 0);
}

static bool row_holds(const struct eo_schedule_row *row, const struct byte *line, const struct byte *wanted)
{
    for (uint64_t b = row->address; b < row->address + row->bytes; b++)
        if (line[b].row != wanted->row || line[b].subject != wanted->subject || line[b].version != wanted->version)
            return false;
    return true;
}

/* Runs the list in order, three times; the first access that does not find its content becomes a write. */
static bool mend_one(struct eo_hand *hand, const struct eo_operation_list *list)
{
    struct byte line[LINE_BYTES];
    memset(line, 0xff, sizeof(line));
    for (uint32_t row = 0; row < hand->schedule.row_count; row++)
        for (uint64_t b = 0; hand->rows[row].initialised && b < hand->rows[row].bytes; b++)
            line[hand->rows[row].address + b] = (struct byte){row, hand->rows[row].initial_subject, 0};
    for (uint32_t run = 0; run < 3; run++) {
        for (uint32_t i = 0; i < list->count; i++) {
            const struct eo_operation *operation = &list->operations[i];
            for (uint32_t a = 0; a < operation->access_count; a++) {
                struct eo_access *access = access_of(hand, operation, a);
                const struct eo_schedule_row *row = &hand->rows[access->row];
                const int64_t version = version_of(hand, operation, access, run);
                const struct byte wanted = {access->row, access->subject, version - (access->mode == EO_UPDATE)};
                if (access->mode != EO_WRITE && !row_holds(row, line, &wanted)) {
                    access->mode = EO_WRITE;
                    return true;
                }
                for (uint64_t b = 0; access->mode != EO_READ && b < row->bytes; b++)
                    line[row->address + b] = (struct byte){access->row, access->subject, version};
            }
        }
    }
    return false;
}

static bool conflict(struct eo_hand *hand, const struct eo_operation *a, const struct eo_operation *b)
{
    for (uint32_t i = 0; i < a->access_count; i++) {
        for (uint32_t k = 0; k < b->access_count; k++) {
            const struct eo_access *x = access_of(hand, a, i), *y = access_of(hand, b, k);
            const struct eo_schedule_row *r = &hand->rows[x->row], *t = &hand->rows[y->row];
            if ((x->mode != EO_READ || y->mode != EO_READ) && r->address < t->address + t->bytes &&
                t->address < r->address + r->bytes)
                return true;
        }
    }
    return false;
}

/* For each operation and other stream: the latest conflicting operation of this run, else of the run before. */
static void add_all_waits(struct eo_hand *hand, const struct eo_operation_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct eo_operation *operation = &list->operations[i];
        for (uint32_t back = 1; back <= list->count; back++) {
            const bool previous = back > i;
            const struct eo_operation *earlier = &list->operations[(i + list->count - back) % list->count];
            if (earlier->stream == operation->stream || operation->wait[earlier->stream] != EO_NONE ||
                !conflict(hand, operation, earlier))
                continue;
            operation->wait[earlier->stream] = earlier->id;
            operation->wait_previous_run[earlier->stream] = previous;
        }
    }
}

static void break_something(struct eo_hand *hand, const struct eo_operation_list *list, uint64_t *random)
{
    const uint32_t how = below(random, 100);
    struct eo_operation *operation = &list->operations[below(random, list->count)];
    if (how < 40)
        return;
    if (how < 75) { /* take away about one wait in three */
        for (uint32_t i = 0; i < list->count; i++)
            for (int s = 0; s < EO_STREAM_COUNT; s++)
                if (below(random, 3) == 0)
                    list->operations[i].wait[s] = EO_NONE;
    } else if (how < 90) {
        struct eo_access *access = access_of(hand, operation, below(random, operation->access_count));
        const uint32_t what = below(random, 3);
        if (what == 0)
            access->subject += SUBJECTS;
        else if (what == 1)
            access->version_offset += below(random, 2) == 0 ? 1 : -1;
        else
            access->row = (access->row + 1) % hand->schedule.row_count;
    } else if (how < 94) {
        operation->record = false;
    } else {
        const struct eo_operation *awaited = &list->operations[below(random, list->count)];
        operation->wait[awaited->stream] = awaited->id;
        operation->wait_previous_run[awaited->stream] =
            below(random, 4) == 0 ? below(random, 2) == 0 : awaited >= operation;
    }
}

/* The first list is the steady list without waits for the run before; now and then an operation is left out of it. */
static void make_other_lists(struct eo_hand *hand, uint64_t *random)
{
    const struct eo_operation_list *steady = &hand->schedule.lists[EO_LIST_STEADY];
    const uint32_t left_out = below(random, 12) == 0 ? below(random, steady->count) : EO_NONE;
    for (uint32_t i = 0; i < steady->count; i++) {
        const struct eo_operation *operation = &steady->operations[i];
        hand->operations[EO_LIST_FORWARD][hand->schedule.lists[EO_LIST_FORWARD].count++] = *operation;
        if (i == left_out)
            continue;
        struct eo_operation *first = &hand->operations[EO_LIST_FIRST][hand->schedule.lists[EO_LIST_FIRST].count++];
        *first = *operation;
        for (int s = 0; s < EO_STREAM_COUNT; s++)
            if (first->wait_previous_run[s])
                first->wait[s] = EO_NONE;
    }
}

eo_status eo_random_schedule_make(struct eo_random_schedule *out, uint64_t seed)
{
    uint64_t random = seed * 0x2545f4914f6cdd1du + 1;
    struct eo_hand *hand = out->hand = eo_hand_create(1 + below(&random, 2));
    if (hand == NULL)
        return EO_ERR_NO_MEMORY;
    const struct eo_operation_list *steady = &hand->schedule.lists[EO_LIST_STEADY];
    const uint32_t row_count = 3 + below(&random, 2), stream_count = 2 + below(&random, 2);
    const bool overlap = below(&random, 2) == 0;
    for (uint32_t row = 0; row < row_count; row++) {
        char name[16];
        snprintf(name, sizeof(name), "row%u", row);
        const uint32_t address = overlap ? below(&random, 8) : row * ROW_BYTES_MAX;
        eo_hand_row(hand, name, address, 1 + below(&random, ROW_BYTES_MAX), below(&random, 5) == 0 ? EO_NONE : 0);
    }

    out->sequence_count = 2 + below(&random, 2);
    const uint32_t count = 3 + below(&random, out->sequence_count == 2 ? 8 : 6);
    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "op%u", i);
        struct eo_operation *operation =
            eo_hand_operation(hand, EO_LIST_STEADY, (eo_stream_id)below(&random, stream_count), name);
        if (below(&random, 2) == 0)
            operation->micro_batch = below(&random, hand->schedule.micro_batches);
        const uint32_t first = below(&random, row_count), access_count = 1 + below(&random, 2);
        for (uint32_t a = 0; a < access_count; a++) {
            const uint32_t mode = below(&random, 10);
            eo_hand_access(hand, mode < 5 ? EO_READ : mode < 8 ? EO_WRITE : EO_UPDATE, (first + a) % row_count, 0, 0);
        }
    }
    do {
        for (uint32_t row = 0; row < row_count; row++)
            name_row(hand, steady, row, &random);
    } while (mend_one(hand, steady));
    add_all_waits(hand, steady);
    break_something(hand, steady, &random);
    make_other_lists(hand, &random);

    const bool forward = below(&random, 4) == 0;
    for (uint32_t run = 0; run < out->sequence_count; run++)
        out->sequence[run] = forward ? EO_LIST_FORWARD : run == 0 ? EO_LIST_FIRST : EO_LIST_STEADY;
    return EO_OK;
}
