/* SPDX-License-Identifier: MIT
 *
 * Fetches and evictions: of offloaded layers around their updates, of what a position saves between its passes.
 */
#include "runtime/plan/list/builder.h"

eo_stream_id eo_list_copy_stream(const struct eo_plan *plan, eo_operation_kind kind)
{
    return kind == EO_OP_EVICT && plan->params.separate_evict_stream ? EO_STREAM_EVICT : EO_STREAM_COPY;
}

void eo_list_add_copy(struct list_builder *b, eo_operation_kind kind, uint32_t l)
{
    const struct plan_layer *layer = &b->plan->layers[l];
    const uint32_t subject = eo_subject(SUBJECT_OFFLOADED, l);
    const bool fetches = kind == EO_OP_FETCH;
    eo_list_operation(b, kind, eo_list_copy_stream(b->plan, kind), EO_NONE, l, EO_NONE, 0);
    eo_list_access(b, fetches ? layer->disk_row : layer->offload_row, EO_READ, subject, EO_VERSION_STEP, !fetches, 1);
    if (fetches && layer->disk_gradient_row != EO_NONE)
        eo_list_access(b, layer->disk_gradient_row, EO_READ, eo_subject(SUBJECT_OFFLOADED_GRADIENT, l), EO_VERSION_STEP, 0, 1);
    eo_list_access(b, fetches ? layer->offload_row : layer->disk_row, EO_WRITE, subject, EO_VERSION_STEP, !fetches, 1);
    eo_list_operation_end(b);
}

void eo_list_add_saved(struct list_builder *b, eo_operation_kind kind, const struct list_pass *pass, uint32_t p)
{
    const struct eo_plan *plan = b->plan;
    const bool fetches = kind == EO_OP_FETCH;
    if (p == EO_NONE || !plan->positions[p].leaves)
        return;
    eo_list_operation(b, kind, eo_list_copy_stream(plan, kind), p, plan->positions[p].layer, pass->micro_batch, 0)->saved = true;
    const uint32_t at = eo_moment_order((eo_moment){EO_PASS_FORWARD, p}, plan->position_count);
    for (int writes = 0; writes < 2; writes++)
        for (uint32_t i = b->first.begin[at]; i < b->first.begin[at + 1]; i++) {
            const uint32_t index = b->first.buffers[i];
            const struct plan_buffer *buffer = &plan->buffers[index];
            if (buffer->shared)
                eo_list_access(b, fetches == (bool)writes ? buffer->row : buffer->disk_row, writes ? EO_WRITE : EO_READ,
                               eo_subject(SUBJECT_BUFFER, index), EO_VERSION_MICRO_BATCH, 0, 1);
        }
    eo_list_operation_end(b);
}

void eo_list_add_first_fetches(struct list_builder *b)
{
    const struct eo_plan *plan = b->plan;
    if (plan->params.late_updates) /* they stand behind the evictions of the step before */
        return;
    for (uint32_t u = plan->offload_begin; u < plan->update_count && u < plan->offload_begin + plan->params.offload_slots; u++)
        eo_list_add_copy(b, EO_OP_FETCH, plan->updates[u]);
}
