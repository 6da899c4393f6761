/* SPDX-License-Identifier: MIT
 *
 * Groups inside a group. Ranks tell each other color and key, wait until all have, and find from that, each by itself,
 * who belongs together; the first of each color to take the lock makes the group, and the others find it there.
 */
#include "streams/local/local.h"

#include "base/check.h"

struct split {
    struct eo_group *group;
    uint64_t number;
    uint32_t missing;
};

static bool have_all_come(struct split *split)
{
    for (uint32_t r = 0; r < split->group->params.rank_count; r++) {
        split->missing = r;
        if (atomic_load(&split->group->splitters[r].entered) < split->number)
            return false;
    }
    return true;
}

static bool have_come_or_failed(void *arg)
{
    struct split *split = arg;
    return eo_local_failure(split->group) < 0 || have_all_come(split);
}

static eo_status await_all(struct eo_group *parent, uint32_t rank, uint64_t number)
{
    struct split split = {parent, number, 0};
    const uint32_t timeout_ms = parent->params.timeout_ms;
    uint64_t left_ns = timeout_ms * UINT64_C(1000000);
    bool in_time = false;
    while (!in_time && left_ns > 0)
        in_time = eo_local_await_look(&parent->split_gate, have_come_or_failed, &split, &left_ns);
    EO_TRY(eo_local_failure(parent));
    if (!in_time)
        return eo_local_fail(parent, EO_ERR_TIMEOUT,
                             "rank %u has not reached the split of the group within %u ms of rank %u; find out why, or raise "
                             "the timeout", split.missing, timeout_ms, rank);
    return EO_OK;
}

/* All have come. The place of a rank among those of its color, and the lowest of these: there the group lies. */
static uint32_t find_place(const struct eo_group *parent, uint32_t rank, uint32_t parity, struct eo_group_place *out)
{
    const uint32_t color = parent->splitters[rank].answers[parity].color;
    const uint32_t key = parent->splitters[rank].answers[parity].key;
    uint32_t lowest = UINT32_MAX;
    *out = (struct eo_group_place){0};
    for (uint32_t r = 0; r < parent->params.rank_count; r++) {
        if (parent->splitters[r].answers[parity].color != color)
            continue;
        const uint32_t other = parent->splitters[r].answers[parity].key;
        lowest = lowest == UINT32_MAX ? r : lowest;
        out->rank_count++;
        out->rank += other < key || (other == key && r < rank);
    }
    return lowest;
}

static eo_status make_group(struct eo_group **out, struct eo_group *parent, uint32_t rank_count)
{
    struct eo_group_params params = parent->params;
    params.rank_count = rank_count;
    EO_TRY(eo_local_group_make(out, &params, parent->root));
    atomic_fetch_add(&parent->root->references, 1); /* the new group's own */
    (*out)->next = parent->root->next;
    parent->root->next = *out;
    return EO_OK;
}

/* Where the family has failed nobody makes a group any more, and one that is made is given back: no rank's reference
 * is left over. */
static eo_status take_group(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                            uint32_t rank, uint64_t number)
{
    struct split split = {parent, number, 0};
    struct eo_group *given_back = NULL;
    eo_local_lock(parent);
    eo_status status = eo_local_failure(parent);
    if (have_all_come(&split)) {
        struct eo_group **made = &parent->splitters[find_place(parent, rank, number & 1, place)].answers[number & 1].group;
        if (status >= 0 && !*made)
            status = make_group(made, parent, place->rank_count);
        if (status >= 0)
            *out = *made;
        else
            given_back = *made;
    }
    eo_local_unlock(parent);
    eo_local_group_release(given_back);
    return status;
}

eo_status eo_local_group_split(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                               uint32_t rank, uint32_t color, uint32_t key)
{
    *out = NULL;
    *place = (struct eo_group_place){0};
    EO_REQUIRE(&parent->log, rank < parent->params.rank_count, "split: rank %u of %u", rank,
               parent->params.rank_count);
    struct eo_local_splitter *self = &parent->splitters[rank];
    const uint64_t number = atomic_load(&self->entered) + 1;
    self->answers[number & 1].color = color;
    self->answers[number & 1].key = key;
    self->answers[number & 1].group = NULL;
    atomic_store(&self->entered, number);
    eo_gate_notify(&parent->split_gate);
    const eo_status awaited = await_all(parent, rank, number);
    if (color == EO_GROUP_NO_COLOR)
        return awaited;
    const eo_status status = take_group(out, place, parent, rank, number);
    return status == EO_ERR_NO_MEMORY
               ? eo_local_fail(parent, status, "rank %u: out of memory for a group inside the group", rank)
               : status;
}
