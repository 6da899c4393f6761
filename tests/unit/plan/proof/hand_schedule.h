/* SPDX-License-Identifier: MIT
 *
 * Schedules written down by hand, for tests. Operations are known by name: one name is one id in every list.
 * An operation and a row is put down in a line each; accesses and waits go to the operation put down last.
 */
#ifndef EO_TESTS_UNIT_PLAN_PROOF_HAND_SCHEDULE_H
#define EO_TESTS_UNIT_PLAN_PROOF_HAND_SCHEDULE_H

#include "runtime/plan/proof/proof.h"

enum {
    EO_HAND_OPERATIONS_MAX = 256, /* a list */
    EO_HAND_ACCESSES_MAX = 4096,
    EO_HAND_ROWS_MAX = 128,
    EO_HAND_IDS_MAX = 256,
    EO_HAND_HAZARDS_MAX = 256,
};

struct eo_hand {
    struct eo_schedule schedule; /* points into what follows: not to be copied */
    struct eo_operation operations[EO_LIST_COUNT][EO_HAND_OPERATIONS_MAX];
    struct eo_access accesses[EO_HAND_ACCESSES_MAX];
    struct eo_schedule_row rows[EO_HAND_ROWS_MAX];
    char row_names[EO_HAND_ROWS_MAX][32];
    char names[EO_HAND_IDS_MAX][48]; /* by id */
    struct eo_operation *last;

    struct eo_hazard hazards[EO_HAND_HAZARDS_MAX]; /* of the last proof; more are counted only */
    uint32_t hazard_count;
};

/* NULL when memory is out; free() releases it. */
struct eo_hand *eo_hand_create(uint32_t micro_batches);

/* `subject` is what the row holds at first, or EO_NONE. */
uint32_t eo_hand_row(struct eo_hand *hand, const char *name, uint64_t address, uint64_t bytes, uint32_t subject);
uint32_t eo_hand_id(struct eo_hand *hand, const char *name);

/* Of no position, layer and micro-batch, without waits, and recorded. */
struct eo_operation *eo_hand_operation(struct eo_hand *hand, eo_list list, eo_stream_id stream, const char *name);
/* Version: runs so far + offset. */
struct eo_access *eo_hand_access(struct eo_hand *hand, enum eo_access_mode mode, uint32_t row, uint32_t subject,
                                 int32_t offset);
void eo_hand_wait(struct eo_hand *hand, eo_stream_id stream, const char *name, bool previous_run);

/* An eo_operation_namer; the user is the eo_hand. */
void eo_hand_namer(void *user, const struct eo_operation *operation, char *text, size_t bytes);

/* Proves `count` runs: the list `first` once, then `second`; collects all hazards. */
eo_status eo_hand_prove(struct eo_hand *hand, eo_list first, eo_list second, uint32_t count);

/* Proves these runs with what stands before each; collects all hazards. */
eo_status eo_hand_prove_turns(struct eo_hand *hand, const eo_list *sequence, const uint8_t *turns, uint32_t count);

/* The name of the later and of the earlier operation of a hazard; "" if there is none. For eo_hand_prove's sequences.
 */
const char *eo_hand_later(const struct eo_hand *hand, const struct eo_hazard *hazard, eo_list first, eo_list second);
const char *eo_hand_earlier(const struct eo_hand *hand, const struct eo_hazard *hazard, eo_list first,
                            eo_list second);

#endif
