/* SPDX-License-Identifier: MIT */
#include "runtime/plan/proof/lives.h"

#include <stdlib.h>

#include "base/check.h"

/* The first and the last key of a row's life; EO_NONE in both where no pass is in it. */
struct life {
    uint32_t first, last;
};

uint32_t eo_proof_moment(uint32_t position_count, eo_pass pass, uint32_t position)
{
    EO_ASSERT(position < position_count);
    switch (pass) {
    case EO_PASS_FORWARD: return position;
    case EO_PASS_RECOMPUTE: return 3 * position_count - 2 - 2 * position;
    case EO_PASS_BACKWARD:
    default: return 3 * position_count - 1 - 2 * position;
    }
}

static uint32_t count_positions(const struct eo_schedule *schedule)
{
    uint32_t count = 0;
    for (int list = 0; list < EO_LIST_COUNT; list++)
        for (uint32_t i = 0; i < schedule->lists[list].count; i++)
            if (schedule->lists[list].operations[i].position != EO_NONE &&
                schedule->lists[list].operations[i].position >= count)
                count = schedule->lists[list].operations[i].position + 1;
    for (uint32_t row = 0; row < schedule->row_count; row++) {
        const struct eo_schedule_row *r = &schedule->rows[row];
        if (r->trainers && r->first.position >= count)
            count = r->first.position + 1;
        if (r->trainers && r->last.position >= count)
            count = r->last.position + 1;
    }
    return count;
}

/* In a step: by moments, less those of forward passes that heads do not have. */
static struct life step_life(uint32_t positions, const bool *has_forward, const struct eo_schedule_row *row)
{
    uint32_t first = eo_proof_moment(positions, row->first.pass, row->first.position);
    uint32_t last = eo_proof_moment(positions, row->last.pass, row->last.position);
    while (first < positions && !has_forward[first])
        first++;
    while (last < positions && !has_forward[last] && last > 0)
        last--;
    if (first > last || (last < positions && !has_forward[last]))
        return (struct life){EO_NONE, EO_NONE};
    return (struct life){first, last};
}

/* In a forward-only run: by positions, whose order heads may turn round. */
static struct life forward_life(uint32_t positions, const bool *has_forward, const struct eo_schedule_row *row)
{
    const uint32_t first = eo_proof_moment(positions, row->first.pass, row->first.position);
    const uint32_t last = eo_proof_moment(positions, row->last.pass, row->last.position);
    struct life life = {EO_NONE, EO_NONE};
    for (uint32_t p = 0; p < positions; p++) {
        const uint32_t now = eo_proof_moment(positions, has_forward[p] ? EO_PASS_FORWARD : EO_PASS_BACKWARD, p);
        if (now < first || now > last)
            continue;
        life.last = p;
        if (life.first == EO_NONE)
            life.first = p;
    }
    return life;
}

/* Counts, then fills. `keys` of EO_NONE are left out. */
static eo_status make_agenda(struct eo_proof_agenda *out, const struct life *lives, bool ends, uint32_t row_count,
                             uint32_t key_count)
{
    out->begin = calloc((size_t)key_count + 2, sizeof(out->begin[0]));
    out->rows = calloc((size_t)row_count + 1, sizeof(out->rows[0]));
    if (out->begin == NULL || out->rows == NULL)
        return EO_ERR_NO_MEMORY;
    for (uint32_t row = 0; row < row_count; row++)
        if (lives[row].first != EO_NONE)
            out->begin[(ends ? lives[row].last : lives[row].first) + 2]++;
    for (uint32_t key = 2; key < key_count + 2; key++)
        out->begin[key] += out->begin[key - 1];
    for (uint32_t row = 0; row < row_count; row++)
        if (lives[row].first != EO_NONE)
            out->rows[out->begin[(ends ? lives[row].last : lives[row].first) + 1]++] = row;
    return EO_OK;
}

static eo_status make_agendas(struct eo_proof_lives *out, const struct eo_schedule *schedule, bool *has_forward,
                              struct life *lives)
{
    const uint32_t positions = out->position_count, rows = schedule->row_count;
    for (uint32_t i = 0; i < schedule->lists[EO_LIST_FIRST].count; i++) {
        const struct eo_operation *operation = &schedule->lists[EO_LIST_FIRST].operations[i];
        if (operation->kind == EO_OP_FORWARD && operation->position != EO_NONE)
            has_forward[operation->position] = true;
    }
    for (int forward = 0; forward < 2; forward++) {
        for (uint32_t row = 0; row < rows; row++)
            lives[row] = !schedule->rows[row].trainers ? (struct life){EO_NONE, EO_NONE}
                         : forward                     ? forward_life(positions, has_forward, &schedule->rows[row])
                                                       : step_life(positions, has_forward, &schedule->rows[row]);
        const uint32_t keys = forward ? positions : 3 * positions;
        EO_TRY(make_agenda(forward ? &out->forward_begins : &out->step_begins, lives, false, rows, keys));
        EO_TRY(make_agenda(forward ? &out->forward_ends : &out->step_ends, lives, true, rows, keys));
    }
    return EO_OK;
}

eo_status eo_proof_lives_make(struct eo_proof_lives *out, const struct eo_schedule *schedule)
{
    *out = (struct eo_proof_lives){.position_count = count_positions(schedule)};
    bool *has_forward = calloc((size_t)out->position_count + 1, sizeof(*has_forward));
    struct life *lives = calloc((size_t)schedule->row_count + 1, sizeof(*lives));
    const bool room = has_forward != NULL && lives != NULL;
    const eo_status status = room ? make_agendas(out, schedule, has_forward, lives) : EO_ERR_NO_MEMORY;
    free(has_forward);
    free(lives);
    return status;
}

static void free_agenda(struct eo_proof_agenda *agenda)
{
    free(agenda->begin);
    free(agenda->rows);
}

void eo_proof_lives_free(struct eo_proof_lives *lives)
{
    free_agenda(&lives->step_begins);
    free_agenda(&lives->step_ends);
    free_agenda(&lives->forward_begins);
    free_agenda(&lives->forward_ends);
}
