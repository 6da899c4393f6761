/* SPDX-License-Identifier: MIT
 *
 * Memory of the dynamic mode: taken, given back, copied, ordered between queues; and timeline entries with the bytes live.
 */
#include "runtime/dynamic/internal.h"

#include "base/check.h"

eo_status eo_dynamic_take(struct eo_runtime *rt, uint32_t queue, uint64_t bytes, const char *what, void **out)
{
    *out = eo_allocate(eo_dynamic_state(rt)->allocator, bytes, queue);
    if (!*out)
        return eo_runtime_fail(rt, EO_ERR_NO_MEMORY, "out of memory: %llu bytes for %s", (unsigned long long)bytes, what);
    return EO_OK;
}

void eo_dynamic_give(struct eo_runtime *rt, uint32_t queue, void **memory)
{
    eo_free(eo_dynamic_state(rt)->allocator, *memory, queue);
    *memory = NULL;
}

eo_status eo_dynamic_take_tensor(struct eo_runtime *rt, const struct plan_layer *layer, uint32_t k, uint64_t size, void **tensors)
{
    const struct plan_parameter *parameter = &rt->plan->parameters[layer->parameter_begin + k];
    uint64_t room = parameter->room;
    if (parameter->joined && tensors[k - 1]) {
        tensors[k] = (char *)tensors[k - 1] + parameter[-1].room * size;
        return EO_OK;
    }
    for (uint32_t n = 1; k + n < layer->parameter_count && parameter[n].joined; n++)
        room += parameter[n].room;
    return eo_dynamic_take(rt, EO_QUEUE_COMPUTE, room * size, parameter->name, &tensors[k]);
}

void eo_dynamic_give_tensors(struct eo_runtime *rt, const struct plan_layer *layer, void **tensors)
{
    void *before = NULL;
    for (uint32_t k = 0; k < layer->parameter_count; k++) {
        const bool is_inside = before && rt->plan->parameters[layer->parameter_begin + k].joined;
        before = tensors[k];
        if (is_inside)
            tensors[k] = NULL;
        else
            eo_dynamic_give(rt, EO_QUEUE_COMPUTE, &tensors[k]);
    }
}

eo_status eo_dynamic_order(struct eo_runtime *rt, uint32_t queue, const struct eo_event *event)
{
    RUNTIME_TRY(rt, rt->device->ops->wait(rt->device, queue, event), "step %llu", (unsigned long long)rt->steps.finished + 1);
    return EO_OK;
}

void eo_dynamic_copy(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes)
{
    rt->device->ops->copy(rt->device, EO_QUEUE_COMPUTE, to, from, bytes);
    rt->stats.copied_bytes += 2 * bytes;
}

struct eo_timeline_entry *eo_dynamic_entry(struct eo_runtime *rt, eo_operation_kind kind, eo_stream_id stream,
                                           uint32_t position, uint32_t layer)
{
    return eo_runtime_entry(rt, kind, stream, position, layer, eo_dynamic_state(rt)->operation++);
}

void eo_dynamic_note_live(struct eo_runtime *rt, struct eo_timeline_entry *entry)
{
    struct eo_allocator_stats stats;
    eo_allocator_get_stats(eo_dynamic_state(rt)->allocator, &stats);
    entry->live_bytes = stats.live_bytes;
}
