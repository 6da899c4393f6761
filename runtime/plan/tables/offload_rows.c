/* SPDX-License-Identifier: MIT
 *
 * Rows of offloaded layers and activations: the slots that they pass through, and their places on disk.
 */
#include "runtime/plan/tables/tables.h"

#include "base/arithmetic.h"
#include "base/check.h"
#include "runtime/plan/optimizers.h"

/* In the order of updates; at least update_count: not offloaded. */
static uint32_t offloaded_place(const struct eo_plan *plan, uint32_t l)
{
    uint32_t u = plan->offload_begin;
    while (u < plan->update_count && plan->updates[u] != l)
        u++;
    return u;
}

bool eo_plan_is_offloaded(const struct eo_plan *plan, uint32_t l)
{
    return offloaded_place(plan, l) < plan->update_count;
}

/* The first fetches come before their gradients are there. With replicas, a gradient that was reduced in place goes two ways
 * to its norm, too far for a row that others wait for. */
bool eo_plan_offloads_gradient(const struct eo_plan *plan, uint32_t l)
{
    const bool one_way = plan->replicas == 1 || plan->params.reduce_dtype == EO_DTYPE_FP32;
    return plan->params.offload_gradients && plan->params.micro_batches == 1 && plan->layers[l].use_count == 1 && one_way &&
           eo_plan_is_offloaded(plan, l) && offloaded_place(plan, l) >= plan->offload_begin + plan->params.offload_slots;
}

/* Of a layer in a buffer. */
static uint64_t offload_bytes(const struct eo_plan *plan, uint32_t l)
{
    const struct plan_layer *layer = &plan->layers[l];
    return eo_plan_offload_offset(plan, layer, plan->state_count) +
           (eo_plan_offloads_gradient(plan, l) ? eo_align_up(layer->layout.shard_count * sizeof(float), EO_DISK_ALIGN) : 0);
}

uint64_t eo_plan_state_bytes(const struct eo_plan *plan, uint32_t state, uint64_t count)
{
    const eo_optimizer own = state == plan->ema_state ? EO_OPTIMIZER_ADAMW : plan->params.optimizer; /* the average is fp32 */
    return eo_plan_state_words(own, count) * sizeof(float);
}

uint64_t eo_plan_offload_offset(const struct eo_plan *plan, const struct plan_layer *layer, uint32_t state)
{
    const uint64_t count = layer->layout.shard_count;
    uint64_t offset = plan->params.dtype == EO_DTYPE_BF16 ? eo_align_up(count * sizeof(int16_t), EO_DISK_ALIGN) : 0;
    for (uint32_t k = 0; k < state; k++)
        offset += eo_align_up(eo_plan_state_bytes(plan, k, count), EO_DISK_ALIGN);
    return offset;
}

/* Buffers, each as large as the largest layer that passes through it, with room to begin where the disk wants it to. They
 * live as long as the run: nothing of a step waits for the last evictions. */
eo_status eo_plan_make_offload_rows(struct eo_plan *plan)
{
    const uint32_t slots = plan->params.offload_slots;
    for (uint32_t s = 0; s < slots && plan->offload_begin + s < plan->update_count; s++) {
        uint64_t bytes = 0;
        for (uint32_t u = plan->offload_begin + s; u < plan->update_count; u += slots)
            bytes = eo_max_u64(bytes, offload_bytes(plan, plan->updates[u]));
        uint32_t row;
        EO_TRY(eo_plan_add_row(plan, &row, EO_CATEGORY_OPTIMIZER, EO_SPACE_PRIVATE, bytes + EO_DISK_ALIGN, true,
                               "offload.slot%u", s));
        for (uint32_t u = plan->offload_begin + s; u < plan->update_count; u += slots)
            plan->layers[plan->updates[u]].offload_row = row;
    }
    return EO_OK;
}

/* Offloaded gradients are reduced into two rows in turn, and leave from there. */
eo_status eo_plan_make_gradient_slots(struct eo_plan *plan)
{
    enum { SLOTS = 2 };
    for (uint32_t s = 0; s < SLOTS; s++) {
        uint64_t count = 0;
        for (uint32_t u = plan->offload_begin + s; u < plan->update_count; u += SLOTS)
            if (eo_plan_offloads_gradient(plan, plan->updates[u]))
                count = eo_max_u64(count, plan->layers[plan->updates[u]].layout.shard_count);
        uint32_t row;
        if (count == 0)
            continue;
        EO_TRY(eo_plan_add_row(plan, &row, EO_CATEGORY_GRADIENT, EO_SPACE_GRADIENT,
                               eo_align_up(count * sizeof(float), EO_DISK_ALIGN) + EO_DISK_ALIGN, false, "gradient.offload%u",
                               s));
        for (uint32_t u = plan->offload_begin + s; u < plan->update_count; u += SLOTS)
            if (eo_plan_offloads_gradient(plan, plan->updates[u]))
                plan->layers[plan->updates[u]].gradient_row = plan->layers[plan->updates[u]].sum_row = row;
    }
    return EO_OK;
}

