/* SPDX-License-Identifier: MIT
 *
 * Late updates: the offloaded layers of a step are updated in the forward passes of the next one, each directly before the first
 * gather or pass that needs its weights, so that fetches and evictions have these passes to hide behind.
 *
 *     steady    [update(1) evict(1) fetch(3)] F(1) [update(2) evict(2) fetch(4)] F(2) ... fetch(1) fetch(2) B ... norm
 *     first                                   F(1)                               F(2) ... fetch(1) fetch(2) B ... norm
 *     updates    update(1) evict(1) fetch(3)        update(2) evict(2) fetch(4)  ...
 *
 * The last list stands for the next step where that is not run yet, or not as a steady one: before an evaluation, a checkpoint,
 * weights calls. Updates keep their order, for the buffers are taken in turn; the first ones of the next round are fetched where
 * the last ones of this have left.
 */
#include "runtime/plan/list/builder.h"

static bool layer_is_late(const struct eo_plan *plan, uint32_t layer)
{
    return plan->params.late_updates && plan->layers[layer].disk_row != EO_NONE;
}

bool eo_list_is_late(const struct eo_plan *plan, const struct list_pass *pass)
{
    for (uint32_t part = 0; part <= pass->brings; part++)
        if (layer_is_late(plan, plan->positions[pass[part].position].layer))
            return true;
    return false;
}

static void add_next(struct list_builder *b)
{
    const struct eo_plan *plan = b->plan;
    const uint32_t u = b->late_update++, slots = plan->params.offload_slots;
    b->is_late = true;
    eo_list_add_offloaded_update(b, u);
    b->is_late = false;
    if (u + slots >= plan->update_count)
        eo_list_add_copy(b, EO_OP_FETCH, plan->updates[plan->offload_begin + (u - plan->offload_begin) % slots]);
}

static bool is_to_come(const struct list_builder *b, uint32_t layer)
{
    for (uint32_t u = b->late_update; u < b->plan->update_count; u++)
        if (b->plan->updates[u] == layer)
            return true;
    return false;
}

void eo_list_add_late_updates(struct list_builder *b, const struct list_pass *pass)
{
    for (uint32_t part = 0; part <= pass->brings; part++)
        while (is_to_come(b, b->plan->positions[pass[part].position].layer))
            add_next(b);
}

void eo_list_finish_late_updates(struct list_builder *b)
{
    while (b->late_update < b->plan->update_count)
        add_next(b);
}
