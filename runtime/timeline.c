/* SPDX-License-Identifier: MIT
 *
 * The names of operations, and the timeline: an entry for each operation that is issued.
 */
#include "runtime/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/sized.h"
#include "runtime/graph_times.h"

static size_t name_index(const struct eo_plan *plan, eo_operation_kind kind, uint32_t position, uint32_t layer)
{
    const size_t stride = (size_t)plan->position_count + plan->layer_count + 1;
    const size_t what = position != EO_NONE ? position
                        : layer != EO_NONE  ? (size_t)plan->position_count + layer
                                            : stride - 1;
    return (size_t)kind * stride + what;
}

/* Behind those of operations: a whole step, then gathers of each layer outside the schedule. */
static size_t graph_name_index(const struct eo_plan *plan)
{
    return name_index(plan, EO_OP_KIND_COUNT, 0, 0);
}

size_t eo_runtime_name_count(const struct eo_plan *plan)
{
    return graph_name_index(plan) + 1 + plan->layer_count;
}

static eo_status name_layers(const char **names, const struct eo_plan *plan)
{
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        char text[EO_NAME_MAX * 2];
        snprintf(text, sizeof(text), "%sweights of %s", plan->layers[l].part_of == EO_NONE ? "" : "frozen ",
                 plan->layers[l].name);
        names[l] = strdup(text);
        if (!names[l])
            return EO_ERR_NO_MEMORY;
    }
    return EO_OK;
}

const char *eo_runtime_weights_name(const struct eo_runtime *rt, uint32_t layer)
{
    return rt->timeline.names[graph_name_index(rt->plan) + 1 + layer];
}

eo_status eo_runtime_names_init(struct runtime_timeline *timeline, const struct eo_plan *plan)
{
    timeline->names = calloc(eo_runtime_name_count(plan), sizeof(*timeline->names));
    if (!timeline->names)
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
            timeline->names[name_index(plan, operation.kind, operation.position, operation.layer)] = copy;
        }
    }
    timeline->names[graph_name_index(plan)] = strdup("a step as a graph");
    EO_TRY(name_layers(timeline->names + graph_name_index(plan) + 1, plan));
    return timeline->names[graph_name_index(plan)] ? EO_OK : EO_ERR_NO_MEMORY;
}

void eo_runtime_names_fini(struct runtime_timeline *timeline, const struct eo_plan *plan)
{
    for (size_t i = 0; timeline->names && i < eo_runtime_name_count(plan); i++)
        free((char *)timeline->names[i]);
    free(timeline->names);
}

struct eo_timeline_entry *eo_runtime_entry(struct eo_runtime *rt, eo_operation_kind kind, eo_stream_id stream,
                                           uint32_t position, uint32_t layer, uint32_t operation)
{
    const size_t name = name_index(rt->plan, kind, position, layer);
    struct eo_timeline_entry *entry =
        rt->graph.recording ? eo_graph_times_entry(rt->graph.times) : eo_timeline_add(&rt->timeline.ring);
    *entry = (struct eo_timeline_entry){
        .name = rt->timeline.names[name],
        .category = eo_operation_kind_name(kind),
        .operation = operation,
        .kind = kind,
        .queue = stream,
        .name_index = (uint32_t)name,
        .step = rt->steps.finished,
    };
    if (stream == EO_STREAM_COMPUTE)
        rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.ready_ns);
    else
        entry->span.ready_ns = eo_now_ns();
    if (rt->params.recorder && !rt->graph.recording)
        eo_flight_recorder_mark(rt->params.recorder, entry->name_index, rt->steps.finished, rt->timeline.ring.count);
    return entry;
}

void eo_runtime_mark_graph(struct eo_runtime *rt)
{
    if (rt->params.recorder)
        eo_flight_recorder_mark(rt->params.recorder, (uint32_t)graph_name_index(rt->plan), rt->steps.finished,
                                rt->timeline.ring.count);
}

void eo_runtime_range_begin(struct eo_runtime *rt, const char *name)
{
    if (rt->device->ops->range_begin)
        rt->device->ops->range_begin(rt->device, name);
}

void eo_runtime_range_end(struct eo_runtime *rt)
{
    if (rt->device->ops->range_end)
        rt->device->ops->range_end(rt->device);
}

void eo_runtime_open_pass(struct eo_runtime *rt, struct eo_timeline_entry *entry)
{
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &entry->span.start_ns);
    rt->timeline.open = entry;
    eo_runtime_range_begin(rt, entry->name);
}

void eo_runtime_close_pass(struct eo_runtime *rt)
{
    eo_runtime_range_end(rt);
    rt->device->ops->stamp(rt->device, EO_QUEUE_COMPUTE, &rt->timeline.open->span.end_ns);
}

void eo_runtime_begin_entries(struct runtime_timeline *timeline)
{
    for (int i = 2; i > 0; i--) {
        timeline->step_begin[i] = timeline->step_begin[i - 1];
        timeline->step_end[i] = timeline->step_end[i - 1];
    }
    timeline->step_begin[0] = timeline->step_end[0] = timeline->ring.count;
}

void eo_runtime_end_entries(struct runtime_timeline *timeline)
{
    timeline->step_end[0] = timeline->ring.count;
}

/* The step whose collectives have surely all ended is the last but one: gathers at the end of the last may still run
 * until the first passes of the next have waited for them. */
uint32_t eo_runtime_timeline_sized(const eo_runtime *rt, eo_timeline_record *records, uint32_t capacity, size_t record_bytes)
{
    if (!rt || !records || rt->steps.finished < 2)
        return 0;
    rt->device->ops->resolve_stamps(rt->device);
    const uint32_t in_step = rt->cursor.phase == PHASE_STEP; /* then the newest begin is of a step not finished yet */
    const uint64_t begin = rt->timeline.step_begin[in_step + 1], end = rt->timeline.step_end[in_step + 1];
    uint32_t count = 0;
    for (uint64_t i = begin; i < end && count < capacity; i++) {
        if (i + rt->timeline.ring.capacity < rt->timeline.ring.count)
            continue; /* overwritten: the ring is smaller than two steps */
        const struct eo_timeline_entry *entry = &rt->timeline.ring.entries[i % rt->timeline.ring.capacity];
        const eo_timeline_record record = {
            .operation = entry->operation,
            .kind = (eo_operation_kind)entry->kind,
            .stream = (eo_stream_id)entry->queue,
            .name = entry->name,
            .ready_ns = entry->span.ready_ns,
            .start_ns = entry->span.start_ns,
            .end_ns = entry->span.end_ns,
            .live_bytes = entry->live_bytes,
        };
        eo_give_sized((char *)records + count++ * record_bytes, record_bytes, &record, sizeof(record));
    }
    return count;
}

void eo_runtime_write_trace(const eo_runtime *rt, eo_write_fn write, void *user)
{
    if (!rt || !write)
        return;
    (void)eo_host_drain((struct eo_runtime *)rt); /* looks after peers while it waits; a failure is told by the next call */
    rt->device->ops->resolve_stamps(rt->device);
    eo_timeline_write(&rt->timeline.ring, rt->world->rank, write, user);
}
