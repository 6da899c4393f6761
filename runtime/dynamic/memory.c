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

eo_status eo_dynamic_order(struct eo_runtime *rt, uint32_t queue, const struct eo_event *event)
{
    RUNTIME_TRY(rt, rt->device->ops->wait(rt->device, queue, event), "step %llu", (unsigned long long)rt->steps.finished + 1);
    return EO_OK;
}

void eo_dynamic_copy(struct eo_runtime *rt, void *to, const void *from, uint64_t bytes)
{
    rt->device->ops->copy(rt->device, to, from, bytes);
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
