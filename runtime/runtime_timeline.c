/* SPDX-License-Identifier: MIT
 *
 * The names of operations, and the timeline: an entry for each operation that is issued.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

static size_t name_index(const struct eo_plan *plan, eo_operation_kind kind, uint32_t position, uint32_t layer)
{
    const size_t stride = (size_t)plan->position_count + plan->layer_count + 1;
    const size_t what = position != EO_NONE ? position
                        : layer != EO_NONE  ? (size_t)plan->position_count + layer
                                            : stride - 1;
    return (size_t)kind * stride + what;
}

size_t eo_runtime_name_count(const struct eo_plan *plan)
{
    return name_index(plan, EO_OP_KIND_COUNT, 0, 0);
}

eo_status eo_runtime_names_init(struct eo_runtime *rt)
{
    const struct eo_plan *plan = rt->plan;
    rt->names = calloc(eo_runtime_name_count(plan), sizeof(*rt->names));
    if (!rt->names)
        return EO_ERR_NO_MEMORY;
    for (uint32_t kind = 0; kind < EO_OP_KIND_COUNT; kind++) {
        for (uint32_t i = 0; i < plan->position_count + plan->layer_count + 1; i++) {
            const struct eo_operation operation = {
                .kind = (eo_operation_kind)kind,
                .position = i < plan->position_count ? i : EO_NONE,
                .layer = i >= plan->position_count && i < plan->position_count + plan->layer_count
                             ? i - plan->position_count
                             : EO_NONE,
                .micro_batch = EO_NONE,
            };
            char text[EO_NAME_MAX * 2];
            eo_plan_operation_text(plan, &operation, text, sizeof(text));
            char *copy = strdup(text);
            if (!copy)
                return EO_ERR_NO_MEMORY;
            rt->names[name_index(plan, operation.kind, operation.position, operation.layer)] = copy;
        }
    }
    return EO_OK;
}

void eo_runtime_names_fini(struct eo_runtime *rt)
{
    for (size_t i = 0; rt->names && i < eo_runtime_name_count(rt->plan); i++)
        free((char *)rt->names[i]);
    free(rt->names);
}

struct eo_timeline_entry *eo_runtime_entry(struct eo_runtime *rt, eo_operation_kind kind, eo_stream_id stream,
                                           uint32_t position, uint32_t layer, uint32_t operation)
{
    const size_t name = name_index(rt->plan, kind, position, layer);
    struct eo_timeline_entry *entry = rt->recording ? eo_graph_times_entry(rt) : eo_timeline_add(&rt->timeline);
    *entry = (struct eo_timeline_entry){
        .name = rt->names[name],
        .category = eo_operation_kind_name(kind),
        .operation = operation,
        .kind = kind,
        .queue = stream,
        .name_index = (uint32_t)name,
        .step = rt->step,
    };
    if (stream == EO_STREAM_COMPUTE)
        rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.ready_ns);
    else
        entry->span.ready_ns = eo_now_ns();
    if (rt->params.recorder && !rt->recording)
        eo_flight_recorder_mark(rt->params.recorder, entry->name_index, rt->step, rt->timeline.count);
    return entry;
}

void eo_runtime_begin_entries(struct eo_runtime *rt)
{
    rt->step_entry[2] = rt->step_entry[1];
    rt->step_entry[1] = rt->step_entry[0];
    rt->step_entry[0] = rt->timeline.count;
}

/* The step whose collectives have surely all ended is the last but one: gathers at the end of the last may still run
 * until the first passes of the next have waited for them. */
uint32_t eo_runtime_timeline(const eo_runtime *rt, eo_timeline_record *records, uint32_t capacity)
{
    if (!rt || !records || rt->step < 2)
        return 0;
    rt->device->ops->resolve_stamps(rt->device);
    const uint32_t in_step = rt->phase == PHASE_STEP; /* then the newest begin is of a step not finished yet */
    const uint64_t begin = rt->step_entry[in_step + 1], end = rt->step_entry[in_step];
    uint32_t count = 0;
    for (uint64_t i = begin; i < end && count < capacity; i++) {
        if (i + rt->timeline.capacity < rt->timeline.count)
            continue; /* overwritten: the ring is smaller than two steps */
        const struct eo_timeline_entry *entry = &rt->timeline.entries[i % rt->timeline.capacity];
        records[count++] = (eo_timeline_record){
            .operation = entry->operation,
            .kind = (eo_operation_kind)entry->kind,
            .stream = (eo_stream_id)entry->queue,
            .name = entry->name,
            .ready_ns = entry->span.ready_ns,
            .start_ns = entry->span.start_ns,
            .end_ns = entry->span.end_ns,
            .live_bytes = entry->live_bytes,
        };
    }
    return count;
}

void eo_runtime_write_trace(const eo_runtime *rt, eo_write_fn write, void *user)
{
    if (!rt || !write)
        return;
    (void)rt->device->ops->drain(rt->device);
    rt->device->ops->resolve_stamps(rt->device);
    eo_timeline_write(&rt->timeline, rt->world->rank, write, user);
}