static bool has_saved(const struct eo_model *model, uint32_t position)
{
    for (uint32_t b = 0; b < model->buffer_count; b++)
        if (model->buffers[b].saved && model->buffers[b].first.position == position)
            return true;
    return false;
}

/* Which positions' saved buffers leave after the forward pass. Those that are needed first stay in the slots. */
void eo_plan_find_saved(struct eo_plan *plan, const struct eo_model *model)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        plan->positions[p].saved = count < plan->params.offload_activations && has_saved(model, p) ? count++ : EO_NONE;
        plan->positions[p].shared_count = 0;
    }
    for (uint32_t p = 0; p < plan->position_count; p++)
        plan->positions[p].leaves = plan->positions[p].saved != EO_NONE && plan->positions[p].saved + EO_SAVED_SLOTS < count;
    if (plan->params.offload_activations && count <= EO_SAVED_SLOTS)
        eo_log_write(&plan->log, EO_LOG_WARN,
                     "offload_activations has no effect: of the positions with saved buffers it reaches %u, and "
                     "the last %d stay in memory; offload those of more positions, save more (less recompute), or leave it out",
                     count, EO_SAVED_SLOTS);
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        struct plan_position *position = &plan->positions[model->buffers[b].first.position];
        plan->buffers[b].disk_row = EO_NONE;
        plan->buffers[b].shared = model->buffers[b].saved && position->saved != EO_NONE;
        plan->buffers[b].place = plan->buffers[b].shared ? position->shared_count++ : EO_NONE;
    }
}

/* The bytes of a slot's row `place`: the most of all buffers that pass through it. `row`, if not NULL, becomes theirs. */
static uint64_t saved_bytes(struct eo_plan *plan, const struct eo_model *model, uint32_t slot, uint32_t place,
                            const uint32_t *row)
{
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        if (plan->buffers[b].place != place || plan->positions[model->buffers[b].first.position].saved % EO_SAVED_SLOTS != slot)
            continue;
        bytes = eo_max_u64(bytes, model->buffers[b].bytes);
        if (row)
            plan->buffers[b].row = *row;
    }
    return bytes;
}

/* With room to begin where the disk wants it to. */
eo_status eo_plan_make_saved_rows(struct eo_plan *plan, const struct eo_model *model)
{
    for (uint32_t slot = 0; slot < EO_SAVED_SLOTS; slot++)
        for (uint32_t place = 0;; place++) {
            const uint64_t bytes = saved_bytes(plan, model, slot, place, NULL);
            uint32_t row;
            if (bytes == 0)
                break;
            EO_TRY(eo_plan_add_row(plan, &row, EO_CATEGORY_ACTIVATION, EO_SPACE_PRIVATE,
                                   eo_align_up(bytes, EO_DISK_ALIGN) + EO_DISK_ALIGN, false, "saved.slot%u.%u", slot, place));
            (void)saved_bytes(plan, model, slot, place, &row);
        }
    return EO_OK;
}

eo_status eo_plan_make_disk_rows(struct eo_plan *plan, const struct eo_model *model)
{
    plan->disk_row_begin = plan->row_count;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].shared && plan->positions[model->buffers[b].first.position].leaves)
            EO_TRY(eo_plan_add_row(plan, &plan->buffers[b].disk_row, EO_CATEGORY_ACTIVATION, EO_SPACE_DISK,
                                   eo_align_up(model->buffers[b].bytes, EO_DISK_ALIGN), true, "disk.%s",
                                   model->buffers[b].name));
    for (uint32_t u = plan->offload_begin; u < plan->update_count; u++) {
        struct plan_layer *layer = &plan->layers[plan->updates[u]];
        EO_TRY(eo_plan_add_row(plan, &layer->disk_row, EO_CATEGORY_OPTIMIZER, EO_SPACE_DISK,
                               eo_plan_offload_offset(plan, layer, plan->state_count), true, "disk.%s", layer->name));
        if (eo_plan_offloads_gradient(plan, plan->updates[u]))
            EO_TRY(eo_plan_add_row(plan, &layer->disk_gradient_row, EO_CATEGORY_GRADIENT, EO_SPACE_DISK,
                                   eo_align_up(layer->layout.shard_count * sizeof(float), EO_DISK_ALIGN), true,
                                   "disk.gradient.%s", layer->name));
    }
    return EO_OK;
}
