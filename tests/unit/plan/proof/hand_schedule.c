/* SPDX-License-Identifier: MIT */
#include "tests/unit/plan/proof/hand_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { RUNS_MAX = 16 };

struct eo_hand *eo_hand_create(uint32_t micro_batches)
{
    struct eo_hand *hand = calloc(1, sizeof(*hand));
    if (hand == NULL)
        return NULL;
    for (int list = 0; list < EO_LIST_COUNT; list++)
        hand->schedule.lists[list].operations = hand->operations[list];
    hand->schedule.accesses = hand->accesses;
    hand->schedule.rows = hand->rows;
    hand->schedule.micro_batches = micro_batches;
    for (int stream = 0; stream < EO_STREAM_COUNT; stream++)
        hand->schedule.queue_items[stream] = UINT32_MAX; /* but where a test says less */
    return hand;
}

uint32_t eo_hand_row(struct eo_hand *hand, const char *name, uint64_t address, uint64_t bytes, uint32_t subject)
{
    const uint32_t row = hand->schedule.row_count++;
    EO_ASSERT(row < EO_HAND_ROWS_MAX);
    snprintf(hand->row_names[row], sizeof(hand->row_names[row]), "%s", name);
    hand->rows[row] = (struct eo_schedule_row){.name = hand->row_names[row],
                                               .address = address,
                                               .bytes = bytes,
                                               .initialised = subject != EO_NONE,
                                               .initial_subject = subject};
    return row;
}

uint32_t eo_hand_id(struct eo_hand *hand, const char *name)
{
    for (uint32_t id = 0; id < hand->schedule.id_count; id++)
        if (strcmp(hand->names[id], name) == 0)
            return id;
    const uint32_t id = hand->schedule.id_count++;
    EO_ASSERT(id < EO_HAND_IDS_MAX);
    snprintf(hand->names[id], sizeof(hand->names[id]), "%s", name);
    return id;
}

struct eo_operation *eo_hand_operation(struct eo_hand *hand, eo_list list, eo_stream_id stream, const char *name)
{
    const uint32_t index = hand->schedule.lists[list].count++;
    EO_ASSERT(index < EO_HAND_OPERATIONS_MAX);
    hand->last = &hand->operations[list][index];
    *hand->last = (struct eo_operation){.kind = EO_OP_FORWARD,
                                        .stream = stream,
                                        .position = EO_NONE,
                                        .layer = EO_NONE,
                                        .micro_batch = EO_NONE,
                                        .access_begin = hand->schedule.access_count,
                                        .id = eo_hand_id(hand, name),
                                        .record = true};
    for (int s = 0; s < EO_STREAM_COUNT; s++)
        hand->last->wait[s] = EO_NONE;
    return hand->last;
}

struct eo_access *eo_hand_access(struct eo_hand *hand, enum eo_access_mode mode, uint32_t row, uint32_t subject,
                                 int32_t offset)
{
    EO_ASSERT(hand->schedule.access_count < EO_HAND_ACCESSES_MAX);
    struct eo_access *access = &hand->accesses[hand->schedule.access_count++];
    *access = (struct eo_access){.row = row,
                                 .subject = subject,
                                 .version_offset = offset,
                                 .mode = (uint8_t)mode,
                                 .version_kind = EO_VERSION_STEP};
    hand->last->access_count++;
    return access;
}

void eo_hand_wait(struct eo_hand *hand, eo_stream_id stream, const char *name, bool previous_run)
{
    hand->last->wait[stream] = eo_hand_id(hand, name);
    hand->last->wait_previous_run[stream] = previous_run;
}

void eo_hand_namer(void *user, const struct eo_operation *operation, char *text, size_t bytes)
{
    const struct eo_hand *hand = user;
    snprintf(text, bytes, "%s", hand->names[operation->id]);
}

static bool collect(void *user, const struct eo_hazard *hazard)
{
    struct eo_hand *hand = user;
    if (hand->hazard_count < EO_HAND_HAZARDS_MAX)
        hand->hazards[hand->hazard_count] = *hazard;
    hand->hazard_count++;
    return true;
}

eo_status eo_hand_prove(struct eo_hand *hand, eo_list first, eo_list second, uint32_t count)
{
    eo_list sequence[RUNS_MAX] = {first};
    EO_ASSERT(count <= RUNS_MAX);
    for (uint32_t run = 1; run < count; run++)
        sequence[run] = second;
    return eo_hand_prove_turns(hand, sequence, NULL, count);
}

eo_status eo_hand_prove_turns(struct eo_hand *hand, const eo_list *sequence, const uint8_t *turns, uint32_t count)
{
    const struct eo_proof_params params = {.schedule = &hand->schedule,
                                           .sequence = sequence,
                                           .turns = turns,
                                           .sequence_count = count,
                                           .namer = eo_hand_namer,
                                           .namer_user = hand,
                                           .report = collect,
                                           .report_user = hand};
    struct eo_hazard hazard;
    hand->hazard_count = 0;
    const eo_status status = eo_proof_run(&params, &hazard);
    EO_ASSERT(status == EO_ERR_NO_MEMORY || (status == EO_OK) == (hand->hazard_count == 0));
    EO_ASSERT(status != EO_OK || hazard.kind == EO_HAZARD_NONE);
    return status;
}

static const char *name_at(const struct eo_hand *hand, eo_list list, uint32_t operation)
{
    return operation == EO_NONE ? "" : hand->names[hand->operations[list][operation].id];
}

const char *eo_hand_later(const struct eo_hand *hand, const struct eo_hazard *hazard, eo_list first, eo_list second)
{
    return name_at(hand, hazard->run == 0 ? first : second, hazard->operation);
}

const char *eo_hand_earlier(const struct eo_hand *hand, const struct eo_hazard *hazard, eo_list first, eo_list second)
{
    return name_at(hand, hazard->other_run == 0 ? first : second, hazard->other_operation);
}
